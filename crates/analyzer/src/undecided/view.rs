//! What the rules see of a hypothesis: the frames of its floor, those that its group has above, and its own.

use std::cell::Cell;

use model::{Avma, EventTime, FunctionId, Target, Transfer};

use super::LandingVerdict;
use crate::control::Control;
use crate::frames::{Frames, Landings};
use crate::session::Session;
use crate::stack::{Frame, FrameKind, Stack};
use crate::status::Status;
use crate::thread_clock::ThreadTime;

/// How well an event fits a hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// It is one more landing.
    Lands,
    /// Nothing speaks against it.
    GoesOn,
    /// A call returns where it must.
    Returns,
    /// A handler returns to where it came.
    Resumes,
}

impl Fit {
    /// The weakest fit that stays possible beside a hypothesis that fits as `self` does.
    pub(super) fn least(self) -> Self {
        match self {
            Self::Lands | Self::GoesOn => Self::Lands,
            Self::Returns => Self::GoesOn,
            Self::Resumes => Self::Resumes,
        }
    }
}

/// A hypothesis: control has landed in frame `landed`, and the outermost `kept` frames are open now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Floor {
    pub(super) kept: usize,
    pub(super) landed: usize,
}

/// Hypotheses with the same frames above their floors.
pub(super) struct Group {
    /// Never empty, [sorted](Self::sort).
    pub(super) floors: Vec<Floor>,
    /// The last frame of each floor is neither hidden nor a mark; or that of none is known to be so.
    is_plain: bool,
    /// What was entered after the landing.
    above: Vec<Frame>,
    /// Functions that frames have jumped into since; 0: the last frame of the floor, 1: the first above.
    runs: Vec<(usize, FunctionId)>,
    pub(super) control: Control,
    /// Of the last event; `None`: it does not fit, or they have gone to other groups.
    pub(super) fit: Option<Fit>,
}

impl Group {
    pub(super) fn landed(candidates: Vec<usize>, control: Control) -> Self {
        let floors = candidates.into_iter().map(|landed| Floor { landed, kept: landed + 1 }).collect();
        Self { floors, is_plain: true, above: Vec::new(), runs: Vec::new(), control, fit: None }
    }

    /// Number of frames above.
    pub(super) fn len(&self) -> usize {
        self.above.len()
    }

    /// Those that keep most first, each once.
    pub(super) fn sort(&mut self) {
        self.floors.sort_unstable_by(|a, b| b.cmp(a));
        self.floors.dedup();
    }

    /// An event has left `len` of the frames above, and has changed the rest.  Returns the room of what it
    /// has entered.
    pub(super) fn go_on(&mut self, len: usize, changed: Changed) -> Vec<Frame> {
        let Changed { mut above, runs, control, fit } = changed;
        self.above.truncate(len);
        self.above.append(&mut above);
        (self.runs, self.control, self.fit) = (runs, control, fit);
        above
    }
}

/// What an event has changed above a floor.
pub(super) struct Changed {
    /// What it has entered.
    pub(super) above: Vec<Frame>,
    runs: Vec<(usize, FunctionId)>,
    control: Control,
    fit: Option<Fit>,
}

/// A hypothesis while it follows an event.
pub(super) struct View<'v> {
    stack: &'v Stack,
    /// The number of frames of the stack that are its floor.
    kept: usize,
    is_plain: bool,
    /// What is left of the frames that the group has above.
    shared: &'v [Frame],
    now: Changed,
    /// Where the event leads.
    to: Option<Avma>,
    /// Frames in which it may be a landing.
    landings: Vec<usize>,
    verdict: Option<LandingVerdict>,
    /// Frames of the floor that were looked at.
    looked_at: Cell<usize>,
}

impl<'v> View<'v> {
    /// Before an event; `room` is empty.
    pub(super) fn new(
        stack: &'v Stack,
        group: &'v Group,
        kept: usize,
        transfer: &Transfer,
        room: Vec<Frame>,
    ) -> Self {
        let to = match transfer {
            Transfer::Branch { to, .. } | Transfer::Start { to, .. } => Some(to.ip),
            Transfer::End { to, .. } => *to,
        };
        let (runs, control) = (group.runs.clone(), group.control.clone());
        Self {
            stack,
            kept,
            is_plain: group.is_plain,
            shared: &group.above,
            now: Changed { above: room, runs, control, fit: Some(Fit::GoesOn) },
            to,
            landings: Vec::new(),
            verdict: None,
            looked_at: Cell::new(0),
        }
    }

    pub(super) fn looked_at(&self) -> usize {
        self.looked_at.get()
    }

    /// If nothing more will be told.
    pub(super) fn verdict(&self) -> Option<LandingVerdict> {
        self.verdict.filter(|_| self.now.fit.is_some())
    }

    pub(super) fn finish(self) -> (usize, Changed) {
        (self.shared.len(), self.now)
    }

    /// Gives where the hypothesis is now: in more than one place if it has landed again.
    pub(super) fn ends(&self, landed: usize, mut add: impl FnMut(&HypothesisEnd<'_, 'v>)) {
        let Some(fit) = self.now.fit else { return };
        let mut end =
            |len: usize, fit| add(&HypothesisEnd { view: self, landed, kept: len.min(self.kept), len, fit });
        match self.landings.as_slice() {
            [] => end(self.depth(), fit),
            landings => landings.iter().for_each(|frame| end(frame + 1, Fit::Lands)),
        }
    }

    /// Drops the hypothesis: it is wrong.
    fn rule_out(&mut self) {
        self.now.fit = None;
    }
}

/// A place where a hypothesis is after an event.
pub(super) struct HypothesisEnd<'e, 'v> {
    view: &'e View<'v>,
    landed: usize,
    kept: usize,
    /// Number of its frames.
    len: usize,
    fit: Fit,
}

impl HypothesisEnd<'_, '_> {
    pub(super) fn floor(&self) -> Floor {
        Floor { landed: self.landed, kept: self.kept }
    }

    /// Number of frames above the floor.
    pub(super) fn depth(&self) -> usize {
        self.len - self.kept
    }

    /// The rules cannot tell it apart from those of the group but by the floor.
    pub(super) fn is_in(&self, group: &Group) -> bool {
        let control = &self.view.now.control;
        (Some(self.fit), self.is_plain(), self.depth(), control.away.is_some())
            == (group.fit, group.is_plain, group.len(), group.control.away.is_some())
            && self.runs().eq(&group.runs)
            && self.above().zip(&group.above).all(|(a, b)| a.is_like(b))
    }

    pub(super) fn group(&self) -> Group {
        Group {
            floors: vec![self.floor()],
            is_plain: self.is_plain(),
            above: self.above().copied().collect(),
            runs: self.runs().copied().collect(),
            control: self.view.now.control.clone(),
            fit: Some(self.fit),
        }
    }

    fn is_plain(&self) -> bool {
        let last = self.kept.checked_sub(1).and_then(|i| self.view.stack.get(i));
        last.is_some_and(Frame::is_plain)
    }

    fn above(&self) -> impl Iterator<Item = &Frame> {
        self.view.shared.iter().chain(&self.view.now.above).take(self.depth())
    }

    fn runs(&self) -> impl Iterator<Item = &(usize, FunctionId)> {
        let Self { view, kept, len, .. } = self;
        view.now.runs.iter().filter(move |(frame, _)| *kept == view.kept && frame + kept <= *len)
    }
}

impl<'a> Frames<'a> for View<'_> {
    fn control(&self) -> &Control {
        &self.now.control
    }

    fn control_mut(&mut self) -> &mut Control {
        &mut self.now.control
    }

    fn depth(&self) -> usize {
        self.kept + self.shared.len() + self.now.above.len()
    }

    fn get(&self, i: usize) -> Option<&Frame> {
        let Some(above) = i.checked_sub(self.kept) else {
            self.looked_at.set(self.looked_at.get() + 1);
            return self.stack.get(i);
        };
        match above.checked_sub(self.shared.len()) {
            None => self.shared.get(above),
            Some(own) => self.now.above.get(own),
        }
    }

    fn has_code_of(&self, i: usize, function: FunctionId) -> bool {
        let above = (i + 1).checked_sub(self.kept);
        let is_known = || i < self.kept && self.stack.has_code_of(i, function);
        self.get(i).is_some_and(|frame| frame.function == function)
            || above.is_some_and(|above| self.now.runs.contains(&(above, function)))
            || is_known()
    }

    /// The last frame of the floor need not be looked at for that.
    fn is_plain(&self, i: usize) -> bool {
        i + 1 == self.kept && self.is_plain || self.get(i).is_some_and(Frame::is_plain)
    }

    fn time(&self) -> ThreadTime {
        Default::default()
    }

    fn frame(&self, function: FunctionId, kind: FrameKind) -> Frame {
        Frame::new(function, kind, self.now.control.space, self.time())
    }

    fn push(&mut self, session: &mut Session<'a>, mut frame: Frame, _entry: bool) {
        frame.code = session.map.kind_of_entered(frame.function);
        self.now.above.push(frame);
    }

    fn close(&mut self, _session: &mut Session<'a>, status: Status, by_jump: bool) {
        let Some(&frame) = self.top() else { return };
        let is_of_floor = self.depth() == self.kept;
        let returns = !by_jump && frame.chain == 0 && frame.ret.is_known() && frame.ret.get() == self.to;
        let resumes = || self.to.is_some_and(|to| frame.goes_on_at(to));
        let fit = match status {
            Status::Complete if resumes() => Fit::Resumes,
            Status::Complete if returns => Fit::Returns,
            Status::Unwound if is_of_floor => Fit::Lands,
            _ => Fit::GoesOn,
        };
        let best = |known: Fit| if known.min(fit) == Fit::Lands { Fit::Lands } else { known.max(fit) };
        self.now.fit = self.now.fit.map(best);
        self.now.control.away = None;
        if self.now.above.pop().is_none() {
            match self.shared.split_last() {
                Some((_, rest)) => self.shared = rest,
                None => (self.kept, self.is_plain) = (self.kept - 1, false),
            }
        }
        let len = self.depth() + 1 - self.kept;
        self.now.runs.retain(|(frame, _)| *frame < len && !is_of_floor);
    }

    fn run_code_of(&mut self, function: FunctionId, _may_return: bool) {
        if let Some(top) = self.depth().checked_sub(1)
            && !self.has_code_of(top, function)
        {
            self.now.runs.push((self.depth() - self.kept, function));
        }
    }

    fn land_in(&mut self, _session: &mut Session<'a>, landings: Landings) {
        self.landings = landings.frames;
        self.looked_at.set(self.looked_at.get() + 1); // each hypothesis lands in frames of its own
    }

    fn appears(&mut self, _session: &mut Session<'a>, _to: Target, _may_go_on: bool) {
        self.rule_out();
    }

    fn returned_to_unknown(&mut self, _session: &mut Session<'a>, _to: Target) {}

    /// A frame that was found running may return anywhere. One that code out of sight entered returns there,
    /// or to the call that went out of sight and ended with a jump to the frame's entry. After the outermost
    /// frame nothing more is told.
    fn returns_to(&mut self, _session: &mut Session<'a>, to: Avma, in_sight: bool) {
        let Some(i) = self.top_base() else { return };
        let Some(base) = self.get(i).copied() else { return };
        let is_jumped_to = || {
            let below = i.checked_sub(1).and_then(|below| self.get(below));
            below.is_some_and(|below| below.hidden && below.ret.is(to))
        };
        let may_return = match base.ret.is_known() {
            true => base.ret.is(to),
            false => base.kind != FrameKind::Filter || !in_sight || is_jumped_to(),
        };
        if !may_return {
            self.rule_out();
        } else if i == 0 {
            self.verdict = Some(LandingVerdict::NoMore);
        }
    }

    fn execute(&mut self, _session: &mut Session<'a>, _since: EventTime, _to: Target) {
        self.verdict = Some(LandingVerdict::Decided);
    }
}
