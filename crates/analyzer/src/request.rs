//! What is asked of the analysis, and what it may ask in turn.

use model::{
    AuxBuffer, Avma, CodeSource, FunctionId, FunctionLookup, FunctionSet, NoOffCpu, NoTimes, Ns, Recording,
    Schedule, Tid,
};
use rustc_hash::FxHashMap;

use crate::counted::Counted;

/// What the user wants to know.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The wanted functions; each gets a report of its own.
    pub functions: Vec<FunctionId>,
    /// Only calls below this one.
    pub ancestor: Option<Ancestor>,
    /// Only calls of such a latency (of an incomplete call, it is dropped once "at least" is above).
    pub latency: LatencyRange,
    /// Only calls that start in a window.
    pub starts: Option<StartWindow>,
    /// Only these threads; empty: all.
    pub tids: Vec<Tid>,
    /// Keep a row for every call.
    pub rows: bool,
    /// Keep the children of each row, too.
    pub row_children: bool,
    /// The programs may switch stacks (they import `swapcontext`, or are Go): control that no open frame
    /// explains is a stack switch, even where it could be an unwinding to a frame older than the recording.
    pub stack_switches: bool,
    /// Count what each call executes; `None`: not asked for, and nothing is spent on it.
    pub counters: Option<CountersAsked>,
}

/// What of a recording's counters is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountersAsked {
    /// The kernel was traced and its code is there, so that its instructions are counted.
    pub kernel: bool,
    /// The frequency of the bus clock; `None`: the recording does not say.
    pub bus_khz: Option<u64>,
}

impl CountersAsked {
    /// The core's frequency in MHz while this ran, as CBR packets say it; `None`: not known.
    #[must_use]
    pub fn mhz(&self, counted: &Counted) -> Option<f64> {
        Some(counted.core_to_bus()? * self.bus_khz? as f64 / 1000.0)
    }
}

/// A function that must be on the stack below a call, outside the call itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// The function.
    pub function: FunctionId,
    /// At least one of its activations there must take so long.
    pub latency: LatencyRange,
}

/// Latencies from `min_ns` to `max_ns`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyRange {
    /// Smallest.
    pub min_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

impl Default for LatencyRange {
    fn default() -> Self {
        Self::ALL
    }
}

impl LatencyRange {
    /// Any latency.
    pub const ALL: Self = Self { min_ns: 0, max_ns: u64::MAX };

    /// True if a call that took `latency_ns` fits.
    #[must_use]
    pub const fn contains(&self, latency_ns: u64) -> bool {
        self.min_ns <= latency_ns && latency_ns <= self.max_ns
    }

    /// True if a call that took `at_least_ns` or longer is certain to fit.
    #[must_use]
    pub const fn contains_from(&self, at_least_ns: u64) -> bool {
        self.min_ns <= at_least_ns && self.max_ns == u64::MAX
    }
}

/// Calls that start from `start + min_ns` to `start + max_ns`, both included (`--ti`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartWindow {
    /// Time of perf's clock.
    pub start: Ns,
    /// First offset.
    pub min_ns: u64,
    /// Last offset.
    pub max_ns: u64,
}

impl StartWindow {
    /// True if a call that starts at `time` fits.
    #[must_use]
    pub fn contains(&self, time: Ns) -> bool {
        let from = self.start.0.saturating_add(self.min_ns);
        let to = self.start.0.saturating_add(self.max_ns);
        from <= time.0 && time.0 <= to
    }
}

/// The recording, as far as the analysis needs it.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// Code bytes: which call is in front of a return address.
    pub code: &'a dyn CodeSource,
    /// Functions and places.
    pub functions: &'a dyn FunctionLookup,
    /// Context switches, births and deaths.
    pub schedule: &'a Schedule,
    /// First and last instant of the recording.
    pub window: (Ns, Ns),
    /// First instruction of the kernel's scheduler, if its range is in the IP filter and nothing else tells
    /// of switches: a thread is off its CPU from there until it has left the range for good.
    pub scheduler: Option<Avma>,
    /// Why no time is known, if none is.
    pub no_times: Option<NoTimes>,
    /// Only code inside IP filter ranges was traced.
    pub has_ip_filter: bool,
    /// Returns have bits, which say nothing where no code is at hand, and no addresses.
    pub has_compressed_returns: bool,
    /// CPUs were traced as a whole, and not tasks: the trace goes on through context switches.
    pub traces_whole_cpus: bool,
    /// Only a part of the recording is analysed: a call without a seen entry may be older than that.
    pub is_part: bool,
    /// The AUX buffers: their owners, and perf's numbers of them.
    pub buffers: &'a [AuxBuffer<'a>],
}

impl<'a> Surroundings<'a> {
    /// The surroundings of a recording with the code of `image`.
    #[must_use]
    pub fn of(
        recording: &'a Recording<'a>,
        schedule: &'a Schedule,
        image: &'a (impl CodeSource + FunctionLookup),
    ) -> Self {
        Self {
            code: image,
            functions: image,
            schedule,
            window: recording.time_span.unwrap_or((Ns(0), Ns(0))),
            scheduler: scheduler(recording, schedule),
            no_times: recording.no_times,
            has_ip_filter: recording.pt.has_ip_filter,
            has_compressed_returns: recording.pt.return_compression,
            traces_whole_cpus: recording.coverage.is_whole,
            is_part: false,
            buffers: &recording.buffers,
        }
    }

    /// Why off-CPU time is not known, if it is not.
    #[must_use]
    pub fn no_off_cpu(&self) -> Option<NoOffCpu> {
        if self.no_times.is_some() {
            return Some(NoOffCpu::NoTimes);
        }
        let is_told = self.schedule.has_switches() || self.scheduler.is_some();
        (!is_told).then_some(NoOffCpu::NoSwitches)
    }
}

/// The first instruction of the kernel's scheduler, where the recording tells of switches by its range in the
/// IP filter only.
#[must_use]
pub fn scheduler(recording: &Recording<'_>, schedule: &Schedule) -> Option<Avma> {
    recording.kernel_filter().filter(|_| !schedule.has_switches())
}

/// What a function is to the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Role {
    /// Index among the wanted functions.
    pub(crate) wanted: Option<u32>,
    /// It is the ancestor.
    pub(crate) ancestor: bool,
}

/// The roles of functions: asked at every call.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    functions: FunctionSet,
    roles: FxHashMap<FunctionId, Role>,
}

impl Roles {
    pub(crate) fn new(request: &Request) -> Self {
        let mut roles = Self::default();
        for (i, &id) in request.functions.iter().enumerate() {
            let role = roles.roles.entry(id).or_default();
            role.wanted = role.wanted.or(u32::try_from(i).ok());
        }
        if let Some(ancestor) = &request.ancestor {
            roles.roles.entry(ancestor.function).or_default().ancestor = true;
        }
        roles.functions = roles.roles.keys().copied().collect();
        roles
    }

    /// All that have one.
    pub(crate) fn functions(&self) -> &FunctionSet {
        &self.functions
    }

    /// The function has a role.
    #[inline(always)]
    pub(crate) fn has(&self, id: FunctionId) -> bool {
        self.functions.contains(id)
    }

    #[inline]
    pub(crate) fn get(&self, id: FunctionId) -> Option<Role> {
        if self.has(id) { self.roles.get(&id).copied() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_can_be_wanted_and_the_ancestor() {
        let ancestor = Ancestor { function: FunctionId(7), latency: LatencyRange::ALL };
        let request = Request {
            functions: vec![FunctionId(3), FunctionId(7)],
            ancestor: Some(ancestor),
            ..Request::default()
        };
        let roles = Roles::new(&request);
        assert_eq!(roles.get(FunctionId(7)), Some(Role { wanted: Some(1), ancestor: true }));
        assert_eq!(roles.get(FunctionId(3)), Some(Role { wanted: Some(0), ancestor: false }));
        assert_eq!(roles.get(FunctionId(3 + 64)), None);
        assert_eq!(roles.get(FunctionId(4)), None);
    }

    #[test]
    fn windows_include_both_ends() {
        let window = StartWindow { start: Ns(1000), min_ns: 10, max_ns: 20 };
        let inside: Vec<u64> = (1000..1030).filter(|&ns| window.contains(Ns(ns))).collect();
        assert_eq!((inside.first(), inside.last()), (Some(&1010), Some(&1020)));
        assert!(!LatencyRange { min_ns: 5, max_ns: 9 }.contains_from(6));
        assert!(LatencyRange { min_ns: 5, max_ns: u64::MAX }.contains_from(6));
    }
}
