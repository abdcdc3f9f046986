//! What each single call waited for, off the CPU.

use std::collections::{BTreeMap, BTreeSet};

use model::OffCpuSplit;

use crate::by_row::ByRow;
use crate::call_row::{CallId, CallRow};
use crate::off_cpu_causes::Reason;

/// One of the things that a call waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowReason {
    /// Which: index in [`RowReasons::reasons`].
    pub reason: u32,
    /// How long, and what it did meanwhile.
    pub split: OffCpuSplit,
}

/// What each of a function's rows waited for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowReasons {
    /// All that occur, in their order.
    pub reasons: Vec<Reason>,
    by_row: ByRow<RowReason>,
}

impl RowReasons {
    /// The reasons of `rows`, out of those of their calls.
    #[must_use]
    pub fn of_rows(rows: &[CallRow], of_calls: &BTreeMap<CallId, Vec<(Reason, OffCpuSplit)>>) -> Self {
        let all: BTreeSet<&Reason> = of_calls.values().flatten().map(|(reason, _)| reason).collect();
        let reasons: Vec<Reason> = all.into_iter().cloned().collect();
        let mut by_row = ByRow::default();
        for row in rows {
            let known = of_calls.get(&row.id).map(Vec::as_slice).unwrap_or_default();
            let numbered = known.iter().filter_map(|(reason, split)| {
                // There are fewer reasons than system calls and functions of the kernel.
                let reason = u32::try_from(reasons.binary_search(reason).ok()?).ok()?;
                Some(RowReason { reason, split: *split })
            });
            by_row.push(&numbered.collect::<Vec<_>>());
        }
        Self { reasons, by_row }
    }

    /// The reasons of the row with this index in [`crate::FunctionReport::rows`]; none if they were not
    /// looked for.
    #[must_use]
    pub fn of(&self, row: usize) -> &[RowReason] {
        self.by_row.of(row)
    }

    /// What the call in that row waited for longest.
    #[must_use]
    pub fn longest_of(&self, row: usize) -> Option<&Reason> {
        // The first of equals, by their order.
        let longest = self.of(row).iter().rev().max_by_key(|reason| reason.split.total_ns())?;
        self.reasons.get(longest.reason as usize)
    }

    /// What the call in that row did off the CPU, as far as is known.
    #[must_use]
    pub fn split_of(&self, row: usize) -> OffCpuSplit {
        let mut sum = OffCpuSplit::default();
        self.of(row).iter().for_each(|reason| sum.add(reason.split));
        sum
    }
}
