//! A thread's stay in the kernel, from the branch that enters it to the one that leaves it.
//!
//! ```text
//! traced     syscall, FUP TIP ... schedule ... | switch-out record ... wrmsr: FUP PGD
//! not traced                                     __switch_to, others run, finish_task_switch
//! traced                                         wrmsr: PGE ... switch-in record ... sysret, iret: TIP
//! ```
//! The driver's interrupt switches tracing off and on in the same way, but the thread stays.

use model::Avma;

use super::Mark;
use crate::block::Block;
use crate::pt_unit::Output;
use crate::slice::Slice;
use crate::truth::{Flags, Kind};

/// How the kernel is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelEntry {
    SystemCall,
    /// An interrupt or fault.
    Interrupt,
    /// The driver's: it switches tracing off and on.
    Nmi,
    /// By being born.
    Fork,
}

impl KernelEntry {
    const fn function(self) -> &'static str {
        match self {
            Self::SystemCall => "entry_SYSCALL_64",
            Self::Interrupt => "asm_sysvec_apic_timer_interrupt",
            Self::Nmi => "asm_exc_nmi",
            Self::Fork => "ret_from_fork_asm",
        }
    }
}

/// What the thread does in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    GoOn,
    /// It leaves its CPU.
    GiveWay,
}

/// Where in the kernel a thread is.
#[derive(Clone, Debug)]
pub(crate) struct Stay {
    /// The block that runs next.
    pub(crate) at: u32,
    /// The blocks that calls return to.
    pub(crate) callers: Vec<u32>,
    pub(crate) plan: Plan,
    /// Tracing is on (TraceEn).
    traced: bool,
}

impl Stay {
    pub(crate) fn new(at: u32, plan: Plan) -> Self {
        Self { at, callers: vec![], plan, traced: true }
    }
}

impl Slice<'_, '_> {
    /// Control enters the kernel from the instruction `from`; without a kernel that is traced, tracing ends.
    pub(crate) fn enter_kernel(&mut self, entry: KernelEntry, from: Avma, flags: Flags) {
        let by_call = entry == KernelEntry::SystemCall;
        let kind = if by_call { Kind::Syscall } else { Kind::Async };
        let mut to = None;
        if let Some(kernel) = self.world.kernel {
            let first = kernel.entry(entry.function());
            self.thread.stay = Some(Stay::new(first, Plan::GoOn));
            to = Some(kernel.block(first).start);
        }
        if !self.buffer.unit.enabled() {
            return;
        }
        let now = self.thread.now;
        let unit = &mut self.buffer.unit;
        let goes_on = to.filter(|&to| self.world.filter.contains(to));
        match (goes_on, by_call) {
            (Some(to), true) => unit.indirect(to, now),
            (Some(to), false) => unit.interrupt(from, to, now),
            (None, true) => unit.leave(to, false, now),
            (None, false) => unit.leave_async(from, to, now),
        }
        let mut flags = flags;
        if goes_on.is_none() {
            self.maybe_drop_returns();
            flags = if to.is_some() { flags | Flags::FILTER_OUT } else { flags };
        }
        self.event(kind, flags, from, to.unwrap_or_default());
    }

    /// The kernel goes to user code at `to`.
    pub(crate) fn leave_kernel(&mut self, to: Avma, signal_handler: bool) {
        let from = if self.world.kernel.is_some() { self.run_stay(None) } else { None };
        self.thread.stay = None;
        if !self.world.filter.contains(to) {
            return;
        }
        let flags = if signal_handler { Flags::SIGNAL } else { Flags::NONE };
        match from.filter(|_| self.buffer.unit.enabled()) {
            Some(from) => {
                self.buffer.unit.indirect(to, self.thread.now);
                self.event(Kind::Enter, flags, from.last, to);
            }
            None => {
                self.buffer.unit.enter(to, self.thread.now);
                self.event(Kind::Enter, flags, Avma(0), to);
            }
        }
    }

    /// Switches tracing off.  Returns when the record of a switch-out was written, if the kernel is traced.
    pub(crate) fn stop_tracing(&mut self) {
        if let Some(at) = self.run_to(Mark::TraceOff) {
            if self.buffer.unit.output() == Output::Overflow {
                self.buffer.hurry_overflow();
                self.end_overflow(Some(at));
            }
            if self.buffer.unit.enabled() {
                self.buffer.unit.leave_async(at, None, self.thread.now);
                self.maybe_drop_returns();
                self.event(Kind::Async, Flags::NONE, at, Avma(0));
            }
            self.set_traced(false);
        }
        self.buffer.unit.trace_off();
    }

    /// Switches tracing on.
    pub(crate) fn start_tracing(&mut self, force_psb: bool) {
        let at = self.run_to(Mark::TraceOn);
        self.buffer.unit.trace_on(force_psb, self.thread.now);
        if let Some(at) = at {
            self.set_traced(true);
            if self.world.filter.contains(at) {
                self.buffer.unit.enter(at, self.thread.now);
                self.event(Kind::Enter, Flags::NONE, Avma(0), at);
            }
        }
    }

    /// The thread will leave its CPU (or not) before it leaves the kernel.
    pub(crate) fn plan_stay(&mut self, plan: Plan) {
        if let Some(stay) = &mut self.thread.stay {
            stay.plan = plan;
        }
    }

    /// The thread is in the kernel, and tracing is off.
    pub(crate) fn begin_untraced_stay(&mut self, entry: KernelEntry) {
        if let Some(kernel) = self.world.kernel {
            let stay = Stay::new(kernel.entry(entry.function()), Plan::GoOn);
            self.thread.stay = Some(Stay { traced: false, ..stay });
        }
    }

    fn set_traced(&mut self, traced: bool) {
        if let Some(stay) = &mut self.thread.stay {
            stay.traced = traced;
        }
    }

    /// Runs kernel code up to a mark.  Returns the instruction there; `None` if there is no kernel.
    pub(crate) fn run_to(&mut self, mark: Mark) -> Option<Avma> {
        let kernel = self.world.kernel?;
        let end = self.run_stay(Some(mark));
        if end.is_some() {
            self.world.oddity("a stay in the kernel ended early");
        }
        Some(kernel.block(self.thread.stay.as_ref()?.at).start)
    }

    /// Runs kernel code up to a mark, or to the branch that leaves the kernel; returns the block of that
    /// branch.
    fn run_stay(&mut self, until: Option<Mark>) -> Option<Block> {
        let kernel = self.world.kernel?;
        let mut stay = self.thread.stay.take()?;
        let end = loop {
            let block = kernel.block(stay.at);
            if stay.traced && self.buffer.unit.output() == Output::Overflow {
                self.end_overflow(Some(block.start));
            }
            if stay.traced && self.buffer.unit.psb_due() {
                let at = self.buffer.unit.enabled().then_some(block.start);
                self.buffer.unit.psb(at, self.thread.now);
            }
            self.execute(&block);
            let Some(next) = kernel.next(stay.at, &mut stay, &mut self.world.rng) else { break Some(block) };
            if stay.traced && !self.follow(&block, &kernel.block(next)) {
                self.world.oddity("unexplained flow in the kernel");
            }
            stay.at = next;
            if until.is_some() && kernel.mark(next) == until {
                break None;
            }
        };
        self.thread.stay = Some(stay);
        end
    }
}
