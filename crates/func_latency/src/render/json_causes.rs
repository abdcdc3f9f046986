//! Why calls were off the CPU, as JSON.

use analyzer::{OffCpuCauses, ReasonRow, ToldBy, Waker, WakerRow, WakerStackRow};
use model::OffCpuSplit;
use serde::Serialize;

use super::names::{Names, reason_kind, reason_name, waker_name};

/// Of the outermost counted calls.
#[derive(Serialize)]
pub(super) struct Causes {
    /// `scheduler`; `switch records`: then there are no reasons and wakers, and a thread that waits for a CPU
    /// after a wake-up is blocked.
    told_by: &'static str,
    #[serde(flatten)]
    split: Split,
    reasons: Vec<ReasonEntry>,
    wakers: Vec<WakerEntry>,
}

#[derive(Serialize)]
struct Split {
    /// Asleep.
    blocked_ns: u64,
    /// Woken up, waiting for a CPU; null: not known.
    runnable_ns: Option<u64>,
    /// Not asleep, waiting for a CPU.
    preempted_ns: u64,
}

#[derive(Serialize)]
struct ReasonEntry {
    name: String,
    kind: &'static str,
    count: u64,
    #[serde(flatten)]
    split: Split,
}

#[derive(Serialize)]
struct WakerEntry {
    name: String,
    /// Null: an interrupt.
    pid: Option<i32>,
    tid: Option<i32>,
    count: u64,
    blocked_ns: u64,
    /// Where in its own code it was, if that was recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stacks: Vec<WakerStackEntry>,
}

#[derive(Serialize)]
struct WakerStackEntry {
    /// Innermost first.
    functions: Vec<String>,
    count: u64,
    blocked_ns: u64,
}

impl Causes {
    pub(super) fn new(causes: &OffCpuCauses, names: &dyn Names) -> Self {
        let split = split(causes.split);
        match causes.told_by {
            ToldBy::SwitchRecords => Self {
                told_by: "switch records",
                split: Split { runnable_ns: None, ..split },
                reasons: Vec::new(),
                wakers: Vec::new(),
            },
            ToldBy::Scheduler => Self {
                told_by: "scheduler",
                split,
                reasons: causes.reasons.iter().map(reason).collect(),
                wakers: causes.wakers.iter().map(|row| waker(row, names)).collect(),
            },
        }
    }
}

fn split(split: OffCpuSplit) -> Split {
    let OffCpuSplit { blocked_ns, runnable_ns, preempted_ns } = split;
    Split { blocked_ns, runnable_ns: Some(runnable_ns), preempted_ns }
}

fn reason(row: &ReasonRow) -> ReasonEntry {
    ReasonEntry {
        name: reason_name(&row.reason),
        kind: reason_kind(&row.reason),
        count: row.count,
        split: split(row.split),
    }
}

fn waker(row: &WakerRow, names: &dyn Names) -> WakerEntry {
    let (pid, tid) = match &row.waker {
        Waker::Interrupt => (None, None),
        Waker::Thread { pid, tid, .. } => (Some(pid.0), Some(tid.0)),
    };
    let stack = |row: &WakerStackRow| WakerStackEntry {
        functions: row.functions.iter().map(|id| names.function(*id)).collect(),
        count: row.count,
        blocked_ns: row.blocked_ns,
    };
    WakerEntry {
        name: waker_name(&row.waker),
        pid,
        tid,
        count: row.count,
        blocked_ns: row.blocked_ns,
        stacks: row.stacks.iter().map(stack).collect(),
    }
}
