//! What took time inside a call: sums by child, where a child is a kind, a function and a site.

use std::hash::{Hash, Hasher};

use model::{Avma, FunctionId, SpaceId};
use rustc_hash::FxHashMap;

use crate::report::{ChildKind, ChildRow, Place, Total};

impl Total {
    /// Adds others to these.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.off_cpu_ns = self.off_cpu_ns.saturating_add(other.off_cpu_ns);
    }

    /// Time on the CPU.
    #[must_use]
    pub const fn on_cpu_ns(&self) -> u64 {
        self.sum_ns.saturating_sub(self.off_cpu_ns)
    }
}

/// Which child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildKey {
    /// What it is.
    pub kind: ChildKind,
    /// The function; `UNKNOWN` for system calls and interrupts.
    pub function: FunctionId,
    /// The instruction that entered it.
    pub site: Option<Place>,
}

/// A child as the call knows it that is running: there is no need to name the place of the site before that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) kind: ChildKind,
    pub(crate) function: FunctionId,
    pub(crate) space: SpaceId,
    /// 0: none.
    pub(crate) site: Avma,
}

/// In two words, for this is done as each child ends.
impl Hash for Child {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.space.0) << 32 | u64::from(self.function.0));
        state.write_u64(self.site.0 << 8 | self.kind as u64);
    }
}

/// Sums by child, of one call or of many.
#[derive(Clone, Debug)]
pub(crate) struct Sums<K>(FxHashMap<K, Total>);

/// What the children took of a call that is running.
pub(crate) type RunningSums = Sums<Child>;

/// What they took of calls that have ended.
pub(crate) type ChildSums = Sums<ChildKey>;

impl<K> Default for Sums<K> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<K: Copy + Eq + Hash> Sums<K> {
    #[inline(always)]
    pub(crate) fn add(&mut self, key: K, total: Total) {
        match self.0.get_mut(&key) {
            Some(sum) => sum.add(total),
            None => _ = self.0.insert(key, total),
        }
    }

    /// In no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, Total)> + '_ {
        self.0.iter().map(|(key, total)| (*key, *total))
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl ChildSums {
    /// Returns the sum of `others`.
    pub(crate) fn merge(&mut self, others: impl Iterator<Item = (ChildKey, Total)>) -> Total {
        let mut sum = Total::default();
        for (key, total) in others {
            self.add(key, total);
            sum.add(total);
        }
        sum
    }

    /// The rows of calls that took `total`, with `*self` as the rest: longest first, then by kind, function, site.
    pub(crate) fn rows(&self, total: Total, percent: impl Fn(u64) -> f64) -> Vec<ChildRow> {
        if total.count == 0 {
            return Vec::new();
        }
        let mut inside = Total::default();
        self.0.values().for_each(|t| inside.add(*t));
        let own = Total {
            count: total.count,
            sum_ns: total.sum_ns.saturating_sub(inside.sum_ns),
            off_cpu_ns: total.off_cpu_ns.saturating_sub(inside.off_cpu_ns),
        };
        let own_key = ChildKey { kind: ChildKind::Own, function: FunctionId::UNKNOWN, site: None };
        let mut rows: Vec<(ChildKey, Total)> = self.0.iter().map(|(k, t)| (*k, *t)).collect();
        rows.push((own_key, own));
        rows.sort_unstable_by(|a, b| b.1.sum_ns.cmp(&a.1.sum_ns).then_with(|| a.0.cmp(&b.0)));
        let row = |(key, total): (ChildKey, Total)| ChildRow {
            kind: key.kind,
            function: key.function,
            site: key.site,
            total,
            cpu_percent: percent(total.on_cpu_ns()),
        };
        rows.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_self_add_up_to_the_total() {
        let mut sums = ChildSums::default();
        let key = |kind, function| ChildKey { kind, function: FunctionId(function), site: None };
        let time = |count, sum_ns, off_cpu_ns| Total { count, sum_ns, off_cpu_ns };
        sums.add(key(ChildKind::Call, 5), time(1, 30, 10));
        sums.add(key(ChildKind::Syscall, 0), time(1, 40, 40));
        sums.add(key(ChildKind::Call, 5), time(1, 10, 0));
        let rows = sums.rows(time(3, 100, 55), |ns| ns as f64);
        let text: Vec<_> =
            rows.iter().map(|r| (r.kind.name(), r.total.count, r.total.sum_ns, r.total.off_cpu_ns)).collect();
        assert_eq!(text, [("call", 2, 40, 10), ("syscall", 1, 40, 40), ("self", 3, 20, 5)]);
        assert!(sums.rows(Total::default(), |_| 0.0).is_empty());
    }
}
