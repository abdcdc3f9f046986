//! Where the rows of calls go as calls end, with the children and waits of each call.

use std::cmp::Reverse;

use model::{Cpu, FunctionId, Gap, Tid};

use crate::call_row::CallRow;
use crate::children::{ChildKey, merge_same};
use crate::off_cpu_causes::{Reason, RowWait};
use crate::place::ChildKind;
use crate::total::{OffCpuKnown, RunningTotal, Total, error_of_part};

/// Takes rows as calls end, which is not the order of their starts.
pub trait RowSink {
    /// A call of the wanted function with this number ([`crate::Request::functions`]) that was asked for, and
    /// what it waited for longest off the CPU; `None`: it was not off the CPU, or the recording does not tell
    /// why.
    fn row(&mut self, function: usize, row: &CallRow, waited_for: Option<&Reason>);

    /// It needs all rows, as calls end. If not, it needs those of the slowest calls of each function
    /// ([`crate::SlowestCalls::MOST`]), and may get more, in any order.
    fn takes_all(&self) -> bool {
        true
    }

    /// Asks for the parts of each call.
    fn wants_parts(&self) -> bool {
        false
    }

    /// Takes the parts of the call of the last row.
    fn parts(&mut self, _row: &CallRow, _parts: &RowParts) {}

    /// Takes a gap of the trace: those of a thread in their order.
    fn gap(&mut self, _gap: &RowGap) {}
}

/// What one call did: children and `*self` add up to its latency, waits to its off-CPU time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowParts {
    /// Its children, the longest first, and `*self` after them; empty: they were not looked for.
    pub children: Vec<PartOfRow>,
    /// Its waits, in their order; none where the recording has no context switches.
    pub waits: Vec<RowWait>,
}

/// What one child took of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOfRow {
    /// Which child.
    pub key: ChildKey,
    /// How often, and how long.
    pub total: Total,
    /// The true time is at most so far from `total.sum_ns`.
    pub error_ns: u64,
}

/// A gap, and the thread that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowGap {
    /// The thread; `None`: of no thread that is known.
    pub tid: Option<Tid>,
    /// The CPU that the thread was on when the gap began, if that is known.
    pub cpu: Option<Cpu>,
    /// The gap.
    pub gap: Gap,
    /// Its time that no earlier gap of the thread covers.
    pub lost_ns: u64,
}

/// The children of a call by their names, and `*self`.
pub(crate) fn parts_of_row(
    mut children: Vec<(ChildKey, RunningTotal)>,
    row: &CallRow,
    off_cpu: OffCpuKnown,
) -> Vec<PartOfRow> {
    children.sort_unstable_by_key(|(key, _)| *key);
    merge_same(&mut children);
    children.sort_unstable_by_key(|(key, total)| (Reverse(total.sum_ns), *key));
    let mut inside = RunningTotal::default();
    children.iter().for_each(|(_, total)| inside.add(*total));
    let longest_ns = row.latency_ns.saturating_add(row.error_ns);
    let part = |key, total: Total, error_ns| PartOfRow {
        key,
        total,
        error_ns: error_of_part(error_ns, total.sum_ns, longest_ns),
    };
    let own = ChildKey { kind: ChildKind::Own, function: FunctionId::UNKNOWN, site: None };
    let all = Total { count: 1, sum_ns: row.latency_ns, off_cpu_ns: row.off_cpu_ns };
    let own_error_ns = row.error_ns.saturating_add(inside.error_ns);
    let own = part(own, all.without(&inside.known(off_cpu)), own_error_ns);
    let children = children.iter().map(|(key, total)| part(*key, total.known(off_cpu), total.error_ns));
    children.chain([own]).collect()
}
