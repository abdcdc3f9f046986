// What calls executed: figures of brushed calls and of the others, as `report --counters` prints them.

const COUNTER_LINES = [
  ["min", 0],
  ["p50", 500],
  ["p90", 900],
  ["p99", 990],
  ["max", 1000],
];

/** Values of the calls on one side that were seen from entry to end, in the order of `order`. */
function valuesOf(calls, order, values, side, wanted) {
  const found = [];
  for (const i of order) if (side[i] === wanted && calls.isCounted(i)) found.push(values[i]);
  return found;
}

/** By nearest rank. */
function quantile(sorted, perMille) {
  return sorted[Math.max(Math.ceil((perMille * sorted.length) / 1000) - 1, 0)];
}

/** How a number is spread over the calls of one side, as texts by line of the table; `null`: no call has it. */
function figuresOf(calls, { name, values, error, isRatio }, side, wanted) {
  const { counters } = calls;
  const of = (name, values) => valuesOf(calls, counters.order(name, values), values, side, wanted);
  const sorted = of(name, values);
  if (sorted.length === 0) return null;
  const mean = sorted.reduce((sum, value) => sum + value, 0) / sorted.length;
  const variance = sorted.reduce((sum, value) => sum + (value - mean) ** 2, 0) / sorted.length;
  const scaled = (value) => (isRatio ? ratio(Math.round(value)) : exactMean(value));
  if (!error) {
    const text = isRatio ? ratio : grouped;
    const lines = COUNTER_LINES.map(([, perMille]) => text(quantile(sorted, perMille)));
    return { count: sorted.length, lines: [scaled(mean), scaled(Math.sqrt(variance)), ...lines] };
  }
  const low = of(`${name} low`, values.map((value, i) => Math.max(value - error[i], 0)));
  const high = of(`${name} high`, values.map((value, i) => value + error[i]));
  const errors = of(name, values).length ? valuesOf(calls, counters.order(name, values), error, side, wanted) : [];
  const meanError = errors.reduce((sum, error) => sum + error, 0) / errors.length;
  const line = ([, perMille]) => {
    const value = quantile(sorted, perMille);
    return nsWithin(value, Math.max(value - quantile(low, perMille), quantile(high, perMille) - value));
  };
  const ofMean = meanError < 1 ? exactMean(mean) : nsWithin(Math.round(mean), Math.ceil(meanError));
  return { count: sorted.length, lines: [ofMean, exactMean(Math.sqrt(variance)), ...COUNTER_LINES.map(line)] };
}

/** The card of counters; hidden where they were not asked for. */
function showCounters(calls, both, side, brushed) {
  const { counters } = calls;
  document.getElementById("counters").hidden = counters === null;
  if (counters === null) return;
  if (both.every((tally) => tally.ended === 0)) {
    return card("counters", "What calls executed", note("unknown: no call was seen from entry to end"));
  }
  const sides = brushed ? [BRUSHED, OTHERS] : [OTHERS];
  const latency = { name: "latency", values: calls.latency };
  const columns = [{ ...latency, title: "latency, ns" }, ...counters.columns()];
  const found = columns.map((column) => sides.map((s) => figuresOf(calls, column, side, s)));
  const names = ["mean", "stddev", ...COUNTER_LINES.map(([name]) => name)];
  const rows = names.map((name, line) => [name, ...found.flatMap((both) => both.map((of) => of?.lines[line] ?? "–"))]);
  const titles = columns.flatMap(({ title, name }) =>
    brushed
      ? [["brushed", `${NUMBER} first`], ["others", NUMBER]]
      : [[title ?? name, NUMBER]],
  );
  const made = table([["", NAME], ...titles], rows);
  if (brushed) {
    const head = ({ title, name }) =>
      element("th", { colSpan: 2, className: `${NUMBER} first`, scope: "colgroup" }, title ?? name);
    made.tHead.prepend(element("tr", {}, element("th"), ...columns.map(head)));
  }
  const sums = !counters.table.user ? [] : sides.map((s) => note(`${brushed ? (s === BRUSHED ? "brushed" : "others") : "total"}: ${sumText(counters, both[s])}`));
  card("counters", "What calls executed", made, ...sums, ...counterNotes(calls, both, found, columns));
}

/** All calls of one side together. */
function sumText({ table }, { work }) {
  const [instructions, branches, indirect, made, cycles, cyclesError] = work;
  const texts = [
    counted(instructions, "instruction"),
    `${branches === 1 ? "1 branch" : `${grouped(branches)} branches`} (${grouped(indirect)} indirect)`,
    counted(made, "call"),
  ];
  if (table.cycles) {
    texts.push(`${grouped(cycles)} cycles ± ${grouped(cyclesError)}`);
    texts.push(`IPC ${ipcText({ instructions, cycles, cyclesError })}`);
  }
  return texts.join(", ");
}

/** What the numbers are of, and what is not known. */
function counterNotes(calls, both, found, columns) {
  const { table } = calls.counters;
  const notes = [
    table.user
      ? "of user code, each REP instruction as one; counts are exact, cycles within their error"
      : "a function of the kernel runs no user code: its own instructions are counted, and nothing else of it is known",
  ];
  if (!table.user) return notes.map(note);
  if (table.cycles && !table.frequency) {
    notes.push("MHz is unknown: no CBR packet says the frequency, or the recording does not say the bus clock");
  }
  if (!table.cycles) notes.push("cycles, IPC and MHz are unknown: the recording has no CYC packets (record with cyc=1)");
  const ipc = columns.findIndex(({ name }) => name === "IPC");
  const without = ipc < 0 ? 0 : found[1].reduce((sum, of, s) => sum + (of?.count ?? 0) - (found[ipc][s]?.count ?? 0), 0);
  if (without > 0) {
    notes.push(`IPC: without ${counted(without, "call")}, of which the cycles are no more than their error`);
  }
  const open = both.reduce((sum, tally) => sum + tally.open, 0);
  const gaps = calls.counters.instructions.reduce((n, it, i) => n + (Number.isNaN(it) && calls.isCounted(i) ? 1 : 0), 0);
  if (gaps > 0) notes.push(`unknown for ${counted(gaps, "call")} in which code is missing: what ran there is not known`);
  if (open > 0) notes.push(`unknown for ${counted(open, "call")} not seen from entry to end: open, or cut by a gap`);
  if (table.is_filtered) {
    notes.push("with an IP filter only code inside of its ranges is counted: what runs outside adds nothing");
  }
  return notes.map(note);
}

/** Instructions of each, and their IPC, for a table of what sums there are. */
function workCells(work, count) {
  if (!(count > 0)) return ["–", "–"];
  return [Number.isNaN(work.instructions) ? "unknown" : exactMean(work.instructions / count), ipcText(work)];
}
