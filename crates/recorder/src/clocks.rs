//! What perf's clock is in others.

use model::{Ns, Tsc, TscClock};
use perfdata::write::ClockSample;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::sys::tsc;

/// Tries, of which the narrowest is taken: one that was interrupted is wide.
const TRIES: usize = 8;

/// All three clocks now: the middle of the narrowest pair of TSC values that has the two others between it.
pub(crate) fn sample(clock: TscClock) -> ClockSample {
    let once = || {
        let before = tsc();
        let (monotonic, real) = (clock_gettime(ClockId::Monotonic), clock_gettime(ClockId::Realtime));
        let width = tsc().0.saturating_sub(before.0);
        let time = clock.to_ns(Tsc(before.0 + width / 2));
        (width, ClockSample { time, monotonic_ns: ns(monotonic), realtime_ns: ns(real) })
    };
    let best =
        (1..TRIES).map(|_| once()).fold(once(), |best, next| if next.0 < best.0 { next } else { best });
    best.1
}

/// Perf's clock and `CLOCK_MONOTONIC` at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) perf: Ns,
    pub(crate) monotonic_ns: u64,
    /// It was the same instant to within so much.
    pub(crate) apart_ns: u64,
}

/// Both clocks now: the narrowest of some pairs of TSC values around the other clock's.
pub(crate) fn pair(clock: TscClock) -> Pair {
    let once = || {
        let before = tsc();
        let monotonic_ns = ns(clock_gettime(ClockId::Monotonic));
        let width = tsc().0.saturating_sub(before.0);
        let perf = clock.to_ns(Tsc(before.0 + width / 2));
        Pair { perf, monotonic_ns, apart_ns: perf.since(clock.to_ns(before)) + 1 }
    };
    (1..TRIES).map(|_| once()).fold(
        once(),
        |best, next| {
            if next.apart_ns < best.apart_ns { next } else { best }
        },
    )
}

/// Perf's clock now.
#[must_use]
pub fn now(clock: TscClock) -> Ns {
    clock.to_ns(tsc())
}

/// What perf's clock was at a time of `CLOCK_MONOTONIC` that has just passed.
#[must_use]
pub fn at_monotonic(clock: TscClock, time: Ns) -> Ns {
    let Pair { perf, monotonic_ns, .. } = pair(clock);
    Ns((perf.0.saturating_add(time.0)).saturating_sub(monotonic_ns))
}

fn ns(time: Timespec) -> u64 {
    u64::try_from(i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_on() {
        let clock = TscClock { shift: 0, mult: 1, zero: 0 };
        let (first, second) = (sample(clock), sample(clock));
        assert!(first.time < second.time && second.time < now(clock));
        assert!(first.monotonic_ns < second.monotonic_ns);
        let pair = pair(clock);
        assert!(pair.apart_ns > 0 && second.monotonic_ns < pair.monotonic_ns);
        assert!(second.time < pair.perf && pair.perf < now(clock));
        let joined = at_monotonic(clock, Ns(second.monotonic_ns));
        assert!(first.time < joined && joined < now(clock), "{joined:?}");
        assert!(first.realtime_ns > 1_500_000_000_000_000_000);
    }
}
