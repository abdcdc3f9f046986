//! Where the code goes on that a signal handler interrupted: the log does not say, but what the thread does
//! next does.
//!
//! ```text
//!   handler ... rt_sigreturn  X                                it was at X
//!   handler ... rt_sigreturn  handler ... rt_sigreturn  X
//!                             the next signal was pending: both have interrupted X
//!   handler ... rt_sigreturn  handler ... rt_sigreturn  rt_sigreturn  X
//!                             the emulator lets a signal in front of an rt_sigreturn, which it makes again
//! ```

use model::Avma;

/// Where code may go on: one of two places, as far as its last instruction tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Onward([Avma; 2]);

impl Onward {
    /// The code goes on here.
    pub(crate) const fn only(at: Avma) -> Self {
        Self([at; 2])
    }

    /// The code goes on at one of these.
    pub(crate) const fn either(one: Avma, other: Avma) -> Self {
        Self([one, other])
    }

    /// The code may go on here.
    pub(crate) fn has(self, at: Avma) -> bool {
        self.0.contains(&at)
    }
}

/// Where a handler came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// The interrupted code goes on here.
    At(Onward),
    /// After an indirect jump, which does not lead to where a call or a system call returns to.
    ByJump,
    /// After a return: to where the call on top returns to, or used as a jump.
    ByReturn(Avma),
    /// It is not known.
    Anywhere,
}

impl Came {
    /// The interrupted code may go on here; `returns`: calls or system calls return to there.
    fn may_go_on(self, at: Avma, returns: bool) -> bool {
        match self {
            Self::At(onward) => onward.has(at),
            Self::ByJump => !returns,
            Self::ByReturn(to) => at == to || !returns,
            Self::Anywhere => true,
        }
    }
}

/// A step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It begins to handle a signal.
    Handler(Came),
    /// It executes a block from here.
    Block(Avma),
    /// It executes a block from here, where calls or system calls return to.
    AfterCall(Avma),
    /// It makes the system call, with this instruction.
    Sigreturn(Avma),
}

/// Where the handler in which the steps begin returns to with its `rt_sigreturn`; `own`: where it came.
///
/// Handlers within that never return (`siglongjmp`) hide which one is its own:
///
/// * It is no handler's that can not have come where it leads, if it may be that of one further out.
/// * If the handler may have come there, it is its own where the others do not decide.
/// * Any other that leads to where a handler `around` it came is that one's, and the handler never returns;
///   unless the innermost of those is the one that returns next.
pub(crate) fn goes_on_at(
    mut steps: impl Iterator<Item = Step>,
    own: Came,
    around: &[Onward],
) -> Option<Avma> {
    let is_next = |at| matches!(own, Came::At(next) if next.has(at));
    // Where the handlers came around which the thread is, its own first.
    let mut open = vec![own];
    let mut returning = None;
    let mut leads_to_next = None;
    while let Some(step) = steps.next() {
        match (step, returning.take()) {
            (Step::Handler(came), None) => open.push(came),
            // The next signal was pending: it has interrupted the same code.
            (Step::Handler(_), Some(_)) => (),
            (Step::Sigreturn(site), _) => returning = Some(site),
            (Step::Block(start) | Step::AfterCall(start), Some(site)) if site != start => {
                let returns = matches!(step, Step::AfterCall(_));
                let index = returned(&open, start, returns);
                if index == 0 {
                    if !matches!(own, Came::At(_)) && !own.may_go_on(start, returns) {
                        return None;
                    }
                    let may_be_another_s = !is_next(start) && around.iter().any(|came| came.has(start));
                    let own = Some(start).filter(|_| !may_be_another_s || returns_next(steps, around.last()));
                    return if is_next(start) { own } else { leads_to_next.or(own) };
                }
                let is_certain = matches!(open.get(index), Some(Came::At(_)));
                if is_next(start) && !is_certain && leads_to_next.is_none() {
                    leads_to_next = Some(start);
                }
                open.truncate(index);
            }
            // The system call was not done, and is made again; or no handler has returned.
            (Step::Block(_) | Step::AfterCall(_), _) => (),
        }
    }
    leads_to_next
}

/// The handler that came there, in which the steps begin, returns before any around it.
fn returns_next(steps: impl Iterator<Item = Step>, came: Option<&Onward>) -> bool {
    let leads_to = goes_on_at(steps, came.map_or(Came::Anywhere, |came| Came::At(*came)), &[]);
    came.zip(leads_to).is_some_and(|(came, leads_to)| came.has(leads_to))
}

/// Which of the open handlers has returned when control goes on at `start`: the innermost, unless that came
/// elsewhere. `returns`: calls or system calls return to there.
fn returned(open: &[Came], start: Avma, returns: bool) -> usize {
    let innermost = open.len().saturating_sub(1);
    let may_go_on = |came: &Came| came.may_go_on(start, returns);
    match open.last() {
        Some(came) if !may_go_on(came) => {
            let known = open.iter().rposition(|came| matches!(came, Came::At(at) if at.has(start)));
            known.or_else(|| open.iter().rposition(may_go_on)).unwrap_or(innermost)
        }
        _ => innermost,
    }
}

#[cfg(test)]
mod tests {
    use super::Came::{Anywhere, At};
    use super::Step::{Block, Sigreturn};
    use super::*;

    /// Nothing tells where it came.
    const HANDLER: Step = Step::Handler(Anywhere);
    const RESTORER: Step = Block(Avma(0x10));
    const RETURNS: Step = Sigreturn(Avma(0x15));
    const AGAIN: Step = Block(Avma(0x15));
    const X: Step = Block(Avma(0x100));
    const Y: Step = Block(Avma(0x200));

    const AT_X: Onward = Onward::only(Avma(0x100));
    const AT_Y: Onward = Onward::only(Avma(0x200));
    const AT_EITHER: Onward = Onward::either(Avma(0x100), Avma(0x200));

    #[track_caller]
    fn check(steps: &[Step], expect: Step) {
        let found = goes_on_at(steps.iter().copied(), Anywhere, &[]);
        assert_eq!(found.map(Block), Some(expect));
    }

    #[test]
    fn a_handler_returns_to_where_it_came() {
        check(&[Y, RESTORER, RETURNS, X, Y], X);
    }

    #[test]
    fn a_handler_within_returns_first() {
        check(&[Y, HANDLER, RESTORER, RETURNS, Y, RESTORER, RETURNS, X], X);
    }

    #[test]
    fn a_pending_signal_comes_first() {
        check(&[RESTORER, RETURNS, HANDLER, RESTORER, RETURNS, X], X);
    }

    #[test]
    fn a_return_that_a_signal_came_before_is_made_again() {
        check(&[RESTORER, RETURNS, HANDLER, RESTORER, RETURNS, AGAIN, RETURNS, X], X);
        // Of a handler within; and of both.
        let within = [HANDLER, RESTORER, RETURNS, HANDLER, RESTORER, RETURNS, AGAIN, RETURNS];
        let again = [Y, RESTORER, RETURNS, HANDLER, RESTORER, RETURNS, AGAIN, RETURNS, X];
        check(&[&within[..], &again].concat(), X);
        let twice = [RETURNS, HANDLER, RETURNS, HANDLER, RETURNS, AGAIN, RETURNS, AGAIN, RETURNS, X];
        check(&twice, X);
    }

    #[test]
    fn a_handler_that_never_returns_leads_nowhere() {
        assert_eq!(goes_on_at([Y, RESTORER, X].into_iter(), At(AT_X), &[]), None);
    }

    #[test]
    fn a_return_to_where_a_handler_around_it_came_is_that_one_s() {
        let found = |next, around| goes_on_at([Y, RESTORER, RETURNS, X].into_iter(), next, &[around]);
        assert_eq!((found(Anywhere, AT_X), found(Anywhere, AT_Y)), (None, Some(Avma(0x100))));
        assert_eq!(found(At(AT_X), AT_X), Some(Avma(0x100)));
    }

    #[test]
    fn a_handler_returns_where_one_around_it_came_too_if_the_innermost_returns_next() {
        // Random program 9431269: handlers came at `x`, then at `y`, then at `x` again.
        let found = |steps: &[Step]| goes_on_at(steps.iter().copied(), Anywhere, &[AT_X, AT_Y]);
        assert_eq!(found(&[RESTORER, RETURNS, X, RESTORER, RETURNS, Y]), Some(Avma(0x100)));
        let within = [HANDLER, RESTORER, RETURNS, X];
        let steps = [&[RESTORER, RETURNS, X], &within[..], &[RESTORER, RETURNS, Y]].concat();
        assert_eq!(found(&steps), Some(Avma(0x100)));
        // It never returns, nor does the one that came at `y`.
        assert_eq!(found(&[RESTORER, RETURNS, X, RESTORER, RETURNS, Block(Avma(0x300))]), None);
        assert_eq!(found(&[RESTORER, RETURNS, X]), None);
    }

    #[test]
    fn after_a_handler_that_never_returns_it_is_the_one_that_leads_to_either_side_of_a_jump() {
        // Random program 9300644: the handler came at a conditional jump, and one within never returned.
        let steps = [Y, HANDLER, RESTORER, RETURNS, X];
        assert_eq!(goes_on_at(steps.into_iter(), At(AT_EITHER), &[]), Some(Avma(0x100)));
        let elsewhere = [Y, HANDLER, RESTORER, RETURNS, Block(Avma(0x300))];
        assert_eq!(goes_on_at(elsewhere.into_iter(), At(AT_EITHER), &[]), None);
    }

    #[test]
    fn a_handler_within_that_came_there_is_the_one_that_returns() {
        // A loop at which both came: the handler itself went on to the other side of its jump.
        let within = Step::Handler(At(AT_EITHER));
        let steps = [Y, within, RESTORER, RETURNS, X, RESTORER, RETURNS, Y];
        assert_eq!(goes_on_at(steps.into_iter(), At(AT_EITHER), &[]), Some(Avma(0x200)));
    }

    #[test]
    fn a_handler_within_that_came_elsewhere_never_returns() {
        let steps = [Y, Step::Handler(At(AT_Y)), RESTORER, RETURNS, X];
        assert_eq!(goes_on_at(steps.into_iter(), Anywhere, &[]), Some(Avma(0x100)));
        // Of two around it, the one that came there.
        let steps = [Y, HANDLER, Step::Handler(At(AT_Y)), RESTORER, RETURNS, X];
        assert_eq!(goes_on_at(steps.into_iter(), At(AT_X), &[]), Some(Avma(0x100)));
        assert_eq!(goes_on_at(steps.into_iter(), Anywhere, &[]), None);
    }

    #[test]
    fn a_handler_within_that_came_after_a_jump_goes_on_after_no_call() {
        // Random program 9400404: the handler came after a return, and one within never returned.
        let within = Step::Handler(Came::ByJump);
        let found = |last| goes_on_at([Y, within, RESTORER, RETURNS, last].into_iter(), Anywhere, &[]);
        assert_eq!(found(Step::AfterCall(Avma(0x100))), Some(Avma(0x100)));
        assert_eq!(found(X), None);
    }

    #[test]
    fn after_a_handler_that_never_returns_it_is_the_one_that_leads_where_the_code_must_go() {
        let steps = [Y, HANDLER, Y, HANDLER, RESTORER, RETURNS, Y, RESTORER, RETURNS, X];
        let found = |next| goes_on_at(steps.iter().copied(), next, &[]);
        assert_eq!((found(Anywhere), found(At(AT_X))), (None, Some(Avma(0x100))));
        // The handlers around it return, too.
        let later = [RESTORER, RETURNS, Y, RESTORER, RETURNS, Y];
        let steps = steps.into_iter().chain(later);
        assert_eq!(goes_on_at(steps, At(AT_X), &[]), Some(Avma(0x100)));
    }

    #[test]
    fn a_handler_does_not_return_where_no_branch_led() {
        // Random program 9916915: handlers came at a switch and at a return, and never returned.
        let found = |own, last| goes_on_at([Y, RESTORER, RETURNS, last].into_iter(), own, &[]);
        let after_call = Step::AfterCall(Avma(0x100));
        assert_eq!((found(Came::ByJump, X), found(Came::ByJump, after_call)), (Some(Avma(0x100)), None));
        let by_return = |to| Came::ByReturn(Avma(to));
        assert_eq!(
            (found(by_return(0x100), after_call), found(by_return(0x200), after_call)),
            (Some(Avma(0x100)), None)
        );
        assert_eq!(found(by_return(0x200), X), Some(Avma(0x100)));
    }
}
