//! The counters at the events of a stretch.
//!
//! ```text
//!   user code   Start -------- branch ---- End          Start ------ Gap       (or the segment's own ends)
//!   cycles      |<--------- counted -------->|          |<- counted ->|
//! ```
//! Cycles of kernel code, and those that pass while tracing is off, lie between an end and the next start.

use model::{BranchEvent, Counters, CountersSince, Cycles, ExecutedSince, TraceEvent, Transfer};

use super::Bounds;
use crate::clock::{Clock, PassedCycles, Slot, SlotCycles};
use crate::work::Work;

/// Counts the cycles of user code, event by event of a segment.
pub(super) struct Counting<'a> {
    cycles: Option<SlotCycles<'a>>,
    /// The first slot of the PSB+ that ends the segment.
    end: Slot,
    /// Cycles of the segment: up to the last CYC packet before that.
    all: u64,
    /// Cycles of the first CYC packet after that: the most that may have passed since, within the segment.
    next_cyc: u64,
    /// User code is traced since these counts of the segment's cycles and the bus clock; `None`: it is not.
    on_since: Option<(u64, u64)>,
    /// The most cycles that may have passed since a loss; 0 from the first CYC packet after it on, which
    /// also counts cycles of the loss.
    after_loss: u64,
    /// Branches up to here only count cycles: user code is traced, and nothing was lost shortly before.
    plain_until: Slot,
    /// Such a branch is not before these cycles of the segment.
    plain_from: u64,
    /// There: cycles of the stretch less those of the segment, of the core and of the bus clock; wrapping.
    plain: (u64, u64),
    /// Up to where it was traced last: cycles counted in the stretch, and those of the bus clock.
    before: (u64, u64),
    unsure: u64,
    /// Cycles of the segment at the last event, and those counted in the stretch.
    last: u64,
    point: u64,
    bus: u64,
    /// Not all cycles are known of the bus clock; and the number of events, if so.
    is_unrated: bool,
    unrated: u32,
    met_gap: bool,
}

impl<'a> Counting<'a> {
    /// The counting of a segment.
    pub(super) fn new(clock: &'a Clock, bounds: Bounds) -> Self {
        let (end, all) = bounds.end.unwrap_or((Slot(u32::MAX), clock.counted_cycles()));
        let cycles = clock.cycles();
        let mut counting = Self {
            is_unrated: cycles.as_ref().is_some_and(|cycles| !cycles.is_rated()),
            cycles,
            end,
            all,
            next_cyc: bounds.next_cyc.unwrap_or(0),
            on_since: bounds.begins_in_code.then_some((0, 0)),
            after_loss: 0,
            plain_until: Slot(0),
            plain_from: 0,
            plain: (0, 0),
            before: (0, 0),
            unsure: 0,
            last: 0,
            point: 0,
            bus: 0,
            unrated: 0,
            met_gap: false,
        };
        counting.set_plain_until();
        counting
    }

    fn set_plain_until(&mut self) {
        let is_plain = self.cycles.is_some() && self.on_since.is_some() && self.after_loss == 0;
        self.plain_until = if is_plain { self.end } else { Slot(0) };
        let (since, bus_since) = self.on_since.unwrap_or_default();
        self.plain_from = since;
        self.plain = (self.before.0.wrapping_sub(since), self.before.1.wrapping_sub(bus_since));
    }

    /// An event that only counts cycles: a branch with traced user code before and after it. Most are such.
    #[inline(always)]
    fn is_plain(&self, event: &TraceEvent, slot: Slot, at: &PassedCycles) -> bool {
        // The packet before it may be one from before user code was traced.
        slot < self.plain_until && at.first >= self.plain_from && is_branch(event)
    }

    /// [`Self::pass`] for such an event.
    #[inline(always)]
    fn pass_plain(&mut self, PassedCycles { first, point, last, bus }: PassedCycles) -> Cycles {
        self.last = point;
        let counted = |at: u64| at.wrapping_add(self.plain.0);
        self.counted(counted(first), counted(point), counted(last), bus.wrapping_add(self.plain.1))
    }

    /// The cycles at the next event of the stretch, which may switch user code on or off. Without CYC packets
    /// in the recording all are 0.
    fn pass(&mut self, event: &TraceEvent, (lo, slot): (Slot, Slot), instructions: u32) -> Cycles {
        let Some(cycles) = &mut self.cycles else { return Cycles::default() };
        let at = match event {
            TraceEvent::Branch(_) if slot >= self.end => {
                let (point, last) = (self.all, self.all.saturating_add(self.next_cyc));
                PassedCycles { first: cycles.at(lo).min(point), point, last, bus: cycles.bus_at(point) }
            }
            TraceEvent::Branch(_) => cycles.between(lo, slot, instructions),
            // Where it begins is no packet's: as far as anything was counted.
            TraceEvent::Gap(_) => {
                let (since, bus) = self.on_since.unwrap_or_default();
                PassedCycles { first: since, point: since, last: since, bus }
            }
        };
        self.last = at.point;
        let (before, since) = self.on_since.map_or((self.before.0, u64::MAX), |on| (self.before.0, on.0));
        let counted = |at: u64| before + at.saturating_sub(since);
        let (lo, point, mut hi) = (counted(at.first), counted(at.point), counted(at.last));
        let bus = self.before.1 + self.on_since.map_or(0, |(_, since)| at.bus.saturating_sub(since));
        if self.after_loss > 0 {
            if at.first < since {
                hi = hi.saturating_add(self.after_loss);
            } else {
                self.unsure += std::mem::take(&mut self.after_loss);
            }
        }
        let counted = self.counted(lo, point, hi, bus);
        if !is_branch(event) {
            self.switch(event, slot, at, (point, bus));
        }
        self.set_plain_until();
        counted
    }

    /// What was counted up to an event: an estimate is never before that of the event before.
    #[inline(always)]
    fn counted(&mut self, lo: u64, point: u64, hi: u64, bus: u64) -> Cycles {
        self.point = point.max(self.point);
        self.bus = bus.max(self.bus);
        self.unrated = self.unrated.wrapping_add(self.is_unrated.into());
        let (point, bus, unsure, unrated) = (self.point, self.bus, self.unsure, self.unrated);
        Cycles { lo, point, hi: hi.max(point), unsure, bus, unrated }
    }

    /// Tracing starts, ends or is lost at an event, which is at these cycles of the segment.
    #[inline(never)]
    fn switch(&mut self, event: &TraceEvent, slot: Slot, at: PassedCycles, counted: (u64, u64)) {
        let PassedCycles { first, point: at, last, bus } = at;
        let width = last.saturating_sub(first);
        match event {
            TraceEvent::Branch(BranchEvent { transfer: Transfer::Start { to, after_gap }, .. }) => {
                if to.ip.is_kernel() {
                    (self.on_since, self.after_loss) = (None, 0);
                    return;
                }
                // After a loss the next CYC packet also counts what passed in it.
                let after = self.cycles.as_mut().filter(|_| *after_gap).map(|cycles| {
                    let since = cycles.after(slot);
                    (since, cycles.bus_at(since))
                });
                let since = after.unwrap_or((at, bus));
                self.on_since = Some(since);
                self.after_loss = since.0.saturating_sub(at);
                self.unsure += width;
            }
            _ => {
                self.met_gap |= matches!(event, TraceEvent::Gap(_));
                self.end(counted, width);
            }
        }
    }

    /// The stretch ends, the last one where the segment does: its counters in all, with what it `executed`.
    pub(super) fn end_stretch(&mut self, executed: ExecutedSince, is_last: bool) -> Counters {
        let cycles = self.cycles.as_ref().map(|cycles| {
            let end = if is_last { self.all } else { self.last };
            let bus_end = cycles.bus_at(end);
            let (point, bus) = self.on_since.map_or(self.before, |(since, bus_since)| {
                let (cycles, bus) = (end.saturating_sub(since), bus_end.saturating_sub(bus_since));
                (self.before.0 + cycles, self.before.1 + bus)
            });
            self.on_since = self.on_since.map(|(since, bus)| (since.max(end), bus.max(bus_end)));
            let unsure = self.unsure + self.after_loss;
            let unrated = self.unrated.wrapping_add(self.is_unrated.into());
            // An estimate of an event around a loss may be beyond it: those of the next stretch go on from
            // there, and their bounds, which would be wider for ever, do not.
            let (estimate, bus) = (point.max(self.point), bus.max(self.bus));
            Cycles { lo: point, point: estimate, hi: point, unsure, bus, unrated }
        });
        (self.before, self.unsure, self.point, self.bus) = ((0, 0), 0, 0, 0);
        (self.unrated, self.met_gap) = (0, false);
        self.set_plain_until();
        Counters { executed: executed.into(), cycles }
    }

    /// A gap was in the stretch.
    pub(super) fn met_gap(&self) -> bool {
        self.met_gap
    }

    /// User code is not traced any more, since one of `width` cycles.
    fn end(&mut self, counted: (u64, u64), width: u64) {
        self.unsure += std::mem::take(&mut self.after_loss);
        if self.on_since.take().is_some() {
            self.before = counted;
            self.unsure += width;
        }
    }
}

/// Takes note of the events of a stretch as they are made.
pub(super) trait PassEvents<W> {
    /// The next event, the slots that it is between, the work up to it, and the cycles if they are known.
    fn pass(&mut self, event: &TraceEvent, slots: (Slot, Slot), work: W, cycles: Option<PassedCycles>);

    /// [`Self::pass`] for an event that is no branch of an effect.
    fn pass_other(&mut self, event: &TraceEvent, slots: (Slot, Slot), work: W);
}

/// In a decode without counters.
pub(super) struct NoCounters;

impl<W> PassEvents<W> for NoCounters {
    #[inline(always)]
    fn pass(&mut self, _: &TraceEvent, _: (Slot, Slot), _: W, _: Option<PassedCycles>) {}

    #[inline(always)]
    fn pass_other(&mut self, _: &TraceEvent, _: (Slot, Slot), _: W) {}
}

/// Notes the counters at the events of a stretch.
pub(super) struct AtEvents<'c, 'a, W> {
    pub(super) counting: &'c mut Counting<'a>,
    /// Work done before the stretch.
    pub(super) begin: W,
    pub(super) counters: &'c mut Vec<CountersSince>,
}

impl<W: Work> PassEvents<W> for AtEvents<'_, '_, W> {
    #[inline(always)]
    fn pass(&mut self, event: &TraceEvent, slots: (Slot, Slot), work: W, cycles: Option<PassedCycles>) {
        match cycles {
            Some(cycles) if self.counting.is_plain(event, slots.1, &cycles) => {
                let (executed, cycles) = (work.since(self.begin), self.counting.pass_plain(cycles));
                self.counters.push(CountersSince { executed, cycles });
            }
            _ => self.pass_other(event, slots, work),
        }
    }

    #[inline(never)]
    fn pass_other(&mut self, event: &TraceEvent, slots: (Slot, Slot), work: W) {
        let cycles = self.counting.pass(event, slots, work.timed_instructions());
        self.counters.push(CountersSince { executed: work.since(self.begin), cycles });
    }
}

/// It changes nothing of whether user code is traced.
#[inline(always)]
fn is_branch(event: &TraceEvent) -> bool {
    matches!(event, TraceEvent::Branch(BranchEvent { transfer: Transfer::Branch { .. }, .. }))
}

/// No core runs at more cycles a nanosecond.
const CYCLES_PER_NS_MAX: u64 = 8;

/// Raises the upper bounds of what happened after the last packet before a gap: CYC packets that counted what
/// passed up to there may be lost.
pub(super) fn widen_before_gaps(events: &[TraceEvent], slots: &[Slot], counters: &mut [CountersSince]) {
    let mut lost_from = None;
    for ((event, slot), counters) in events.iter().zip(slots).zip(counters).rev() {
        let (TraceEvent::Branch(branch), Some(from)) = (event, lost_from) else {
            lost_from = matches!(event, TraceEvent::Gap(_)).then_some(slot);
            continue;
        };
        if slot < from {
            lost_from = None;
        } else {
            let cycles = &mut counters.cycles;
            let most = branch.time.hi.since(branch.time.lo).saturating_mul(CYCLES_PER_NS_MAX);
            cycles.hi = cycles.hi.max(cycles.lo.saturating_add(most));
        }
    }
}
