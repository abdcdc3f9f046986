//! The slots of a segment, in parts: what lies between two anchors, and before the first and behind the last.
//!
//! A slot keeps what had passed at its packet.  Its time is worked out when it is asked for, by the rule of its part: most
//! slots are never asked for.

use model::{EventTime, Ns, TscClock};

use super::Slot;
use super::core::Range;
use super::interval::{self, Anchor, Doubt, Interval, Span};
use super::ticks;

/// When the slots of a part were.
pub(super) enum Rule {
    /// Before the first anchor, which is here.
    Before(Ns),
    Between(Interval),
    /// Behind the last anchor; not behind the end of the recording.
    Behind {
        anchor: Anchor,
        cycle: Option<Range>,
        end: Option<Ns>,
    },
    /// Nothing is known but what the part is bound to.
    Unknown,
}

/// The slots from `first` on, up to `end`, which is the next part's first.
struct Part {
    first: Slot,
    end: Slot,
    rule: Rule,
    /// Packets that contradict the rule say so much.
    bound: Option<(Ns, Ns)>,
}

impl Part {
    #[inline]
    fn has(&self, slot: Slot) -> bool {
        self.first <= slot && slot < self.end
    }
}

/// What had passed at a flow packet: small, for each has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// [`Span::most`] since the anchor before it.
    pub(super) most: u64,
    /// [`Span::doubt`], in [`Timeline::doubts`].
    pub(super) doubt: u32,
    /// Instructions, wrapping, when what it stands for happened: its packet was followed to there.
    pub(super) work: u32,
}

/// Room for those of a segment.
#[derive(Debug, Default)]
pub(crate) struct Marks(Vec<Mark>);

pub(super) struct Timeline {
    conversion: TscClock,
    /// See [`super::Clock`].
    unseen_cycles: u64,
    pub(super) marks: Vec<Mark>,
    /// Each different from the one before it.
    doubts: Vec<Doubt>,
    parts: Vec<Part>,
    /// The first slot that is in no part yet.
    open: Slot,
    /// The first part that is an interval whose rule may still change.
    waiting: usize,
}

impl Timeline {
    pub(super) fn new(conversion: TscClock, unseen_cycles: u64, marks: Marks) -> Self {
        let mut marks = marks.0;
        marks.clear();
        Self {
            conversion,
            unseen_cycles,
            marks,
            doubts: vec![Doubt::default()],
            parts: vec![],
            open: Slot(0),
            waiting: 0,
        }
    }

    pub(super) fn into_marks(self) -> Marks {
        Marks(self.marks)
    }

    /// The slot that is next.
    #[inline]
    pub(super) fn next(&self) -> Slot {
        Slot(self.marks.len() as u32)
    }

    /// A slot, at so many cycles at most since the last anchor.
    #[inline]
    pub(super) fn push(&mut self, most: u64, work: u32) -> Slot {
        let slot = self.next();
        self.marks.push(Mark { most, doubt: self.doubts.len() as u32 - 1, work });
        slot
    }

    /// What is not certain of the slots that follow.
    pub(super) fn doubt(&mut self, doubt: Doubt) {
        if self.doubts.last() != Some(&doubt) {
            self.doubts.push(doubt);
        }
    }

    /// What `slot` stands for happened when `work` instructions had passed.
    #[inline]
    pub(super) fn reached(&mut self, slot: Slot, work: u32) {
        if let Some(mark) = self.marks.get_mut(slot.0 as usize) {
            mark.work = work;
        }
    }

    /// All slots that are in no part yet are one.
    pub(super) fn close(&mut self, rule: Rule) {
        let end = self.next();
        let first = std::mem::replace(&mut self.open, end);
        self.parts.push(Part { first, end, rule, bound: None });
    }

    /// The intervals that wait for what is measured behind them.
    pub(super) fn waiting(&mut self) -> impl DoubleEndedIterator<Item = &mut Interval> {
        let parts = self.parts.get_mut(self.waiting..).unwrap_or_default();
        parts.iter_mut().filter_map(|part| match &mut part.rule {
            Rule::Between(interval) => Some(interval),
            _ => None,
        })
    }

    /// All rules are final.
    pub(super) fn settle(&mut self) {
        self.waiting = self.parts.len();
    }

    /// The rules of all slots before `slot` are.
    pub(super) fn is_settled(&self, slot: Slot) -> bool {
        let first = self.parts.get(self.waiting).map(|part| part.first);
        first.is_none_or(|first| first >= slot || first >= self.open)
    }

    /// The slots from `first` on, which a part begins with, were not outside of this, whatever their rules say.
    pub(super) fn bind(&mut self, first: Slot, lo: Ns, hi: Ns) {
        for part in self.parts.iter_mut().rev().take_while(|part| part.first >= first) {
            part.bound = Some((lo, hi));
        }
    }

    fn ns(&self, ticks: u128) -> Ns {
        self.conversion.to_ns(ticks::floor(ticks))
    }

    fn ns_up(&self, ticks: u128) -> Ns {
        self.conversion.to_ns(ticks::ceil(ticks))
    }

    /// The time of a slot; none if there is no such slot, or no part has it.  `near`: the number of a part nearby, and then
    /// that of the slot's own.
    #[inline]
    pub(super) fn time(&self, slot: Slot, near: &mut usize) -> Option<EventTime> {
        let Mark { most, doubt, .. } = *self.marks.get(slot.0 as usize)?;
        let since = Span { most, doubt: *self.doubts.get(doubt as usize)? };
        let mut part = self.parts.get(*near)?;
        if !part.has(slot) {
            *near = self.number(slot, *near);
            part = self.parts.get(*near).filter(|part| part.has(slot))?;
        }
        let time = self.by_rule(&part.rule, since);
        Some(part.bound.map_or(time, |(lo, hi)| EventTime { lo, point: time.point.clamp(lo, hi), hi }))
    }

    /// The number of the part that has the slot, if one has: mostly one that is beside `near`.
    fn number(&self, slot: Slot, near: usize) -> usize {
        let beside = [near + 1, near.wrapping_sub(1)];
        let found = beside.into_iter().find(|&part| self.parts.get(part).is_some_and(|part| part.has(slot)));
        found.unwrap_or_else(|| self.parts.partition_point(|part| part.first <= slot).saturating_sub(1))
    }

    #[inline]
    fn by_rule(&self, rule: &Rule, since: Span) -> EventTime {
        match rule {
            Rule::Before(anchor) => EventTime { lo: Ns(0), point: *anchor, hi: *anchor },
            Rule::Between(interval) => interval.time(since, self.unseen_cycles, self.conversion),
            Rule::Behind { anchor, cycle, end } => {
                let bounds = interval::behind(*anchor, since, *cycle, self.unseen_cycles);
                let lo = self.ns(bounds.lo);
                let hi = bounds.hi.map_or(end.unwrap_or(Ns::MAX).max(lo), |hi| self.ns_up(hi));
                EventTime { lo, point: self.ns(bounds.point).clamp(lo, hi), hi }
            }
            Rule::Unknown => EventTime::default(),
        }
    }
}
