// Tables as elements.  All text goes in as text: names come from the traced program.

const ROWS_SHOWN = 10;
const SLOWEST_SHOWN = 30;

/** An element with properties and children: elements, or text. */
function element(tag, properties = {}, ...children) {
  const { dataset = {}, ...others } = properties;
  const made = Object.assign(document.createElement(tag), others);
  Object.assign(made.dataset, dataset);
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** A table; columns: `[title, class]`; a row is an array of cells, or `{ cells, ...properties }`. */
function table(columns, rows) {
  const head = element(
    "tr",
    {},
    ...columns.map(([title, className]) => element("th", { className, scope: "col" }, title)),
  );
  let longest = 0;
  const isName = ([, className]) => className === NAME || className === "word";
  const long = ([, className]) => (className === NAME ? 18 : 36);
  const content = (cell, column) =>
    isName(column) && typeof cell === "string" ? breakable(cell, long(column)) : [cell];
  const body = rows.map((row) => {
    const { cells, ...properties } = Array.isArray(row) ? { cells: row } : row;
    const cell = (it, i) =>
      element(i ? "td" : "th", { className: columns[i][1], scope: i ? "" : "row" }, ...content(it, columns[i]));
    const made = element("tr", properties, ...cells.map(cell));
    longest = Math.max(longest, made.cells[0]?.textContent.length ?? 0);
    return made;
  });
  const made = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  made.style.setProperty("--name", `${Math.min(longest, 14)}ch`);
  return made;
}

/** A name in parts between which a line may end, where a word is too `long` for a line of its own. */
function breakable(name, long) {
  return name.split(/(?<=\s)/).flatMap((word) => {
    const breaks = word.length > long ? word.split(/(?<=::|[.,(]|[A-Za-z0-9]_)(?=[^_\s])|(?<=[a-z])(?=[A-Z])/) : [word];
    return breaks.flatMap((part, i) => (i ? [element("wbr"), part] : [part]));
  });
}

/** Two bars, one above the other: the brushed share and that of the others. */
function shareBars([others, brushed]) {
  const bar = (className, share) => {
    const made = element("i", { className });
    made.style.width = `${100 * share}%`;
    return made;
  };
  return element("span", { className: "bars" }, bar("brushed", brushed), bar("others", others));
}

function card(id, title, ...content) {
  document.getElementById(id).replaceChildren(element("h2", {}, title), ...content.filter((part) => part !== null));
}

function note(text) {
  return element("p", { className: "note" }, text);
}

const NAME = "name";
const NUMBER = "number";

function showFigures(both, brushed) {
  const sides = brushed ? [BRUSHED, OTHERS] : [OTHERS];
  const titles = brushed ? ["brushed", "others"] : ["all"];
  const rowBy = (text) => (title, of) => [title, ...sides.map((s) => (both[s].ended ? text(of(both[s])) : "–"))];
  const [row, meanRow] = [duration, meanDuration].map(rowBy);
  const rows = [
    ["calls", ...sides.map((s) => grouped(both[s].ended))],
    ["did not end in sight", ...sides.map((s) => grouped(both[s].open))],
    meanRow("average", (tally) => tally.latency / tally.ended),
    ...ofOffCpu(meanRow("of it off-CPU", (tally) => tally.offCpu / tally.ended)),
    ...QUANTILES.map(([name]) => row(name, (tally) => tally.quantiles[name])),
    row("total", (tally) => tally.latency),
  ];
  card("figures", "Latency", table([["", NAME], ...titles.map((title) => [title, NUMBER])], rows));
}

/** `x 12`: how much more frequent. */
function times([others, brushed]) {
  if (others === 0) return "only here";
  const ratio = brushed / others;
  return `× ${ratio >= 100 ? grouped(Math.round(ratio)) : ratio.toPrecision(2)}`;
}

function showFactors(calls, both, brushed) {
  const title = "What is different about the brushed calls";
  const found = brushed ? factors(calls, both) : [];
  if (found.length === 0) {
    const why = brushed
      ? "Nothing: no thread, caller, CPU, way, reason or child is more frequent among them than chance has it."
      : "Brush some calls, and what they have more often than the others is listed here.";
    card("factors", title, note(why));
    return;
  }
  const rows = found
    .slice(0, ROWS_SHOWN)
    .map((row) => [
      row.name,
      shareBars(row.shares),
      percent(row.shares[BRUSHED]),
      percent(row.shares[OTHERS]),
      times(row.shares),
    ]);
  const columns = [
    ["", NAME],
    ["", "bar"],
    ["brushed", NUMBER],
    ["others", NUMBER],
    ["", NUMBER],
  ];
  card("factors", title, table(columns, rows), moreOf(found.length));
}

function moreOf(count, shown = ROWS_SHOWN) {
  return count > shown ? note(`and ${grouped(count - shown)} more`) : null;
}

/** Of which calls a table of children is, as names of a tally's sums. */
const ENDED_CHILDREN = { count: "withChildren", latency: "latencyWithChildren", childNs: "childNs", total: "average latency" };
const OPEN_CHILDREN = { count: "openWithChildren", latency: "openLatency", childNs: "openChildNs", total: "average time seen" };

/** Mean time of each child on both sides; the differences add up to that of the average latencies. */
function childRows(groups, both, brushed, of) {
  const row = (name, sumOf, work) => {
    const means = both.map((tally) => (tally[of.count] ? sumOf(tally) / tally[of.count] : 0));
    return { name, means, work, more: brushed ? means[BRUSHED] - means[OTHERS] : means[OTHERS] };
  };
  const isCounted = of === ENDED_CHILDREN && both[0].work !== undefined;
  const workOf = (group) => (isCounted ? both.map((tally) => tally.workOfChild(group)) : null);
  const ofAll = (tally) => ({
    instructions: tally.withInstructions,
    cycles: tally.withCycles,
    cyclesError: tally.withCyclesError,
  });
  const total = row(of.total, (tally) => tally[of.latency], isCounted ? both.map(ofAll) : null);
  const own = (tally) => tally[of.childNs].reduce((rest, ns) => rest - ns, tally[of.latency]);
  const rows = [...groups.map(({ name }, i) => row(name, (tally) => tally[of.childNs][i], workOf(i))), row("*self", own, workOf())];
  rows.sort((a, b) => Math.abs(b.more) - Math.abs(a.more));
  return { rows: rows.filter(({ means }) => means[OTHERS] + means[BRUSHED] > 0), total };
}

/** The first rows, and one that is the sum of all others: they still add up. */
function withRest(rows) {
  const rest = rows.slice(ROWS_SHOWN);
  if (rest.length < 2) return rows;
  const sum = (of) => rest.reduce((sum, row) => sum + of(row), 0);
  const means = [OTHERS, BRUSHED].map((s) => sum((row) => row.means[s]));
  const addAll = (s) => rest.map(({ work }) => work[s]).reduce(addFields);
  const work = rest[0].work === null ? null : [OTHERS, BRUSHED].map(addAll);
  return [...rows.slice(0, ROWS_SHOWN), { name: `${rest.length} others`, means, work, more: sum((row) => row.more) }];
}

/** Brushed calls beside the others, or all calls; `null`: there are none. */
function childrenTable(calls, both, brushed, of) {
  if (both.every((tally) => tally[of.count] === 0)) return null;
  const { rows, total } = childRows(calls.groups.all, both, brushed, of);
  const titles = brushed ? ["brushed", "others", "difference"] : ["average"];
  const sides = brushed ? [BRUSHED, OTHERS] : [OTHERS];
  const isCounted = total.work !== null;
  const workOf = (work) => (isCounted ? sides.map((s) => workCells(work[s], both[s][of.count])) : []);
  // Instructions of both sides, then IPC of both.
  const counters = (work) => [0, 1].flatMap((k) => workOf(work).map((cells) => cells[k]));
  const cells = ({ name, means, more, work }) =>
    brushed
      ? [name, ...[BRUSHED, OTHERS].map((s) => meanDuration(means[s])), (more > 0 ? "+" : "") + meanDuration(more), ...counters(work)]
      : [name, meanDuration(more), ...counters(work)];
  const body = [...withRest(rows).map(cells), { cells: cells(total), className: "total" }];
  const ofWork = isCounted ? workTitles(brushed) : [];
  return table([["child", NAME], ...titles.map((title) => [title, NUMBER]), ...ofWork], body);
}

/** Titles of columns of instructions and IPC. */
function workTitles(brushed) {
  const titles = brushed ? ["instr.: brushed", "others", "IPC: brushed", "others"] : ["instructions", "IPC"];
  return titles.map((title, k) => [title, `${NUMBER}${k % 2 === 0 && (brushed || k === 0) ? " first" : ""}`]);
}

function showChildren(calls, both, brushed) {
  const oneIn = calls.table.children_of_one_in;
  const sampled =
    oneIn > 1
      ? note(
          `Children of the slowest 1 % and of one in ${oneIn} of the other calls are in this page: these means are estimates.`,
        )
      : null;
  const ofOpen = childrenTable(calls, both, brushed, OPEN_CHILDREN);
  card(
    "children",
    "Where the time of one call goes",
    childrenTable(calls, both, brushed, ENDED_CHILDREN),
    sampled,
    ofOpen && note("Of the calls that did not end in sight, as far as they were seen:"),
    ofOpen,
  );
}

/**
 * Threads, callers, CPUs, ways or reasons, the most over-represented first; none: there is nothing to show.
 * `workOf`: the calls with a known number of instructions of one of them on one side, and what they executed.
 */
function showGroup(id, title, names, both, what, brushed, workOf = null) {
  const all = ranked(
    names,
    both.map((tally) => tally[what]),
    both.map((tally) => tally.count),
  );
  document.getElementById(id).hidden = all.length === 0;
  const columns = brushed
    ? [
        ["", NAME],
        ["", "bar"],
        ["brushed", NUMBER],
        ["others", NUMBER],
      ]
    : [
        ["", NAME],
        ["", "bar"],
        ["calls", NUMBER],
        ["share", NUMBER],
      ];
  const sides = brushed ? [BRUSHED, OTHERS] : [OTHERS];
  const counters = (row) => {
    const cells = workOf === null ? [] : sides.map((s) => workCells(...workOf(both[s], row.index)));
    return [0, 1].flatMap((k) => cells.map((of) => of[k]));
  };
  const rows = all
    .slice(0, ROWS_SHOWN)
    .map((row) =>
      brushed
        ? [row.name, shareBars(row.shares), percent(row.shares[BRUSHED]), percent(row.shares[OTHERS]), ...counters(row)]
        : [row.name, shareBars([row.shares[OTHERS], 0]), grouped(row.counts[OTHERS]), percent(row.shares[OTHERS]), ...counters(row)],
    );
  if (workOf !== null) columns.push(...workTitles(brushed));
  card(id, title, table(columns, rows), moreOf(all.length));
}

/** The slowest of the brushed calls, or of all; `pick` is told which was chosen. */
function showSlowest(calls, side, brushed, pick) {
  const wanted = brushed ? BRUSHED : OTHERS;
  const slowest = [];
  for (let k = calls.count - 1; k >= 0 && slowest.length < SLOWEST_SHOWN; k--) {
    if (side[calls.order[k]] === wanted) slowest.push(calls.order[k]);
  }
  const rows = slowest.map((i) => {
    const button = element("button", { type: "button", className: "link", onclick: () => pick(i) }, calls.id(i));
    const caller = placed(calls.table.callers[calls.caller[i]]);
    return {
      cells: [
        button,
        latencyText(calls, i),
        ...ofOffCpu(duration(calls.offCpu[i])),
        ...ofCounters(() => slowestWork(calls, i)),
        duration(calls.start[i]),
        calls.status(i),
        ...ofSlices(calls, calls.began(i)),
        caller,
      ],
      dataset: { call: i },
    };
  });
  const columns = [
    ["call", NAME],
    ["latency", NUMBER],
    ...ofOffCpu(["off-CPU", NUMBER]),
    ...ofCounters(() => [["instructions", NUMBER], ["IPC", NUMBER]]),
    ["began at", NUMBER],
    ["status", "word"],
    ...ofSlices(calls, ["probed", "word"]),
    ["caller", "word"],
  ];
  card("slowest", brushed ? "The slowest of the brushed calls" : "The slowest calls", table(columns, rows));
}

/** Instructions and IPC of a call. */
function slowestWork({ counters }, i) {
  const ipc = Number.isNaN(counters.ipc[i]) ? "unknown" : ratio(counters.ipc[i]);
  return [countText(counters.instructions[i]), ipc];
}

/** `12.2 us`, and of a call that was not seen to end, `≥ 12.2 us`. */
function latencyText(calls, i) {
  if (calls.isCounted(i)) return duration(calls.latency[i]);
  return `≥ ${duration(Math.max(calls.latency[i] - calls.error[i], 0))}`;
}
