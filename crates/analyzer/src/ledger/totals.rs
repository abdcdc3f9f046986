//! What the calls of one group spent on each path, all that it called included, and how far off that may be.

use std::hash::Hash;

use super::{Ledger, Parts, Side, Spent, Sums};
use crate::total::error_of_part;
use crate::work::{Work, add_known};

/// A sum of times, and the most by which it may differ from the true one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounded {
    pub(super) sum_ns: u64,
    pub(super) error_ns: u64,
}

/// Times of a group by path.
pub(super) struct Totals {
    parts: Vec<Parts>,
    /// The most by which each part may differ from the true one.
    errors: Vec<Parts>,
    /// What was executed; `None`: not known.
    work: Vec<Option<Work>>,
    own_work: Option<Work>,
    /// All time of the calls.
    pub(super) whole: Bounded,
    /// What of it the function itself ran.
    own: Bounded,
}

impl Totals {
    /// Time that was spent so on a path; no more than the calls took, and no less than nothing.
    pub(super) fn get(&self, path: usize, spent: Spent) -> Bounded {
        let of = |parts: &[Parts]| parts.get(path).map_or(0, |parts| parts.get(spent));
        self.bounded(of(&self.parts), of(&self.errors))
    }

    /// What was executed on a path, with all that was called there, if that is known.
    pub(super) fn work(&self, path: usize) -> Option<Work> {
        self.work.get(path).copied().flatten()
    }

    /// What the function itself executed, if that is known.
    pub(super) fn own_work(&self) -> Option<Work> {
        self.own_work
    }

    /// What the function itself ran.
    pub(super) fn own(&self) -> Bounded {
        self.bounded(self.own.sum_ns, self.own.error_ns)
    }

    fn bounded(&self, sum_ns: u64, error_ns: u64) -> Bounded {
        let longest_ns = self.whole.sum_ns.saturating_add(self.whole.error_ns);
        Bounded { sum_ns, error_ns: error_of_part(error_ns, sum_ns, longest_ns) }
    }
}

impl<K: Copy + Eq + Hash> Ledger<K> {
    /// What the calls of a group spent.
    ///
    /// What a callee runs is its time without that off the CPU and without the stays in the kernel below it,
    /// so that the errors of these add up; what it calls beside is in it, and adds none. Time off the CPU is
    /// exact for a given start and end, so that it is off by no more than these are.
    pub(super) fn totals(&self, side: Side) -> Totals {
        let sums: Vec<Sums> = self.paths.iter().map(|path| path.sums(side)).collect();
        let mut parts: Vec<Parts> = sums.iter().map(|sums| sums.own).collect();
        let mut errors = vec![Parts::default(); self.paths.len()];
        let mut work: Vec<Option<Work>> = sums.iter().map(|sums| sums.work).collect();
        let own_work = work.first().copied().flatten();
        let mut own = Bounded::default();
        for (at, (path, sums)) in self.paths.iter().zip(&sums).enumerate().rev() {
            let (Some(part), Some(error)) = (parts.get(at).copied(), errors.get_mut(at)) else { continue };
            error.enclose(path.kind, sums.error_ns);
            let of_stays = error.of_stays();
            if let Some(caller) = path.caller
                && let (Some(parts), Some(errors)) = (parts.get_mut(caller), errors.get_mut(caller))
            {
                parts.add(part);
                errors.add(of_stays);
            }
            let of_path = work.get(at).copied().flatten();
            if let Some(of_caller) = path.caller.and_then(|caller| work.get_mut(caller)) {
                add_known(of_caller, of_path);
            }
            if path.caller.is_none_or(|caller| caller == 0) {
                own.error_ns = own.error_ns.saturating_add(sums.error_ns);
            }
        }
        own.sum_ns = sums.first().map_or(0, |root| root.own.get(Spent::Running));
        let whole = Bounded {
            sum_ns: parts.first().map_or(0, |root| root.total()),
            error_ns: sums.first().map_or(0, |root| root.error_ns),
        };
        Totals { parts, errors, work, own_work, whole, own }
    }
}
