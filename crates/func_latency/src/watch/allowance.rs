//! How many captures are made in a time (`--max-captures`).

use std::collections::VecDeque;

use model::Ns;

use crate::trigger_words::Rate;

/// What the rate leaves room for.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    rate: Rate,
    /// When the last hits ended that got a capture.
    recent: VecDeque<Ns>,
}

impl Allowance {
    pub(super) const fn new(rate: Rate) -> Self {
        Self { rate, recent: VecDeque::new() }
    }

    pub(super) const fn rate(&self) -> Rate {
        self.rate
    }

    /// Whether there is room for a hit that ends at `end`, which is no earlier than those before.
    pub(super) fn has_room(&mut self, end: Ns) -> bool {
        let Rate { number, per } = self.rate;
        while self.recent.front().is_some_and(|at| at.0.saturating_add(per.0) <= end.0) {
            self.recent.pop_front();
        }
        self.recent.len() < number as usize
    }

    /// A hit that ends at `end` gets a capture.
    pub(super) fn use_up(&mut self, end: Ns) {
        self.recent.push_back(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trigger_words::DurationNs;

    #[test]
    fn in_any_such_time_there_are_no_more_than_the_rate_allows() {
        let mut allowance = Allowance::new(Rate { number: 2, per: DurationNs(10) });
        let mut is_taken = |end| {
            let has_room = allowance.has_room(Ns(end));
            if has_room {
                allowance.use_up(Ns(end));
            }
            has_room
        };
        let taken = [0, 4, 9, 10, 13, 14].map(&mut is_taken);
        assert_eq!(taken, [true, true, false, true, false, true]);
    }
}
