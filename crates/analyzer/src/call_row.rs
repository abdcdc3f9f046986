//! One call, as the rows of a report have it.

use serde::{Deserialize, Serialize};
use std::fmt;

use model::{AuxOffset, Cpu, FunctionId, Ns, Pid, Tid};

use crate::counted::Counted;
use crate::place::CalledFrom;
use crate::status::CallEnd;
use crate::total::{RunningTotal, Total};

/// Name of a call: stable over runs, workers and other options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallId {
    /// Thread.
    pub tid: Tid,
    /// Its place among the entries of its function in the thread, from 0.
    pub number: u64,
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.tid.0, self.number)
    }
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRow {
    /// Its name.
    pub id: CallId,
    /// Process, if that is known.
    pub pid: Option<Pid>,
    /// CPU at entry, if the switch records say.
    pub cpu: Option<Cpu>,
    /// When it was entered (`OpenStart`: first seen).
    pub start_ns: Ns,
    /// How long it took; of an incomplete call "at least".
    pub latency_ns: u64,
    /// The true latency differs from `latency_ns` by at most this; of an incomplete call, the true "at
    /// least".
    pub error_ns: u64,
    /// Of the latency, off the CPU; `None`: not known.
    pub off_cpu_ns: Option<u64>,
    /// How it ended.
    pub end: CallEnd,
    /// What entered it, and where.
    pub from: CalledFrom,
    /// The function.
    pub function: FunctionId,
    /// Activations of the same function below it on the stack.
    pub depth: u32,
    /// What it is known by.
    pub evidence: Evidence,
}

/// What a call is known by: the trace, or probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evidence {
    /// It was traced.
    Traced(TracedRow),
    /// Probes have timed it.
    Probed(ProbedRow),
}

/// What the trace has of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedRow {
    /// perf's number of the AUX buffer that has its entry, if known.
    pub aux_buffer: Option<u32>,
    /// The packet of its entry.
    pub aux_offset: AuxOffset,
    /// It ran outside of the IP filter, called by code inside of it.
    pub hidden: bool,
    /// What it executed; `None`: counters were not asked for, or it was not seen from entry to end.
    pub counted: Option<Counted>,
}

impl CallRow {
    /// It has room for what took this time inside of it, on and off the CPU.
    pub(crate) fn has_room_for(&self, inside: &Total) -> bool {
        let off_cpu = inside.off_cpu_ns.zip(self.off_cpu_ns);
        inside.sum_ns <= self.latency_ns && off_cpu.is_none_or(|(inside, all)| inside <= all)
    }
}

/// What probes measured of a call: `latency_ns` is that without what they added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbedRow {
    /// From the probe at its entry to the one at its end.
    pub measured_ns: u64,
    /// Of that, off the CPU: also where it was probably preempted in a probe.
    pub measured_off_cpu_ns: u64,
    /// The least that the call took by itself, if its probes took what nine of ten take.
    pub least_ns: u64,
    /// The most, if they took as little as they can.
    pub most_ns: u64,
    /// It may have been shorter than `least_ns` by this, if they took what one of 100 takes.
    pub rare_ns: u64,
    /// Where it began.
    pub began: SliceKind,
    /// The part of it in which its children were probed.
    pub(crate) with_children: RunningTotal,
}

/// What a slice of the window is like ([`model::ProbedSlice`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SliceKind {
    /// Only the wanted functions are probed.
    Alone,
    /// Their children are, too.
    WithChildren,
    /// Probes are being placed or removed.
    Between,
}

impl ProbedRow {
    /// Of a call to which its probes added nothing.
    #[must_use]
    pub fn exact(latency_ns: u64, off_cpu_ns: u64, began: SliceKind) -> Self {
        Self {
            measured_ns: latency_ns,
            measured_off_cpu_ns: off_cpu_ns,
            least_ns: latency_ns,
            most_ns: latency_ns,
            rare_ns: 0,
            began,
            with_children: RunningTotal::default(),
        }
    }
}

impl SliceKind {
    /// Name in rows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::WithChildren => "with_children",
            Self::Between => "between",
        }
    }
}

impl CallRow {
    /// What the trace has of it, if it was traced.
    #[must_use]
    pub const fn traced(&self) -> Option<&TracedRow> {
        match &self.evidence {
            Evidence::Traced(traced) => Some(traced),
            Evidence::Probed(_) => None,
        }
    }

    /// What probes measured, if they have timed it.
    #[must_use]
    pub const fn probed(&self) -> Option<&ProbedRow> {
        match &self.evidence {
            Evidence::Traced(_) => None,
            Evidence::Probed(probed) => Some(probed),
        }
    }

    /// The packet of its entry, if it was traced.
    #[must_use]
    pub fn aux_offset(&self) -> Option<AuxOffset> {
        self.traced().map(|traced| traced.aux_offset)
    }

    /// It ran outside of the IP filter: [`TracedRow::hidden`].
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        self.traced().is_some_and(|traced| traced.hidden)
    }

    /// What it executed, if that is known: [`TracedRow::counted`].
    #[must_use]
    pub fn counted(&self) -> Option<&Counted> {
        self.traced().and_then(|traced| traced.counted.as_ref())
    }

    /// The order in which open calls are listed: the longest first.
    pub(crate) fn open_order(&self) -> impl Ord + use<> {
        let which = (self.start_ns, self.id, self.pid, self.depth);
        let times = (self.latency_ns, self.error_ns, self.off_cpu_ns);
        // Two recordings of one run have the same calls in other places of the trace.
        let place = (self.cpu, self.traced().map(|traced| (traced.aux_buffer, traced.aux_offset)));
        (std::cmp::Reverse(self.at_least_ns()), which, times, place)
    }

    /// The first in that order.
    pub(crate) fn first_of(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).min_by_key(Self::open_order)
    }

    /// What it has taken for certain.
    #[must_use]
    pub const fn at_least_ns(&self) -> u64 {
        self.latency_ns.saturating_sub(self.error_ns)
    }

    /// The least and the most that enter the bounds of the figures: for a probed call, the usual ones.
    #[must_use]
    pub const fn bounds_ns(&self) -> (u64, u64) {
        match self.probed() {
            Some(probed) => (probed.least_ns, probed.most_ns),
            None => (self.at_least_ns(), self.latency_ns.saturating_add(self.error_ns)),
        }
    }

    /// How far off it usually is.
    #[must_use]
    pub const fn usual_error_ns(&self) -> u64 {
        let (least_ns, most_ns) = self.bounds_ns();
        let (below, above) =
            (self.latency_ns.saturating_sub(least_ns), most_ns.saturating_sub(self.latency_ns));
        if below > above { below } else { above }
    }

    /// Its end, by the clock of its start: with what probes added, if it was probed.
    #[must_use]
    pub const fn end_ns(&self) -> u64 {
        let took_ns = match self.probed() {
            Some(probed) => probed.measured_ns,
            None => self.latency_ns,
        };
        self.start_ns.0.saturating_add(took_ns)
    }

    /// Where it began; a call that was traced is seen whole, wherever that was.
    #[must_use]
    pub const fn began(&self) -> SliceKind {
        match self.probed() {
            Some(probed) => probed.began,
            None => SliceKind::Alone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;

    /// Two recordings of one program, of which other trace was lost: what was listed first depended on the
    /// order in which their summaries were merged.
    #[test]
    fn open_calls_that_differ_in_their_place_only_have_an_order() {
        let tid = Tid(7);
        let row = |offset| CallRow {
            id: CallId { tid, number: 0 },
            pid: None,
            cpu: None,
            start_ns: Ns(5),
            latency_ns: 9,
            error_ns: 1,
            off_cpu_ns: None,
            end: CallEnd::of(Status::OpenEnd),
            from: CalledFrom::UNKNOWN,
            function: FunctionId(1),
            depth: 0,
            evidence: Evidence::Traced(TracedRow { aux_offset: AuxOffset(offset), ..TracedRow::default() }),
        };
        assert!(row(3).open_order() < row(4).open_order());
    }
}
