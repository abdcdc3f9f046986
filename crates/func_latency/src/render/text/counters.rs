//! What the calls of a function executed: figures, and columns of the tables of children and callers.

use std::io::{self, Write};

use analyzer::{
    Bucket, CountBucket, CountFigure, CountSpread, Counted, CounterReport, Distribution, FunctionReport,
    Metric,
};

use super::figures::{P90, P99};
use crate::render::table::{Align, Table};
use crate::render::units::{counted, grouped, ns_within};
use crate::render::{View, histogram};

/// Columns of the table, where they are known.
const COLUMNS: [Metric; 7] = [
    Metric::Instructions,
    Metric::Cycles,
    Metric::MilliIpc,
    Metric::Frequency,
    Metric::Branches,
    Metric::Calls,
    Metric::KernelInstructions,
];

/// A row of the table.
struct CounterLine {
    name: &'static str,
    least_calls: u64,
    of: fn(&CountSpread) -> CountFigure,
    ns: fn(&analyzer::Spread) -> u64,
}

const LINES: [CounterLine; 5] = [
    CounterLine { name: "min", least_calls: 1, of: |s| s.min, ns: |s| s.min_ns },
    CounterLine { name: "p50", least_calls: 1, of: |s| s.p50, ns: |s| s.p50_ns },
    CounterLine { name: "p90", least_calls: P90.least_calls, of: |s| s.p90, ns: |s| s.p90_ns },
    CounterLine { name: "p99", least_calls: P99.least_calls, of: |s| s.p99, ns: |s| s.p99_ns },
    CounterLine { name: "max", least_calls: 1, of: |s| s.max, ns: |s| s.max_ns },
];

/// Writes the figures of what the calls executed, if that was asked for.
pub(super) fn write(
    out: &mut dyn Write,
    view: &View<'_>,
    function: &FunctionReport,
    name: &str,
    width: usize,
) -> io::Result<()> {
    let Some(counters) = &function.figures.counters else { return Ok(()) };
    super::rule(out, '-', width)?;
    writeln!(out, "Counters of [{name}]")?;
    let Some(latency) = &function.figures.latency.spread else {
        return writeln!(out, "  unknown: no call was seen from entry to end");
    };
    let right = |title| (title, Align::Right);
    let known: Vec<(Metric, &Distribution)> =
        COLUMNS.iter().filter_map(|metric| Some((*metric, counters.get(*metric)?))).collect();
    let has_times = view.report.trace.no_times.is_none();
    let mut titles = vec![("", Align::Left)];
    titles.extend(has_times.then_some(right("latency, ns")));
    titles.extend(known.iter().map(|(metric, _)| right(metric.name())));
    let mut table = Table::new(&titles);
    let row = |name: &str, latency: String, cell: &dyn Fn(Metric, &CountSpread) -> String| {
        let cells = known.iter().map(|(metric, distribution)| {
            distribution.spread.as_ref().map_or("unknown".to_owned(), |spread| cell(*metric, spread))
        });
        let latency = Some(latency).filter(|_| has_times);
        std::iter::once(name.to_owned()).chain(latency).chain(cells).collect()
    };
    table.row(row("mean", exact_mean(latency.mean_ns), &|metric, spread| mean(metric, spread)));
    table.row(row("stddev", exact_mean(latency.stddev_ns), &|metric, spread| scaled(metric, spread.stddev)));
    for line in LINES.iter().filter(|line| line.least_calls <= function.figures.latency.count) {
        let cell = |metric, spread: &CountSpread| figure(metric, (line.of)(spread));
        table.row(row(line.name, grouped((line.ns)(latency)), &cell));
    }
    table.write(out, width)?;
    sums(out, counters)?;
    notes(out, view, function, counters)
}

fn mean(metric: Metric, spread: &CountSpread) -> String {
    match metric {
        // The error of a mean of ratios is as large as that of the least certain call makes it.
        Metric::MilliIpc => scaled(metric, spread.mean),
        _ if spread.mean_error < 1.0 => exact_mean(spread.mean),
        // No digit that says nothing, as in the rows below.
        _ => ns_within(spread.mean.round() as u64, spread.mean_error.ceil() as u64),
    }
}

/// `1,234`, and of a ratio `1.23`.
fn figure(metric: Metric, figure: CountFigure) -> String {
    match metric {
        Metric::MilliIpc => scaled(metric, figure.value as f64),
        _ => ns_within(figure.value, figure.error),
    }
}

fn scaled(metric: Metric, value: f64) -> String {
    match metric {
        Metric::MilliIpc => ratio(value.round() as u64),
        _ => exact_mean(value),
    }
}

/// Two digits of thousandths, the half upwards: `2.16` of 2155.
fn ratio(thousandths: u64) -> String {
    let hundredths = thousandths.saturating_add(5) / 10;
    format!("{}.{:02}", grouped(hundredths / 100), hundredths % 100)
}

/// `1,234.5`.
fn exact_mean(mean: f64) -> String {
    let tenths = (mean * 10.0).round() as u64; // saturates
    format!("{}.{}", grouped(tenths / 10), tenths % 10)
}

/// All calls together.
fn sums(out: &mut dyn Write, counters: &CounterReport) -> io::Result<()> {
    let (calls, sum) = &counters.known;
    let Counted { executed, cycles, .. } = sum;
    let what = match counters.with_gaps {
        0 => "total".to_owned(),
        _ if *calls == 0 => return Ok(()),
        _ => format!("total of {}", counted(*calls, "call without missing code")),
    };
    if sum.is_of_kernel() {
        return writeln!(out, "  {what}: {}", counted(executed.kernel_instructions, "kernel instruction"));
    }
    writeln!(
        out,
        "  {what}: {}, {} ({} indirect), {}",
        counted(executed.instructions, "instruction"),
        match executed.conditional_branches.saturating_add(executed.indirect_branches) {
            1 => "1 branch".to_owned(),
            branches => format!("{} branches", grouped(branches)),
        },
        grouped(executed.indirect_branches),
        counted(executed.calls, "call")
    )?;
    let Some(cycles) = cycles else { return Ok(()) };
    writeln!(out, "    in {} cycles +- {}, IPC {}", grouped(cycles.count), grouped(cycles.error), ipc(sum))
}

/// What the numbers are of, and what is not known.
fn notes(
    out: &mut dyn Write,
    view: &View<'_>,
    function: &FunctionReport,
    counters: &CounterReport,
) -> io::Result<()> {
    if counters.with_gaps > 0 {
        let calls = counted(counters.with_gaps, "call");
        writeln!(out, "  unknown for {calls} in which code is missing: what ran there is not known")?;
    }
    let kernel = counters.get(Metric::KernelInstructions);
    if let Some(kernel) = kernel.filter(|kernel| kernel.count < counters.known.0) {
        let calls = counted(counters.known.0 - kernel.count, "call");
        writeln!(out, "  kernel instr.: unknown for {calls} in which kernel code could not be followed")?;
    }
    if counters.sum.is_of_kernel() {
        writeln!(
            out,
            "  a function of the kernel runs no user code: its own instructions are counted, exactly"
        )?;
        writeln!(out, "  branches, cycles, IPC and MHz of kernel code are unknown")?;
        return not_ended(out, function);
    }
    writeln!(
        out,
        "  of user code, each REP instruction as one; counts are exact, cycles within their error"
    )?;
    if counters.sum.cycles.is_none() {
        writeln!(
            out,
            "  cycles, IPC and MHz are unknown: the recording has no CYC packets (record with cyc=1)"
        )?;
    } else if counters.get(Metric::Frequency).is_none() && counters.known.0 > 0 {
        let why = match counters.asked.bus_khz {
            Some(_) => "no CBR packet says the frequency",
            None => "the recording does not say the bus clock (max_nonturbo_ratio)",
        };
        writeln!(out, "  MHz is unknown: {why}")?;
    }
    if let Some(ipc) = counters.get(Metric::MilliIpc)
        && ipc.count < counters.known.0
    {
        let without = counted(counters.known.0 - ipc.count, "call");
        writeln!(out, "  IPC: without {without}, of which the cycles are no more than their error")?;
    }
    not_ended(out, function)?;
    if view.report.loss.threads.iter().any(|thread| thread.outside_ns.is_some()) {
        writeln!(
            out,
            "  with an IP filter only code inside of its ranges is counted: what runs outside adds nothing"
        )?;
    }
    Ok(())
}

/// Of how many calls nothing is known.
fn not_ended(out: &mut dyn Write, function: &FunctionReport) -> io::Result<()> {
    match function.tails.calls {
        0 => Ok(()),
        calls => {
            let calls = counted(calls, "call");
            writeln!(out, "  unknown for {calls} not seen from entry to end: open, or cut by a gap")
        }
    }
}

/// Instructions per cycle, with two digits.
pub(super) fn ipc(counted: &Counted) -> String {
    // From thousandths, which the figures of calls are in: one call's IPC is that of all its calls.
    counted.ipc().map_or("unknown".to_owned(), |(ipc, _)| ratio((ipc * 1000.0).round() as u64))
}

/// Titles of the columns that a table gets where calls are counted; `of_kernel`: those of a function of the
/// kernel.
pub(super) fn titles(of_kernel: bool) -> Vec<(&'static str, Align)> {
    match of_kernel {
        true => vec![("kernel instr. avg", Align::Right)],
        false => vec![("instr. avg", Align::Right), ("IPC", Align::Right)],
    }
}

/// The cells below [`titles`].
pub(super) fn cells(counted: &Counted, count: u64, of_kernel: bool) -> Vec<String> {
    let mean = |sum: u64, is_known: bool| match count {
        0 => "-".to_owned(),
        _ if !is_known => "unknown".to_owned(),
        _ => exact_mean(sum as f64 / count as f64),
    };
    if of_kernel {
        return vec![mean(counted.executed.kernel_instructions, counted.is_kernel_known())];
    }
    let ipc = match counted.executed.instructions {
        _ if !counted.is_known() => "unknown".to_owned(),
        0 => "-".to_owned(),
        _ => ipc(counted),
    };
    vec![mean(counted.executed.instructions, counted.is_known()), ipc]
}

/// Writes the histogram of calls by another number than latency.
pub(super) fn histogram<'r>(
    out: &mut dyn Write,
    counters: impl Iterator<Item = Option<&'r CounterReport>>,
    metric: Metric,
) -> io::Result<()> {
    let distributions: Option<Vec<&Distribution>> = counters.map(|counters| counters?.get(metric)).collect();
    let Some(distributions) = distributions else {
        return writeln!(out, "  histogram by {}: unknown", metric.name());
    };
    let bucket =
        |b: &CountBucket| Bucket { low_ns: b.low, high_ns: b.high, count: b.count, off_cpu_count: None };
    let each: Vec<Vec<Bucket>> =
        distributions.iter().map(|of| of.histogram.iter().map(bucket).collect()).collect();
    let unit = match metric {
        Metric::MilliIpc => "IPC x 1000",
        metric => metric.name(),
    };
    histogram::write_by(out, &histogram::merged(each.iter().map(Vec::as_slice)), unit)
}
