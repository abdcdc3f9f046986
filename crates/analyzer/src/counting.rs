//! A thread's counters as its frames come and go.
//!
//! ```text
//!   frames   main   f      g        (crate::stack)
//!   begun    at 0   at 7   at 19    the counters when each was entered: `now` - `begun` is what ran in it
//! ```
//! It stands beside the frames, and is empty where counters were not asked for: then nothing here is looked
//! at, neither when a frame is opened nor when it ends.

use model::{Counters, TraceEvent, Transfer};

use crate::counted::Counted;

/// The counters of one thread.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    is_on: bool,
    now: Counters,
    /// When control left the traced code last.
    left: Counters,
    /// When each open frame was entered, the outermost first.
    begun: Vec<Counters>,
}

impl Counting {
    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on, ..Self::default() }
    }

    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// The thread has come to an event, or a gap, with these counters.
    #[inline(always)]
    pub(crate) fn reach(&mut self, event: &TraceEvent, counters: &Counters) {
        self.now = *counters;
        if matches!(event, TraceEvent::Branch(branch) if matches!(branch.transfer, Transfer::End { .. })) {
            self.left = self.now;
        }
    }

    /// The thread has come to an event that is neither an end of traced code nor a gap.
    pub(crate) fn come_to(&mut self, counters: Option<Counters>) {
        self.now = counters.unwrap_or(self.now);
    }

    /// The counters when control left the traced code last.
    pub(crate) fn left(&self) -> Counters {
        self.left
    }

    /// Control is where it left the traced code at these counters.
    pub(crate) fn set_left(&mut self, left: Counters) {
        self.left = left;
    }

    /// A frame is opened; `since_left`: it began when control left the traced code.
    #[inline]
    pub(crate) fn open_frame(&mut self, since_left: bool) {
        self.begun.push(if since_left { self.left } else { self.now });
    }

    /// The frame on top is gone.
    #[inline(always)]
    pub(crate) fn close_frame(&mut self) {
        self.begun.pop();
    }

    /// What ran in the frame on top; `is_away`: up to when it left the traced code.
    #[inline(always)]
    pub(crate) fn of_top(&self, is_away: bool) -> Option<Counted> {
        let end = if is_away { &self.left } else { &self.now };
        self.begun.last().map(|begun| Counted::between(begun, end))
    }

    /// The counters now.
    pub(crate) fn now(&self) -> Counters {
        self.now
    }

    /// What ran since the counters were `begun`, where they were asked for; `is_away`: up to when control
    /// left the traced code.
    pub(crate) fn since(&self, begun: &Counters, is_away: bool) -> Option<Counted> {
        let end = if is_away { &self.left } else { &self.now };
        self.is_on.then(|| Counted::between(begun, end))
    }

    /// No work: what ran out of sight is not counted.
    pub(crate) fn nothing(&self) -> Counted {
        Counted::between(&self.now, &self.now)
    }

    /// What ran since control left the traced code.
    pub(crate) fn since_left(&self) -> Counted {
        Counted::between(&self.left, &self.now)
    }
}
