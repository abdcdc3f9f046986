//! Whether two recordings differ by more than each differs from itself.
//!
//! Calls that follow one another are alike (caches, load, what the program is doing), so that single calls
//! say little. Each recording is cut into [`BLOCKS`] blocks of calls that follow one another; if the
//! recordings are alike, each block may be of either. So blocks are shared out at random, again and again,
//! always with the same dice: how often is the difference of the means as large as between the recordings?

use crate::stats::mean;

/// Blocks of each recording; of fewer calls, each is one.
const BLOCKS: usize = 16;
const ROUNDS: u32 = 10_000;
/// A p-value below this is no chance.
const RARE: f64 = 0.001;

/// What chance has to do with the difference of two recordings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// How likely blocks that are shared out at random differ as much.
    pub p_value: f64,
    /// The smallest p-value that this number of blocks can give, whatever they are.
    pub smallest_p_value: f64,
    /// Blocks: these, base.
    pub blocks: (usize, usize),
}

impl Shift {
    /// Of latencies in the order of the calls' starts.
    #[must_use]
    pub fn of(these: &[u64], base: &[u64]) -> Self {
        let (these, base) = (blocks(these), blocks(base));
        Self {
            p_value: p_value(&these, &base),
            smallest_p_value: smallest_p_value(these.len(), base.len()),
            blocks: (these.len(), base.len()),
        }
    }

    /// What it says of the difference.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.smallest_p_value >= RARE {
            return Verdict::TooFewCalls { needed: needed(self.blocks) };
        }
        if self.p_value < RARE { Verdict::Exceeds } else { Verdict::DoesNotExceed }
    }
}

/// What a [`Shift`] says of the difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is larger than the spread within each recording explains.
    Exceeds,
    /// It may be chance.
    DoesNotExceed,
    /// Whatever it is, so few blocks cannot tell.
    TooFewCalls {
        /// This many calls could, in each recording that does not have them.
        needed: usize,
    },
}

/// How likely blocks that are shared out at random differ as much as these and those of the base.
fn p_value(these: &[f64], base: &[f64]) -> f64 {
    let mut means = [these, base].concat();
    let difference = |means: &[f64]| {
        let (these, base) = means.split_at(these.len().min(means.len()));
        (mean(these) - mean(base)).abs()
    };
    let found = difference(&means);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut as_large = 1;
    for _ in 0..ROUNDS {
        for last in (1..means.len()).rev() {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            means.swap(last, ((random >> 33) % (last as u64 + 1)) as usize);
        }
        // What was added up in another order is the same.
        as_large += u32::from(difference(&means) >= found * (1.0 - 1e-9));
    }
    f64::from(as_large) / f64::from(ROUNDS + 1)
}

/// The p-value, with the same dice, of blocks that differ as much only where each is on its own side again,
/// or, with the same number on both sides, on the other one.
fn smallest_p_value(these: usize, base: usize) -> f64 {
    p_value(&vec![1.0; these], &vec![0.0; base])
}

/// The number of calls with which p can be small enough: a recording of fewer than [`BLOCKS`] calls has a
/// block for each, and [`BLOCKS`] on both sides are enough.
fn needed((these, base): (usize, usize)) -> usize {
    let can_tell = |calls: &usize| smallest_p_value(these.max(*calls), base.max(*calls)) < RARE;
    (1..BLOCKS).find(can_tell).unwrap_or(BLOCKS)
}

/// Means of blocks of calls that follow one another.
fn blocks(latencies: &[u64]) -> Vec<f64> {
    let blocks = latencies.len().min(BLOCKS);
    let start = |block: usize| block * latencies.len() / blocks.max(1);
    let block = |block: usize| latencies.get(start(block)..start(block + 1)).unwrap_or_default();
    (0..blocks).map(|i| mean(&block(i).iter().map(|ns| *ns as f64).collect::<Vec<_>>())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Latencies around a mean, of which each hundred calls have one of their own.
    fn calls(seed: u64, mean: u64) -> Vec<u64> {
        let mut random = seed;
        let mut die = |sides: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 33) % sides
        };
        (0..16)
            .flat_map(|_| {
                let level = die(40);
                (0..100).map(|_| mean + level + die(50)).collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn what_is_more_than_the_spread_within_is_a_shift() {
        let base = calls(1, 1000);
        assert_eq!(Shift::of(&base, &base).verdict(), Verdict::DoesNotExceed);
        assert_eq!(Shift::of(&calls(2, 1000), &base).verdict(), Verdict::DoesNotExceed);
        let shifted = Shift::of(&calls(2, 1030), &base);
        assert_eq!(shifted.verdict(), Verdict::Exceeds, "{shifted:?}");
        assert_eq!(shifted.blocks, (16, 16));
    }

    /// It was said that the difference did not exceed the spread, where it never could have been said that it
    /// did.
    #[test]
    fn few_calls_show_nothing_and_how_many_would_is_said() {
        let verdict = |these, base| Shift::of(&vec![5000; these], &(0..base).collect::<Vec<_>>()).verdict();
        for (calls, needed) in [((1, 1), 7), ((3, 3), 7), ((6, 6), 7), ((2, 10), 5), ((3, 1600), 4)] {
            assert_eq!(verdict(calls.0, calls.1), Verdict::TooFewCalls { needed }, "{calls:?}");
        }
        for calls in [(7, 7), (5, 10), (4, 1600)] {
            assert_eq!(verdict(calls.0, calls.1), Verdict::Exceeds, "{calls:?}");
        }
        let none = Shift::of(&[], &[1]);
        assert_eq!((none.p_value, none.smallest_p_value, none.blocks), (1.0, 1.0, (0, 1)));
    }

    /// No blocks give less than the smallest p.
    #[test]
    fn the_smallest_p_is_that_of_blocks_apart() {
        for calls in 1..=10 {
            let apart = Shift::of(&vec![5000; calls], &(0..10).collect::<Vec<_>>());
            assert_eq!(apart.p_value, apart.smallest_p_value, "{calls}");
            let alike = Shift::of(&vec![5; calls], &(0..10).collect::<Vec<_>>());
            assert!(alike.p_value > alike.smallest_p_value, "{alike:?}");
        }
    }
}
