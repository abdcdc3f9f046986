//! Losing track of execution, and finding it again: every hole becomes a gap.

use model::{AuxOffset, Avma, GapCause, Ns};

use super::fup::FupUse;
use super::{Flow, State};
use crate::clock::Slot;
use crate::output::Moment;
use crate::owner::{LostPart, Running};
use crate::step::Step;
use crate::work::Work;

/// From a place in the stream on execution is not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    pub(super) cause: GapCause,
    from: Moment,
    /// Not before this time.
    since: Ns,
    at: AuxOffset,
    /// The bytes since `at` are not decoded,
    pub(super) skips: bool,
    /// up to the next PSB.
    pub(super) psb: Option<AuxOffset>,
    /// Packets were whole again before execution was known again.
    resolved: Option<Resolved>,
    /// What was lost last was lost by an overflow.
    pub(super) overflowed: bool,
    /// Why packets that show the way out of missing code were lost ([`Context::shows_way_back`]), if any.
    hidden_by: Option<GapCause>,
    /// Packets other than of time came since: the next FUP is not OVF's own.
    pub(super) fup_is_late: bool,
}

/// The first packet of time after a loss of packets.
#[derive(Clone, Copy, Debug)]
struct Resolved {
    slot: Slot,
    not_before: Ns,
    /// After the packet.
    at: AuxOffset,
}

impl Lost {
    /// See [`is_of_packets`].
    const fn is_of_packets(&self) -> bool {
        is_of_packets(self.cause)
    }

    /// Why the code that ran is not known.
    fn why(&self) -> GapCause {
        self.hidden_by.unwrap_or(self.cause)
    }

    /// How many bytes are not decoded if those from `end` on are.
    fn bytes_until(&self, end: AuxOffset) -> u64 {
        if self.skips { self.psb.unwrap_or(end).0.saturating_sub(self.at.0) } else { 0 }
    }
}

/// Packets are missing, not the code that they lead through or the thread that they are of.
const fn is_of_packets(cause: GapCause) -> bool {
    match cause {
        GapCause::Overflow
        | GapCause::Truncated
        | GapCause::DamagedPacket
        | GapCause::NoSync
        | GapCause::NotYetAttached
        | GapCause::UntracedCpu
        | GapCause::BetweenSnapshots
        | GapCause::NotDecoded
        | GapCause::FullRing => true,
        GapCause::Desync { .. }
        | GapCause::MissingCode { .. }
        | GapCause::UnmappedCode { .. }
        | GapCause::NarrowCode { .. }
        | GapCause::UnknownInstruction { .. }
        | GapCause::Guest
        | GapCause::UnknownThread => false,
    }
}

/// The packets are there, and the code that they lead through is not.
pub(super) const fn is_missing_code(cause: GapCause) -> bool {
    matches!(
        cause,
        GapCause::MissingCode { .. }
            | GapCause::UnmappedCode { .. }
            | GapCause::NarrowCode { .. }
            | GapCause::UnknownInstruction { .. }
    )
}

impl<W: Work> Flow<'_, W> {
    pub(super) fn overflow(&mut self, at: AuxOffset) {
        if matches!(self.state, State::Unsynced) && !self.segment.first && self.clock.is_set() {
            self.attribute(); // the PSB+ that says which thread runs ends here
        }
        self.psb = None;
        self.fup = None;
        self.fup_use = FupUse::default();
        self.walk.output.overflows += 1;
        self.forget_calls();
        self.lose(GapCause::Overflow, at, false);
        self.clock.lost();
        self.choose_last_ip();
    }

    /// The kernel lost data after the next truncation; whole packets end at `offset`.
    pub(super) fn truncated(&mut self, offset: AuxOffset) {
        let Some(&at) = self.segment.truncations.get(self.next_truncation) else { return };
        self.next_truncation += 1;
        self.end_where_tracing_is_off();
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
        let is_left_out = self.context.recording.leaves_out;
        let cause = if is_left_out { GapCause::NotDecoded } else { GapCause::DamagedPacket };
        self.lose(cause, at, true);
        self.clock.lost();
        self.psb = None;
        self.read_from(at);
        self.reader.resync_here();
    }

    /// The segment ends in a gap.
    pub(super) fn lost_at_the_end(&mut self) {
        if !self.segment.last {
            return self.lost_at_the_next_psb();
        }
        let missing = self.segment.missing;
        if missing > 0 {
            self.lose(GapCause::DamagedPacket, self.segment.end, true);
        }
        self.end_where_tracing_is_off();
        let State::Lost(lost) = self.state else { return };
        let bytes = lost.bytes_until(self.reader.offset().min(self.segment.end)).saturating_add(missing);
        let until = self.owner.last_of(self.context, self.running);
        self.walk.thread(self.running, self.walk.space, lost.since);
        self.walk.gap(lost.from, Moment::Exactly(until), bytes, lost.at, lost.why());
        if lost.cause != GapCause::UnknownThread {
            self.lose_the_rest(lost);
        }
    }

    /// The next segment's PSB+ is lost, too: that gap is the next segment's, and this one lasts until there.
    fn lost_at_the_next_psb(&mut self) {
        self.end_before_another_loss();
        let State::Lost(lost) = self.state else { return };
        if lost.at < self.segment.end {
            let step = self.step(self.segment.end);
            self.close_gap(step, self.present(self.clock.now_lo()));
        }
    }

    /// Nothing more is known until the end: threads that came to the CPU after `lost` are lost, too.
    fn lose_the_rest(&mut self, lost: Lost) {
        let after = if self.running.is_known() { self.running.to } else { self.clock.now_lo() };
        for other in self.owner.between(after, Ns::MAX) {
            let until = self.owner.last_of(self.context, other);
            if other.from < until {
                let space = self.context.code.space(other.pid, other.from);
                self.walk.thread(other, space, other.from);
                let (from, to) = (Moment::Exactly(other.from), Moment::Exactly(until));
                self.walk.gap(from, to, 0, lost.at, lost.why());
            }
        }
    }

    /// Gives a gap to each thread that may run now, where switch records were lost.
    pub(super) fn doubt(&mut self, step: Step) {
        let now = self.clock.now_lo();
        if now < self.doubted {
            return; // it has been said
        }
        for other in self.owner.doubtful(now, Ns(now.0.saturating_add(1))) {
            let space = self.context.code.space(other.pid, other.from);
            self.walk.thread(other, space, other.from);
            self.walk.gap(
                Moment::Exactly(other.from),
                Moment::Exactly(other.to),
                0,
                step.at,
                GapCause::UnknownThread,
            );
            self.doubted = self.doubted.max(other.to);
        }
    }

    /// The ring had forgotten the first code that ran: until `to` no thread was observed.
    fn before_the_first_snapshot(&mut self, lost: Lost, bytes: u64, to: Moment, now: Running) {
        let start = self.context.recording.time_span.map_or(Ns(0), |(first, _)| first);
        let walk = &mut self.walk;
        let mut of = |who: Running, until: Moment, bytes: u64| {
            walk.thread(who, self.context.code.space(who.pid, who.from), who.from);
            let from = Moment::Exactly(who.from.max(start));
            walk.gap(from, until, bytes, lost.at, GapCause::BetweenSnapshots);
        };
        for other in self.owner.between(Ns(0), now.from) {
            of(other, Moment::Exactly(other.to), 0);
        }
        of(now, to, bytes);
    }

    /// Packets are whole again.  Where it was not packets that were missing, this says nothing.
    #[inline]
    pub(super) fn resolved(&mut self) {
        let State::Lost(lost) = &mut self.state else { return };
        if lost.is_of_packets() && !lost.skips && lost.resolved.is_none() && self.psb.is_none() {
            let slot = self.clock.slot(self.walk.work());
            lost.resolved =
                Some(Resolved { slot, not_before: self.clock.now_lo(), at: self.reader.offset() });
        }
    }

    /// A packet that comes only where tracing is on, and no address came before it (SKD010): the code that
    /// ran up to here is not known. `skips`: the packet does not say where execution is.
    pub(super) fn still_lost(&mut self, skips: bool) {
        if let State::Lost(lost) = &mut self.state {
            lost.skips |= skips;
            (lost.resolved, lost.fup_is_late) = (None, true);
        }
    }

    /// Packets are whole again, and no address has come since that says where execution goes on: tracing was
    /// off by then (SDM, "Overflow (OVF) Packet": a FUP follows if it is on; TIP.PGE where it starts), and
    /// nothing was lost after it. False if there is no such gap.
    pub(super) fn end_where_tracing_is_off(&mut self) -> bool {
        let State::Lost(Lost { resolved: Some(resolved), fup_is_late: false, .. }) = self.state else {
            return false;
        };
        let Resolved { slot, not_before, at } = resolved;
        self.close_gap(Step { lo: slot, own: slot, slot, at }, self.present(not_before));
        self.forget_calls();
        true
    }

    /// More is lost before an address has come. After an overflow that may be its FUP, and before a FUP
    /// "only timing packets may come" (SDM, "Internal Buffer Overflow"): then these do not say that tracing
    /// was off, and it is one loss.
    fn end_before_another_loss(&mut self) {
        match &mut self.state {
            State::Lost(lost) if lost.overflowed => lost.resolved = None,
            _ => {
                self.end_where_tracing_is_off();
            }
        }
    }

    /// The thread that runs at a time when tracing is off; if none that is traced does, the one that ran
    /// last.
    pub(super) fn present(&self, time: Ns) -> Running {
        let present = self.owner.at(time);
        if present.is_known() && present.from <= time { present } else { self.running }
    }

    /// From here on execution is not known; `skips`: the bytes that follow cannot be used.
    pub(super) fn lose(&mut self, cause: GapCause, at: AuxOffset, skips: bool) {
        let cause = self.lose_bits(cause);
        self.fup = None;
        if is_of_packets(cause) {
            self.forget_interruptions();
        }
        self.end_before_another_loss();
        if let State::Lost(lost) = &mut self.state {
            lost.skips |= skips;
            lost.overflowed = cause == GapCause::Overflow;
            if self.context.shows_way_back(lost.cause) && is_of_packets(cause) {
                lost.hidden_by = Some(cause);
            }
            (lost.psb, lost.resolved, lost.fup_is_late) = (None, None, false);
            return;
        }
        let from = match self.state {
            State::On => Moment::After(self.last.slot),
            _ => Moment::At(self.clock.slot(self.walk.work())),
        };
        let overflowed = cause == GapCause::Overflow;
        let since = self.clock.now_lo();
        let lost = Lost {
            cause,
            from,
            since,
            at,
            skips,
            psb: None,
            resolved: None,
            overflowed,
            hidden_by: None,
            fup_is_late: false,
        };
        if lost.is_of_packets() && matches!(self.state, State::Off) && self.clock.is_set() {
            // Others may have come and gone since there was a trace of anybody.
            self.running = self.present(since);
            self.walk.space = self.space_of(self.running);
        }
        self.state = State::Lost(lost);
    }

    /// Lost, and a packet says where execution is: goes on there if there is code, or if no more is missing
    /// than that.
    pub(super) fn recover(&mut self, step: Step, ip: Avma) {
        let State::Lost(lost) = self.state else { return };
        let goes_on = || self.guest || ip.is_kernel() || lost.is_of_packets();
        if self.running.is_known() && (goes_on() || self.enter(ip).is_ok()) {
            self.arrive(step, ip, true);
        }
    }

    /// Emits the gap of a `Lost` state, for all threads that may have run in it.  `now`: the thread after it.
    pub(super) fn close_gap(&mut self, step: Step, now: Running) {
        let State::Lost(lost) = self.state else { return };
        self.state = State::Off;
        let mut bytes = lost.bytes_until(step.at);
        let resolved = lost.resolved.map(|resolved| (resolved.slot, resolved.not_before));
        let (end, end_lo) = resolved.unwrap_or((step.slot, self.clock.now_lo()));
        if lost.cause == GapCause::NoSync && self.context.recording.pt.snapshot {
            return self.before_the_first_snapshot(lost, bytes, Moment::At(end), now);
        }
        let (before, before_space) = (self.running, self.walk.space);
        let parts = match lost.cause {
            GapCause::UnknownThread => vec![LostPart::all_of(before)],
            _ => self.owner.lost(before, now, end_lo),
        };
        for LostPart { running, from, not_after } in parts {
            let space = if running == before {
                before_space
            } else {
                self.context.code.space(running.pid, running.from)
            };
            self.walk.thread(running, space, from.unwrap_or(lost.since));
            let from = from.map_or(lost.from, Moment::Exactly);
            let to = not_after.map_or(Moment::At(end), |bound| Moment::NotAfter(end, bound));
            self.walk.gap(from, to, std::mem::take(&mut bytes), lost.at, lost.why());
        }
    }
}
