//! What the probes of a function add to its calls, measured on the target's own calls.
//!
//! ```text
//!   entry's probe  | 1 instruction | probe at the second one
//!   |-------t------|               |-----t-------|             t: a probe reads the clock
//!           |===== measured =======|
//!
//!   entry's probe  | call                   | probe at its end
//!   |-------t------|                        |-----t-------|
//!           |======| added                  |=====| added
//! ```
//! Functions of our own ([`crate::EndCosts`]) do not have the target's caches and neighbours: what they tell
//! of a call of the target is a wide range.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use model::{LostCalls, Ns, OffCpuInterval, ProbeSink, ProbeTime, ProbedCall, ProbedThread};

use crate::cost::percentile;

/// A virtual machine has spells of some 10 ms in which a trap takes longer.
const AT_LEAST: Duration = Duration::from_millis(30);
/// How long it may take where a function has few calls.
const AT_MOST: Duration = Duration::from_millis(100);
/// Calls of a function that are enough.
const ENOUGH: usize = 200;
/// Calls that say nothing: fewer than these.
const FEW: usize = 32;

/// Times from the probe at the entry to the one at the second instruction.
pub(crate) struct Entries {
    begun: Instant,
    /// In ns, by function.
    times: BTreeMap<usize, Vec<u64>>,
}

impl Entries {
    /// Of these functions, from now on.
    pub(crate) fn of(functions: impl Iterator<Item = usize>) -> Self {
        Self { begun: Instant::now(), times: functions.map(|function| (function, Vec::new())).collect() }
    }

    /// Whether there are enough of all functions, or no time is left.
    pub(crate) fn are_enough(&self) -> bool {
        let elapsed = self.begun.elapsed();
        let is_measured = elapsed >= AT_LEAST && self.times.values().all(|times| times.len() >= ENOUGH);
        is_measured || elapsed >= AT_MOST
    }

    /// Where they lie, of each of so many functions.
    pub(crate) fn ranges(&self, functions: usize) -> Vec<Option<ProbeTime>> {
        (0..functions).map(|function| range(self.times.get(&function)?)).collect()
    }
}

/// Where half of the times lie, and their mean, as sums have it; `None`: there are too few.
fn range(times: &[u64]) -> Option<ProbeTime> {
    if times.len() < FEW {
        return None;
    }
    let of = |per_cent| percentile(times.iter().copied(), per_cent);
    let sum = times.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
    let most_ns = of(75).max(sum / times.len() as u64);
    Some(ProbeTime { least_ns: of(25), most_ns, rare_ns: of(99).max(most_ns) }.widened())
}

impl ProbeSink for Entries {
    fn second(&mut self, call: &ProbedCall) {
        let ns = call.end.since(call.start).saturating_sub(call.off_cpu.total_ns());
        self.times.get_mut(&call.function).into_iter().for_each(|times| times.push(ns));
    }

    fn slice_begins(&mut self, _: Ns, _: bool) {}

    fn slice_ends(&mut self, _: Ns) {}

    fn call(&mut self, _: &ProbedCall) {}

    fn off_cpu(&mut self, _: &OffCpuInterval) {}

    fn lost(&mut self, _: &LostCalls) {}

    fn thread(&mut self, _: &ProbedThread) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_has_half_of_the_times_and_their_mean() {
        let times: Vec<u64> = (1..=100).map(|ns| 1_000 + ns).collect();
        let expected = ProbeTime { least_ns: 1_025, most_ns: 1_075, rare_ns: 1_099 };
        assert_eq!(range(&times), Some(expected.widened()));
        // Interrupts: 2 of 100.
        let interrupted: Vec<u64> = times.iter().map(|ns| if *ns > 1_098 { 10_000 } else { *ns }).collect();
        let expected = ProbeTime { least_ns: 1_025, most_ns: 1_228, rare_ns: 10_000 };
        assert_eq!(range(&interrupted), Some(expected.widened()));
    }

    #[test]
    fn a_few_times_say_nothing() {
        assert_eq!(range(&[1_000; FEW - 1]), None);
        assert!(range(&[1_000; FEW]).is_some());
    }
}
