//! What one segment's decoding gives: records until its clock is known, which then become stretches of events.

use model::{
    AuxOffset, Avma, BranchEvent, BranchKind, EventTime, FunctionId, Gap, GapCause, Ns, Site, SpaceId,
    Target, TraceEvent, Transfer,
};

use crate::block::BlockId;
use crate::clock::{Clock, Slot, Times};
use crate::effects::{EdgeId, Effects, Role};
use crate::owner::Running;
use crate::prune::Pruned;
use crate::record::{Record, What};
use crate::stretch::Stretch;
use crate::walk::Step;

/// One end of a gap.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    At(Slot),
    /// Soon after the packet, in any case before the one behind it.
    Behind(Slot),
    Exactly(Ns),
    /// The earlier of the two.
    NotAfter(Slot, Ns),
}

#[derive(Clone, Copy, Debug)]
enum Other {
    Transfer(Transfer),
    Gap { from: Moment, to: Moment, bytes: u64, cause: GapCause },
}

/// The branches of an effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edges {
    pub(crate) first: EdgeId,
    /// With that of the first bit of a TNT packet.
    pub(crate) has_first_bit: bool,
    /// See [`Record::quiet`].
    pub(crate) quiet: u8,
    /// The call that the last one returned to, if only the stack knows that; none: it has not returned.
    pub(crate) call: BlockId,
}

/// So many records wait before they are pruned: few enough to be in the processor's first cache then.
const RECENT: usize = 256;

/// Room for fewer events is not worth keeping.
pub(crate) const ROOM_EVENTS_MIN: usize = 1 << 10;

/// What stands in an event's place until it is made.
const NO_BRANCH: BranchEvent = BranchEvent {
    time: EventTime { lo: Ns(0), point: Ns(0), hi: Ns(0) },
    at: AuxOffset(0),
    transfer: Transfer::Branch {
        kind: BranchKind::Jump,
        from: Site { ip: Avma(0), function: FunctionId::UNKNOWN, len: 0 },
        to: Target { ip: Avma(0), function: FunctionId::UNKNOWN, at_entry: false },
    },
};
const NOTHING: TraceEvent = TraceEvent::Branch(NO_BRANCH);

/// Collects what happens until the segment's clock is known.
pub(crate) struct Output {
    /// Each with its first record that is kept.
    stretches: Vec<(Stretch, usize)>,
    /// The last records of the last stretch, with all of the last packet, which may be taken back.
    recent: Vec<Record>,
    others: Vec<Other>,
    /// The records before, each of one branch at most.
    pruned: Pruned,
    pub(crate) overflows: u64,
    /// Room for the events of a long stretch, with others in it.
    pub(crate) room: Vec<TraceEvent>,
}

impl Output {
    /// Of which nothing is left out if `keeps_all`, or else what nobody asks about.
    pub(crate) fn new(keeps_all: bool) -> Self {
        Self {
            stretches: vec![],
            recent: vec![],
            others: vec![],
            pruned: Pruned::new(keeps_all),
            overflows: 0,
            room: vec![],
        }
    }

    /// The events that follow are those of `running`, unless another one is said to run.
    pub(crate) fn is_of(&self, running: Running, space: SpaceId) -> bool {
        self.stretches.last().is_some_and(|(last, _)| last.is_of(running, space))
    }

    /// The events that follow are `running`'s.
    pub(crate) fn thread(&mut self, running: Running, space: SpaceId, start: Ns, effects: &Effects) {
        if !self.is_of(running, space) {
            self.end_stretch(effects);
            self.stretches.push((Stretch::new(running, space, start), self.pruned.kept.len()));
        }
    }

    fn push_other(&mut self, other: Other, lo: Slot, slot: Slot, work: u32, at: AuxOffset) {
        if self.stretches.is_empty() {
            self.stretches.push((Stretch::new(Running::UNKNOWN, SpaceId::default(), Ns(0)), 0));
        }
        let edge = EdgeId(self.others.len() as u32);
        self.others.push(other);
        self.recent.push(Record {
            at,
            what: What::Other,
            quiet: 0,
            edge,
            call: BlockId::NONE,
            lo,
            slot,
            work,
        });
    }

    /// The branches of an effect that began when `work` instructions had passed.
    #[inline]
    pub(crate) fn effect(&mut self, step: &Step, work: u32, edges: Edges, effects: &Effects) {
        if self.recent.len() >= RECENT {
            self.prune_recent(effects);
        }
        let Edges { first: edge, has_first_bit, quiet, call } = edges;
        let what = if has_first_bit { What::Tnt } else { What::Effect };
        self.recent.push(Record { at: step.at, what, quiet, edge, call, lo: step.lo, slot: step.slot, work });
    }

    /// Where tracing starts or ends, at the packet of `slot`, whose only record this is: nothing before it is taken back any more.
    #[inline(always)]
    pub(crate) fn border(&mut self, edge: EdgeId, slot: Slot, work: u32, at: AuxOffset, effects: &Effects) {
        if !self.recent.is_empty() {
            self.prune_all(effects);
        }
        let call = BlockId::NONE;
        let border = Record { at, what: What::Effect, quiet: 0, edge, call, lo: slot, slot, work };
        self.pruned.border(border, effects);
    }

    /// A transfer between the flow packets of two slots; the same slot twice if it is that packet's own.
    pub(crate) fn transfer(&mut self, lo: Slot, slot: Slot, work: u32, at: AuxOffset, transfer: Transfer) {
        self.push_other(Other::Transfer(transfer), lo, slot, work, at);
    }

    /// Takes back the transfers that came from the packet at `at`.
    #[cold]
    pub(crate) fn take_back(&mut self, at: AuxOffset) {
        while let Some(last) = self.recent.last()
            && last.at == at
            && !self.is_gap(last)
        {
            self.recent.pop();
        }
    }

    fn is_gap(&self, record: &Record) -> bool {
        let other = self.others.get(record.edge.0 as usize).filter(|_| record.what == What::Other);
        matches!(other, Some(Other::Gap { .. }))
    }

    pub(crate) fn gap(&mut self, from: Moment, to: Moment, bytes: u64, at: AuxOffset, cause: GapCause) {
        self.push_other(Other::Gap { from, to, bytes, cause }, Slot(0), Slot(0), 0, at);
    }

    /// The stretches, with the times that `clock` has settled.
    pub(crate) fn finish(&mut self, clock: &Clock, effects: &Effects) -> Vec<Stretch> {
        self.end_stretch(effects);
        let mut stretches = std::mem::take(&mut self.stretches);
        let mut ends: Vec<usize> = stretches.iter().map(|(_, first)| *first).skip(1).collect();
        ends.push(self.pruned.kept.len());
        let mut times = clock.times();
        for ((stretch, first), end) in stretches.iter_mut().zip(ends) {
            let kept = self.pruned.kept.get(*first..end).unwrap_or_default();
            if kept.len() >= ROOM_EVENTS_MIN {
                stretch.events = std::mem::take(&mut self.room);
            }
            stretch.events.resize(kept.len(), NOTHING);
            stretch.in_order = self.events(&mut times, effects, kept, &mut stretch.events);
            stretch.bound_from_behind();
        }
        self.pruned.kept.clear();
        self.others.clear();
        let stretches = stretches.into_iter().map(|(stretch, _)| stretch);
        stretches.filter(|stretch| !stretch.events.is_empty()).collect()
    }

    /// Prunes all that cannot be taken back any more.
    #[cold]
    #[inline(never)]
    fn prune_recent(&mut self, effects: &Effects) {
        let packet = self.recent.last().map(|last| last.at);
        let before = self.recent.iter().rposition(|record| Some(record.at) != packet);
        self.prune(effects, before.map_or(0, |last| last + 1), false);
    }

    #[inline(never)]
    fn prune_all(&mut self, effects: &Effects) {
        self.prune(effects, self.recent.len(), false);
    }

    /// No other record of the last stretch follows.
    fn end_stretch(&mut self, effects: &Effects) {
        self.prune(effects, self.recent.len(), true);
        let left_out = self.pruned.end(effects);
        if let Some((stretch, _)) = self.stretches.last_mut() {
            stretch.left_out = left_out;
        }
    }

    /// Prunes the first `count` records; `ends`: with the last one of the stretch.
    fn prune(&mut self, effects: &Effects, count: usize, ends: bool) {
        self.pruned.add(&self.recent[..count], ends, effects);
        self.recent.drain(..count);
    }

    /// Makes the events that records of one branch at most are; whether their times and bounds are in order.
    #[inline(never)]
    fn events(
        &self,
        times: &mut Times<'_>,
        effects: &Effects,
        kept: &[Record],
        events: &mut [TraceEvent],
    ) -> bool {
        let (mut in_order, mut last) = (true, EventTime::default());
        for (event, record) in events.iter_mut().zip(kept) {
            let time = match event {
                TraceEvent::Branch(event) if record.what != What::Other => {
                    branch(times, effects, record, event)
                }
                _ => {
                    *event = self.other(times, effects, record);
                    in_order &= matches!(event, TraceEvent::Branch(_));
                    event.time()
                }
            };
            in_order &= last.lo <= time.lo && last.point <= time.point && last.hi <= time.hi;
            last = time;
        }
        in_order
    }

    /// What is no branch of an effect, or takes the place of something else than one: all of the event is made anew.
    #[cold]
    #[inline(never)]
    fn other(&self, times: &mut Times<'_>, effects: &Effects, record: &Record) -> TraceEvent {
        let &Record { at, what, edge, lo, slot, work, .. } = record;
        if what != What::Other {
            let mut event = NO_BRANCH;
            branch(times, effects, record, &mut event);
            return TraceEvent::Branch(event);
        }
        match self.others[edge.0 as usize] {
            Other::Transfer(transfer) => {
                TraceEvent::Branch(BranchEvent { time: times.between(lo, slot, work), at, transfer })
            }
            Other::Gap { from, to, bytes, cause } => gap(times, from, to, bytes, at, cause),
        }
    }
}

/// Makes an event where it stays, piece by piece, as what was just written costs a processor much to copy; returns its time.
#[inline(always)]
fn branch(times: &mut Times<'_>, effects: &Effects, record: &Record, event: &mut BranchEvent) -> EventTime {
    let &Record { at, what, edge, call, lo, mut slot, work, .. } = record;
    let (edge, transfer) = effects.edge(edge);
    event.transfer = *transfer;
    if edge.role == Role::ReturnToStack
        && let (Transfer::Branch { to, .. }, Some(behind)) = (&mut event.transfer, effects.behind(call))
    {
        *to = behind.to;
    }
    if edge.is_behind_first && what == What::Tnt {
        slot = slot.next();
    }
    event.at = at;
    event.time = times.between(lo, slot, work.wrapping_add(edge.work));
    event.time
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
        Moment::Behind(slot) => {
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
