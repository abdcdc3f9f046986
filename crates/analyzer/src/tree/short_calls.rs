//! Calls that are too short to be nodes of a tree: how many, by the power of two of what they took.

/// Buckets: 0 ns, and one for each power of two of a `u64`.
const BUCKETS: usize = u64::BITS as usize + 1;

/// Numbers of calls by their time.
///
/// ```text
///   bucket   0   1    2    3     4      ...
///   ns       0   1   2-3  4-7   8-15
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortCalls([u64; BUCKETS]);

impl Default for ShortCalls {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl ShortCalls {
    /// Adds a call.
    pub fn add(&mut self, ns: u64) {
        if let Some(bucket) = self.0.get_mut((u64::BITS - ns.leading_zeros()) as usize) {
            *bucket += 1;
        }
    }

    /// Adds those of another.
    pub fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(bucket, more)| *bucket += more);
    }

    /// All of them.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The least of 0 and the powers of two that at most `most` calls have reached.
    #[must_use]
    pub fn reached_by(&self, most: u64) -> u64 {
        let mut longer = 0;
        let mut fits = |bucket: &u64| {
            longer += bucket;
            longer <= most
        };
        match self.0.iter().rev().take_while(|bucket| fits(bucket)).count() {
            BUCKETS => 0,
            // Bucket b begins at 2^(b - 1), and none above the last one ends.
            0 => u64::MAX,
            fitting => 1 << (BUCKETS - fitting - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_the_least_that_leaves_no_more() {
        let mut calls = ShortCalls::default();
        [0, 1, 2, 3, 4, 7, 8].into_iter().for_each(|ns| calls.add(ns));
        let thresholds = [0, 1, 2, 3, 4, 5, 6, 7].map(|most| calls.reached_by(most));
        assert_eq!(thresholds, [16, 8, 8, 4, 4, 2, 1, 0]);
        let mut twice = calls.clone();
        twice.add_all(&calls);
        assert_eq!((twice.count(), twice.reached_by(2)), (14, 8));
    }

    #[test]
    fn extremes_have_a_bucket() {
        let mut calls = ShortCalls::default();
        calls.add(u64::MAX);
        assert_eq!([calls.reached_by(0), calls.reached_by(1)], [u64::MAX, 0]);
    }
}
