//! How much of each thread's life was seen: window = observed + lost, exactly.

use std::collections::BTreeMap;

use model::schedule::ThreadLife;
use model::{Gap, GapCause, Ns, ObjectId, Tid};

use crate::report::{CauseLoss, Loss, ThreadLoss};

/// The gaps of all threads by cause.
#[derive(Default)]
pub(crate) struct LossByCause(BTreeMap<(u8, Option<ObjectId>), CauseLoss>);

impl LossByCause {
    /// A gap, of which `lost_ns` no earlier gap of the thread covers.
    pub(crate) fn add(&mut self, gap: &Gap, lost_ns: u64) {
        let object = match gap.cause {
            GapCause::MissingCode { object } => Some(object),
            _ => None,
        };
        let none = CauseLoss { cause: gap.cause.name(), object, count: 0, bytes: 0, lost_ns: 0 };
        let sum = self.0.entry((order(gap.cause), object)).or_insert(none);
        sum.count += 1;
        sum.bytes = sum.bytes.saturating_add(gap.bytes);
        sum.lost_ns = sum.lost_ns.saturating_add(lost_ns);
    }

    pub(crate) fn finish(self, threads: Vec<ThreadLoss>) -> Loss {
        let count = |wanted: &[u8]| {
            let of = self.0.iter().filter(|((order, _), _)| wanted.contains(order));
            of.map(|(_, sum)| sum.count).sum()
        };
        let total = |of: fn(&ThreadLoss) -> u64| threads.iter().map(|t| u128::from(of(t))).sum::<u128>();
        let (window, observed, lost) =
            (total(|t| t.window_ns), total(|t| t.observed_ns), total(|t| t.lost_ns));
        Loss {
            overflows: count(&[order(GapCause::Overflow)]),
            truncated: count(&[order(GapCause::Truncated)]),
            errors: count(&ERRORS),
            lost_ns: u64::try_from(lost).unwrap_or(u64::MAX),
            coverage: if window == 0 { 1.0 } else { observed as f64 / window as f64 },
            by_cause: self.0.into_values().collect(),
            threads,
        }
    }
}

/// Causes that are neither the trace unit's nor the kernel's doing, nor a matter of when tracing began.
const ERRORS: [u8; 5] = [2, 3, 4, 5, 6];

/// Order of causes in tables: as they are declared.
const fn order(cause: GapCause) -> u8 {
    match cause {
        GapCause::Overflow => 0,
        GapCause::Truncated => 1,
        GapCause::DamagedPacket => 2,
        GapCause::Desync { .. } => 3,
        GapCause::MissingCode { .. } => 4,
        GapCause::UnmappedCode { .. } => 5,
        GapCause::UnknownThread => 6,
        GapCause::NoSync => 7,
        GapCause::NotYetAttached => 8,
        GapCause::BetweenSnapshots => 9,
    }
}

/// One thread's window and what of it was lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadWindow {
    start: Ns,
    end: Ns,
    /// Before this, everything is either seen or counted as lost.
    lost_until: Ns,
    lost_ns: u64,
}

impl ThreadWindow {
    /// From the trace start (ITRACE_START, FORK, or the recording's) to EXIT or the recording's end.
    pub(crate) fn new(life: Option<&ThreadLife>, recording: (Ns, Ns)) -> Self {
        let first_known = life.and_then(|l| l.born.into_iter().chain(l.trace_start).min());
        let start = first_known.unwrap_or(recording.0).max(recording.0);
        let end = life.and_then(|l| l.died).unwrap_or(recording.1).max(start);
        Self { start, end, lost_until: start, lost_ns: 0 }
    }

    /// Something was seen at `time`: the thread lived.
    pub(crate) fn seen(&mut self, time: Ns) {
        self.end = self.end.max(time);
    }

    /// Returns how much of the gap was not lost already.
    pub(crate) fn gap(&mut self, gap: &Gap) -> u64 {
        let from = gap.from.point.max(self.lost_until);
        let to = gap.to.point;
        let lost_ns = to.since(from);
        self.lost_ns += lost_ns;
        self.lost_until = self.lost_until.max(to);
        self.seen(to);
        lost_ns
    }

    pub(crate) fn finish(&self, tid: Tid) -> ThreadLoss {
        let window_ns = self.end.since(self.start);
        ThreadLoss {
            tid,
            window_ns,
            observed_ns: window_ns.saturating_sub(self.lost_ns),
            lost_ns: self.lost_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{AuxOffset, EventTime};

    fn gap(from: u64, to: u64, cause: GapCause) -> Gap {
        let time = |ns| EventTime::exact(Ns(ns));
        Gap { from: time(from), to: time(to), bytes: 3, at: AuxOffset(0), cause }
    }

    #[test]
    fn window_is_observed_plus_lost_with_overlapping_gaps() {
        let life = ThreadLife { trace_start: Some(Ns(100)), died: Some(Ns(900)), ..ThreadLife::default() };
        let mut window = ThreadWindow::new(Some(&life), (Ns(50), Ns(1000)));
        let lost: Vec<u64> = [(0, 150), (200, 300), (250, 260), (280, 350), (400, 400)]
            .map(|(from, to)| window.gap(&gap(from, to, GapCause::Overflow)))
            .into();
        assert_eq!(lost, [50, 100, 0, 50, 0]);
        let thread = window.finish(Tid(7));
        assert_eq!((thread.window_ns, thread.observed_ns, thread.lost_ns), (800, 600, 200));
    }

    #[test]
    fn a_window_ends_with_the_thread_or_the_recording_or_what_was_seen_last() {
        let forked = ThreadLife { born: Some(Ns(60)), trace_start: Some(Ns(80)), ..ThreadLife::default() };
        let window = ThreadWindow::new(Some(&forked), (Ns(50), Ns(1000)));
        assert_eq!(window.finish(Tid(1)).window_ns, 940);
        let mut window = ThreadWindow::new(None, (Ns(50), Ns(1000)));
        window.seen(Ns(1010));
        assert_eq!(window.finish(Tid(1)).window_ns, 960);
    }

    #[test]
    fn causes_are_counted_apart_and_missing_objects_by_object() {
        let mut by_cause = LossByCause::default();
        let missing = |object| GapCause::MissingCode { object: ObjectId(object) };
        for cause in [missing(2), GapCause::Overflow, missing(1), missing(2), GapCause::NotYetAttached] {
            by_cause.add(&gap(0, 5, cause), 5);
        }
        let threads = vec![ThreadLoss { tid: Tid(1), window_ns: 100, observed_ns: 75, lost_ns: 25 }];
        let loss = by_cause.finish(threads);
        assert_eq!((loss.overflows, loss.truncated, loss.errors, loss.lost_ns), (1, 0, 3, 25));
        assert_eq!(loss.coverage, 0.75);
        let rows: Vec<_> = loss.by_cause.iter().map(|c| (c.cause, c.object, c.count, c.bytes)).collect();
        let expect = [
            ("overflow", None, 1, 3),
            ("missing code", Some(ObjectId(1)), 1, 3),
            ("missing code", Some(ObjectId(2)), 2, 6),
            ("not yet attached", None, 1, 3),
        ];
        assert_eq!(rows, expect);
    }
}
