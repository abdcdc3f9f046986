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
//! - The error bounds of a slow and of a typical latency are subtracted from their difference before it
//!   counts, and more than they are must be left: the reach is twice these bounds at least. (The spread of
//!   the others has their errors in it, so that they do not come on top of chance.)

use std::collections::BTreeMap;

use crate::call_row::CallRow;
use crate::place::CalledFrom;
use crate::stats::mean;

/// So seldom are calls without a cause taken for outliers, as far as the tail is exponential.
const ONE_IN: f64 = 2000.0;
/// Where the scale is measured: one in this many of the other calls is above.
const UPPER: [usize; 4] = [4, 8, 16, 32];
/// No spread is below the resolution of times.
const RESOLUTION_NS: f64 = 1.0;

/// A test of whether calls are outliers: how far their latencies are above the median of their caller,
/// against how far chance takes calls that are spread like the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlying {
    /// Median of how far the slow calls are above the median of their caller.
    pub above_ns: f64,
    /// How far chance takes the same number of calls, and no less than twice the error bounds of a slow and
    /// of a typical latency.
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

    /// That of some of the slow calls.
    pub(super) fn of(spread: &CallerSpread, slow: &[&CallRow]) -> Self {
        let above = slow.iter().map(|row| spread.excess_ns(row)).collect();
        let errors = slow.iter().map(|row| row.error_ns as f64).collect::<Vec<_>>();
        let chance_ns = spread.chance_reaches(expected(slow.len() / 2 + 1));
        Self {
            above_ns: median(above),
            reach_ns: chance_ns.max(2.0 * (mean(&errors) + spread.typical_error_ns)),
            others: spread.others_ns.len() as u64,
        }
    }
}

/// Which calls the slow ones are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typical {
    /// Those of the same callers.
    SameCallers,
    /// Those of all callers: some slow calls have a caller without any others.
    AllCallers,
}

/// How far calls are above the median of their caller.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CallerSpread {
    /// Medians of the calls that are not slow, by caller.
    pub(super) medians_ns: BTreeMap<Option<CalledFrom>, u64>,
    /// All callers are one.
    pub(super) whose: Typical,
    /// The number of slow calls.
    pub(super) slow: usize,
    /// Excesses of all others, in ascending order.
    pub(super) others_ns: Vec<f64>,
    /// Mean of the error bounds of typical calls.
    pub(super) typical_error_ns: f64,
}

impl CallerSpread {
    /// How far a call is above the median of its caller.
    pub(super) fn excess_ns(&self, row: &CallRow) -> f64 {
        let caller = (self.whose == Typical::SameCallers).then_some(row.from);
        let median_ns = self.medians_ns.get(&caller).copied().unwrap_or(0);
        row.latency_ns as f64 - median_ns as f64
    }

    /// A call is farther above than the largest of all calls is expected to be by chance.
    pub(super) fn is_far(&self, row: &CallRow) -> bool {
        let error_ns = row.error_ns as f64 + self.typical_error_ns;
        self.excess_ns(row) > self.chance_reaches(1.0).max(2.0 * error_ns)
    }

    /// How far above the median `expected` of all calls are by chance.
    fn chance_reaches(&self, expected: f64) -> f64 {
        let (slow, others) = (self.slow as f64, self.others_ns.len());
        let above_median = slow + others as f64 / 2.0;
        let times = (above_median / expected).max(1.0);
        let reach = |one_in: usize| {
            let at = others.saturating_sub(1 + others / one_in);
            let upper_ns = self.others_ns.get(at).copied().unwrap_or(0.0).max(RESOLUTION_NS);
            let above = slow + others as f64 / one_in as f64;
            let scales = (above_median / above).ln();
            let spacings = scales * scales / (above.recip() - above_median.recip());
            upper_ns / scales * spacings * (times.powf(spacings.recip()) - 1.0)
        };
        UPPER.map(reach).into_iter().fold(f64::INFINITY, f64::min)
    }
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
    fn exponential(slow: usize, calls: usize) -> CallerSpread {
        let above = |i: usize| (i as f64 + 0.5) / calls as f64;
        spread(slow, (0..calls).rev().map(|i| -(2.0 * above(i)).ln() * 100.0).collect())
    }

    fn spread(slow: usize, others_ns: Vec<f64>) -> CallerSpread {
        let medians_ns = BTreeMap::new();
        CallerSpread { medians_ns, whose: Typical::AllCallers, slow, others_ns, typical_error_ns: 0.0 }
    }

    #[test]
    fn one_slow_call_is_weaker_evidence_than_several() {
        let reach = |calls: usize, slow: usize| {
            exponential(slow, calls).chance_reaches(expected(slow / 2 + 1)).round()
        };
        assert_eq!([1, 4, 8, 20].map(|slow| reach(400, slow)), [1362.0, 770.0, 639.0, 630.0]);
        // The more calls, the farther is the largest of them; the fewer, the less is known of the tail.
        assert_eq!([40, 400, 4000, 40_000].map(|calls| reach(calls, 1)), [1688.0, 1362.0, 1530.0, 1752.0]);
        assert_eq!([3, 6, 12].map(|calls| reach(calls, 1)), [107126.0, 13191.0, 4996.0]);
    }

    /// Where times are the same to the nanosecond, their resolution is the spread.
    #[test]
    fn calls_without_a_spread_reach_as_far_as_times_are_resolved() {
        assert_eq!(spread(1, vec![0.0; 400]).chance_reaches(expected(1)).round(), 5.0);
        assert_eq!(spread(1, vec![]).chance_reaches(expected(1)), f64::INFINITY);
    }
}
