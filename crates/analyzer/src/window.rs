//! How much of one thread's life was seen: window = observed + lost, exactly.
//!
//! ```text
//!   window    |-------------------------------------------------------|
//!   lost              |-----|           |--|
//!   observed  |-------|     |-----------|  |--------------------------|
//!   outside       |---|           |---|        |----------------------|   seen outside IP filter ranges
//! ```

use model::schedule::{DeadTime, ThreadLife};
use model::{Gap, Ns, Tid};

use crate::report::ThreadLoss;

/// One thread's window up to its current event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadWindow<'a> {
    start: Ns,
    end: Ns,
    /// The first time at which something was seen, or was to be seen by ITRACE_START.
    seen_from: Option<Ns>,
    /// The latest time at which something was seen.
    seen_until: Ns,
    /// Before this, everything is counted as either observed or lost.
    counted_until: Ns,
    observed_ns: u64,
    lost_ns: u64,
    /// Deaths and rebirths that are still to come.
    pub(crate) dead: &'a [DeadTime],
    /// The last rebirth that has passed.
    reborn: Ns,
    /// The time in which the present thread was not yet attached to is counted.
    pub(crate) has_late: bool,
    /// Time in which no thread had this thread's number.
    dead_ns: u64,
    /// With an IP filter: since when the thread is outside its ranges, and how long it was before.
    outside: Option<(Option<Ns>, u64)>,
}

impl<'a> ThreadWindow<'a> {
    /// From the trace start (ITRACE_START, FORK, or the recording's) to EXIT or the recording's end.
    pub(crate) fn new(life: Option<&'a ThreadLife>, recording: (Ns, Ns), has_ip_filter: bool) -> Self {
        let first_known = life.and_then(|l| l.born.into_iter().chain(l.trace_start).min());
        let start = first_known.unwrap_or(recording.0).max(recording.0);
        let end = life.and_then(ThreadLife::ended).unwrap_or(recording.1).max(start);
        let outside = has_ip_filter.then_some((Some(start), 0));
        let dead = life.map_or(&[][..], |life| &life.dead);
        Self {
            start,
            end,
            seen_from: life.and_then(|life| life.trace_start),
            seen_until: Ns(0),
            counted_until: start,
            observed_ns: 0,
            lost_ns: 0,
            dead,
            reborn: Ns(0),
            has_late: false,
            dead_ns: 0,
            outside,
        }
    }

    /// Goes on with a recording that has grown, and with the thread's life as known now.
    pub(crate) fn grown<'b>(self, life: Option<&'b ThreadLife>, recording_end: Ns) -> ThreadWindow<'b> {
        let Self {
            start,
            seen_from,
            seen_until,
            counted_until,
            observed_ns,
            lost_ns,
            reborn,
            has_late,
            dead_ns,
            outside,
            ..
        } = self;
        let all = life.map_or(&[][..], |life| &life.dead);
        let dead = all.get(all.partition_point(|dead| dead.reborn <= reborn)..).unwrap_or_default();
        ThreadWindow {
            start,
            end: life.and_then(ThreadLife::ended).unwrap_or(recording_end).max(start).max(seen_until),
            seen_from,
            seen_until,
            counted_until,
            observed_ns,
            lost_ns,
            dead,
            reborn,
            has_late,
            dead_ns,
            outside,
        }
    }

    /// Of a run of calls: only the time outside of the IP filter counts. `outside_since`: they are called
    /// there.
    pub(crate) fn of_run(has_ip_filter: bool, outside_since: Option<Ns>) -> Self {
        let outside = has_ip_filter.then_some((outside_since, 0));
        Self { outside, ..Self::new(None, (Ns(0), Ns(0)), false) }
    }

    /// The time outside so far.
    pub(crate) fn outside_ns(&self) -> u64 {
        self.outside.map_or(0, |(_, outside_ns)| outside_ns)
    }

    /// Nothing changes the counted time from `first` on, and with an IP filter the thread is on this side
    /// of it.
    pub(crate) fn passes(&self, first: Ns, is_outside: bool) -> bool {
        let is_there = self.outside.is_none_or(|(since, _)| since.is_some() == is_outside);
        self.counted_until <= first && is_there
    }

    /// The thread came and went from `first` to `last`, was outside for `outside_ns` in between, and is again
    /// where it was.
    pub(crate) fn add_outside(&mut self, first: Ns, outside_ns: u64, last: Ns) {
        let was_outside = matches!(self.outside, Some((Some(_), _)));
        self.enter_filter(first);
        if let Some((_, ns)) = &mut self.outside {
            *ns = ns.saturating_add(outside_ns);
        }
        if was_outside {
            self.leave_filter(last);
        }
    }

    /// Something is seen from `time` on, if not before.
    pub(crate) fn is_seen_from(&mut self, time: Ns) {
        self.seen_from = Some(self.seen_from.map_or(time, |from| from.min(time)));
    }

    /// Something was seen at `time`: the thread lived.
    pub(crate) fn seen(&mut self, time: Ns) {
        self.end = self.end.max(time);
        self.seen_until = self.seen_until.max(time);
    }

    /// Control leaves the IP filter's ranges.
    pub(crate) fn leave_filter(&mut self, time: Ns) {
        if let Some((since, _)) = &mut self.outside {
            *since = Some(time);
        }
    }

    /// Control is inside the IP filter's ranges.
    pub(crate) fn enter_filter(&mut self, time: Ns) {
        if let Some((since, outside_ns)) = &mut self.outside
            && let Some(since) = since.take()
        {
            *outside_ns = outside_ns.saturating_add(time.since(since.max(self.counted_until)));
        }
    }

    /// The thread died, and another one has its number from `reborn` on. Where nothing was seen of any so far
    /// the window begins with that one.
    pub(crate) fn pass_death(&mut self, died: Ns, reborn: Ns) {
        self.reborn = reborn;
        if self.seen_from.is_none_or(|from| from >= reborn) {
            self.start = self.start.max(reborn);
            self.counted_until = self.start;
            return self.leave_filter(self.start);
        }
        // It lived as far as it was seen: a time within bounds may be after its death.
        let died = died.max(self.seen_until).min(reborn).max(self.counted_until);
        self.enter_filter(died);
        self.observed_ns += died.since(self.counted_until);
        self.dead_ns += reborn.since(died);
        self.counted_until = self.counted_until.max(reborn);
        self.leave_filter(reborn);
    }

    /// Returns how much of the gap was not lost already.
    pub(crate) fn gap(&mut self, gap: &Gap) -> u64 {
        let from = gap.from.point.max(self.counted_until);
        let to = gap.to.point;
        self.enter_filter(from);
        self.observed_ns += from.since(self.counted_until);
        let lost_ns = to.since(from);
        self.lost_ns += lost_ns;
        self.counted_until = self.counted_until.max(to);
        self.leave_filter(to); // what ran in between is not known
        self.seen(to);
        lost_ns
    }

    pub(crate) fn finish(mut self, tid: Tid) -> ThreadLoss {
        self.enter_filter(self.end);
        ThreadLoss {
            tid,
            window_ns: self.end.since(self.start).saturating_sub(self.dead_ns),
            observed_ns: self.observed_ns + self.end.since(self.counted_until),
            lost_ns: self.lost_ns,
            outside_ns: self.outside.map(|(_, ns)| ns),
            by_cause: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{AuxOffset, EventTime, GapCause};

    fn gap(from: u64, to: u64) -> Gap {
        let time = |ns| EventTime::exact(Ns(ns));
        Gap { from: time(from), to: time(to), bytes: 3, at: AuxOffset(0), cause: GapCause::Overflow }
    }

    #[test]
    fn window_is_observed_plus_lost_with_overlapping_gaps() {
        let life = ThreadLife { trace_start: Some(Ns(100)), died: Some(Ns(900)), ..ThreadLife::default() };
        let mut window = ThreadWindow::new(Some(&life), (Ns(50), Ns(1000)), false);
        let lost: Vec<u64> = [(0, 150), (200, 300), (250, 260), (280, 350), (400, 400)]
            .map(|(from, to)| window.gap(&gap(from, to)))
            .into();
        assert_eq!(lost, [50, 100, 0, 50, 0]);
        let thread = window.finish(Tid(7));
        assert_eq!((thread.window_ns, thread.observed_ns, thread.lost_ns), (800, 600, 200));
        assert_eq!(thread.outside_ns, None);
    }

    #[test]
    fn a_window_ends_with_the_thread_or_the_recording_or_what_was_seen_last() {
        let forked = ThreadLife { born: Some(Ns(60)), trace_start: Some(Ns(80)), ..ThreadLife::default() };
        let window = ThreadWindow::new(Some(&forked), (Ns(50), Ns(1000)), false);
        assert_eq!(window.finish(Tid(1)).window_ns, 940);
        let mut window = ThreadWindow::new(None, (Ns(50), Ns(1000)), false);
        window.seen(Ns(1010));
        assert_eq!(window.finish(Tid(1)).window_ns, 960);
    }

    #[test]
    fn time_outside_the_filter_is_observed_and_apart_from_what_is_lost() {
        let mut window = ThreadWindow::new(None, (Ns(0), Ns(1000)), true);
        window.enter_filter(Ns(100)); // outside until here
        window.enter_filter(Ns(150));
        window.leave_filter(Ns(200));
        window.gap(&gap(260, 300)); // 60 outside before it
        window.gap(&gap(290, 320));
        window.enter_filter(Ns(330)); // 10 after it
        window.leave_filter(Ns(900)); // 100 to the end
        let thread = window.finish(Tid(1));
        assert_eq!((thread.window_ns, thread.observed_ns, thread.lost_ns), (1000, 940, 60));
        assert_eq!(thread.outside_ns, Some(270));
    }
}
