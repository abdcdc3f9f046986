//! The packets that most of a trace is, where nothing else is going on: TNT, TIP and CYC in code that is followed.
//!
//! They mean here what they mean anywhere; this only passes by all the questions whose answers they do not change.

use model::AuxOffset;
use packet::{MAX_PACKET_LEN, Packet};

use super::{Flow, State};

impl Flow<'_> {
    /// Follows such packets up to the first other one.
    pub(super) fn common(&mut self) {
        if !matches!(self.state, State::On) || self.psb.is_some() || self.tail {
            return;
        }
        let truncation = self.segment.truncations.get(self.next_truncation);
        let whole = truncation
            .map_or(self.stop, |at| AuxOffset(at.0.saturating_sub(MAX_PACKET_LEN as u64)).min(self.stop));
        let start = self.reader.offset();
        let end = start.plus(self.reader.run(whole) as u64);
        while matches!(self.state, State::On) && self.reader.offset() < end {
            match self.reader.next_common() {
                Some((at, Packet::Tnt(tnt))) => self.tnt(at, tnt),
                Some((_, Packet::Cyc(cycles))) => self.cyc(cycles),
                Some((at, Packet::Tip(ip))) => self.tip(at, ip),
                _ => return,
            }
        }
    }
}
