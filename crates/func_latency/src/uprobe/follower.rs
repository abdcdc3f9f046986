//! Who follows a window: takes calls as they are seen, and hears how far it is.

use std::time::Duration;

use analyzer::ProbedAnalysis;
use anyhow::Result;
use model::{LostCalls, Ns, OffCpuInterval, ProbeCost, ProbeSink, ProbedCall, ProbedThread};

use super::guard::GuardCost;
use super::status::Status;
use crate::live_code::LiveCode;
use crate::target::Wanted;

/// How far a window is.
pub(crate) struct Passed<'a> {
    /// When the first call was timed.
    pub(crate) from: Ns,
    /// Everything up to here was read.
    pub(crate) now: Ns,
    /// How long the window is; `None`: that is not known.
    pub(crate) length: Option<Duration>,
    /// What probes have cost so far.
    pub(crate) cost: GuardCost,
    /// What is to be added to times to get real time.
    pub(crate) realtime_offset_ns: i64,
    /// The code that runs.
    pub(crate) code: &'a LiveCode,
    /// The functions that were asked for.
    pub(crate) wanted: &'a [Wanted],
    /// Calls of the first ones are timed; of the others entries are told.
    pub(crate) timed: usize,
    /// A line on a terminal.
    pub(crate) status: &'a Status,
}

impl Passed<'_> {
    /// How long the window has lasted.
    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now.since(self.from))
    }
}

/// Makes a follower when the window begins.
pub(crate) type BeginFollower<'f> = Box<dyn FnOnce(&Passed<'_>) -> Result<Box<dyn Follower + 'f>> + 'f>;

/// Follows a window.
pub(crate) trait Follower {
    /// Gives the analysis a call of a function that was asked for.
    fn call(&mut self, analysis: &mut ProbedAnalysis<'_>, call: &ProbedCall);

    /// Hears how far the window is. True: it is to end.
    ///
    /// # Errors
    /// It cannot be told.
    fn passed(&mut self, analysis: &mut ProbedAnalysis<'_>, passed: &Passed<'_>) -> Result<bool>;

    /// The window is over, and all of it was read.
    ///
    /// # Errors
    /// It cannot be told.
    fn ended(self: Box<Self>, _: &mut ProbedAnalysis<'_>, _: &Passed<'_>) -> Result<()> {
        Ok(())
    }
}

/// What the probes tell: to the analysis, calls that were asked for by way of the follower.
pub(super) struct Followed<'s, 'a> {
    pub(super) analysis: &'s mut ProbedAnalysis<'a>,
    pub(super) follower: &'s mut dyn Follower,
    /// The first functions were asked for.
    pub(super) asked: usize,
}

impl ProbeSink for Followed<'_, '_> {
    fn costs(&mut self, costs: &[ProbeCost]) {
        self.analysis.costs(costs);
    }

    fn slice_begins(&mut self, start: Ns, children: bool) {
        self.analysis.slice_begins(start, children);
    }

    fn slice_ends(&mut self, end: Ns) {
        self.analysis.slice_ends(end);
    }

    fn call(&mut self, call: &ProbedCall) {
        if call.function < self.asked {
            self.follower.call(self.analysis, call);
        } else {
            self.analysis.call(call);
        }
    }

    fn off_cpu(&mut self, interval: &OffCpuInterval) {
        self.analysis.off_cpu(interval);
    }

    fn lost(&mut self, lost: &LostCalls) {
        self.analysis.lost(lost);
    }

    fn thread(&mut self, thread: &ProbedThread) {
        self.analysis.thread(thread);
    }
}
