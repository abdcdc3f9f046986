//! After the segment's end: packets that only the clock reads.

use model::AuxOffset;
use packet::{Filtered, LastIp, MAX_PACKET_LEN, Packet};

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

    /// Reads past the packets that most of a trace is, until `end` is settled; not up to where packets were
    /// lost.
    fn pass_common(&mut self, end: Slot, lost: AuxOffset) {
        let run = self.reader.run(AuxOffset(lost.0.saturating_sub(MAX_PACKET_LEN as u64)));
        let mut rest = run;
        let last_ip = &mut LastIp::default(); // nobody asks for addresses here
        let mut is_settled = self.clock.is_settled(end);
        while !is_settled {
            if let Some((_, len)) = packet::decode_common(rest, last_ip) {
                self.clock.passed();
                rest = &rest[len..];
                continue;
            }
            let Some((packet, after)) = packet::decode_filtered(rest, last_ip) else { break };
            match packet {
                Filtered::Cyc(cycles) => self.clock.cyc(cycles),
                Filtered::Mtc(ctc) => {
                    self.clock.mtc(ctc);
                    is_settled = self.clock.is_settled(end);
                }
                Filtered::TipPge(_) | Filtered::TipPgd(_) => self.tracing_changes(),
                Filtered::Mode64 => (),
            }
            rest = after;
        }
        self.reader.passed(run, rest);
    }
}
