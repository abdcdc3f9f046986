//! Rounds of reading: up to when all buffers have been read, whichever thread reads which.
//!
//! ```text
//! drain 1   |--pass--|--pass--|   |--pass--|
//! drain 2   |------pass------|--pass--|
//! rounds    |----------------|--------------|
//! ```
//! A round is over when each drain has ended a pass that began in it: what was in a ring when it began is
//! in the file by then.  A recorder that is killed leaves a file which has more of one CPU than of another;
//! readers trust it up to the last round.

use std::sync::{Mutex, MutexGuard, PoisonError};

use model::Ns;

/// The rounds of all drains.
#[derive(Debug)]
pub(crate) struct Rounds(Mutex<Round>);

/// The round that goes on.
#[derive(Clone, Copy, Debug)]
struct Round {
    drains: usize,
    number: u64,
    begun: Ns,
    /// When the one before began.
    before: Ns,
    done: usize,
}

/// A drain's share in the rounds.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// The round in which its pass began.
    began_in: u64,
    /// The last round that it has a whole pass in.
    done_in: u64,
}

impl Rounds {
    /// The first round begins at `now`.
    pub(crate) fn new(now: Ns) -> Self {
        Self(Mutex::new(Round { drains: 0, number: 1, begun: now, before: now, done: 0 }))
    }

    /// One more drain, before any has read.
    pub(crate) fn join(&self) -> Turn {
        self.round().drains += 1;
        Turn::default()
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A drain begins a pass.
    pub(crate) fn begin(&self, turn: &mut Turn) {
        turn.began_in = self.round().number;
    }

    /// It has ended, and all that it has read is in the file.  If that ends the round: up to when
    /// everything is there.  That is the begin of the round before, as the kernel makes a record visible a
    /// little after its time.
    pub(crate) fn end(&self, turn: &mut Turn, now: impl FnOnce() -> Ns) -> Option<Ns> {
        let mut round = self.round();
        if turn.began_in != round.number || turn.done_in == round.number {
            return None;
        }
        turn.done_in = round.number;
        round.done += 1;
        if round.done < round.drains {
            return None;
        }
        let complete = round.before;
        *round = Round { number: round.number + 1, begun: now(), before: round.begun, done: 0, ..*round };
        Some(complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_when_each_drain_has_a_whole_pass_in_it() {
        let rounds = Rounds::new(Ns(100));
        let [mut one, mut two] = [rounds.join(), rounds.join()];
        let pass = |turn: &mut Turn, now| {
            rounds.begin(turn);
            rounds.end(turn, || Ns(now))
        };
        assert_eq!((pass(&mut one, 110), pass(&mut one, 120)), (None, None), "the other one has not");
        assert_eq!(pass(&mut two, 130), Some(Ns(100)), "nothing was read before");
        rounds.begin(&mut one);
        assert_eq!(pass(&mut two, 140), None);
        assert_eq!(rounds.end(&mut one, || Ns(150)), Some(Ns(100)));
        // It began in a round that is over.
        rounds.begin(&mut two);
        assert_eq!((pass(&mut one, 160), rounds.end(&mut two, || Ns(170))), (None, Some(Ns(130))));
        assert_eq!((pass(&mut one, 180), pass(&mut two, 190)), (None, Some(Ns(150))));
    }
}
