// The plot: each call at its start and latency, or where there are too many of them, how many are where.

/** More calls are drawn as a heat map; the slowest and those that did not end are still drawn one by one. */
const SCATTER_MAX = 50_000;

const MARGIN = { left: 66, right: 18, top: 10, bottom: 34 };
const HEIGHT = 440;
const SIDE_WIDTH = 190;

/** A cell of the heat map, in pixels. */
const CELL = { width: 4, height: 5 };

/** The radius of a single call; of many, half of it, and without a rim, so that they do not hide each other. */
const DISC = 3.5;

/** A pointer is at what is nearer than this, and does not drag before it has gone further. */
const REACH = 12;
const DRAG = 4;

/** A brush of everything. */
const WHOLE = { fromTime: 0, toTime: Infinity, fromLatency: 0, toLatency: Infinity, fromValue: 0, toValue: Infinity };

class Plot {
  constructor(base, overlay, histogram) {
    Object.assign(this, { base, overlay, histogram });
  }

  /** Places for a view: times and logarithms of latencies from and to, or of what calls are drawn by. */
  layout(width, view, by) {
    this.width = width;
    this.by = by;
    this.x = new Scale(view.fromTime, view.toTime, MARGIN.left, width - MARGIN.right);
    this.y = new Scale(view.fromLog, view.toLog, HEIGHT - MARGIN.bottom, MARGIN.top);
    this.theme = colours();
    this.heat = ramp(this.theme.heat, 64);
  }

  /** Draws calls; returns how: the kind of drawing, the calls in it, and those drawn one by one. */
  draw(calls, visible) {
    const context = prepare(this.base, this.width, HEIGHT);
    this.drawAxes(context);
    context.save();
    context.beginPath();
    const { left, right, top, bottom } = this.area();
    context.rect(left, top, right - left, bottom - top);
    context.clip();
    const shown = [];
    const end = calls.firstFrom(this.x.to + 1);
    for (let i = calls.firstFrom(this.x.from); i < end; i++) {
      if (visible[i] === OTHERS && calls.log[i] >= this.y.from && calls.log[i] <= this.y.to) shown.push(i);
    }
    const isHeat = shown.length > SCATTER_MAX;
    const singles = shown.filter((i) => calls.isSingle(i));
    const many = shown.length - singles.length;
    const densest = isHeat ? this.drawHeat(context, calls, shown) : this.drawDots(context, calls, shown);
    const radius = singles.length > 300 ? DISC / 2 : DISC;
    singles.forEach((i) => this.drawSingle(context, calls, i, radius));
    context.restore();
    return { kind: isHeat ? "heat" : "scatter", shown: shown.length, singles: singles.length, many, densest };
  }

  /** What bounds a brush from below and above. */
  get bounds() {
    return this.by === "latency" ? ["fromLatency", "toLatency"] : ["fromValue", "toValue"];
  }

  /** Between the axes, in pixels of the canvas. */
  area() {
    return { left: this.x.low, right: this.x.high, top: this.y.high, bottom: this.y.low };
  }

  drawAxes(context) {
    const { ink, grid } = this.theme;
    context.fillStyle = ink;
    context.strokeStyle = grid;
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const tick of latencyTicks(this.y)) {
      const y = Math.round(this.y.place(tick.at)) + 0.5;
      line(context, this.x.low, y, this.x.high, y, tick.main ? 1 : 0.5);
      context.fillText(MEASURES[this.by].tick(tick.ns), this.x.low - 8, y);
    }
    context.textBaseline = "top";
    context.textAlign = "center";
    for (const time of timeTicks(this.x, 110)) {
      const x = Math.round(this.x.place(time)) + 0.5;
      line(context, x, this.y.high, x, this.y.low, 0.5);
      context.fillText(shortDuration(time), x, this.y.low + 7);
    }
  }

  drawDots(context, calls, shown) {
    const size = shown.length > 10_000 ? 2 : 3;
    context.fillStyle = this.theme.call;
    context.globalAlpha = shown.length > 5_000 ? 0.55 : 0.8;
    for (const i of shown) {
      if (calls.isSingle(i)) continue;
      context.fillRect(this.x.place(calls.start[i]) - size / 2, this.y.place(calls.log[i]) - size / 2, size, size);
    }
    context.globalAlpha = 1;
    return 1;
  }

  /** Counts all but the single calls by cells; the logarithm of the count is the colour.  Returns the greatest count. */
  drawHeat(context, calls, shown) {
    const columns = Math.ceil((this.x.high - this.x.low) / CELL.width);
    const lines = Math.ceil((this.y.low - this.y.high) / CELL.height);
    const counts = new Uint32Array(columns * lines);
    for (const i of shown) {
      if (calls.isSingle(i)) continue;
      const column = Math.min(Math.floor((this.x.place(calls.start[i]) - this.x.low) / CELL.width), columns - 1);
      const row = Math.min(Math.floor((this.y.low - this.y.place(calls.log[i])) / CELL.height), lines - 1);
      counts[row * columns + column]++;
    }
    const most = counts.reduce((most, count) => Math.max(most, count), 1);
    const scale = (this.heat.length - 1) / Math.log(most + 1);
    counts.forEach((count, cell) => {
      if (count === 0) return;
      context.fillStyle = this.heat[Math.floor(Math.log(count + 1) * scale)];
      const x = this.x.low + (cell % columns) * CELL.width;
      const y = this.y.low - (Math.floor(cell / columns) + 1) * CELL.height;
      context.fillRect(x, y, CELL.width, CELL.height);
    });
    return most;
  }

  /** A slow call is a disc; one that did not end an arrow that points to where it went. */
  drawSingle(context, calls, i, radius) {
    const [x, y] = this.placeOf(calls, i);
    context.beginPath();
    if (calls.isCounted(i)) {
      context.fillStyle = this.theme.slow;
      context.arc(x, y, radius, 0, 2 * Math.PI);
    } else {
      context.fillStyle = this.theme.open;
      context.moveTo(x, y - 6);
      context.lineTo(x + 4.5, y + 3);
      context.lineTo(x - 4.5, y + 3);
      context.closePath();
    }
    context.fill();
    if (radius < DISC) return;
    context.strokeStyle = this.theme.paper;
    context.lineWidth = 0.75;
    context.stroke();
  }

  placeOf(calls, i) {
    return [this.x.place(calls.start[i]), this.y.place(calls.log[i])];
  }

  isInView(calls, i) {
    const [x, y] = this.placeOf(calls, i);
    return x >= this.x.low && x <= this.x.high && y <= this.y.low && y >= this.y.high;
  }

  /** The brush, and the calls that the pointer, the keys and a click are at. */
  drawOverlay(calls, brush, marks, side) {
    const context = prepare(this.overlay, this.width, HEIGHT);
    if (brush !== null && this.by !== "latency") this.drawBrushed(context, calls, side);
    const isSeen = (field) => brush[field] !== WHOLE[field];
    if (brush !== null && ["fromTime", "toTime", ...this.bounds].some(isSeen)) {
      const inside = (scale, value) => scale.place(Math.min(Math.max(value, scale.from), scale.to));
      const log = (ns) => Math.log10(Math.max(ns, 1));
      const [left, right] = [inside(this.x, brush.fromTime), inside(this.x, brush.toTime)];
      const [from, to] = this.bounds;
      const [bottom, top] = [inside(this.y, log(brush[from])), inside(this.y, log(brush[to]))];
      context.fillStyle = context.strokeStyle = this.theme.brush;
      context.globalAlpha = 0.13;
      context.fillRect(left, top, right - left, bottom - top);
      context.globalAlpha = 1;
      context.lineWidth = 1.5;
      context.strokeRect(left, top, right - left, bottom - top);
    }
    for (const [i, width] of marks) {
      if (!this.isInView(calls, i)) continue;
      const [x, y] = this.placeOf(calls, i);
      context.strokeStyle = this.theme.picked;
      context.lineWidth = width;
      context.beginPath();
      context.arc(x, y, 7, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  /** Brushed calls one by one: a brush of latencies is no rectangle where calls are drawn by something else. */
  drawBrushed(context, calls, side) {
    context.fillStyle = this.theme.brush;
    for (let i = 0; i < calls.count; i++) {
      if (side[i] !== BRUSHED || !this.isInView(calls, i)) continue;
      const [x, y] = this.placeOf(calls, i);
      context.fillRect(x - 2, y - 2, 4, 4);
    }
  }

  /** Both sides' latencies beside the plot, each as a share of its own calls, on the same axis. */
  drawHistogram(calls, side, brushed) {
    const context = prepare(this.histogram, SIDE_WIDTH, HEIGHT);
    const bins = Math.floor((this.y.low - this.y.high) / CELL.height);
    const counts = latencyHistogram(calls, side, this.y.from, this.y.to, bins);
    const height = (this.y.low - this.y.high) / bins;
    const draw = (s, colour, alpha) => {
      const most = counts[s].reduce((most, count) => Math.max(most, count), 0);
      context.fillStyle = colour;
      context.globalAlpha = alpha;
      counts[s].forEach((count, bin) => {
        const width = most ? (count / most) * (SIDE_WIDTH - 14) : 0;
        if (count) context.fillRect(4, this.y.low - (bin + 1) * height, Math.max(width, 1), height - 0.5);
      });
      context.globalAlpha = 1;
    };
    draw(OTHERS, this.theme.others, brushed ? 0.75 : 1);
    if (brushed) draw(BRUSHED, this.theme.brush, 0.75);
    context.fillStyle = this.theme.ink;
    context.textBaseline = "top";
    context.fillText(brushed ? "brushed and others" : "all calls", 4, this.y.low + 7);
    context.fillStyle = this.theme.faint;
    context.fillText("each side to its own peak", 4, this.y.low + 20);
  }

  /** The call nearest to a place, if one is in reach. */
  nearest(calls, visible, x, y) {
    const end = calls.firstFrom(this.x.value(x + REACH) + 1);
    let best = null;
    let bestDistance = REACH * REACH;
    for (let i = calls.firstFrom(this.x.value(x - REACH)); i < end; i++) {
      if (visible[i] === HIDDEN) continue;
      const [callX, callY] = this.placeOf(calls, i);
      const distance = (callX - x) ** 2 + (callY - y) ** 2;
      // Of what is equally near, the rarer.
      if (distance < bestDistance || (distance === bestDistance && calls.isSingle(i))) {
        best = i;
        bestDistance = distance;
      }
    }
    return best;
  }

  /** The brush from one place to another: begun below or beside the axes, of time or latency alone. */
  brushBetween([fromX, fromY], [toX, toY]) {
    const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
    const x = [fromX, toX].map((x) => this.x.value(clamp(x, this.x.low, this.x.high))).sort((a, b) => a - b);
    const y = [fromY, toY].map((y) => this.y.value(clamp(y, this.y.high, this.y.low))).sort((a, b) => a - b);
    const values = y.map((log) => 10 ** log);
    const [from, to] = this.bounds;
    const ofTime = { fromTime: Math.floor(x[0]), toTime: Math.ceil(x[1]) };
    const ofValues = { [from]: Math.floor(values[0]), [to]: Math.ceil(values[1]) };
    if (fromX < this.x.low || fromX > this.width) return { ...WHOLE, ...ofValues };
    if (fromY > this.y.low) return { ...WHOLE, ...ofTime };
    return { ...WHOLE, ...ofTime, ...ofValues };
  }
}

function line(context, fromX, fromY, toX, toY, width) {
  context.lineWidth = width;
  context.beginPath();
  context.moveTo(fromX, fromY);
  context.lineTo(toX, toY);
  context.stroke();
}
