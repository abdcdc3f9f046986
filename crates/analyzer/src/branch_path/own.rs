//! The branches that calls took in their function's own code, and calls sorted by them.
//!
//! Calls with the same callees may still differ: in branches between them, and in how often loops went round.
//! Of a call only counts are kept, by branch: two calls are alike if they took the same branches, and, where
//! that leaves few kinds of calls, the same loops as often. Where even the branches make many kinds, all
//! calls are of one kind: a list of kinds as long as that of the calls says nothing.

use std::collections::BTreeMap;

use super::{BranchStep, Kept, To};
use crate::place::Place;

/// How often a call took each jump in its function's own code.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnBranches(BTreeMap<Jump, u64>);

/// A jump: from, to, and whether it goes back.
type Jump = (Place, Place, bool);

/// A jump that two kinds of calls took a different number of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The instruction.
    pub from: Place,
    /// Where it goes.
    pub to: Place,
    /// It goes back: a loop.
    pub is_loop: bool,
    /// How often the one call took it.
    pub these: u64,
    /// How often the other.
    pub base: u64,
}

/// What makes two calls of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alike {
    /// They took equal jumps, and went round each loop equally often.
    Loops,
    /// They took equal jumps.
    Jumps,
    /// All calls are alike.
    All,
}

/// Number of kinds that is called few.
const FEW: usize = 8;
/// Calls of ten that these must have.
const NEARLY_ALL_OF_TEN: usize = 9;

impl Kept for OwnBranches {
    fn entered(_entry: Place) -> Self {
        Self::default()
    }

    fn took(&mut self, step: BranchStep, depth: u64) {
        if let To::Place(to) = step.to
            && depth == 0
            && step.is_jump
        {
            *self.0.entry((step.from, to, step.is_loop)).or_default() += 1;
        }
    }
}

impl OwnBranches {
    /// Sorts calls by what they took: the indices of each kind, the kind of most calls first.
    #[must_use]
    pub fn kinds(calls: &[&Self]) -> Vec<Vec<usize>> {
        let sorted = |alike: Alike| {
            let mut kinds: BTreeMap<Self, Vec<usize>> = BTreeMap::new();
            for (at, call) in calls.iter().enumerate() {
                kinds.entry(call.known_by(alike)).or_default().push(at);
            }
            let mut kinds: Vec<Vec<usize>> = kinds.into_values().collect();
            kinds.sort_by_key(|kind| (std::cmp::Reverse(kind.len()), kind.first().copied()));
            kinds
        };
        let is_clear = |kinds: &Vec<Vec<usize>>| {
            let few: usize = kinds.iter().take(FEW).map(Vec::len).sum();
            few * 10 >= calls.len() * NEARLY_ALL_OF_TEN
        };
        let found = [Alike::Loops, Alike::Jumps].map(sorted).into_iter().find(is_clear);
        found.unwrap_or_else(|| sorted(Alike::All))
    }

    fn known_by(&self, alike: Alike) -> Self {
        let times = |((from, to, is_loop), times): (&Jump, &u64)| match alike {
            Alike::Loops => Some(((*from, *to, *is_loop), if *is_loop { *times } else { 1 })),
            Alike::Jumps => Some(((*from, *to, *is_loop), 1)),
            Alike::All => None,
        };
        Self(self.0.iter().filter_map(times).collect())
    }

    /// Jumps that this call took more or less often than another, by address; loops only, if both took the
    /// same.
    #[must_use]
    pub fn other_than(&self, base: &Self) -> Vec<Times> {
        let mut jumps: Vec<&Jump> = self.0.keys().chain(base.0.keys()).collect();
        jumps.sort_unstable();
        jumps.dedup();
        let times = |(from, to, is_loop): &Jump| {
            let of = |call: &Self| call.0.get(&(*from, *to, *is_loop)).copied().unwrap_or(0);
            Times { from: *from, to: *to, is_loop: *is_loop, these: of(self), base: of(base) }
        };
        let is_other = |times: &Times| times.these != times.base;
        let is_taken_by_one = |times: &Times| times.these == 0 || times.base == 0;
        let other: Vec<Times> = jumps.into_iter().map(times).filter(is_other).collect();
        if other.iter().any(is_taken_by_one) {
            return other.into_iter().filter(is_taken_by_one).collect();
        }
        other.into_iter().filter(|times| times.is_loop).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ObjectId, Svma};

    /// Of jumps, from and to, and how often each was taken.
    fn call(jumps: &[(u64, u64, u64)]) -> OwnBranches {
        let place = |svma| Place { object: ObjectId(1), svma: Svma(svma) };
        OwnBranches(
            jumps.iter().map(|(from, to, times)| ((place(*from), place(*to), to <= from), *times)).collect(),
        )
    }

    #[test]
    fn calls_are_sorted_by_their_jumps_and_by_how_often_their_loops_go_round() {
        let four = call(&[(30, 10, 3), (40, 60, 1)]);
        let five = call(&[(30, 10, 4), (40, 60, 1)]);
        let other = call(&[(30, 10, 3), (44, 70, 1)]);
        let calls = [&four, &five, &four, &other, &four, &five];
        assert_eq!(OwnBranches::kinds(&calls), [vec![0, 2, 4], vec![1, 5], vec![3]]);
        let text = |times: &Times| (times.from.svma.0, times.is_loop, times.these, times.base);
        assert_eq!(five.other_than(&four).iter().map(text).collect::<Vec<_>>(), [(30, true, 4, 3)]);
        let expect = [(40, false, 0, 1), (44, false, 1, 0)];
        assert_eq!(other.other_than(&four).iter().map(text).collect::<Vec<_>>(), expect);
        assert_eq!(four.other_than(&four), []);
    }

    /// Twenty numbers of rounds: only the jumps count. Twenty sets of jumps: nothing does.
    #[test]
    fn of_many_kinds_only_what_makes_few_counts() {
        let rounds: Vec<OwnBranches> = (1..=20).map(|times| call(&[(30, 10, times)])).collect();
        assert_eq!(OwnBranches::kinds(&rounds.iter().collect::<Vec<_>>()), [(0..20).collect::<Vec<_>>()]);
        let jumps: Vec<OwnBranches> = (1..=20).map(|from| call(&[(from, 60, 1)])).collect();
        assert_eq!(OwnBranches::kinds(&jumps.iter().collect::<Vec<_>>()), [(0..20).collect::<Vec<_>>()]);
    }
}
