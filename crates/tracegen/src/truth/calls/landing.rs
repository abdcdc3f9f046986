//! Control that goes to where no frame returns to: unwinding.

use model::Avma;

use super::code::FunctionIndex;
use super::rows::{Entered, Status};
use super::stack::Stack;
use crate::truth::{Event, Events, Kind};

impl Stack<'_> {
    /// Control landed inside a function further out: all frames above it are unwound.  False if that
    /// function has no frame.
    pub(super) fn landing(&mut self, to: Avma, ahead: &Events<'_>) -> bool {
        if self.code.is_pad(to) && !self.may_be_left_unseen() {
            let Some(frame) = self.caught_in(to) else { return false };
            self.end_is_guess();
            self.close_to(frame + 1, Status::Unwound);
            return true;
        }
        let function = self.code.function(to);
        let candidates: Vec<usize> = self.landings(self.frames.len(), function).collect();
        if candidates.is_empty() {
            return false;
        }
        self.end_is_guess();
        let is_of_another = |i: &usize| self.frames[*i].function != function;
        let is_guess = candidates.iter().any(is_of_another);
        // It may be a call that is older than the truth, too.
        self.has_chosen |= candidates.len() > 1 || !self.base_known;
        let fits = if candidates.len() > 1 { self.fit(candidates, ahead) } else { candidates };
        if is_guess {
            self.doubt_from(0);
        }
        // What jumped into the middle of a function may have landed in a call of it that is older than the
        // truth.
        let is_base_found = self.frames[0].entered == Entered::Found;
        let left = &mut self.frames[fits[0] + 1..];
        if is_base_found && left.iter().any(|frame| !frame.runs.is_empty()) {
            left.iter_mut().for_each(|frame| frame.unsure = true);
        }
        self.close_to(fits[0] + 1, Status::Unwound);
        if fits.len() > 1 {
            self.doubt_from(0);
        }
        true
    }

    /// Code out of sight has entered the group on top, and the call that went out of sight last does not wait
    /// at `to`, in sight.
    pub(super) fn top_cannot_return_to(&self, to: Avma) -> bool {
        let base = self.group_base(self.frames.len().saturating_sub(1));
        let is_entered_unseen = self.frames.get(base).is_some_and(|f| f.entered == Entered::Filter);
        let below = base.checked_sub(1).and_then(|below| self.frames.get(below));
        is_entered_unseen && below.is_some_and(|f| f.hidden && !f.returns_to(to))
    }

    /// What code out of sight has called returns to a place in sight where the call that went out of sight
    /// last does not wait. An older call of the function does, which such code jumped to: all frames above
    /// that are unwound. If there are several, what comes after tells. False if none is open.
    pub(super) fn leave_for_older_call(&mut self, event: &Event, ahead: &Events<'_>) -> bool {
        let from = self.code.function(event.from);
        let callers: Vec<usize> = self.callers_of_older(self.frames.len(), from, event.to).collect();
        if callers.is_empty() {
            return false;
        }
        self.end_is_guess();
        self.has_chosen |= callers.len() > 1;
        let fits = if callers.len() > 1 { self.fit(callers, ahead) } else { callers };
        let called = self.group_end(fits[0] + 1);
        if fits.len() > 1 {
            self.doubt_from(0);
        }
        let end = self.group_end(called);
        self.doubt_from(end);
        self.close_to(end, Status::Unwound);
        true
    }

    /// The frames of the outermost `len`, innermost first, that wait at `to` for a call that went out of
    /// sight and has jumped to `function`, in sight.
    fn callers_of_older(&self, len: usize, function: FunctionIndex, to: Avma) -> impl Iterator<Item = usize> {
        let waits = move |&i: &usize| self.frames[i].hidden && self.frames[i].returns_to(to);
        let is_called = move |&i: &usize| {
            let called = self.frames[i + 1].entered == Entered::Filter;
            called
                && self.frames[i + 1..self.group_end(i + 1)].iter().any(|frame| frame.has_code_of(function))
        };
        let caller = |i: usize| self.group_base(i).checked_sub(1);
        let is_in_sight = |&i: &usize| !self.frames[i].hidden && !self.frames[i].signal_mark;
        let jumpers = (1..len).rev().map(|i| i - 1).filter(waits).filter(is_called);
        jumpers.filter_map(caller).filter(is_in_sight)
    }

    /// Code that is not seen has called some frame: it may have caught an exception that has ended that.
    fn may_be_left_unseen(&self) -> bool {
        let mut up_to_seen = self.frames.iter().rev().skip_while(|frame| frame.hidden);
        up_to_seen.any(|frame| frame.hidden || frame.entered == Entered::Filter)
    }

    /// The innermost frame that has a landing pad there for its last call.
    fn caught_in(&self, pad: Avma) -> Option<usize> {
        let made_call = |&i: &usize| {
            let called = self.frames.get(i + 1).filter(|called| !called.tail && !called.signal_mark);
            let returns_to = called.and_then(|called| called.returns_to);
            returns_to.is_some_and(|ret| self.code.has_pad(ret, pad))
        };
        (0..self.frames.len()).rev().find(made_call)
    }

    /// The frames of the outermost `len` that control can land in, innermost first.
    fn landings(&self, len: usize, function: FunctionIndex) -> impl Iterator<Item = usize> {
        let lands = move |&i: &usize| {
            let frame = &self.frames[i];
            let jumped_away = self.frames.get(i + 1).is_some_and(|next| next.tail);
            frame.has_code_of(function) && !frame.hidden && !frame.signal_mark && !frame.inner && !jumped_away
        };
        (0..len).rev().filter(lands)
    }

    /// Those of the frames that what comes after this event fits, innermost first.
    fn fit(&mut self, candidates: Vec<usize>, ahead: &Events<'_>) -> Vec<usize> {
        // Longer calls than this after a landing are not looked through.
        const EVENTS_AHEAD: usize = 2_000_000;
        const WAYS_MAX: usize = 1 << 10;
        let start = |&landed: &usize| Way::at(landed, landed);
        // After this number of further landings nothing tells of the first.
        const LANDINGS_MAX: usize = 4;
        let mut landings = 0;
        let mut ways: Vec<Way> = candidates.iter().map(start).collect();
        for event in ahead.clone().take(EVENTS_AHEAD) {
            if event.kind == Kind::Enter && self.keep_interrupted(&mut ways, &event) {
                if ways.iter().all(|way| way.landed == ways[0].landed) {
                    break;
                }
                continue;
            }
            if self.all_alike(&mut ways, &event) {
                continue;
            }
            let mut next = Next::default();
            for way in &ways {
                self.follow(way.clone(), &event, &mut next);
            }
            let Next { ways: mut next, landed, returns, lands, at_bottom } = next;
            landings += usize::from(lands || !returns && !landed.is_empty());
            if landings > LANDINGS_MAX {
                break;
            }
            if !returns {
                next.extend(landed);
            }
            if next.len() > ways.len() {
                next.sort_unstable();
                next.dedup();
            }
            if next.is_empty() || next.len() > WAYS_MAX {
                break;
            }
            ways = next;
            if at_bottom || ways.iter().all(|way| way.landed == ways[0].landed) {
                break;
            }
        }
        let mut landed: Vec<usize> = ways.iter().map(|way| way.landed).collect();
        landed.sort_unstable_by(|a, b| b.cmp(a));
        landed.dedup();
        landed
    }

    /// User code goes on. If a handler has returned and had come there in some ways, it is one of these.
    fn keep_interrupted(&self, ways: &mut Vec<Way>, event: &Event) -> bool {
        let came_there = |way: &Way| match way.in_restorer {
            Some(Handler::OfStack) if way.calls.is_empty() => {
                let mark = self.frames.get(way.frame + 1);
                mark.is_some_and(|mark| mark.goes_on_at == Some(event.to))
            }
            Some(Handler::EnteredSince) => !event.is_signal(),
            _ => false,
        };
        let is_sigreturn = ways.iter().any(came_there);
        if is_sigreturn {
            ways.retain(came_there);
            ways.iter_mut().for_each(|way| way.in_restorer = None);
        }
        is_sigreturn
    }

    /// The event is the same for all ways: a call, its return, or nothing that matters here.
    fn all_alike(&mut self, ways: &mut [Way], event: &Event) -> bool {
        match event.kind {
            Kind::Call | Kind::IndirectCall => {
                let after = self.code.after_call(event.from);
                let function = match event.left_filter() {
                    true => FunctionIndex::UNKNOWN, // nothing is seen of it
                    false => self.code.function(event.to),
                };
                let inner = self.code.is_inner_call(event.from, function, event.to);
                let call = Called { returns_to: Some(after), function, inner, hidden: event.left_filter() };
                if after != event.to {
                    ways.iter_mut().for_each(|way| way.calls.push(call));
                }
                true
            }
            Kind::Return => {
                let returns = |way: &Way| way.calls.last().is_some_and(|c| c.returns_to == Some(event.to));
                let alike = ways.iter().all(returns);
                if alike {
                    ways.iter_mut().for_each(|way| way.keep_calls(way.calls.len() - 1));
                }
                alike
            }
            Kind::Enter => !event.is_signal(),
            Kind::FilterIn | Kind::Jump | Kind::ConditionalJump | Kind::IndirectJump => false,
            _ => true,
        }
    }

    /// Adds to `next` how a way goes on; not at all, if it is none.
    fn follow(&mut self, mut way: Way, event: &Event, next: &mut Next) {
        let to = self.code.function(event.to);
        match event.kind {
            Kind::Enter if event.is_signal() => {
                way.calls.push(Called::unseen(to));
            }
            Kind::FilterIn => return self.follow_arrival(way, event.to, next),
            Kind::Return => return self.follow_return(way, event, next),
            Kind::Jump | Kind::ConditionalJump | Kind::IndirectJump if event.left_filter() => {
                self.follow_jump_out(&mut way, to);
            }
            Kind::Jump | Kind::ConditionalJump | Kind::IndirectJump => {
                let jumper = self.code.function(event.from);
                let from = way.calls.last().map(|call| call.function).or(way.tail);
                let elsewhere = jumper != to && from.unwrap_or(jumper) != to;
                if jumper != to && self.code.is_entry(to, event.to) {
                    way.tail_called(to);
                } else if elsewhere && event.kind != Kind::IndirectJump {
                    if way.calls.is_empty() && self.frames[way.frame].function == to {
                        way.tail = None; // back in the function that tail-called what ran
                        way.runs.clear();
                    } else {
                        way.run(to);
                    }
                } else if elsewhere {
                    let before = next.ways.len();
                    self.land_again(&way, to, &mut next.ways);
                    if next.ways.len() > before {
                        next.lands = true;
                        return;
                    }
                    way.run(to); // a jump into code that functions share
                }
            }
            _ => (),
        }
        next.ways.push(way);
    }

    /// What runs has left the IP filter with a jump to `to`, which returns for it, unless that is a part of
    /// its own outside.
    fn follow_jump_out(&self, way: &mut Way, to: FunctionIndex) {
        let runs = way.calls.last().map(|call| call.function).or(way.tail);
        if runs.unwrap_or(self.frames[way.frame].function) == to {
            return;
        }
        let returns_to = match way.calls.last() {
            Some(&call) => {
                way.keep_calls(way.calls.len() - 1);
                call.returns_to
            }
            None => {
                let base = self.group_base(way.frame);
                *way = match self.below(base) {
                    Some(below) => Way::at(way.landed, below),
                    None => Way { tail: Some(FunctionIndex::UNKNOWN), ..Way::at(way.landed, 0) },
                };
                self.frames[base].returns_to
            }
        };
        if returns_to.is_some() {
            way.calls.push(Called { returns_to, hidden: true, ..Called::unseen(FunctionIndex::UNKNOWN) });
        }
    }

    /// Control comes in from outside the IP filter.
    fn follow_arrival(&mut self, mut way: Way, ip: Avma, next: &mut Next) {
        let to = self.code.function(ip);
        let frame = &self.frames[way.frame];
        let runs = way.calls.last().map(|call| call.function).or(way.tail);
        if let Some(call) = way.calls.iter().rposition(|call| call.returns_to == Some(ip)) {
            next.returns = true;
            way.keep_calls(call);
        } else if self.code.is_entry(to, ip) {
            way.calls.push(Called::unseen(to));
        } else if runs.is_none() && frame.hidden && frame.returns_to(ip) {
            next.returns = true;
            let below = self.below(way.frame);
            next.at_bottom |= below.is_none();
            way.frame = below.unwrap_or(0);
        } else if runs.map_or(frame.hidden || frame.function != to, |function| function != to) {
            return self.land_again(&way, to, &mut next.landed);
        }
        next.ways.push(way);
    }

    fn follow_return(&mut self, mut way: Way, event: &Event, next: &mut Next) {
        let top = way.calls.len().saturating_sub(1);
        let is_handler = |call: &Called| call.returns_to.is_none();
        let call = match way.calls.last() {
            Some(last) if is_handler(last) => Some(top),
            _ => way.calls.iter().rposition(|call| call.returns_to == Some(event.to)),
        };
        if let Some(call) = call.filter(|&call| call < top) {
            // Calls above it have not returned: it is one more landing.
            way.keep_calls(call);
            return next.landed.push(way);
        }
        if let Some(call) = call {
            let is_call = way.calls[call].returns_to.is_some();
            next.returns |= is_call;
            if !is_call && self.code.is_restorer(event.to) {
                way.in_restorer = Some(Handler::EnteredSince);
            }
            way.keep_calls(call);
            let is_in_sight = !event.left_filter() && !self.code.is_restorer(event.to);
            if !is_call && is_in_sight && !self.end_jumper(&mut way, event.to) {
                return self.end_older(&way, event, &mut next.landed);
            }
            next.returns |= !is_call && is_in_sight;
            next.ways.push(way);
            return;
        }
        let top = self.group_base(way.frame);
        // Or it ended a call that went out of sight, with a jump to what returns now.
        let jumper = |top: usize| {
            let below = top.checked_sub(1).filter(|_| !event.left_filter())?;
            let is_one = self.frames[below].hidden && self.frames[below].returns_to(event.to);
            is_one.then(|| (self.group_base(below), Some(event.to)))
        };
        let (base, returns_to) = match self.frames[top].returns_to {
            None => jumper(top).unwrap_or((top, None)),
            known => (top, known),
        };
        let returns = match returns_to {
            Some(to) => to == event.to,
            None => self.frames[base].entered != Entered::Filter || event.left_filter(),
        };
        let (from, to) = (self.code.function(event.from), self.code.function(event.to));
        let is_entry = !event.left_filter() && self.code.is_entry(to, event.to);
        // What it had called and what never returns (to read the program counter) is gone, too.
        let is_own = self.frames[way.frame].function == from && !event.left_filter();
        if returns && (way.calls.is_empty() || is_own && !is_entry) {
            next.returns |= returns_to.is_some();
            let below = self.below(base);
            next.at_bottom |= below.is_none();
            let in_restorer = below.filter(|below| below + 1 < base).map(|_| Handler::OfStack);
            next.ways.push(Way { in_restorer, ..Way::at(way.landed, below.unwrap_or(0)) });
        } else if is_entry && self.code.is_restorer(event.to) {
            // Only handlers return there.
            if let Some(handler) = way.calls.iter().rposition(is_handler) {
                way.in_restorer = Some(Handler::EnteredSince);
                way.keep_calls(handler);
                next.landed.push(way);
            }
        } else if is_entry {
            // A return used as a jump; a retpoline has first called a place inside itself.
            if way.calls.last().is_some_and(|call| call.inner) {
                way.keep_calls(way.calls.len() - 1);
            }
            way.tail_called(to);
            next.ways.push(way);
        } else if !event.left_filter() {
            if returns_to.is_none() {
                self.end_older(&way, event, &mut next.landed);
            }
            self.land_again(&way, to, &mut next.landed);
        }
    }

    /// Ends the call on top that went out of sight and waits at `ip`: it has jumped to what returns there.
    fn end_jumper(&self, way: &mut Way, ip: Avma) -> bool {
        let frame = &self.frames[way.frame];
        match way.calls.last() {
            Some(call) if call.hidden && call.returns_to == Some(ip) => way.keep_calls(way.calls.len() - 1),
            None if way.tail.is_none() && frame.hidden && frame.returns_to(ip) => {
                *way = Way::at(way.landed, self.below(way.frame).unwrap_or(0));
            }
            _ => return false,
        }
        true
    }

    /// What code out of sight has called returns where the call that went out of sight last does not wait: as
    /// [`Self::leave_for_older_call`].
    fn end_older(&mut self, way: &Way, event: &Event, next: &mut Vec<Way>) {
        let from = self.code.function(event.from);
        for (i, pair) in way.calls.windows(2).enumerate() {
            let waits = pair[0].hidden && pair[0].returns_to == Some(event.to);
            if waits && pair[1].returns_to.is_none() && pair[1].function == from {
                let mut way = way.clone();
                way.keep_calls(i);
                next.push(way);
            }
        }
        next.extend(self.callers_of_older(way.frame + 1, from, event.to).map(|i| Way::at(way.landed, i)));
    }

    /// Control lands once more before the first landing is settled: in a function entered since, or in a
    /// frame below.
    fn land_again(&self, way: &Way, to: FunctionIndex, next: &mut Vec<Way>) {
        let is_there = |call: &Called, i| !call.inner && (call.function == to || way.runs.contains(&(i, to)));
        let called = (1..=way.calls.len()).filter(|&i| is_there(&way.calls[i - 1], i));
        let left = (way.tail == Some(to) || way.runs.contains(&(0, to))).then_some(0);
        for calls in called.chain(left) {
            let mut way = way.clone();
            way.keep_calls(calls);
            next.push(way);
        }
        let len = way.frame + usize::from(way.tail.is_none());
        next.extend(self.landings(len, to).map(|frame| Way::at(way.landed, frame)));
    }

    /// The frame that runs when the group on `base` is left: a handler's is the one that was interrupted, by
    /// rt_sigreturn.
    fn below(&self, base: usize) -> Option<usize> {
        let below = base.checked_sub(1)?;
        if self.frames[below].signal_mark { below.checked_sub(1) } else { Some(below) }
    }
}

/// What may have happened when one more event has.
#[derive(Default)]
struct Next {
    ways: Vec<Way>,
    /// Ways in which a return was one more landing: only if it fits no call or frame.
    landed: Vec<Way>,
    /// There is a way with a call or frame that returns there.
    returns: bool,
    /// There is a way in which a jump is one more landing.
    lands: bool,
    /// The outermost frame has returned.
    at_bottom: bool,
}

/// A call after a landing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Called {
    /// `None`: a signal handler.
    returns_to: Option<Avma>,
    /// The function that it is in.
    function: FunctionIndex,
    /// A function's call of a place inside itself.
    inner: bool,
    /// It went out of sight.
    hidden: bool,
}

impl Called {
    /// A function that is entered by no call in sight.
    fn unseen(function: FunctionIndex) -> Self {
        Self { returns_to: None, function, inner: false, hidden: false }
    }
}

/// What may have happened after a landing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    /// The frame landed in.
    landed: usize,
    /// The frame that runs, or has called what runs.
    frame: usize,
    calls: Vec<Called>,
    /// What that frame has tail-called.
    tail: Option<FunctionIndex>,
    /// The functions that code has jumped into the middle of, by the number of calls that it ran in.
    runs: Vec<(usize, FunctionIndex)>,
    /// This handler on that frame has returned, and makes its rt_sigreturn.
    in_restorer: Option<Handler>,
}

/// Where a handler was entered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Handler {
    /// Before the landing: its frame says where it came.
    OfStack,
    /// After it.
    EnteredSince,
}

impl Way {
    /// Control has landed in one frame, and is in another by now.
    fn at(landed: usize, frame: usize) -> Self {
        Self { landed, frame, calls: vec![], tail: None, runs: vec![], in_restorer: None }
    }

    /// All but the first `len` calls have ended.
    fn keep_calls(&mut self, len: usize) {
        self.calls.truncate(len);
        self.runs.retain(|(calls, _)| *calls <= len);
    }

    /// What runs goes on in the middle of this function.
    fn run(&mut self, to: FunctionIndex) {
        let code = (self.calls.len(), to);
        if !self.runs.contains(&code) {
            self.runs.push(code);
        }
    }

    fn tail_called(&mut self, to: FunctionIndex) {
        self.runs.retain(|(calls, _)| *calls < self.calls.len());
        match self.calls.last_mut() {
            Some(call) => (call.function, call.inner) = (to, false),
            None => self.tail = Some(to),
        }
    }
}
