//! Quantiles of times in ns.

/// Counts of times: exact below [`Histogram::LIMIT_NS`], all longer ones in one.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; Self::LIMIT_NS + 1], count: 0, max: 0 }
    }
}

impl Histogram {
    /// Longer times are not told apart, but for the maximum.
    pub const LIMIT_NS: usize = 100_000;

    /// Counts one.
    pub fn add(&mut self, ns: u64) {
        let slot = usize::try_from(ns).map_or(Self::LIMIT_NS, |ns| ns.min(Self::LIMIT_NS));
        self.counts[slot] += 1;
        self.count += 1;
        self.max = self.max.max(ns);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The smallest time that at least `per_million` of a million do not exceed; 0 if there are none.
    #[must_use]
    pub fn quantile(&self, per_million: u64) -> u64 {
        let rank = (self.count * per_million).div_ceil(1_000_000);
        let mut below = 0;
        let reaches = |count: &u64| {
            below += count;
            below >= rank
        };
        match self.counts.iter().position(reaches) {
            Some(slot) if slot < Self::LIMIT_NS => slot as u64,
            _ => self.max,
        }
    }
}

impl std::fmt::Display for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let quantiles =
            [("p50", 500_000), ("p90", 900_000), ("p99", 990_000), ("p99.9", 999_000), ("p99.99", 999_900)];
        for (name, per_million) in quantiles {
            write!(f, "{name} {} ", self.quantile(per_million))?;
        }
        write!(f, "max {}", self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_by_nearest_rank() {
        let mut times = Histogram::default();
        assert_eq!(times.quantile(500_000), 0);
        for ns in [1, 2, 3, 900_000] {
            times.add(ns);
        }
        assert_eq!([250_000, 500_000, 750_000, 750_001].map(|q| times.quantile(q)), [1, 2, 3, 900_000]);
        assert_eq!((times.count(), times.max()), (4, 900_000));
    }
}
