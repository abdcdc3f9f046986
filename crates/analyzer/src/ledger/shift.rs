//! Whether two recordings differ by more than each differs from itself.
//!
//! Calls that follow one another are alike (caches, load, what the program is doing), so that single calls say little.  Each
//! recording is cut into [`BLOCKS`] blocks of calls that follow one another; if the recordings are alike, it makes no
//! difference whose a block is.  So blocks are shared out at random, again and again, always with the same dice: how often
//! is the difference of the means as large as between the recordings?

use crate::stats::mean;

/// Blocks of each recording; of fewer calls, each is one.
const BLOCKS: usize = 16;
const ROUNDS: u32 = 10_000;
/// As rare as that is no chance.
const RARE: f64 = 0.001;

/// What chance has to do with the difference of two recordings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// How likely blocks that are shared out at random differ as much.
    pub p_value: f64,
    /// Blocks: these, base.
    pub blocks: (usize, usize),
}

impl Shift {
    /// Of latencies in the order of the calls' starts.
    #[must_use]
    pub fn of(these: &[u64], base: &[u64]) -> Self {
        let (mut means, of_base) = (blocks(these), blocks(base));
        let len = means.len();
        means.extend(of_base);
        let difference = |means: &[f64]| {
            let (these, base) = means.split_at(len.min(means.len()));
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
        Self {
            p_value: f64::from(as_large) / f64::from(ROUNDS + 1),
            blocks: (len, means.len().saturating_sub(len)),
        }
    }

    /// The difference is larger than the spread within each recording explains.
    #[must_use]
    pub fn is_so(&self) -> bool {
        self.p_value < RARE
    }
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
        assert!(!Shift::of(&base, &base).is_so());
        assert!(!Shift::of(&calls(2, 1000), &base).is_so());
        let shifted = Shift::of(&calls(2, 1030), &base);
        assert!(shifted.is_so(), "{shifted:?}");
        assert_eq!(shifted.blocks, (16, 16));
    }

    #[test]
    fn few_calls_show_nothing() {
        assert!(!Shift::of(&[5000; 3], &[1000; 3]).is_so());
        assert_eq!(Shift::of(&[], &[1]), Shift { p_value: 1.0, blocks: (0, 1) });
    }
}
