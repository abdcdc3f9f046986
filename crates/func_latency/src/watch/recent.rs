//! The latencies of the last minute, rounded, for a percentile of them.

use std::collections::{BTreeMap, VecDeque};

use model::Ns;

use crate::filter::Percentile;

/// What is older counts no more.
const MINUTE_NS: u64 = 60_000_000_000;
/// Length of a slot: latencies are forgotten slot by slot.
const SLOT_NS: u64 = 1_000_000_000;
/// Calls beyond the percentile that must have been seen before it is known.
const BEYOND_MIN: u64 = 10;
/// First bits of a latency that are kept: latencies that are equal in them count as one.
const KEPT_BITS: u32 = 11;

/// The latencies of one function.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// By the time at which the slot began; the last one is being filled.
    slots: VecDeque<(Ns, BTreeMap<u64, u64>)>,
}

impl Recent {
    /// A part of the recording up to `time` begins: slots that are too old are forgotten.
    pub(super) fn begin(&mut self, time: Ns) {
        while self.slots.front().is_some_and(|(began, _)| began.0 + MINUTE_NS < time.0) {
            self.slots.pop_front();
        }
        if self.slots.back().is_none_or(|(began, _)| began.0 + SLOT_NS <= time.0) {
            self.slots.push_back((time, BTreeMap::new()));
        }
    }

    /// Adds the latency of a call that has ended.
    pub(super) fn add(&mut self, latency_ns: u64) {
        if let Some((_, slot)) = self.slots.back_mut() {
            *slot.entry(rounded(latency_ns)).or_default() += 1;
        }
    }

    /// The percentile, by nearest rank; `None`: too few calls are known.
    pub(super) fn percentile(&self, percentile: Percentile) -> Option<u64> {
        let mut all: BTreeMap<u64, u64> = BTreeMap::new();
        for (latency_ns, calls) in self.slots.iter().flat_map(|(_, slot)| slot) {
            *all.entry(*latency_ns).or_default() += calls;
        }
        let calls: u64 = all.values().sum();
        let beyond = 1000 - u64::from(percentile.0);
        if calls * beyond < BEYOND_MIN * 1000 {
            return None;
        }
        let rank = (calls * u64::from(percentile.0)).div_ceil(1000);
        let mut below = 0;
        let reaches = |(_, calls): &(&u64, &u64)| {
            below += *calls;
            below >= rank
        };
        // What was rounded to it is not beyond it.
        all.iter().find(reaches).map(|(latency_ns, _)| latency_ns | rounding(*latency_ns))
    }
}

/// The bits that are rounded off.
fn rounding(ns: u64) -> u64 {
    let bits = u64::BITS - ns.leading_zeros();
    (1 << bits.saturating_sub(KEPT_BITS)) - 1
}

/// Rounded down to 1/1024.
fn rounded(ns: u64) -> u64 {
    ns & !rounding(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_rounded_by_less_than_a_thousandth() {
        for ns in [0, 1, 1023, 2047, 2048, 2049, 4097, 1_000_003, u64::MAX] {
            let rounded = rounded(ns);
            assert!(rounded <= ns && (ns - rounded) as f64 <= ns as f64 / 1024.0, "{ns}: {rounded}");
            assert!(
                ns < 2048 || rounded.trailing_zeros() >= 53 - ns.leading_zeros().min(53),
                "{ns}: {rounded}"
            );
        }
    }

    #[test]
    fn a_percentile_is_of_the_last_minute() {
        let mut recent = Recent::default();
        recent.begin(Ns(0));
        (0..9_999).for_each(|_| recent.add(7_000));
        assert_eq!(recent.percentile(Percentile(999)), None, "ten calls are not beyond it");
        recent.begin(Ns(SLOT_NS));
        (1..=10_001).for_each(|ns| recent.add(ns % 1000));
        assert_eq!(recent.percentile(Percentile(500)), Some(999));
        assert_eq!(recent.percentile(Percentile(999)), Some(7_003), "7,000 with what is rounded to it");
        recent.begin(Ns(MINUTE_NS + 1));
        assert_eq!(recent.percentile(Percentile(999)), Some(998), "the first slot is forgotten");
        for second in 0..1000 {
            recent.begin(Ns(second * SLOT_NS));
            recent.add(1);
        }
        assert!(recent.slots.len() <= 62, "{} slots", recent.slots.len());
    }
}
