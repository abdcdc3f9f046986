//! The packets that most of a trace is, where nothing else is going on: TNT, TIP and CYC in code that is followed.
//!
//! They mean here what they mean anywhere; this only passes by all the questions whose answers they do not change.

use model::{AuxOffset, Avma};
use packet::{MAX_PACKET_LEN, Packet};

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
}
