//! What one segment's decoding gives: records until its clock is known, which then become stretches of
//! events.

mod counting;

use model::{
    AuxOffset, Avma, BranchEvent, BranchKind, CountersSince, EventTime, FunctionId, Gap, GapCause, Ns, Site,
    SpaceId, Target, TraceEvent, Transfer,
};

use crate::block::BlockId;
use crate::clock::{Clock, Slot, Times};
use crate::effects::{Edge, EdgeId, Effects, Role};
use crate::owner::Running;
use crate::prune::Pruner;
use crate::record::{Edges, Record, What};
use crate::step::Step;
use crate::stretch::{Counted, Stretch};
use crate::work::Work;
use counting::{AtEvents, Counting, NoCounters, PassEvents};

/// One end of a gap.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    At(Slot),
    /// Soon after the packet, in any case before the one after it.
    After(Slot),
    Exactly(Ns),
    /// The earlier of the two.
    NotAfter(Slot, Ns),
}

impl Moment {
    /// The packet that it is not before.
    fn slot(self) -> Option<Slot> {
        match self {
            Self::At(slot) | Self::After(slot) | Self::NotAfter(slot, _) => Some(slot),
            Self::Exactly(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Other {
    Transfer(Transfer),
    Gap { from: Moment, to: Moment, bytes: u64, cause: GapCause },
}

/// Records that are pruned at a time: few enough to be in the processor's first cache then.
const RECENT: usize = 256;

/// Records that have room before they are moved: 1 MB; only the used part of it is ever touched.
const FIRST_KEPT: usize = 1 << 15;

/// Room for fewer events is not worth keeping.
pub(crate) const ROOM_EVENTS_MIN: usize = 1 << 10;

/// What stands in an event's place until it is made.
const NOTHING: TraceEvent = TraceEvent::Branch(BranchEvent {
    time: EventTime { lo: Ns(0), point: Ns(0), hi: Ns(0) },
    at: AuxOffset(0),
    transfer: Transfer::Branch {
        kind: BranchKind::Jump,
        from: Site { ip: Avma(0), function: FunctionId::UNKNOWN, len: 0 },
        to: Target { ip: Avma(0), function: FunctionId::UNKNOWN, at_entry: false },
    },
});

/// A stretch that was begun.
struct Begun<W> {
    stretch: Stretch,
    /// Its first record that is kept.
    first: usize,
    /// Work done before it.
    work: W,
}

/// Where a segment begins and ends for its counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bounds {
    /// It begins inside of user code.
    pub(crate) begins_in_code: bool,
    /// The first slot after the PSB that ends it, and the cycles that were counted before that PSB; none: no
    /// PSB ends it.
    pub(crate) end: Option<(Slot, u64)>,
    /// The first CYC packet from there on: the cycles from the last CYC packet to the trace after the PSB.
    pub(crate) next_cyc: Option<u64>,
}

/// Collects what happens until the segment's clock is known.
pub(crate) struct Output<W> {
    stretches: Vec<Begun<W>>,
    /// The records of all stretches but the last ones; with a pruner each is one branch at most.
    kept: Vec<Record<W>>,
    /// The last records of the last stretch, which are still to be pruned: in batches, for which the pruner's
    /// state is in registers.
    recent: Vec<Record<W>>,
    others: Vec<Other>,
    /// Offsets of the PSBEND packets, ascending.
    pub(crate) psb_ends: Vec<AuxOffset>,
    /// Drops what the sink does not ask about, if it does not ask about everything.
    pruner: Option<Pruner<W>>,
    pub(crate) overflows: u64,
    /// What the counters of a segment need to know.
    pub(crate) bounds: Bounds,
    /// Room for the events of a long stretch, with others in it.
    pub(crate) room: Vec<TraceEvent>,
    /// Room for the counters of a long stretch, with others in it.
    pub(crate) counters_room: Vec<CountersSince>,
}

impl<W: Work> Output<W> {
    /// Keeps everything, or only what the sink asks about.
    pub(crate) fn new(keeps_all: bool) -> Self {
        Self {
            stretches: vec![],
            kept: Vec::with_capacity(FIRST_KEPT),
            recent: Vec::with_capacity(RECENT),
            others: vec![],
            psb_ends: vec![],
            pruner: (!keeps_all).then(Pruner::new),
            overflows: 0,
            bounds: Bounds::default(),
            room: vec![],
            counters_room: vec![],
        }
    }

    /// The events that follow are those of `running`, unless another one is said to run.
    #[inline]
    pub(crate) fn is_of(&self, running: Running, space: SpaceId) -> bool {
        self.stretches.last().is_some_and(|last| last.stretch.is_of(running, space))
    }

    /// The events that follow are `running`'s, after `work`.
    pub(crate) fn thread(
        &mut self,
        running: Running,
        space: SpaceId,
        start: Ns,
        work: W,
        effects: &Effects<W>,
    ) {
        if !self.is_of(running, space) {
            self.end_stretch(effects);
            let stretch = Stretch::new(running, space, start);
            self.stretches.push(Begun { stretch, first: self.kept.len(), work });
        }
    }

    fn push_other(
        &mut self,
        other: Other,
        lo: Slot,
        slot: Slot,
        work: W,
        at: AuxOffset,
        effects: &Effects<W>,
    ) {
        if self.stretches.is_empty() {
            let stretch = Stretch::new(Running::UNKNOWN, SpaceId::default(), Ns(0));
            self.stretches.push(Begun { stretch, first: 0, work: W::NONE });
        }
        let edge = EdgeId(self.others.len() as u32);
        self.others.push(other);
        self.push_border(
            Record { at, what: What::Other, prunable: None, edge, call: BlockId::NONE, lo, slot, work },
            effects,
        );
    }

    /// What bounds the calls that are open: all of them are kept.
    #[inline(always)]
    fn push_border(&mut self, record: Record<W>, effects: &Effects<W>) {
        if !self.recent.is_empty() {
            self.prune(0, effects);
        }
        match &mut self.pruner {
            Some(pruner) => pruner.border(record, &mut self.kept, effects),
            None => self.kept.push(record),
        }
    }

    /// The branches of an effect that began when `work` instructions had passed.
    #[inline(always)]
    pub(crate) fn effect(&mut self, step: &Step, work: W, edges: Edges, effects: &Effects<W>) {
        if self.recent.len() == self.recent.capacity() {
            self.make_room(effects);
        }
        let Edges { first: edge, has_first_bit, prunable, call } = edges;
        let what = if has_first_bit { What::Tnt } else { What::Effect };
        self.recent.push(Record {
            at: step.at,
            what,
            prunable,
            edge,
            call,
            lo: step.lo,
            slot: step.slot,
            work,
        });
    }

    #[cold]
    fn make_room(&mut self, effects: &Effects<W>) {
        self.prune(1, effects);
    }

    /// Prunes all recent records but the last `left`: the last one of a stretch is kept in any case.
    #[inline(never)]
    fn prune(&mut self, left: usize, effects: &Effects<W>) {
        let count = self.recent.len().saturating_sub(left);
        match &mut self.pruner {
            Some(pruner) => pruner.add(&self.recent[..count], &mut self.kept, effects),
            None => self.kept.extend_from_slice(&self.recent[..count]),
        }
        self.recent.drain(..count);
    }

    /// Tracing starts or ends, at the packet of `slot`.
    #[inline(always)]
    pub(crate) fn border(&mut self, edge: EdgeId, slot: Slot, work: W, at: AuxOffset, effects: &Effects<W>) {
        let call = BlockId::NONE;
        let border = Record { at, what: What::Effect, prunable: None, edge, call, lo: slot, slot, work };
        self.push_border(border, effects);
    }

    /// A transfer between the flow packets of two slots; the same slot twice if it is that packet's own.
    pub(crate) fn transfer(&mut self, step: &Step, work: W, transfer: Transfer, effects: &Effects<W>) {
        self.push_other(Other::Transfer(transfer), step.lo, step.slot, work, step.at, effects);
    }

    pub(crate) fn gap(
        &mut self,
        from: Moment,
        to: Moment,
        bytes: u64,
        (at, work): (AuxOffset, W),
        cause: GapCause,
        effects: &Effects<W>,
    ) {
        let slot = from.slot().unwrap_or_default();
        self.push_other(Other::Gap { from, to, bytes, cause }, slot, slot, work, at, effects);
    }

    /// The stretches, with the times that `clock` has settled; `work` was done in all.
    pub(crate) fn finish(&mut self, clock: &Clock, work: W, effects: &Effects<W>) -> Vec<Stretch> {
        self.end_stretch(effects);
        let mut stretches = std::mem::take(&mut self.stretches);
        let mut ends: Vec<_> = stretches.iter().map(|next| (next.first, next.work)).skip(1).collect();
        ends.push((self.kept.len(), work));
        let last = stretches.len();
        let mut times = if W::COUNTS { clock.times_with_cycles() } else { clock.times() };
        let bounds = std::mem::take(&mut self.bounds);
        let mut counting = W::COUNTS.then(|| Counting::new(clock, bounds));
        for (number, (begun, (end, end_work))) in (1..).zip(stretches.iter_mut().zip(ends)) {
            let Begun { stretch, first, work } = begun;
            let count = end.saturating_sub(*first);
            if count >= ROOM_EVENTS_MIN {
                stretch.events = std::mem::take(&mut self.room);
            }
            stretch.events.reserve(count.saturating_sub(stretch.events.len()));
            let kept = self.kept.get(*first..end).unwrap_or_default();
            let Some(counting) = &mut counting else {
                stretch.in_order = self.events(&mut times, effects, kept, &mut stretch.events, NoCounters);
                stretch.bound_from_after(&self.psb_ends);
                continue;
            };
            let is_long = count >= ROOM_EVENTS_MIN;
            let mut at_events = if is_long { std::mem::take(&mut self.counters_room) } else { Vec::new() };
            at_events.clear();
            at_events.reserve(count);
            let begin = *work;
            let counters = AtEvents { counting: &mut *counting, begin, counters: &mut at_events };
            stretch.in_order = self.events(&mut times, effects, kept, &mut stretch.events, counters);
            stretch.bound_from_after(&self.psb_ends);
            if counting.met_gap() {
                counting::widen_before_gaps(&stretch.events, &self.slots(effects, kept), &mut at_events);
            }
            let in_all = counting.end_stretch(end_work.since(begin), number == last);
            stretch.counted = Some(Counted { at_events, in_all });
        }
        self.kept.clear();
        self.others.clear();
        self.psb_ends.clear();
        let stretches = stretches.into_iter().map(|begun| begun.stretch);
        stretches.filter(|stretch| !stretch.events.is_empty() || stretch.counted.is_some()).collect()
    }

    /// No other record of the last stretch follows.
    fn end_stretch(&mut self, effects: &Effects<W>) {
        self.prune(1, effects);
        let last = self.recent.pop();
        match (&mut self.pruner, self.stretches.last_mut()) {
            (Some(pruner), Some(Begun { stretch, .. })) => {
                stretch.left_out = pruner.end_stretch(last, &mut self.kept, effects);
            }
            _ => self.kept.extend(last),
        }
    }

    /// Makes the events of `records`, in the place of the content of `events`; whether their times and
    /// bounds are in order. Each is passed to `counters`.
    #[inline(never)]
    fn events(
        &self,
        times: &mut Times<'_>,
        effects: &Effects<W>,
        records: &[Record<W>],
        events: &mut Vec<TraceEvent>,
        mut counters: impl PassEvents<W>,
    ) -> bool {
        let is_pruned = self.pruner.is_some();
        let (mut in_order, mut last, mut count) = (true, EventTime::default(), 0);
        let mut is_after = |time: EventTime| {
            let last = std::mem::replace(&mut last, time);
            last.lo <= time.lo && last.point <= time.point && last.hi <= time.hi
        };
        for record in records {
            if record.what == What::Other {
                let event = self.other(times, record);
                in_order &= is_after(event.time()) && matches!(event, TraceEvent::Branch(_));
                counters.pass_other(&event, (record.lo, record.slot), record.work);
                *place(events, count) = event;
                count += 1;
                continue;
            }
            let EdgeId(mut id) = record.edge;
            loop {
                let (edge, transfer) = effects.edge(EdgeId(id));
                let site = match edge.role {
                    Role::ReturnToStack => match effects.return_site(record.call) {
                        None => break, // it has not returned
                        site => site,
                    },
                    _ => None,
                };
                let event = place(events, count);
                if !matches!(event, TraceEvent::Branch(_)) {
                    *event = NOTHING;
                }
                let (slots, work) = ((record.lo, slot_of(record, edge)), record.work.plus(edge.work));
                let mut cycles = None;
                // Piece by piece: a copy of just written bytes costs a processor much.
                if let TraceEvent::Branch(event) = event {
                    event.at = record.at;
                    event.transfer = *transfer;
                    if let (Some(site), Transfer::Branch { to, .. }) = (site, &mut event.transfer) {
                        *to = site.to;
                    }
                    let instructions = work.timed_instructions();
                    (event.time, cycles) = match W::COUNTS {
                        true => times.between_with_cycles(slots.0, slots.1, instructions),
                        false => (times.between(slots.0, slots.1, instructions), None),
                    };
                    in_order &= is_after(event.time);
                }
                counters.pass(event, slots, work, cycles);
                count += 1;
                if edge.is_last || is_pruned {
                    break;
                }
                id += 1;
            }
        }
        events.truncate(count);
        in_order
    }

    /// The slots of the events that these records have become.
    #[cold]
    fn slots(&self, effects: &Effects<W>, records: &[Record<W>]) -> Vec<Slot> {
        let is_pruned = self.pruner.is_some();
        let mut slots = Vec::with_capacity(records.len());
        for record in records {
            if record.what == What::Other {
                slots.push(record.slot);
                continue;
            }
            let EdgeId(mut id) = record.edge;
            loop {
                let (edge, _) = effects.edge(EdgeId(id));
                if edge.role == Role::ReturnToStack && effects.return_site(record.call).is_none() {
                    break; // it has not returned
                }
                slots.push(slot_of(record, edge));
                if edge.is_last || is_pruned {
                    break;
                }
                id += 1;
            }
        }
        slots
    }

    /// What is no branch of an effect.
    #[cold]
    #[inline(never)]
    fn other(&self, times: &mut Times<'_>, record: &Record<W>) -> TraceEvent {
        let &Record { at, edge, lo, slot, work, .. } = record;
        match self.others[edge.0 as usize] {
            Other::Transfer(transfer) => TraceEvent::Branch(BranchEvent {
                time: times.between(lo, slot, work.timed_instructions()),
                at,
                transfer,
            }),
            Other::Gap { from, to, bytes, cause } => gap(times, from, to, bytes, at, cause),
        }
    }
}

/// The place of the event with this number, after all that come before.
#[inline(always)]
fn place(events: &mut Vec<TraceEvent>, number: usize) -> &mut TraceEvent {
    if number == events.len() {
        events.push(NOTHING);
    }
    &mut events[number]
}

/// The packet that a branch of a record was not after.
#[inline(always)]
fn slot_of<W>(record: &Record<W>, edge: &Edge<W>) -> Slot {
    let is_next = edge.is_after_first && record.what == What::Tnt;
    if is_next { record.slot.next() } else { record.slot }
}

fn gap(
    times: &mut Times<'_>,
    from: Moment,
    to: Moment,
    bytes: u64,
    at: AuxOffset,
    cause: GapCause,
) -> TraceEvent {
    let to = moment(times, to);
    let mut from = moment(times, from);
    if from.point == Ns(0) {
        from = to;
    } else if from.point > to.point {
        // Each is an estimate of its own; where the bounds are stays as it was.
        let (lo, point) = (from.lo.min(to.point), to.point);
        from = EventTime { lo, point, hi: from.hi.min(to.hi).max(point) };
    }
    TraceEvent::Gap(Gap { from, to, bytes, at, cause })
}

fn moment(times: &mut Times<'_>, moment: Moment) -> EventTime {
    match moment {
        Moment::At(slot) => times.at(slot),
        Moment::After(slot) => {
            let time = times.at(slot);
            EventTime { hi: times.at(slot.next()).hi.max(time.hi), ..time }
        }
        Moment::Exactly(ns) => EventTime::exact(ns),
        Moment::NotAfter(slot, bound) => {
            let time = times.at(slot);
            if time.point <= bound { time } else { EventTime::exact(bound) }
        }
    }
}
