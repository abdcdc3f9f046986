//! A call that matters to the request while it runs.

use crate::call_row::CallRow;
use crate::children::{Child, RunningSums};
use crate::counted::Counted;
use crate::own_code::{CodeSpan, RunningCode};
use crate::passed::Passed;
use crate::request::Role;
use crate::total::RunningTotal;
use crate::tree::CallTree;
use model::{AuxOffset, Cpu, EventTime};

/// What a call of a wanted function (or of the ancestor) gathers while it runs.
#[derive(Debug, Default)]
pub(crate) struct Activation {
    /// What its function is to the request.
    pub(crate) role: Role,
    /// It was reported before (cut), and was found running again.
    pub(crate) reported: bool,
    /// Place among the entries of the function in the thread.
    pub(crate) number: u64,
    /// Open activations of the function below.
    pub(crate) depth: u32,
    /// The sink wants its tree.
    pub(crate) has_tree: bool,
    pub(crate) cpu: Option<Cpu>,
    pub(crate) at: AuxOffset,
    /// Its frame has only the estimate.
    pub(crate) start: EventTime,
    pub(crate) children: RunningSums<Child>,
    /// Of its own code, if that is asked for.
    pub(crate) code: RunningCode,
    /// What came and went above it out of sight.
    pub(crate) passed: Passed,
    /// Calls that wait for this ancestor's latency.
    pub(crate) waiting: Vec<WaitingCall>,
}

impl Activation {
    /// It stands for what made a run of calls ([`crate::runs`]), which may be no call of a wanted function.
    pub(crate) fn is_floor(&self) -> bool {
        self.role == Role::default()
    }
}

/// A call that enters the figures if its ancestor's latency fits.
#[derive(Debug)]
pub(crate) struct WaitingCall {
    pub(crate) wanted: u32,
    pub(crate) row: CallRow,
    /// The thread's off-CPU time at its begin and at its end.
    pub(crate) off_cpu_ns: (u64, u64),
    pub(crate) children: Vec<(Child, RunningTotal)>,
    /// What each child executed; empty where counters were not asked for.
    pub(crate) counted: Vec<Counted>,
    pub(crate) code: Vec<(CodeSpan, RunningTotal)>,
    pub(crate) tree: Option<CallTree>,
}

impl WaitingCall {
    pub(crate) fn ended(&self) -> EndedCall<'_> {
        let Self { row, children, counted, code, off_cpu_ns, .. } = self;
        EndedCall { row, children, counted, code, off_cpu_ns: *off_cpu_ns }
    }
}

/// A call of a wanted function that has ended.
pub(crate) struct EndedCall<'c> {
    pub(crate) row: &'c CallRow,
    pub(crate) children: &'c [(Child, RunningTotal)],
    /// What each child executed; empty where counters were not asked for.
    pub(crate) counted: &'c [Counted],
    pub(crate) code: &'c [(CodeSpan, RunningTotal)],
    /// The thread's off-CPU time at its begin and at its end.
    pub(crate) off_cpu_ns: (u64, u64),
}
