//! What the time inside each single call went to: the children of each row.

use rustc_hash::FxHashMap;

use crate::by_row::ByRow;
use crate::children::{ChildKey, merge_same};
use crate::counted::{Counted, CycleCount};

use crate::total::{OffCpuKnown, RunningTotal, Total};
use crate::work::Work;

/// What one child took in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowChild {
    /// Which child: index in [`RowChildren::keys`].
    pub key: u32,
    /// How often, and how long.
    pub total: Total,
    /// The most by which that time may differ from the true one.
    pub error_ns: u64,
    /// What it executed; `None`: counters were not asked for, or the call was not seen from entry to end.
    pub work: Option<Work>,
}

/// The children of each of a function's rows.  What of a row's latency they leave is its own (`*self`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowChildren {
    /// All children that occur.
    pub keys: Vec<ChildKey>,
    /// In a row, the longest first.
    by_row: ByRow<RowChild>,
}

impl RowChildren {
    /// Those of the row with this index in [`crate::FunctionReport::rows`]; none if children of rows were not
    /// asked for.
    #[must_use]
    pub fn of(&self, row: usize) -> &[RowChild] {
        self.by_row.of(row)
    }

    /// Adds those of the next row, which have a key each.
    pub fn push(&mut self, children: &[RowChild]) {
        self.by_row.push(children);
    }
}

/// What the children of one call executed.
pub(crate) struct CountedByKey {
    sums: FxHashMap<ChildKey, Work>,
    /// That of a child that is no user code.
    nothing: Work,
}

impl CountedByKey {
    /// Of the children of a call that executed `call`; some may be the same child.
    pub(crate) fn new(call: &Counted, children: impl Iterator<Item = (ChildKey, Counted)>) -> Self {
        let nothing = Work { cycles: call.cycles.map(|_| CycleCount::default()), ..Work::NONE };
        let mut sums: FxHashMap<ChildKey, Work> = FxHashMap::default();
        children.for_each(|(key, counted)| sums.entry(key).or_insert(nothing).add(counted.into()));
        Self { sums, nothing }
    }

    fn of(&self, key: &ChildKey) -> Work {
        self.sums.get(key).copied().unwrap_or(self.nothing)
    }
}

/// Children as rows come, which is not the order of the report.
#[derive(Clone, Default)]
pub(crate) struct Gathered {
    all: RowChildren,
    numbers: FxHashMap<ChildKey, u32>,
}

impl Gathered {
    /// The next row's; some may be the same child. `counted`: what of them executed something, if that is
    /// known.
    pub(crate) fn add(
        &mut self,
        mut children: Vec<(ChildKey, RunningTotal)>,
        counted: Option<&CountedByKey>,
        off_cpu: OffCpuKnown,
    ) {
        children.sort_unstable_by_key(|(key, _)| *key);
        merge_same(&mut children);
        children.sort_unstable_by_key(|(key, total)| (std::cmp::Reverse(total.sum_ns), *key));
        let child = |(key, total): (_, RunningTotal)| RowChild {
            key: self.number(key),
            total: total.known(off_cpu),
            error_ns: total.error_ns,
            work: counted.map(|counted| counted.of(&key)),
        };
        let numbered: Vec<RowChild> = children.into_iter().map(child).collect();
        self.all.push(&numbered);
    }

    fn number(&mut self, key: ChildKey) -> u32 {
        let keys = &mut self.all.keys;
        *self.numbers.entry(key).or_insert_with(|| {
            keys.push(key);
            // There are fewer call sites than bytes of code.
            u32::try_from(keys.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// In this order of rows.
    pub(crate) fn in_order(self, order: impl Iterator<Item = usize>) -> RowChildren {
        let all = self.all;
        if all.by_row.is_empty() {
            return all;
        }
        let mut sorted = RowChildren { keys: all.keys.clone(), ..RowChildren::default() };
        order.for_each(|row| sorted.push(all.of(row)));
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::ChildKind;
    use model::{Executed, FunctionId};

    #[test]
    fn children_follow_their_rows() {
        let key = |function| ChildKey { kind: ChildKind::Call, function: FunctionId(function), site: None };
        let total = |sum_ns| RunningTotal { count: 1, sum_ns, off_cpu_ns: 0, error_ns: sum_ns / 2 };
        let row = |children: &[(u32, u64)]| {
            children.iter().map(|(function, ns)| (key(*function), total(*ns))).collect::<Vec<_>>()
        };
        let mut gathered = Gathered::default();
        for children in [&[(7, 6), (8, 30), (7, 4)][..], &[], &[(7, 5)]] {
            gathered.add(row(children), None, OffCpuKnown(true));
        }
        let sorted = gathered.in_order([2, 0, 1].into_iter());
        let text = |row| {
            let child = |c: &RowChild| (sorted.keys[c.key as usize].function.0, c.total.sum_ns, c.error_ns);
            sorted.of(row).iter().map(child).collect::<Vec<_>>()
        };
        assert_eq!([0, 1, 2, 3].map(text), [vec![(7, 5, 2)], vec![(8, 30, 15), (7, 10, 5)], vec![], vec![]]);
    }

    #[test]
    fn children_of_one_key_have_one_sum_of_work() {
        let key = |function| ChildKey { kind: ChildKind::Call, function: FunctionId(function), site: None };
        let counted = |instructions, count| Counted {
            executed: Executed { instructions, ..Executed::default() },
            cycles: Some(CycleCount { count, error: 1 }),
            bus: None,
        };
        let children = [(key(7), counted(100, 50)), (key(7), counted(20, 10))];
        let by_key = CountedByKey::new(&counted(500, 300), children.into_iter());
        let work = |instructions, count, error| {
            let cycles = Some(CycleCount { count, error });
            Work { instructions, cycles }
        };
        assert_eq!((by_key.of(&key(7)), by_key.of(&key(8))), (work(120, 60, 2), work(0, 0, 0)));
        let without = CountedByKey::new(&Counted { cycles: None, ..counted(9, 0) }, std::iter::empty());
        assert_eq!(without.of(&key(7)).cycles, None, "no CYC packets: not known, and not 0");
    }
}
