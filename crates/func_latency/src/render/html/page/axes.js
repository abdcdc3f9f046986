// From times and latencies to places on a canvas, and what stands beside the axes.

/** A linear map from [from, to] to [low, high], and back. */
class Scale {
  constructor(from, to, low, high) {
    Object.assign(this, { from, to, low, high });
  }

  place(value) {
    return this.low + ((value - this.from) / (this.to - this.from)) * (this.high - this.low);
  }

  value(place) {
    return this.from + ((place - this.low) / (this.high - this.low)) * (this.to - this.from);
  }
}

/** The next of 1, 2, 5, 10, 20, 50, ... */
function roundStep(value) {
  const decade = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return decade * [1, 2, 5, 10].find((times) => times * decade >= value);
}

/** Round times on a scale, at least `apart` pixels from each other. */
function timeTicks(scale, apart) {
  const most = Math.max((scale.high - scale.low) / apart, 1);
  const step = roundStep((scale.to - scale.from) / most);
  const ticks = [];
  for (let at = Math.ceil(scale.from / step) * step; at <= scale.to; at += step) ticks.push(at);
  return ticks;
}

/** Latencies on a scale of logarithms: decades, and where there are few, steps between them. */
function latencyTicks(scale) {
  const span = scale.to - scale.from;
  const steps = span > 3 ? [1] : span > 1.2 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
  const ticks = [];
  for (let decade = Math.floor(scale.from); decade <= scale.to; decade++) {
    for (const step of steps) {
      const at = decade + Math.log10(step);
      if (at >= scale.from && at <= scale.to) ticks.push({ at, ns: step * 10 ** decade, main: step === 1 });
    }
  }
  return ticks;
}

/** Colours as the style sheet has them now: a canvas knows no `var()`. */
function colours() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const of = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const names = ["ink", "faint", "grid", "call", "slow", "open", "brush", "others", "picked", "paper"];
  const found = Object.fromEntries(names.map((name) => [name, of(name)]));
  found.heat = [0, 1, 2, 3, 4].map((step) => of(`heat-${step}`));
  probe.remove();
  return found;
}

/** `steps` colours from the first of `stops` to the last. */
function ramp(stops, steps) {
  const canvas = document.createElement("canvas");
  canvas.width = steps;
  canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const gradient = context.createLinearGradient(0, 0, steps, 0);
  stops.forEach((stop, i) => gradient.addColorStop(i / (stops.length - 1), stop));
  context.fillStyle = gradient;
  context.fillRect(0, 0, steps, 1);
  const { data } = context.getImageData(0, 0, steps, 1);
  return Array.from({ length: steps }, (_, i) => `rgb(${data[4 * i]} ${data[4 * i + 1]} ${data[4 * i + 2]})`);
}

/** A canvas of this size in CSS pixels, sharp on every screen; its cleared context. */
function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif";
  return context;
}
