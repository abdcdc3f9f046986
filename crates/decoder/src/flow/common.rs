//! The packets that most of a trace is, where nothing else is going on: TNT, TIP and CYC in code that is followed.
//!
//! They mean here what they mean anywhere; this only passes by all the questions whose answers they do not change.

use model::{AuxOffset, Avma, GapCause};
use packet::{MAX_PACKET_LEN, Packet, Tnt};

use super::events::FupUse;
use super::{Flow, State};

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
        while matches!(self.state, State::On)
            && let Some(bytes) = rest.first_chunk()
            && let Some((packet, len)) = packet::decode_common(bytes)
        {
            let at = AuxOffset(end.0 - rest.len() as u64);
            match packet {
                Packet::Tnt(tnt) => self.follow_tnt(at, tnt),
                Packet::Cyc(cycles) => self.cyc(cycles),
                Packet::Tip(payload) => match self.last_ip.expand(payload) {
                    Some(ip) => self.follow_tip(at, Avma(ip)),
                    None => break,
                },
                _ => break,
            }
            rest = rest.get(len..).unwrap_or_default();
        }
        self.reader.passed(run, rest);
    }

    /// A TNT in code that is followed.
    #[inline(always)]
    pub(super) fn follow_tnt(&mut self, at: AuxOffset, tnt: Tnt) {
        self.clock.progress(1);
        self.behind_tnt = false; // what follows is behind all branches of the TNT before
        let step = self.step(at);
        (self.behind_tnt, self.tnt_lo) = (true, step.lo);
        if !self.walk.tnt.is_empty() {
            let ip = self.walk.position().ip;
            return self.check(Err(GapCause::Desync { ip }), at);
        }
        (self.walk.tnt, self.walk.first_bit) = (tnt, None);
        self.open_tnt = true;
        let walked = self.walk.follow_tnt(step);
        if let Some(work) = self.walk.first_bit {
            self.clock.reached(step.slot, work);
        }
        self.clock.progress(u64::from(tnt.len()).saturating_sub(1));
        self.check(walked, at);
    }

    /// A TIP in code that is followed, without a FUP before it.
    #[inline(always)]
    pub(super) fn follow_tip(&mut self, at: AuxOffset, ip: Avma) {
        self.clock.progress(1);
        let deferred = self.behind_tnt || !self.walk.tnt.is_empty();
        let step = if deferred { self.among_tnt(at) } else { self.step(at) };
        let walked = self.walk.follow_tip(step, ip);
        if !deferred {
            self.clock.reached(step.slot, self.walk.work);
        }
        if matches!(walked, Ok(false)) && self.walk.tnt.is_empty() {
            return; // nearly always
        }
        self.arrived(step, ip, walked);
    }
}
