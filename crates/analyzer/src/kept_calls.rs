//! Calls that have ended in a run ([`crate::digest`]), for its turn.

use crate::call_row::CallRow;
use crate::children::Child;
use crate::running::EndedCall;
use crate::slowest::SlowestCalls;
use crate::total::RunningTotal;

/// Which calls of a run are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// Their sums do.
    Nothing,
    /// Beside their sums, as [`SlowestCalls`] does.
    Slowest,
    /// Each is wanted in order; they are not added up.
    All,
}

/// The calls of a run that are kept.
#[derive(Default)]
pub(crate) enum RunCalls {
    #[default]
    Nothing,
    Slowest(SlowestCalls),
    All(KeptCalls),
}

impl RunCalls {
    pub(crate) fn new(keeps: Keeps) -> Self {
        match keeps {
            Keeps::Nothing => Self::Nothing,
            Keeps::Slowest => Self::Slowest(SlowestCalls::default()),
            Keeps::All => Self::All(KeptCalls::default()),
        }
    }
}

/// Calls of wanted functions, in the order of their ends.
#[derive(Default)]
pub(crate) struct KeptCalls {
    calls: Vec<KeptCall>,
    /// Of all calls, one after the other.
    children: Vec<(Child, RunningTotal)>,
}

struct KeptCall {
    wanted: u32,
    row: CallRow,
    off_cpu_ns: (u64, u64),
    /// Place after its last child.
    children_end: usize,
}

impl KeptCalls {
    /// Keeps the next call.
    pub(crate) fn push(&mut self, wanted: u32, call: &EndedCall<'_>) {
        let &EndedCall { row, children, off_cpu_ns, .. } = call;
        self.children.extend_from_slice(children);
        self.calls.push(KeptCall { wanted, row: *row, off_cpu_ns, children_end: self.children.len() });
    }

    /// The calls, each with its function.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, EndedCall<'_>)> {
        let mut first = 0;
        self.calls.iter().map(move |KeptCall { wanted, row, off_cpu_ns, children_end }| {
            let children = self.children.get(first..*children_end).unwrap_or_default();
            first = *children_end;
            (*wanted, EndedCall { row, children, counted: &[], code: &[], off_cpu_ns: *off_cpu_ns })
        })
    }
}
