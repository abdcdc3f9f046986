//! Slices of the window, as they come: which kind of slice a call began in.
//!
//! ```text
//!   |    alone     | between | with children | between |    alone    |
//!       [== a ==]       [= b =]      [== c ==========================]
//! ```
//! A call belongs to the slice that it began in, however long it is: a call of any length begins in each kind
//! of slice with the same probability, while of calls that *end* in the slice that they began in long ones
//! would be too few.  So `a` enters the figures, also if it goes on into slices with children: what their
//! probes added is known by their number.  `c` does not, and its children are known up to the end of its
//! slice.

use model::{Ns, ProbedSlice};

use crate::call_row::SliceKind;
use crate::figures::SliceSpans;

/// The slices so far.
#[derive(Debug, Default)]
pub(super) struct Slices {
    ended: Vec<ProbedSlice>,
    open: Option<(Ns, bool)>,
}

impl Slices {
    pub(super) fn begins(&mut self, start: Ns, children: bool) {
        self.open = Some((start, children));
    }

    pub(super) fn ends(&mut self, end: Ns) {
        if let Some((start, children)) = self.open.take() {
            self.ended.push(ProbedSlice { start, end, children });
        }
    }

    /// In which kind of slice a call began.  Where no slice was told of, all probes were there all the time.
    pub(super) fn kind(&self, start: Ns) -> SliceKind {
        match (self.first(), self.open) {
            (None, _) => SliceKind::WithChildren,
            (_, Some((from, children))) if from <= start => kind(children),
            // When calls are timed first, all probes of the first slice are there.
            (Some((from, children)), _) if start < from => kind(children),
            _ => self.ended_at(start).map_or(SliceKind::Between, |slice| kind(slice.children)),
        }
    }

    /// Of the first slice.
    pub(super) fn first_kind(&self) -> SliceKind {
        self.first().map_or(SliceKind::WithChildren, |(_, children)| kind(children))
    }

    /// When the first slice began, and whether it has children.
    fn first(&self) -> Option<(Ns, bool)> {
        self.ended.first().map(|slice| (slice.start, slice.children)).or(self.open)
    }

    /// When the slice that a call began in had ended, if it has.
    pub(super) fn end(&self, start: Ns) -> Option<Ns> {
        self.ended_at(start).map(|slice| slice.end)
    }

    fn ended_at(&self, time: Ns) -> Option<&ProbedSlice> {
        let after = self.ended.partition_point(|slice| slice.start <= time);
        self.ended.get(after.checked_sub(1)?).filter(|slice| time <= slice.end)
    }

    /// How long the slices of each kind are within a span; `None`: all so far are of one kind.
    pub(super) fn spans(&self, (from, to): (Ns, Ns)) -> Option<SliceSpans> {
        let open = self.open.map(|(start, children)| ProbedSlice { start, end: to, children });
        let all = || self.ended.iter().copied().chain(open);
        let sum = |children| {
            let of_kind = all().filter(|slice| slice.children == children);
            of_kind.map(|slice| slice.end.min(to).since(slice.start.max(from))).fold(0, u64::saturating_add)
        };
        let has = |children| all().any(|slice| slice.children == children);
        let spans =
            SliceSpans { window_ns: to.since(from), alone_ns: sum(false), with_children_ns: sum(true) };
        (has(false) && has(true)).then_some(spans)
    }
}

const fn kind(children: bool) -> SliceKind {
    if children { SliceKind::WithChildren } else { SliceKind::Alone }
}
