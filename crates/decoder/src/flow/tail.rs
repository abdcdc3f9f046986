//! Behind the segment's end: packets that only the clock reads.

use packet::Packet;

use super::Flow;
use crate::reader::Item;

impl Flow<'_> {
    /// The next segment's PSB+ is complete.  How long cycles were before it depends on what is measured behind it, too, as
    /// CBR packets come late: reads on until that is known.
    pub(super) fn settle_clock(&mut self) {
        let (end, mut in_psb) = (self.last.slot, false);
        while !self.clock.is_settled(end) {
            let offset = self.reader.offset();
            let Some(Item::Packet(at, packet)) = self.reader.next() else { return };
            match packet {
                _ if at != offset => return, // a hole
                Packet::Ovf => return,
                Packet::Cyc(cycles) => self.clock.cyc(cycles),
                Packet::Mtc(ctc) => self.clock.mtc(ctc),
                Packet::Tsc(tsc) => self.clock.tsc(tsc, in_psb),
                Packet::Tma { ctc, fast } => self.clock.tma(ctc, fast),
                Packet::Cbr(ratio) => self.clock.cbr(ratio),
                Packet::Psb => {
                    in_psb = true;
                    if self.errata.skl168 {
                        self.clock.discontinuity();
                    }
                }
                Packet::PsbEnd => in_psb = false,
                Packet::TipPge(_) | Packet::TipPgd(_) => {
                    self.clock.passed();
                    self.clock.discontinuity();
                }
                Packet::Tnt(_) | Packet::Tip(_) | Packet::Fup(_) => self.clock.passed(),
                _ => (),
            }
        }
    }
}
