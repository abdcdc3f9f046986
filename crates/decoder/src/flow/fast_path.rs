//! Fast path: packets of a common form that lie in one piece of the stream.
//!
//! The path reads faster and asks less. What a packet does is said by the same functions for both ways; what
//! the loop in [`Flow::run`] checks besides cannot happen here: the ends of pieces, lost data, the segment's
//! end.

use model::{AuxOffset, Avma};
use packet::{Common, MAX_PACKET_LEN};

use super::fup::FupUse;
use super::{Flow, State};
use crate::effects::Asked;
use crate::work::Work;

/// A CYC and the packet after it have no more bytes.
const PAIR: usize = 2 + MAX_PACKET_LEN;

impl<W: Work> Flow<'_, W> {
    /// Handles packets up to the first one that has another form, or may be cut.
    pub(super) fn fast_path(&mut self) {
        if self.tail {
            return;
        }
        let before_lost = |at: &AuxOffset| AuxOffset(at.0.saturating_sub(MAX_PACKET_LEN as u64));
        let lost = self.segment.truncations.get(self.next_truncation).map_or(self.stop, before_lost);
        let mut rest = self.reader.run(lost.min(self.stop));
        let end = self.reader.offset().plus(rest.len() as u64);
        while self.stay.is_none() {
            if self.is_plain() {
                let len = self.follow_run(rest, end);
                self.reader.advance(len);
                rest = &rest[len..];
                if !self.walk.tnt.is_empty() {
                    self.follow_rest(AuxOffset(end.0 - rest.len() as u64 - 1)); // a TNT of one byte
                }
            }
            let Some((packet, len)) = packet::decode_common(rest, &mut self.last_ip) else { return };
            let at = AuxOffset(end.0 - rest.len() as u64);
            self.reader.advance(len);
            rest = &rest[len..];
            match packet {
                Common::Tnt(tnt) => self.tnt(at, tnt),
                Common::Tip(ip) => self.tip(at, Some(Avma(ip))),
                Common::TipPge(ip) => self.pge(at, Some(Avma(ip))),
                Common::TipPgd(ip) => self.pgd(at, ip.map(Avma)),
                Common::Cyc(cycles) => self.cyc(cycles),
                Common::Mtc(counter) => self.mtc(counter),
                Common::Mode64 => self.mode_exec(true),
            }
        }
    }

    /// Code is followed, and no packet before has left a question: what a TNT or TIP does follows from the
    /// code, and a CYC counts.
    fn is_plain(&self) -> bool {
        matches!(self.state, State::On)
            && self.fup.is_none()
            && self.fup_use == FupUse::default()
            && self.psb.is_none()
            && self.walk.tnt.is_empty()
            && self.walk.unknown_callers.is_none()
            && self.waiting.is_empty()
            && self.clock.counts_cyc()
    }

    /// Follows TNT, TIP and CYC packets where [`Self::is_plain`], up to the first other packet or one without
    /// a remembered effect: that packet is left unread. The last TNT may be followed in part: its other bits
    /// wait in [`crate::walk::Walk::tnt`]. Returns the packets' length.
    fn follow_run(&mut self, run: &[u8], end: AuxOffset) -> usize {
        if self.clock.has_cyc() {
            self.follow_run_of::<true>(run, end)
        } else {
            self.follow_run_of::<false>(run, end)
        }
    }

    /// [`Self::follow_run`] with or without CYC packets.
    // On its own, so that the registers are all its.
    #[inline(never)]
    fn follow_run_of<const CYC: bool>(&mut self, run: &[u8], end: AuxOffset) -> usize {
        let Self { walk, clock, last, last_ip, .. } = self;
        let (mut left, mut here, mut waits) = (run, walk.here, None);
        let Some(mut known) = walk.known() else { return 0 };
        while let Some(bytes) = left.first_chunk::<PAIR>() {
            let mut cyc_len = 0;
            if let Some((cycles, len)) = packet::decode_cyc(bytes) {
                if CYC {
                    clock.cyc_after_anchor(cycles);
                } else {
                    clock.cyc(cycles);
                }
                last.after_tnt = false;
                cyc_len = len;
            }
            left = &left[cyc_len..];
            let at = || AuxOffset(end.0 - left.len() as u64);
            match packet::decode_flow(left, last_ip) {
                Some((Common::Tnt(tnt), len)) => {
                    let begin = here.work.timed_instructions();
                    let step = || last.step(clock.next_slot(), at());
                    let Some(first) = known.follow(&mut here, Asked::bits(tnt), true, step) else { break };
                    let first_bit = begin.wrapping_add(first.first_work);
                    let mut unknown = first.rest();
                    last.tnt(clock.next_slot());
                    clock.tnt_of::<CYC>(first_bit, tnt);
                    while !unknown.is_empty() {
                        let step = || last.rest_of_tnt(at());
                        match known.follow(&mut here, Asked::bits(unknown), false, step) {
                            Some(effect) => unknown = effect.rest(),
                            None => break,
                        }
                    }
                    left = &left[len..];
                    if !unknown.is_empty() {
                        waits = Some((unknown, first_bit));
                        break;
                    }
                }
                Some((Common::Tip(ip), len)) => {
                    let step = || last.tip_step(clock.next_slot(), at());
                    if known.follow(&mut here, Asked::Address(Avma(ip)), false, step).is_none() {
                        break;
                    }
                    if !CYC {
                        clock.progress(1);
                    }
                    if last.after_tnt {
                        clock.passed();
                    } else {
                        last.tip(clock.next_slot());
                        clock.slot(here.work.timed_instructions());
                    }
                    left = &left[len..];
                }
                _ => break,
            }
        }
        walk.here = here;
        if let Some((unknown, first_bit)) = waits {
            (walk.tnt, walk.first_bit) = (unknown, Some(first_bit));
        }
        run.len() - left.len()
    }
}
