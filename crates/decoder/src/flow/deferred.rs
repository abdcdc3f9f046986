//! After missing code: which bits of the last TNT were its own.
//!
//! ```text
//!   missing code ... TNT bbbbbb  TIP f
//!                        ^^^^ its own, or of f, if the TIP waited for the TNT to be sent (SDM, "Deferred TIPs")
//! ```
//! In code that is followed the code tells; here what comes after the TIP must.  Until all calls since the missing code are known,
//! a return that leaves out one of them shows that bits were taken for another's.

use model::{AuxOffset, Avma, GapCause};
use packet::{Packet, Tnt};

use super::{Flow, State};
use crate::reader::Item;
use crate::walk::{Trial, Trying};

/// Packets that a hypothesis is held against.
const MAX_PACKETS: usize = 1 << 4;

impl Flow<'_> {
    /// Bits of code that is lost; if it is missing, the last ones may have waited for a TIP.
    pub(super) fn skip_bits(&mut self, tnt: Tnt) {
        if let State::Lost(lost) = &mut self.state
            && lost.missing_code().is_some()
        {
            lost.bits = tnt;
        }
    }

    /// Lost, and a TIP goes to `ip`.
    pub(super) fn recover_by_tip(&mut self, at: AuxOffset, ip: Avma, mut bits: Tnt) {
        let has_code = !ip.is_kernel() && !self.guest && self.enter(ip).is_ok();
        if has_code && !bits.is_empty() {
            let Some(rest) = self.bits_after(ip, bits) else { return };
            bits = rest;
        }
        let step = self.step(at);
        self.recover(step, ip);
        if matches!(self.state, State::On) && !bits.is_empty() {
            (self.walk.tnt, self.walk.first_bit) = (bits, Some(self.walk.work));
            let walked = self.walk.follow_tnt(step);
            self.check(walked, at);
        }
    }

    /// Those of the missing code's last `bits` that belong after its TIP to `ip`: mostly none.  Where that does not fit what
    /// follows, the only other number of bits that does; none where that is not known.
    fn bits_after(&mut self, ip: Avma, bits: Tnt) -> Option<Tnt> {
        let youngest = |count| Tnt::new(bits.bits(), count);
        if self.fits(ip, youngest(0)) {
            return Some(youngest(0));
        }
        let mut others = (1..=bits.len()).map(youngest).filter(|&rest| self.fits(ip, rest));
        let first = others.next()?;
        others.next().is_none().then_some(first)
    }

    /// What follows a TIP to `ip` fits the code there, if `bits` come first.
    fn fits(&mut self, ip: Avma, bits: Tnt) -> bool {
        let truncation = self.segment.truncations.get(self.next_truncation).copied();
        let (mut reader, mut last_ip) = (self.reader, self.last_ip);
        let Some(mut trial) = Trial::at(&mut self.walk, ip, bits) else { return true };
        let mut trying = trial.bits();
        for _ in 0..MAX_PACKETS {
            match trying {
                Trying::Goes => (),
                Trying::Fits => return true,
                Trying::Fails => return false,
            }
            let packet = match reader.next() {
                Some(Item::Packet(at, packet)) if truncation.is_none_or(|end| at < end) => packet,
                _ => return true,
            };
            trying = match packet {
                Packet::Tnt(tnt) => trial.tnt(tnt),
                Packet::Tip(payload) => {
                    last_ip.expand(payload).map_or(Trying::Fails, |ip| trial.tip(Avma(ip)))
                }
                Packet::Fup(payload) => {
                    let reached = last_ip.expand(payload).is_some_and(|ip| trial.reaches(Avma(ip)));
                    return reached && !trial.has_bits();
                }
                Packet::Pad
                | Packet::Cyc(_)
                | Packet::Mtc(_)
                | Packet::Tsc(_)
                | Packet::Tma { .. }
                | Packet::Cbr(_) => Trying::Goes,
                _ => return !trial.has_bits(),
            };
        }
        trying != Trying::Fails
    }

    /// After missing code, a TIP to `ip` is a return that leaves out a call: why that is a doubt.
    pub(super) fn doubts_return(&mut self, ip: Avma) -> Option<GapCause> {
        let cause = self.walk.unknown_callers?;
        Trial::of(&mut self.walk).next_returns_past_a_call(ip).then_some(cause)
    }
}
