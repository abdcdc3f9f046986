// Why slow calls were slow, more work or slower work, and where in the function's code.

/** The ledger of slow calls against typical ones, as `explain` has it; hidden where counters were not asked for. */
function showLedger({ table: { ledger, name } }) {
  const section = document.getElementById("ledger");
  section.hidden = ledger === undefined;
  if (section.hidden) return;
  const title = "Why the slow calls are slow: more work, or slower work";
  if (ledger.unknown !== null) return card("ledger", title, note(`unknown: ${ledger.unknown}`));
  const last = ledger.titles.length - 1;
  const columns = ledger.titles.map((title, k) => [title, k === 0 ? NAME : k === last ? "word" : NUMBER]);
  const rows = ledger.rows.map((cells, k) => ({ cells, className: k === ledger.rows.length - 1 ? "total" : "" }));
  const command = ["func_latency", "explain", "-i", shellWord(meta.input), "-f", shellWord(name)].join(" ");
  card(
    "ledger",
    title,
    ...ledger.sentences.map((text) => element("p", { className: "sentence" }, text)),
    table(columns, rows),
    note("In ns of the difference of the means. The parts of a row of running time add up to it; time off the CPU and in the kernel has none."),
    ...ledger.notes.map(note),
    element("p", { className: "note" }, "Its branches, and causes one by one: ", element("code", {}, command)),
  );
}

/** The function's lines as a card, while no call is opened. */
function showLines({ table }, isOpened) {
  const section = document.getElementById("lines");
  section.hidden = table.lines === undefined || isOpened;
  if (!section.hidden) card("lines", linesTitle(table), ...linesOf(table));
}

function linesTitle({ lines, name }) {
  return `Where in the code of ${name}: ${lines.what}s`;
}

/** The function's lines beside the tree of the call that is opened; nothing where counters were not asked for. */
function linesBeside({ table }) {
  if (table.lines === undefined) return [];
  return [element("div", { className: "lines-part" }, element("h2", {}, linesTitle(table)), ...linesOf(table))];
}

/** Text before the table, the table and notes. */
function linesOf({ lines }) {
  if (lines.unknown !== null) return [note(`unknown: ${lines.unknown}`)];
  const [slow, typical] = lines.groups;
  const all = lines.groups.reduce(addFields, {});
  const hasSlow = lines.asked !== null;
  const wholes = [wholeText("all", all)];
  if (hasSlow) wholes.push(wholeText(`slow (${lines.asked})`, slow), wholeText("typical", typical));
  const right = (title, first) => [title, `${NUMBER}${first ? " first" : ""}`];
  const ofSide = [right("times", true), right("self"), right("in calls")];
  const columns = [
    [lines.what, NAME],
    right("executions", true),
    right("self"),
    right("in calls"),
    ["share", `${NUMBER} share`],
    ...(hasSlow ? [...ofSide, ...ofSide, right("more", true)] : []),
  ];
  const rows = lines.rows.map((row) => lineRow(row, all, hasSlow ? [slow, typical] : null, columns.length));
  const made = table(columns, rows);
  made.classList.add("lines");
  if (hasSlow) {
    const head = (text, colSpan) => element("th", { colSpan, className: `${NUMBER} first`, scope: "colgroup" }, text);
    const heads = [head("all calls", 4), head("each slow call", 3), head("each typical call", 3), head("", 1)];
    made.tHead.prepend(element("tr", {}, element("th"), ...heads));
  }
  [...made.tBodies[0].rows].forEach((row, k) => {
    const [, self, inside] = sumOf(lines.rows[k]);
    row.style.setProperty("--share", `${(100 * (self + inside || 0)) / (all.latency_ns || 1)}%`);
  });
  return [...wholes.map(note), element("div", { className: "scroll" }, made), ...lines.notes.map(note)];
}

/** Each field of both. */
function addFields(sum, more) {
  return Object.fromEntries(Object.entries(more).map(([name, value]) => [name, (sum[name] ?? 0) + value]));
}

/** `21 calls, 3.1 ms: 2.0 ms in its own code, 1.1 ms in what it calls`. */
function wholeText(which, { calls, latency_ns, self_ns, self_error_ns, inside_ns, elsewhere_ns }) {
  const elsewhere = elsewhere_ns ? `, ${duration(elsewhere_ns)} in code that was not traced or is not known` : "";
  const error = meanDuration(self_error_ns / Math.max(calls, 1));
  return (
    `${which}: ${counted(calls, "call")}, ${duration(latency_ns)}: ${duration(self_ns)} in its own code ` +
    `(of each call ± ${error} at most), ${duration(inside_ns)} in what it calls${elsewhere}`
  );
}

/** Of all groups: executions (`null`: not known), own time, time in what it calls. */
function sumOf({ of }) {
  return of.reduce(
    ([times, self, inside], [more, selfMore, insideMore]) => [more === null ? null : times + more, self + selfMore, inside + insideMore],
    [0, 0, 0],
  );
}

function lineRow(row, all, both, columns) {
  const cell = element("span", { className: "callee" }, row.name);
  cell.style.setProperty("--depth", row.depth);
  if (row.calls !== "" && !row.name.endsWith(row.calls)) cell.append(element("small", {}, `calls ${row.calls}`));
  if (row.of.length === 0) {
    cell.classList.add("note");
    return { cells: [cell, ...Array(columns - 1).fill("")] };
  }
  const timeBy = (text) => (ns) => (ns === 0 ? "–" : text(ns));
  const [time, meanTime] = [duration, meanDuration].map(timeBy);
  const [times, self, inside] = sumOf(row);
  const cells = [cell, times === null ? "?" : grouped(times), time(self), time(inside), percent((self + inside) / (all.latency_ns || 1))];
  if (both === null) return { cells };
  const perCall = both.map(({ calls }, s) => row.of[s].map((sum) => (sum === null ? null : sum / Math.max(calls, 1))));
  for (const [times, self, inside] of perCall) cells.push(times === null ? "?" : times.toFixed(1), meanTime(self), meanTime(inside));
  const [slow, typical] = perCall;
  const more = slow[1] + slow[2] - typical[1] - typical[2];
  cells.push(`${more < 0 ? "-" : "+"}${meanDuration(Math.abs(more))}`);
  return { cells };
}
