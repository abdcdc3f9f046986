//! What a flow packet means in each state.

use model::{AsyncCause, AuxOffset, Avma, GapCause, Ns};
use packet::Tnt;

use super::fup::{Fup, FupUse, Interruption};
use super::loss::Lost;
use super::{Flow, State};
use crate::output::Moment;
use crate::step::Step;
use crate::walk::Trial;
use crate::work::Work;

impl<W: Work> Flow<'_, W> {
    pub(super) fn tnt(&mut self, at: AuxOffset, tnt: Tnt) {
        self.fup = None;
        self.fup_use = FupUse::default();
        self.still_lost(true);
        self.last_tnt = tnt;
        if matches!(self.state, State::Kernel) {
            self.end_waiting(at);
        }
        if matches!(self.state, State::On) {
            self.follow_tnt(at, tnt);
        }
        self.bits_after_tnt();
    }

    /// A TNT in code that is followed.
    fn follow_tnt(&mut self, at: AuxOffset, tnt: Tnt) {
        let step = self.last.step(self.clock.next_slot(), at);
        self.last.tnt(step.slot);
        let begin = self.walk.work();
        let (walked, first_bit) = if self.walk.tnt.is_empty() {
            (self.walk.tnt, self.walk.first_bit) = (tnt, None);
            (self.walk.follow_bits(step), self.walk.first_bit)
        } else {
            (Err(GapCause::Desync { ip: self.walk.position().ip }), None)
        };
        // The slot is made after the first bit, as if that had been followed if it was not.
        self.clock.tnt(first_bit.unwrap_or(begin), tnt);
        self.check(walked, at);
    }

    /// Follows the last bits of a TNT at `at`; the first one has been followed.
    pub(super) fn follow_rest(&mut self, at: AuxOffset) {
        let walked = self.walk.follow_bits(self.last.rest_of_tnt(at));
        self.check(walked, at);
        self.bits_after_tnt();
    }

    /// A TIP in code that is followed, without a FUP before it.
    fn follow_tip(&mut self, at: AuxOffset, ip: Avma) {
        self.clock.progress(1);
        let is_deferred = self.last.after_tnt || !self.walk.tnt.is_empty();
        let next = self.clock.next_slot();
        let step = if is_deferred { self.last.among_tnt(at) } else { self.last.step(next, at) };
        let walked = if self.doubts_return(ip) {
            Err(GapCause::Desync { ip: self.walk.position().ip })
        } else {
            self.walk.follow_tip(step, ip)
        };
        if is_deferred {
            self.clock.passed();
        } else {
            self.last.tip(step.slot);
            self.clock.slot(self.walk.work());
        }
        self.arrived(step, ip, walked);
    }

    pub(super) fn tip(&mut self, at: AuxOffset, ip: Option<Avma>) {
        let fup = self.fup.take().and_then(|fup| fup.of_tip(ip));
        self.fup_use = FupUse::default();
        let ip = ip.map(|ip| if fup.is_none() { self.return_in_place(ip) } else { ip });
        match (self.state, ip) {
            (State::On, Some(ip)) => {
                let Some(Fup { ip: from, interruption, .. }) = fup else {
                    return self.follow_tip(at, ip);
                };
                self.clock.progress(1);
                // FUP forces TNT and all deferred TIPs out (SDM, "Deferred TIPs"): the TIP after one has not
                // waited.
                let step = self.step(at);
                let walked = match interruption {
                    Interruption::Event(cause) => {
                        self.note_interrupted(from);
                        self.walk.follow_async(step, cause, from, Some(ip)).map(|()| true)
                    }
                    Interruption::Abort => {
                        self.walk.follow_abort(step, from, ip, self.errata.bdm64).map(|()| false)
                    }
                };
                self.clock.reached(step.slot, self.walk.work());
                self.arrived(step, ip, walked);
            }
            (State::On, None) => {
                let ip = self.walk.position().ip;
                self.check(Err(GapCause::Desync { ip }), at);
            }
            (State::Kernel, Some(ip)) if !ip.is_kernel() => {
                self.clock.discontinuity();
                let step = self.step(at);
                self.arrive(step, ip, true);
            }
            (State::Lost(_), Some(ip)) => {
                self.still_lost(false);
                let step = self.step(at);
                self.recover_by_tip(step, ip);
            }
            (State::Kernel, _) => self.end_waiting(at),
            _ => (),
        }
    }

    /// A TIP went to `ip`: goes on with what following it gave, and whether it was a far transfer.
    pub(super) fn arrived(&mut self, step: Step, ip: Avma, walked: Result<bool, GapCause>) {
        match walked {
            Ok(true) => self.far(step, ip),
            Ok(false) => {
                self.walk.first_bit.get_or_insert(self.walk.work());
                let walked = self.walk.follow_bits(step);
                self.check(walked, step.at);
            }
            Err(cause) if self.in_kernel() => {
                self.skip_kernel(cause);
                if !ip.is_kernel() {
                    self.arrive(step, ip, true);
                }
            }
            Err(cause) => {
                self.lose(cause, step.at, true);
                self.recover_by_tip(step, ip);
            }
        }
    }

    /// A TIP.PGE.
    #[inline(always)]
    pub(super) fn pge(&mut self, at: AuxOffset, ip: Option<Avma>) {
        self.fup = None;
        self.fup_use = FupUse::default();
        self.forced_out();
        if let Some(ip) = ip {
            self.start(at, ip);
        }
    }

    /// Tracing starts at `ip`.
    #[inline(always)]
    fn start(&mut self, at: AuxOffset, ip: Avma) {
        if matches!(self.state, State::On) {
            self.end_is_missing(at);
        }
        self.clock.discontinuity();
        let step = self.step(at);
        if !self.resume(step, ip) {
            self.start_anew(step, ip);
        }
    }

    /// Tracing starts where it has not ended.
    #[cold]
    fn end_is_missing(&mut self, at: AuxOffset) {
        let ip = self.walk.position().ip;
        self.lose(GapCause::Desync { ip }, at, false);
    }

    /// Tracing starts where [`Self::resume`] does not tell all.
    #[cold]
    fn start_anew(&mut self, step: Step, ip: Avma) {
        self.arrive(step, ip, true);
        if matches!(self.state, State::Kernel) && self.context.recording.pt.has_ip_filter {
            self.skipped_start(step, ip);
        }
    }

    /// A TIP.PGD.
    #[inline(always)]
    pub(super) fn pgd(&mut self, at: AuxOffset, ip: Option<Avma>) {
        let fup = self.fup.take();
        self.fup_use = FupUse::default();
        let fup = self.end_in_place(fup);
        if matches!(self.state, State::On) {
            self.clock.progress(1);
            let step = self.step(at);
            self.clock.discontinuity();
            self.end_code(step, ip, fup);
            self.state = State::Off;
        } else {
            self.end_of_other(at, ip);
        }
        self.note_end(fup);
    }

    /// Tracing ends where no code is followed.
    #[cold]
    fn end_of_other(&mut self, at: AuxOffset, ip: Option<Avma>) {
        match self.state {
            // After OVF it is APL11, or after a FUP that SKD010 has lost.
            State::Lost(lost) if lost.cause != self.truncation_cause() => {
                self.still_lost(false);
                let step = self.step(at);
                self.close_gap(step, self.running);
                self.state = State::Off;
                self.forget_calls_before(lost);
            }
            State::Lost(_) | State::On => (),
            State::Kernel | State::Guest | State::Off | State::Unsynced => {
                if self.away.in_filter() {
                    let step = self.step(at);
                    self.skipped_end(step, ip);
                }
                self.clock.discontinuity();
                self.state = State::Off;
            }
        }
    }

    /// Tracing ends in code that is followed.
    #[inline(always)]
    fn end_code(&mut self, step: Step, ip: Option<Avma>, fup: Option<Fup>) {
        let block = self.walk.here.block;
        let is_known = fup.is_none()
            && self.walk.tnt.is_empty()
            && ip.is_some_and(|ip| self.walk.follow_end_of_block(step, ip));
        if !is_known && !self.follow_other_end(step, ip, fup) {
            return;
        }
        if !self.walk.own_calls && self.running.to == Ns::MAX || self.walk.is_kernel(block) {
            return;
        }
        if self.walk.own_calls {
            self.leave_user();
        }
        if self.running.to != Ns::MAX && self.running.to < self.clock.now_lo() {
            // The switch records say that the thread had left before: it is not sure that this was its code.
            let moment = Moment::At(step.slot);
            self.walk.gap(moment, moment, 0, step.at, GapCause::UnknownThread);
        }
    }

    /// [`Self::end_code`] otherwise than by a branch at the end of the block. False if the code is lost.
    #[cold]
    fn follow_other_end(&mut self, step: Step, ip: Option<Avma>, fup: Option<Fup>) -> bool {
        let in_kernel = self.in_kernel();
        let walked = if !self.walk.tnt.is_empty() {
            Err(GapCause::Desync { ip: self.walk.position().ip })
        } else if let Some(fup) = fup {
            self.interrupted(step, fup, ip)
        } else if ip.is_none() && !in_kernel {
            self.ended_without_address(step)
        } else {
            self.walk.follow_end(step, ip)
        };
        self.clock.reached(step.slot, self.walk.work());
        let Err(cause) = walked else { return true };
        if in_kernel {
            // The kernel writes its switch records around those to the trace unit's registers.
            self.skip_kernel(cause);
        } else {
            self.lose(cause, step.at, true);
            self.close_gap(step, self.running);
        }
        false
    }

    /// Tracing ends without FUP and address. Where no IP filter can have ended it, that is a far transfer; if
    /// the code comes to a near branch instead, an event came first: before the instruction with which the
    /// code goes on, if that is on the way there, else before the first one that is not known to have run.
    fn ended_without_address(&mut self, step: Step) -> Result<(), GapCause> {
        let end = Trial::of(&mut self.walk).advance();
        let is_near_branch = end.is_ok_and(|block| block.branch_kind().is_some());
        if self.context.recording.pt.has_ip_filter || !is_near_branch {
            return self.walk.follow_end(step, None);
        }
        let here = self.walk.position().ip;
        let goes_on =
            self.reader.next_start(self.last_ip).filter(|&ip| Trial::of(&mut self.walk).reaches(ip));
        self.walk.follow_async(step, AsyncCause::Unknown, goes_on.unwrap_or(here), None)
    }

    /// Follows a FUP and TIP.PGD.
    fn interrupted(&mut self, step: Step, fup: Fup, to: Option<Avma>) -> Result<(), GapCause> {
        let cause = match fup.interruption {
            Interruption::Event(cause) => cause,
            Interruption::Abort => AsyncCause::Unknown,
        };
        if self.errata.skd022 && self.walk.is_vm_entry(fup.ip) {
            return self.walk.follow_end(step, to);
        }
        self.walk.follow_async(step, cause, fup.ip, to)
    }

    pub(super) fn fup(&mut self, at: AuxOffset, ip: Option<Avma>) {
        if let Some(psb_ip) = &mut self.psb {
            if !self.reader.tracing_starts_after_psb_plus() {
                *psb_ip = ip;
            }
            return;
        }
        self.forced_out();
        let fup_use = std::mem::take(&mut self.fup_use);
        let Some(ip) = ip.map(|ip| self.fup_in_place(ip)) else { return };
        if self.is_second_of_probe(ip) {
            return;
        }
        if let State::Lost(Lost { overflowed: true, fup_is_late, .. }) = self.state {
            if self.reader.tracing_is_off() {
                return;
            }
            // After OVF: execution goes on here.
            if fup_is_late {
                self.still_lost(false);
            }
            let step = self.step(at);
            self.recover(step, ip);
            if !fup_is_late {
                return; // OVF's own
            }
        }
        if matches!(self.state, State::On) && !self.walk.tnt.is_empty() {
            // FUP forces TNT and all deferred TIPs out (SDM, "Deferred TIPs"): no bit is left before one.
            let ip = self.walk.position().ip;
            self.lose(GapCause::Desync { ip }, at, true);
        }
        let (interruption, may_be_ovf) = match fup_use {
            FupUse::Bound => return,
            FupUse::Interruption(interruption) => (interruption, false),
            FupUse::AfterPsb(psb_ip) => (Interruption::Event(AsyncCause::Unknown), psb_ip == ip),
        };
        self.fup = Some(Fup { ip, interruption, may_be_ovf });
    }
}
