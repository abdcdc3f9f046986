//! A thread on a CPU: reads its log and lives through it until it leaves the CPU.

use model::{Avma, Tid};

use crate::aux_buffer::AuxBuffer;
use crate::block::{Block, Signals, Terminator};
use crate::clock::{Time, ticks};
use crate::kernel::KernelEntry;
use crate::log::{Entry, syscall};
use crate::pt_unit::Output;
use crate::sideband::RunsOn;
use crate::sigreturn::{self, Came, Onward, Step};
use crate::simulate::World;
use crate::thread::ReplayedThread;
use crate::truth::{Flags, Kind};

/// Core cycles of 3.6 GHz per instruction, in 1/1024 TSC ticks: 0.4.
const INSTRUCTION_TICKS: u64 = 341;
/// One core cycle.
const CYCLE_TICKS: u64 = 853;
/// Core:bus ratios that the core changes between.
const RATIOS: [u8; 3] = [30, 33, 36];
/// That the core sleeps in a stay in the kernel, if it sleeps at all.
const SLEEP_PROBABILITY: f64 = 0.25;
/// How far to look for the end of a signal handler.
const SIGNAL_SEARCH_ENTRIES: usize = 4_000_000;

/// Why a thread leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Its time is up.
    Preempted,
    /// A system call blocks.
    Blocked,
    /// A system call blocks, and never returns: the process ends first.
    Asleep,
    /// It is dead.
    Exited,
    /// The recording ends.
    WindowEnd,
}

pub(crate) struct Slice<'a, 'p> {
    pub(crate) world: &'a mut World<'p>,
    pub(crate) thread: &'a mut ReplayedThread<'p>,
    pub(crate) buffer: &'a mut AuxBuffer,
    pub(crate) place: RunsOn,
}

impl Slice<'_, '_> {
    /// Runs until the thread leaves, at the latest soon after `until`.
    pub(crate) fn run(&mut self, until: Time) -> Leave {
        self.thread.counts_since = None; // from the kernel, perhaps of another CPU
        if let Some(ip) = self.thread.resume.take() {
            self.end_overflow(None);
            self.leave_kernel(ip, false);
        }
        while let Some((entry, next)) = self.thread.log.entry(self.thread.at) {
            self.thread.at = next;
            let leave = match entry {
                Entry::Block(id) => self.block(id, until),
                Entry::Syscall { number, ns, .. } => self.syscall(number, ns),
                Entry::Sysret { number, ns, value } => self.sysret(number, ns, value),
            };
            if let Some(leave) = leave {
                return leave;
            }
        }
        self.log_ended()
    }

    fn log_ended(&mut self) -> Leave {
        match self.previous_block() {
            Some(_) if self.thread.in_kernel => Leave::Asleep,
            Some(previous) => {
                self.enter_kernel(KernelEntry::Nmi, previous.last, Flags::NONE);
                Leave::Exited
            }
            None => Leave::Exited,
        }
    }

    fn previous_block(&self) -> Option<Block> {
        self.thread.previous.map(|id| self.world.program.blocks[id as usize])
    }

    fn syscall(&mut self, number: u32, ns: u64) -> Option<Leave> {
        self.thread.unexecuted = 0;
        if let Some(previous) = self.previous_block() {
            if previous.terminator != Terminator::Syscall {
                self.world.oddity("system call after another kind of block");
            }
            let is_return = number == syscall::RT_SIGRETURN;
            let flags = if is_return { Flags::SIGNAL } else { Flags::NONE };
            self.enter_kernel(KernelEntry::SystemCall, previous.last, flags);
        }
        self.thread.in_kernel = true;
        self.thread.is_returning = number == syscall::RT_SIGRETURN;
        self.thread.syscall_began_ns = ns;
        if matches!(number, syscall::EXIT | syscall::EXIT_GROUP) {
            self.pass_us(1.0);
            return Some(Leave::Exited);
        }
        None
    }

    fn sysret(&mut self, number: u32, ns: u64, value: u64) -> Option<Leave> {
        let real_us = ns.saturating_sub(self.thread.syscall_began_ns) as f64 / 1000.0;
        let (tid, now) = (self.thread.tid, self.thread.now);
        if matches!(number, syscall::CLONE | syscall::CLONE3) && value as i64 > 0 {
            self.world.cloned(tid, Tid(value as i32), now, self.place);
        }
        self.world.returned(tid, self.thread.at, now, self.place);
        let sleeps = matches!(
            number,
            syscall::NANOSLEEP
                | syscall::CLOCK_NANOSLEEP
                | syscall::POLL
                | syscall::PPOLL
                | syscall::EPOLL_WAIT
                | syscall::SELECT
                | syscall::PSELECT6
        );
        let waits = matches!(
            number,
            syscall::FUTEX
                | syscall::WAIT4
                | syscall::READ
                | syscall::WRITE
                | syscall::FSYNC
                | syscall::FDATASYNC
                | syscall::ACCEPT
                | syscall::RECVFROM
                | syscall::PREAD64
                | syscall::PWRITE64
        );
        if (sleeps || waits) && real_us > 40.0 {
            // What waits for another thread waits longer under the emulator than it would on a processor.
            let us = if sleeps { real_us } else { (real_us / self.world.options.slow).max(8.0) };
            self.pass_us(0.5);
            self.thread.ready = self.thread.now.plus_us(us);
            return Some(Leave::Blocked);
        }
        let jitter = 0.7 + 0.6 * self.world.rng.unit();
        self.pass_us((real_us / 2.0).clamp(0.15, 20.0) * jitter);
        self.sleep();
        self.buffer.unit.timer(self.thread.now);
        None
    }

    fn block(&mut self, id: u32, until: Time) -> Option<Leave> {
        let program = self.world.program;
        let block = &program.blocks[id as usize];
        self.thread.unexecuted = 0; // the block before has run to its end
        if self.thread.in_kernel {
            self.thread.in_kernel = false;
            self.nest_handlers(block);
            self.end_overflow(None);
            self.leave_kernel(block.start, block.signal_handler.is_some());
        } else if let Some(previous) = self.thread.previous {
            let previous = &program.blocks[previous as usize];
            if !self.follow(previous, block) {
                self.unexplained(previous, block);
            }
            self.change_slow_call(previous, block);
            if self.buffer.unit.psb_due() {
                self.service(block.start);
            }
        }
        if let Some(us) = self.world.disturbance.fault.as_mut().and_then(|fault| fault.at(block.start)) {
            self.enter_kernel(KernelEntry::Interrupt, block.start, Flags::NONE);
            self.pass_us(us);
            self.buffer.unit.timer(self.thread.now);
            self.end_overflow(None);
            self.leave_kernel(block.start, false);
        }
        self.execute(block);
        self.thread.calls.pass(block);
        self.thread.previous = Some(id);
        self.events(block, until)
    }

    /// A system call ends with this block: with a handler that has come there, or after one that has
    /// returned. (A handler that comes when another returns has interrupted the same code as that.)
    fn nest_handlers(&mut self, block: &Block) {
        let previous = self.previous_block();
        let interrupted = &mut self.thread.interrupted;
        match (self.thread.is_returning, block.signal_handler) {
            (false, Some(signals)) => interrupted.extend(previous.and_then(|block| block.goes_on(signals))),
            (true, None) => {
                if let Some(returned) = interrupted.iter().rposition(|came| came.has(block.start)) {
                    interrupted.truncate(returned);
                }
            }
            _ => (),
        }
    }

    pub(crate) fn execute(&mut self, block: &Block) {
        let dice = self.world.rng.bits();
        let mut spent = u64::from(block.instructions) * INSTRUCTION_TICKS;
        if (dice & 0x3ff) < u64::from(block.instructions) {
            // a cache miss, now and then one to memory
            let mut cycles = 30 + (dice >> 10 & 63);
            if dice >> 16 & 63 == 0 {
                cycles += 200 + (dice >> 22 & 127);
            }
            spent += cycles * CYCLE_TICKS;
        }
        if let Some(call) = &self.thread.slow_call {
            spent = call.stretch(spent + call.more_cycles(block) * CYCLE_TICKS);
        }
        self.thread.now = self.thread.now.plus(spent);
        self.thread.blocks += 1;
        self.thread.instructions += u64::from(block.instructions);
        if !block.start.is_kernel() && self.world.filter.contains(block.start) {
            self.thread.executed.instructions += u64::from(block.instructions);
        }
        if self.buffer.unit.timer_due(self.thread.now) {
            self.buffer.unit.timer(self.thread.now);
        }
    }

    /// What happens to the program from outside.
    #[inline]
    fn events(&mut self, block: &Block, until: Time) -> Option<Leave> {
        let now = self.thread.now;
        if now >= self.world.window.end {
            let ip = self.interrupted(block);
            self.enter_kernel(KernelEntry::Nmi, ip, Flags::NONE);
            return Some(Leave::WindowEnd);
        }
        if self.buffer.enable_due(now) {
            self.enable(block);
        } else if self.thread.next_tick.is_none_or(|tick| now >= tick) {
            let us = self.world.rng.exponential(self.world.options.tick_us).max(2.0);
            self.thread.next_tick = Some(now.plus_us(us));
            let ip = self.interrupted(block);
            self.enter_kernel(KernelEntry::Interrupt, ip, Flags::NONE);
            if now >= until {
                self.thread.resume = Some(ip);
                self.thread.ready = now;
                return Some(Leave::Preempted);
            }
            self.interrupt(ip);
        }
        self.buffer.plan_overflow(self.thread.now, self.world.options.ovf_ms, &mut self.world.rng);
        if self.buffer.unit.output() == Output::Overflow {
            let at_start = self.may_fault();
            self.thread.unexecuted =
                if at_start { block.instructions.into() } else { block.is_last_whole().into() };
            self.end_overflow(Some(if at_start { block.start } else { block.last }));
            self.thread.unexecuted = 0;
        }
        None
    }

    /// The next instruction when an interrupt comes during `block`: its first, or its last.
    fn interrupted(&mut self, block: &Block) -> Avma {
        let is_first = self.world.rng.bits() >> 13 & 1 == 0;
        let at_start = is_first || self.may_fault();
        self.thread.unexecuted =
            if at_start { block.instructions.into() } else { block.is_last_whole().into() };
        if at_start { block.start } else { block.last }
    }

    /// A signal handler comes next: perhaps an instruction of the block before has faulted, and those after
    /// it have not run.
    fn may_fault(&self) -> bool {
        match self.thread.log.entry(self.thread.at) {
            Some((Entry::Block(id), _)) => {
                let signals = self.world.program.blocks[id as usize].signal_handler;
                signals.is_some_and(|signals| signals != Signals::Events)
            }
            _ => false,
        }
    }

    /// An interrupt or page fault before the instruction at `ip`, after which the thread goes on.
    fn interrupt(&mut self, ip: Avma) {
        let rng = &mut self.world.rng;
        if !self.world.options.fixed_cbr && rng.bits() & 7 == 0 {
            let ratio = RATIOS[(rng.bits() >> 20) as usize % RATIOS.len()];
            let unit = &self.buffer.unit;
            let may_change = unit.output() == Output::On && self.thread.slow_call.is_none();
            if may_change && ratio != unit.cbr() {
                self.buffer.unit.set_cbr(ratio, self.thread.now);
            }
        }
        let us = 0.4 + rng.exponential(1.0);
        self.pass_us(us);
        self.sleep();
        self.buffer.unit.timer(self.thread.now);
        self.end_overflow(None);
        self.leave_kernel(ip, false);
    }

    /// The event is enabled while the thread runs: an interrupt on its CPU does it.
    fn enable(&mut self, block: &Block) {
        let ip = self.interrupted(block);
        self.begin_untraced_stay(KernelEntry::Nmi);
        self.buffer.unit.switch_on();
        let ns = self.thread.now.ns();
        self.world.recorded(self.thread, ns, self.place);
        self.start_tracing(false);
        self.pass_us(0.5);
        self.leave_kernel(ip, false);
    }

    /// PSB, and the driver's interrupt when there is much data: it stops tracing, takes the data out and
    /// starts again.  `ip` is the next instruction.
    fn service(&mut self, ip: Avma) {
        let traced = self.buffer.unit.enabled().then_some(ip);
        self.buffer.unit.psb(traced, self.thread.now);
        if self.buffer.unit.pending() <= self.world.options.chunk_kb as usize * 1024 {
            return;
        }
        self.enter_kernel(KernelEntry::Nmi, ip, Flags::NONE);
        self.pass_us(1.5);
        self.buffer.unit.timer(self.thread.now);
        self.stop_tracing();
        let now = self.thread.now;
        if self.world.rng.happens(self.world.options.trunc) {
            let drained = now.plus_us(self.world.rng.exponential(self.world.options.drain_us));
            self.world.drain(self.buffer, self.place, self.thread.tid, now, Some(drained));
            self.buffer.switch_off(drained);
            self.truth(Kind::Truncated, Flags::NONE, ip, Avma(0));
            self.thread.stay = None;
            if self.world.filter.contains(ip) {
                self.buffer.unit.enter(ip, now); // only to know what is lost
            }
        } else {
            self.world.drain(self.buffer, self.place, self.thread.tid, now, None);
            self.pass_us(1.0);
            self.start_tracing(false);
            self.pass_us(0.3);
            self.leave_kernel(ip, false);
        }
    }

    /// The code does not lead from `previous` to `block`: a signal, or QEMU's own ways.
    fn unexplained(&mut self, previous: &Block, block: &Block) {
        let inside = block.start > previous.start && block.start <= previous.last;
        if previous.terminator != Terminator::Syscall && inside && block.signal_handler.is_none() {
            self.world.oddity("block left midway");
            return;
        }
        let mut interrupted = previous.last;
        let resume = self.after_signal(previous, block);
        self.thread.interrupted.extend(resume.map(Onward::only));
        match (resume, block.signal_handler) {
            (_, None) => self.world.oddity("unexplained flow"),
            (Some(resume), Some(signals)) if previous.faulted_at(resume, signals) => {
                interrupted = resume;
                // A block that begins at its last instruction may be longer than that.
                let rest = self.world.program.block_at(resume).filter(|rest| rest.last == previous.last);
                match rest.map(|rest| rest.instructions) {
                    _ if resume == previous.last => self.take_back(previous, 1),
                    Some(instructions) => self.take_back(previous, instructions),
                    None => self.world.oddity("fault in a block that does not go on"),
                }
            }
            // The branch before the signal was executed; where it went is where the handler returns to.
            (Some(resume), _) => {
                let target = self.world.program.block_at(resume).unwrap_or(*block);
                let target = Block { start: resume, signal_handler: None, ..target };
                if self.follow(previous, &target) {
                    interrupted = resume;
                } else {
                    self.take_back(previous, 1); // the handler went past what had faulted
                }
            }
            // The handler does not come back: its signal came before the block's last instruction.
            (None, _) => self.take_back(previous, 1),
        }
        self.enter_kernel(KernelEntry::Interrupt, interrupted, Flags::NONE);
        let us = 1.2 + self.world.rng.unit();
        self.pass_us(us);
        self.buffer.unit.timer(self.thread.now);
        self.leave_kernel(block.start, block.signal_handler.is_some());
    }

    /// The last `instructions` of a block have not run; they are a block of their own when they do.
    fn take_back(&mut self, block: &Block, instructions: u32) {
        if self.world.filter.contains(block.start) {
            let executed = &mut self.thread.executed.instructions;
            *executed = executed.saturating_sub(instructions.into());
        }
    }

    /// Where the thread goes on after the signal handler that begins now, after this block.
    fn after_signal(&self, previous: &Block, handler: &Block) -> Option<Avma> {
        let blocks = &self.world.program.blocks;
        let mut last = previous;
        let steps = self.thread.log.entries(self.thread.at).take(SIGNAL_SEARCH_ENTRIES);
        let steps = steps.filter_map(|entry| match entry {
            Entry::Block(id) => {
                let block = blocks.get(id as usize)?;
                let before = std::mem::replace(&mut last, block);
                Some(match block.signal_handler {
                    Some(signals) => Step::Handler(before.came(signals)),
                    None if self.world.program.is_after_call(block.start) => Step::AfterCall(block.start),
                    None => Step::Block(block.start),
                })
            }
            Entry::Syscall { number: syscall::RT_SIGRETURN, .. } => Some(Step::Sigreturn(last.last)),
            Entry::Syscall { .. } | Entry::Sysret { .. } => None,
        });
        let own = match (handler.signal_handler, self.thread.calls.came_by_return()) {
            (Some(Signals::Events), Some(came)) => came,
            (Some(signals), _) => previous.came(signals),
            (None, _) => Came::Anywhere,
        };
        sigreturn::goes_on_at(steps, own, &self.thread.interrupted)
    }

    /// Now and then the core sleeps while it is in the kernel.
    fn sleep(&mut self) {
        let mean_us = self.world.options.sleep_us;
        if mean_us > 0.0 && self.world.rng.happens(SLEEP_PROBABILITY) {
            let from = self.thread.now;
            let us = self.world.rng.exponential(mean_us);
            self.pass_us(us);
            self.buffer.unit.sleep(from, self.thread.now);
        }
    }

    pub(crate) fn pass_us(&mut self, us: f64) {
        self.thread.now = self.thread.now.plus(ticks(us));
    }
}
