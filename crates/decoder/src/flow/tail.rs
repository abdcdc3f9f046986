//! Behind the segment's end: packets that only the clock reads.

use model::AuxOffset;
use packet::{Filtered, LastIp, Packet};

use super::Flow;
use crate::clock::Slot;
use crate::reader::Item;

impl Flow<'_> {
    /// The next segment's PSB+ is complete.  How long cycles were before it depends on what is measured behind it, too, as
    /// CBR packets come late: reads on until that is known.
    pub(super) fn settle_clock(&mut self) {
        let (end, mut in_psb) = (self.last.slot, false);
        loop {
            self.pass_common(end);
            if self.clock.is_settled(end) {
                return;
            }
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

    /// Reads past the packets that most of a trace is, until `end` is settled.
    fn pass_common(&mut self, end: Slot) {
        let run = self.reader.run(AuxOffset(u64::MAX));
        let mut rest = run;
        let last_ip = &mut LastIp::default(); // nobody asks for addresses here
        let mut is_settled = self.clock.is_settled(end);
        while !is_settled {
            if let Some((_, len)) = packet::decode_common(rest, last_ip) {
                self.clock.passed();
                rest = &rest[len..];
                continue;
            }
            let Some((packet, behind)) = packet::decode_filtered(rest, last_ip) else { break };
            match packet {
                Filtered::Cyc(cycles) => self.clock.cyc(cycles),
                Filtered::Mtc(ctc) => {
                    self.clock.mtc(ctc);
                    is_settled = self.clock.is_settled(end);
                }
                Filtered::TipPge(_) | Filtered::TipPgd(_) => {
                    self.clock.passed();
                    self.clock.discontinuity();
                }
                Filtered::Mode64 => (),
            }
            rest = behind;
        }
        self.reader.passed(run, rest);
    }
}
