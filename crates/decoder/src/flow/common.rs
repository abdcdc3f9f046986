//! The packets that most of a trace is, where nothing else is going on: TNT, TIP and CYC in code that is followed.
//!
//! They mean here what they mean anywhere; this only passes by all the questions whose answers they do not change.

use model::{AuxOffset, Avma, GapCause};
use packet::{MAX_PACKET_LEN, Packet, Tnt};

use super::events::FupUse;
use super::{Flow, State};
use crate::walk::Step;

impl Flow<'_> {
    /// Follows such packets up to the first other one.
    pub(super) fn common(&mut self) {
        let is_plain = self.psb.is_none() && !self.tail;
        if !is_plain || self.fup.is_some() || self.fup_use != FupUse::default() {
            return;
        }
        let truncation = self.segment.truncations.get(self.next_truncation);
        let whole = truncation
            .map_or(self.stop, |at| AuxOffset(at.0.saturating_sub(MAX_PACKET_LEN as u64)).min(self.stop));
        let run = self.reader.run(whole);
        let end = self.reader.offset().plus(run.len() as u64);
        let mut rest = run;
        let mut is_on = matches!(self.state, State::On);
        while is_on
            && let Some(bytes) = rest.first_chunk()
            && let Some((packet, len)) = packet::decode_common(bytes)
        {
            let at = AuxOffset(end.0 - rest.len() as u64);
            match packet {
                Packet::Tnt(tnt) => is_on = self.follow_tnt(at, tnt),
                Packet::Cyc(cycles) => self.cyc(cycles),
                Packet::Tip(payload) => match self.last_ip.expand(payload) {
                    Some(ip) => is_on = self.follow_tip(at, Avma(ip)),
                    None => break,
                },
                _ => break,
            }
            rest = rest.get(len..).unwrap_or_default();
        }
        self.reader.passed(run, rest);
    }

    /// The step to the flow packet at hand, which is behind all branches of the one before.  Its slot is made once it is
    /// followed, and not written twice.
    #[inline(always)]
    fn next_step(&mut self, at: AuxOffset) -> Step {
        let (lo, slot) = (self.flow_slot, self.clock.next_slot());
        self.flow_slot = slot;
        Step { lo, own: slot, slot, at }
    }

    /// A TNT in code that is followed; false if that has ended.
    #[inline(always)]
    pub(super) fn follow_tnt(&mut self, at: AuxOffset, tnt: Tnt) -> bool {
        self.clock.progress(1);
        let step = self.next_step(at);
        (self.open_tnt, self.behind_tnt, self.tnt_lo) = (true, true, step.lo);
        let before = self.walk.work;
        let walked = if self.walk.tnt.is_empty() {
            (self.walk.tnt, self.walk.first_bit) = (tnt, None);
            self.walk.follow_tnt(step)
        } else {
            self.walk.first_bit = Some(before);
            Err(GapCause::Desync { ip: self.walk.position().ip })
        };
        self.clock.slot(self.walk.first_bit.unwrap_or(before));
        self.clock.progress(u64::from(tnt.len()).saturating_sub(1));
        if walked.is_ok() {
            return true;
        }
        self.check(walked, at);
        matches!(self.state, State::On)
    }

    /// A TIP in code that is followed, without a FUP before it; false if that has ended.
    #[inline(always)]
    pub(super) fn follow_tip(&mut self, at: AuxOffset, ip: Avma) -> bool {
        self.clock.progress(1);
        let deferred = self.behind_tnt || !self.walk.tnt.is_empty();
        let step = if deferred {
            self.among_tnt(at)
        } else {
            self.open_tnt = false;
            self.next_step(at)
        };
        let walked = self.walk.follow_tip(step, ip);
        if !deferred {
            self.clock.slot(self.walk.work);
        }
        if matches!(walked, Ok(false)) && self.walk.tnt.is_empty() {
            return true; // nearly always
        }
        self.arrived(step, ip, walked);
        matches!(self.state, State::On)
    }
}
