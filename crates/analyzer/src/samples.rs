//! What repeated measurements of a figure say: their spread, trend and outliers, and whether two sets differ.
//!
//! A sample is one value of a figure (a mean, a percentile): of a run of a program, or of a block of calls
//! that follow one another in one run.
//!
//! ```text
//!   Summary   mean +- standard deviation, range
//!   Trend     values rise or fall in the order of the runs (Kendall)
//!   outliers  runs far from the others' median (by median absolute deviations)
//!   Change    by which factor the samples of one set exceed those of another (ranks of Mann and Whitney)
//!   Comparison   the change of each Figure between two sets of runs
//! ```
//! [`Trend`] and [`Change`] suppose nothing of how values are distributed: their levels are those of counting
//! orders, exact for any number of samples.

mod comparison;
mod figure;
mod ranks;
mod trend;

pub use comparison::{FigureChange, FigureOfSet, FigureVerdict, Missing, RunsComparison, SamplesOf};
pub use figure::Figure;
pub use ranks::{Change, TooFew};
pub use trend::Trend;

/// How often a statement that compares runs may be wrong where nothing differs, for all its figures together.
pub const LEVEL: f64 = 0.01;

/// The most samples of a set: counting orders takes time with the fourth power of their number.
pub const SAMPLES_MAX: usize = 100;

/// Median absolute deviations from the median from which on a sample is an outlier: of normal values, ten
/// standard deviations.
const OUTLYING_DEVIATIONS: f64 = 14.826;
/// The least median absolute deviation, as a share of the median: values that agree to the nanosecond have 0.
const LEAST_DEVIATION: f64 = 0.002;
/// With fewer samples the median deviation says nothing.
const LEAST_FOR_OUTLIERS: usize = 5;

/// Mean, deviation and range of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunsSummary {
    /// How many samples.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation, estimated from the samples (n - 1).  `None`: there is one sample only.
    pub deviation: Option<f64>,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl RunsSummary {
    /// Of samples; `None`: there are none.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let min = samples.iter().copied().reduce(f64::min)?;
        let max = samples.iter().copied().reduce(f64::max)?;
        let count = samples.len();
        // Rounding must not put the mean of equal samples beside them.
        let mean = crate::stats::mean(samples).clamp(min, max);
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let deviation = (count > 1).then(|| (squares / (count - 1) as f64).sqrt());
        Some(Self { count, mean, deviation, min, max })
    }
}

/// Indices of samples that are far from the median of all: by [`OUTLYING_DEVIATIONS`], as `hyperfine` has it.
#[must_use]
pub fn outliers(samples: &[f64]) -> Vec<usize> {
    if samples.len() < LEAST_FOR_OUTLIERS {
        return Vec::new();
    }
    let middle = median(samples);
    let distances: Vec<f64> = samples.iter().map(|sample| (sample - middle).abs()).collect();
    let deviation = median(&distances).max(LEAST_DEVIATION * middle.abs());
    let is_far = |distance: &f64| *distance > OUTLYING_DEVIATIONS * deviation;
    (0..).zip(&distances).filter(|(_, distance)| is_far(distance)).map(|(index, _)| index).collect()
}

/// The middle value, or the mean of the two in the middle; 0 of none.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    let lower = sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default();
    lower.midpoint(upper)
}

/// Made-up samples for tests, always the same.
#[cfg(test)]
pub(crate) mod made_up {
    /// Dice.
    pub(crate) struct Dice(pub(crate) u64);

    impl Dice {
        /// From 0 to 1.
        pub(crate) fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }

        /// Around 0, with a standard deviation of 1 (Box and Muller).
        pub(crate) fn normal(&mut self) -> f64 {
            let (radius, angle) = (1.0 - self.uniform(), self.uniform());
            (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
        }

        /// Runs of a program: figures around `mean`, with a deviation of `noise`, a share of it.
        pub(crate) fn runs(&mut self, count: usize, mean: f64, noise: f64) -> Vec<f64> {
            (0..count).map(|_| mean * (1.0 + noise * self.normal())).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::made_up::Dice;
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        let summary = RunsSummary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((summary.count, summary.mean, summary.min, summary.max), (8, 5.0, 2.0, 9.0));
        assert!((summary.deviation.unwrap() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(RunsSummary::of(&[7.0]).unwrap().deviation, None);
        assert_eq!(RunsSummary::of(&[]), None);
        let equal = RunsSummary::of(&[0.1; 7]).unwrap();
        assert_eq!((equal.mean, equal.deviation), (0.1, Some(0.0)));
    }

    #[test]
    fn an_outlier_is_far_from_runs_that_agree() {
        assert_eq!(outliers(&[100.0, 101.0, 99.0, 130.0, 100.5, 98.5]), [3]);
        assert_eq!(outliers(&[150.0, 101.0, 99.0, 100.0, 100.5, 98.5]), [0]);
        assert_eq!(outliers(&[100.0, 120.0, 80.0, 130.0, 90.0, 110.0]), [] as [usize; 0]);
        assert_eq!(outliers(&[1.0, 1.0, 1.0, 9.0]), [] as [usize; 0], "four say nothing");
        // Nine runs agree to the nanosecond; 134 ns is no outlier of 133 ns.
        let mut agree = [133.0; 10];
        agree[4] = 134.0;
        assert_eq!(outliers(&agree), [] as [usize; 0]);
        agree[4] = 140.0;
        assert_eq!(outliers(&agree), [4]);
    }

    /// Of normal runs no more than one set in a hundred has an outlier.
    #[test]
    fn noise_has_hardly_an_outlier() {
        let mut dice = Dice(5);
        let warned = (0..2000).filter(|_| !outliers(&dice.runs(10, 1000.0, 0.02)).is_empty()).count();
        assert!(warned <= 20, "{warned} of 2000");
    }
}
