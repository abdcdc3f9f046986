// One call: its row, and what its time went to beside a typical call of the same caller.

/** The typical call of the same caller: that of the median latency; `null`: it is this one, or none was seen to end. */
function typicalCall(calls, i) {
  const { typical } = calls.table.callers[calls.caller[i]];
  return typical === i ? null : typical;
}

/** Time and count of each group of children in one call, with `*self`. */
function childrenOf(calls, i) {
  const groups = (calls.groups ??= childGroups(calls.table));
  const found = new Map();
  const own = { name: "*self", count: 1, ns: calls.latency[i], offCpu: calls.offCpu[i] };
  for (let c = calls.childrenFrom[i]; c < calls.childrenFrom[i + 1]; c++) {
    const { name, kind } = groups.all[groups.ofKey[calls.childKey[c]]];
    const key = `${kind} ${name}`;
    const sum = found.get(key) ?? { name, count: 0, ns: 0, offCpu: 0 };
    sum.count += calls.childCount[c];
    sum.ns += calls.childNs[c];
    sum.offCpu += calls.childOffCpu[c];
    own.ns -= calls.childNs[c];
    own.offCpu -= calls.childOffCpu[c];
    found.set(key, sum);
  }
  return found.set("*self", own);
}

/** All that the row has, as pairs of a title and a text. */
function rowOf(calls, i, beginNs) {
  const caller = calls.table.callers[calls.caller[i]];
  const uncertain = [
    calls.flags[i] & UNDECIDED ? "its end is a guess" : "",
    calls.flags[i] & ENDED_BY_JUMP ? "it left the IP filter by a jump" : "",
    calls.cause[i] ? `cut by: ${calls.table.causes[calls.cause[i]]}` : "",
  ].filter(Boolean);
  return [
    ["latency", `${latencyText(calls, i)} (${grouped(calls.latency[i])} ± ${grouped(calls.error[i])} ns)`],
    ["off-CPU", meta.off_cpu_known ? `${duration(calls.offCpu[i])} (${grouped(calls.offCpu[i])} ns)` : "not known"],
    ["began at", `${duration(calls.start[i])} (${beginNs + BigInt(calls.start[i])} ns of perf's clock)`],
    ["thread", threadName(calls, calls.thread[i]) + (calls.cpu[i] ? `, on CPU ${calls.cpu[i] - 1}` : "")],
    ...ofSlices(calls, ["probed", `${calls.began(i)} (the figures are of calls that began ${calls.table.figures_of})`]),
    ["caller", placed(caller) + (caller.tail ? ", by a jump" : "")],
    ...insideOf(calls, i),
    ...countersOf(calls, i),
    ["status", [calls.status(i), ...uncertain].join("; ")],
  ];
}

/** Callers of callers: the nearest, and all of them on demand. */
function chainCell(names) {
  const CALLERS_SHOWN = 4;
  const all = names.join(" › ");
  if (names.length <= CALLERS_SHOWN) return all || "not known";
  const nearest = `… › ${names.slice(-CALLERS_SHOWN).join(" › ")}`;
  return element("details", {}, element("summary", {}, nearest), all);
}

/** What is known of it from inside, and of what it waited for. */
function insideOf({ ways }, i) {
  const rows = [];
  if (ways.known) {
    rows.push(["called through", chainCell(ways.namesOfChain(ways.chain[i]))]);
    rows.push(["went", ways.nameOfWay(ways.way[i])]);
  }
  if (ways.reasons.length) {
    const waits = ways.reasonsOf(i).map(([name, ns]) => `${name} ${duration(ns)}`);
    rows.push(["waited for", waits.join(", ") || "nothing"]);
  }
  return rows;
}

/** A word of a command line for a shell. */
function shellWord(text) {
  return /^[\w.:+/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** How to see all of a call, where there is a recording. */
function showCommand(calls, i) {
  const words = ["func_latency", "show", calls.id(i), "-i", shellWord(meta.input), "-f", shellWord(calls.table.name)];
  return element("code", {}, words.join(" "));
}

/** What went on in a call, as far as the page has it. */
function inside(calls, i, twin) {
  const { trees } = calls;
  if (trees === null) {
    return [note("Probes have seen only the calls that it made itself."), childrenBeside(calls, i, twin)];
  }
  const command = (text) => element("p", { className: "note" }, text, showCommand(calls, i));
  if (!trees.has(i)) {
    const why = [
      "The call trees of the slowest calls, of those that did not end in sight and of typical ones are in this page.",
      "This one's: ",
    ];
    return [command(why.join(" ")), childrenBeside(calls, i, twin), ...linesBeside(calls)];
  }
  if (twin !== null && !trees.has(twin)) twin = null; // too deep inside of other calls
  const longest = Math.max(calls.latency[i], twin === null ? 0 : calls.latency[twin], 1);
  const strips = [strip(calls, trees, i, `call ${calls.id(i)}`, longest)];
  if (twin !== null) strips.push(strip(calls, trees, twin, `typical ${calls.id(twin)}`, longest));
  const waits = waitsTable(trees, i);
  return [
    element("div", { className: "strips-and-waits" }, element("div", {}, ...strips), waits),
    ...callView(new TreeView(trees, i, twin), linesBeside(calls)),
    command("Each call by itself, and what was left out: "),
  ];
}

/** The flame graph of a call, its tree, and what stands beside the tree. */
function callView(view, beside) {
  const flame = new Flame(view, (node) => {
    tree.change(() => view.reveal(node));
    tree.focusOn(node);
  });
  const tree = treeSection(view, () => {
    flame.draw();
    keepLink();
  });
  Object.assign(OPENED, { view, flame, tree });
  return [flame.graph, element("div", { className: "tree-and-lines" }, tree.section, ...beside)];
}

/** The call that is opened: its tree, which is searched, too. */
const OPENED = { view: null, flame: null, tree: null };

/** How many nodes of the opened call have a name with `text` in it. */
function searchOpened(text) {
  if (OPENED.view === null) return 0;
  let count = 0;
  OPENED.tree.change(() => (count = OPENED.view.search(text)));
  return count;
}

function showDetails(calls, i, beginNs, close) {
  const section = document.getElementById("details");
  section.hidden = i === null;
  Object.assign(OPENED, { view: null, flame: null, tree: null });
  if (i === null) return section.replaceChildren();
  const twin = typicalCall(calls, i);
  const rows = rowOf(calls, i, beginNs);
  const twinRows = twin === null ? null : rowOf(calls, twin, beginNs);
  const facts = rows.map(([title, text], k) => (twinRows ? [title, text, twinRows[k][1]] : [title, text]));
  const titles = [
    ["", NAME],
    [`call ${calls.id(i)}`, "word"],
  ];
  if (twin !== null) titles.push([`typical: ${calls.id(twin)}`, "word"]);
  section.dataset.call = calls.id(i);
  section.dataset.typical = twin === null ? "" : calls.id(twin);
  section.replaceChildren(
    element(
      "h2",
      {},
      `Call ${calls.id(i)}`,
      element("button", { type: "button", className: "close", onclick: close, title: "close (Esc)" }, "Close"),
    ),
    twin === null
      ? note("It is the typical call of its caller (the one of the median latency), or none was seen to end.")
      : note("Beside it the typical call of the same caller: of those with a tree here, the nearest to the median latency."),
    table(titles, facts),
    ...inside(calls, i, twin),
  );
  OPENED.tree?.fit();
}

/** Both calls' children, the greatest difference first. */
function childrenBeside(calls, i, twin) {
  if (!calls.hasChildren[i])
    return note(
      "The children of this call are not in this page: it is one of the ordinary ones, of which only some have theirs.",
    );
  const [of, ofTwin] = [childrenOf(calls, i), twin === null ? new Map() : childrenOf(calls, twin)];
  const none = { count: 0, ns: 0, offCpu: 0 };
  const both = [...new Set([...of.keys(), ...ofTwin.keys()])].map((key) => {
    const [a, b] = [of.get(key) ?? none, ofTwin.get(key) ?? none];
    return { name: a.name ?? b.name, a, b, more: a.ns - b.ns };
  });
  both.sort((p, q) => Math.abs(q.more) - Math.abs(p.more));
  const most = Math.max(...both.map((row) => Math.abs(row.more)), 1);
  const time = ({ count, ns }) => (count ? duration(ns) : "–");
  const rows = both.map(({ name, a, b, more }) => ({
    cells:
      twin === null
        ? [name, a.count ? grouped(a.count) : "–", time(a), ...ofOffCpu(duration(a.offCpu))]
        : [
            name,
            grouped(a.count),
            time(a),
            ...ofOffCpu(duration(a.offCpu)),
            grouped(b.count),
            time(b),
            (more > 0 ? "+" : "") + duration(more),
          ],
    className: twin !== null && Math.abs(more) > most / 4 ? "differs" : "",
  }));
  const columns = ["times", "time", ...ofOffCpu("off-CPU"), ...(twin === null ? [] : ["typical: times", "time", "difference"])];
  return table([["child", NAME], ...columns.map((title) => [title, NUMBER])], rows);
}
