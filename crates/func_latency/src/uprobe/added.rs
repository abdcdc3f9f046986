//! What probes add to calls: by the target's own calls where these were measured, else by functions of ours.

use bpf::EndCosts;
use model::{ProbeCost, ProbeTime};

use super::functions::Candidate;

/// What was measured before the window.
#[derive(Clone, Debug)]
pub(super) struct Added {
    /// By functions of our own.
    own: EndCosts,
    /// What a candidate's probes add to its calls in the target; `None`: it had too few calls.
    entries: Vec<Option<ProbeTime>>,
}

impl Added {
    pub(super) const fn new(own: EndCosts, entries: Vec<Option<ProbeTime>>) -> Self {
        Self { own, entries }
    }

    /// Of each candidate, before the window.
    pub(super) fn before(&self, candidates: &[Candidate]) -> Vec<ProbeCost> {
        self.with(candidates, &self.own)
    }

    /// Of each candidate; `now`: what functions of our own have told since.
    pub(super) fn with(&self, candidates: &[Candidate], now: &EndCosts) -> Vec<ProbeCost> {
        let of = |(index, candidate): (usize, &Candidate)| {
            let points = &candidate.probed.points;
            let (own, now) = (self.own.of(points), now.of(points));
            let Some(entry) = self.entries.get(index).copied().flatten() else { return now.probes };
            let inside = entry.or(entry.at_speed(own.light_ns, now.light_ns));
            let mut cost = now.probes;
            cost.returned.inside = inside;
            cost.jumped.inside = inside;
            cost
        };
        candidates.iter().enumerate().map(of).collect()
    }

    /// Whether the target's own calls told what probes add to those of a candidate.
    pub(super) fn is_of_target(&self, index: usize) -> bool {
        self.entries.get(index).is_some_and(Option::is_some)
    }
}

/// What lies between these, candidate by candidate.
pub(super) fn join(costs: &mut [ProbeCost], now: &[ProbeCost]) {
    for (cost, now) in costs.iter_mut().zip(now) {
        *cost = cost.or(*now);
    }
}
