//! Why calls were off the CPU.

use std::io::{self, Write};

use analyzer::{OffCpuCauses, ToldBy};
use model::OffCpuSplit;

use super::rule;
use crate::render::names::{Names, reason_name, waker_name};
use crate::render::row_limit::RowLimit;
use crate::render::table::{Align, Table, bar, write_sentence};
use crate::render::units::{duration, grouped, percent, share};

/// Places of each waker, if not all are printed.
const STACKS_LISTED: usize = 3;
const BAR: usize = 20;

/// What a recording without them does not have, and how to make one that does.
const WITHOUT_EVENTS: &str = "what they waited for and who woke them: not in the recording, which needs eBPF (func_latency doctor), \
                              or perf's -e sched:sched_switch -e sched:sched_waking";

/// The function that the causes are of.
pub(super) struct About<'a> {
    /// The function's name.
    pub(super) name: &'a str,
    /// Names of what woke it.
    pub(super) names: &'a dyn Names,
    /// How far off wake-ups may be: [`crate::render::View::sched_apart_ns`].
    pub(super) sched_apart_ns: Option<u64>,
    /// Which rows are printed.
    pub(super) rows: RowLimit,
}

pub(super) fn write(
    out: &mut dyn Write,
    causes: &OffCpuCauses,
    about: &About<'_>,
    width: usize,
) -> io::Result<()> {
    let About { name, sched_apart_ns, .. } = about;
    let whole = causes.split.total_ns();
    if whole == 0 {
        return Ok(());
    }
    rule(out, '-', width)?;
    let OffCpuSplit { blocked_ns, runnable_ns, preempted_ns } = causes.split;
    let part = |ns: u64| format!("{} ({} %)", duration(ns), percent(share(ns, whole)));
    if causes.told_by == ToldBy::SwitchRecords {
        let (blocked, preempted) = (part(blocked_ns), part(preempted_ns));
        writeln!(out, "Off-CPU time of [{name}]: {blocked} blocked or runnable, {preempted} preempted")?;
        return write_sentence(out, WITHOUT_EVENTS, (2, 2), width);
    }
    writeln!(
        out,
        "Off-CPU time of [{name}]: {} blocked, {} runnable, {} preempted",
        part(blocked_ns),
        part(runnable_ns),
        part(preempted_ns)
    )?;
    if let Some(apart_ns) = sched_apart_ns.filter(|_| runnable_ns > 0) {
        let apart = duration(apart_ns);
        writeln!(
            out,
            "  wake-ups were timed by another clock, joined to within {apart}: each may be off by that"
        )?;
    }
    reasons(out, causes, about.rows, width)?;
    wakers(out, causes, about, width)
}

fn reasons(out: &mut dyn Write, causes: &OffCpuCauses, rows: RowLimit, width: usize) -> io::Result<()> {
    let whole = causes.split.total_ns();
    let right = |title| (title, Align::Right);
    let mut table = Table::new(&[
        ("waiting in", Align::Left),
        right("count"),
        right("blocked"),
        right("runnable"),
        right("preempted"),
        right("share %"),
        ("of off-CPU time", Align::Bar),
    ]);
    let most = causes.reasons.first().map_or(0, |row| row.split.total_ns());
    let (rows, left_out) = rows.split(&causes.reasons, |row| row.split.total_ns(), whole);
    for row in rows {
        let all = row.split.total_ns();
        table.row(vec![
            reason_name(&row.reason),
            grouped(row.count),
            duration(row.split.blocked_ns),
            duration(row.split.runnable_ns),
            duration(row.split.preempted_ns),
            percent(share(all, whole)),
            bar(all, most, BAR),
        ]);
    }
    table.write(out, width)?;
    left_out.write(out, "the off-CPU time")
}

fn wakers(out: &mut dyn Write, causes: &OffCpuCauses, about: &About<'_>, width: usize) -> io::Result<()> {
    let About { names, rows, .. } = about;
    let blocked_ns = causes.split.blocked_ns;
    if causes.wakers.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let right = |title| (title, Align::Right);
    let mut table = Table::new(&[
        ("woken by", Align::Left),
        right("count"),
        right("blocked until then"),
        right("share %"),
    ]);
    let (shown, left_out) = rows.split(&causes.wakers, |row| row.blocked_ns, blocked_ns);
    for row in shown {
        let mut line = |name: String, count, ns| {
            table.row(vec![name, grouped(count), duration(ns), percent(share(ns, blocked_ns))]);
        };
        line(waker_name(&row.waker), row.count, row.blocked_ns);
        for stack in row.stacks.iter().take(rows.details(STACKS_LISTED)) {
            let functions: Vec<String> = stack.functions.iter().map(|id| names.function(*id)).collect();
            line(format!("  from {}", functions.join(" < ")), stack.count, stack.blocked_ns);
        }
    }
    table.write(out, width)?;
    left_out.write(out, "the blocked time")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::image_names::ImageNames;

    /// What is not known is said, with the remedy, and not printed as nothing.
    #[test]
    fn switch_records_alone_know_no_reasons() {
        let split = OffCpuSplit { blocked_ns: 3_000, runnable_ns: 0, preempted_ns: 1_000 };
        let causes = OffCpuCauses { told_by: ToldBy::SwitchRecords, split, ..OffCpuCauses::default() };
        let mut out = Vec::new();
        let image = image::Image::load(&[], &crate::host::live_options(None));
        let about = About {
            name: "f",
            names: &ImageNames::new(&image, false),
            sched_apart_ns: Some(1),
            rows: RowLimit::ALL,
        };
        write(&mut out, &causes, &about, 60).unwrap();
        let text = String::from_utf8(out).unwrap();
        // An empty line and a rule come first.
        let lines: Vec<&str> = text.lines().skip(2).collect();
        let head = "Off-CPU time of [f]: 3.00 us (75.0 %) blocked or runnable, 1.00 us (25.0 %) preempted";
        let hint = [
            "  what they waited for and who woke them: not in the",
            "  recording, which needs eBPF (func_latency doctor), or",
            "  perf's -e sched:sched_switch -e sched:sched_waking",
        ];
        assert_eq!(lines, [&[head][..], &hint].concat());
    }
}
