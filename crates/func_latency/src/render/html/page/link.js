// What the page shows, as the fragment of its address: the page opens at that with the same view.
//
//   #function=1&by=instructions&thread=1003&brush=0,2000000,1500,&call=1003-17&find=fsync&sort=order
//
// What is as the page opens is left out. A fragment comes from anywhere: what is wrong in it is left out, too.

const FILTERS = ["thread", "caller", "status"];
const BOUNDS = ["fromTime", "toTime", "fromLatency", "toLatency"];
/** Of a brush, where calls are drawn by something else than latency. */
const VALUE_BOUNDS = ["fromValue", "toValue"];
const VIEW_BOUNDS = ["fromTime", "toTime", "fromLog", "toLog"];

/** The fragment that was written or followed last. */
let linked = location.hash;

const isSame = (a, b, fields) => a === b || (a !== null && b !== null && fields.every((field) => a[field] === b[field]));

/** The bounds of a brush as text; an infinite one is left out. */
function brushText(brush) {
  if (brush === null) return "none";
  const hasValues = VALUE_BOUNDS.some((field) => brush[field] !== WHOLE[field]);
  const bounds = hasValues ? [...BOUNDS, ...VALUE_BOUNDS] : BOUNDS;
  return bounds.map((field) => (brush[field] === WHOLE[field] ? "" : String(brush[field]))).join(",");
}

function linkOf() {
  const { calls, brush, firstBrush, view, picked } = state;
  const link = new URLSearchParams();
  if (byId("function").value !== "0") link.set("function", byId("function").value);
  for (const name of FILTERS) {
    const { value, options } = byId(`filter-${name}`);
    if (value !== options[0].value) link.set(name, name === "thread" ? calls.table.threads[value] : value);
  }
  if (!isSame(view, wholeView(calls), VIEW_BOUNDS)) link.set("view", VIEW_BOUNDS.map((bound) => view[bound]).join(","));
  if (calls.by !== "latency") link.set("by", calls.by);
  if (!isSame(brush, firstBrush, [...BOUNDS, ...VALUE_BOUNDS])) link.set("brush", brushText(brush));
  if (picked !== null) link.set("call", calls.id(picked));
  if (byId("search").value !== "") link.set("find", byId("search").value);
  for (const [name, first] of Object.entries(TREE_DEFAULTS)) {
    if (TREE[name] !== first) link.set(name, String(TREE[name]));
  }
  // Readable where that does no harm.
  return link.size > 0 ? `#${link.toString().replaceAll("%2C", ",")}` : "";
}

/** Puts what is shown into the address; nothing of it is in the history. */
function keepLink() {
  if (byId("page").ariaBusy === "true") return;
  const link = linkOf();
  if (link === linked) return;
  linked = link;
  history.replaceState(null, "", link || "#");
}

/** Numbers with commas between them; an empty one is `undefined`; `null`: there are not `count` numbers. */
function numbersOf(text, count) {
  const numbers = (text ?? "").split(",").map((part) => (part === "" ? undefined : Number(part)));
  const isNumber = (number) => number === undefined || Number.isFinite(number);
  return numbers.length === count && numbers.every(isNumber) ? numbers : null;
}

function viewOf(text) {
  const [fromTime, toTime, fromLog, toLog] = numbersOf(text, 4) ?? [];
  return fromTime < toTime && fromLog < toLog ? { fromTime, toTime, fromLog, toLog } : null;
}

/** The brush that a text says; `undefined`: it says none. */
function brushOf(text) {
  if (text === "none") return null;
  const bounds = numbersOf(text, 4) ?? numbersOf(text, 6);
  const fields = [...BOUNDS, ...VALUE_BOUNDS];
  return bounds === null ? undefined : Object.fromEntries(fields.map((field, k) => [field, bounds[k] ?? WHOLE[field]]));
}

/** Puts filters, view and brush as a link says; returns the call that it opens. */
function followLink(link) {
  const { calls } = state;
  for (const name of FILTERS) {
    const wanted = link.get(name);
    const value = name === "thread" ? String(calls.table.threads.indexOf(wanted)) : wanted;
    const control = byId(`filter-${name}`);
    if ([...control.options].some((option) => option.value === value)) control.value = value;
  }
  state.view = viewOf(link.get("view")) ?? state.view;
  filter();
  const brush = brushOf(link.get("brush"));
  if (brush !== undefined) state.brush = brush;
  const call = calls.indexOf(link.get("call") ?? "");
  return call < 0 ? null : call;
}

/** Shows what the address says. */
async function openLink() {
  if (location.hash === linked && state.calls !== null) return;
  linked = location.hash;
  const link = new URLSearchParams(linked.slice(1));
  TREE.sort = link.get("sort") === "order" ? "order" : TREE_DEFAULTS.sort;
  const least = Number(link.get("least") ?? NaN);
  TREE.least = LEAST.includes(least) ? least : TREE_DEFAULTS.least;
  const by = link.get("by") ?? "";
  byId("by").value = Object.hasOwn(MEASURES, by) ? by : "latency";
  byId("search").value = link.get("find") ?? "";
  const number = Number(link.get("function") ?? 0);
  await showFunction(meta.functions[number] ? number : 0, link);
}
