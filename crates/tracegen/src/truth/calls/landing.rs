//! Control that goes to where no frame returns to: unwinding.

use model::Avma;

use super::rows::{Entered, Status};
use super::stack::Stack;
use crate::truth::{Event, Events, Kind};

impl Stack<'_> {
    /// Control landed inside a function further out: all frames above it are unwound.  False if that
    /// function has no frame.
    pub(super) fn landing(&mut self, to: Avma, ahead: &Events<'_>) -> bool {
        let function = self.code.function(to);
        let lands = |i: usize| {
            let frame = &self.frames[i];
            let jumped_away = self.frames.get(i + 1).is_some_and(|next| next.tail);
            frame.function == function && !frame.hidden && !frame.signal_mark && !jumped_away
        };
        let candidates: Vec<usize> = (0..self.frames.len()).rev().filter(|&i| lands(i)).collect();
        let landed = match candidates[..] {
            [] => return false,
            [only] => only,
            [innermost, ..] => self.fit(candidates, ahead).first().copied().unwrap_or(innermost),
        };
        self.close_to(landed + 1, Status::Unwound);
        true
    }

    /// Those of the frames that the returns after this event fit, innermost first.
    fn fit(&mut self, mut candidates: Vec<usize>, ahead: &Events<'_>) -> Vec<usize> {
        // Longer calls than this after a landing are not looked through.
        const EVENTS_AHEAD: usize = 2_000_000;
        // Candidate, and the frame that the next return must leave if it is the one.
        let mut leaving: Vec<(usize, usize)> = candidates.iter().map(|&c| (c, c)).collect();
        // Where calls after the landing return to; `None`: a signal handler.
        let mut calls: Vec<Option<Avma>> = vec![];
        for event in ahead.clone().take(EVENTS_AHEAD) {
            match event.kind {
                Kind::Call | Kind::IndirectCall => {
                    let after = self.code.after_call(event.from);
                    if after != event.to {
                        calls.push(Some(after));
                    }
                }
                Kind::Enter if event.is_signal() => calls.push(None),
                Kind::FilterIn if calls.last() == Some(&Some(event.to)) => {
                    calls.pop();
                }
                Kind::Return => {
                    let called = |c: &Option<Avma>| c.is_none_or(|after| after == event.to);
                    if let Some(i) = calls.iter().rposition(called) {
                        calls.truncate(i);
                        continue;
                    }
                    if !calls.is_empty() {
                        break; // another landing
                    }
                    let left = self.left_by(&leaving, &event);
                    if left.is_empty() {
                        break;
                    }
                    candidates = left.iter().map(|&(candidate, _)| candidate).collect();
                    if left.len() == 1 || left.iter().any(|&(_, base)| base == 0) {
                        break;
                    }
                    leaving = left.iter().map(|&(candidate, base)| (candidate, base - 1)).collect();
                }
                _ => (),
            }
        }
        candidates
    }

    /// The candidates whose frame the return leaves, each with the group's base that it leaves.
    fn left_by(&self, leaving: &[(usize, usize)], event: &Event) -> Vec<(usize, usize)> {
        let leaves = |&(candidate, frame): &(usize, usize)| {
            let base = self.group_base(frame);
            let fits = match self.frames[base].returns_to {
                Some(to) => to == event.to,
                None => self.frames[base].entered != Entered::Filter || event.left_filter(),
            };
            fits.then_some((candidate, base))
        };
        leaving.iter().filter_map(leaves).collect()
    }
}
