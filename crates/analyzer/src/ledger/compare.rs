//! The rows of a ledger: what makes the difference of two means.
//!
//! Sums are whole nanoseconds, means are not. The difference of the means is rounded, and so is what each row
//! has of it: down first, then up in those rows that were rounded down most, as many as it takes. So the rows
//! that are printed add up to the difference that is printed, and none is a nanosecond from the truth.

use std::cmp::Reverse;
use std::hash::Hash;

use super::variance::item;
use super::{Ledger, Parts, Side, Spent};
use crate::report::ChildKind;

/// Part of the difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// A direct callee, by its path, or the function itself (0): then it is what that runs itself or, in it
    /// and in all that it called, what is no code.
    pub path: usize,
    /// What the time was spent on; of a callee it is [`Spent::Running`].
    pub spent: Spent,
    /// Sum over the calls of each group: these, base.
    pub sums_ns: (u64, u64),
    /// How often it was called, or interrupted: these, base.  `None` of time off the CPU.
    pub counts: Option<(u64, u64)>,
    /// What it has of the difference of the means.
    pub difference_ns: i64,
    /// Of that, because it was called more often (each time for as long as in the base); the rest is because
    /// each took longer. `None` without counts.
    pub more_often_ns: Option<i64>,
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
    /// Mean of these minus mean of the base, rounded.
    pub difference_ns: i64,
    /// Its parts, the largest first; they add up to it.
    pub rows: Vec<Row>,
}

impl Comparison {
    /// The row that most of the difference comes from.
    #[must_use]
    pub fn leading(&self) -> Option<&Row> {
        if self.difference_ns < 0 { self.rows.last() } else { self.rows.first() }
    }
}

/// A number of calls and their time, in each group, and how many calls of the function these are of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) calls: (u64, u64),
    pub(super) counts: (u64, u64),
    pub(super) sums_ns: (u64, u64),
}

impl Pair {
    /// The difference of the means, as a fraction.
    fn difference(&self) -> (i128, i128) {
        let (these, base) = (i128::from(self.calls.0), i128::from(self.calls.1));
        (i128::from(self.sums_ns.0) * base - i128::from(self.sums_ns.1) * these, these * base)
    }

    pub(super) fn difference_ns(&self) -> i64 {
        let (above, below) = self.difference();
        rounded(above, below)
    }

    /// What of it comes from another number of calls, each as long as in the base.
    pub(super) fn more_often_ns(&self) -> i64 {
        if self.counts.1 == 0 {
            return self.difference_ns();
        }
        let (these, base) = (i128::from(self.calls.0), i128::from(self.calls.1));
        let more = i128::from(self.counts.0) * base - i128::from(self.counts.1) * these;
        let above = i128::from(self.sums_ns.1).saturating_mul(more);
        rounded(above, (these * base).saturating_mul(i128::from(self.counts.1)))
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

impl<K: Copy + Eq + Hash> Ledger<K> {
    /// What makes the difference.  `None` if one of the groups is empty.
    #[must_use]
    pub fn compare(&self) -> Option<Comparison> {
        let calls = (self.calls(Side::These), self.calls(Side::Base));
        if calls.0 == 0 || calls.1 == 0 {
            return None;
        }
        let totals = (self.totals(Side::These), self.totals(Side::Base));
        let total = |path: usize| {
            let of = |totals: &[Parts]| totals.get(path).copied().unwrap_or_default();
            (of(&totals.0), of(&totals.1))
        };
        let mut pairs: Vec<(usize, Spent, Pair)> = Vec::new();
        for (at, path) in self.paths().iter().enumerate() {
            let counts = (path.sums(Side::These).count, path.sums(Side::Base).count);
            let sums = match path.caller {
                None => (path.sums(Side::These).own, path.sums(Side::Base).own),
                Some(0) => total(at),
                Some(_) => continue,
            };
            let sums_ns = (sums.0.get(Spent::Running), sums.1.get(Spent::Running));
            pairs.push((at, Spent::Running, Pair { calls, counts, sums_ns }));
        }
        for spent in Spent::ALL.into_iter().filter(|spent| *spent != Spent::Running) {
            let (these, base) = total(0);
            let counts = (self.stays(spent, Side::These), self.stays(spent, Side::Base));
            pairs.push((0, spent, Pair { calls, counts, sums_ns: (these.get(spent), base.get(spent)) }));
        }
        pairs.retain(|(.., pair)| pair.sums_ns != (0, 0));
        let (these, base) = total(0);
        let sums_ns = (these.total(), base.total());
        let difference_ns = Pair { calls, counts: calls, sums_ns }.difference_ns();
        let shares = apportion(difference_ns, &pairs);
        let mut rows: Vec<Row> = pairs
            .iter()
            .zip(shares)
            .map(|((path, spent, pair), ns)| self.row(*path, *spent, pair, ns))
            .collect();
        rows.sort_by_key(|row| Reverse(row.difference_ns));
        Some(Comparison { calls, sums_ns, difference_ns, rows })
    }

    fn row(&self, path: usize, spent: Spent, pair: &Pair, difference_ns: i64) -> Row {
        let is_counted = matches!(spent, Spent::Running | Spent::Kernel | Spent::Interrupts);
        Row {
            path,
            spent,
            sums_ns: pair.sums_ns,
            counts: is_counted.then_some(pair.counts),
            difference_ns,
            more_often_ns: is_counted.then(|| pair.more_often_ns()),
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
            let (above, below) = pair.difference();
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
