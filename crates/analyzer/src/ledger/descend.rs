//! Down the path that most of a difference comes from, to where it arises.

use std::hash::Hash;

use super::compare::Pair;
use super::totals::{Bounded, Totals};
use super::{Difference, Ledger, Row, Side, Spent, Split};

/// A callee on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Its path.
    pub path: usize,
    /// How often it was called by the calls of each group: these, base.
    pub counts: (u64, u64),
    /// Time that it spent in the way that is looked at, with all that it called: these, base.
    pub sums_ns: (u64, u64),
    /// The most by which each sum may differ from the true one, as in [`Row::errors_ns`].
    pub errors_ns: (u64, u64),
    /// What it has of the difference of the means.
    pub difference: Difference,
    /// Of that, because it was called more often.
    pub more_often: Difference,
    /// The rest: because each call took longer.
    pub each_longer: Difference,
    /// What the running time that is looked at became more by, if that is known.
    pub split: Option<Split>,
}

/// Why the way ends where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The last one was called more often (or at all).
    MoreOften,
    /// The last one takes longer itself.
    Own,
    /// It calls several that take longer, none of which has half of the difference.
    Several,
}

/// From the function to where the difference arises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descent {
    /// The function, a callee of it, a callee of that, and so on.
    pub levels: Vec<Level>,
    /// Why no further.
    pub end: End,
}

impl<K: Copy + Eq + Hash> Ledger<K> {
    /// Where the difference that a row of [`Self::compare`] states arises.
    #[must_use]
    pub fn descend(&self, row: &Row) -> Descent {
        let sign = row.difference.ns.signum();
        let calls = (self.calls(Side::These), self.calls(Side::Base));
        let totals = (self.totals(Side::These), self.totals(Side::Base));
        let level = |path: usize| {
            let sums = |side| self.paths().get(path).map(|path| path.sums(side)).unwrap_or_default();
            let counts = (sums(Side::These).count, sums(Side::Base).count);
            let of = |totals: &Totals| totals.get(path, row.spent);
            let pair = Pair::of(calls, counts, of(&totals.0), of(&totals.1));
            let difference = pair.difference();
            let work = |path| match row.spent {
                Spent::Running => totals.0.work(path).zip(totals.1.work(path)),
                _ => None,
            };
            Level {
                path,
                counts,
                sums_ns: pair.sums_ns,
                errors_ns: pair.errors_ns,
                difference,
                more_often: pair.more_often(),
                each_longer: pair.each_longer(difference.ns),
                split: pair.split(difference.ns, work(path)),
            }
        };
        let mut last = level(0);
        let mut levels = vec![last];
        if row.path == 0 && row.spent == Spent::Running {
            return Descent { levels, end: End::Own };
        }
        if row.path != 0 {
            last = level(row.path);
            levels.push(last);
        }
        loop {
            let is_most = |ns: i64| sign * ns.saturating_mul(2) >= sign * last.difference.ns;
            if last.path != 0 && is_most(last.more_often.ns) {
                return Descent { levels, end: End::MoreOften };
            }
            let below = self.paths().iter().enumerate().skip(last.path + 1);
            let callees = below.filter(|(_, path)| path.caller == Some(last.path)).map(|(at, _)| level(at));
            // The first of equals.
            let heaviest = callees.fold(None, |best: Option<Level>, callee| match best {
                Some(best) if sign * best.difference.ns >= sign * callee.difference.ns => Some(best),
                _ => Some(callee),
            });
            match heaviest {
                Some(callee) if is_most(callee.difference.ns) => {
                    last = callee;
                    levels.push(last);
                }
                None => return Descent { levels, end: End::Own },
                Some(_) => {
                    let is_own = is_most(self.own_difference_ns(last.path, row.spent, calls));
                    return Descent { levels, end: if is_own { End::Own } else { End::Several } };
                }
            }
        }
    }

    fn own_difference_ns(&self, path: usize, spent: Spent, calls: (u64, u64)) -> i64 {
        let own = |side| {
            let sum_ns = self.paths().get(path).map_or(0, |path| path.sums(side).own.get(spent));
            Bounded { sum_ns, error_ns: 0 }
        };
        let (these, base) = (own(Side::These), own(Side::Base));
        Pair::of(calls, calls, these, base).difference().ns
    }
}
