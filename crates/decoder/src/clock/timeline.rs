//! The slots of a segment, in parts: what lies between two anchors, and before the first and after the last.
//!
//! A slot keeps what had passed at its packet. Its time is worked out when it is asked for, by the rule of
//! its part: most slots are never asked for.

use model::{Cycles, EventTime, Ns, Tsc, TscClock};

use super::Slot;
use super::anchor::Anchor;
use super::interval::{self, Interval, Lines, Regular, Steady};
use super::mark::Mark;
use super::progress;
use super::range::Range;
use super::span::{Doubt, Span};
use super::ticks;

/// When the slots of a part were.
pub(super) enum Rule {
    /// Before the first anchor.
    Before(Anchor),
    Between(Interval),
    /// After the last anchor; not after the end of the recording.
    After {
        anchor: Anchor,
        cycle: Option<Range>,
        end: Option<Ns>,
    },
    /// Nothing is known but what the part is bound to.
    Unknown,
}

/// The slots from `first` on, up to the next part's.
struct SlotRange {
    first: Slot,
    rule: Rule,
    /// The slots were not outside of this, whatever the rule says.
    bound: Option<(Ns, Ns)>,
}

/// What the marks from `first` on have in common, up to the next run's.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: Slot,
    most: u64,
    doubt: Doubt,
}

impl Run {
    /// It is between the same two breaks of an interval, its first and its last, as the run before it, if it
    /// ends with another one.
    fn goes_on(&self, before: &Self, next: Doubt) -> bool {
        let is_alike = before.most == self.most && before.doubt.cycles == self.doubt.cycles;
        is_alike && before.doubt.breaks > 0 && self.doubt.breaks < next.breaks
    }
}

/// The number of the last of `all` that begins not after `slot`, `first` saying where they do: mostly one
/// beside `near`.
#[inline]
fn last_begun<T>(all: &[T], first: impl Fn(&T) -> Slot, slot: Slot, near: usize) -> usize {
    let has = |&number: &usize| {
        all.get(number).is_some_and(|one| first(one) <= slot)
            && all.get(number + 1).is_none_or(|next| slot < first(next))
    };
    let search = || all.partition_point(|one| first(one) <= slot).saturating_sub(1);
    [near, near + 1, near.saturating_sub(1)].into_iter().find(has).unwrap_or_else(search)
}

/// Room for a segment's timeline: what of another one was there.
#[derive(Default)]
pub(crate) struct TimelineRoom {
    marks: Vec<Mark>,
    runs: Vec<Run>,
    counted: Vec<(Slot, u64)>,
    rates: Vec<(Slot, BusRate)>,
    parts: Vec<SlotRange>,
}

impl TimelineRoom {
    /// Room for most segments: 2 MB; only the used part of it is ever touched.
    pub(crate) fn new() -> Self {
        let (marks, runs, parts) = (1 << 16, 1 << 14, 1 << 12);
        Self {
            marks: Vec::with_capacity(marks),
            runs: Vec::with_capacity(runs),
            counted: Vec::with_capacity(parts),
            rates: Vec::new(),
            parts: Vec::with_capacity(parts),
        }
    }
}

/// The part and the run, by number, of the slots from `first` on, up to `end`.
#[derive(Clone, Default)]
pub(super) struct Near {
    first: Slot,
    end: Slot,
    part: usize,
    run: usize,
    /// What the run's marks have in common.
    since: Span,
    /// The part that the lines are of, if it has any.
    lines_of: Option<usize>,
    lines: Option<Lines>,
    /// If the part's rule comes down to that.
    regular: Option<Regular>,
    /// If that is steady.
    steady: Option<Steady>,
    /// What the cycles of the slots count from, if that is asked for.
    cycles: Option<CyclesNear>,
    /// That is known, and sums of it fit.
    counts: bool,
}

impl Near {
    /// Nowhere yet; looks up the cycles of slots, too.
    pub(super) fn with_cycles() -> Self {
        Self { cycles: Some(CyclesNear::default()), ..Self::default() }
    }

    /// Converts cycles of the run (lower bound, estimate, upper bound) to those of the segment.
    #[inline(always)]
    pub(super) fn of_segment(&self, of_run: [u64; 3]) -> Option<PassedCycles> {
        let CyclesNear { before, rate, .. } = self.cycles.as_ref().filter(|_| self.counts)?;
        let [first, point, last] = of_run;
        let [first, point, last] =
            [before.wrapping_add(first), before.wrapping_add(point), before.wrapping_add(last)];
        Some(PassedCycles { first, point, last, bus: rate.bus_at(point) })
    }

    /// All its slots are before this one.
    pub(super) fn is_before(&self, slot: Slot) -> bool {
        self.end <= slot
    }

    /// All its slots are after this one.
    pub(super) fn is_after(&self, slot: Slot) -> bool {
        slot < self.first
    }
}

/// From a CBR packet on: what a cycle is of the bus clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BusRate {
    /// Cycles of the segment up to the packet, and what they are of the bus clock ([`Cycles::bus`]).
    cycles: u64,
    bus: u64,
    /// What a cycle is, in 32 bits of fraction of a bus cycle; 0: nothing says.
    per_cycle: u64,
}

impl BusRate {
    /// Converts cycles of the segment to the bus clock.
    #[inline(always)]
    pub(super) fn bus_at(&self, cycles: u64) -> u64 {
        /// From units of 2^-32 to those of [`Cycles::bus`].
        const SHIFT: u32 = 32 - Cycles::BUS_UNITS.trailing_zeros();
        let more = u128::from(cycles.saturating_sub(self.cycles)) * u128::from(self.per_cycle);
        self.bus.wrapping_add((more >> SHIFT) as u64)
    }
}

/// Sums of cycles below this fit with those of any run of slots.
const CYCLES_MAX: u64 = 1 << 62;

/// Cycles of the segment, up to an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassedCycles {
    /// At least; estimate; at most.
    pub(crate) first: u64,
    pub(crate) point: u64,
    pub(crate) last: u64,
    /// What the estimate is of the bus clock.
    pub(crate) bus: u64,
}

/// Slots that count cycles from the same one.
#[derive(Clone, Copy, Default)]
pub(super) struct CyclesNear {
    pub(super) first: Slot,
    pub(super) end: Slot,
    /// Cycles of the segment that they count from.
    pub(super) before: u64,
    /// What a cycle is there.
    pub(super) rate: BusRate,
    /// The anchor before them, their run, and the CBR packet before them, by number.
    anchor: usize,
    run: usize,
    rate_number: usize,
}

impl CyclesNear {
    /// The slot is one of them.
    #[inline(always)]
    pub(super) fn has(&self, slot: Slot) -> bool {
        self.first <= slot && slot < self.end
    }
}

pub(super) struct Timeline {
    conversion: TscClock,
    /// See [`super::Clock`].
    unseen_cycles: u64,
    /// Those of the slots.
    marks: Vec<Mark>,
    runs: Vec<Run>,
    /// The last of them.
    run: Run,
    /// The first slot after each anchor, and the cycles of the segment up to the anchor.
    counted: Vec<(Slot, u64)>,
    /// The first slot after each CBR packet, and what a cycle is from there on. Before the first one nothing
    /// says.
    rates: Vec<(Slot, BusRate)>,
    /// Cycles (or branches) of the last run, up to here.
    in_run: u32,
    parts: Vec<SlotRange>,
    /// The first slot that is in no part yet.
    open: Slot,
    /// The first part that is an interval with a rule that may still change.
    waiting: usize,
    /// The last part waits for more than those before it.
    is_last_held: bool,
}

impl Timeline {
    pub(super) fn new(conversion: TscClock, unseen_cycles: u64, room: TimelineRoom) -> Self {
        let TimelineRoom { mut marks, mut runs, mut counted, mut rates, mut parts } = room;
        marks.clear();
        runs.clear();
        parts.clear();
        rates.clear();
        rates.push((Slot(0), BusRate::default()));
        let run = Run { first: Slot(0), most: 0, doubt: Doubt::default() };
        runs.push(run);
        let (in_run, open, waiting) = (0, Slot(0), 0);
        counted.clear();
        counted.push((Slot(0), 0));
        Self {
            conversion,
            unseen_cycles,
            marks,
            runs,
            run,
            counted,
            rates,
            in_run,
            parts,
            open,
            waiting,
            is_last_held: false,
        }
    }

    pub(super) fn into_room(self) -> TimelineRoom {
        let Self { marks, runs, counted, rates, parts, .. } = self;
        TimelineRoom { marks, runs, counted, rates, parts }
    }

    /// The slot that is next.
    #[inline]
    pub(super) fn next(&self) -> Slot {
        Slot(self.marks.len() as u32)
    }

    /// Cycles (or branches) since the last anchor.
    #[inline(always)]
    pub(super) fn most(&self) -> u64 {
        self.run.most.saturating_add(self.in_run.into())
    }

    /// What has passed since the last anchor.
    #[inline]
    pub(super) fn since(&self) -> Span {
        Span::of(self.most(), self.run.doubt)
    }

    /// Counts cycles (or branches).
    #[inline(always)]
    pub(super) fn count(&mut self, cycles: u64) {
        match u32::try_from(cycles).ok().and_then(|cycles| self.in_run.checked_add(cycles)) {
            Some(in_run) => self.in_run = in_run,
            None => self.rebase(cycles),
        }
    }

    /// Another run begins, as no more cycles fit a mark.
    #[cold]
    fn rebase(&mut self, cycles: u64) {
        self.begin_run(self.most().saturating_add(cycles), self.run.doubt);
        self.in_run = 0;
    }

    /// Cycles (or branches) since the segment began.
    pub(super) fn counted_cycles(&self) -> u64 {
        self.counted.last().map_or(0, |(_, before)| before.saturating_add(self.most()))
    }

    /// Finds the slots around one that count from the same cycle.
    pub(super) fn find_cycles(&self, slot: Slot, near: &mut CyclesNear) {
        let rate_number = last_begun(&self.rates, |(first, _)| *first, slot, near.rate_number);
        let at_rate =
            |number: usize| self.rates.get(number).copied().unwrap_or((Slot(u32::MAX), BusRate::default()));
        let anchor = last_begun(&self.counted, |(first, _)| *first, slot, near.anchor);
        let run = last_begun(&self.runs, |run| run.first, slot, near.run);
        let at_anchor =
            |number: usize| self.counted.get(number).map_or((Slot(u32::MAX), 0), |anchor| *anchor);
        let at_run =
            |number: usize| self.runs.get(number).map_or((Slot(u32::MAX), 0), |run| (run.first, run.most));
        let ((first, before), (run_first, in_runs)) = (at_anchor(anchor), at_run(run));
        let (rate_first, rate) = at_rate(rate_number);
        *near = CyclesNear {
            first: first.max(run_first).max(rate_first),
            end: at_anchor(anchor + 1).0.min(at_run(run + 1).0).min(at_rate(rate_number + 1).0),
            before: before.saturating_add(in_runs),
            rate,
            anchor,
            run,
            rate_number,
        };
    }

    /// A CBR packet: from here on a cycle of the bus clock has `ratio` cycles of the core.
    pub(super) fn set_core_to_bus(&mut self, ratio: u8) {
        let Some(per_cycle) = (1u64 << 32).checked_div(ratio.into()) else { return };
        let cycles = self.counted_cycles();
        let before = self.rates.last().map_or_else(BusRate::default, |(_, rate)| *rate);
        if before.per_cycle == per_cycle {
            return;
        }
        let rate = BusRate { cycles, bus: before.bus_at(cycles), per_cycle };
        self.rates.push((self.next(), rate));
    }

    /// Converts cycles of the segment to the bus clock.
    pub(super) fn bus_at(&self, cycles: u64) -> u64 {
        let after = self.rates.partition_point(|(_, rate)| rate.cycles <= cycles);
        let rate = after.checked_sub(1).and_then(|last| self.rates.get(last));
        rate.map_or(0, |(_, rate)| rate.bus_at(cycles))
    }

    /// A CBR packet has said what a cycle is before any was counted.
    pub(super) fn is_rated(&self) -> bool {
        let first = self.rates.iter().find(|(_, rate)| rate.per_cycle > 0);
        first.is_some_and(|(_, rate)| rate.cycles == 0)
    }

    /// Here is an anchor; returns the span since the last one.
    pub(super) fn restart(&mut self) -> Span {
        let since = self.since();
        self.counted.push((self.next(), self.counted_cycles()));
        self.begin_run(0, Doubt::default());
        self.in_run = 0;
        since
    }

    /// What is not certain of the slots that follow is something else than of those before.
    #[inline(always)]
    pub(super) fn set_doubt(&mut self, doubt: Doubt) {
        self.begin_run(self.run.most, doubt);
    }

    /// A slot, which `work` instructions had passed at.
    #[inline(always)]
    pub(super) fn push(&mut self, work: u32) -> Slot {
        let slot = self.next();
        if self.marks.len() == self.marks.capacity() {
            self.make_room();
        }
        self.marks.push(Mark { most: self.in_run, work });
        slot
    }

    #[cold]
    fn make_room(&mut self) {
        self.marks.reserve(1);
    }

    /// What the slots keep.
    pub(super) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// The slots that follow are another run.
    #[inline(always)]
    fn begin_run(&mut self, most: u64, doubt: Doubt) {
        self.run = Run { first: self.next(), most, doubt };
        match &mut self.runs[..] {
            // It has no slot.
            [.., last] if last.first == self.run.first => *last = self.run,
            // After an interval's first break and before its last it does not matter how many have been.
            [.., before, last] if before.first >= self.open && last.goes_on(before, doubt) => {
                *last = self.run
            }
            _ => self.add_run(),
        }
    }

    #[cold]
    fn add_run(&mut self) {
        self.runs.push(self.run);
    }

    /// What `slot` stands for happened when `work` instructions had passed.
    #[inline]
    pub(super) fn reached(&mut self, slot: Slot, work: u32) {
        if let Some(mark) = self.marks.get_mut(slot.0 as usize) {
            mark.work = work;
        }
    }

    /// All slots that are in no part yet are one. A part that has none is dropped once its rule is final:
    /// while tracing is off, most are such.
    pub(super) fn close(&mut self, rule: Rule) {
        let next = self.next();
        let first = std::mem::replace(&mut self.open, next);
        if self.waiting == self.parts.len() && self.parts.last().is_some_and(|last| last.first == first) {
            self.parts.pop();
            self.waiting = self.parts.len();
        }
        self.parts.push(SlotRange { first, rule, bound: None });
    }

    /// The intervals that wait for later measurements.
    pub(super) fn waiting(&mut self) -> impl DoubleEndedIterator<Item = &mut Interval> {
        let settled = self.settled_next();
        let parts = self.parts.get_mut(self.waiting..settled).unwrap_or_default();
        parts.iter_mut().filter_map(|part| match &mut part.rule {
            Rule::Between(interval) => Some(interval),
            _ => None,
        })
    }

    /// The last interval, if nothing has passed since it ended.
    pub(super) fn interval_that_ends_here(&mut self) -> Option<&mut Interval> {
        if self.open != self.next() || self.most() != 0 {
            return None;
        }
        self.last_interval()
    }

    /// The last part, an interval, waits for more than those before it: what is settled next leaves it out.
    pub(super) fn hold_last(&mut self) -> Option<&mut Interval> {
        self.is_last_held = true;
        self.last_interval()
    }

    /// It waits no longer than others.
    pub(super) fn release_last(&mut self) -> Option<&mut Interval> {
        self.is_last_held = false;
        self.last_interval()
    }

    fn last_interval(&mut self) -> Option<&mut Interval> {
        match &mut self.parts.last_mut()?.rule {
            Rule::Between(interval) => Some(interval),
            _ => None,
        }
    }

    /// The number of parts that wait, or are final.
    fn settled_next(&self) -> usize {
        self.parts.len() - usize::from(self.is_last_held).min(self.parts.len())
    }

    /// All rules are final, but for a part that is held.
    pub(super) fn settle(&mut self) {
        let settled = self.settled_next().max(self.waiting);
        for last in self.waiting..settled {
            self.bound_before(last + 1, u128::MAX);
        }
        self.waiting = settled;
    }

    /// The parts before part `end` are followed by lower bounds from `after` on: limits theirs by that, and
    /// by the anchors that end them. An anchor in PSB+ starts anew from a TSC, which may be older than the
    /// bounds before it.
    #[inline]
    fn bound_before(&mut self, end: usize, mut after: u128) {
        for part in self.parts.iter_mut().take(end).rev() {
            let Rule::Between(interval) = &mut part.rule else { return };
            let Some(ceiling) = interval.set_after(after) else { return };
            after = ceiling;
        }
    }

    /// The rules of all slots before `slot` are final, and that of `slot`'s own part: its right anchor limits
    /// the lower bounds of the slots before.
    pub(super) fn is_settled(&self, slot: Slot) -> bool {
        let first = self.parts.get(self.waiting).map(|part| part.first);
        first.is_none_or(|first| first > slot || first >= self.open)
    }

    /// The slots from `first` on, which a part begins with, were not outside of this, whatever their rules
    /// say.
    pub(super) fn bind(&mut self, first: Slot, lo: Ns, hi: Ns) {
        for part in self.parts.iter_mut().rev().take_while(|part| part.first >= first) {
            part.bound = Some((lo, hi));
        }
    }

    /// The lower bounds of the slots from `first` on, which a part begins with, start at `from`.
    pub(super) fn bound_before_slot(&mut self, first: Slot, from: Tsc) {
        let end = self.parts.partition_point(|part| part.first < first);
        self.bound_before(end, Anchor::exact(from).lo);
    }

    fn ns(&self, ticks: u128) -> Ns {
        self.conversion.to_ns(ticks::floor(ticks))
    }

    fn ns_up(&self, ticks: u128) -> Ns {
        self.conversion.to_ns(ticks::ceil(ticks))
    }

    /// The time of a slot, if it is `near`, and regular there.
    #[inline(always)]
    pub(super) fn regular_time(&self, slot: Slot, near: &Near) -> Option<EventTime> {
        let regular = near.regular.as_ref().filter(|_| near.first <= slot && slot < near.end)?;
        let mark = self.marks.get(slot.0 as usize)?;
        Some(regular.time(near.since.most + u64::from(mark.most)))
    }

    /// The time of what happened after `lo`, not after `slot`, which is a later one, and when `work`
    /// instructions had passed, if these slots are `near`, and all [steady](Regular::steady) there; and with
    /// `CYCLES` those of the run: lower bound, estimate, upper bound. None, too, if it happened before the
    /// last slot of those between.
    #[inline(always)]
    pub(super) fn steady_between<const CYCLES: bool>(
        &self,
        lo: Slot,
        slot: Slot,
        work: u32,
        near: &Near,
    ) -> Option<(EventTime, [u64; 3])> {
        let steady = near.steady.as_ref().filter(|_| near.first <= lo && slot < near.end)?;
        let slots = self.marks.get(lo.0 as usize..slot.0 as usize + 1)?;
        let [.., before, last] = slots else { return None };
        let (first, since) = (slots.first()?, |mark: &Mark| near.since.most + u64::from(mark.most));
        if slots.len() > 2 && progress::passed_since(work, before.work) == 0 {
            return None;
        }
        let (lo, hi) = (steady.lo(since(first)), steady.hi(since(last)));
        let (mut point, mut cycles) = (steady.point(since(last)), last.most);
        let done = progress::passed_since(work, before.work);
        if done < progress::passed_since(last.work, before.work) {
            point = progress::share((before.work, steady.point(since(before))), (last.work, point), work);
            if CYCLES {
                let span = u64::from(last.most.wrapping_sub(before.most));
                let passed = progress::part(span, (before.work, last.work), work);
                cycles = before.most.wrapping_add(passed as u32);
            }
        }
        let time = EventTime { lo, point: point.max(lo).min(hi), hi };
        Some((time, [first.most.into(), cycles.into(), last.most.into()]))
    }

    /// The time of a slot; none if there is no such slot, or no part has it. `near`: where it may be, and
    /// then where it is.
    pub(super) fn time(&self, slot: Slot, near: &mut Near) -> Option<EventTime> {
        let mark = self.marks().get(slot.0 as usize)?;
        if slot < near.first || slot >= near.end {
            self.look_up(slot, near)?;
        }
        let since = Span { most: near.since.most + u64::from(mark.most), ..near.since };
        self.regular_time(slot, near).or_else(|| self.by_rule(self.parts.get(near.part)?, since))
    }

    /// Finds the part and the run of a slot; none if it has none.
    fn look_up(&self, slot: Slot, near: &mut Near) -> Option<()> {
        let part = last_begun(&self.parts, |part| part.first, slot, near.part);
        let run = last_begun(&self.runs, |run| run.first, slot, near.run);
        let part_first = |number: usize| self.parts.get(number).map_or(self.open, |part| part.first);
        let run_first = |number: usize| self.runs.get(number).map_or(Slot(u32::MAX), |run| run.first);
        let first = part_first(part).max(run_first(run));
        let end = part_first(part + 1).min(run_first(run + 1));
        let Run { most, doubt, .. } = *self.runs.get(run)?;
        if slot < first || slot >= end {
            return None;
        }
        let (mut first, mut end) = (first, end);
        if let Some(cycles) = &mut near.cycles {
            self.find_cycles(slot, cycles);
            (first, end) = (first.max(cycles.first), end.min(cycles.end));
            near.counts = cycles.before < CYCLES_MAX;
        }
        let last = self.marks().get(end.0.checked_sub(1)? as usize).or(self.marks().last())?;
        let last = Span { most: most + u64::from(last.most), doubt };
        let rule = self.parts.get(part)?;
        if near.lines_of != Some(part) {
            near.lines_of = Some(part);
            near.lines = match rule {
                SlotRange { rule: Rule::Between(interval), bound: None, .. } => {
                    interval.lines(self.unseen_cycles, self.conversion)
                }
                _ => None,
            };
        }
        near.regular = near.lines.as_ref().and_then(|lines| lines.of(last));
        let from = self.marks.get(first.0 as usize).map_or(0, |mark| most + u64::from(mark.most));
        near.steady = near.regular.as_ref().and_then(|regular| regular.steady(from, last.most));
        (near.first, near.end, near.part, near.run) = (first, end, part, run);
        near.since = Span { most, doubt };
        Some(())
    }

    fn by_rule(&self, part: &SlotRange, since: Span) -> Option<EventTime> {
        let time = match &part.rule {
            Rule::Before(Anchor { lo, hi, .. }) => {
                EventTime { lo: Ns(0), point: self.ns(*lo), hi: self.ns_up(*hi) }
            }
            Rule::Between(interval) => interval.time(since, self.unseen_cycles, self.conversion),
            Rule::After { anchor, cycle, end } => {
                let bounds = interval::after(*anchor, since, *cycle, self.unseen_cycles);
                let lo = self.ns(bounds.lo);
                let hi = bounds.hi.map_or(end.unwrap_or(Ns::MAX).max(lo), |hi| self.ns_up(hi));
                EventTime { lo, point: self.ns(bounds.point).clamp(lo, hi), hi }
            }
            Rule::Unknown => EventTime::default(),
        };
        Some(part.bound.map_or(time, |(lo, hi)| EventTime { lo, point: time.point.clamp(lo, hi), hi }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_without_slots_are_not_kept() {
        let clock = TscClock { shift: 0, mult: 1, zero: 0 };
        let mut timeline = Timeline::new(clock, 2, TimelineRoom::default());
        let mut parts = vec![];
        for slots in [1, 0, 0, 0, 2, 0, 1] {
            (0..slots).for_each(|_| _ = timeline.push(0));
            timeline.close(Rule::Before(Anchor::exact(Tsc(parts.len() as u64))));
            timeline.settle();
            parts.push(timeline.parts.len());
        }
        assert_eq!(parts, [1, 2, 2, 2, 2, 3, 3]);
        let mut near = Near::default();
        let mut time = |slot: u32| timeline.time(Slot(slot), &mut near).map(|time| time.point.0);
        assert_eq!([0, 1, 2, 3, 4].map(&mut time), [Some(0), Some(4), Some(4), Some(6), None]);
    }

    #[test]
    fn cycles_of_the_bus_clock_follow_cbr() {
        let clock = TscClock { shift: 0, mult: 1, zero: 0 };
        let new = || Timeline::new(clock, 2, TimelineRoom::default());
        let mut timeline = new();
        for (ratio, cycles) in [(16, 160), (8, 80)] {
            timeline.set_core_to_bus(ratio);
            timeline.count(cycles);
            timeline.push(0);
        }
        let bus = [0, 80, 160, 200, 240].map(|cycles| timeline.bus_at(cycles) / Cycles::BUS_UNITS);
        assert_eq!((bus, timeline.is_rated()), ([0, 5, 10, 15, 20], true));
        let mut late = new();
        late.count(1);
        assert!(!late.is_rated(), "no CBR packet");
        late.set_core_to_bus(16);
        assert!(!late.is_rated(), "nothing says what the first cycle was");
    }

    #[test]
    fn a_part_without_slots_is_kept_while_its_rule_may_change() {
        let clock = TscClock { shift: 0, mult: 1, zero: 0 };
        let mut timeline = Timeline::new(clock, 2, TimelineRoom::default());
        (0..3).for_each(|_| timeline.close(Rule::Unknown));
        assert_eq!(timeline.parts.len(), 3);
    }
}
