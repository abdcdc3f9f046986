//! Where execution is: what PSB+ says, and arriving at an address that a packet gives.

use model::{AuxOffset, Avma, GapCause, Transfer};

use super::fup::FupUse;
use super::{Flow, State};
use crate::step::Step;
use crate::work::Work;

/// Bytes of CYC packets and padding that may stand between the start of the trace unit and a PSB.
const BEFORE_FIRST_PSB: u64 = 16;

impl<W: Work> Flow<'_, W> {
    pub(super) fn psb(&mut self, at: AuxOffset) {
        self.fup = None;
        self.fup_use = FupUse::default();
        self.last_ip.reset();
        self.forced_out();
        self.end_stay(at);
        self.cycles_until_psb(at);
        if matches!(self.state, State::On) && !self.walk.tnt.is_empty() {
            let ip = self.walk.position().ip;
            self.check(Err(GapCause::Desync { ip }), at);
        }
        if let State::Lost(lost) = &mut self.state {
            lost.psb = lost.psb.or(Some(at));
        }
        self.psb = Some(None);
        self.psb_step = None;
    }

    /// The cycles up to a PSB do not take all of the time up to it by erratum SKL168, and where the kernel
    /// has started the trace unit again right before it: there PSB+ has the TSC that begins each start, so
    /// that nothing else says that tracing was off.
    pub(super) fn cycles_until_psb(&mut self, at: AuxOffset) {
        let records = self.context.recording.buffers.get(self.segment.buffer).map_or(&[][..], |b| &b.records);
        let begun = records.partition_point(|record| record.offset <= at);
        let last_start = begun.checked_sub(1).and_then(|last| records.get(last)).map(|record| record.offset);
        let is_started = last_start.is_some_and(|start| at.minus(start) <= BEFORE_FIRST_PSB);
        if self.errata.skl168 || is_started {
            self.clock.discontinuity();
        }
    }

    /// PSB+ is complete: execution is where its FUP says, or tracing is off.
    pub(super) fn psb_end(&mut self, at: AuxOffset) {
        let Some(ip) = self.psb.take() else { return };
        let ip = ip.map(|ip| self.fup_in_place(ip));
        self.walk.output.psb_ends.push(at);
        let before = self.psb_step.take();
        let step = self.step(at);
        match (self.state, ip) {
            (State::Unsynced, Some(ip)) => self.begin(step, ip),
            (State::Unsynced | State::Off | State::Kernel | State::Guest, None) => self.state = State::Off,
            (State::On, Some(ip)) => {
                let in_kernel = self.in_kernel();
                match self.walk.walk_to(before.unwrap_or(step), ip) {
                    Ok(()) => (),
                    Err(cause) if in_kernel && ip.is_kernel() => self.skip_kernel(cause),
                    Err(cause) => {
                        self.lose(cause, at, false);
                        self.recover(step, ip);
                    }
                }
            }
            (State::Kernel, Some(ip)) if ip.is_kernel() => self.skipped_psb(ip),
            (State::Guest, Some(_)) if self.guest => self.enter_guest(step),
            (State::Off | State::Kernel | State::Guest, Some(ip)) => {
                self.lose(GapCause::Desync { ip }, at, false);
                self.arrive(step, ip, true);
            }
            (State::On, None) => {
                let ip = self.walk.position().ip;
                self.lose(GapCause::Desync { ip }, at, false);
                self.close_gap(step, self.running);
                self.state = State::Off;
            }
            (State::Lost(_), Some(ip)) => self.arrive(step, ip, true),
            (State::Lost(_), None) => {
                if !self.end_where_tracing_is_off() {
                    self.close_gap(step, self.present(self.clock.now_lo()));
                }
                self.state = State::Off;
            }
        }
        if let Some(ip) = ip {
            self.fup_use = FupUse::AfterPsb(ip);
        }
        self.forget_calls();
    }

    /// The segment starts inside code at `ip`. Its predecessor ends there, so nothing is emitted unless it
    /// has none.
    pub(super) fn begin(&mut self, step: Step, ip: Avma) {
        if self.segment.first {
            self.state = State::Off;
            return self.arrive(step, ip, true);
        }
        self.attribute();
        if ip.is_kernel() && self.context.has_times() {
            self.running = self.owner.in_kernel_at(self.clock.now_lo());
            self.walk.space = self.space_of(self.running);
        }
        if self.guest {
            return self.enter_guest(step);
        }
        self.thread();
        match self.enter(ip) {
            Ok(()) => {
                self.state = State::On;
                self.walk.output.bounds.begins_in_code = !ip.is_kernel();
            }
            Err(cause) if ip.is_kernel() => {
                self.skip_kernel(cause);
                self.skipped_psb(ip);
            }
            Err(cause) => {
                self.state = State::Off;
                self.lose(cause, step.at, true);
            }
        }
    }

    /// Execution is at `ip` now.  `switched`: another thread may be running.
    pub(super) fn arrive(&mut self, step: Step, ip: Avma, switched: bool) {
        let before = self.running;
        let space_before = self.walk.space;
        if switched {
            self.attribute();
        }
        let lost = if let State::Lost(lost) = self.state { Some(lost) } else { None };
        let after_gap = lost.is_some();
        if let Some(lost) = lost {
            let now = std::mem::replace(&mut self.running, before);
            let space = std::mem::replace(&mut self.walk.space, space_before);
            self.close_gap(step, now);
            (self.running, self.walk.space) = (now, space);
            // Where nothing is missing but time, the trace unit remembers its calls.
            if lost.cause != GapCause::BetweenSnapshots || lost.skips {
                self.forget_calls_before(lost);
            }
        }
        self.state = State::Off;
        if self.guest {
            return self.enter_guest(step);
        }
        if !self.running.is_known() {
            self.doubt(step);
            self.thread();
            return self.lose(GapCause::UnknownThread, step.at, true);
        }
        let ip = self.start_in_place(ip);
        match self.enter(ip) {
            Ok(()) => {
                self.thread();
                let to = self.walk.position();
                let start = Transfer::Start { to, after_gap };
                self.walk.emit(Step { lo: step.own, ..step }, start);
                self.state = State::On;
                if !ip.is_kernel() {
                    self.reach_user();
                } else if switched && self.walk.own_calls {
                    self.walk.stack.clear(); // what kernel code had called is not known
                }
            }
            Err(cause) if ip.is_kernel() => self.skip_kernel(cause),
            Err(cause) => {
                self.thread();
                self.lose(cause, step.at, true);
            }
        }
    }

    /// Resumes tracing at `ip` where the usual case holds: tracing was off, the thread is known, the code is
    /// 64-bit user code. Otherwise it does nothing and returns false: [`Self::arrive`] has all cases.
    #[inline(always)]
    pub(super) fn resume(&mut self, step: Step, ip: Avma) -> bool {
        if !matches!(self.state, State::Off) || ip.is_kernel() || self.guest || !self.long_mode {
            return false;
        }
        self.attribute();
        if !self.running.is_known() {
            return false;
        }
        self.thread();
        if !self.walk.follow_start(step, ip) {
            return false;
        }
        self.state = State::On;
        self.reach_user();
        true
    }

    /// Goes to an address that a packet gives.  Only 64-bit code is decoded.
    pub(super) fn enter(&mut self, ip: Avma) -> Result<(), GapCause> {
        if self.long_mode { self.walk.jump_to(ip) } else { Err(GapCause::NarrowCode { ip }) }
    }

    /// The events that follow are those of the thread that runs.
    #[inline(always)]
    pub(super) fn thread(&mut self) {
        let (running, space) = (self.running, self.walk.space);
        if !self.walk.output.is_of(running, space) {
            self.walk.thread(running, space, self.clock.now_lo());
        }
    }
}
