// The brushed calls beside all others: counts, figures, children, and what is more frequent among the brushed.

const OTHERS = 0;
const BRUSHED = 1;
const HIDDEN = 2;

/** Numbers of calls that are added up: `Tally.work`. */
const WORK = ["instructions", "branches", "indirect", "made", "cycles", "error"];

const QUANTILES = [
  ["min", 0],
  ["p50", 500],
  ["p90", 900],
  ["p99", 990],
  ["p99.9", 999],
  ["max", 1000],
];

// The loops here run over all calls while the pointer moves: they read typed arrays, and make no objects.

/** The calls in view that the filters let through: all are others until some are brushed. */
function filtered(calls, filter, view) {
  const { count, thread, caller, flags, log } = calls;
  const side = new Uint8Array(count).fill(HIDDEN);
  const end = calls.firstFrom(view.toTime + 1);
  for (let i = calls.firstFrom(view.fromTime); i < end; i++) {
    const isIn =
      log[i] >= view.fromLog &&
      log[i] <= view.toLog &&
      (filter.thread === null || thread[i] === filter.thread) &&
      (filter.caller === null || caller[i] === filter.caller) &&
      (filter.statuses === null || filter.statuses.includes(flags[i] & 7));
    if (isIn) side[i] = OTHERS;
  }
  return side;
}

/**
 * The side of each call.  A brush: times and latencies from and to, in ns, and values of what calls are drawn by;
 * `null`: nothing is brushed.
 */
function sides(calls, visible, brush) {
  const side = visible.slice();
  if (brush === null) return side;
  const end = calls.firstFrom(brush.toTime + 1);
  for (let i = calls.firstFrom(brush.fromTime); i < end; i++) {
    const latency = calls.latency[i];
    const value = calls.value[i];
    const isIn = latency >= brush.fromLatency && latency <= brush.toLatency && value >= brush.fromValue && value <= brush.toValue;
    if (side[i] === OTHERS && isIn) side[i] = BRUSHED;
  }
  return side;
}

/** What can be added up of a set of calls.  Times are whole ns: sums and differences are exact. */
class Tally {
  constructor(calls) {
    this.table = calls.table;
    this.groups = calls.groups ??= childGroups(calls.table);
    Object.assign(this, { count: 0, open: 0, unwound: 0, wentOff: 0, latency: 0, offCpu: 0 });
    this.threads = new Float64Array(calls.table.threads.length);
    this.callers = new Float64Array(calls.table.callers.length);
    this.cpus = new Float64Array(calls.cpuCount);
    this.slices = new Float64Array(BEGAN.length);
    this.ways = new Float64Array(calls.ways.ways.length + 2);
    this.chains = new Float64Array(calls.ways.chains.length + 1);
    this.reasons = new Float64Array(calls.ways.reasons.length);
    if (calls.counters !== null) this.makeWork(calls);
    // Of the calls that ended, as far as the page has their children.
    Object.assign(this, { withChildren: 0, latencyWithChildren: 0 });
    this.childNs = new Float64Array(this.groups.all.length);
    this.childCalls = new Float64Array(this.groups.all.length);
    // What was seen of the others.
    Object.assign(this, { openWithChildren: 0, openLatency: 0 });
    this.openChildNs = new Float64Array(this.groups.all.length);
  }

  /** Sums of what ran: in all calls, in those of each caller, in each group of children. */
  makeWork({ table }) {
    this.work = new Float64Array(WORK.length);
    this.callerCounted = new Float64Array(table.callers.length);
    for (const what of ["Instructions", "Cycles", "CyclesError"]) {
      this[`caller${what}`] = new Float64Array(table.callers.length);
      this[`child${what}`] = new Float64Array(this.groups.all.length);
      this[`with${what}`] = 0;
    }
  }

  /** Adds what a call executed, if that is known. */
  addWork({ counters, caller }, i) {
    if (Number.isNaN(counters.instructions[i])) return;
    WORK.forEach((what, k) => (this.work[k] += counters[what][i]));
    const from = caller[i];
    this.callerCounted[from]++;
    this.callerInstructions[from] += counters.instructions[i];
    this.callerCycles[from] += counters.cycles[i];
    this.callerCyclesError[from] += counters.error[i];
  }

  /** The work of a caller's calls. */
  workOfCaller(at) {
    return {
      instructions: this.callerInstructions[at],
      cycles: this.callerCycles[at],
      cyclesError: this.callerCyclesError[at],
    };
  }

  /** The work of a group of children; without a group, what calls did themselves. */
  workOfChild(group) {
    const of = (what) => this[`child${what}`];
    if (group !== undefined) {
      return { instructions: of("Instructions")[group], cycles: of("Cycles")[group], cyclesError: of("CyclesError")[group] };
    }
    const rest = (what) => of(what).reduce((rest, more) => rest - more, this[`with${what}`]);
    const cyclesError = this.childCyclesError.reduce((sum, more) => sum + more, this.withCyclesError);
    return { instructions: rest("Instructions"), cycles: rest("Cycles"), cyclesError };
  }

  /** Of the calls on one side. */
  static of(calls, side, wanted) {
    const { count, flags, latency, offCpu, thread, caller, cpu } = calls;
    const { way, chain, reasonsFrom, reason } = calls.ways;
    const tally = new Tally(calls);
    for (let i = 0; i < count; i++) {
      if (side[i] !== wanted) continue;
      const status = flags[i] & 7;
      tally.count++;
      tally.threads[thread[i]]++;
      tally.callers[caller[i]]++;
      tally.cpus[cpu[i]]++;
      tally.slices[flags[i] >> 5]++;
      tally.ways[way[i]]++;
      tally.chains[chain[i]]++;
      for (let k = reasonsFrom[i]; k < reasonsFrom[i + 1]; k++) tally.reasons[reason[k]]++;
      if (offCpu[i] > 0) tally.wentOff++;
      if (status > UNWOUND) {
        tally.open++;
        continue;
      }
      if (status === UNWOUND) tally.unwound++;
      tally.latency += latency[i];
      tally.offCpu += offCpu[i];
      if (calls.counters !== null) tally.addWork(calls, i);
    }
    tally.addChildren(calls, side, wanted);
    return tally;
  }

  addChildren({ count, flags, latency, hasChildren, childrenFrom, childKey, childNs, counters }, side, wanted) {
    const { ofKey, all } = this.groups;
    const { p99_ns, children_of_one_in } = this.table;
    const lastCall = new Int32Array(all.length).fill(-1);
    for (let i = 0; i < count; i++) {
      if (side[i] !== wanted || !hasChildren[i]) continue;
      if ((flags[i] & 7) > UNWOUND) {
        this.openWithChildren++;
        this.openLatency += latency[i];
        for (let c = childrenFrom[i]; c < childrenFrom[i + 1]; c++) this.openChildNs[ofKey[childKey[c]]] += childNs[c];
        continue;
      }
      // An ordinary call may stand for several.
      const weight = latency[i] > p99_ns ? 1 : children_of_one_in;
      this.withChildren += weight;
      this.latencyWithChildren += weight * latency[i];
      if (counters !== null) this.addWorkOfChildren(counters, i, weight, childrenFrom, childKey);
      for (let c = childrenFrom[i]; c < childrenFrom[i + 1]; c++) {
        const group = ofKey[childKey[c]];
        this.childNs[group] += weight * childNs[c];
        if (lastCall[group] !== i) this.childCalls[group] += weight;
        lastCall[group] = i;
      }
    }
  }

  addWorkOfChildren({ instructions, cycles, error, children }, i, weight, childrenFrom, childKey) {
    this.withInstructions += weight * instructions[i];
    this.withCycles += weight * cycles[i];
    this.withCyclesError += weight * error[i];
    for (let c = childrenFrom[i]; c < childrenFrom[i + 1]; c++) {
      const group = this.groups.ofKey[childKey[c]];
      this.childInstructions[group] += weight * children.instructions[c];
      this.childCycles[group] += weight * children.cycles[c];
      this.childCyclesError[group] += weight * children.cyclesError[c];
    }
  }

  /** Of the calls that are in this one and not in `part`. */
  without(part) {
    const rest = Object.create(Tally.prototype);
    for (const [name, value] of Object.entries(this)) {
      if (typeof value === "number") rest[name] = value - part[name];
      else rest[name] = ArrayBuffer.isView(value) ? value.map((sum, i) => sum - part[name][i]) : value;
    }
    return rest;
  }

  /** Those that enter the figures. */
  get ended() {
    return this.count - this.open;
  }
}

/** Tallies of the others and of the brushed calls, of all of which `all` is one. */
function compare(calls, side, all) {
  const brushed = Tally.of(calls, side, BRUSHED);
  const both = [all.without(brushed), brushed];
  addQuantiles(calls, side, both);
  return both;
}

/** Percentiles by nearest rank, as in the report. */
function addQuantiles({ count, order, latency, flags }, side, both) {
  const rank = (perMille, of) => Math.max(Math.ceil((perMille * of) / 1000) - 1, 0);
  const wanted = both.map((tally) => QUANTILES.map(([name, perMille]) => [name, rank(perMille, tally.ended)]));
  const at = [0, 0]; // in `wanted`
  const next = Int32Array.from(wanted, ([[, rank]]) => rank);
  const seen = new Int32Array(2);
  both.forEach((tally) => (tally.quantiles = {}));
  for (let k = 0; k < count; k++) {
    const i = order[k];
    const s = side[i];
    if (s === HIDDEN || (flags[i] & 7) > UNWOUND) continue;
    while (seen[s] === next[s]) {
      both[s].quantiles[wanted[s][at[s]][0]] = latency[i];
      at[s]++;
      next[s] = wanted[s][at[s]]?.[1] ?? -1;
    }
    seen[s]++;
  }
}

/** One number for all children of a name and kind; names of these. */
function childGroups(table) {
  const groups = new Map();
  const ofKey = table.children.map((child) => {
    const name = `${child.kind} ${child.name}`;
    if (!groups.has(name)) groups.set(name, { number: groups.size, name: child.name, kind: child.kind });
    return groups.get(name).number;
  });
  return { ofKey: Uint32Array.from(ofKey), all: [...groups.values()] };
}

/** How many calls of each side are in each of so many equal steps of the logarithm of latency. */
function latencyHistogram(calls, side, fromLog, toLog, bins) {
  const counts = [new Uint32Array(bins), new Uint32Array(bins)];
  const scale = bins / (toLog - fromLog);
  const { count, flags, log } = calls;
  for (let i = 0; i < count; i++) {
    if (side[i] === HIDDEN || (flags[i] & 7) > UNWOUND) continue;
    const bin = (log[i] - fromLog) * scale;
    if (bin >= 0 && bin < bins) counts[side[i]][Math.floor(bin)]++;
  }
  return counts;
}

/** How surely `brushed` of so many is more frequent than `others` of so many: the log-likelihood ratio, 0 if it is not. */
function evidence(brushed, ofBrushed, others, ofOthers) {
  if (ofBrushed === 0 || ofOthers === 0 || brushed / ofBrushed <= others / ofOthers) return 0;
  const share = (brushed + others) / (ofBrushed + ofOthers);
  const term = (seen, expected) => (seen > 0 ? seen * Math.log(seen / expected) : 0);
  return (
    2 *
    (term(brushed, ofBrushed * share) +
      term(ofBrushed - brushed, ofBrushed * (1 - share)) +
      term(others, ofOthers * share) +
      term(ofOthers - others, ofOthers * (1 - share)))
  );
}

/** The most over-represented first: name, and count and share of each side. */
function ranked(names, counts, of) {
  const rows = names.map((name, i) => {
    const both = counts.map((of) => of[i]);
    const shares = both.map((count, s) => (of[s] ? count / of[s] : 0));
    return {
      name,
      index: i,
      counts: both,
      shares,
      evidence: evidence(both[BRUSHED], of[BRUSHED], both[OTHERS], of[OTHERS]),
    };
  });
  const some = rows.filter((row) => row.counts[OTHERS] + row.counts[BRUSHED] > 0);
  return some.sort(
    (a, b) =>
      b.evidence - a.evidence ||
      b.counts[BRUSHED] - a.counts[BRUSHED] ||
      b.counts[OTHERS] - a.counts[OTHERS] ||
      a.index - b.index,
  );
}

/** `1003`, and what it calls itself, if that is known. */
function threadName({ table }, thread) {
  const name = table.ways.thread_names[thread];
  return table.threads[thread] + (name ? ` (${name})` : "");
}

const threadNames = (calls) => calls.table.threads.map((_, thread) => `thread ${threadName(calls, thread)}`);
const wayNames = ({ ways }) =>
  ways.known ? Array.from({ length: ways.ways.length + 2 }, (_, way) => ways.nameOfWay(way)) : [];
const callerNames = (calls) => calls.table.callers.map(placed);
const cpuNames = (calls) =>
  Array.from({ length: calls.cpuCount }, (_, cpu) => (cpu ? `CPU ${cpu - 1}` : "CPU not known"));

/**
 * Callers of callers: names, and how many calls are below each.  A chain says nothing that the one nearer to the call does
 * not say, if that is continued in one way only.
 */
function chainsBelow({ ways }, counts) {
  const { chains } = ways;
  const sums = counts.map((of) => of.slice());
  const continued = new Uint32Array(chains.length + 1);
  for (let chain = chains.length; chain > 0; chain--) {
    const { nearer } = chains[chain - 1];
    continued[nearer]++;
    for (const of of sums) of[nearer] += of[chain];
  }
  const told = [];
  for (let chain = 1; chain <= chains.length; chain++) {
    const { nearer } = chains[chain - 1];
    const isSplit = continued[nearer] > 1 || counts.some((of) => of[nearer] > 0);
    if (nearer > 0 && isSplit) told.push(chain);
  }
  return [
    told.map((chain) => `called through ${ways.nameOfChain(chain)}`),
    sums.map((of) => told.map((chain) => of[chain])),
  ];
}

/** What is more frequent among the brushed calls than among the others, the surest first. */
function factors(calls, both) {
  const of = (what) => both.map((tally) => tally[what]);
  const dimension = (names, counts) => {
    const rows = ranked(names, counts, of("count"));
    return rows.length > 1 ? rows : []; // what all calls have tells nothing
  };
  const one = (name, what) =>
    ranked(
      [name],
      of(what).map((count) => [count]),
      of("count"),
    );
  const rows = [
    ...dimension(threadNames(calls), of("threads")),
    ...dimension(
      callerNames(calls).map((name) => `called from ${name}`),
      of("callers"),
    ),
    ...dimension(
      cpuNames(calls).map((name) => `began on ${name}`),
      of("cpus"),
    ),
    ...dimension(
      BEGAN.map((began) => `probed ${began}`),
      of("slices"),
    ),
    ...dimension(...chainsBelow(calls, of("chains"))),
    ...dimension(
      wayNames(calls).map((name) => `goes ${name}`),
      of("ways"),
    ),
    ...ranked(
      calls.ways.reasons.map((name) => `waited: ${name}`),
      of("reasons"),
      of("count"),
    ),
    ...one("was off its CPU", "wentOff"),
    ...one("was left by an exception or longjmp", "unwound"),
    ...one("did not end in sight", "open"),
    ...ranked(
      calls.groups.all.map((group) => `has ${group.name}`),
      of("childCalls"),
      of("withChildren"),
    ),
  ];
  return rows.filter((row) => row.evidence > SURE).sort((a, b) => b.evidence - a.evidence);
}

/** Chance gives less in 999 of 1000 comparisons (chi-squared, one degree of freedom). */
const SURE = 10.83;
