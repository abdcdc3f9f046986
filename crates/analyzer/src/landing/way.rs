//! A way that control may have gone since a landing: in which frames of the stack it can be, and what was
//! called above them.

use model::{Avma, FunctionId, Site, Target};

use crate::stack::{Frame, FrameKind, NOT_KNOWN, Stack};

/// Candidates that several landings in a row may leave; with more the first landing is decided.
pub(super) const WAYS_CANDIDATES_MAX: usize = 1 << 9;

/// Frames of the stack that control may have landed in, and what came after.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Way {
    /// What that frame has tail-called, if it has.
    pub(super) tail: Option<FunctionId>,
    pub(super) above: Vec<Called>,
    /// Innermost first; never empty.
    pub(super) candidates: Vec<Candidate>,
}

/// Ways that will go on alike become one.
pub(super) fn merge(ways: &mut Vec<Way>) {
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
pub(super) struct Called {
    /// Where it returns to; [`NOT_KNOWN`]: a signal handler.
    pub(super) ret: Avma,
    /// The function that it is in now.
    pub(super) function: FunctionId,
    /// It is [`FrameKind::Inner`].
    pub(super) is_inner: bool,
}

/// Ordered by frame, then by where it went on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    /// The frame landed in.
    pub(super) frame: usize,
    /// The frame that control is in now, if so, or that has called what runs.
    pub(super) current: usize,
    /// A handler has returned: its `rt_sigreturn` leads to where it had interrupted that frame.
    pub(super) in_restorer: bool,
}

/// The ways when one more event has happened.
#[derive(Default)]
pub(super) struct Next {
    pub(super) ways: Vec<Way>,
    /// Ways in which a return was one more landing: only if it fits nobody.
    pub(super) landed: Vec<Way>,
    /// There is a way with a call or frame that returns there.
    pub(super) returns: bool,
    /// There is a way in which a jump is one more landing.
    pub(super) lands: bool,
    /// The outermost frame has returned: nothing more will be told.
    pub(super) at_bottom: bool,
}

/// The frames of the outermost `len` that control can land in, innermost first.
pub(super) fn landings(stack: &Stack, len: usize, function: FunctionId) -> impl Iterator<Item = usize> {
    let fits = move |i: &usize| {
        let tail_called = stack.get(i + 1).is_some_and(|above| above.chain != 0);
        let is_own = |f: &Frame| !f.hidden && !f.kind.is_mark() && f.kind != FrameKind::Inner;
        stack.has_code_of(*i, function) && stack.get(*i).is_some_and(is_own) && !tail_called
    };
    (0..len).rev().filter(fits)
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
    pub(super) fn ret(mut self, stack: &Stack, from: Site, to: Target, next: &mut Next) {
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
    pub(super) fn ret_out(mut self, stack: &Stack, to: Avma, next: &mut Next) {
        if self.returned_above(to, next) {
            next.ways.push(self);
            return;
        }
        let is_bare = self.above.is_empty();
        let left = self.returned_below(stack, to, true, |_| is_bare);
        self.go_below(stack, left, next);
    }

    /// Control comes in from outside, as in [`Thread::arrive`].
    pub(super) fn arrive(mut self, stack: &Stack, to: Target, next: &mut Next) {
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
        stack: &Stack,
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
    fn go_below(mut self, stack: &Stack, mut left: Vec<Candidate>, next: &mut Next) {
        for candidate in &mut left {
            next.returns |= stack.get(candidate.current).is_some_and(|base| base.ret != NOT_KNOWN);
            // Below a handler is the kernel's mark: `rt_sigreturn` is no return, and leads to whoever was
            // interrupted.
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

    pub(super) fn jump(mut self, stack: &Stack, from: Site, to: Target, indirect: bool, next: &mut Next) {
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

    /// Control is at a place that nobody returns to: inside a function that was entered after the landing, or
    /// of a frame below.
    fn land_again(self, stack: &Stack, to: Target, on: &mut Vec<Self>) {
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
