//! After the segment's end: packets that only the clock reads.

use model::AuxOffset;
use packet::{Common, LastIp, MAX_PACKET_LEN, Packet};

use super::Flow;
use crate::clock::Slot;
use crate::reader::Item;

impl Flow<'_> {
    /// The next segment's PSB+ is complete. How long cycles were before it depends on what is measured after
    /// it, too, as CBR packets come late: reads on until that is known, or until packets were lost.
    pub(super) fn settle_clock(&mut self) {
        let (end, mut in_psb) = (self.last.slot, false);
        let lost = self.segment.lost_after.unwrap_or(AuxOffset(u64::MAX));
        loop {
            self.pass_common(end, lost);
            if self.clock.is_settled(end) {
                return;
            }
            let offset = self.reader.offset();
            let Some(Item::Packet(at, packet)) = self.reader.next() else { return };
            if at != offset || self.reader.offset() > lost || packet == Packet::Ovf {
                return;
            }
            match packet {
                Packet::Psb => {
                    in_psb = true;
                    if self.errata.skl168 {
                        self.clock.discontinuity();
                    }
                }
                Packet::PsbEnd => in_psb = false,
                Packet::TipPge(_) | Packet::TipPgd(_) => self.tracing_changes(),
                Packet::Tnt(_) | Packet::Tip(_) | Packet::Fup(_) => self.clock.passed(),
                _ => self.clock.packet(&packet, in_psb),
            }
        }
    }

    /// Tracing starts or ends: any time may pass while it is off.
    fn tracing_changes(&mut self) {
        self.clock.passed();
        self.clock.discontinuity();
    }

    /// Reads past packets of a common form, until `end` is settled; not up to where packets were lost.
    fn pass_common(&mut self, end: Slot, lost: AuxOffset) {
        let mut rest = self.reader.run(AuxOffset(lost.0.saturating_sub(MAX_PACKET_LEN as u64)));
        let last_ip = &mut LastIp::default(); // the clock needs no addresses
        let mut is_settled = self.clock.is_settled(end);
        while !is_settled && let Some((packet, len)) = packet::decode_common(rest, last_ip) {
            self.reader.advance(len);
            rest = &rest[len..];
            match packet {
                Common::Tnt(_) | Common::Tip(_) => self.clock.passed(),
                Common::TipPge(_) | Common::TipPgd(_) => self.tracing_changes(),
                Common::Cyc(cycles) => self.clock.cyc(cycles),
                Common::Mtc(counter) => {
                    self.clock.mtc(counter);
                    is_settled = self.clock.is_settled(end);
                }
                Common::Mode64 => (),
            }
        }
    }
}
