//! Holds the counters at the decoder's events against the truth.
//!
//! Both count from a thread's first event, which need not be the same one: the truth also counts what the
//! trace lost. So differences are compared, from the first event after each loss on.

use model::{Counters, Cycles, Executed};

use super::expected::Item;

/// How the counters of one thread agree.
#[derive(Clone, Debug, Default)]
pub struct CounterVerdict {
    /// Events with counters that were compared.
    pub compared: u64,
    /// Events with other counts of instructions or branches than the truth since the last loss.
    pub wrong: u64,
    /// Events with cycles farther off than their error bound says, or before those of an earlier event.
    pub out_of_bounds: u64,
    /// The first wrong event.
    pub first: Option<String>,
    /// Sum of the errors of cycles since the last loss, and of their bounds.
    pub cycle_errors: (u64, u64),
}

/// Compares, event by event.
#[derive(Debug, Default)]
pub(super) struct CounterCheck {
    /// Counters of the truth and of the decoder at the event that is counted from.
    from: Option<(Executed, u64, Counters)>,
    /// The most cycles of an event so far.
    latest: u64,
    pub(super) verdict: CounterVerdict,
}

impl CounterCheck {
    /// Packets were lost: what was executed meanwhile only the truth knows.
    pub(super) fn lose(&mut self) {
        self.from = None;
    }

    /// An event that both sides have.
    pub(super) fn check(&mut self, item: &Item, counters: Counters, show: impl FnOnce() -> String) {
        let point = counters.cycles.map_or(0, |cycles| cycles.point);
        let goes_back = point < self.latest;
        self.latest = self.latest.max(point);
        self.verdict.out_of_bounds += u64::from(goes_back);
        let Some((executed, cycles, ours)) = self.from else {
            self.from = Some((item.executed, item.cycles, counters));
            return;
        };
        self.verdict.compared += 1;
        let expected = item.executed - executed;
        let all = counters.executed.since(&ours.executed);
        let found = Executed { kernel_instructions: 0, gaps: 0, kernel_gaps: 0, ..all };
        let is_wrong = expected != found;
        self.verdict.wrong += u64::from(is_wrong);
        let between = |to: Cycles, from: Cycles| to.since(&from);
        let since = counters.cycles.zip(ours.cycles).map(|(to, from)| between(to, from));
        let expected_cycles = item.cycles.saturating_sub(cycles);
        let is_out = since.is_some_and(|(count, error)| count.abs_diff(expected_cycles) > error);
        self.verdict.out_of_bounds += u64::from(is_out);
        if let Some((count, error)) = since {
            self.verdict.cycle_errors.0 += count.abs_diff(expected_cycles);
            self.verdict.cycle_errors.1 += error;
        }
        if (is_wrong || is_out) && self.verdict.first.is_none() {
            let what = show();
            self.verdict.first = Some(format!(
                "{what}: truth {expected:?}, {expected_cycles} cycles; decoder {found:?}, {since:?} cycles"
            ));
        }
    }
}
