//! Losing track of execution, and finding it again: every hole becomes a gap.

use model::{AuxOffset, Avma, GapCause, Ns};
use packet::Tnt;

use super::events::FupUse;
use super::{Flow, Lost, State};
use crate::output::Moment;
use crate::owner::{LostPart, Running};
use crate::walk::Step;

impl Flow<'_> {
    pub(super) fn overflow(&mut self, at: AuxOffset) {
        if matches!(self.state, State::Unsynced) && !self.segment.first && self.clock.is_set() {
            self.attribute(); // the PSB+ that says who runs ends here
        }
        self.psb = None;
        self.fup = None;
        self.fup_use = FupUse::default();
        self.walk.output.overflows += 1;
        self.walk.stack.clear();
        self.away.forget_returns();
        self.last_ip.reset();
        self.lose(GapCause::Overflow, at, false);
        self.clock.lost();
    }

    /// The kernel lost data behind the next truncation; whole packets end at `offset`.
    pub(super) fn truncated(&mut self, offset: AuxOffset) {
        let Some(&at) = self.segment.truncations.get(self.next_truncation) else { return };
        self.next_truncation += 1;
        let whole = offset == at && self.psb.is_none() && self.walk.tnt.is_empty();
        let clean = whole && matches!(self.state, State::Off | State::Kernel);
        self.lose(self.truncation_cause(), offset.min(at), !clean);
        self.clock.lost();
        if !clean {
            self.psb = None;
            self.read_from(at);
            self.reader.resync_here();
        }
    }

    /// Why the stream is interrupted where an AUX record says so.
    pub(super) fn truncation_cause(&self) -> GapCause {
        let snapshot = self.context.recording.pt.snapshot;
        if snapshot { GapCause::BetweenSnapshots } else { GapCause::Truncated }
    }

    /// The stream goes on at `at`, but not from where it was.
    pub(super) fn hole(&mut self, at: AuxOffset) {
        self.lose(GapCause::DamagedPacket, at, true);
        self.clock.lost();
        self.psb = None;
        self.read_from(at);
        self.reader.resync_here();
    }

    /// Nothing more is known until the end: whoever came to the CPU behind `lost` is lost, too.
    pub(super) fn lose_the_rest(&mut self, lost: Lost, end: Option<Ns>) {
        let after = if self.running.is_known() { self.running.to } else { self.clock.now_lo() };
        for other in self.owner.between(after, Ns::MAX) {
            let until = end.map_or(other.to, |end| end.min(other.to));
            if other.from < until {
                let space = self.context.code.space(other.pid, other.from);
                self.walk.output.thread(other, space, other.from);
                let (from, to) = (Moment::Exactly(other.from), Moment::Exactly(until));
                self.walk.output.gap(from, to, 0, lost.at, lost.cause);
            }
        }
    }

    /// Somebody runs where switch records were lost: each who may have run then has a hole there.
    pub(super) fn doubt(&mut self, step: Step) {
        let now = self.clock.now_lo();
        if now < self.doubted {
            return; // it has been said
        }
        for other in self.owner.doubtful(now, Ns(now.0.saturating_add(1))) {
            let space = self.context.code.space(other.pid, other.from);
            let output = &mut self.walk.output;
            output.thread(other, space, other.from);
            output.gap(
                Moment::Exactly(other.from),
                Moment::Exactly(other.to),
                0,
                step.at,
                GapCause::UnknownThread,
            );
            self.doubted = self.doubted.max(other.to);
        }
    }

    /// The ring had forgotten what ran first: until `to` nothing was observed of anybody.
    fn before_the_first_snapshot(&mut self, lost: Lost, bytes: u64, to: Moment, now: Running) {
        let start = self.context.recording.time_span.map_or(Ns(0), |(first, _)| first);
        let output = &mut self.walk.output;
        let mut of = |who: Running, until: Moment, bytes: u64| {
            output.thread(who, self.context.code.space(who.pid, who.from), who.from);
            let from = Moment::Exactly(who.from.max(start));
            output.gap(from, until, bytes, lost.at, GapCause::BetweenSnapshots);
        };
        for other in self.owner.between(Ns(0), now.from) {
            of(other, Moment::Exactly(other.to), 0);
        }
        of(now, to, bytes);
    }

    /// Packets are whole again.
    pub(super) fn resolved(&mut self) {
        let State::Lost(lost) = &mut self.state else { return };
        if lost.resolved.is_none() && self.psb.is_none() {
            lost.resolved = Some((self.clock.slot(self.walk.work), self.clock.now_lo()));
        }
    }

    /// From here on execution is not known; `skips`: the bytes that follow cannot be used.
    pub(super) fn lose(&mut self, cause: GapCause, at: AuxOffset, skips: bool) {
        self.walk.tnt = Tnt::default();
        self.fup = None;
        if let State::Lost(lost) = &mut self.state {
            lost.skips |= skips;
            (lost.psb, lost.resolved, lost.fup_is_late) = (None, None, false);
            return;
        }
        let from = match self.state {
            State::On => self.flow_slot,
            _ => self.clock.slot(self.walk.work),
        };
        self.state =
            State::Lost(Lost { cause, from, at, skips, psb: None, resolved: None, fup_is_late: false });
    }

    /// Lost, and a packet says where execution is: goes on there if there is code.
    pub(super) fn recover(&mut self, step: Step, ip: Avma) {
        if self.running.is_known() && (self.guest || ip.is_kernel() || self.enter(ip).is_ok()) {
            self.arrive(step, ip, false);
        }
    }

    /// Emits the gap of a `Lost` state, for every thread that may have run in it.  `now`: who runs behind it.
    pub(super) fn close_gap(&mut self, step: Step, now: Running) {
        let State::Lost(lost) = self.state else { return };
        self.state = State::Off;
        let mut bytes = lost.bytes_until(step.at);
        let (end, end_lo) = lost.resolved.unwrap_or((step.slot, self.clock.now_lo()));
        if lost.cause == GapCause::NoSync && self.context.recording.pt.snapshot {
            return self.before_the_first_snapshot(lost, bytes, Moment::At(end), now);
        }
        let (before, before_space) = (self.running, self.walk.space);
        let parts = match lost.cause {
            GapCause::UnknownThread => vec![LostPart::all_of(before)],
            _ => self.owner.lost(before, now, end_lo),
        };
        for LostPart { whose, from, not_after } in parts {
            let space =
                if whose == before { before_space } else { self.context.code.space(whose.pid, whose.from) };
            self.walk.output.thread(whose, space, from.unwrap_or(self.clock.now_lo()));
            let from = from.map_or(Moment::At(lost.from), Moment::Exactly);
            let to = not_after.map_or(Moment::At(end), |bound| Moment::NotAfter(end, bound));
            self.walk.output.gap(from, to, std::mem::take(&mut bytes), lost.at, lost.cause);
        }
    }
}
