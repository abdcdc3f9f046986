//! The counters at the events of a stretch.
//!
//! ```text
//!   user code   Start -------- branch ---- End          Start ------ Gap       (or the segment's own ends)
//!   cycles      |<--------- counted -------->|          |<- counted ->|
//! ```
//! Cycles of kernel code, and those that pass while tracing is off, lie between an end and the next start.

use model::{Counters, Cycles, Executed, TraceEvent, Transfer};

use super::Bounds;
use crate::clock::{Clock, Slot, SlotCycles};
use crate::stretch::Counted;

/// Where an event is: between two packets, and after what work of the stretch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub(super) lo: Slot,
    pub(super) slot: Slot,
    /// Instructions, wrapping, since the segment began.
    pub(super) instructions: u32,
    /// What was executed since the stretch began.
    pub(super) executed: Executed,
}

/// Counts the cycles of user code, event by event of a segment.
pub(super) struct Counting<'a> {
    cycles: Option<SlotCycles<'a>>,
    /// The first slot of the PSB+ that ends the segment.
    end: Slot,
    /// Cycles of the segment: up to the last CYC packet before that.
    all: u64,
    /// Cycles of the first CYC packet after that: as many more may have passed at the segment's end.
    next_cyc: u64,
    /// User code is traced, since as many cycles of the segment; none: it is not.
    on_since: Option<u64>,
    /// Up to where it was traced last: what was counted in the stretch.
    before: u64,
    unsure: u64,
    /// Cycles of the segment at the last event.
    last: u64,
}

impl<'a> Counting<'a> {
    /// The counting of a segment.
    pub(super) fn new(clock: &'a Clock, bounds: Bounds) -> Self {
        let (end, all) = bounds.end.unwrap_or((Slot(u32::MAX), clock.counted_cycles()));
        Self {
            cycles: clock.cycles(),
            end,
            all,
            next_cyc: bounds.next_cyc.unwrap_or(0),
            on_since: bounds.begins_in_code.then_some(0),
            before: 0,
            unsure: 0,
            last: 0,
        }
    }

    /// The counters of a stretch; the last one ends where the segment does.
    pub(super) fn stretch(
        &mut self,
        events: &[TraceEvent],
        positions: &[Position],
        executed: Executed,
        is_last: bool,
    ) -> Counted {
        (self.before, self.unsure) = (0, 0);
        let mut last = 0;
        let at_events = events.iter().zip(positions).map(|(event, position)| {
            let cycles = self.at(event, position).map(|cycles| {
                // An estimate is never before that of the event before.
                last = cycles.point.max(last);
                Cycles { point: last, hi: cycles.hi.max(last), ..cycles }
            });
            Counters { executed: position.executed, cycles }
        });
        let mut at_events: Vec<Counters> = at_events.collect();
        widen_before_gaps(events, positions, &mut at_events);
        let in_all = self.cycles.is_some().then(|| {
            let end = if is_last { self.all } else { self.last };
            let point = self.before + self.on_since.map_or(0, |since| end.saturating_sub(since));
            self.on_since = self.on_since.map(|_| end);
            Cycles { lo: point, point, hi: point, unsure: self.unsure }
        });
        Counted { at_events, in_all: Counters { executed, cycles: in_all } }
    }

    /// The cycles at an event, which may switch user code on or off.
    fn at(&mut self, event: &TraceEvent, position: &Position) -> Option<Cycles> {
        let cycles = self.cycles.as_mut()?;
        let Position { lo, slot, instructions, .. } = *position;
        let at = match event {
            TraceEvent::Branch(_) if slot >= self.end => {
                [cycles.at(lo).min(self.all), self.all, self.all.saturating_add(self.next_cyc)]
            }
            TraceEvent::Branch(_) => cycles.between(lo, slot, instructions),
            // Where it begins is no packet's: as far as anything was counted.
            TraceEvent::Gap(_) => [self.on_since.unwrap_or(0); 3],
        };
        let width = at[2].saturating_sub(at[0]);
        self.last = at[1];
        let to = |at: u64| self.before + self.on_since.map_or(0, |since| at.saturating_sub(since));
        let [lo, point, hi] = at.map(to);
        let counted = Cycles { lo, point, hi, unsure: self.unsure };
        match event {
            TraceEvent::Branch(branch) => match branch.transfer {
                Transfer::Branch { .. } => (),
                Transfer::Start { to, .. } if to.ip.is_kernel() => self.on_since = None,
                Transfer::Start { after_gap, .. } => {
                    // After a loss the next CYC packet also counts what passed in it.
                    let since = if after_gap { cycles.after(slot) } else { at[1] };
                    self.on_since = Some(since);
                    self.unsure += width + since.saturating_sub(at[1]);
                }
                Transfer::End { .. } => self.end(point, width),
            },
            TraceEvent::Gap(_) => self.end(point, width),
        }
        Some(counted)
    }

    /// User code is not traced any more, since one of `width` cycles.
    fn end(&mut self, counted: u64, width: u64) {
        if self.on_since.take().is_some() {
            self.before = counted;
            self.unsure += width;
        }
    }
}

/// No core runs at more cycles a nanosecond.
const CYCLES_PER_NS_MAX: u64 = 8;

/// Raises the upper bounds of what happened after the last packet before a gap: CYC packets that counted what
/// passed up to there may be lost.
fn widen_before_gaps(events: &[TraceEvent], positions: &[Position], counters: &mut [Counters]) {
    let mut lost_from = None;
    for ((event, position), counters) in events.iter().zip(positions).zip(counters).rev() {
        match event {
            TraceEvent::Gap(_) => lost_from = Some(position.slot),
            TraceEvent::Branch(branch) if lost_from.is_some_and(|from| position.slot >= from) => {
                if let Some(cycles) = &mut counters.cycles {
                    let may_last_ns = branch.time.hi.since(branch.time.lo);
                    cycles.hi = cycles
                        .hi
                        .max(cycles.lo.saturating_add(may_last_ns.saturating_mul(CYCLES_PER_NS_MAX)));
                }
            }
            TraceEvent::Branch(_) => lost_from = None,
        }
    }
}
