//! What calls, their children and the nodes of their trees executed, as a page has it.
//!
//! A column of instructions has one more than there are, and 0 where they are not known. Where cycles are
//! known of some call, they are of all with known instructions. `page/counters.js` reads what is written
//! here.

use std::io;

use analyzer::{CallRow, Counted, CounterReport, CountersAsked, CycleCount, FunctionReport, Metric, Work};
use serde::Serialize;

use super::calls::WithChildren;
use super::columns::ByteColumns;
use crate::inside::Inside;
use crate::render::View;

/// What is known of a function's calls.
#[derive(Serialize)]
pub(super) struct Counters {
    /// The recording has CYC packets.
    cycles: bool,
    /// Kernel code was traced, and is there.
    kernel: bool,
    /// CBR packets say the frequency.
    frequency: bool,
    /// User code runs in it: it is no function of the kernel.
    user: bool,
    /// With an IP filter only code inside of its ranges is counted.
    is_filtered: bool,
}

/// The table and the columns of a function; `None`: counters were not asked for.
pub(super) fn pack(
    view: &View<'_>,
    function: &FunctionReport,
    with_children: &WithChildren,
    inside: Option<&Inside>,
) -> io::Result<Option<(Counters, String)>> {
    let Some(report) = &function.figures.counters else { return Ok(None) };
    let is_known = |metric| CounterReport::get(report, metric).is_some();
    let counters = Counters {
        cycles: is_known(Metric::Cycles),
        kernel: is_known(Metric::KernelInstructions),
        frequency: is_known(Metric::Frequency),
        user: is_known(Metric::Instructions),
        is_filtered: view.report.loss.threads.iter().any(|thread| thread.outside_ns.is_some()),
    };
    let mut columns = ByteColumns::new();
    put_calls(&mut columns, &function.rows, &counters, report.asked)?;
    let of_user = |work: Option<Work>| work.filter(|_| counters.user);
    let children = with_children.children(function);
    put_work(&mut columns, children.map(|child| of_user(child.work)), counters.cycles)?;
    let nodes = inside.into_iter().flat_map(|inside| inside.trees.values()).flat_map(|tree| &tree.nodes);
    put_work(&mut columns, nodes.map(|node| of_user(node.work)), counters.cycles)?;
    Ok(Some((counters, columns.finish()?)))
}

/// Columns of calls: instructions, conditional and indirect branches, calls; then instructions of the kernel
/// (one more than there are, and 0 where they are not known), cycles with their error, and the frequency (0:
/// not known), where some call has them.
fn put_calls(
    columns: &mut ByteColumns,
    rows: &[CallRow],
    counters: &Counters,
    asked: CountersAsked,
) -> io::Result<()> {
    let all = || rows.iter().map(|row| row.counted().filter(|counted| counted.is_known()));
    columns.put(all().map(|of| of.map_or(0, |of| of.executed.instructions.saturating_add(1))))?;
    let mut put = |value: fn(&Counted) -> u64| columns.put(all().flatten().map(value));
    put(|of| of.executed.conditional_branches)?;
    put(|of| of.executed.indirect_branches)?;
    put(|of| of.executed.calls)?;
    if counters.kernel {
        put(|of| match of.is_kernel_known() {
            true => of.executed.kernel_instructions.saturating_add(1),
            false => 0,
        })?;
    }
    if counters.cycles {
        let cycles = |of: &Counted| of.cycles.unwrap_or_default();
        columns.put(all().flatten().map(|of| cycles(of).count))?;
        columns.put(all().flatten().map(|of| cycles(of).error))?;
    }
    if counters.frequency {
        let mhz = |of| asked.mhz(of).map_or(0, |mhz| mhz.round() as u64);
        columns.put(all().flatten().map(mhz))?;
    }
    Ok(())
}

/// Columns of instructions, and of cycles with their error, where they are known.
fn put_work(
    columns: &mut ByteColumns,
    all: impl Iterator<Item = Option<Work>> + Clone,
    has_cycles: bool,
) -> io::Result<()> {
    columns.put(all.clone().map(|work| work.map_or(0, |work| work.instructions.saturating_add(1))))?;
    if has_cycles {
        let cycles = || all.clone().flatten().map(|work: Work| work.cycles.unwrap_or_default());
        columns.put(cycles().map(|CycleCount { count, .. }| count))?;
        columns.put(cycles().map(|CycleCount { error, .. }| error))?;
    }
    Ok(())
}
