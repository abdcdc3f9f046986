// The trees of some calls, and for all calls who was around them, which way they went, and what they waited for.
// What is read here is written by `trees.rs` and `ways.rs`, in the same order.

/** By call: numbers in the tables of `table.ways`. */
class Ways {
  constructor(table, count, bytes) {
    const reader = new Reader(bytes);
    Object.assign(this, table);
    this.way = reader.column(new Uint16Array(count));
    this.chain = reader.column(new Uint16Array(count));
    this.reasonsFrom = ends(reader.column(new Uint32Array(count)));
    const total = this.reasonsFrom[count];
    this.reason = reader.column(new Uint16Array(total));
    this.reasonNs = reader.column(new Float64Array(total));
  }

  /** `the usual way`, `way 3: with copy`. */
  nameOfWay(way) {
    if (way === 0) return "a way that is not known";
    if (way === 1) return "another way";
    return way === 2 ? this.ways[0] : `way ${way - 1}: ${this.ways[way - 2]}`;
  }

  /** `main › run › parse`: who called whom, the nearest last. */
  nameOfChain(chain) {
    return this.namesOfChain(chain).join(" › ");
  }

  /** The functions of a chain, the nearest to the call last. */
  namesOfChain(chain) {
    const names = [];
    for (let at = chain; at > 0; at = this.chains[at - 1].nearer) names.push(this.chains[at - 1].name);
    return names;
  }

  /** What a call waited for, as pairs of a text and ns. */
  reasonsOf(i) {
    const found = [];
    for (let k = this.reasonsFrom[i]; k < this.reasonsFrom[i + 1]; k++) {
      found.push([this.reasons[this.reason[k]], this.reasonNs[k]]);
    }
    return found;
  }
}

/** Where lists of these lengths begin, and the last one ends. */
function ends(lengths) {
  const from = new Uint32Array(lengths.length + 1);
  for (let i = 0; i < lengths.length; i++) from[i + 1] = from[i] + lengths[i];
  return from;
}

/** What was left out of a tree, in the place of a callee's number. */
const MORE = 0;

/** The trees by call. */
class Trees {
  constructor({ trees, callees, reasons, wakers }, bytes) {
    const reader = new Reader(bytes);
    Object.assign(this, { callees, reasons, wakers });
    /** What nodes executed; `null`: counters were not asked for. */
    this.work = null;
    const calls = reader.column(new Float64Array(trees));
    for (let t = 1; t < trees; t++) calls[t] += calls[t - 1];
    this.places = new Map(Array.from(calls, (call, t) => [call, t]));
    this.nodesFrom = ends(reader.column(new Uint32Array(trees)));
    const nodes = this.nodesFrom[trees];
    this.depth = reader.column(new Uint32Array(nodes));
    this.callee = reader.column(new Uint32Array(nodes));
    this.count = reader.column(new Float64Array(nodes));
    this.since = reader.column(new Float64Array(nodes));
    this.ns = reader.column(new Float64Array(nodes));
    this.error = reader.column(new Float64Array(nodes));
    this.offCpu = reader.offCpu(new Float64Array(nodes));
    this.status = reader.column(new Uint8Array(nodes));
    this.spansFrom = ends(reader.column(new Uint32Array(trees)));
    const spans = this.spansFrom[trees];
    this.spanSince = reader.column(new Float64Array(spans));
    this.spanNs = reader.column(new Float64Array(spans)); // twice, and one more if the CPU was taken away
    this.spanReason = reader.column(new Uint32Array(spans));
    this.spanWaker = reader.column(new Uint32Array(spans)); // and one more; 0: not known
    this.moreSpans = reader.column(new Float64Array(trees));
    this.moreSpansNs = reader.column(new Float64Array(trees));
  }

  has(i) {
    return this.places.has(i);
  }

  /** The tree of a call: its node, with `callees` in the order of entry, and how long it took itself; `null`: none. */
  of(i) {
    const tree = this.places.get(i);
    if (tree === undefined) return null;
    const open = [];
    for (let at = this.nodesFrom[tree]; at < this.nodesFrom[tree + 1]; at++) {
      const node = {
        callee: this.callee[at],
        count: this.count[at],
        since: this.since[at],
        ns: this.ns[at],
        ownNs: this.ns[at],
        error: this.error[at],
        ownError: this.error[at],
        offCpu: this.offCpu[at],
        status: this.status[at],
        instructions: this.work?.instructions[at],
        cycles: this.work?.cycles[at],
        cyclesError: this.work?.cyclesError[at],
        callees: [],
      };
      open.length = this.depth[at];
      const caller = open.at(-1);
      if (caller) {
        caller.callees.push(node);
        caller.ownNs -= node.ns;
        caller.ownError += node.error;
      }
      open.push(node);
    }
    return open[0] ?? null;
  }

  /** When and why a call was off its CPU: the longest times, and how many others there are. */
  offCpuOf(i) {
    const tree = this.places.get(i);
    const spans = [];
    for (let s = this.spansFrom[tree]; s < this.spansFrom[tree + 1]; s++) {
      const ns = Math.floor(this.spanNs[s] / 2);
      spans.push({
        since: this.spanSince[s],
        ns,
        isPreempted: this.spanNs[s] % 2 === 1,
        reason: this.reasons[this.spanReason[s]],
        waker: this.wakers[this.spanWaker[s] - 1] ?? "",
      });
    }
    return { spans, more: this.moreSpans[tree], moreNs: this.moreSpansNs[tree] };
  }
}
