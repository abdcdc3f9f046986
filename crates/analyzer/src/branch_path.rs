//! Every branch that a call took, and where two calls part.
//!
//! ```text
//!   slow      f: 10->40  52->44  52->44  58->90  ...        taken branches, from -> to
//!   typical   f: 10->40  52->44  58->90  ...
//!                                ^ here: both came to 44; the slow call jumps at 52,
//!                                  the typical one falls through there
//! ```
//! Branches that are not taken leave nothing in the stream, but between two taken ones code runs straight: of
//! two next ones that differ, the one at the lower address was not taken by the other call.
//!
//! Interrupts change nothing and are left out. A branch is known by its places, so that processes may differ.

mod own;
mod record;

use std::collections::BTreeMap;

use crate::place::Place;

pub use own::{OwnBranches, Times};
pub use record::{BranchRecorder, Kept};

/// Branches of one call that are kept.
pub const STEPS_MAX: usize = 1 << 17;

/// A change of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchStep {
    /// The instruction that left.
    pub from: Place,
    /// Where control went.
    pub to: To,
    /// It is a jump, within its function.
    pub is_jump: bool,
    /// It jumped back.
    pub is_loop: bool,
}

/// Where control went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// There.
    Place(Place),
    /// Into the kernel: a system call.
    Kernel,
    /// To a signal handler, by the kernel; the instruction did not run.
    Handler(Place),
    /// Out of the traced code.
    Outside,
}

/// The branches of a call, in order; the last one is its return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchPath {
    /// The function's first instruction.
    pub entry: Place,
    /// At most [`STEPS_MAX`].
    pub steps: Vec<BranchStep>,
    /// There were more.
    pub is_cut: bool,
}

/// What a call did at the branch where it parted from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It went there.
    To(To),
    /// It went straight on.
    On,
}

/// Where two calls part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parting {
    /// Branches that both took before.
    pub common: usize,
    /// The instruction.
    pub at: Place,
    /// What the one did.
    pub these: Way,
    /// What the other did.
    pub base: Way,
}

/// How often a jump back was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trips {
    /// The jump.
    pub from: Place,
    /// Where the loop begins.
    pub to: Place,
    /// How often the one call took it.
    pub these: u64,
    /// How often others did: least and most.
    pub base: (u64, u64),
}

impl Kept for BranchPath {
    fn entered(entry: Place) -> Self {
        Self { entry, steps: Vec::new(), is_cut: false }
    }

    fn took(&mut self, step: BranchStep, _depth: u64) {
        self.is_cut |= self.steps.len() >= STEPS_MAX;
        if !self.is_cut {
            self.steps.push(step);
        }
    }
}

impl BranchPath {
    /// Branches that both took, from the first on.
    #[must_use]
    pub fn common(&self, other: &Self) -> usize {
        self.steps.iter().zip(&other.steps).take_while(|(mine, others)| mine == others).count()
    }

    /// Where this call parts from another; `None` if they are the same as far as they are known.
    #[must_use]
    pub fn parts_from(&self, other: &Self) -> Option<Parting> {
        let common = self.common(other);
        let (mine, others) = (self.steps.get(common)?, other.steps.get(common)?);
        let (these, base) = (Way::To(mine.to), Way::To(others.to));
        Some(match mine.from.cmp(&others.from) {
            std::cmp::Ordering::Equal => Parting { common, at: mine.from, these, base },
            std::cmp::Ordering::Less => Parting { common, at: mine.from, these, base: Way::On },
            std::cmp::Ordering::Greater => Parting { common, at: others.from, these: Way::On, base },
        })
    }

    /// Loops that this call went through more or less often than each of the others; first those with the
    /// largest ratio, and of equals those with fewest trips, which puts a loop before those inside of it.
    #[must_use]
    pub fn other_trips(&self, others: &[&Self]) -> Vec<Trips> {
        let of_others: Vec<_> = others.iter().map(|other| other.trips()).collect();
        let mine = self.trips();
        let mut loops: Vec<(Place, Place)> =
            of_others.iter().chain([&mine]).flat_map(|trips| trips.keys().copied()).collect();
        loops.sort_unstable();
        loops.dedup();
        let trips = |(from, to): (Place, Place)| {
            let times = |trips: &BTreeMap<_, u64>| trips.get(&(from, to)).copied().unwrap_or(0);
            let base = of_others.iter().map(times);
            let base = (base.clone().min().unwrap_or(0), base.max().unwrap_or(0));
            Trips { from, to, these: times(&mine), base }
        };
        let is_other = |trips: &Trips| trips.these < trips.base.0 || trips.base.1 < trips.these;
        let mut other: Vec<Trips> = loops.into_iter().map(trips).filter(is_other).collect();
        other.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()).then(a.these.cmp(&b.these)));
        other
    }

    fn trips(&self) -> BTreeMap<(Place, Place), u64> {
        let mut trips = BTreeMap::new();
        for step in self.steps.iter().filter(|step| step.is_loop) {
            if let To::Place(to) = step.to {
                *trips.entry((step.from, to)).or_insert(0) += 1;
            }
        }
        trips
    }
}

impl Trips {
    fn ratio(&self) -> f64 {
        let near = if self.these < self.base.0 { self.base.0 } else { self.base.1 };
        let (less, more) = (self.these.min(near), self.these.max(near));
        more as f64 / less.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ObjectId, Svma};

    fn place(svma: u64) -> Place {
        Place { object: ObjectId(1), svma: Svma(svma) }
    }

    fn path(steps: &[(u64, u64)]) -> BranchPath {
        let step = |&(from, to): &(u64, u64)| BranchStep {
            from: place(from),
            to: To::Place(place(to)),
            is_jump: true,
            is_loop: to <= from,
        };
        BranchPath { entry: place(0), steps: steps.iter().map(step).collect(), is_cut: false }
    }

    const TYPICAL: [(u64, u64); 3] = [(10, 40), (52, 44), (58, 90)];

    #[test]
    fn of_two_next_branches_the_lower_one_is_where_they_part() {
        let check = |mine: &[(u64, u64)], at, these, base| {
            let parting = path(mine).parts_from(&path(&TYPICAL)).unwrap();
            assert_eq!((parting.at, parting.these, parting.base), (place(at), these, base), "{mine:?}");
        };
        let to = |svma| Way::To(To::Place(place(svma)));
        check(&[(10, 40), (52, 44), (52, 44), (58, 90)], 52, to(44), Way::On);
        check(&[(10, 40), (58, 90)], 52, Way::On, to(44));
        check(&[(10, 80)], 10, to(80), to(40));
        check(&[(20, 30)], 10, Way::On, to(40));
        assert_eq!(path(&TYPICAL).parts_from(&path(&TYPICAL)), None);
    }

    #[test]
    fn loops_that_went_round_as_often_as_in_one_of_the_others_are_not_named() {
        let rounds = |inner: usize, outer: usize| {
            let once: Vec<(u64, u64)> = std::iter::repeat_n((30, 20), inner).chain([(40, 10)]).collect();
            path(&once.repeat(outer))
        };
        let (few, many) = (rounds(9, 4), rounds(9, 5));
        let trips = rounds(9, 6).other_trips(&[&few, &many]);
        let outer = Trips { from: place(40), to: place(10), these: 6, base: (4, 5) };
        let inner = Trips { from: place(30), to: place(20), these: 54, base: (36, 45) };
        assert_eq!(trips, [outer, inner]);
        assert_eq!(rounds(9, 5).other_trips(&[&few, &many]), []);
        assert_eq!(path(&[]).other_trips(&[&few]).len(), 2);
    }
}
