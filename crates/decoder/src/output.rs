//! What one segment's decoding gives, until its clock is known: records, which then become stretches of events.

use model::AuxOffset;
use model::{BranchEvent, EventTime, Gap, GapCause, Ns, SpaceId, TraceEvent, Transfer};

use crate::clock::{Clock, Slot, Times};
use crate::effects::{EdgeId, Effects};
use crate::owner::Running;
use crate::prune::Pruned;
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

/// What happened at a packet, in few bytes: there are many, and most are only passed over.
#[derive(Clone, Copy, Debug)]
struct Record {
    at: AuxOffset,
    what: What,
    /// It happened behind the packet of this slot
    lo: Slot,
    /// and not behind that one's; the same slot twice if it is that packet's own.
    slot: Slot,
    /// Instructions passed.
    work: u32,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// The branches of an effect, of which this is the first; of a record that is kept, this branch alone.
    Effect(EdgeId),
    /// ... with the first bit of a TNT packet: those behind it are of the next slot.
    Tnt(EdgeId),
    /// An index in [`Output::others`].
    Other(u32),
}

#[derive(Clone, Copy, Debug)]
enum Other {
    Transfer(Transfer),
    Gap { from: Moment, to: Moment, bytes: u64, cause: GapCause },
}

/// So many records wait before they are pruned: few enough to be in the processor's first cache then.
const RECENT: usize = 256;

/// Room for fewer events is not worth keeping.
pub(crate) const ROOM_EVENTS_MIN: usize = 1 << 10;

/// Collects what happens until the segment's clock is known.
#[derive(Default)]
pub(crate) struct Output {
    /// Each with its first record that is kept.
    stretches: Vec<(Stretch, usize)>,
    /// The last records of the last stretch, with all of the last packet, which may be taken back.
    recent: Vec<Record>,
    others: Vec<Other>,
    /// The records before, each of one branch.
    pruned: Pruned<Record>,
    pub(crate) overflows: u64,
    /// Room for the events of a long stretch, empty.
    pub(crate) room: Vec<TraceEvent>,
}

impl Output {
    /// The events that follow are `running`'s.
    pub(crate) fn thread(&mut self, running: Running, space: SpaceId, start: Ns, effects: &Effects) {
        if !self.stretches.last().is_some_and(|(last, _)| last.is_of(running, space)) {
            self.end_stretch(effects);
            self.stretches.push((Stretch::new(running, space, start), self.pruned.kept.len()));
        }
    }

    fn push_other(&mut self, other: Other, lo: Slot, slot: Slot, work: u32, at: AuxOffset) {
        if self.stretches.is_empty() {
            self.stretches.push((Stretch::new(Running::UNKNOWN, SpaceId::default(), Ns(0)), 0));
        }
        let what = What::Other(self.others.len() as u32);
        self.others.push(other);
        self.recent.push(Record { at, what, lo, slot, work });
    }

    /// The branches of an effect, of which this is the first, that began when `work` instructions had passed; `splits`: with
    /// the first bit of a TNT.
    #[inline]
    pub(crate) fn effect(&mut self, step: &Step, work: u32, edges: EdgeId, splits: bool, effects: &Effects) {
        if self.recent.len() >= RECENT {
            self.prune_recent(effects);
        }
        let what = if splits { What::Tnt(edges) } else { What::Effect(edges) };
        self.recent.push(Record { at: step.at, what, lo: step.lo, slot: step.slot, work });
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
            && !self.is_gap(last.what)
        {
            self.recent.pop();
        }
    }

    fn is_gap(&self, what: What) -> bool {
        let What::Other(index) = what else { return false };
        matches!(self.others.get(index as usize), Some(Other::Gap { .. }))
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
            stretch.events.reserve_exact(kept.len());
            for record in kept {
                stretch.events.push(self.event(&mut times, effects, record));
            }
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

    /// No other record of the last stretch follows.
    fn end_stretch(&mut self, effects: &Effects) {
        self.prune(effects, self.recent.len(), true);
        let left_out = self.pruned.end();
        if let Some((stretch, _)) = self.stretches.last_mut() {
            stretch.left_out = left_out;
        }
    }

    /// Prunes the first `count` records; `ends`: with the last one of the stretch.
    fn prune(&mut self, effects: &Effects, count: usize, ends: bool) {
        let Self { recent, pruned, .. } = self;
        let last = if ends { count } else { usize::MAX };
        for (record, number) in recent.drain(..count).zip(1..) {
            let (edges, what): (_, fn(EdgeId) -> What) = match record.what {
                What::Effect(edges) => (edges, What::Effect),
                What::Tnt(edges) => (edges, What::Tnt),
                What::Other(_) => {
                    pruned.other(record);
                    continue;
                }
            };
            for (edge, id) in effects.edges(edges).iter().zip(edges.0..) {
                let is_last = number == last && edge.is_last;
                pruned.branch(edge, is_last, Record { what: what(EdgeId(id)), ..record });
                if edge.is_last {
                    break;
                }
            }
        }
    }

    /// What a record of one branch is, with its time.
    #[inline(always)]
    fn event(&self, times: &mut Times<'_>, effects: &Effects, record: &Record) -> TraceEvent {
        let &Record { at, what, lo, slot, work } = record;
        let (slot, work, transfer) = match what {
            What::Effect(id) | What::Tnt(id) => {
                let (edge, transfer) = effects.edge(id);
                let is_behind = edge.is_behind_first && matches!(what, What::Tnt(_));
                (if is_behind { slot.next() } else { slot }, work.wrapping_add(edge.work), transfer)
            }
            What::Other(index) => match &self.others[index as usize] {
                Other::Transfer(transfer) => (slot, work, transfer),
                &Other::Gap { from, to, bytes, cause } => return gap(times, from, to, bytes, at, cause),
            },
        };
        let time = times.between(lo, slot, work);
        TraceEvent::Branch(BranchEvent { time, at, transfer: *transfer })
    }
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
