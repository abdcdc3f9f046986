//! When the children of functions are probed, too.
//!
//! ```text
//!   | children  |  asked alone        | children  |  asked alone        | ...
//!   |<------------- round ----------->|
//! ```
//! What is probed inside a call makes it longer, so that its latency is taken where nothing is.  Both are
//! turns of each second, so that both see the same load; where to place and remove probes takes long, rounds
//! are longer, and at last there is one.  A window that may last for days has rounds of ten seconds, with
//! children for as long as in one of a second.

use std::time::Duration;

/// A round is at least so long, if the window is.
const LEAST: Duration = Duration::from_secs(1);

/// The first round where it is not known how long the window will be.
const FIRST: Duration = Duration::from_millis(150);

/// A round of a window that may last for days.
pub(super) const LONGEST_ROUND: Duration = Duration::from_secs(10);

/// Of a round, what it takes to place and remove the probes of children: at most.
const SWITCHES: u32 = 10;

/// Of a round, what children are probed for.
const CHILDREN: u32 = 3;

/// How often children get their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounds {
    /// Each second.
    Often,
    /// Each ten seconds, less briefly at first.
    Seldom,
    /// They have it all the time.
    Always,
}

/// One round; both times are since the window's begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// When children are left alone.
    pub(super) children_until: Duration,
    /// When it ends.
    pub(super) until: Duration,
}

impl Round {
    /// What is left of it when the probes of children are there.
    pub(super) fn from(self, elapsed: Duration, rounds: Rounds) -> Self {
        let left = self.until.saturating_sub(elapsed);
        Self { children_until: elapsed + children_of(left, rounds), ..self }
    }
}

/// The rounds of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    rounds: Rounds,
    /// How long it is; `None`: that is not known, or does not matter.
    window: Option<Duration>,
    /// The next round, if how long the window will be is not known.
    next: Duration,
}

impl Turns {
    /// Of a window; `None`: until the program ends.
    pub(super) fn new(window: Option<Duration>, rounds: Rounds) -> Self {
        Self { rounds, window: window.filter(|_| rounds == Rounds::Often), next: FIRST }
    }

    /// The first round.
    pub(super) fn first(&mut self) -> Round {
        if self.rounds == Rounds::Always {
            return Round { children_until: Duration::MAX, until: Duration::MAX };
        }
        let Some(window) = self.window else { return self.of(Duration::ZERO, self.next) };
        self.of(Duration::ZERO, window / rounds(window, LEAST).max(1))
    }

    /// The round that begins now, if there is time for one more; `switch`: what it took to place the probes
    /// and to remove them.
    pub(super) fn after(&mut self, elapsed: Duration, switch: Duration) -> Option<Round> {
        let switches = switch * SWITCHES;
        let Some(window) = self.window else { return Some(self.of(elapsed, self.next.max(switches))) };
        let left = window.saturating_sub(elapsed);
        let rounds = rounds(left, LEAST.max(switches));
        (rounds > 0).then(|| self.of(elapsed, left / rounds))
    }

    fn of(&mut self, begin: Duration, length: Duration) -> Round {
        let longest = if self.rounds == Rounds::Seldom { LONGEST_ROUND } else { LEAST };
        self.next = (length * 2).min(longest);
        Round { children_until: begin + children_of(length, self.rounds), until: begin + length }
    }
}

/// How long children are probed in a round.
fn children_of(round: Duration, rounds: Rounds) -> Duration {
    let round = if rounds == Rounds::Seldom { round.min(LEAST) } else { round };
    round / CHILDREN
}

fn rounds(time: Duration, each: Duration) -> u32 {
    // Where the last one ends a little late, it is still one.
    u32::try_from((time + each / 20).as_nanos() / each.as_nanos()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn round(children_until: u64, until: u64) -> Round {
        Round { children_until: ms(children_until), until: ms(until) }
    }

    #[test]
    fn each_second_is_a_round_where_switching_is_cheap() {
        let mut turns = Turns::new(Some(ms(3000)), Rounds::Often);
        assert_eq!(turns.first(), round(333, 1000).rounded(&turns.first()));
        let second = turns.after(ms(1000), ms(60)).unwrap();
        assert_eq!((second.until, second.children_until > ms(1300)), (ms(2000), true));
        assert_eq!(turns.after(ms(2010), ms(60)).unwrap().until, ms(3000));
        assert_eq!(turns.after(ms(2990), ms(60)), None);
    }

    #[test]
    fn where_switching_is_dear_there_is_one_round() {
        let mut turns = Turns::new(Some(ms(10_000)), Rounds::Often);
        assert_eq!(turns.first().until, ms(1000));
        assert_eq!(turns.after(ms(1000), ms(1500)), None);
        assert_eq!(turns.after(ms(1000), ms(400)).unwrap().until, ms(5500), "two of 4.5 s");
    }

    #[test]
    fn a_short_window_is_one_round() {
        assert_eq!(Turns::new(Some(ms(300)), Rounds::Often).first(), round(100, 300));
    }

    #[test]
    fn rounds_grow_where_the_end_is_not_known() {
        let mut turns = Turns::new(None, Rounds::Often);
        assert_eq!(turns.first(), round(50, 150));
        let lengths = [150, 450, 1050, 2050].map(|at| turns.after(ms(at), ms(10)).unwrap().until - ms(at));
        assert_eq!(lengths, [300, 600, 1000, 1000].map(ms));
    }

    #[test]
    fn children_of_a_watch_have_a_third_of_a_second_in_ten() {
        let mut turns = Turns::new(None, Rounds::Seldom);
        assert_eq!(turns.first(), round(50, 150));
        let next = |turns: &mut Turns, at| {
            let next = turns.after(ms(at), ms(10)).unwrap();
            (next.until - ms(at), (next.children_until - ms(at)).as_millis())
        };
        let rounds = [150, 450, 1050, 2250, 4650, 9450, 19_050].map(|at| next(&mut turns, at));
        let lengths = [300, 600, 1200, 2400, 4800, 9600, 10_000].map(ms);
        let children = [100, 200, 333, 333, 333, 333, 333];
        assert_eq!(rounds.to_vec(), lengths.into_iter().zip(children).collect::<Vec<_>>());
    }

    #[test]
    fn where_children_are_always_probed_the_first_round_has_no_end() {
        let first = Turns::new(Some(ms(10)), Rounds::Always).first();
        assert_eq!((first.children_until, first.until), (Duration::MAX, Duration::MAX));
    }

    impl Round {
        /// Thirds of a second are no whole milliseconds.
        fn rounded(self, of: &Self) -> Self {
            let near = |a: Duration, b: Duration| if a.abs_diff(b) < ms(1) { b } else { a };
            Self {
                children_until: near(self.children_until, of.children_until),
                until: near(self.until, of.until),
            }
        }
    }
}
