//! From one block to the next: what the trace unit is told, and what the truth says.

use model::{Avma, Executed};

use crate::block::{Block, Terminator};
use crate::pt_unit::Output;
use crate::slice::Slice;
use crate::truth::{Flags, Kind};

impl Slice<'_, '_> {
    /// Control goes from the end of `from` to the start of `to`.  False: the code does not say so.
    #[inline]
    pub(crate) fn follow(&mut self, from: &Block, to: &Block) -> bool {
        let called = from.terminator == Terminator::Call && from.target == to.start;
        if to.signal_handler.is_some() && !called || !explains(from, to) {
            return false;
        }
        self.count_branch(from, to);
        if self.world.filter.is_empty() {
            self.follow_traced(from, to);
            return true;
        }
        // Packets are enabled exactly inside the filter, as long as user code runs.
        match (self.buffer.unit.enabled(), self.world.filter.contains(to.start)) {
            (false, false) => (),
            (false, true) => {
                self.buffer.unit.enter(to.start, self.thread.now);
                self.event(Kind::FilterIn, Flags::NONE, from.last, to.start);
            }
            (true, false) => self.leave_filter(from, to),
            (true, true) => self.follow_traced(from, to),
        }
        true
    }

    fn leave_filter(&mut self, from: &Block, to: &Block) {
        let by_return = from.terminator == Terminator::Return;
        let hidden = self.world.options.pgd_hides_jcc && from.terminator == Terminator::Conditional;
        self.buffer.unit.leave((!hidden).then_some(to.start), by_return, self.thread.now);
        self.maybe_drop_returns();
        self.event(kind(from.terminator), Flags::FILTER_OUT, from.last, to.start);
    }

    /// Both ends are traced.
    #[inline]
    fn follow_traced(&mut self, from: &Block, to: &Block) {
        let now = self.thread.now;
        let unit = &mut self.buffer.unit;
        // Jumps inside a function are too many to keep.
        let leaves_function = from.last_function != to.first_function;
        let (packet, event) = match from.terminator {
            Terminator::FallThrough | Terminator::Syscall | Terminator::FarReturn | Terminator::Invalid => {
                (false, false)
            }
            Terminator::Conditional => {
                let taken = to.start == from.target;
                unit.conditional(taken, now);
                (true, taken && leaves_function)
            }
            Terminator::Jump => (false, leaves_function),
            Terminator::Call => {
                if !from.calls_next_instruction() {
                    unit.call(from.end);
                }
                (false, true)
            }
            Terminator::IndirectCall => {
                unit.indirect(to.start, now);
                unit.call(from.end);
                (true, true)
            }
            Terminator::IndirectJump => {
                unit.indirect(to.start, now);
                (true, leaves_function)
            }
            Terminator::Return => {
                unit.ret(to.start, now);
                (true, true)
            }
        };
        if event {
            self.event(kind(from.terminator), Flags::NONE, from.last, to.start);
        }
        if packet && self.buffer.begin_overflow(now, self.world.options.ovf_us, &mut self.world.rng) {
            self.truth(Kind::Overflow, Flags::NONE, from.last, Avma(0));
        }
    }

    /// Ends an overflow that has lasted long enough; `ip` is the next instruction if user code runs.
    pub(crate) fn end_overflow(&mut self, ip: Option<Avma>) {
        let now = self.thread.now;
        // Where the kernel is traced its own walk says where the overflow ends.
        let traced_kernel = self.world.kernel.is_some() && ip.is_none();
        if !traced_kernel && self.buffer.overflow_is_over(now) {
            let ip = ip.filter(|&ip| self.world.filter.contains(ip));
            self.buffer.unit.end_overflow(ip, now);
            self.truth(Kind::Resume, Flags::NONE, Avma(0), ip.unwrap_or_default());
        }
    }

    /// Writes to the truth, marked lost if the trace does not have it.
    pub(crate) fn event(&mut self, kind: Kind, flags: Flags, from: Avma, to: Avma) {
        let lost = if self.buffer.unit.output() == Output::On { Flags::NONE } else { Flags::LOST };
        self.truth(kind, flags | lost, from, to);
    }

    /// Writes to the truth, of the present time.
    pub(crate) fn truth(&mut self, kind: Kind, flags: Flags, from: Avma, to: Avma) {
        let Executed { instructions, .. } = self.thread.executed;
        let instructions = instructions.saturating_sub(self.thread.unexecuted);
        let counter = self.buffer.unit.cycles(self.thread.now);
        let since = self.thread.counts_since;
        let cycles = self.thread.cycles + since.map_or(0, |since| counter.saturating_sub(since));
        // The counter goes back where tracing is switched on again.
        let cycles = cycles.max(self.thread.truth.cycles());
        let is_user_start =
            matches!(kind, Kind::Enter | Kind::FilterIn | Kind::Resume) && to != Avma(0) && !to.is_kernel();
        let is_end = matches!(kind, Kind::Syscall | Kind::Async) || flags.has(Flags::FILTER_OUT);
        if is_user_start || is_end {
            self.thread.cycles = cycles;
            self.thread.counts_since = is_user_start.then_some(counter);
        }
        let truth = &mut self.thread.truth;
        truth.set_executed(Executed { instructions, ..self.thread.executed }, cycles);
        truth.event(kind, flags, self.thread.now.tsc(), from, to);
    }

    /// Counts the branch from the end of `from` to the start of `to`.
    fn count_branch(&mut self, from: &Block, to: &Block) {
        if from.start.is_kernel() || !self.world.filter.contains(from.start) {
            return;
        }
        let executed = &mut self.thread.executed;
        match from.terminator {
            // The last instruction begins the next block: it has not run yet, or it is a string instruction
            // that goes on.
            Terminator::FallThrough if to.start == from.last && to.start != from.end => {
                executed.instructions = executed.instructions.saturating_sub(1);
            }
            Terminator::Conditional => executed.conditional_branches += 1,
            Terminator::Call => executed.calls += 1,
            Terminator::IndirectCall => {
                executed.indirect_branches += 1;
                executed.calls += 1;
            }
            Terminator::IndirectJump => executed.indirect_branches += 1,
            _ => (),
        }
    }

    pub(crate) fn maybe_drop_returns(&mut self) {
        if self.world.rng.happens(self.world.options.drop_ret_stack) {
            self.buffer.unit.drop_returns();
        }
    }
}

/// The end of `from` can lead to `to`.
#[inline]
fn explains(from: &Block, to: &Block) -> bool {
    match from.terminator {
        // A block may be cut before its last instruction, which then begins the next one.
        Terminator::FallThrough => to.start == from.end || to.start == from.last,
        Terminator::Conditional => to.start == from.target || to.start == from.end,
        Terminator::Jump | Terminator::Call => to.start == from.target,
        Terminator::Return | Terminator::IndirectJump | Terminator::IndirectCall => true,
        Terminator::Syscall | Terminator::FarReturn | Terminator::Invalid => false,
    }
}

/// What the truth calls the transfer.  Running on past the end of the filter counts as a conditional jump.
fn kind(terminator: Terminator) -> Kind {
    match terminator {
        Terminator::Call => Kind::Call,
        Terminator::IndirectCall => Kind::IndirectCall,
        Terminator::Return => Kind::Return,
        Terminator::Jump => Kind::Jump,
        Terminator::IndirectJump => Kind::IndirectJump,
        Terminator::Syscall | Terminator::FarReturn => Kind::Syscall,
        Terminator::Invalid | Terminator::FallThrough | Terminator::Conditional => Kind::ConditionalJump,
    }
}
