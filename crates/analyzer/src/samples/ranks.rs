//! By which factor the samples of one set exceed those of another.
//!
//! If two sets are alike, each order of all their samples is equally likely. U counts the pairs in which the
//! sample of one set is below that of the other (Mann and Whitney); how likely each U is comes from counting
//! orders. The c-th smallest and c-th largest ratio of all pairs bound the factor, if U < c has at most half
//! the level (Hodges and Lehmann, Moses). Equal samples make the interval wider, never narrower.

use super::SAMPLES_MAX;

/// By which factor the samples of one set are those of the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The median ratio of all pairs.
    pub factor: f64,
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
}

/// There are too few samples for any statement of the level, whatever the samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFew {
    /// The number of samples of each set that could tell.
    pub needed: usize,
}

impl Change {
    /// Of samples against those of `base`; an interval that misses the factor of sets that are alike but for
    /// it no more often than `level`.  Of more than [`SAMPLES_MAX`] samples the first ones count.
    ///
    /// # Errors
    /// There are too few samples.
    pub fn of(these: &[f64], base: &[f64], level: f64) -> Result<Self, TooFew> {
        let most = |samples: &[f64]| samples.iter().copied().take(SAMPLES_MAX).collect::<Vec<f64>>();
        let (these, base) = (most(these), most(base));
        let Some(cut) = cut(these.len(), base.len(), level) else {
            return Err(TooFew { needed: needed(these.len(), base.len(), level) });
        };
        let pairs = these.iter().flat_map(|this| base.iter().map(move |base| ratio(*this, *base)));
        let mut ratios: Vec<f64> = pairs.collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let at = |index: usize| ratios.get(index).copied().unwrap_or(f64::NAN);
        let last = ratios.len().saturating_sub(1);
        Ok(Self {
            factor: at(last / 2).midpoint(at(ratios.len() / 2)),
            low: at(cut - 1),
            high: at(last - (cut - 1)),
        })
    }

    /// These are larger.
    #[must_use]
    pub fn is_more(&self) -> bool {
        self.low > 1.0
    }

    /// These are smaller.
    #[must_use]
    pub fn is_less(&self) -> bool {
        self.high < 1.0
    }
}

/// Two samples of nothing are alike.
fn ratio(this: f64, base: f64) -> f64 {
    if this == base { 1.0 } else { this / base }
}

/// The largest c for which U < c has at most half the level; `None`: U = 0 is more likely than that.
fn cut(these: usize, base: usize, level: f64) -> Option<usize> {
    let likely = likely(these, base);
    let below = likely.iter().scan(0.0, |sum, likely| {
        *sum += likely;
        Some(*sum)
    });
    let cut = below.take_while(|below| *below <= level / 2.0).count();
    Some(cut).filter(|cut| *cut > 0)
}

/// How likely U is 0, 1, 2 and so on up to its mean, if each order of the samples is equally likely.
///
/// The largest sample is one of n with n / (n + m), and then above all m of the others:
///
/// ```text
/// P(n, m, u) = n / (n + m) P(n - 1, m, u - m) + m / (n + m) P(n, m - 1, u)
/// ```
fn likely(n: usize, m: usize) -> Vec<f64> {
    let len = n * m / 2 + 1;
    // One for each number of the other samples, from none on.
    let mut of_fewer: Vec<Vec<f64>> = (0..=m).map(|_| vec![1.0]).collect();
    for own in 1..=n {
        let mut of_own: Vec<Vec<f64>> = vec![vec![1.0]];
        for (other, with_fewer_own) in of_fewer.iter().enumerate().skip(1) {
            let share = own as f64 / (own + other) as f64;
            let mut likely = vec![0.0; len.min(own * other + 1)];
            for (sum, p) in likely.iter_mut().skip(other).zip(with_fewer_own) {
                *sum += share * p;
            }
            for (sum, p) in likely.iter_mut().zip(of_own.last().into_iter().flatten()) {
                *sum += (1.0 - share) * p;
            }
            of_own.push(likely);
        }
        of_fewer = of_own;
    }
    of_fewer.pop().unwrap_or_default()
}

/// The number of samples of each set from which on there can be a statement.
fn needed(these: usize, base: usize, level: f64) -> usize {
    let can_tell = |samples: &usize| cut(these.max(*samples), base.max(*samples), level).is_some();
    (1..SAMPLES_MAX).find(can_tell).unwrap_or(SAMPLES_MAX)
}

#[cfg(test)]
mod tests {
    use super::super::LEVEL;
    use super::super::made_up::Dice;
    use super::*;

    /// The level of one of the figures that are compared together.
    const EACH: f64 = LEVEL / 5.0;

    /// Of three and two there are ten orders: U = 0, 1 in one each, 2, 3 in two each.
    #[test]
    fn orders_are_counted() {
        let ten = |counts: &[f64]| counts.iter().map(|count| count / 10.0).collect::<Vec<f64>>();
        let close = |found: &[f64], expect: &[f64]| {
            assert_eq!(found.len(), expect.len());
            assert!(found.iter().zip(expect).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?}");
        };
        close(&likely(3, 2), &ten(&[1.0, 1.0, 2.0, 2.0]));
        close(&likely(2, 3), &ten(&[1.0, 1.0, 2.0, 2.0]));
        assert!((likely(10, 10)[0] - 1.0 / 184_756.0).abs() < 1e-15);
    }

    /// The cuts of published tables: two-sided, 1 % and 5 %.
    #[test]
    fn cuts_are_those_of_tables() {
        let critical = |n, m, level| cut(n, m, level).map(|cut| cut - 1);
        assert_eq!(critical(10, 10, 0.05), Some(23));
        assert_eq!(critical(10, 10, 0.01), Some(16));
        assert_eq!(critical(5, 8, 0.05), Some(6));
        assert_eq!(critical(20, 20, 0.05), Some(127));
        assert_eq!(critical(3, 3, 0.05), None);
        assert_eq!((critical(6, 6, EACH), critical(7, 7, EACH)), (None, Some(1)));
    }

    #[test]
    fn an_interval_is_between_ratios_of_pairs() {
        let base: Vec<f64> = (0..10).map(|run| 100.0 + f64::from(run)).collect();
        let twice: Vec<f64> = base.iter().map(|sample| 2.0 * sample).collect();
        let change = Change::of(&twice, &base, EACH).unwrap();
        assert!(change.is_more() && !change.is_less(), "{change:?}");
        assert!((change.factor - 2.0).abs() < 1e-3 && change.low > 1.85 && change.high < 2.16, "{change:?}");
        let back = Change::of(&base, &twice, EACH).unwrap();
        assert!(back.is_less() && (back.low * change.high - 1.0).abs() < 1e-12, "{back:?}");
        assert_eq!(Change::of(&base[..6], &base, 1e-4), Err(TooFew { needed: 8 }));
        assert_eq!(Change::of(&[], &[], EACH), Err(TooFew { needed: 7 }));
    }

    /// Samples that agree say that there is no change, also where all are 0.
    #[test]
    fn equal_samples_are_alike() {
        for value in [0.0, 133.0] {
            let change = Change::of(&[value; 10], &[value; 10], EACH).unwrap();
            assert_eq!((change.factor, change.low, change.high), (1.0, 1.0, 1.0));
            assert!(!change.is_more() && !change.is_less());
        }
    }

    /// The share of comparisons that find a difference.
    fn found(comparisons: u32, slower: f64, noise: f64, runs: usize) -> f64 {
        let mut dice = Dice(11);
        let differ = |_: &u32| {
            let (a, b) = (dice.runs(runs, 1000.0, noise), dice.runs(runs, 1000.0 * slower, noise));
            Change::of(&b, &a, EACH).is_ok_and(|change| change.is_more() || change.is_less())
        };
        f64::from((0..comparisons).filter(differ).count() as u32) / f64::from(comparisons)
    }

    /// The level is exact: U below the cut is as likely as counting says, and the dice agree.
    #[test]
    fn false_alarms_are_no_more_than_the_level() {
        for (runs, expect) in [(7, 0.00117), (10, 0.00150), (16, 0.00194)] {
            let cut = cut(runs, runs, EACH).unwrap();
            let exactly: f64 = 2.0 * likely(runs, runs).iter().take(cut).sum::<f64>();
            assert!((exactly - expect).abs() < 0.00001, "{exactly} over {runs} runs");
        }
        let alarms = found(20_000, 1.0, 0.02, 10);
        assert!(alarms <= EACH, "{alarms}");
    }

    #[test]
    fn five_percent_are_found_by_ten_runs() {
        let shares = [0.01, 0.015, 0.02].map(|noise| found(1000, 1.05, noise, 10));
        assert!(shares[0] > 0.999 && shares[1] > 0.98 && shares[2] > 0.9, "{shares:?}");
    }
}
