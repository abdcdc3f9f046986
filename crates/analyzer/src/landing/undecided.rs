//! A landing that the events behind it must decide: they are followed along each way that control may have
//! gone.

use model::{Avma, BranchKind, EndKind, EventTime, FunctionId, Site, SpaceId, Target, TraceEvent, Transfer};

use super::way::{Called, Candidate, Next, WAYS_CANDIDATES_MAX, Way, merge};
use crate::code_map::CodeMap;
use crate::stack::{NOT_KNOWN, Stack};

/// What several landings in a row may leave of ways; with more the first landing is decided.
const WAYS_MAX: usize = 8;

/// Further landings that the first may wait for; then it is a guess.
const LANDINGS_MAX: u32 = 4;

/// A landing in a function that is open more than once.
pub(crate) struct Undecided {
    pub(super) now: EventTime,
    /// Where control may be; never empty.
    pub(super) ways: Vec<Way>,
    /// Even where one candidate is left it may be another frame.
    pub(super) is_guess: bool,
    /// Landings after the first.
    landings: u32,
    /// Where the signal handlers that were entered after the landing return to.
    interrupted: Vec<Held>,
    /// How the events after the landing left the traced code.
    left: Option<Held>,
    pub(super) events: Vec<(SpaceId, TraceEvent)>,
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
pub(super) enum Verdict {
    Wait,
    /// The candidates that are left are as good as each other.
    Decided,
    /// There are too many ways to look at, or none that is understood; or nothing more will be told.
    NoMore,
}

impl Undecided {
    /// Control is, since `now`, in one of `candidates`; `is_guess`: or in none of them.
    pub(super) fn new(now: EventTime, candidates: Vec<Candidate>, is_guess: bool) -> Self {
        let ways = vec![Way { tail: None, above: Vec::new(), candidates }];
        Self { now, ways, is_guess, landings: 0, interrupted: Vec::new(), left: None, events: Vec::new() }
    }

    /// Follows one event along each way.
    pub(super) fn look(&mut self, map: &CodeMap<'_>, stack: &Stack, event: &TraceEvent) -> Verdict {
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
    pub(super) fn verdict(&self) -> Verdict {
        let mut frames = self.ways.iter().flat_map(|way| &way.candidates).map(|candidate| candidate.frame);
        let first = frames.next();
        if frames.all(|frame| Some(frame) == first) { Verdict::Decided } else { Verdict::Wait }
    }

    fn start(&mut self, stack: &Stack, to: Target) -> Verdict {
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
                // The interrupted instruction may be the first of a function: a handler's return, no new
                // handler.
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

    fn end(&mut self, stack: &Stack, kind: EndKind, from: Site, to: Option<Avma>) -> Verdict {
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
