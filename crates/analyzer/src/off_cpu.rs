//! How long a thread has been off its CPU so far, as its events pass.
//!
//! ```text
//!   events     ... End                          Start ...
//!   sideband          | switch out    switch in |
//! ```
//! Without sideband, a stay in the kernel's scheduler is an interval, if the IP filter has that:
//! ```text
//!   events     ... End    Start at __schedule .. End    Start after a call .. End    Start ...
//!   off CPU                     |----------------------------------------------|
//! ```
//! A switch lies in an untraced stretch, so an interval counts when tracing starts again. Event times are
//! estimates and switch times are exact: an estimate that falls inside an interval belongs before or after
//! it, where its bounds leave more room.

use model::schedule::OffCpu;
use model::{EventTime, Ns};

/// A thread's off-CPU time up to its current event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OffCpuClock<'a> {
    intervals: &'a [OffCpu],
    /// End of the first interval that is not counted yet.
    next_in: Ns,
    /// End of the last interval that is counted.
    counted_until: Ns,
    /// Begin and end of the last one that is counted though no event was seen after it.
    passed: Option<(Ns, Ns)>,
    total_ns: u64,
    /// The part of it that is of an interval which has not ended at the current event: of kernel code.
    partial_ns: u64,
    /// When the thread entered the scheduler, and when it left it last.
    scheduler: Option<(Ns, Ns)>,
}

impl<'a> OffCpuClock<'a> {
    /// `intervals` by time, disjoint.
    pub(crate) fn new(intervals: &'a [OffCpu]) -> Self {
        let mut clock = Self {
            intervals,
            next_in: Ns::MAX,
            counted_until: Ns(0),
            passed: None,
            total_ns: 0,
            partial_ns: 0,
            scheduler: None,
        };
        clock.next_in = clock.first_in();
        clock
    }

    /// After so much time, which was before `intervals`.
    pub(crate) fn after(total_ns: u64, intervals: &'a [OffCpu]) -> Self {
        Self { total_ns, ..Self::new(intervals) }
    }

    /// Goes on with the intervals that are known now: at least those that are not counted yet.
    pub(crate) fn with_intervals(self, intervals: &[OffCpu]) -> OffCpuClock<'_> {
        let Self { counted_until, passed, total_ns, partial_ns, scheduler, .. } = self;
        let is_counted = |off: &OffCpu| off.to.is_some_and(|to| to <= counted_until);
        let counted = intervals.partition_point(is_counted);
        let clock = OffCpuClock::new(intervals.get(counted..).unwrap_or_default());
        OffCpuClock { counted_until, passed, total_ns, partial_ns, scheduler, ..clock }
    }

    /// The number of times off the CPU that ended by `time` and are not counted yet.
    pub(crate) fn ended_by(&self, time: Ns) -> usize {
        self.intervals.partition_point(|off| off.to.is_some_and(|to| to <= time))
    }

    pub(crate) fn total_ns(&self) -> u64 {
        self.total_ns
    }

    fn first_in(&self) -> Ns {
        self.intervals.first().and_then(|i| i.to).unwrap_or(Ns::MAX)
    }

    /// An event that is not a start: only intervals that are certain to lie before it count.
    #[inline]
    pub(crate) fn pass(&mut self, time: EventTime) {
        if time.lo >= self.next_in {
            self.count_until(time.lo);
        }
    }

    /// No event from before `until` will come: intervals that ended earlier count, even if the next event is
    /// far away.
    pub(crate) fn pass_without_event(&mut self, until: Ns) {
        while let Some(&OffCpu { from, to: Some(to), .. }) = self.intervals.first()
            && to <= until
        {
            // A thread that died off its CPU was not off it any more.
            if from < to {
                self.passed = Some((from, to));
            }
            self.count();
        }
    }

    /// An event of kernel code, which runs on for a while after the record of the switch-out, and before that
    /// of the switch-in: the clock goes on in between.
    pub(crate) fn pass_in_kernel(&mut self, time: EventTime) {
        self.leave_kernel();
        self.pass(time);
        let until = |off: &OffCpu| off.to.map_or(time.point, |to| to.min(time.point));
        if let Some(off) = self.intervals.first().filter(|off| off.from < time.point) {
            self.partial_ns = until(off).since(off.from);
            self.total_ns += self.partial_ns;
        }
    }

    /// The thread is off its CPU at this time, as its switch records have it.
    pub(crate) fn is_off(&self, time: Ns) -> bool {
        self.intervals.first().is_some_and(|off| off.from < time && off.to.is_none_or(|to| time < to))
    }

    /// What comes next is no kernel code.
    pub(crate) fn leave_kernel(&mut self) {
        self.total_ns -= std::mem::take(&mut self.partial_ns);
    }

    #[cold]
    fn count_until(&mut self, time: Ns) {
        while time >= self.next_in && self.next_in != Ns::MAX {
            self.count();
        }
    }

    /// Intervals that are not counted yet, if nothing else tells of times off the CPU.
    pub(crate) fn left(&self) -> Option<usize> {
        (self.scheduler.is_none() && self.partial_ns == 0).then_some(self.intervals.len())
    }

    /// Leaves the intervals from `time` on, which are of the next thread with this number, and returns them.
    pub(crate) fn split_off(&mut self, time: Ns) -> &'a [OffCpu] {
        let (before, later) = self.intervals.split_at(self.intervals.partition_point(|off| off.from < time));
        self.go_on(before);
        later
    }

    /// Goes on with these intervals.
    pub(crate) fn go_on(&mut self, intervals: &'a [OffCpu]) {
        self.intervals = intervals;
        self.next_in = self.first_in();
    }

    /// Counts intervals until so many are left.
    pub(crate) fn count_to(&mut self, left: usize) {
        while self.intervals.len() > left {
            self.count();
        }
    }

    /// The kernel's scheduler was entered.
    pub(crate) fn enter_scheduler(&mut self, time: EventTime) {
        self.count_scheduler();
        self.scheduler = Some((time.point, time.point));
    }

    /// Its range was left: to code that it calls, or for good.
    pub(crate) fn leave_scheduler(&mut self, time: EventTime) {
        if let Some((_, left)) = &mut self.scheduler {
            *left = time.point;
        }
    }

    fn count_scheduler(&mut self) {
        if let Some((entered, left)) = self.scheduler.take() {
            self.total_ns += left.since(entered);
        }
    }

    /// Tracing starts.
    pub(crate) fn start(&mut self, time: EventTime) {
        self.count_scheduler();
        while let Some(&OffCpu { from, to: Some(to), .. }) = self.intervals.first() {
            let has_room_after = to <= time.hi && from.since(time.lo) <= time.hi.since(to);
            let is_after = to <= time.point || from < time.point && has_room_after;
            if !is_after {
                break;
            }
            self.count();
        }
    }

    fn count(&mut self) {
        if let Some((first, rest)) = self.intervals.split_first() {
            self.total_ns += first.to.map_or(0, |to| to.since(first.from));
            self.counted_until = first.to.unwrap_or(self.counted_until).max(self.counted_until);
            self.intervals = rest;
        }
        self.next_in = self.first_in();
    }

    /// The thread's recording ends at `end` with nothing traced after `last`: counts the rest. Returns up to
    /// when switches tell where it was; `None`: none is later.
    pub(crate) fn finish(&mut self, last: EventTime, end: Ns) -> Option<Ns> {
        if let Some((entered, _)) = self.scheduler.take() {
            self.total_ns += end.since(entered);
            return Some(end);
        }
        // A dying thread leaves its CPU after its EXIT: it was not off the CPU while it lived.
        self.split_off(end);
        let left = self.intervals.last().map(|off| (off.from, off.to));
        let (from, to) = left.or(self.passed.map(|(from, to)| (from, Some(to))))?;
        if from < last.lo || from >= end {
            return None;
        }
        let until = to.unwrap_or(end).min(end);
        if left.is_some() {
            self.count_to(1);
            self.go_on(&[]);
            self.counted_until = self.counted_until.max(to.unwrap_or(until));
            self.total_ns += until.since(from);
        }
        Some(until)
    }

    /// Whether it is off the CPU when its recording ends at `end`, with nothing traced after `last`.
    pub(crate) fn ends_off(&self, last: EventTime, end: Ns) -> bool {
        let is_off =
            |off: &OffCpu| off.to.is_none_or(|to| to >= end) && off.from >= last.lo && off.from < end;
        self.scheduler.is_some() || self.intervals.last().is_some_and(is_off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn off(from: u64, to: Option<u64>) -> OffCpu {
        OffCpu { from: Ns(from), to: to.map(Ns), preempted: false, woken: None }
    }

    fn time(lo: u64, point: u64, hi: u64) -> EventTime {
        EventTime { lo: Ns(lo), point: Ns(point), hi: Ns(hi) }
    }

    #[test]
    fn an_interval_counts_when_tracing_starts_again() {
        let intervals = [off(10, Some(20)), off(30, Some(45)), off(60, None)];
        let mut clock = OffCpuClock::new(&intervals);
        clock.pass(time(8, 9, 9));
        assert_eq!(clock.total_ns(), 0);
        clock.start(time(21, 22, 23));
        assert_eq!(clock.total_ns(), 10);
        clock.start(time(46, 46, 46));
        clock.start(time(59, 59, 70));
        assert_eq!(clock.total_ns(), 25);
        assert!(clock.ends_off(time(59, 59, 59), Ns(100)));
        assert_eq!((clock.finish(time(59, 59, 59), Ns(100)), clock.total_ns()), (Some(Ns(100)), 65));
    }

    /// Where an IP filter hides what runs it may be on the CPU again, and nothing of it is traced.
    #[test]
    fn a_thread_that_came_back_last_was_there_until_then() {
        let intervals = [off(10, Some(20)), off(30, Some(45)), off(60, Some(70))];
        let mut clock = OffCpuClock::new(&intervals);
        clock.start(time(21, 21, 21));
        assert!(!clock.ends_off(time(25, 25, 25), Ns(100)));
        assert_eq!((clock.finish(time(25, 25, 25), Ns(100)), clock.total_ns()), (Some(Ns(70)), 35));
    }

    #[test]
    fn an_estimate_inside_an_interval_is_after_it() {
        let intervals = [off(10, Some(20)), off(30, Some(45))];
        let mut clock = OffCpuClock::new(&intervals);
        // The start is known to +-5 only: before the switch-in by estimate, but it cannot have been.
        clock.start(time(13, 18, 23));
        assert_eq!(clock.total_ns(), 10);
        // The next interval is not touched by an estimate before it, however uncertain,
        clock.start(time(21, 28, 50));
        assert_eq!(clock.total_ns(), 10);
        // nor by one inside it if the start was rather before it.
        clock.start(time(21, 40, 46));
        assert_eq!(clock.total_ns(), 10);
        // At another event only intervals that are certain to be over count.
        clock.pass(time(44, 46, 50));
        assert_eq!(clock.total_ns(), 10);
        clock.pass(time(45, 46, 50));
        assert_eq!(clock.total_ns(), 25);
    }

    #[test]
    fn in_kernel_code_the_clock_goes_on_within_an_interval() {
        let intervals = [off(10, Some(20)), off(30, None)];
        let mut clock = OffCpuClock::new(&intervals);
        let mut at = |time| {
            clock.pass_in_kernel(time);
            clock.total_ns()
        };
        assert_eq!([at(time(9, 9, 9)), at(time(12, 12, 12)), at(time(19, 21, 22))], [0, 2, 10]);
        assert_eq!([at(time(20, 22, 22)), at(time(33, 33, 33))], [10, 13]);
        clock.leave_kernel();
        assert_eq!(clock.total_ns(), 10);
    }

    #[test]
    fn a_thread_on_the_cpu_at_the_end_has_nothing_more() {
        let intervals = [off(10, Some(20)), off(30, None)];
        let mut clock = OffCpuClock::new(&intervals);
        clock.start(time(21, 21, 21));
        assert!(!clock.ends_off(time(31, 31, 31), Ns(100)));
        assert_eq!((clock.finish(time(31, 31, 31), Ns(100)), clock.total_ns()), (None, 10));
        assert_eq!(OffCpuClock::new(&[]).finish(time(1, 1, 1), Ns(100)), None);
    }
}
