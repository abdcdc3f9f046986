//! Landings: an exception, `longjmp` or the like puts control into a function further out.
//!
//! ```text
//!   main parse(1) read parse(2) read throw   -- lands in `parse` --
//! ```
//! The frames above are unwound.  Which `parse`, if several are open, only the *following returns* tell: control
//! returns to where the right one was called from.  So the events after such a landing are held back
//! until one candidate is left, or all candidates have had their chance; then they are acted upon.
//! Control may land again meanwhile: then a candidate goes on in each frame below that it can have landed in.

use std::collections::VecDeque;

use model::{Avma, BranchKind, EndKind, EventTime, FunctionId, Site, SpaceId, Target, TraceEvent, Transfer};

use crate::code_map::CodeMap;
use crate::report::Status;
use crate::session::Session;
use crate::stack::{Frame, FrameKind, NOT_KNOWN};
use crate::thread::Thread;

/// Events that one landing may wait for; then the innermost candidate is taken.
const LOOK_AHEAD_MAX: usize = 1 << 16;

/// Events that the landings of all threads may hold back together.
const HELD_MAX: usize = 1 << 20;

/// Candidates that are looked at: the innermost.
const CANDIDATES_MAX: usize = 1 << 12;

/// What several landings in a row may leave of ways, and of candidates; with more the first landing is decided.
const WAYS_MAX: usize = 8;
const WAYS_CANDIDATES_MAX: usize = 1 << 9;

/// Further landings that the first may wait for; then it is a guess.
const LANDINGS_MAX: u32 = 4;

/// A landing in a function that is open more than once.
pub(crate) struct Undecided {
    now: EventTime,
    /// Where control may be; never empty.
    ways: Vec<Way>,
    /// Even where one candidate is left it may be another frame.
    is_guess: bool,
    /// Landings after the first.
    landings: u32,
    /// Where the signal handlers that were entered after the landing return to.
    interrupted: Vec<Held>,
    /// How the events after the landing left the traced code.
    left: Option<Held>,
    events: Vec<(SpaceId, TraceEvent)>,
}

/// Frames of the stack that control may have landed in, and what came after.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    /// What that frame has tail-called, if it has.
    tail: Option<FunctionId>,
    above: Vec<Called>,
    /// Innermost first; never empty.
    candidates: Vec<Candidate>,
}

/// Ways that will go on alike become one.
fn merge(ways: &mut Vec<Way>) {
    ways.sort_unstable();
    ways.dedup_by(|way, kept| {
        let alike = way.tail == kept.tail && way.above == kept.above;
        if alike {
            kept.candidates.append(&mut way.candidates);
        }
        alike
    });
    for way in ways {
        way.candidates.sort_unstable_by(|a, b| b.cmp(a));
        way.candidates.dedup();
    }
}

/// A call after the landing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Called {
    /// Where it returns to; [`NOT_KNOWN`]: a signal handler.
    ret: Avma,
    /// The function that it is in now.
    function: FunctionId,
    /// It is [`FrameKind::Inner`].
    is_inner: bool,
}

/// Ordered by frame, then by where it went on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// The frame landed in.
    frame: usize,
    /// The frame that control is in now, if so, or that has called what runs.
    current: usize,
    /// A handler has returned: its `rt_sigreturn` leads to where it had interrupted that frame.
    in_restorer: bool,
}

/// As [`crate::kernel::Left`], as far as it matters here.
#[derive(Clone, Copy)]
enum Held {
    Kernel { syscall: bool, from: Site },
    OutOfFilter,
}

impl Held {
    /// The kernel lets the interrupted code go on at this address.
    fn goes_on_at(self, ip: Avma) -> bool {
        match self {
            Self::Kernel { syscall, from } => ip == from.ip || syscall && ip == from.next_ip(),
            Self::OutOfFilter => false,
        }
    }
}

/// What an event says of an undecided landing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Wait,
    /// The candidates that are left are as good as each other.
    Decided,
    /// There are too many ways to look at, or none that is understood; or nothing more will be told.
    NoMore,
}

impl<'a> Thread<'a> {
    /// Control is inside `to.function` without having returned there.  False if the function is not open.
    ///
    /// Decides which frame it is, or holds back what follows until that is known.
    pub(crate) fn landing(&mut self, session: &mut Session<'a>, to: Target) -> bool {
        let candidates: Vec<Candidate> = landings(&self.stack, self.stack.len(), to.function)
            .take(CANDIDATES_MAX)
            .map(|frame| Candidate { frame, current: frame, in_restorer: false })
            .collect();
        if candidates.is_empty() {
            return false;
        }
        self.end_is_guess();
        // Where a frame runs the code of another function, where control returns to may tell too late that it is not that one.
        let is_of_another =
            |c: &Candidate| self.stack.get(c.frame).is_some_and(|f| f.function != to.function);
        let is_guess = candidates.iter().any(is_of_another);
        match candidates.as_slice() {
            [only] => {
                if is_guess {
                    self.guess(session, 0);
                }
                self.may_have_left_all(only.frame + 1);
                self.close_to(session, only.frame + 1, Status::Unwound);
            }
            _ => {
                let undecided = Undecided {
                    now: self.now,
                    ways: vec![Way { tail: None, above: Vec::new(), candidates }],
                    is_guess,
                    landings: 0,
                    interrupted: Vec::new(),
                    left: None,
                    events: Vec::new(),
                };
                self.undecided = Some(Box::new(undecided));
            }
        }
        true
    }

    /// The next event while a landing is undecided.
    pub(crate) fn look_ahead(&mut self, session: &mut Session<'a>, space: SpaceId, event: &TraceEvent) {
        self.work_off(session, VecDeque::from([(space, *event)]));
    }

    /// No more events will come: decides all that is undecided.
    pub(crate) fn decide_rest(&mut self, session: &mut Session<'a>) {
        while let Some(undecided) = self.undecided.take() {
            let held = self.decide(session, *undecided, Verdict::Decided);
            self.work_off(session, held.into());
        }
    }

    /// Acts on events, or holds them back as long as a landing is undecided.
    fn work_off(&mut self, session: &mut Session<'a>, mut queue: VecDeque<(SpaceId, TraceEvent)>) {
        while let Some((space, event)) = queue.pop_front() {
            let Some(mut undecided) = self.undecided.take() else {
                self.step(session, space, &event);
                continue;
            };
            let mut verdict = undecided.look(&session.map, &self.stack, &event);
            undecided.events.push((space, event));
            session.held_events += 1;
            if undecided.events.len() >= LOOK_AHEAD_MAX || session.held_events >= HELD_MAX {
                verdict = Verdict::NoMore;
            }
            match verdict {
                Verdict::Wait => self.undecided = Some(undecided),
                Verdict::Decided | Verdict::NoMore => {
                    for held in self.decide(session, *undecided, verdict).into_iter().rev() {
                        queue.push_front(held);
                    }
                }
            }
        }
    }

    /// Takes the innermost candidate that is left.  Returns the events that were held back.
    fn decide(
        &mut self,
        session: &mut Session<'a>,
        undecided: Undecided,
        verdict: Verdict,
    ) -> Vec<(SpaceId, TraceEvent)> {
        session.held_events = session.held_events.saturating_sub(undecided.events.len());
        let candidates = || undecided.ways.iter().flat_map(|way| &way.candidates);
        if let Some(landed) = candidates().map(|candidate| candidate.frame).max() {
            self.now = undecided.now;
            self.has_chosen = true;
            if undecided.is_guess {
                self.guess(session, 0);
            }
            // Where the function is open more than once an older call of it may have been made from the same place.
            self.may_have_left_all(landed + 1);
            self.close_to(session, landed + 1, Status::Unwound);
            let is_unsettled = !undecided.is_guess && undecided.verdict() == Verdict::Wait;
            if is_unsettled {
                // Those that are open whichever it was go on, unless what comes may be taken for their return.
                let current = candidates().map(|candidate| candidate.current).min();
                let open = current.filter(|_| verdict == Verdict::Decided).map_or(0, |current| current + 1);
                self.guess(session, open);
            }
        }
        undecided.events
    }

    /// Control is where no frame that is open leads: if one had to be chosen before, control has landed in another than it seemed.
    pub(crate) fn contradicts_choice(&mut self, session: &mut Session<'a>) {
        if self.has_chosen {
            self.guess(session, 0);
            self.is_lost = true;
        }
    }

    /// Which of the frames but the outermost `open` control has left is a guess.
    pub(crate) fn guess(&mut self, session: &mut Session<'a>, open: usize) {
        session.limits.undecided_landings += 1;
        self.stack.iter_mut().skip(open).for_each(|frame| frame.undecided = true);
    }
}

/// The frames of the outermost `len` that control can land in, innermost first.
fn landings(stack: &[Frame], len: usize, function: FunctionId) -> impl Iterator<Item = usize> {
    let fits = move |i: &usize| {
        let tail_called = stack.get(i + 1).is_some_and(|above| above.chain != 0);
        let is_own = |f: &Frame| !f.hidden && !f.kind.is_mark() && f.kind != FrameKind::Inner;
        stack.get(*i).is_some_and(|f| f.has_code_of(function) && is_own(f)) && !tail_called
    };
    (0..len).rev().filter(fits)
}

impl Undecided {
    /// Follows one event along each way.
    fn look(&mut self, map: &CodeMap<'_>, stack: &[Frame], event: &TraceEvent) -> Verdict {
        let TraceEvent::Branch(branch) = event else { return Verdict::Decided };
        match branch.transfer {
            Transfer::Branch { kind: BranchKind::Call | BranchKind::IndirectCall, from, to } => {
                let (ret, function) = (from.next_ip(), to.function);
                let is_inner = map.is_inner_call(from.function, to.function, to.at_entry);
                if ret != to.ip {
                    self.push(Called { ret, function, is_inner });
                }
            }
            Transfer::Branch { kind: BranchKind::Return, from, to } => {
                let returns = |way: &Way| way.above.last().is_some_and(|above| above.ret == to.ip);
                if !self.ways.iter().all(returns) {
                    return self.all_go(|way, next| way.ret(stack, from, to, next));
                }
                for way in &mut self.ways {
                    way.above.pop();
                }
            }
            Transfer::Branch { from, to, .. } if from.function == to.function => (),
            Transfer::Branch { kind, from, to } => {
                let indirect = matches!(kind, BranchKind::IndirectJump | BranchKind::Abort);
                return self.all_go(|way, next| way.jump(stack, from, to, indirect, next));
            }
            Transfer::Start { to, .. } => return self.start(stack, to),
            Transfer::End { kind, from, to } => return self.end(stack, kind, from, to),
        }
        Verdict::Wait
    }

    fn push(&mut self, call: Called) {
        self.ways.iter_mut().for_each(|way| way.above.push(call));
    }

    fn candidates(&self) -> usize {
        self.ways.iter().map(|way| way.candidates.len()).sum()
    }

    /// Each way goes on in those that `go` adds, or nowhere; if none of them does, it is not understood.
    fn all_go(&mut self, mut go: impl FnMut(Way, &mut Next)) -> Verdict {
        let mut next = Next::default();
        for way in &self.ways {
            go(way.clone(), &mut next);
        }
        let Next { mut ways, landed, returns, lands, at_bottom } = next;
        self.landings += u32::from(lands || !returns && !landed.is_empty());
        if !returns {
            ways.extend(landed);
        }
        if self.landings > LANDINGS_MAX || ways.is_empty() {
            return Verdict::NoMore;
        }
        if ways.len() > self.ways.len() {
            merge(&mut ways);
        }
        let candidates: usize = ways.iter().map(|way| way.candidates.len()).sum();
        let branches = ways.len() > self.ways.len() || candidates > self.candidates();
        if branches && (ways.len() > WAYS_MAX || candidates > WAYS_CANDIDATES_MAX) {
            return Verdict::NoMore;
        }
        self.ways = ways;
        if at_bottom { Verdict::NoMore } else { self.verdict() }
    }

    /// Whether one frame is left.
    fn verdict(&self) -> Verdict {
        let mut frames = self.ways.iter().flat_map(|way| &way.candidates).map(|candidate| candidate.frame);
        let first = frames.next();
        if frames.all(|frame| Some(frame) == first) { Verdict::Decided } else { Verdict::Wait }
    }

    fn start(&mut self, stack: &[Frame], to: Target) -> Verdict {
        let goes_on = |candidate: &Candidate| {
            let mark = stack.get(candidate.current + 1);
            candidate.in_restorer && mark.is_some_and(|mark| mark.goes_on_at(to.ip))
        };
        let is_sigreturn = |way: &Way| way.above.is_empty() && way.candidates.iter().any(goes_on);
        match self.left.take() {
            Some(Held::Kernel { syscall: true, .. }) if self.ways.iter().any(is_sigreturn) => {
                self.ways.retain(is_sigreturn);
                for way in &mut self.ways {
                    way.candidates.retain(goes_on);
                    way.candidates.iter_mut().for_each(|candidate| candidate.in_restorer = false);
                }
                return self.verdict();
            }
            Some(left @ Held::Kernel { .. }) if !left.goes_on_at(to.ip) => {
                // The interrupted instruction may be the first of a function: a handler's return, no new handler.
                if let Some(i) = self.interrupted.iter().rposition(|held| held.goes_on_at(to.ip)) {
                    self.interrupted.truncate(i);
                } else if to.at_entry {
                    self.interrupted.push(left);
                    self.push(Called { ret: NOT_KNOWN, function: to.function, is_inner: false });
                }
            }
            Some(Held::OutOfFilter) => return self.all_go(|way, next| way.arrive(stack, to, next)),
            _ => (),
        }
        Verdict::Wait
    }

    fn end(&mut self, stack: &[Frame], kind: EndKind, from: Site, to: Option<Avma>) -> Verdict {
        match kind {
            EndKind::Syscall | EndKind::Async(_) => {
                self.left = Some(Held::Kernel { syscall: kind == EndKind::Syscall, from });
                return Verdict::Wait;
            }
            EndKind::Branch(_) | EndKind::FallThrough | EndKind::Skipped => {
                self.left = Some(Held::OutOfFilter)
            }
        }
        match kind {
            EndKind::Branch(BranchKind::Call | BranchKind::IndirectCall) if Some(from.next_ip()) != to => {
                let (ret, function) = (from.next_ip(), FunctionId::UNKNOWN);
                self.push(Called { ret, function, is_inner: false });
            }
            EndKind::Branch(BranchKind::Return) => {
                let ip = to.unwrap_or(NOT_KNOWN);
                return self.all_go(|way, next| way.ret_out(stack, ip, next));
            }
            _ => (),
        }
        Verdict::Wait
    }
}

/// The ways when one more event has happened.
#[derive(Default)]
struct Next {
    ways: Vec<Way>,
    /// Ways in which a return was one more landing: only if it fits nobody.
    landed: Vec<Way>,
    /// There is a way with a call or frame that returns there.
    returns: bool,
    /// There is a way in which a jump is one more landing.
    lands: bool,
    /// The outermost frame has returned: nothing more will be told.
    at_bottom: bool,
}

impl Way {
    /// The function that runs, if it was entered after the landing.
    fn current(&self) -> Option<FunctionId> {
        self.above.last().map(|above| above.function).or(self.tail)
    }

    fn tail_called(&mut self, to: FunctionId) {
        match self.above.last_mut() {
            Some(above) => (above.function, above.is_inner) = (to, false),
            None => self.tail = Some(to),
        }
    }

    /// A return below the landing is what tells the candidates apart.
    fn ret(mut self, stack: &[Frame], from: Site, to: Target, next: &mut Next) {
        if self.returned_above(to.ip, next) {
            next.ways.push(self);
            return;
        }
        // Calls that never return, as to read the program counter, leave their caller's return as it is.
        let is_bare = self.above.is_empty();
        let is_own = |c: &Candidate| stack.get(c.current).is_some_and(|f| f.function == from.function);
        let fits = |c: &Candidate| is_bare || !to.at_entry && is_own(c);
        let left = self.returned_below(stack, to.ip, false, fits);
        if !left.is_empty() {
            self.go_below(stack, left, next);
        } else if to.at_entry {
            // A return that is a jump; a retpoline has first called a place inside itself.
            if self.above.last().is_some_and(|above| above.is_inner) {
                self.above.pop();
            }
            self.tail_called(to.function);
            next.ways.push(self);
        } else {
            self.land_again(stack, to, &mut next.landed);
        }
    }

    /// A return out of the filter.
    fn ret_out(mut self, stack: &[Frame], to: Avma, next: &mut Next) {
        if self.returned_above(to, next) {
            next.ways.push(self);
            return;
        }
        let is_bare = self.above.is_empty();
        let left = self.returned_below(stack, to, true, |_| is_bare);
        self.go_below(stack, left, next);
    }

    /// Control comes in from outside, as in [`Thread::arrive`].
    fn arrive(mut self, stack: &[Frame], to: Target, next: &mut Next) {
        if let Some(i) = self.above.iter().rposition(|above| above.ret == to.ip) {
            next.returns = true;
            self.above.truncate(i);
            return next.ways.push(self);
        }
        if to.at_entry {
            self.above.push(Called { ret: NOT_KNOWN, function: to.function, is_inner: false });
            return next.ways.push(self);
        }
        let Some(function) = self.current() else {
            let frame = |candidate: &Candidate| stack.get(candidate.current);
            let returns = |frame: &Frame| frame.hidden && frame.ret == to.ip;
            let left = self.candidates.iter().filter(|candidate| frame(candidate).is_some_and(returns));
            let left: Vec<Candidate> = left.copied().collect();
            if !left.is_empty() {
                return self.go_below(stack, left, next);
            }
            let is_there = |frame: &Frame| !frame.hidden && frame.function == to.function;
            let stay = self.candidates.iter().filter(|candidate| frame(candidate).is_some_and(is_there));
            let stay: Vec<Candidate> = stay.copied().collect();
            if stay.is_empty() {
                self.land_again(stack, to, &mut next.landed);
            } else {
                self.candidates = stay;
                next.ways.push(self);
            }
            return;
        };
        if function == to.function {
            next.ways.push(self);
        } else {
            self.land_again(stack, to, &mut next.landed);
        }
    }

    fn returned_above(&mut self, to: Avma, next: &mut Next) -> bool {
        // A handler's return, to the restorer, is only its own: what it has called may land in the handler.
        let is_handler = |above: &Called| above.ret == NOT_KNOWN;
        let i = match self.above.split_last() {
            Some((last, rest)) if is_handler(last) => Some(rest.len()),
            _ => self.above.iter().rposition(|above| above.ret == to),
        };
        let Some(i) = i else { return false };
        next.returns |= self.above.get(i).is_some_and(|above| above.ret == to);
        self.above.truncate(i);
        true
    }

    /// The candidates whose frame returns there; `current` is the base of the group that it leaves.
    fn returned_below(
        &self,
        stack: &[Frame],
        to: Avma,
        out_of_filter: bool,
        fits: impl Fn(&Candidate) -> bool,
    ) -> Vec<Candidate> {
        let returned = |candidate: &Candidate| {
            let chain = stack.get(candidate.current)?.chain as usize;
            let current = candidate.current.checked_sub(chain)?;
            let base = stack.get(current)?;
            let fits_any = base.ret == NOT_KNOWN && (base.kind != FrameKind::Filter || out_of_filter);
            (base.ret == to || fits_any).then_some(Candidate { current, ..*candidate })
        };
        self.candidates.iter().filter(|candidate| fits(candidate)).filter_map(returned).collect()
    }

    /// The groups on these frames have returned.
    fn go_below(mut self, stack: &[Frame], mut left: Vec<Candidate>, next: &mut Next) {
        for candidate in &mut left {
            next.returns |= stack.get(candidate.current).is_some_and(|base| base.ret != NOT_KNOWN);
            // Below a handler is the kernel's mark: `rt_sigreturn` is no return, and leads to whoever was interrupted.
            let is_mark = |frame: &Frame| frame.kind.is_mark();
            let below = candidate.current.checked_sub(1);
            let mark = below.filter(|&below| stack.get(below).is_some_and(is_mark));
            let below = mark.map_or(below, |mark| mark.checked_sub(1));
            next.at_bottom |= below.is_none();
            candidate.current = below.unwrap_or(0);
            candidate.in_restorer = mark.is_some();
        }
        left.dedup();
        if !left.is_empty() {
            self.above.clear();
            self.tail = None;
            self.candidates = left;
            next.ways.push(self);
        }
    }

    fn jump(mut self, stack: &[Frame], from: Site, to: Target, indirect: bool, next: &mut Next) {
        if to.at_entry {
            self.tail_called(to.function);
            next.ways.push(self);
        } else if self.current().unwrap_or(from.function) == to.function {
            next.ways.push(self);
        } else {
            let ways = next.ways.len();
            let is_there = |c: &Candidate| stack.get(c.current).is_some_and(|f| f.function == to.function);
            if !indirect && self.above.is_empty() && self.candidates.iter().any(is_there) {
                self.tail = None; // back in the function that tail-called what ran
            }
            if indirect {
                self.clone().land_again(stack, to, &mut next.ways);
            }
            if next.ways.len() == ways {
                next.ways.push(self); // into code that functions share
            } else {
                next.lands = true;
            }
        }
    }

    /// Control is at a place that nobody returns to: inside a function that was entered after the landing, or of a frame
    /// below.
    fn land_again(self, stack: &[Frame], to: Target, on: &mut Vec<Self>) {
        let len = |candidate: &Candidate| candidate.current + usize::from(self.tail.is_none());
        let below = |candidate: &Candidate| {
            let landed = landings(stack, len(candidate), to.function);
            let candidate = *candidate;
            landed.map(move |current| Candidate { current, in_restorer: false, ..candidate })
        };
        let mut candidates: Vec<Candidate> =
            self.candidates.iter().flat_map(below).take(WAYS_CANDIDATES_MAX + 1).collect();
        let is_there = |above: &Called| above.function == to.function && !above.is_inner;
        for (i, _) in self.above.iter().enumerate().rev().filter(|(_, above)| is_there(above)) {
            let above = self.above.iter().take(i + 1).copied().collect();
            on.push(Self { above, ..self.clone() });
        }
        if self.tail == Some(to.function) {
            on.push(Self { above: Vec::new(), ..self.clone() });
        }
        if !candidates.is_empty() {
            candidates.sort_unstable_by(|a, b| b.cmp(a));
            candidates.dedup();
            on.push(Self { candidates, above: Vec::new(), tail: None });
        }
    }
}
