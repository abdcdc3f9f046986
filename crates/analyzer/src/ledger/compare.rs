//! The rows of a ledger: what makes the difference of two means.
//!
//! Sums are whole nanoseconds, means are not. The difference of the means is rounded, and so is each row's
//! part of it: down first, then up in the rows that were rounded down most, until the sum is right. So the
//! printed rows add up to the printed difference, and none is a nanosecond from the truth.

use std::cmp::Reverse;
use std::hash::Hash;

use super::split::Ran;
use super::totals::{Bounded, Totals};
use super::variance::item;
use super::{Ledger, Side, Spent, Split};
use crate::place::ChildKind;
use crate::work::Work;

/// A difference of means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The difference, rounded.
    pub ns: i64,
    /// The most by which it may differ from that of the true means, beside its rounding: the errors of both
    /// sums, each divided by the number of its calls, added up.
    pub error_ns: u64,
}

/// Part of the difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// A direct callee, by its path, or the function itself (0): then it is the function's own code or, in
    /// it and in all that it called, time that is no code.
    pub path: usize,
    /// What the time was spent on; of a callee it is [`Spent::Running`].
    pub spent: Spent,
    /// Sum over the calls of each group: these, base.
    pub sums_ns: (u64, u64),
    /// The most by which each sum may differ from the true one: the errors of all occurrences, added up, and
    /// of running time those of the stays in the kernel that are taken out of it; but not below nothing, or
    /// above what the calls took.
    pub errors_ns: (u64, u64),
    /// How often it was called, or interrupted: these, base.  `None` of time off the CPU.
    pub counts: Option<(u64, u64)>,
    /// What it has of the difference of the means.
    pub difference: Difference,
    /// Of that, because it was called more often (each time for as long as in the base). `None` without
    /// counts.
    pub more_often: Option<Difference>,
    /// The rest: because each took longer. `None` without counts.
    pub each_longer: Option<Difference>,
    /// What its running time became more by; `None`: of time that is no code's, or it is not known.
    pub split: Option<Split>,
    /// Its share of the variance of all latencies that were compared; `None` if all are the same.
    pub variance_share: Option<f64>,
}

/// The difference between two groups of calls, and its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Calls: these, base.
    pub calls: (u64, u64),
    /// Sums of their latencies.
    pub sums_ns: (u64, u64),
    /// The most by which each may differ from the true one.
    pub errors_ns: (u64, u64),
    /// Mean of these minus mean of the base.
    pub difference: Difference,
    /// Its parts, the largest first; they add up to it.
    pub rows: Vec<Row>,
}

impl Comparison {
    /// The row that most of the difference comes from.
    #[must_use]
    pub fn leading(&self) -> Option<&Row> {
        if self.difference.ns < 0 { self.rows.last() } else { self.rows.first() }
    }
}

/// A number of calls and their time, in each group, and how many calls of the function these are of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) calls: (u64, u64),
    pub(super) counts: (u64, u64),
    pub(super) sums_ns: (u64, u64),
    pub(super) errors_ns: (u64, u64),
}

impl Pair {
    pub(super) fn of(calls: (u64, u64), counts: (u64, u64), these: Bounded, base: Bounded) -> Self {
        let sums_ns = (these.sum_ns, base.sum_ns);
        Self { calls, counts, sums_ns, errors_ns: (these.error_ns, base.error_ns) }
    }

    /// The difference of the means, as a fraction.
    fn fraction(&self) -> (i128, i128) {
        let (these, base) = (i128::from(self.calls.0), i128::from(self.calls.1));
        (i128::from(self.sums_ns.0) * base - i128::from(self.sums_ns.1) * these, these * base)
    }

    pub(super) fn difference(&self) -> Difference {
        let (above, below) = self.fraction();
        let ((of_these, of_base), (these, base)) = (self.errors_ns, self.calls);
        let error = i128::from(of_these) * i128::from(base) + i128::from(of_base) * i128::from(these);
        Difference { ns: rounded(above, below), error_ns: rounded_up(error, below) }
    }

    /// What of it comes from another number of calls, each as long as in the base.
    pub(super) fn more_often(&self) -> Difference {
        if self.counts.1 == 0 {
            return self.difference();
        }
        let (these, base) = (i128::from(self.calls.0), i128::from(self.calls.1));
        let more = i128::from(self.counts.0) * base - i128::from(self.counts.1) * these;
        let below = (these * base).saturating_mul(i128::from(self.counts.1));
        Difference {
            ns: rounded(i128::from(self.sums_ns.1).saturating_mul(more), below),
            error_ns: rounded_up(i128::from(self.errors_ns.1).saturating_mul(more.abs()), below),
        }
    }

    /// The rest of its `difference_ns`: the mean of these minus the mean of calls in the same number, each
    /// as long as in the base.
    pub(super) fn each_longer(&self, difference_ns: i64) -> Difference {
        let ns = difference_ns.saturating_sub(self.more_often().ns);
        if self.counts.1 == 0 {
            return Difference { ns, error_ns: 0 };
        }
        let of_these = i128::from(self.errors_ns.0).saturating_mul(i128::from(self.counts.1));
        let of_base = i128::from(self.errors_ns.1).saturating_mul(i128::from(self.counts.0));
        let below = i128::from(self.calls.0) * i128::from(self.counts.1);
        Difference { ns, error_ns: rounded_up(of_these.saturating_add(of_base), below) }
    }

    /// Splits `difference_ns` by the instructions and cycles of these and of the base.
    pub(super) fn split(&self, difference_ns: i64, work: Option<(Work, Work)>) -> Option<Split> {
        let (these, base) = work?;
        let ran = |calls, sum_ns, error_ns, work| Ran { calls, sum_ns, error_ns, work };
        Split::of(
            difference_ns,
            ran(self.calls.0, self.sums_ns.0, self.errors_ns.0, these),
            ran(self.calls.1, self.sums_ns.1, self.errors_ns.1, base),
        )
    }
}

/// A fraction to the nearest integer; 0 if there is none.
fn rounded(above: i128, below: i128) -> i64 {
    if below <= 0 {
        return 0;
    }
    let nearest = above.saturating_mul(2).saturating_add(below).div_euclid(below.saturating_mul(2));
    i64::try_from(nearest).unwrap_or(if nearest < 0 { i64::MIN } else { i64::MAX })
}

/// A fraction, none below 0, to the next integer; 0 if there is none.
fn rounded_up(above: i128, below: i128) -> u64 {
    if below <= 0 {
        return 0;
    }
    let whole = above.div_euclid(below).saturating_add(i128::from(above.rem_euclid(below) != 0));
    u64::try_from(whole).unwrap_or(u64::MAX)
}

impl<K: Copy + Eq + Hash> Ledger<K> {
    /// What makes the difference.  `None` if one of the groups is empty.
    #[must_use]
    pub fn compare(&self) -> Option<Comparison> {
        let calls = (self.calls(Side::These), self.calls(Side::Base));
        if calls.0 == 0 || calls.1 == 0 {
            return None;
        }
        let (these, base) = (self.totals(Side::These), self.totals(Side::Base));
        let mut pairs: Vec<(usize, Spent, Pair)> = Vec::new();
        for (at, path) in self.paths().iter().enumerate() {
            let running = |totals: &Totals| match path.caller {
                None => Some(totals.own()),
                Some(0) => Some(totals.get(at, Spent::Running)),
                Some(_) => None,
            };
            let (Some(these), Some(base)) = (running(&these), running(&base)) else { continue };
            let counts = (path.sums(Side::These).count, path.sums(Side::Base).count);
            pairs.push((at, Spent::Running, Pair::of(calls, counts, these, base)));
        }
        for spent in Spent::ALL.into_iter().filter(|spent| *spent != Spent::Running) {
            let counts = (self.stays(spent, Side::These), self.stays(spent, Side::Base));
            pairs.push((0, spent, Pair::of(calls, counts, these.get(0, spent), base.get(0, spent))));
        }
        pairs.retain(|(.., pair)| pair.sums_ns != (0, 0));
        let whole = Pair::of(calls, calls, these.whole, base.whole);
        let difference = whole.difference();
        let shares = apportion(difference.ns, &pairs);
        let mut rows: Vec<Row> = pairs
            .iter()
            .zip(shares)
            .map(|((path, spent, pair), ns)| {
                let work = |totals: &Totals| match (*path, *spent) {
                    (0, Spent::Running) => totals.own_work(),
                    (path, Spent::Running) => totals.work(path),
                    _ => None,
                };
                let split = pair.split(ns, work(&these).zip(work(&base)));
                self.row((*path, *spent), pair, ns, split)
            })
            .collect();
        rows.sort_by_key(|row| Reverse(row.difference.ns));
        Some(Comparison { calls, sums_ns: whole.sums_ns, errors_ns: whole.errors_ns, difference, rows })
    }

    fn row(&self, (path, spent): (usize, Spent), pair: &Pair, ns: i64, split: Option<Split>) -> Row {
        let is_counted = matches!(spent, Spent::Running | Spent::Kernel | Spent::Interrupts);
        Row {
            path,
            spent,
            sums_ns: pair.sums_ns,
            errors_ns: pair.errors_ns,
            counts: is_counted.then_some(pair.counts),
            difference: Difference { ns, ..pair.difference() },
            more_often: is_counted.then(|| pair.more_often()),
            each_longer: is_counted.then(|| pair.each_longer(ns)),
            split,
            variance_share: self.variance.share(item(path, spent)),
        }
    }

    /// Stays in the kernel of one kind.
    fn stays(&self, spent: Spent, side: Side) -> u64 {
        let kind = match spent {
            Spent::Kernel => ChildKind::Syscall,
            Spent::Interrupts => ChildKind::Interrupt,
            _ => return 0,
        };
        self.paths().iter().filter(|path| path.kind == kind).map(|path| path.sums(side).count).sum()
    }
}

/// Shares of a rounded difference, which they add up to.
fn apportion(difference_ns: i64, pairs: &[(usize, Spent, Pair)]) -> Vec<i64> {
    let parts: Vec<(i128, i128)> = pairs
        .iter()
        .map(|(.., pair)| {
            let (above, below) = pair.fraction();
            (above.div_euclid(below.max(1)), above.rem_euclid(below.max(1)))
        })
        .collect();
    let down: i128 = parts.iter().map(|(whole, _)| whole).sum();
    let up = usize::try_from(i128::from(difference_ns) - down).unwrap_or(0);
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|at| Reverse(parts.get(*at).map_or(0, |(_, rest)| *rest)));
    let mut shares: Vec<i64> =
        parts.iter().map(|(whole, _)| i64::try_from(*whole).unwrap_or(i64::MAX)).collect();
    for at in order.into_iter().take(up) {
        if let Some(share) = shares.get_mut(at) {
            *share = share.saturating_add(1);
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 3 times 16.7 ns against 1 time 20 ns: 2 more of 20 ns each, and each 3.3 ns shorter.
    #[test]
    fn the_parts_of_a_difference_are_off_by_their_share_of_the_errors() {
        let bounded = |sum_ns, error_ns| Bounded { sum_ns, error_ns };
        let pair = Pair::of((2, 4), (6, 4), bounded(100, 9), bounded(80, 10));
        assert_eq!(pair.difference(), Difference { ns: 30, error_ns: 7 });
        assert_eq!(pair.more_often(), Difference { ns: 40, error_ns: 5 });
        assert_eq!(pair.each_longer(30), Difference { ns: -10, error_ns: 12 });
        let new = Pair::of((2, 4), (6, 0), bounded(100, 9), bounded(0, 0));
        assert_eq!(new.more_often(), Difference { ns: 50, error_ns: 5 });
        assert_eq!(new.each_longer(50), Difference { ns: 0, error_ns: 0 });
    }
}
