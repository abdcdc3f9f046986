//! A region that has begun and not ended.

use model::{Avma, Counters};

use crate::regions::AtMark;
use crate::running::Activation;

/// An open region, beside the frame that it is in.
#[derive(Debug)]
pub(crate) struct OpenRegion {
    /// Index of its frame.
    pub(crate) frame: usize,
    /// Where the nodes of its tree begin, while one is gathered.
    pub(crate) first: usize,
    /// What it gathers, as a call of a function does.
    pub(crate) activation: Activation,
    /// What it began at.
    pub(crate) mark: AtMark,
    /// Where in its frame's function it began; `None`: with the frame, and it has the frame's caller.
    pub(crate) begin: Option<Avma>,
    /// The thread's off-CPU time then.
    pub(crate) off_cpu_ns: u64,
    /// The thread's counters then.
    pub(crate) counters: Counters,
    /// It ends where the current event leads to.
    pub(crate) is_at_end: bool,
}
