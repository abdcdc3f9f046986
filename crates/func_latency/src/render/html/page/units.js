// Numbers as people read them, as in the report on the terminal.

const UNITS = [
  ["ns", 1],
  ["us", 1e3],
  ["ms", 1e6],
  ["s", 1e9],
];

/** `564 ns`, `12.2 us` of whole nanoseconds: three digits at most. */
function duration(ns) {
  return Math.abs(ns) < 1000 ? `${ns} ns` : meanDuration(ns);
}

/** `5.00 ns`, `12.2 us`: three digits. */
function meanDuration(ns) {
  const sign = ns < 0 ? "-" : "";
  let value = Math.abs(ns);
  let unit = 0;
  while (value >= 999.5 && unit + 1 < UNITS.length) {
    value /= 1000;
    unit += 1;
  }
  const digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${sign}${value === 0 ? "0" : value.toFixed(digits)} ${UNITS[unit][0]}`;
}

/** A round duration without zeros that say nothing: `20 us`, `1.5 s`. */
function shortDuration(ns) {
  const [unit, one] = UNITS.findLast(([, one]) => Math.abs(ns) >= one) ?? UNITS[0];
  return `${Number((ns / one).toPrecision(10))} ${unit}`;
}

/** ns of `1.5 ms` (without a unit: ns); NaN if it is no duration. */
function parseDuration(text) {
  const match = /^\s*([0-9.,]+)\s*(ns|us|µs|ms|s)?\s*$/.exec(text);
  if (!match) return NaN;
  const unit = (match[2] ?? "ns").replace("µ", "u");
  return Number(match[1].replaceAll(",", "")) * UNITS.find(([name]) => name === unit)[1];
}

/** A round number in few characters: `1,500`, `20k`, `3M`. */
function shortCount(count) {
  const steps = [["G", 1e9], ["M", 1e6], ["k", 1e3]];
  const [unit, one] = count < 1e4 ? ["", 1] : steps.find(([, one]) => count >= one);
  return `${grouped(Number((count / one).toPrecision(10)))}${unit}`;
}

/** `1,234,567`. */
function grouped(number) {
  return number.toLocaleString("en-US");
}

/** Nanoseconds without the digits that are not known: `2,460` for 2,456 +- 14, and `< 25` for 12 +- 12. */
function nsWithin(ns, error) {
  if (error === 0) return grouped(ns);
  if (error >= ns) {
    const above = ns + error + 1;
    const tens = 10 ** Math.max(Math.floor(Math.log10(above)) - 1, 0);
    return `< ${grouped(Math.ceil(above / tens) * tens)}`;
  }
  const step = 10 ** Math.floor(Math.log10(error));
  return grouped(Math.round(ns / step) * step);
}

/** A difference likewise: `+2,460`, and `> -25` for -12 +- 12. */
function differenceWithin(ns, error) {
  const size = nsWithin(Math.abs(ns), error);
  if (size.startsWith("<")) return ns < 0 ? size.replace("< ", "> -") : size;
  return ns === 0 ? size : `${ns < 0 ? "-" : "+"}${size}`;
}

/** `12.3 %`, and `< 0.1 %` for little that is not nothing. */
function percent(share) {
  return share > 0 && share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`;
}

/** `1 call`, `2 calls`. */
function counted(count, thing) {
  return `${grouped(count)} ${thing}${count === 1 ? "" : "s"}`;
}
