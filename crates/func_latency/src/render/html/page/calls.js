// The calls of a function: typed arrays with one value for each call, in the order of their start.
// What is read here is written by `calls.rs` and `columns.rs`, in the same order.

const STATUSES = ["complete", "unwound", "open at start", "open at end", "cut"];
/** The last status of calls that were seen from entry to end. */
const UNWOUND = 1;
const UNDECIDED = 1 << 3;
const ENDED_BY_JUMP = 1 << 4;
/** Where a probed call began: the bits above.  The first was traced. */
const BEGAN = ["", "alone", "with children", "between"];

/** Undoes base64 and zlib. */
async function unpack(text) {
  if (text === "") return new Uint8Array();
  const binary = atob(text.trim());
  const packed = new Uint8Array(binary.length);
  for (let i = 0; i < packed.length; i++) packed[i] = binary.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** LEB128 numbers, one after the other. */
class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  column(values) {
    const bytes = this.bytes;
    let at = this.at;
    for (let i = 0; i < values.length; i++) {
      let byte = bytes[at++];
      let value = byte & 0x7f;
      for (let scale = 128; byte >= 0x80; scale *= 128) {
        byte = bytes[at++];
        value += (byte & 0x7f) * scale;
      }
      values[i] = value;
    }
    this.at = at;
    return values;
  }

  /** A column of off-CPU times; where they are not known there is none, and all are NaN. */
  offCpu(values) {
    return meta.off_cpu_known ? this.column(values) : values.fill(NaN);
  }
}

/** Cells about off-CPU time: none where it is not known. */
function ofOffCpu(...cells) {
  return meta.off_cpu_known ? cells : [];
}

/** Cells about where calls began: none where all began alike. */
function ofSlices(calls, ...cells) {
  return calls.table.figures_of === null ? [] : cells;
}

/** The columns of one function; `table` has the names that their numbers stand for. */
class Calls {
  constructor(table, [ofCalls, ofWays, ofTrees, counterBytes]) {
    const count = table.calls;
    const reader = new Reader(ofCalls);
    this.table = table;
    this.count = count;
    this.start = reader.column(new Float64Array(count));
    for (let i = 1; i < count; i++) this.start[i] += this.start[i - 1];
    this.latency = reader.column(new Float64Array(count));
    this.error = reader.column(new Float64Array(count));
    this.offCpu = reader.offCpu(new Float64Array(count));
    this.thread = reader.column(new Uint32Array(count));
    this.number = this.numbers(reader.column(new Float64Array(count)));
    this.cpu = reader.column(new Uint32Array(count)); // and one more; 0: not known
    this.flags = reader.column(new Uint8Array(count));
    this.caller = reader.column(new Uint32Array(count));
    this.cause = reader.column(new Uint8Array(count));
    this.readChildren(reader);
    this.ways = new Ways(table.ways, count, ofWays);
    this.trees = table.trees === null ? null : new Trees(table.trees, ofTrees);
    this.order = sortedBy(this.latency);
    this.counters = table.counters === undefined ? null : new Counters(this, table.counters, counterBytes);
    this.drawBy("latency");
    this.cpuCount = this.cpu.reduce((most, cpu) => Math.max(most, cpu), 0) + 1;
  }

  /** Numbers of ids from how far each is from the one after the thread's last. */
  numbers(steps) {
    const next = new Float64Array(this.table.threads.length);
    for (let i = 0; i < steps.length; i++) {
      const step = steps[i] % 2 === 0 ? steps[i] / 2 : -(steps[i] + 1) / 2;
      const number = next[this.thread[i]] + step;
      steps[i] = number;
      next[this.thread[i]] = number + 1;
    }
    return steps;
  }

  readChildren(reader) {
    const counts = reader.column(new Uint32Array(this.count)); // and one more; 0: not in the page
    this.hasChildren = new Uint8Array(this.count);
    this.childrenFrom = new Uint32Array(this.count + 1);
    for (let i = 0; i < this.count; i++) {
      this.hasChildren[i] = counts[i] > 0 ? 1 : 0;
      this.childrenFrom[i + 1] = this.childrenFrom[i] + Math.max(counts[i] - 1, 0);
    }
    const total = this.childrenFrom[this.count];
    this.childKey = reader.column(new Uint32Array(total));
    this.childCount = reader.column(new Float64Array(total));
    this.childNs = reader.column(new Float64Array(total));
    this.childOffCpu = reader.offCpu(new Float64Array(total));
  }

  /** What calls are drawn by: a number of theirs, its logarithm, and their order by it. NaN: not known. */
  drawBy(name) {
    this.by = this.counters !== null && Object.hasOwn(MEASURES, name) ? name : "latency";
    this.value = this.by === "latency" ? this.latency : this.counters[this.by];
    this.log = Float32Array.from(this.value, (value) => Math.log10(Math.max(value, 1)));
    this.orderBy = this.by === "latency" ? this.order : this.counters.order(MEASURES[this.by].title, this.value);
  }

  /** It was seen from entry to end, and enters the figures. */
  isCounted(i) {
    return (this.flags[i] & 7) <= UNWOUND;
  }

  status(i) {
    return STATUSES[this.flags[i] & 7];
  }

  /** Where it began: whether the function was probed alone. */
  began(i) {
    return BEGAN[this.flags[i] >> 5];
  }

  id(i) {
    return `${this.table.threads[this.thread[i]]}-${this.number[i]}`;
  }

  /** The index of the call with an id; -1: there is none. */
  indexOf(id) {
    const [tid, number] = id.split("-");
    const thread = this.table.threads.indexOf(tid);
    for (let i = 0; i < this.count; i++) {
      if (this.thread[i] === thread && this.number[i] === Number(number)) return i;
    }
    return -1;
  }

  /** Drawn one by one, however many calls there are. */
  isSingle(i) {
    return !this.isCounted(i) || this.latency[i] > (this.table.p999_ns ?? Infinity);
  }

  /** The index of the first call that starts at `time` or later. */
  firstFrom(time) {
    let [low, high] = [0, this.count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.start[middle] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** The indices of `values` (whole, not negative) by value, equal ones in their order: by radix, in linear time. */
function sortedBy(values) {
  const BITS = 11;
  const RADIX = 1 << BITS;
  const { length } = values;
  let most = 0;
  for (let i = 0; i < length; i++) most = Math.max(most, values[i]);
  let from = new Uint32Array(length);
  for (let i = 0; i < length; i++) from[i] = i;
  let to = new Uint32Array(length);
  const digits = new Uint16Array(length);
  for (let scale = 1; scale <= most; scale *= RADIX) {
    const ends = new Uint32Array(RADIX + 1);
    for (let i = 0; i < length; i++) {
      digits[i] = Math.floor(values[i] / scale) % RADIX;
      ends[digits[i] + 1]++;
    }
    for (let d = 0; d < RADIX; d++) ends[d + 1] += ends[d];
    for (let k = 0; k < length; k++) to[ends[digits[from[k]]]++] = from[k];
    [from, to] = [to, from];
  }
  return from;
}

/** A caller's or child's name with what tells it from others of that name. */
function placed(item) {
  const place = item.line ?? item.site;
  return place ? `${item.name} (${place})` : item.name;
}
