// What the page shows now, from the state that `input.js` changes.

const meta = JSON.parse(document.getElementById("meta").textContent);
const beginNs = BigInt(meta.begin_ns);
const byId = (id) => document.getElementById(id);
const plot = new Plot(byId("base"), byId("overlay"), byId("histogram"));

/** Everything that the page is drawn from. */
const state = {
  calls: null,
  /** Which calls the filters let through, as sides, and the tally of those. */
  visible: null,
  all: null,
  side: null,
  view: null,
  /** What the plot says that it has drawn. */
  drawn: null,
  brush: null,
  /** Calls: at the pointer, where the keys have gone, the one whose details are shown. */
  hovered: null,
  cursor: null,
  picked: null,
  /** The call that the tip is about. */
  told: null,
};

/** All that is seen from entry to end and not: by the values of the filter for status. */
const STATUS_FILTERS = [
  ["all", null],
  ["ended in sight", [0, 1]],
  ["did not end in sight", [2, 3, 4]],
  ...STATUSES.map((name, status) => [name, [status]]),
];

/** All calls of the function, with some room around them. */
function wholeView(calls) {
  const { count, start, order, log, latency } = calls;
  if (count === 0) return { fromTime: 0, toTime: Math.max(meta.span_ns, 1), fromLog: 0, toLog: 1 };
  const { orderBy } = calls;
  const [from, to] = orderBy.length ? [log[orderBy[0]], log[orderBy.at(-1)]] : [0, 1];
  const room = to - from < 0.3 ? 0.15 : (to - from) * 0.04;
  const [first, last] = [start[0], start[count - 1]];
  const span = last > first ? last - first : Math.max(latency[order[count - 1]], 1);
  return {
    fromTime: Math.max(Math.floor(first - span * 0.02), 0),
    toTime: Math.ceil(last + span * 0.02),
    fromLog: from - room,
    toLog: to + room,
  };
}

/** Shows a function as it opens, or as a link says. */
async function showFunction(number, link = new URLSearchParams()) {
  byId("page").ariaBusy = "true";
  const table = meta.functions[number];
  byId("function").value = String(number);
  byId("title").textContent = table.name;
  const packed = ["calls", "ways", "trees", "counters"].map((name) => byId(`${name}-${number}`)?.textContent ?? "");
  const bytes = await Promise.all(packed.map(unpack));
  if (Number(byId("function").value) !== number) return; // another one has been chosen meanwhile
  const calls = new Calls(table, bytes);
  calls.drawBy(byId("by").value);
  Object.assign(state, { calls, view: wholeView(calls), hovered: null, cursor: null, told: null });
  fillFilters(calls);
  const ended = calls.order.filter((i) => calls.isCounted(i));
  const object = table.object?.split("/").at(-1) ?? "no object";
  const parts = [
    `${meta.input}, ${object}`,
    counted(ended.length, "call"),
    `${duration(meta.span_ns)} recorded`,
    ...meta.only.map((only) => `only calls ${only}`),
  ];
  if (calls.count > ended.length) parts.push(`${grouped(calls.count - ended.length)} did not end in sight`);
  parts.push(
    meta.coverage < 1
      ? `${(100 * (1 - meta.coverage)).toFixed(2)} % of the threads' time was lost`
      : "nothing was lost",
  );
  if (!meta.off_cpu_known) parts.push("off-CPU time is not known");
  byId("subtitle").textContent = parts.join(" · ");
  filter();
  state.brush = state.firstBrush = ended.length >= 100 ? slowest(10) : null;
  const picked = link.size > 0 ? followLink(link) : null;
  redraw();
  showLedger(calls);
  pick(picked);
  showFunctions();
  byId("page").ariaBusy = "false";
  keepLink();
}

function fillFilters(calls) {
  const fill = (id, all, names) => {
    const option = (name, value) => element("option", { value }, name);
    byId(id).replaceChildren(option(all, ""), ...names.map((name, i) => option(name, String(i))));
  };
  const threads = calls.table.threads.map((_, thread) => threadName(calls, thread));
  fill("filter-thread", `all ${threads.length}`, threads);
  fill("filter-caller", `all ${calls.table.callers.length}`, callerNames(calls));
  byId("filter-status").replaceChildren(
    ...STATUS_FILTERS.map(([name], i) => element("option", { value: String(i) }, name)),
  );
}

/** The brush of the slowest so many of a thousand calls that are visible. */
function slowest(perMille) {
  const { calls, visible } = state;
  const ended = calls.order.filter((i) => visible[i] === OTHERS && calls.isCounted(i));
  if (ended.length === 0) return null;
  const first = ended[Math.min(Math.floor(((1000 - perMille) * ended.length) / 1000), ended.length - 1)];
  return { ...WHOLE, fromLatency: calls.latency[first] };
}

/** The filters and the view decide what is visible. */
function filter() {
  const value = (id) => (byId(id).value === "" ? null : Number(byId(id).value));
  const [, statuses] = STATUS_FILTERS[value("filter-status")];
  const wanted = { thread: value("filter-thread"), caller: value("filter-caller"), statuses };
  state.visible = filtered(state.calls, wanted, state.view);
  state.all = Tally.of(state.calls, state.visible, OTHERS);
}

function refilter() {
  filter();
  redraw();
}

/** The place, the filters or the colours have changed: all is drawn anew. */
function redraw() {
  // In a narrow window the style sheet leaves out the histogram.
  const side = getComputedStyle(byId("side")).display === "none" ? 0 : SIDE_WIDTH + 8;
  plot.layout(Math.max(byId("plots").clientWidth - side, 280), state.view, state.calls.by);
  const started = performance.now();
  const drawn = plot.draw(state.calls, state.visible);
  const drawMs = performance.now() - started;
  state.drawn = drawn;
  // For tests and other tools: what is drawn, and where.
  const { left, right, top, bottom } = plot.area();
  Object.assign(byId("plot").dataset, drawn, { left, right, top, bottom, drawMs }, state.view);
  showLegend(drawn);
  rebrush();
}

function showLegend({ kind, shown, singles, densest }) {
  const key = (className, text) => element("span", { className: `key ${className}` }, text);
  const some =
    kind === "heat"
      ? key("heat", `colour: calls in one place, 1 to ${grouped(densest)} (logarithmic)`)
      : key("call", "a call");
  const p999 = state.calls.table.p999_ns;
  const slow = p999 === null ? null : key("slow", `slower than p99.9 (${duration(p999)})`);
  byId("legend").replaceChildren(
    ...[
      some,
      slow,
      key("open", "did not end in sight: took longer"),
      element("span", {}, `${counted(shown, "call")} in view, ${grouped(singles)} drawn one by one`),
      unknownInPlot(),
    ].filter(Boolean),
  );
}

/** How many calls the plot leaves out, because what it is of is not known of them; `null`: none. */
function unknownInPlot() {
  const { count, orderBy, by } = state.calls;
  const without = count - orderBy.length;
  return without ? element("span", {}, `${counted(without, "call")} not drawn: ${MEASURES[by].title} unknown`) : null;
}

/** What calls are drawn by has been chosen: the view and the brush keep their times, and the brush its latencies. */
function drawBy() {
  const { calls, view, brush } = state;
  calls.drawBy(byId("by").value);
  const { fromLog, toLog } = wholeView(calls);
  state.view = { ...view, fromLog, toLog };
  const { fromValue, toValue } = WHOLE;
  if (brush !== null) state.brush = unlessWhole({ ...brush, fromValue, toValue });
  refilter();
}

/** A brush; `null`: of everything. */
function unlessWhole(brush) {
  return Object.keys(WHOLE).every((field) => brush[field] === WHOLE[field]) ? null : brush;
}

/** The brush has changed: both sides are compared anew. */
function rebrush() {
  const { calls, visible, brush } = state;
  const started = performance.now();
  const brushed = brush !== null;
  state.side = sides(calls, visible, brush);
  const both = compare(calls, state.side, state.all);
  plot.drawHistogram(calls, state.side, brushed);
  showFigures(both, brushed);
  showFactors(calls, both, brushed);
  showCounters(calls, both, state.side, brushed);
  showChildren(calls, both, brushed);
  const workOfCaller = calls.counters === null ? null : (tally, at) => [tally.workOfCaller(at), tally.callerCounted[at]];
  showGroup("callers", "Callers", callerNames(calls), both, "callers", brushed, workOfCaller);
  showGroup("threads", "Threads", threadNames(calls), both, "threads", brushed);
  showGroup("cpus", "CPUs at entry", cpuNames(calls), both, "cpus", brushed);
  showGroup("ways", "Ways that the calls went", wayNames(calls), both, "ways", brushed);
  showGroup("reasons", "What calls waited for", calls.ways.reasons, both, "reasons", brushed);
  showSlowest(calls, state.side, brushed, pick);
  showBrush();
  drawMarks();
  keepLink();
  Object.assign(byId("page").dataset, {
    brushed: both[BRUSHED].count,
    others: both[OTHERS].count,
    brushMs: performance.now() - started,
  });
}

/** The brush in numbers, which can be changed, too. */
function showBrush() {
  const { brush } = state;
  for (const [id, field] of Object.entries(BRUSH_INPUTS)) {
    byId(id).value = brush === null || brush[field] === WHOLE[field] ? "" : duration(Math.round(brush[field]));
  }
  byId("zoom").disabled = byId("clear").disabled = brush === null;
}

function drawMarks() {
  const marks = [
    [state.picked, 3],
    [state.cursor, 2],
    [state.hovered, 1.5],
  ].filter(([i]) => i !== null);
  plot.drawOverlay(state.calls, state.brush, marks, state.side);
  showTip(state.told);
}

function showTip(i) {
  const tip = byId("tip");
  const { calls } = state;
  tip.hidden = i === null || !plot.isInView(calls, i);
  if (tip.hidden) return;
  const caller = calls.table.callers[calls.caller[i]];
  const off = calls.offCpu[i] > 0 ? `, off-CPU ${duration(calls.offCpu[i])}` : "";
  const cpu = calls.cpu[i] ? `, CPU ${calls.cpu[i] - 1}` : "";
  const lines = [
    `${calls.id(i)}: ${latencyText(calls, i)}${off}`,
    `at ${duration(calls.start[i])}, thread ${calls.table.threads[calls.thread[i]]}${cpu}`,
    `from ${placed(caller)}`,
    ...ofSlices(calls, `probed ${calls.began(i)}`),
    ...ofCounters(() => [workText(calls, i)]),
    calls.isCounted(i) ? `± ${duration(calls.error[i])}` : `did not end in sight: ${calls.status(i)}`,
  ];
  tip.replaceChildren(...lines.map((line) => element("div", {}, line)));
  tip.dataset.call = calls.id(i);
  const [x, y] = plot.placeOf(calls, i);
  const isRight = x > plot.width / 2;
  tip.style.left = isRight ? "" : `${x + 14}px`;
  tip.style.right = isRight ? `${byId("plots").clientWidth - x + 14}px` : "";
  tip.style.top = `${Math.max(y - 20, 0)}px`;
}

/** What a call executed, in few words. */
function workText({ counters }, i) {
  const { instructions, cycles, ipc } = counters;
  if (Number.isNaN(instructions[i])) return "instructions unknown";
  const ofCycles = Number.isNaN(ipc[i]) ? "IPC unknown" : `${grouped(cycles[i])} cycles, IPC ${ratio(ipc[i])}`;
  return `${counted(instructions[i], "instruction")}, ${ofCycles}`;
}

function setBrush(brush) {
  state.brush = brush;
  rebrush();
}

function pick(i) {
  state.picked = i;
  state.told = null;
  showDetails(state.calls, i, beginNs, () => pick(null));
  showLines(state.calls, i !== null);
  drawMarks();
  search();
  keepLink();
  if (i !== null) byId("details").scrollIntoView({ block: "nearest" });
}

/** The view becomes the brush; all that is in view is compared with nothing then. */
function zoom() {
  const { brush, view } = state;
  if (brush === null) return;
  const log = (ns) => Math.log10(Math.max(ns, 1));
  const [from, to] = plot.bounds;
  const zoomed = {
    fromTime: Math.max(brush.fromTime, view.fromTime),
    toTime: Math.min(brush.toTime, view.toTime),
    fromLog: Math.max(log(brush[from]) - 0.01, view.fromLog),
    toLog: Math.min(log(brush[to]) + 0.01, view.toLog),
  };
  if (zoomed.toTime <= zoomed.fromTime || zoomed.toLog <= zoomed.fromLog) return;
  Object.assign(state, { view: zoomed, brush: null });
  refilter();
}

function showWhole() {
  state.view = wholeView(state.calls);
  refilter();
}

function switchTheme() {
  const root = document.documentElement;
  const wantsDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const isDark = (root.dataset.theme ?? (wantsDark ? "dark" : "light")) === "dark";
  root.dataset.theme = isDark ? "light" : "dark";
  redraw();
}

byId("function").replaceChildren(...meta.functions.map((f, i) => element("option", { value: String(i) }, f.name)));
byId("function-label").hidden = meta.functions.length < 2;
byId("by-label").hidden = !areCounted();
byId("by").replaceChildren(
  ...Object.entries(MEASURES).map(([value, { title }]) => element("option", { value }, title)),
);
document.body.classList.toggle("counted", areCounted());
byId("problems").hidden = meta.problems.length === 0;
byId("problems").replaceChildren(...meta.problems.map((problem) => element("li", {}, problem)));
document.title = `func_latency: ${meta.functions.map((f) => f.name).join(", ")}`;
await openLink();
listenToPointer();
listenToKeys();
listenToControls();
