// What calls executed, and what a plot may be of.  What is read here is written by `counters.rs`, in the same order.
// NaN: not known.

/** What calls are drawn by. IPC is in thousandths, as in the report. */
const MEASURES = {
  latency: { title: "Latency", tick: shortDuration },
  instructions: { title: "Instructions", tick: shortCount },
  cycles: { title: "Cycles", tick: shortCount },
  ipc: { title: "IPC", tick: (milli) => String(Number((milli / 1000).toPrecision(10))) },
  branches: { title: "Branches", tick: shortCount },
};

/** Counters were asked for. */
function areCounted() {
  return meta.functions[0]?.counters !== undefined;
}

/** Cells about counters, which `make` gives: none where they were not asked for. */
function ofCounters(make) {
  return areCounted() ? make() : [];
}

/** Instructions of children or of nodes, and their cycles; NaN: not known. */
function readWork(reader, length, hasCycles) {
  const instructions = reader.column(new Float64Array(length));
  const known = instructions.reduce((count, more) => count + (more > 0 ? 1 : 0), 0);
  const spread = (values) => spreadOut(values, instructions);
  const cycles = hasCycles ? reader.column(new Float64Array(known)) : null;
  const error = hasCycles ? reader.column(new Float64Array(known)) : null;
  const unknown = () => new Float64Array(length).fill(NaN);
  return {
    cycles: cycles === null ? unknown() : spread(cycles),
    cyclesError: error === null ? unknown() : spread(error),
    instructions: instructions.map((more) => (more > 0 ? more - 1 : NaN)),
  };
}

/** Values of those that have one, in the places of all; NaN in those of the others. */
function spreadOut(values, has) {
  let next = 0;
  return Float64Array.from(has, (it) => (it > 0 ? values[next++] : NaN));
}

/** By call: what it executed. */
class Counters {
  constructor(calls, table, bytes) {
    const { count } = calls;
    const reader = new Reader(bytes);
    const instructions = reader.column(new Float64Array(count));
    const known = instructions.reduce((sum, more) => sum + (more > 0 ? 1 : 0), 0);
    const column = () => spreadOut(reader.column(new Float64Array(known)), instructions);
    this.table = table;
    this.instructions = instructions.map((more) => (more > 0 ? more - 1 : NaN));
    const conditional = column();
    this.indirect = column();
    this.branches = this.indirect.map((indirect, i) => indirect + conditional[i]);
    this.made = column();
    this.kernel = table.kernel ? column().map((more) => (more > 0 ? more - 1 : NaN)) : null;
    this.cycles = table.cycles ? column() : new Float64Array(count).fill(NaN);
    this.error = table.cycles ? column() : new Float64Array(count).fill(NaN);
    this.mhz = table.frequency ? column().map((mhz) => (mhz > 0 ? mhz : NaN)) : null;
    this.ipc = this.cycles.map((cycles, i) => milliIpc(this.instructions[i], cycles, this.error[i]));
    this.children = readWork(reader, calls.childrenFrom[count], table.cycles);
    const { trees } = calls;
    if (trees !== null) trees.work = readWork(reader, trees.depth.length, table.cycles);
    this.sorted = new Map();
  }

  /** Numbers that calls have, with their title; those that are not known are left out. */
  columns() {
    const { user } = this.table;
    const all = [
      { name: "instructions", values: this.instructions, isKnown: user },
      { name: "cycles", values: this.cycles, error: this.error, isKnown: this.table.cycles },
      { name: "IPC", values: this.ipc, isRatio: true, isKnown: this.table.cycles },
      { name: "MHz", values: this.mhz, isKnown: this.table.frequency },
      { name: "branches", values: this.branches, isKnown: user },
      { name: "calls", values: this.made, isKnown: user },
      { name: "kernel instr.", values: this.kernel, isKnown: this.table.kernel },
    ];
    return all.filter(({ isKnown = true }) => isKnown);
  }

  /** The indices of calls by a number that they have, without those of which it is not known. */
  order(name, values) {
    if (!this.sorted.has(name)) {
      const order = sortedBy(values.map((value) => (Number.isNaN(value) ? 0 : value)));
      this.sorted.set(name, order.filter((i) => !Number.isNaN(values[i])));
    }
    return this.sorted.get(name);
  }
}

/** Instructions per cycle in thousandths; NaN: the cycles are not known, or may as well be none. */
function milliIpc(instructions, cycles, error) {
  return cycles > error ? Math.round((instructions / cycles) * 1000) : NaN;
}

/** Two digits of thousandths, the half upwards: `2.16` of 2155. */
function ratio(milli) {
  const hundredths = Math.floor((milli + 5) / 10);
  return `${grouped(Math.floor(hundredths / 100))}.${String(hundredths % 100).padStart(2, "0")}`;
}

/** `1,234.5`. */
function exactMean(mean) {
  const tenths = Math.round(mean * 10);
  return `${grouped(Math.floor(tenths / 10))}.${tenths % 10}`;
}

/** IPC of sums; `–`: no code ran. */
function ipcText({ instructions, cycles, cyclesError }) {
  if (instructions === 0) return "–";
  const milli = milliIpc(instructions, cycles, cyclesError);
  return Number.isNaN(milli) ? "unknown" : ratio(milli);
}

/** A number that may not be known. */
function countText(count) {
  return Number.isNaN(count) ? "unknown" : grouped(count);
}

/** All that a call has, as pairs of a title and a text. */
function countersOf({ counters }, i) {
  if (counters === null) return [];
  const { table, instructions, cycles, error, ipc, mhz, branches, indirect, made, kernel } = counters;
  const known = (value, text) => (Number.isNaN(value) ? "unknown" : text);
  const user = [
    ["instructions", known(instructions[i], grouped(instructions[i]))],
    ["cycles", known(cycles[i], `${grouped(cycles[i])} ± ${grouped(error[i])}`)],
    ["IPC", known(ipc[i], ratio(ipc[i]))],
    ["MHz", mhz === null ? "unknown" : countText(mhz[i])],
    ["branches", known(branches[i], `${grouped(branches[i])} (${grouped(indirect[i])} indirect)`)],
    ["calls", countText(made[i])],
  ];
  const rows = table.user ? user : [];
  return kernel === null ? rows : [...rows, ["kernel instr.", countText(kernel[i])]];
}
