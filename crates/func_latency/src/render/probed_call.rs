//! One call that probes have timed, as text: its children, its waits in their order, and what woke it.

use std::fmt::{self, Write as _};

use analyzer::{CallRow, PartOfRow, RowParts, RowWait, SliceKind};
use model::{FunctionId, OffCpuSplit};

use super::Names;
use super::names::{callee_name, caller_name, reason_name, waker_name};
use super::units::{duration, duration_within, percent, share};

/// Writes a call, `start` being when it was entered, in words.
pub(crate) fn text(row: &CallRow, parts: &RowParts, names: &dyn Names, start: &str) -> String {
    let mut text = String::new();
    // A text takes whatever is written.
    let _ = write(&mut text, row, parts, names, start);
    text
}

fn write(out: &mut String, row: &CallRow, parts: &RowParts, names: &dyn Names, start: &str) -> fmt::Result {
    let latency = duration_within(row.latency_ns, row.error_ns);
    writeln!(out, "{} {latency}", names.function(row.function))?;
    let thread = names.thread(row.id.tid).map_or_else(String::new, |name| format!(" ({name})"));
    let cpu = row.cpu.map_or_else(String::new, |cpu| format!(", CPU {}", cpu.0));
    writeln!(out, "call {}, entered {start}, thread {}{thread}{cpu}", row.id, row.id.tid.0)?;
    let site = row.from.site.map_or_else(String::new, |site| format!(" at {}", names.site(site)));
    writeln!(out, "called from {}{site}", caller_name(names, row.from.caller))?;
    match row.off_cpu_ns {
        Some(ns) => {
            writeln!(out, "off the CPU {}, {} % of it", duration(ns), percent(share(ns, row.latency_ns)))?
        }
        None => writeln!(out, "off the CPU: not known, as the scheduler was not followed")?,
    }
    write_children(out, row, &parts.children, names)?;
    write_waits(out, row, &parts.waits, names)
}

fn write_children(out: &mut String, row: &CallRow, children: &[PartOfRow], names: &dyn Names) -> fmt::Result {
    if row.began() != SliceKind::WithChildren {
        return writeln!(out, "\nchildren: not known, as none was probed when it began");
    }
    writeln!(out, "\n{:>10} {:>6} {:>9}  inside", "time", "%", "count")?;
    for child in children {
        let name = callee_name(names, child.key.kind, child.key.function);
        writeln!(
            out,
            "{:>10} {:>6} {:>9}  {name}",
            duration(child.total.sum_ns),
            percent(share(child.total.sum_ns, row.latency_ns)),
            child.total.count
        )?;
    }
    Ok(())
}

fn write_waits(out: &mut String, row: &CallRow, waits: &[RowWait], names: &dyn Names) -> fmt::Result {
    if waits.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{:>10} {:>10}  waited", "after", "for")?;
    for wait in waits {
        let after = duration(wait.from.since(row.start_ns));
        write!(
            out,
            "{after:>10} {:>10}  {}: {}",
            duration(wait.split.total_ns()),
            kinds(wait.split),
            reason_name(&wait.reason)
        )?;
        if let Some(waker) = &wait.waker {
            write!(out, ", woken by {}", waker_name(waker))?;
        }
        if !wait.woken_from.is_empty() {
            write!(out, " in {}", stack(&wait.woken_from, names))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// What a thread did while it was off the CPU.
fn kinds(split: OffCpuSplit) -> String {
    let kinds = [
        ("blocked", split.blocked_ns),
        ("waiting for a CPU", split.runnable_ns),
        ("preempted", split.preempted_ns),
    ];
    let times = kinds.into_iter().filter(|(_, ns)| *ns > 0);
    let named: Vec<String> = times.map(|(kind, ns)| format!("{kind} {}", duration(ns))).collect();
    named.join(", ")
}

/// Functions, innermost first.
fn stack(functions: &[FunctionId], names: &dyn Names) -> String {
    let names: Vec<String> = functions.iter().map(|id| names.function(*id)).collect();
    names.join(" < ")
}

/// Where most of a call's time went, in a sentence.
pub(crate) fn largest_part(row: &CallRow, parts: &RowParts, names: &dyn Names) -> String {
    let of_call = |ns: u64| format!("{} of {}", duration(ns), duration(row.latency_ns));
    let off_cpu_ns = row.off_cpu_ns.unwrap_or_default();
    let wait = parts.waits.iter().max_by_key(|wait| (wait.split.total_ns(), std::cmp::Reverse(wait.from)));
    if let Some(wait) = wait.filter(|_| off_cpu_ns > row.latency_ns / 2) {
        let waker =
            wait.waker.as_ref().map_or_else(String::new, |by| format!(", woken by {}", waker_name(by)));
        let others = match parts.waits.len() - 1 {
            0 => String::new(),
            others => format!(", the longest of {} waits", others + 1),
        };
        return format!(
            "off the CPU for {}: {} for {}{waker}{others}",
            of_call(off_cpu_ns),
            reason_name(&wait.reason),
            duration(wait.split.total_ns())
        );
    }
    let longest = parts.children.iter().max_by_key(|child| child.total.sum_ns);
    match longest.filter(|_| row.began() == SliceKind::WithChildren) {
        Some(child) => {
            let name = callee_name(names, child.key.kind, child.key.function);
            format!("{} in {name}", of_call(child.total.sum_ns))
        }
        None => {
            let on_cpu_ns = row.latency_ns.saturating_sub(off_cpu_ns);
            format!("on the CPU for {}; no child was probed when it began", of_call(on_cpu_ns))
        }
    }
}
