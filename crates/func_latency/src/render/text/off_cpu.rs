//! Why calls were off the CPU.

use std::io::{self, Write};

use analyzer::OffCpuCauses;
use model::OffCpuSplit;

use super::rule;
use crate::render::names::{reason_name, waker_name};
use crate::render::table::{Align, Table, bar};
use crate::render::units::{duration, grouped, percent, share};

/// Rows of each table.
const LISTED: usize = 10;
const BAR: usize = 20;

pub(super) fn write(out: &mut dyn Write, causes: &OffCpuCauses, name: &str, width: usize) -> io::Result<()> {
    let whole = causes.split.total_ns();
    if whole == 0 {
        return Ok(());
    }
    rule(out, '-', width)?;
    let OffCpuSplit { blocked_ns, runnable_ns, preempted_ns } = causes.split;
    let part = |ns: u64| format!("{} ({} %)", duration(ns), percent(share(ns, whole)));
    writeln!(
        out,
        "Off-CPU time of [{name}]: {} blocked, {} runnable, {} preempted",
        part(blocked_ns),
        part(runnable_ns),
        part(preempted_ns)
    )?;
    reasons(out, causes, whole, width)?;
    wakers(out, causes, blocked_ns, width)
}

fn reasons(out: &mut dyn Write, causes: &OffCpuCauses, whole: u64, width: usize) -> io::Result<()> {
    let right = |title| (title, Align::Right);
    let mut table = Table::new(&[
        ("waiting in", Align::Left),
        right("count"),
        right("blocked"),
        right("runnable"),
        right("preempted"),
        right("share %"),
        ("of off-CPU time", Align::Left),
    ]);
    let most = causes.reasons.first().map_or(0, |row| row.split.total_ns());
    for row in causes.reasons.iter().take(LISTED) {
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
    table.write(out, width)
}

fn wakers(out: &mut dyn Write, causes: &OffCpuCauses, blocked_ns: u64, width: usize) -> io::Result<()> {
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
    for row in causes.wakers.iter().take(LISTED) {
        table.row(vec![
            waker_name(&row.waker),
            grouped(row.count),
            duration(row.blocked_ns),
            percent(share(row.blocked_ns, blocked_ns)),
        ]);
    }
    table.write(out, width)
}
