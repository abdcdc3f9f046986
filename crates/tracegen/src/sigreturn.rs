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

/// A step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It begins to handle a signal.
    Handler,
    /// It executes a block from here.
    Block(Avma),
    /// It makes the system call, with this instruction.
    Sigreturn(Avma),
}

/// Where the `rt_sigreturn` of the handler leads in which the steps begin.
///
/// Handlers within that never return (`siglongjmp`) hide which one is its own. If the code has nowhere to go
/// on but `next`, it is one that leads there. Any other that leads to where a handler `around` it came is
/// that one's, and the handler never returns.
pub(crate) fn goes_on_at(
    steps: impl Iterator<Item = Step>,
    next: Option<Avma>,
    around: &[Avma],
) -> Option<Avma> {
    // Handlers around which the thread is, of those that were entered since; -1: the first one has made its
    // system call.
    let mut nested = 0i64;
    let mut returning = None;
    let mut leads_to_next = false;
    for step in steps {
        match step {
            Step::Handler => nested += 1,
            Step::Sigreturn(site) => {
                nested -= 1;
                returning = Some(site);
                continue;
            }
            Step::Block(start) if returning == Some(start) => nested += 1, // it was not done, and is made again
            Step::Block(start) if returning.is_some() && nested < 0 => {
                let is_another_s = next != Some(start) && around.contains(&start);
                return next.filter(|_| leads_to_next).or((!is_another_s).then_some(start));
            }
            Step::Block(start) => leads_to_next |= returning.is_some() && next == Some(start),
        }
        returning = None;
    }
    next.filter(|_| leads_to_next)
}

#[cfg(test)]
mod tests {
    use super::Step::{Block, Handler, Sigreturn};
    use super::*;

    const RESTORER: Step = Block(Avma(0x10));
    const RETURNS: Step = Sigreturn(Avma(0x15));
    const AGAIN: Step = Block(Avma(0x15));
    const X: Step = Block(Avma(0x100));
    const Y: Step = Block(Avma(0x200));

    #[track_caller]
    fn check(steps: &[Step], expect: Step) {
        let found = goes_on_at(steps.iter().copied(), None, &[]);
        assert_eq!(found.map(Block), Some(expect));
    }

    #[test]
    fn a_handler_returns_to_where_it_came() {
        check(&[Y, RESTORER, RETURNS, X, Y], X);
    }

    #[test]
    fn a_handler_within_returns_first() {
        check(&[Y, Handler, RESTORER, RETURNS, Y, RESTORER, RETURNS, X], X);
    }

    #[test]
    fn a_pending_signal_comes_first() {
        check(&[RESTORER, RETURNS, Handler, RESTORER, RETURNS, X], X);
    }

    #[test]
    fn a_return_that_a_signal_came_before_is_made_again() {
        check(&[RESTORER, RETURNS, Handler, RESTORER, RETURNS, AGAIN, RETURNS, X], X);
        // Of a handler within; and of both.
        let within = [Handler, RESTORER, RETURNS, Handler, RESTORER, RETURNS, AGAIN, RETURNS];
        let again = [Y, RESTORER, RETURNS, Handler, RESTORER, RETURNS, AGAIN, RETURNS, X];
        check(&[&within[..], &again].concat(), X);
        let twice = [RETURNS, Handler, RETURNS, Handler, RETURNS, AGAIN, RETURNS, AGAIN, RETURNS, X];
        check(&twice, X);
    }

    #[test]
    fn a_handler_that_never_returns_leads_nowhere() {
        assert_eq!(goes_on_at([Y, RESTORER, X].into_iter(), Some(Avma(0x100)), &[]), None);
    }

    #[test]
    fn a_return_to_where_a_handler_around_it_came_is_that_one_s() {
        let found = |next, around| goes_on_at([Y, RESTORER, RETURNS, X].into_iter(), next, &[around]);
        let (at, elsewhere) = (Avma(0x100), Avma(0x200));
        assert_eq!((found(None, at), found(None, elsewhere)), (None, Some(at)));
        assert_eq!(found(Some(at), at), Some(at));
    }

    #[test]
    fn after_a_handler_that_never_returns_it_is_the_one_that_leads_where_the_code_must_go() {
        let steps = [Y, Handler, Y, Handler, RESTORER, RETURNS, Y, RESTORER, RETURNS, X];
        let found = |next| goes_on_at(steps.iter().copied(), next, &[]);
        assert_eq!((found(None), found(Some(Avma(0x100)))), (None, Some(Avma(0x100))));
        // The handlers around it return, too.
        let later = [RESTORER, RETURNS, Y, RESTORER, RETURNS, Y];
        let steps = steps.into_iter().chain(later);
        assert_eq!(goes_on_at(steps, Some(Avma(0x100)), &[]), Some(Avma(0x100)));
    }
}
