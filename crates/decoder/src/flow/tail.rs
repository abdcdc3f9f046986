//! After the segment's end: packets that only the clock reads.

use model::AuxOffset;
use packet::{Common, LastIp, MAX_PACKET_LEN, Packet};

use super::Flow;
use crate::clock::Slot;
use crate::reader::Item;
use crate::work::Work;

impl<W: Work> Flow<'_, W> {
    /// The next segment's PSB+ is complete. The length of cycles before it depends on measurements after
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
                    self.cycles_until_psb(at);
                }
                Packet::PsbEnd => in_psb = false,
                Packet::TipPge(_) | Packet::TipPgd(_) => self.tracing_changes(),
                Packet::Tnt(_) | Packet::Tip(_) | Packet::Fup(_) => self.clock.passed(),
                Packet::Cyc(cycles) => self.tail_cyc(cycles),
                _ => self.clock.packet(&packet, in_psb),
            }
        }
    }

    /// A CYC packet. The first one says how many cycles passed around the PSB at most.
    fn tail_cyc(&mut self, cycles: u64) {
        self.walk.output.bounds.next_cyc.get_or_insert(cycles);
        self.clock.cyc(cycles);
    }

    /// The PSB+ is complete: a CYC packet may have stood in it.
    pub(super) fn cycles_in_psb(&mut self) {
        let bounds = &mut self.walk.output.bounds;
        let before = bounds.end.map_or(0, |(_, cycles)| cycles);
        let cycles = self.clock.counted_cycles().saturating_sub(before);
        bounds.next_cyc = (cycles > 0).then_some(cycles);
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
                Common::Cyc(cycles) => self.tail_cyc(cycles),
                Common::Mtc(counter) => {
                    self.clock.mtc(counter);
                    is_settled = self.clock.is_settled(end);
                }
                Common::Mode64 => (),
            }
        }
    }
}
