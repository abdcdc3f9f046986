//! Losing track of execution: every hole becomes a gap of all threads that it may hide.

use decoder::{LostPart, Running, Stretch};
use model::{AuxOffset, EventTime, Gap, GapCause, Ns, TraceEvent};

use super::{Flow, State};
use crate::when::OnCpu;

/// A loss that has not ended.
#[derive(Clone, Copy)]
pub(super) struct Lost {
    pub(super) cause: GapCause,
    /// When execution was known last.
    from: Ns,
    pub(super) at: AuxOffset,
    /// The bytes since `at` are not decoded,
    skips: bool,
    /// up to this PSB.
    pub(super) psb: Option<AuxOffset>,
    /// libipt goes on after that PSB.
    pub(super) synchronised: bool,
    /// The thread that ran before, if another one runs now.
    pub(super) before: Option<Running>,
}

impl Flow<'_> {
    /// From here on execution is not known; `skips`: nor are the bytes used.
    pub(super) fn lose(&mut self, cause: GapCause, at: AuxOffset, skips: bool) {
        if let State::Lost(lost) = &mut self.state {
            lost.skips |= skips;
            (lost.psb, lost.synchronised) = (None, false);
            return;
        }
        let from = self.now;
        self.state =
            State::Lost(Lost { cause, from, at, skips, psb: None, synchronised: false, before: None });
    }

    /// Why the stream is interrupted where an AUX record says so.
    pub(super) fn truncation_cause(&self) -> GapCause {
        let snapshot = self.context.recording.pt.snapshot;
        if snapshot { GapCause::BetweenSnapshots } else { GapCause::Truncated }
    }

    /// The trace unit lost packets.
    pub(super) fn lose_packets(&mut self, at: AuxOffset) {
        self.overflows += 1;
        self.lose(GapCause::Overflow, at, false);
    }

    /// Emits the gap of a loss that ended at `end`, when `now` ran, for every thread that may have run in it.
    pub(super) fn close_gap(&mut self, now: Running, end: Ns) {
        let State::Lost(lost) = self.state else { return };
        self.state = State::Off;
        let before = lost.before.unwrap_or(now);
        let parts = match lost.cause {
            GapCause::UnknownThread => vec![LostPart::all_of(before)],
            _ => self.owner.lost(before, now, end),
        };
        let mut bytes = match lost.psb {
            Some(psb) if lost.skips => psb.0.saturating_sub(lost.at.0),
            _ => 0,
        };
        for LostPart { running, from, not_after } in parts {
            let from = from.unwrap_or(lost.from);
            let to = not_after.map_or(end, |bound| bound.min(end));
            self.push_gap(running, from, to, std::mem::take(&mut bytes), &lost);
        }
    }

    fn push_gap(&mut self, running: Running, from: Ns, to: Ns, bytes: u64, lost: &Lost) {
        let space = self.context.code.space(running.pid, from.max(running.from));
        if !self.stretches.last().is_some_and(|last| last.is_of(running, space)) {
            self.stretches.push(Stretch::new(running, space, from));
        }
        let time = |at: Ns| -> EventTime { OnCpu::around(self.context, running, at).time(at) };
        let gap = Gap { from: time(from), to: time(to.max(from)), bytes, at: lost.at, cause: lost.cause };
        if let Some(stretch) = self.stretches.last_mut() {
            stretch.push(TraceEvent::Gap(gap));
        }
    }

    /// The stream is over: a loss that is open lasts until the end.
    pub(super) fn finish_stream(&mut self) {
        let missing = self.segment.missing;
        if missing > 0 {
            self.lose(GapCause::DamagedPacket, self.segment.end, true);
        }
        let State::Lost(mut lost) = self.state else { return };
        lost.psb = lost.psb.or(Some(self.segment.end));
        let (running, before) = (self.running, lost.before.unwrap_or(self.running));
        let skipped = if lost.skips { self.segment.end.0.saturating_sub(lost.at.0) } else { 0 };
        let bytes = skipped.saturating_add(missing);
        self.push_gap(before, lost.from, self.owner.last_of(self.context, before), bytes, &lost);
        if lost.cause == GapCause::UnknownThread {
            return;
        }
        let after = if running.is_known() { before.to } else { self.now };
        let until = |other| (other, self.owner.last_of(self.context, other));
        let others: Vec<(Running, Ns)> = self.owner.between(after, Ns::MAX).map(until).collect();
        for (other, until) in others {
            if other.from < until {
                self.push_gap(other, other.from, until, 0, &lost);
            }
        }
    }
}
