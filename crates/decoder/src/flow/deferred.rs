//! After missing code: which bits of the last TNT were its own.
//!
//! ```text
//!   missing code ... TNT bbbbbb  TIP f
//!                        ^^^^ its own, or f's if the TIP waits for TNT to be sent (SDM, "Deferred TIPs")
//! ```
//! In code that is followed the code tells. Here each number of bits is a hypothesis, which is held against
//! the packets after the TIP. Execution goes on where all hypotheses that fit make the same choices;
//! otherwise it stays lost.

use model::{Avma, GapCause};
use packet::{LastIp, Packet, Tnt};

use super::loss::{Lost, is_missing_code};
use super::{Flow, State};
use crate::reader::{Item, Reader};
use crate::step::Step;
use crate::walk::{Choices, Trial, TrialState};
use crate::work::Work;

/// Packets that a hypothesis is held against.
const MAX_PACKETS: usize = 1 << 4;

impl<W: Work> Flow<'_, W> {
    /// No bit waits for a TIP from here on: the packet at hand has forced them out.
    #[inline]
    pub(super) fn forced_out(&mut self) {
        (self.waiting, self.last_tnt) = (Tnt::default(), Tnt::default());
    }

    /// Execution is about to be lost, because of `cause`: bits that wait are those of what comes. Where code
    /// was missing before, a contradiction says that bits or calls of that were taken for those of the code
    /// at hand. Bits of an older TNT were followed in code that was there, and wait for nothing.
    pub(super) fn lose_bits(&mut self, cause: GapCause) -> GapCause {
        let bits = std::mem::take(&mut self.walk.tnt);
        let contradicted = self.walk.unknown_callers.filter(|_| matches!(cause, GapCause::Desync { .. }));
        if let Some(missing) = contradicted {
            self.waiting = self.last_tnt;
            return missing;
        }
        if !is_missing_code(cause) || matches!(self.state, State::Lost(_)) {
            self.waiting = Tnt::default();
        } else if !bits.is_empty() {
            self.waiting = bits;
        }
        self.last_tnt = self.waiting;
        cause
    }

    /// A TNT was followed, or skipped with missing code: there any of its last bits may wait.
    pub(super) fn bits_after_tnt(&mut self) {
        let is_missing = matches!(self.state, State::Lost(lost) if is_missing_code(lost.cause));
        self.waiting = if is_missing { self.last_tnt } else { Tnt::default() };
    }

    /// Lost, and a TIP goes to `ip`.
    pub(super) fn recover_by_tip(&mut self, step: Step, ip: Avma) {
        let may_wait = !self.waiting.is_empty() && !ip.is_kernel() && !self.guest;
        if !may_wait || self.enter(ip).is_err() {
            return self.recover(step, ip);
        }
        let State::Lost(Lost { cause, .. }) = self.state else { return };
        let bits = self.bits_after(ip);
        if bits.is_some() || self.context.shows_way_back(cause) {
            self.recover(step, ip);
        }
        if matches!(self.state, State::On) {
            // Control is there, and how it goes on is not known: another loss, which begins in that code.
            let Some(bits) = bits else { return self.lose(cause, step.at, true) };
            (self.walk.tnt, self.walk.first_bit) = (bits, Some(self.walk.work()));
            let walked = self.walk.follow_bits(step);
            self.check(walked, step.at);
        }
    }

    /// Those of the waiting bits that belong after a TIP to `ip`; none where the hypotheses that fit take
    /// different ways.
    fn bits_after(&mut self, ip: Avma) -> Option<Tnt> {
        let all = self.waiting;
        let mut found: Option<(Tnt, Choices)> = None;
        let mut is_only = true;
        for count in 0..=all.len() {
            let bits = Tnt::new(all.bits(), count);
            let Some(choices) = self.choices_after((ip, self.last_ip), bits, self.reader) else { continue };
            match &found {
                None => found = Some((bits, choices)),
                Some((_, first)) if *first == choices => is_only = false,
                Some(_) => return None,
            }
        }
        if is_only {
            self.waiting = Tnt::default();
        }
        found.map(|(bits, _)| bits)
    }

    /// The choices of the packets in `reader` from `ip` on, if `bits` come first; none if code and packets
    /// contradict each other.
    pub(super) fn choices_after(
        &mut self,
        (ip, mut last_ip): (Avma, LastIp),
        bits: Tnt,
        mut reader: Reader<'_>,
    ) -> Option<Choices> {
        let truncation = self.segment.truncations.get(self.next_truncation).copied();
        let mut trial = Trial::at(&mut self.walk, ip, bits)?;
        let mut trying = trial.bits();
        for _ in 0..MAX_PACKETS {
            match trying {
                TrialState::Goes => (),
                TrialState::Fits => break,
                TrialState::Fails => return None,
            }
            let packet = match reader.next() {
                Some(Item::Packet(at, packet)) if truncation.is_none_or(|end| at < end) => packet,
                _ => break,
            };
            trying = match packet {
                Packet::Tnt(tnt) => trial.tnt(tnt),
                Packet::Tip(payload) => {
                    last_ip.expand(payload).map_or(TrialState::Fails, |ip| trial.tip(Avma(ip)))
                }
                Packet::Fup(payload) => trial.fup(last_ip.expand(payload).map(Avma)),
                Packet::Pad
                | Packet::Cyc(_)
                | Packet::Mtc(_)
                | Packet::Tsc(_)
                | Packet::Tma { .. }
                | Packet::Cbr(_) => TrialState::Goes,
                _ => trial.ends(),
            };
        }
        (trying != TrialState::Fails).then(|| trial.into_choices())
    }

    /// After missing code, a TIP to `ip` is a return that leaves out a call.
    pub(super) fn doubts_return(&mut self, ip: Avma) -> bool {
        self.walk.unknown_callers.is_some() && Trial::of(&mut self.walk).next_returns_past_a_call(ip)
    }
}
