//! Whether slow calls are outliers, or the tail of what all calls are spread like.
//!
//! Calls that are slow by definition differ from the others also where nothing happened, so a cause is named
//! only where chance does not make such calls. Chance has a tail, and the largest of many calls are far out
//! in it. Above the median the tail is taken for exponential, which latencies' tails are nearly, and than
//! which a normal one is shorter:
//!
//! ```text
//!   calls that are above the median by x or more:   N e^(-x/s)       N: all above it
//!   reach: the x of which m are expected            s ln(N/m)
//! ```
//! - The scale `s` is measured on the other calls, where one in 4, 8, 16 and 32 of them is above: where `c`
//!   of all calls are above `x`, it is `x / ln(N/c)`. Of the four reaches the least counts: so a quarter of
//!   the others may be slow themselves.
//! - Of `k` slow calls the middle one is looked at, number `j` from the top. With `m` expected, chance makes
//!   `j` or more in `m^j / j!` of all recordings at most (Poisson), and `m` is such that this is one of
//!   [`ONE_IN`]. So the reach grows with the number of calls, and one slow call is weaker evidence than eight
//!   alike. Calls may have the same bad luck (load, caches): `m` is 1 at most.
//! - A scale that comes from few calls may be too small by chance: it is as good as the mean of `r =
//!   ln(N/c)^2 / (1/c - 1/N)` exponential spacings (Rényi), which makes the tail a Lomax and the reach
//!   `s r ((N/m)^(1/r) - 1)`: the above for many calls, far more for a handful.
//! - The error bounds of a slow and of a typical latency come on top: what lies within them is no difference.

use crate::call_row::CallRow;
use crate::stats::mean;

/// So seldom are calls without a cause taken for outliers, as far as the tail is exponential.
const ONE_IN: f64 = 10_000.0;
/// Where the scale is measured: what one in so many of the other calls is above.
const UPPER: [usize; 4] = [4, 8, 16, 32];
/// No spread is below the resolution of times.
const RESOLUTION_NS: f64 = 1.0;

/// A test of whether calls are outliers: how far their latencies are above the median of their caller,
/// against how far chance takes calls that are spread like the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlying {
    /// Median of how far the slow calls are above the median of their caller.
    pub above_ns: f64,
    /// How far chance takes as many calls; and the error bounds of a slow and of a typical latency.
    pub reach_ns: f64,
    /// The other calls that this was measured on.
    pub others: u64,
}

impl Outlying {
    /// They are.
    #[must_use]
    pub fn is_so(&self) -> bool {
        self.above_ns > self.reach_ns
    }

    /// `above` and `others` are the excesses over the median of the caller, of slow calls and of others.
    pub(super) fn of(above: Vec<f64>, mut others: Vec<f64>, slow: &[CallRow], typical: &[CallRow]) -> Self {
        others.sort_by(f64::total_cmp);
        let error = |rows: &[CallRow]| mean(&rows.iter().map(|row| row.error_ns as f64).collect::<Vec<_>>());
        Self {
            reach_ns: chance_reaches(above.len(), &others) + error(slow) + error(typical),
            above_ns: median(above),
            others: others.len() as u64,
        }
    }
}

/// How far above the median chance takes the middle one of `slow` calls, beside `others`, which are sorted.
fn chance_reaches(slow: usize, others: &[f64]) -> f64 {
    let above_median = slow as f64 + others.len() as f64 / 2.0;
    let times = above_median / expected(slow / 2 + 1);
    let reach = |one_in: usize| {
        let at = others.len().saturating_sub(1 + others.len() / one_in);
        let upper_ns = others.get(at).copied().unwrap_or(0.0).max(RESOLUTION_NS);
        let above = slow as f64 + others.len() as f64 / one_in as f64;
        let scales = (above_median / above).ln();
        let spacings = scales * scales / (above.recip() - above_median.recip());
        upper_ns / scales * spacings * (times.powf(spacings.recip()) - 1.0)
    };
    UPPER.map(reach).into_iter().fold(f64::INFINITY, f64::min)
}

/// How many calls may be expected so far up that `rank` are there by chance once in [`ONE_IN`] recordings.
fn expected(rank: usize) -> f64 {
    let factorial: f64 = (1..=rank.min(20)).map(|i| i as f64).product(); // 20!: far above what makes it 1
    (factorial / ONE_IN).powf(1.0 / rank as f64).min(1.0)
}

/// The lower one of two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls that are spread exponentially, half of them above the median.
    fn exponential(calls: usize, scale_ns: f64) -> Vec<f64> {
        let above = |i: usize| (i as f64 + 0.5) / calls as f64;
        (0..calls).rev().map(|i| -(2.0 * above(i)).ln() * scale_ns).collect()
    }

    #[test]
    fn one_slow_call_is_weaker_evidence_than_several() {
        let reach = |calls: usize, slow| chance_reaches(slow, &exponential(calls, 100.0)).round();
        assert_eq!([1, 4, 8, 20].map(|slow| reach(400, slow)), [1542.0, 829.0, 675.0, 630.0]);
        // The more calls, the farther is the largest of them; the fewer, the less is known of the tail.
        assert_eq!([40, 400, 4000, 40_000].map(|calls| reach(calls, 1)), [2083.0, 1542.0, 1693.0, 1913.0]);
        assert_eq!([3, 6, 12].map(|calls| reach(calls, 1)), [360_082.0, 25_503.0, 7421.0]);
    }

    /// Where times are the same to the nanosecond, their resolution is the spread.
    #[test]
    fn calls_without_a_spread_reach_as_far_as_times_are_resolved() {
        assert_eq!(chance_reaches(1, &[0.0; 400]).round(), 6.0);
        assert_eq!(chance_reaches(1, &[]), f64::INFINITY);
    }
}
