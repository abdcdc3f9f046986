//! A thread of the simulated program.

use model::{Executed, Tid};

use crate::calls::OpenCalls;
use crate::clock::Time;
use crate::kernel::Stay;
use crate::log::ThreadLog;
use crate::sigreturn::Onward;
use crate::slow_calls::SlowCall;
use crate::truth::Writer;
use model::Avma;

#[derive(Debug)]
pub(crate) struct ReplayedThread<'p> {
    pub(crate) tid: Tid,
    pub(crate) log: &'p ThreadLog,
    /// The next word of the log.
    pub(crate) at: usize,
    pub(crate) truth: Writer,
    /// The thread's time while it runs.
    pub(crate) now: Time,
    /// When it can run again.
    pub(crate) ready: Time,
    /// It was born.
    pub(crate) runnable: bool,
    /// It ended, or nothing more of it is recorded.
    pub(crate) done: bool,
    /// The CPU that it ran on last.
    pub(crate) cpu: Option<usize>,
    /// The block that ran last; what its end did is not known yet.
    pub(crate) previous: Option<u32>,
    /// In a system call.
    pub(crate) in_kernel: bool,
    /// In the `rt_sigreturn` of a handler, if in a system call.
    pub(crate) is_returning: bool,
    /// Where in the kernel, if that is traced.
    pub(crate) stay: Option<Stay>,
    /// When the system call began, in real ns.
    pub(crate) syscall_began_ns: u64,
    /// It was interrupted here and goes on here.
    pub(crate) resume: Option<Avma>,
    /// Where its calls return to.
    pub(crate) calls: OpenCalls,
    /// Where handlers of signals came that have not returned, outermost first.
    pub(crate) interrupted: Vec<Onward>,
    pub(crate) next_tick: Option<Time>,
    pub(crate) slow_call: Option<SlowCall>,
    pub(crate) blocks: u64,
    pub(crate) instructions: u64,
    /// What was executed of user code in the filter.
    pub(crate) executed: Executed,
    /// Instructions of the block that ran last, which come after where it was interrupted.
    pub(crate) unexecuted: u64,
    /// Core cycles that passed in user code in the filter.
    pub(crate) cycles: u64,
    /// The trace unit's counter when such code began to run, if it runs.
    pub(crate) counts_since: Option<u64>,
}

impl<'p> ReplayedThread<'p> {
    pub(crate) fn new(log: &'p ThreadLog, main: bool) -> Self {
        Self {
            tid: log.tid,
            log,
            at: 0,
            truth: Writer::new(),
            now: Time::START,
            ready: Time::START,
            runnable: main,
            done: false,
            cpu: None,
            previous: None,
            in_kernel: true,
            is_returning: false,
            stay: None,
            syscall_began_ns: 0,
            resume: None,
            calls: OpenCalls::default(),
            interrupted: vec![],
            next_tick: None,
            slow_call: None,
            blocks: 0,
            instructions: 0,
            executed: Executed::default(),
            unexecuted: 0,
            cycles: 0,
            counts_since: None,
        }
    }
}
