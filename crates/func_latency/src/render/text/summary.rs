//! The first sentences on a function: how slow and how often, what dominates, how long the slow calls waited.
//!
//! Each says only what is certain. What errors, losses or calls without an end leave open is said less of, or
//! not at all.

use std::io::{self, Write};

use analyzer::{ChildKind, FunctionReport, OffCpuCauses, Reason, Stats, ToldBy};

use super::children::{self, Folded};
use super::figures::{Figure, Figures, MAX, OffCpuFigures, P50, P99};
use crate::render::View;
use crate::render::names::reason_name;
use crate::render::table::write_sentence;
use crate::render::units::{counted, duration, grouped, percent, percent_within, share};

/// The least share that is worth saying, in percent.
const WORTH_SAYING: f64 = 10.0;

/// The most children that are named.
const PARTS: usize = 3;

/// Writes the sentences, each on lines of its own.
pub(super) fn write(
    out: &mut dyn Write,
    view: &View<'_>,
    function: &FunctionReport,
    figures: &Figures<'_>,
    width: usize,
) -> io::Result<()> {
    let sentences = [
        Some(calls(view, function, figures)),
        dominates(view, function),
        function.figures.off_cpu.as_ref().and_then(|off_cpu| waits(function, figures, off_cpu)),
    ];
    for sentence in sentences.into_iter().flatten() {
        write_sentence(out, &sentence, (2, 2), width)?;
    }
    writeln!(out)
}

/// `6,711 calls, p50 270 ns, p99 3.24 us.`
fn calls(view: &View<'_>, function: &FunctionReport, figures: &Figures<'_>) -> String {
    let count = function.figures.latency.count;
    let all = function.calls.complete.saturating_add(function.calls.unwound);
    let mut text = match count {
        0 => "No call was seen from entry to return".to_owned(),
        // Of probed calls only some may have figures.
        _ if count < all => format!("{} of {}", grouped(count), counted(all, "call")),
        _ => counted(count, "call"),
    };
    let named: &[(&str, &Figure)] = match count {
        0 | 1 => &[("", &MAX)],
        _ if count < P99.least_calls => &[("p50 ", &P50), ("the longest ", &MAX)],
        _ => &[("p50 ", &P50), ("p99 ", &P99)],
    };
    text.extend(
        named.iter().filter_map(|(name, figure)| Some(format!(", {name}{}", figures.brief(figure)?))),
    );
    text.push('.');
    if function.calls.undecided > 0 {
        let guessed = grouped(function.calls.undecided);
        text.push_str(&format!(" {guessed} of them may have ended at another time."));
    }
    if let Some(longest) = function.open.longest.first() {
        let (open, longest) = (grouped(function.tails.calls), duration(longest.at_least_ns()));
        let more = if count > 0 { " more" } else { "" };
        text.push_str(&format!(" Not seen to end: {open}{more}, the longest {longest} or more."));
    }
    let lost = view.report.loss.percent();
    if lost >= 0.1 {
        text.push_str(&format!(" {} % of the time was lost.", percent(lost)));
    }
    text
}

/// `40.3 % of the time in sqlite3VdbeHalt (64 % of that off the CPU), 22 % in itself (*self).`
///
/// Of each child that is certain to have taken much.
fn dominates(view: &View<'_>, function: &FunctionReport) -> Option<String> {
    // Estimates from another part of the window.
    if function.sliced.is_some() {
        return None;
    }
    let mut rows = children::rows(&View { unfold: false, ..*view }, &function.figures.children);
    rows.sort_by_key(|row| std::cmp::Reverse(row.sum_ns()));
    let all = rows.iter().map(Folded::sum_ns).fold(0, u64::saturating_add);
    let once_ns = function.time_once();
    if once_ns.is_some() {
        rows.retain(|row| row.kind() != ChildKind::Recursion);
    }
    let whole = once_ns.unwrap_or(all);
    // What probes and filters do not see is in *self, too.
    let is_own_known = !view.is_probed() && function.calls.hidden == 0 && !has_filter(view);
    let is_known = |row: &&Folded| row.kind() != ChildKind::Own || is_own_known;
    let parts = rows.iter().filter(is_known).filter_map(|row| {
        let (part, error) = (share(row.sum_ns(), whole), share(row.error_ns(), whole));
        (part - error >= WORTH_SAYING).then(|| (row, percent_within(part, error)))
    });
    let parts: Vec<String> = parts
        .take(PARTS)
        .enumerate()
        .map(|(number, (row, percent))| {
            let of = if number == 0 { " of the time" } else { "" };
            format!("{percent} %{of} in {}", part_name(view, row))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("{}.", parts.join(", ")))
}

/// What a row is, and the share of its time off the CPU if there is much.
fn part_name(view: &View<'_>, row: &Folded) -> String {
    let name = if row.kind() == ChildKind::Own { "itself (*self)".to_owned() } else { row.name(view) };
    let off_cpu = row.off_cpu_ns().map_or(0.0, |ns| share(ns, row.sum_ns()));
    let error = off_cpu * share(row.error_ns(), row.sum_ns()) / 100.0;
    if off_cpu - error < WORTH_SAYING {
        return name;
    }
    format!("{name} ({} % of that off the CPU)", percent_within(off_cpu, error))
}

fn has_filter(view: &View<'_>) -> bool {
    view.report.loss.threads.iter().any(|thread| thread.outside_ns.is_some())
}

/// `6 calls were off the CPU for 2.00 ms (6 % of the time), mostly in fsync, all among the slowest 67 (1 %).`
///
/// A call is as long as its time off the CPU, at least: off the CPU for longer than p99, it is one of the
/// slowest.
fn waits(function: &FunctionReport, figures: &Figures<'_>, off_cpu: &Stats) -> Option<String> {
    let (whole, spread) = (&function.figures.latency, function.figures.latency.spread.as_ref()?);
    let calls = OffCpuFigures::of(&function.figures)?.calls;
    if calls == 0 {
        return Some("No call was off the CPU.".to_owned());
    }
    // Of the outermost calls, where some are inside of others: a call waits while all around it do.
    let is_nested = function.nested_calls() > 0;
    let once = function
        .outermost
        .total
        .off_cpu_ns
        .filter(|_| is_nested)
        .map(|off_ns| (off_ns, function.outermost.total.sum_ns));
    let (off_ns, sum_ns) = once.unwrap_or((off_cpu.sum_ns, whole.sum_ns));
    let part = share(off_ns, sum_ns);
    let error_ns = if is_nested { function.outermost.error_ns } else { function.figures.error.sum_ns };
    let error = part * share(error_ns, sum_ns) / 100.0;
    let were = if calls == 1 { "was" } else { "were" };
    let mut text = format!(
        "{} {were} off the CPU for {} ({} % of the time)",
        counted(calls, "call"),
        duration(off_ns),
        percent_within(part, error)
    );
    // Causes are those of outermost calls.
    let is_of_all = function.outermost.total.off_cpu_ns == Some(off_ns);
    text.extend(function.off_cpu_causes.as_ref().filter(|_| is_of_all).and_then(mostly));
    // Which are the slowest is known if all have ended.
    if whole.count >= P99.least_calls && figures.tails.is_none() {
        let slow = function.figures.histogram.iter().filter(|bucket| bucket.low_ns > spread.p99_ns);
        let slow_calls: u64 = slow.filter_map(|bucket| bucket.off_cpu_count).sum();
        text.push_str(&among_slowest(slow_calls, calls, whole.count / 100));
    }
    text.push('.');
    Some(text)
}

/// How many of the calls off the CPU are certain to be among the slowest.
fn among_slowest(certain: u64, off_cpu: u64, slowest: u64) -> String {
    let slow = format!("the slowest {} (1 %)", grouped(slowest));
    match certain {
        0 => String::new(),
        all if all == slowest => format!(", {slow} among them"),
        all if all == off_cpu => format!(", all among {slow}"),
        some => format!(", {} or more among {slow}", grouped(some)),
    }
}

/// The reason for more than half of the time off the CPU.
fn mostly(causes: &OffCpuCauses) -> Option<String> {
    let first = causes.reasons.first().filter(|first| first.reason != Reason::Unknown)?;
    let is_most = share(first.split.total_ns(), causes.split.total_ns()) > 50.0;
    let is_known = causes.told_by == ToldBy::Scheduler && is_most;
    is_known.then(|| format!(", mostly in {}", reason_name(&first.reason)))
}
