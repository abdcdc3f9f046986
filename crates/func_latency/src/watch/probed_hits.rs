//! Hits that probes see, on their way to the thread that makes captures.
//!
//! ```text
//!   probes  --call, entry-->  gate: within the rate? above the floor?  --> the rings are copied, at once
//!                                                                      \-> the capture, when that is done
//! ```

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::allowance::Allowance;
use super::captures::Floor;
use super::triggers::Hit;
use crate::trigger_words::Rate;

/// A hit for which the rings are being copied.
#[derive(Debug)]
pub(super) struct ProbedHit {
    /// That of the copies.
    pub(super) number: u64,
    /// Its times are of `CLOCK_MONOTONIC`, and it has no function.
    pub(super) hit: Hit,
    /// The function that was called, if it is a call, and its object.
    pub(super) function: Option<(String, String)>,
}

/// Hits that probes have seen.
pub(super) struct ProbedHits {
    hits: Receiver<ProbedHit>,
    pub(super) gate: Arc<Gate>,
    /// There are probes.
    pub(super) are_looked_for: bool,
}

impl ProbedHits {
    /// There are no probes.
    pub(super) fn none(rate: Rate) -> Self {
        let (_, hits) = mpsc::channel();
        Self { hits, gate: Arc::new(Gate::new(rate)), are_looked_for: false }
    }

    /// There are probes, which tell of hits by the sender.
    #[cfg(feature = "bpf")]
    pub(super) fn looked_for(rate: Rate) -> (mpsc::Sender<ProbedHit>, Self) {
        let (sender, hits) = mpsc::channel();
        (sender, Self { hits, gate: Arc::new(Gate::new(rate)), are_looked_for: true })
    }

    /// Those since it was asked last.
    pub(super) fn take(&self) -> Vec<ProbedHit> {
        self.hits.try_iter().collect()
    }
}

/// Says for which hits the rings are copied: a copy stops the trace, so it is made for no hit that gets no
/// capture.
#[derive(Debug)]
pub(super) struct Gate(Mutex<GateState>);

#[derive(Debug)]
struct GateState {
    /// There is trace to copy.
    is_open: bool,
    #[cfg_attr(not(feature = "bpf"), expect(dead_code, reason = "there are no hits"))]
    allowance: Allowance,
    floor: Option<Floor>,
    left_out: LeftOut,
}

/// Hits for which nothing was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub(super) beyond_rate: u64,
    pub(super) less_slow: u64,
}

impl Gate {
    fn new(rate: Rate) -> Self {
        let (allowance, left_out) = (Allowance::new(rate), LeftOut::default());
        Self(Mutex::new(GateState { is_open: false, allowance, floor: None, left_out }))
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on there is trace to copy; hits before are forgotten.
    pub(super) fn open(&self) {
        self.state().is_open = true;
    }

    /// Hits below this get no capture any more.
    pub(super) fn set_floor(&self, floor: Option<Floor>) {
        self.state().floor = floor;
    }

    /// What was left out since it was asked last.
    pub(super) fn take_left_out(&self) -> LeftOut {
        std::mem::take(&mut self.state().left_out)
    }

    /// Whether the rings are copied for this hit; they come by their ends.
    #[cfg(feature = "bpf")]
    pub(super) fn admits(&self, hit: &Hit) -> bool {
        let mut state = self.state();
        if !state.is_open {
            return false;
        }
        let end = hit.span.1;
        if !state.allowance.has_room(end) {
            state.left_out.beyond_rate += 1;
            return false;
        }
        if state.floor.is_some_and(|floor| floor.is_above(hit)) {
            state.left_out.less_slow += 1;
            return false;
        }
        state.allowance.use_up(end);
        true
    }

    /// Counts hits that were not looked at, because there were too many.
    #[cfg(feature = "bpf")]
    pub(super) fn leave_out(&self, hits: u64) {
        let mut state = self.state();
        if state.is_open {
            state.left_out.beyond_rate += hits;
        }
    }
}

#[cfg(all(test, feature = "bpf"))]
mod tests {
    use model::{Ns, Tid};

    use super::*;
    use crate::trigger_words::DurationNs;

    /// A call that ends at a time, or an entry then.
    fn hit(at: u64, latency_ns: Option<u64>) -> Hit {
        Hit { latency_ns, ..Hit::at(Ns(at), Some(Tid(7)), "hit", String::new()) }
    }

    #[test]
    fn rings_are_copied_for_hits_within_the_rate_once_there_is_trace() {
        let gate = Gate::new(Rate { number: 1, per: DurationNs(10) });
        assert!(!gate.admits(&hit(5, None)), "there is no trace yet");
        gate.leave_out(3);
        gate.open();
        assert_eq!(gate.take_left_out(), LeftOut::default());
        assert!(gate.admits(&hit(6, Some(100))));
        assert!(!gate.admits(&hit(15, Some(200))));
        gate.leave_out(2);
        assert!(gate.admits(&hit(16, None)));
        assert_eq!(gate.take_left_out(), LeftOut { beyond_rate: 3, less_slow: 0 });
    }

    #[test]
    fn no_ring_is_copied_for_a_hit_that_no_capture_would_stay_of() {
        let gate = Gate::new(Rate { number: 1, per: DurationNs(10) });
        gate.open();
        gate.set_floor(Some(Floor::at(100)));
        assert!(!gate.admits(&hit(20, Some(100))));
        assert!(!gate.admits(&hit(21, None)));
        assert_eq!(gate.take_left_out(), LeftOut { beyond_rate: 0, less_slow: 2 });
        assert!(gate.admits(&hit(22, Some(101))), "those that were left out use nothing up");
    }
}
