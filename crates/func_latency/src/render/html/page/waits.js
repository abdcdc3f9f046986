// When a call was on and off its CPU, what it waited for, and what woke it.

/** The call's time from left to right, and how it ended; `longest`: the time that is the whole width. */
function strip(calls, trees, i, title, longest) {
  const { spans, more, moreNs } = trees.offCpuOf(i);
  const bar = element("div", { className: "strip" });
  const part = (className, since, ns, text) => {
    const made = element("i", { className, title: text });
    made.style.left = `${(100 * since) / longest}%`;
    made.style.width = `max(1px, ${(100 * ns) / longest}%)`;
    bar.append(made);
  };
  const onCpu = `on the CPU: ${duration(calls.latency[i] - calls.offCpu[i])}`;
  part("on", 0, calls.latency[i], meta.off_cpu_known ? onCpu : "on or off the CPU");
  for (const span of spans) {
    const how = span.isPreempted ? "preempted" : "off the CPU";
    const why = span.isPreempted ? "" : `: ${whyOf(span)}`;
    const text = `${how} at +${duration(span.since)} for ${duration(span.ns)}${why}`;
    part(span.isPreempted ? "off preempted" : "off", span.since, span.ns, text);
  }
  if (!calls.isCounted(i)) part("lost", calls.latency[i], 0, endOf(calls, i));
  const texts = offCpuInWords(spans, more, moreNs);
  if (!calls.isCounted(i)) texts.push(endOf(calls, i));
  if (!texts.length) texts.push(meta.off_cpu_known ? "on the CPU all the time" : "whether it was off the CPU is not known");
  const below = element("span", { className: "note" }, texts.join("; "));
  return element("div", { className: "strip-row" }, element("b", {}, title), bar, below);
}

/** `futex, woken by worker (77)`. */
function whyOf({ reason, waker }) {
  return waker === "" ? reason : `${reason}, woken by ${waker}`;
}

/** The longest times in their order, and the sum of the others. */
function offCpuInWords(spans, more, moreNs) {
  const byTime = spans.slice().sort((a, b) => b.ns - a.ns);
  const first = byTime.splice(0, 3).sort((a, b) => a.since - b.since);
  const how = ({ isPreempted }) => (isPreempted ? "preempted" : "off");
  const texts = first.map((span) => `${how(span)} at +${duration(span.since)} for ${duration(span.ns)}`);
  const rest = byTime.length + more;
  const restNs = byTime.reduce((sum, { ns }) => sum + ns, moreNs);
  if (rest > 0) texts.push(`${grouped(rest)} more, ${duration(restNs)}`);
  return texts;
}

/** How a call that did not end in sight was lost. */
function endOf(calls, i) {
  const cause = calls.cause[i] ? ` by: ${calls.table.causes[calls.cause[i]]}` : "";
  return `${calls.status(i)}${cause} at +${duration(calls.latency[i])}`;
}

/** What the call waited for and what woke it, the longest first; `null`: it never waited. */
function waitsTable(trees, i) {
  const { spans, more, moreNs } = trees.offCpuOf(i);
  if (spans.length === 0) return null;
  const sums = new Map();
  for (const { reason, waker, ns } of spans) {
    const key = JSON.stringify([reason, waker]);
    const sum = sums.get(key) ?? { reason, waker, count: 0, ns: 0 };
    sum.count++;
    sum.ns += ns;
    sums.set(key, sum);
  }
  const rows = [...sums.values()]
    .sort((a, b) => b.ns - a.ns)
    .map(({ reason, waker, count, ns }) => [reason, waker || "not known", grouped(count), duration(ns)]);
  if (more > 0) rows.push(["others", "", grouped(more), duration(moreNs)]);
  const columns = [["waited in", "word"], ["woken by", "word"], ["times", NUMBER], ["off-CPU", NUMBER]];
  const made = table(columns, rows.slice(0, ROWS_SHOWN));
  made.classList.add("waits");
  return element("div", { className: "waits-part" }, made, moreOf(rows.length));
}
