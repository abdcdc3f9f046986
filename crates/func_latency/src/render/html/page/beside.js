// The trees of two calls side by side, and where they differ.

/** Two trees in one: each node with its two sides, of which one may be `null`. */
function united(one, other) {
  const callees = one?.callees.slice() ?? [];
  const order = callees.map((node) => node.callee);
  let at = 0; // what only the other has goes behind what both have
  for (const node of other?.callees ?? []) {
    const known = order.indexOf(node.callee);
    if (known < 0) order.splice(at++, 0, node.callee);
    else at = known + 1;
  }
  const of = (node, callee) => node?.callees.find((c) => c.callee === callee) ?? null;
  return {
    callee: (one ?? other).callee,
    isInBoth: one !== null && other !== null,
    sides: [one, other],
    more: (one?.ns ?? 0) - (other?.ns ?? 0),
    moreError: (one?.error ?? 0) + (other?.error ?? 0),
    callees: order.map((callee) => united(of(one, callee), of(other, callee))),
  };
}

/** Every node with its depth and its caller, the callers first. */
function* walked(node, depth = 0, caller = null) {
  yield { node, depth, caller };
  for (const callee of node.callees) yield* walked(callee, depth + 1, node);
}

/** What a node is, indented; deep down the number of the level has to do. */
function calleeCell(trees, { callee, sides }, depth) {
  const INDENTED_MAX = 24;
  const cell = element("span", { className: "callee" });
  cell.style.setProperty("--depth", Math.min(depth, INDENTED_MAX));
  if (depth > INDENTED_MAX) cell.append(`(${depth}) `);
  if (callee === MORE) {
    const counts = sides.map((side) => (side === null ? null : `${grouped(side.count)} more`));
    cell.append(element("em", {}, [...new Set(counts.filter(Boolean))].join(" / ")));
    return cell;
  }
  const { name, line, site } = trees.callees[callee - 1];
  const statuses = sides.map((side) => (side?.status ? STATUSES[side.status] : null)).filter(Boolean);
  cell.append(name);
  if (depth > 0 && (line ?? site)) cell.append(element("small", {}, line ?? site));
  if (statuses.length) cell.append(element("small", {}, [...new Set(statuses)].join(" / ")));
  return cell;
}

/** Times, total, self, and off-CPU if that is known. */
function timesOf(side, isMore) {
  if (side === null) return ["–", "–", "–", ...ofOffCpu("–")];
  const { count, ns, ownNs, error, ownError, offCpu } = side;
  const off = ofOffCpu(offCpu ? grouped(offCpu) : "");
  // Not less than nothing, and not more than the node took.
  const own = nsWithin(ownNs, Math.min(ownError, Math.max(ownNs, ns + error - ownNs)));
  return [isMore ? "" : grouped(count), nsWithin(ns, error), isMore ? "" : own, ...off];
}

/** In words, so that it can be read without colours. */
function markOf({ callee, sides: [one, other] }, differs, isBelowMark) {
  if (callee !== MORE && !isBelowMark) {
    if (other === null) return "only here";
    if (one === null) return "not here";
  }
  return differs ? "differs" : "";
}

/** A call's tree, beside that of the typical one, if it has one. */
function treesBeside(trees, i, twin) {
  const one = trees.of(i);
  const other = twin === null ? null : trees.of(twin);
  const root = united(one, other);
  // What makes a tenth of the largest difference is marked, and so is the way there.
  let most = 0;
  for (const { node } of walked(root)) most = Math.max(most, Math.abs(node.more));
  const rows = [];
  for (const { node, depth, caller } of walked(root)) {
    const [a, b] = node.sides;
    const isMore = node.callee === MORE;
    const differs = other !== null && node.more !== 0 && Math.abs(node.more) >= most / 10;
    const since = isMore || a === null ? "" : `+${grouped(a.since)}`;
    const cells = [calleeCell(trees, node, depth), since, ...timesOf(a, isMore)];
    if (other !== null) {
      cells.push(...timesOf(b, isMore), differenceWithin(node.more, node.moreError), markOf(node, differs, caller !== null && !caller.isInBoth));
    }
    const dataset = isMore ? {} : { name: trees.callees[node.callee - 1].name };
    rows.push({ cells, className: differs ? "differs" : "", dataset });
  }
  const sides = ["times", "total", "self", ...ofOffCpu("off-CPU")];
  const typical = sides.map((title, k) => [title, `${NUMBER} twin${k ? "" : " first"}`]);
  const columns = [
    ["call (times in ns)", NAME],
    ["since start", NUMBER],
    ...sides.map((title) => [title, NUMBER]),
    ...(other === null ? [] : [...typical, ["difference", `${NUMBER} first`], ["", "mark"]]),
  ];
  const made = table(columns, rows);
  made.classList.add("tree");
  if (other !== null) {
    const group = (text, colSpan, className) => element("th", { colSpan, className, scope: "colgroup" }, text);
    const heads = [
      group("", 2, ""),
      group("this call", sides.length, NUMBER),
      group("typical call", sides.length, `${NUMBER} twin first`),
    ];
    made.tHead.prepend(element("tr", {}, ...heads, group("", 2, "first")));
  }
  return element("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "call tree" }, made);
}

/** When a call was on and off its CPU, and how it ended; `longest`: the time that is the whole width. */
function strip(calls, trees, i, title, longest) {
  const { spans, more, moreNs } = trees.offCpuOf(i);
  const bar = element("div", { className: "strip" });
  const part = (className, since, ns, text) => {
    const made = element("i", { className, title: text });
    made.style.left = `${(100 * since) / longest}%`;
    made.style.width = `max(1px, ${(100 * ns) / longest}%)`;
    bar.append(made);
  };
  const onCpu = `on the CPU: ${duration(calls.latency[i] - calls.offCpu[i])}`;
  part("on", 0, calls.latency[i], meta.off_cpu_known ? onCpu : "on or off the CPU");
  for (const { since, ns, isPreempted } of spans) {
    const how = isPreempted ? "preempted" : "off the CPU";
    part(isPreempted ? "off preempted" : "off", since, ns, `${how} at +${duration(since)} for ${duration(ns)}`);
  }
  if (!calls.isCounted(i)) part("lost", calls.latency[i], 0, endOf(calls, i));
  const texts = offCpuInWords(spans, more, moreNs);
  if (!calls.isCounted(i)) texts.push(endOf(calls, i));
  if (!texts.length) texts.push(meta.off_cpu_known ? "on the CPU all the time" : "whether it was off the CPU is not known");
  const below = element("span", { className: "note" }, texts.join("; "));
  return element("div", { className: "strip-row" }, element("b", {}, title), bar, below);
}

/** The longest times in their order, and the sum of the others. */
function offCpuInWords(spans, more, moreNs) {
  const byTime = spans.slice().sort((a, b) => b.ns - a.ns);
  const first = byTime.splice(0, 3).sort((a, b) => a.since - b.since);
  const how = ({ isPreempted }) => (isPreempted ? "preempted" : "off");
  const texts = first.map((span) => `${how(span)} at +${duration(span.since)} for ${duration(span.ns)}`);
  const rest = byTime.length + more;
  const restNs = byTime.reduce((sum, { ns }) => sum + ns, moreNs);
  if (rest > 0) texts.push(`${grouped(rest)} more, ${duration(restNs)}`);
  return texts;
}

/** How a call that did not end in sight was lost. */
function endOf(calls, i) {
  const cause = calls.cause[i] ? ` by: ${calls.table.causes[calls.cause[i]]}` : "";
  return `${calls.status(i)}${cause} at +${duration(calls.latency[i])}`;
}
