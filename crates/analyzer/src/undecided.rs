//! A landing in a function that is open more than once: hypotheses of where control is.
//!
//! ```text
//!   stack  main f(1) f(2) f(3) throw        control lands in `f`
//!
//!   floor                call g   ret to f   ret to main
//!   main f(1)            g        -          it fits: f(1) has returned
//!   main f(1) f(2)       g        -          f(2) was called elsewhere: no
//!   main f(1) f(2) f(3)  g        -          no
//! ```
//! The rules are those of the stack. Hypotheses with the same frames above their floors are a group: as long
//! as the rules look at nothing below, they are asked once for all of it.

mod view;

use std::sync::Arc;

use model::{EventTime, SpaceId, TraceEvent, Transfer};

use crate::control::Control;
use crate::frames::{Landings, Otherwise};
use crate::held::Held;
use crate::regions::AtMark;
use crate::session::Session;
use crate::stack::{Frame, Stack};
use crate::transfers::Transfers;
use view::{Fit, Floor, Group, HypothesisEnd, View};

/// Groups that several landings in a row may leave; with more the first landing is decided.
const GROUPS_MAX: usize = 32;

/// Hypotheses that they may leave.
const FLOORS_MAX: usize = 1 << 9;

/// Further landings that the first may wait for; then it is a guess.
const LANDINGS_MAX: u32 = 4;

/// Frames of floors that may be looked at for one landing.
const LOOKED_AT_MAX: usize = 1 << 26;

/// A landing that the events after it must decide.
pub(crate) struct Undecided {
    /// When control landed.
    pub(crate) now: EventTime,
    /// Where control may be; never empty.
    groups: Vec<Group>,
    /// See [`Landings::by_return`].
    pub(crate) by_return: bool,
    /// Where control may be if no candidate is right.
    pub(crate) otherwise: Otherwise,
    /// Landings after the first.
    landings: u32,
    looked_at: usize,
    /// Room for the frames that an event enters.
    room: Vec<Frame>,
    /// Regions that begin or end where control has landed, by what.
    pub(crate) marks: Option<(Arc<[AtMark]>, Transfer)>,
    /// The events after the landing.
    pub(crate) events: Vec<Held>,
}

/// What an event says of an undecided landing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LandingVerdict {
    Wait,
    /// The candidates that are left are as good as each other.
    Decided,
    /// There are too many hypotheses to look at, or none that fits; or nothing more will be told.
    NoMore,
}

/// What came of hypotheses that were asked one by one.
#[derive(Default)]
struct Next {
    groups: Vec<Group>,
    /// Frames of floors that were looked at.
    looked_at: usize,
    /// Nothing more will be told.
    verdict: Option<LandingVerdict>,
    /// See [`Undecided::room`].
    room: Vec<Frame>,
}

impl Next {
    fn add(&mut self, end: &HypothesisEnd<'_, '_>) {
        self.looked_at += end.depth();
        match self.groups.iter_mut().find(|group| end.is_in(group)) {
            Some(group) => group.floors.push(end.floor()),
            None => self.groups.push(end.group()),
        }
    }

    fn is_too_large(&self) -> bool {
        self.groups.len() > GROUPS_MAX || floors(&self.groups).count() > FLOORS_MAX
    }
}

fn floors(groups: &[Group]) -> impl Iterator<Item = &Floor> {
    groups.iter().flat_map(|group| &group.floors)
}

impl Undecided {
    /// Control is, since `now`, in one of these frames.
    pub(crate) fn new(now: EventTime, control: Control, landings: Landings) -> Self {
        let Landings { frames, by_return, otherwise } = landings;
        let groups = vec![Group::landed(frames, control)];
        let (room, events) = (Vec::new(), Vec::new());
        Self { now, groups, by_return, otherwise, landings: 0, looked_at: 0, room, marks: None, events }
    }

    /// The innermost candidate that is left.
    pub(crate) fn innermost(&self) -> Option<usize> {
        floors(&self.groups).map(|floor| floor.landed).max()
    }

    /// Number of frames that are open whichever it was.
    pub(crate) fn open(&self) -> usize {
        floors(&self.groups).map(|floor| floor.kept).min().unwrap_or(0)
    }

    /// Whether one candidate is left.
    pub(crate) fn verdict(&self) -> LandingVerdict {
        let mut landed = floors(&self.groups).map(|floor| floor.landed);
        let first = landed.next();
        if landed.all(|landed| Some(landed) == first) {
            LandingVerdict::Decided
        } else {
            LandingVerdict::Wait
        }
    }

    /// Follows one event in all hypotheses.
    pub(crate) fn look(
        &mut self,
        session: &mut Session<'_>,
        stack: &Stack,
        space: SpaceId,
        event: &TraceEvent,
    ) -> LandingVerdict {
        let branch = match event {
            TraceEvent::Branch(branch) => branch,
            TraceEvent::Gap(gap) => {
                let passes = |group: &Group| session.passes_gap(&group.control, gap);
                return if self.groups.iter().all(passes) {
                    LandingVerdict::Wait
                } else {
                    LandingVerdict::Decided
                };
            }
        };
        let size = (self.groups.len(), floors(&self.groups).count());
        let mut next = Next { room: std::mem::take(&mut self.room), ..Next::default() };
        for group in &mut self.groups {
            group.control.space = space;
            follow(session, stack, group, &branch.transfer, &mut next);
        }
        self.room = std::mem::take(&mut next.room);
        let fits = self.groups.iter().chain(&next.groups).filter_map(|group| group.fit);
        let Some(best) = fits.max() else { return LandingVerdict::NoMore };
        let stays = |group: &Group| group.fit.is_some_and(|fit| fit >= best.least());
        next.groups.retain(stays);
        next.groups.iter_mut().for_each(Group::sort);
        self.landings += u32::from(next.groups.iter().any(|group| group.fit == Some(Fit::Lands)));
        self.looked_at += next.looked_at;
        let grows = next.groups.len() > size.0 || floors(&next.groups).count() > size.1;
        let is_too_much = self.landings > LANDINGS_MAX || self.looked_at > LOOKED_AT_MAX;
        if is_too_much || grows && next.is_too_large() {
            return LandingVerdict::NoMore;
        }
        self.groups.append(&mut next.groups);
        self.groups.retain(stays);
        next.verdict.unwrap_or_else(|| self.verdict())
    }
}

/// Follows one event in the hypotheses of a group: in all at once, or in each if what it means depends on the
/// floor.
fn follow(session: &mut Session<'_>, stack: &Stack, group: &mut Group, transfer: &Transfer, next: &mut Next) {
    let Some(first) = group.floors.first() else { return };
    let mut view = View::new(stack, group, first.kept, transfer, std::mem::take(&mut next.room));
    view.transfer(session, transfer);
    let (is_for_all, verdict) = (view.looked_at() == 0, view.verdict());
    let (len, mut own) = view.finish();
    if is_for_all {
        next.verdict = next.verdict.or(verdict);
        next.room = group.go_on(len, own);
        return;
    }
    own.above.clear();
    next.room = own.above;
    // The frames that are kept tell all but which one control has landed in.
    for floors in group.floors.chunk_by(|a, b| a.kept == b.kept) {
        let Some(first) = floors.first() else { continue };
        let mut view = View::new(stack, group, first.kept, transfer, Vec::new());
        view.transfer(session, transfer);
        next.looked_at += view.looked_at();
        next.verdict = next.verdict.or(view.verdict());
        for floor in floors {
            view.ends(floor.landed, |end| next.add(end));
        }
    }
    group.fit = None;
}
