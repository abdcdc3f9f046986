//! From times and latencies to dots, and what stands beside the axes.

/// Dots for latencies: logarithmic, in whole decades.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LatencyAxis {
    /// Exponents of ten at both ends.
    low: u32,
    high: u32,
    dots: usize,
}

impl LatencyAxis {
    /// One on which all of these latencies have a place; 0 ns is where 1 ns is.
    pub(super) fn around(latencies_ns: impl Iterator<Item = u64>, dots: usize) -> Self {
        let bounds =
            latencies_ns.map(|ns| ns.max(1)).fold((u64::MAX, 1), |(min, max), ns| (min.min(ns), max.max(ns)));
        let low = bounds.0.min(bounds.1).ilog10();
        Self { low, high: (bounds.1 - 1).checked_ilog10().map_or(1, |log| log + 1).max(low + 1), dots }
    }

    /// The row of dots, from the top.
    pub(super) fn y(self, ns: u64) -> usize {
        let share = ((ns.max(1) as f64).log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        let last = self.dots.saturating_sub(1);
        last - ((share * last as f64).round() as usize).min(last) // a negative share is 0
    }

    /// The decades: their row of dots and their text, from the lowest.
    pub(super) fn ticks(self) -> impl Iterator<Item = (usize, String)> {
        (self.low..=self.high).map(move |exponent| {
            let ns = 10_u64.saturating_pow(exponent);
            (self.y(ns), short_duration(ns))
        })
    }
}

/// Dots for times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeAxis {
    /// First and last instant, ns of perf's clock.
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    dots: usize,
}

impl TimeAxis {
    /// One from and to these instants.
    pub(super) fn new(from_ns: u64, to_ns: u64, dots: usize) -> Self {
        Self { from_ns, to_ns: to_ns.max(from_ns.saturating_add(1)), dots }
    }

    /// The column of dots, from the left; `None`: it is not on the axis.
    pub(super) fn x(self, ns: u64) -> Option<usize> {
        let offset = ns.checked_sub(self.from_ns).filter(|_| ns <= self.to_ns)?;
        let last = self.dots.saturating_sub(1) as u128;
        let span = u128::from(self.to_ns - self.from_ns);
        Some((u128::from(offset) * last / span) as usize)
    }

    /// Round times from the axis' begin on, at least `apart` dots from each other: column of dots and text.
    pub(super) fn ticks(self, apart: usize) -> Vec<(usize, String)> {
        let span = self.to_ns - self.from_ns;
        let most = (self.dots / apart.max(1)).max(1) as u64;
        let step = round_step(span.div_ceil(most));
        let at = |i: u64| {
            let offset = i.saturating_mul(step);
            Some((self.x(self.from_ns.saturating_add(offset))?, short_duration(offset)))
        };
        (0..=span / step).filter_map(at).collect()
    }
}

/// The next of 1, 2, 5, 10, 20, 50, ...
fn round_step(ns: u64) -> u64 {
    let ns = ns.max(1);
    let decade = 10_u64.pow(ns.ilog10());
    let steps = [1, 2, 5, 10].map(|times: u64| times.saturating_mul(decade));
    steps.into_iter().find(|step| *step >= ns).unwrap_or(u64::MAX)
}

/// A round duration without zeros that say nothing: `20 us`, `1.5 s`.
fn short_duration(ns: u64) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let Some((unit, one)) = units.into_iter().find(|(_, one)| ns >= *one) else {
        return format!("{ns} ns");
    };
    let rest = format!("{:09}", (ns % one) * (1_000_000_000 / one));
    let rest = rest.trim_end_matches('0');
    let point = if rest.is_empty() { "" } else { "." };
    format!("{}{point}{rest} {unit}", ns / one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_between_whole_decades() {
        let axis = |ns: &[u64]| LatencyAxis::around(ns.iter().copied(), 41);
        let ends = |ns: &[u64]| (axis(ns).low, axis(ns).high);
        assert_eq!(ends(&[27, 2_004_605]), (1, 7));
        assert_eq!(ends(&[250, 300]), (2, 3));
        assert_eq!(ends(&[10, 1000]), (1, 3));
        assert_eq!(ends(&[0]), (0, 1));
        assert_eq!(ends(&[]), (0, 1));
        assert_eq!(ends(&[u64::MAX]), (19, 20));
        let axis = axis(&[10, 100_000]);
        assert_eq!([0, 10, 100, 1000, 100_000, u64::MAX].map(|ns| axis.y(ns)), [40, 40, 30, 20, 0, 0]);
        let ticks: Vec<_> = axis.ticks().map(|(y, text)| format!("{y} {text}")).collect();
        assert_eq!(ticks, ["40 10 ns", "30 100 ns", "20 1 us", "10 10 us", "0 100 us"]);
    }

    #[test]
    fn times_have_round_ticks() {
        let axis = TimeAxis::new(1_000_007, 1_000_007 + 16_300_000, 200);
        assert_eq!(
            [1_000_006, 1_000_007, 17_300_007, 17_300_008].map(|ns| axis.x(ns)),
            [None, Some(0), Some(199), None]
        );
        let ticks: Vec<_> = axis.ticks(40).into_iter().map(|(x, text)| format!("{x} {text}")).collect();
        assert_eq!(ticks, ["0 0 ns", "61 5 ms", "122 10 ms", "183 15 ms"]);
        assert_eq!(TimeAxis::new(5, 5, 10).ticks(1).len(), 2);
        assert_eq!(TimeAxis::new(0, u64::MAX, 2).x(u64::MAX), Some(1));
    }

    #[test]
    fn round_durations_are_short() {
        let texts = [0, 7, 1_000, 1_500, 20_000, 1_000_000, 2_500_000_000].map(short_duration);
        assert_eq!(texts, ["0 ns", "7 ns", "1 us", "1.5 us", "20 us", "1 ms", "2.5 s"]);
        assert_eq!([1, 3, 6, 11, 50, u64::MAX].map(round_step), [1, 5, 10, 20, 50, u64::MAX]);
    }
}
