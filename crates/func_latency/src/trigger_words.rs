//! What options of triggers and captures take: a time, a threshold, a rate.

use std::str::FromStr;

use crate::filter::Percentile;

/// `5ms`: a time, of at most a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationNs(pub u64);

/// The most that a time may be.
const DAY_NS: f64 = 86_400e9;

impl FromStr for DurationNs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // `s` ends the other units, too.
        let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
        let number = units.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, *ns)));
        let ns = number.and_then(|(digits, ns)| Some(digits.parse::<f64>().ok()? * ns));
        let ns = ns.filter(|ns| (0.0..=DAY_NS).contains(ns));
        ns.map(|ns| Self(ns.round() as u64))
            .ok_or_else(|| format!("`{text}` is no time (examples: 800ns  20us  5ms  1.5s)"))
    }
}

/// `5ms`, `p99.9` or `p99.9,1ms`: above which latency a call is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// A latency.
    Latency(DurationNs),
    /// A percentile of the last minute's latencies, but never below a floor.
    Percentile(Percentile, DurationNs),
}

impl FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.starts_with('p') {
            return text.parse().map(Self::Latency);
        }
        let (percentile, floor) = text.split_once(',').unwrap_or((text, "0ns"));
        let percentile: Percentile = percentile.parse()?;
        if percentile.0 >= 1000 {
            return Err("no call takes longer than the longest: take p99.9 or less".to_owned());
        }
        Ok(Self::Percentile(percentile, floor.parse()?))
    }
}

/// `1/10s`: how many, in any such time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub number: u32,
    /// In this time.
    pub per: DurationNs,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no rate (examples: 1/10s  20/1s)");
        let (number, per) = text.split_once('/').ok_or_else(wrong)?;
        let number =
            number.parse().ok().filter(|number| (1..=RATE_MAX).contains(number)).ok_or_else(wrong)?;
        let per = per.parse().map_err(|_| wrong())?;
        Ok(Self { number, per })
    }
}

/// The most captures in a time of [`Rate`]: their times are kept.
const RATE_MAX: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let of = |text: &str| text.parse::<DurationNs>().map(|time| time.0);
        assert_eq!(
            ["800ns", "20us", "5ms", "1.5s"].map(|text| of(text).unwrap()),
            [800, 20_000, 5_000_000, 1_500_000_000]
        );
        for wrong in ["", "5", "ms", "-1ms", "1m", "100000s", "NaNs", "infs"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_threshold_is_a_latency_or_a_percentile_with_a_floor() {
        let of = |text: &str| text.parse::<Over>();
        assert_eq!(of("5ms"), Ok(Over::Latency(DurationNs(5_000_000))));
        assert_eq!(of("p99.9"), Ok(Over::Percentile(Percentile(999), DurationNs(0))));
        assert_eq!(of("p99,1us"), Ok(Over::Percentile(Percentile(990), DurationNs(1000))));
        for wrong in ["p100", "p", "p99,", "5", "p99.99"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_rate_is_a_number_in_a_time() {
        assert_eq!("1/10s".parse(), Ok(Rate { number: 1, per: DurationNs(10_000_000_000) }));
        for wrong in ["1", "0/1s", "1/", "/1s", "1/1", "10001/1s"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }
}
