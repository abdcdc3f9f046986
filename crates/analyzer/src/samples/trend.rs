//! Whether samples rise or fall in their order.

use super::LEVEL;

/// How much samples rise or fall in their order: Kendall's tau, and how likely it is by chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Pairs that rise less pairs that fall, as a share of all: 1 where each sample exceeds those before.
    pub tau: f64,
    /// How likely samples in a random order have as large a tau, of either sign.
    pub p_value: f64,
}

impl Trend {
    /// Of samples; `None`: there are fewer than two.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let pairs = samples.len().checked_sub(1)? * samples.len() / 2;
        let rises = |earlier: f64, later: f64| i64::from(later > earlier) - i64::from(later < earlier);
        let sum: i64 = (samples.iter().enumerate())
            .flat_map(|(index, later)| samples.iter().take(index).map(move |earlier| rises(*earlier, *later)))
            .sum();
        if pairs == 0 {
            return None;
        }
        // Of equal pairs one in two is against the trend: that is not less likely.
        let against = (pairs as u64).saturating_sub(sum.unsigned_abs()).div_ceil(2);
        let tail: f64 = inversions(samples.len()).iter().take(against as usize + 1).sum();
        Some(Self { tau: sum as f64 / pairs as f64, p_value: (2.0 * tail).min(1.0) })
    }

    /// The trend is beyond chance: where `figures` figures are looked at, one of them is said to have a
    /// trend by chance in a share of [`LEVEL`] of all series.
    #[must_use]
    pub fn is_no_chance(&self, figures: usize) -> bool {
        self.p_value <= LEVEL / figures.max(1) as f64
    }
}

/// How likely a random order of `len` values has 0, 1, 2 and so on pairs that fall. The last value falls
/// below 0 to n - 1 of those before, each as likely:
///
/// ```text
/// P(n, k) = (P(n - 1, k) + P(n - 1, k - 1) + ... + P(n - 1, k - n + 1)) / n
/// ```
fn inversions(len: usize) -> Vec<f64> {
    let mut likely = vec![1.0];
    for n in 2..=len {
        let of_fewer = |k: usize| likely.get(k).copied().unwrap_or(0.0);
        let pairs = n * (n - 1) / 2;
        let of = |k: usize| (k.saturating_sub(n - 1)..=k).map(of_fewer).sum::<f64>() / n as f64;
        likely = (0..=pairs).map(of).collect();
    }
    likely
}

#[cfg(test)]
mod tests {
    use super::super::made_up::Dice;
    use super::*;

    #[test]
    fn orders_are_counted() {
        let six = inversions(3).iter().map(|p| (p * 6.0).round()).collect::<Vec<f64>>();
        assert_eq!(six, [1.0, 2.0, 2.0, 1.0]);
        let rising = Trend::of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert_eq!(rising.tau, 1.0);
        assert!((rising.p_value - 2.0 / 720.0).abs() < 1e-12 && rising.is_no_chance(2), "{rising:?}");
        let falling = Trend::of(&[5.0, 4.0, 3.0, 2.0, 1.0]).unwrap();
        assert_eq!(falling.tau, -1.0);
        assert!(!falling.is_no_chance(1), "of five, 2 orders in 120: {falling:?}");
    }

    #[test]
    fn equal_samples_have_no_trend() {
        assert_eq!(Trend::of(&[3.0; 10]), Some(Trend { tau: 0.0, p_value: 1.0 }));
        assert_eq!((Trend::of(&[3.0]), Trend::of(&[])), (None, None));
    }

    #[test]
    fn a_trend_is_told_from_noise() {
        let mut dice = Dice(3);
        let mut warned = |rise: f64| {
            let has_trend = |_: &u32| {
                let runs = dice.runs(10, 1000.0, 0.01);
                let rising: Vec<f64> =
                    (0..10).zip(runs).map(|(run, ns)| ns + rise * f64::from(run)).collect();
                Trend::of(&rising).is_some_and(|trend| trend.is_no_chance(2))
            };
            (0..2000).filter(has_trend).count()
        };
        let (of_noise, of_rise) = (warned(0.0), warned(10.0));
        assert!(of_noise <= 10, "{of_noise} of 2000: half the level is 10");
        assert!(of_rise >= 1900, "{of_rise} of 2000 that rise by 1 % a run, with a noise of 1 %");
    }
}
