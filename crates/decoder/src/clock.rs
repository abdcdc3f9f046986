//! When: TSC, TMA, MTC, CYC and CBR packets to a bounded time for every flow packet.
//!
//! An [`Anchor`] is a packet that gives the TSC: TSC itself, some core cycles late ([`anchor`]), or MTC
//! through TMA ([`crystal`]). Between two anchors CYC packets count core cycles; CBR and the anchors around
//! bound their length ([`core`]). From both follow the bounds and the estimate of times between the anchors
//! ([`interval`]), once later packets are known ([`settle`]).
//!
//! So a flow packet's time is known only after the anchor that follows it: until then it is a *slot*, and
//! events refer to slots. With CYC it takes one interval more, because a change of the core's frequency may
//! show only there.
//!
//! ```text
//!   anchor ---- slots, cycles ---- anchor ---- slots, cycles ---- anchor
//!      waits for the next interval's    measured: settles the interval
//!      measured frequency               before it, and then waits
//! ```

mod anchor;
mod core;
mod crystal;
mod cycles;
mod interval;
mod mark;
mod progress;
mod range;
mod settle;
mod span;
mod ticks;
mod timeline;
mod times;

use model::{Ns, PtConfig, Tsc, TscClock};
use packet::{Packet, Tnt};

use anchor::{Anchor, Kind};
use core::{CoreRatio, Measured, Multiples};
pub(crate) use crystal::CrystalRatio;
use crystal::{Crystal, Mtc};
pub(crate) use cycles::SlotCycles;
use range::Range;
use span::{Doubt, Span};
pub(crate) use timeline::{PassedCycles, TimelineRoom};
use timeline::{Rule, Timeline};
pub(crate) use times::Times;

/// A flow packet's number: what its time is asked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    /// The one after it, which may not be there yet; at the latest the end of the segment is one.
    #[inline]
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The time at the current packet, by the packets so far: not earlier than `lo`, most likely `point`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    pub(crate) lo: Tsc,
    pub(crate) point: Tsc,
}

/// Where something ends: less than `cycles` after the anchor with this number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lasts {
    anchors: u32,
    cycles: u64,
}

impl Lasts {
    pub(crate) const NEVER: Self = Self { anchors: 0, cycles: 0 };
}

/// Trace may be this much later than the last timed record.
const END_ROOM_NS: u64 = 60_000_000_000;
/// Trace may be this much earlier than the first timed record: a ring that is copied may be older than the
/// file.
const START_ROOM_NS: u64 = 3_600_000_000_000;

/// The times of a segment's flow packets.
pub(crate) struct Clock {
    /// Without it there is no time, whatever TSC packets there are.
    has_tsc: bool,
    has_cyc: bool,
    /// Cycles that may have passed without a CYC: those of the threshold, and a part of a cycle at both
    /// ends.
    unseen_cycles: u64,
    /// A CYC packet comes only after this many cycles.
    cyc_threshold: u64,
    conversion: TscClock,
    /// A TSC near the recording, to complete the packet's 56 bits.
    reference: Tsc,
    /// First and last time of the recording.
    recorded: Option<(Ns, Ns)>,
    /// No TSC is before this: such a packet is damage, or of a virtual machine's clock.
    earliest: Tsc,
    /// No TSC is after this: such a packet is damage.
    latest: Tsc,

    anchor: Option<Anchor>,
    /// Another number whenever the anchor or the length of a cycle has changed, wrapping.
    anchors: u32,
    /// The last TSC packet, and the first slot after it.
    packet: Option<(Tsc, Slot)>,
    /// The TSC packet that a TMA after it refers to.
    aligned: Option<Tsc>,
    crystal: Crystal,
    ratio: CoreRatio,
    /// The length of a cycle, as far as it is known without later packets.
    cycle: Option<Range>,
    /// All cycles of the next CYC lie after the anchor; never where CYC packets count nothing.
    cyc_counts: bool,
    /// A CYC came since the last flow packet: the span is complete up to here.
    cyc_fresh: bool,

    timeline: Timeline,
    /// The frequency that was measured last before the first interval that waits.
    measured: Option<Measured>,
    /// The last interval has measured this, and CBR packets said that, if the core may have slept in it.
    slow: Option<(Measured, Option<Multiples>)>,
    /// Contradictions met.
    pub(crate) errors: u64,
}

impl Clock {
    pub(crate) fn new(
        pt: &PtConfig,
        crystal: Option<CrystalRatio>,
        conversion: TscClock,
        reference: Tsc,
        room: TimelineRoom,
    ) -> Self {
        let cyc_threshold = u64::from(pt.cyc_threshold);
        let unseen_cycles = 2 + cyc_threshold;
        Self {
            has_tsc: pt.tsc,
            has_cyc: pt.cyc,
            unseen_cycles,
            cyc_threshold,
            conversion,
            reference,
            recorded: None,
            earliest: Tsc(0),
            latest: Tsc(u64::MAX),
            anchor: None,
            anchors: 0,
            packet: None,
            aligned: None,
            crystal: Crystal::new(pt.mtc_period, crystal),
            ratio: CoreRatio::new(pt.max_nonturbo_ratio),
            cycle: None,
            cyc_counts: false,
            cyc_fresh: false,
            timeline: Timeline::new(conversion, unseen_cycles, room),
            measured: None,
            slow: None,
            errors: 0,
        }
    }

    /// The room that [`Self::new`] was given.
    pub(crate) fn into_room(self) -> TimelineRoom {
        self.timeline.into_room()
    }

    /// The recording lasted from `start` to `end`; with room for trace from before its first record and
    /// after its last.
    pub(crate) fn bound(&mut self, start: Ns, end: Ns) {
        self.recorded = Some((start, end));
        self.earliest = self.conversion.to_tsc(Ns(start.0.saturating_sub(START_ROOM_NS)));
        self.latest = self.conversion.to_tsc(Ns(end.0.saturating_add(END_ROOM_NS)));
    }

    /// There is a time.
    pub(crate) fn is_set(&self) -> bool {
        self.anchor.is_some()
    }

    /// All times; final once [`Self::finish`] was called.
    pub(crate) fn times(&self) -> Times<'_> {
        Times::new(&self.timeline, None)
    }

    /// The times of all slots; and the cycles up to there, where there are CYC packets.
    pub(crate) fn times_with_cycles(&self) -> Times<'_> {
        Times::new(&self.timeline, self.has_cyc.then_some(self.cyc_threshold))
    }

    /// The next slot that is made.
    #[inline]
    pub(crate) fn next_slot(&self) -> Slot {
        self.timeline.next()
    }

    /// A slot for the flow packet at hand, met when `work` instructions had passed.
    #[inline]
    pub(crate) fn slot(&mut self, work: u32) -> Slot {
        self.cyc_fresh = false;
        self.timeline.push(work)
    }

    /// The recording has CYC packets.
    pub(crate) fn has_cyc(&self) -> bool {
        self.has_cyc
    }

    /// A slot for the TNT at hand; `work` instructions had passed at its first branch.
    pub(crate) fn tnt(&mut self, work: u32, tnt: Tnt) {
        if self.has_cyc { self.tnt_of::<true>(work, tnt) } else { self.tnt_of::<false>(work, tnt) }
    }

    /// [`Self::tnt`] where [`Self::has_cyc`] is `CYC`.
    #[inline(always)]
    pub(crate) fn tnt_of<const CYC: bool>(&mut self, work: u32, tnt: Tnt) {
        if CYC {
            self.slot(work);
        } else {
            self.timeline.count(1);
            self.slot(work);
            self.timeline.count(u64::from(tnt.len()).saturating_sub(1));
        }
    }

    /// A slot for the packet at hand, which also gives the TSC: a CYC before it still counts as just before
    /// the anchor.
    pub(crate) fn slot_before_anchor(&mut self, work: u32) -> Slot {
        let fresh = self.cyc_fresh;
        let slot = self.slot(work);
        self.cyc_fresh = fresh;
        slot
    }

    /// The flow packet at hand needs no slot.
    pub(crate) fn passed(&mut self) {
        self.cyc_fresh = false;
    }

    /// Nothing that may follow changes the times of the slots before `slot`, nor of the part that has it.
    pub(crate) fn is_settled(&self, slot: Slot) -> bool {
        !self.has_cyc || self.timeline.is_settled(slot)
    }

    /// What `slot` stands for happened when `work` instructions had passed.
    #[inline]
    pub(crate) fn reached(&mut self, slot: Slot, work: u32) {
        self.timeline.reached(slot, work);
    }

    /// None before there is a time.
    #[inline]
    pub(crate) fn now(&self) -> Option<Now> {
        let anchor = self.anchor?;
        let cycle = self.cycle.map_or(0, Range::middle);
        let lo = anchor.lo + self.least_since_anchor();
        let point = anchor.best + ticks::of(self.timeline.since().most, cycle);
        Some(Now { lo: ticks::floor(lo), point: ticks::floor(point) })
    }

    /// The stretch in which both times of [`Self::now`] lie from those of `first` to those of `last`, as far
    /// as that is easily said.
    pub(crate) fn lasts(&self, first: Now, last: Now) -> Lasts {
        Lasts { anchors: self.anchors, cycles: self.cycles_until(first, last).unwrap_or(0) }
    }

    /// It lasts yet.
    #[inline]
    pub(crate) fn is_in(&self, Lasts { anchors, cycles }: Lasts) -> bool {
        anchors == self.anchors && self.timeline.most() < cycles
    }

    fn cycles_until(&self, first: Now, last: Now) -> Option<u64> {
        let anchor = self.anchor?;
        if ticks::floor(anchor.lo) < first.lo || ticks::floor(anchor.best) < first.point {
            return None;
        }
        // The point is never before `lo`.
        let Tsc(latest) = last.lo.min(last.point);
        let room = Anchor::exact(Tsc(latest)).lo.saturating_sub(anchor.best);
        let cycle = self.cycle.map_or(0, Range::middle);
        Some(u64::try_from(room).unwrap_or(u64::MAX) / cycle.max(1))
    }

    /// The earliest that it can be now.
    pub(crate) fn now_lo(&self) -> Ns {
        self.now().map_or(Ns(0), |now| self.conversion.to_ns(now.lo))
    }

    /// The best guess of now, without the next anchor.
    pub(crate) fn now_estimate(&self) -> Ns {
        self.now().map_or(Ns(0), |now| self.conversion.to_ns(now.point))
    }

    /// A lower bound of the ticks since the last anchor.
    fn least_since_anchor(&self) -> u128 {
        let Some(cycle) = self.cycle.filter(|_| self.has_cyc) else { return 0 };
        ticks::of(self.timeline.since().least().saturating_sub(self.unseen_cycles), cycle.low)
    }

    /// It is not later than this.
    fn most_now(&self) -> Option<u128> {
        let cycle = self.cycle.filter(|_| self.has_cyc)?;
        let anchor = self.anchor?.bounded(Some(cycle));
        interval::after(anchor, self.timeline.since(), Some(cycle), self.unseen_cycles).hi
    }

    /// What the length of a cycle follows from has changed.
    fn update_cycle(&mut self) {
        self.anchors = self.anchors.wrapping_add(1);
        let cbr = self.ratio.length(self.ratio.interval());
        self.cycle = core::length(cbr, [self.measured.as_ref(), None, None]);
        if let Some(anchor) = self.anchor.as_mut().filter(|anchor| anchor.is_tsc()) {
            anchor.best = anchor.bounded(self.cycle).best;
        }
    }

    /// A CYC packet.
    #[inline(always)]
    pub(crate) fn cyc(&mut self, cycles: u64) {
        if self.cyc_counts {
            self.cyc_after_anchor(cycles);
        } else {
            self.cyc_fresh = true;
            self.straddling(cycles);
        }
    }

    /// [`Self::cyc`] where the next CYC counts from after the anchor ([`Self::counts_cyc`]).
    #[inline(always)]
    pub(crate) fn cyc_after_anchor(&mut self, cycles: u64) {
        self.cyc_fresh = true;
        self.timeline.count(cycles);
    }

    /// If there are CYC packets, the next one counts from after the anchor, and so do those after it up to
    /// the next packet that is neither CYC nor flow.
    #[inline]
    pub(crate) fn counts_cyc(&self) -> bool {
        self.cyc_counts || !self.has_cyc
    }

    /// `branches` have passed: what the estimate goes by without CYC.
    #[inline]
    pub(crate) fn progress(&mut self, branches: u64) {
        if !self.has_cyc {
            self.timeline.count(branches);
        }
    }

    /// An unknown part of these cycles lies before the anchor.
    #[cold]
    fn straddling(&mut self, cycles: u64) {
        self.cyc_counts = self.has_cyc;
        if self.has_cyc {
            let mut doubt = self.timeline.since().doubt;
            doubt.add_cycles(cycles);
            self.timeline.set_doubt(doubt);
            self.timeline.count(cycles);
        }
    }

    /// Tracing was off up to here, or packets were lost: any time may have passed.
    #[inline]
    pub(crate) fn discontinuity(&mut self) {
        let doubt = self.timeline.since().doubt;
        self.timeline.set_doubt(Doubt { breaks: doubt.breaks.saturating_add(1), ..doubt });
    }

    /// Packets were lost up to here: the next CYC may count cycles that others have counted.
    pub(crate) fn lost(&mut self) {
        self.discontinuity();
        self.cyc_counts = false;
    }

    /// What a packet that is no flow says about the time.
    #[inline]
    pub(crate) fn packet(&mut self, packet: &Packet, in_psb: bool) {
        match *packet {
            Packet::Cyc(cycles) => self.cyc(cycles),
            Packet::Mtc(ctc) => self.mtc(ctc),
            Packet::Tsc(tsc) => self.tsc(tsc, in_psb),
            Packet::Tma { ctc, fast } => self.tma(ctc, fast),
            Packet::Cbr(ratio) => self.cbr(ratio),
            // The core slept: no cycles were counted.
            Packet::Exstop { .. } | Packet::Pwrx { .. } => self.discontinuity(),
            _ => (),
        }
    }

    /// A CBR packet.
    fn cbr(&mut self, core_to_bus: u8) {
        self.ratio.cbr(core_to_bus);
        self.timeline.set_core_to_bus(core_to_bus);
        self.update_cycle();
    }

    /// A TSC packet.  Outside of PSB+ it says that clocks had stopped (SDM, TSC packet).
    fn tsc(&mut self, low_56: u64, in_psb: bool) {
        if !self.has_tsc {
            return;
        }
        let tsc = Tsc::of_packet(low_56, self.reference);
        let backwards = self.packet.is_some_and(|(before, _)| tsc < before);
        self.aligned = None;
        if tsc < self.earliest || tsc > self.latest || backwards {
            // After damage any bytes may look like a TSC: nothing after it could have a time. And KVM lets a
            // guest that runs while tracing is on tell the guest's TSC.
            self.errors += 1;
            return self.discontinuity();
        }
        let here = Anchor::packet(tsc, in_psb);
        let is_contradiction = self.is_before_last_anchor(here);
        if is_contradiction || !in_psb || !self.cyc_fresh {
            self.discontinuity(); // cycles since the last CYC are not counted yet
        }
        if is_contradiction {
            self.take_back_mtc(here);
        } else {
            self.correct_mtc(here);
            self.set_anchor(here);
        }
        self.cyc_counts = self.has_cyc && self.cyc_fresh;
        self.packet = Some((tsc, self.timeline.next()));
        self.aligned = Some(tsc);
    }

    /// An MTC packet that a core sends as it wakes up has the TSC packet behind it. If the counter went round
    /// in its sleep, the MTC packet was taken for an earlier one: the interval before it ends here.
    fn correct_mtc(&mut self, here: Anchor) {
        let passed = |mtc: Anchor| here.lo.saturating_sub(mtc.lo);
        let is_mtc = |last: &Anchor| matches!(last.kind, Kind::Final | Kind::LateMtc);
        let has_gone_round =
            self.anchor.filter(is_mtc).is_some_and(|mtc| self.crystal.goes_round(passed(mtc)));
        if has_gone_round && let Some(interval) = self.timeline.interval_that_ends_here() {
            interval.right = here;
            interval.measured = None;
            interval.all.doubt.breaks += 1;
        }
    }

    /// `anchor` is certainly earlier than the last one, which came in front of it.
    fn is_before_last_anchor(&self, anchor: Anchor) -> bool {
        self.anchor.is_some_and(|last| anchor.hi < last.lo)
    }

    /// What MTC packets have said since the last TSC packet cannot be: the TSC is here.
    fn take_back_mtc(&mut self, here: Anchor) {
        self.errors += 1;
        self.settle_slow(None);
        self.settle_waiting(None, None);
        self.timeline.close(Rule::Unknown);
        self.timeline.settle();
        let (from, first) = self.packet.unwrap_or((Tsc(0), Slot(0)));
        self.timeline.bind(first, self.conversion.to_ns(from), self.ns_up(here.bounded(self.lag_cycle()).hi));
        self.timeline.bound_before_slot(first, from);
        self.crystal.forget();
        self.anchor = Some(here);
        self.timeline.restart();
        self.update_cycle();
    }

    /// A TMA packet: relates the TSC packet before it to the crystal clock.
    fn tma(&mut self, ctc: u16, fast: u16) {
        if let Some(tsc) = self.aligned {
            self.crystal.tma(tsc, ctc, fast);
        }
    }

    /// An MTC packet.
    pub(crate) fn mtc(&mut self, payload: u8) {
        let now = self.anchor.map_or(0, |anchor| anchor.lo + self.least_since_anchor());
        let Some(Mtc { on_time, late }) =
            self.crystal.mtc(payload, now, anchor::longest_lag(self.lag_cycle()))
        else {
            if self.crystal.is_stale(payload, now) {
                self.contradicts_crystal();
            }
            return;
        };
        let anchor = match late {
            Some(late) if !self.cycles_tell(on_time, late) => late,
            _ => on_time,
        };
        if late.is_some() && self.most_now().is_none_or(|now| now < anchor.lo) {
            self.discontinuity(); // the cycles since the last anchor do not explain the time: the core has slept
        }
        if self.is_before_last_anchor(anchor) {
            return self.contradicts_crystal();
        }
        self.set_anchor(anchor);
        self.cyc_counts = self.has_cyc;
    }

    /// What cycles or another anchor say cannot be, by the crystal's counter: up to the next TMA it says
    /// nothing, and how much of the time since the last anchor the cycles stand for is unknown.
    fn contradicts_crystal(&mut self) {
        self.errors += 1;
        self.crystal.forget();
        self.discontinuity();
    }

    /// The cycles since the last anchor say that an MTC packet that may be late is not: they account for all
    /// of the time up to `on_time`, as they do only where the core has not slept, and what they leave open is
    /// less than the lateness that is in question.
    fn cycles_tell(&self, on_time: Anchor, late: Anchor) -> bool {
        let Some((anchor, cycle)) = self.anchor.zip(self.cycle).filter(|_| self.has_cyc) else {
            return false;
        };
        let since = self.timeline.since();
        let awake = Span { doubt: Doubt { breaks: 0, ..since.doubt }, ..since };
        let by_cycles = interval::after(anchor.bounded(Some(cycle)), awake, Some(cycle), self.unseen_cycles);
        let (lo, Some(hi)) = (by_cycles.lo, by_cycles.hi) else { return false };
        lo <= on_time.hi && on_time.lo <= hi && hi - lo < late.hi - on_time.hi
    }

    /// The trace ends here, not later than the first of `ends` that can be: settles all slots.
    pub(crate) fn finish(&mut self, ends: impl IntoIterator<Item = Ns>) {
        self.settle_slow(None);
        self.settle_waiting(None, self.ratio.interval());
        self.update_cycle();
        let Some(anchor) = self.anchor.map(|anchor| anchor.bounded(self.lag_cycle())) else {
            return self.bind_to_recording();
        };
        let cycle = self.cycle.filter(|_| self.has_cyc);
        let end = ends.into_iter().find(|end| self.ns_up(anchor.lo) <= *end);
        self.timeline.close(Rule::After { anchor, cycle, end });
        self.timeline.settle();
    }

    /// No packet said what time it is: all that is known is that the trace lies in the recording.
    fn bind_to_recording(&mut self) {
        let Some((start, end)) = self.recorded.filter(|_| self.has_tsc) else { return };
        self.timeline.close(Rule::Unknown);
        self.timeline.settle();
        self.timeline.bind(Slot(0), start, end);
    }

    fn ns_up(&self, ticks: u128) -> Ns {
        self.conversion.to_ns(ticks::ceil(ticks))
    }

    /// The time is `anchor` here: an interval ends, and the next one begins.
    fn set_anchor(&mut self, anchor: Anchor) {
        self.end_interval(anchor);
        self.update_cycle();
    }
}

#[cfg(test)]
mod contradictions;
#[cfg(test)]
mod tests;
