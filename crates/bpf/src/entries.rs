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
const AT_LEAST: Duration = Duration::from_millis(50);
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

/// Where most of the times lie, and their mean, as sums have it; `None`: there are too few.
fn range(times: &[u64]) -> Option<ProbeTime> {
    if times.len() < FEW {
        return None;
    }
    let of = |per_cent| percentile(times.iter().copied(), per_cent);
    let sum = times.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
    let most_ns = of(75).max(sum / times.len() as u64);
    Some(ProbeTime { least_ns: of(1), most_ns, rare_ns: of(99).max(most_ns) }.widened())
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
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use model::ProbedEnd;

    use super::*;
    use crate::attach::Part;
    use crate::cost::{ALONE, own_function};
    use crate::error::BpfError;
    use crate::idle;
    use crate::probe_points::Ends;
    use crate::session::{Room, Session};
    use crate::waker_stack::WakerStack;

    #[test]
    fn the_range_has_most_of_the_times_and_their_mean() {
        let times: Vec<u64> = (1..=100).map(|ns| 1_000 + ns).collect();
        let expected = ProbeTime { least_ns: 1_001, most_ns: 1_075, rare_ns: 1_099 };
        assert_eq!(range(&times), Some(expected.widened()));
        // Interrupts: 2 of 100.
        let interrupted: Vec<u64> = times.iter().map(|ns| if *ns > 1_098 { 10_000 } else { *ns }).collect();
        let expected = ProbeTime { least_ns: 1_001, most_ns: 1_228, rare_ns: 10_000 };
        assert_eq!(range(&interrupted), Some(expected.widened()));
    }

    /// Probed calls of our own function, made by a thread, are longer by about what these say.
    #[test]
    fn what_probes_add_is_measured_on_the_calls_themselves() {
        let _alone = ALONE.lock();
        let function = own_function(&idle::MOV, Ends::ByReturnAddress).unwrap();
        let room = Room { threads: 64, ring_bytes: 1 << 20 };
        let session = match Session::open(vec![function.clone()], room, Some(WakerStack::Kernel)) {
            Ok(session) => session,
            Err(error @ (BpfError::NotPermitted(_) | BpfError::NoBtf)) => {
                return println!("skipped: {error}");
            }
            Err(error) => panic!("{error}"),
        };
        let group = vec![(0, function)];
        let mut run = session.run().unwrap();
        run.keep(run.place(vec![group.clone()], Part::Both).unwrap()).unwrap();
        let is_over = AtomicBool::new(false);
        let mut seen = Times(Vec::new());
        let (ranges, removal) = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    idle::MOV.call();
                }
            });
            let measured = run.measure_entries(group).unwrap();
            run.time(false).unwrap();
            thread::sleep(Duration::from_millis(100));
            run.read(&mut seen).unwrap();
            is_over.store(true, Ordering::Relaxed);
            measured
        });
        removal.wait();
        let (summary, removal) = run.finish(&mut seen).unwrap();
        removal.wait();
        // What was seen before it was timed are none of its calls.
        assert!(seen.0.iter().all(|(start, _)| *start >= summary.window.0));
        let [Some(range)] = ranges[..] else { panic!("{ranges:?}") };
        let latency_ns = percentile(seen.0.iter().map(|(_, ns)| *ns), 50);
        println!("{range:?}; the calls took {latency_ns} ns");
        // The call itself takes some ns, and a machine that others share is slower by half for a while.
        assert!(
            latency_ns / 2 <= range.most_ns && range.least_ns <= 2 * latency_ns,
            "{range:?} {latency_ns}"
        );
    }

    /// Start and duration of calls that were seen whole.
    struct Times(Vec<(Ns, u64)>);

    impl ProbeSink for Times {
        fn slice_begins(&mut self, _: Ns, _: bool) {}

        fn slice_ends(&mut self, _: Ns) {}

        fn call(&mut self, call: &ProbedCall) {
            if call.end_kind == ProbedEnd::Return {
                self.0.push((call.start, call.end.since(call.start)));
            }
        }

        fn off_cpu(&mut self, _: &OffCpuInterval) {}

        fn lost(&mut self, _: &LostCalls) {}

        fn thread(&mut self, _: &ProbedThread) {}
    }

    #[test]
    fn a_few_times_say_nothing() {
        assert_eq!(range(&[1_000; FEW - 1]), None);
        assert!(range(&[1_000; FEW]).is_some());
    }
}
