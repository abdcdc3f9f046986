//! What lies between two anchors.
//!
//! For the time `t` of a slot at `c` cycles behind the anchor A:
//!
//! ```text
//!  A ----- c cycles ----- t ----- rest ----- B            bounds of the cycles' length: see `core`
//!     t in [A + min(c), A + max(c)]                         max is unbounded once tracing was off in
//!     t in [B - max(rest), B - min(rest)]                   between (the core may have slept)
//! ```
//!
//! The estimate scales c so that c + rest is the measured B - A; where tracing was off in between, it counts from the
//! anchor on its own side.  Without CYC the number of branches stands in for cycles in the estimate, and the anchors
//! alone are the bounds.

use std::num::NonZeroU64;

use model::{ClockBehind, EventTime, Tsc, TscClock};

use super::core::{Measured, Multiples, Range};
use super::ticks::{self, FRACTION, Ticks};

/// Counts of cycles saturate here, so that sums of them, as ticks, cannot overflow.
const MAX_CYCLES: u64 = 1 << 62;

/// A place in the stream at which the TSC is known: from `lo` to `hi`, with fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor<T = u128> {
    pub(super) lo: T,
    pub(super) hi: T,
}

impl Anchor {
    pub(super) fn exact(Tsc(tsc): Tsc) -> Self {
        let at = u128::from(tsc) << FRACTION;
        Self { lo: at, hi: at }
    }

    /// The same, counted from `origin`, which is before it; none if that is too far.
    fn since(self, origin: Tsc) -> Option<Anchor<u64>> {
        let origin = Anchor::exact(origin).lo;
        let since = |at: u128| u64::try_from(at.checked_sub(origin)?).ok().filter(|&at| at < 2 * ROOM);
        Some(Anchor { lo: since(self.lo)?, hi: since(self.hi)? })
    }
}

impl<T: Ticks> Anchor<T> {
    /// The best guess: a tick's rounding on both sides, and packets are rarely late.
    #[inline]
    pub(super) fn best(self) -> T {
        self.lo + (self.hi - self.lo).half().min(T::ONE)
    }
}

/// What passed since the last anchor, as far as it was counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    /// At most this many core cycles, breaks apart (without CYC: branches).
    pub(super) most: u64,
    pub(super) doubt: Doubt,
}

/// What is not certain of a [`Span`].  It seldom changes from one packet to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Doubt {
    /// So many of the cycles may have passed before the anchor.
    cycles: u64,
    /// How often an unknown time passed in between: tracing was off, or packets were lost.
    pub(super) breaks: u32,
}

impl Doubt {
    /// Some of these cycles, nobody knows how many, lie before the anchor.
    pub(super) fn add_cycles(&mut self, cycles: u64) {
        self.cycles = self.cycles.saturating_add(cycles).min(MAX_CYCLES);
    }
}

impl Span {
    #[inline]
    pub(super) fn add_cycles(&mut self, cycles: u64) {
        self.most = self.most.saturating_add(cycles).min(MAX_CYCLES);
    }

    /// So many cycles have passed by now.
    #[inline]
    pub(super) fn reaches(&mut self, most: u64) {
        self.most = most.min(MAX_CYCLES);
    }

    /// At least this many core cycles.
    #[inline]
    pub(super) fn least(&self) -> u64 {
        self.most.saturating_sub(self.doubt.cycles)
    }
}

/// Two anchors, and what happened between them.
pub(super) struct Interval {
    pub(super) left: Anchor,
    pub(super) right: Anchor,
    pub(super) all: Span,
    /// What CBR packets say about it.
    pub(super) cbr: Option<Multiples>,
    pub(super) measured: Option<Measured>,
    /// Time passed in it that cycles do not account for, nobody knows where.
    pub(super) stalls: bool,
    /// How long a cycle is, once that is settled, if it is known.
    cycle: Option<Range>,
    near: Option<Near>,
}

/// An interval's ends in 64 bits: from [`ROOM`] and less than a tick more before its left one, so that nothing in it is less
/// than 0.
#[derive(Clone, Copy)]
struct Near {
    left: Anchor<u64>,
    right: Anchor<u64>,
    clock: ClockBehind,
}

/// What most intervals come down to: tracing was never off in between, and cycles account for all of the time.  Then all bounds
/// are lines over the cycles that have passed, and nothing in them overflows, as all cycles are shorter than [`ROOM`], and the
/// anchors behind that.
#[derive(Clone, Copy)]
pub(super) struct Regular {
    /// The shortest and the longest cycle.
    low: i64,
    high: i64,
    /// So many of the cycles may have passed before the anchor.
    doubt: u64,
    /// What bounds a slot at once, and what does with the cycles from the left anchor to it, short and long ones.
    lo: i64,
    lo_and_short: i64,
    lo_and_long: i64,
    hi: i64,
    hi_and_short: i64,
    hi_and_long: i64,
    /// What [`Interval::point`] shares out among so many cycles, from where on.
    best: u64,
    span: u64,
    most: NonZeroU64,
    clock: ClockBehind,
}

impl Regular {
    /// The time of a slot, so many cycles at most behind the left anchor; none if packets contradict each other.
    #[inline(always)]
    pub(super) fn time(&self, most: u64) -> Option<EventTime> {
        let short = most.saturating_sub(self.doubt) as i64 * self.low;
        let long = most as i64 * self.high;
        let lo = self.lo.max(self.lo_and_short + short).max(self.lo_and_long + long);
        let hi = self.hi.min(self.hi_and_short + short).min(self.hi_and_long + long);
        let point = (self.best + self.span * most / self.most) as i64;
        (lo <= hi).then(|| to_time(&self.clock, lo as u64, point.clamp(lo, hi) as u64, hi as u64))
    }
}

/// The times of bounds and an estimate between them, in ticks with fraction.
#[inline(always)]
fn to_time(clock: &ClockBehind, lo: u64, point: u64, hi: u64) -> EventTime {
    let up = hi + (u64::ONE - 1);
    let [lo, point, hi] = [lo, point, up].map(|ticks| clock.to_ns(ticks >> FRACTION));
    EventTime { lo, point, hi }
}

/// Intervals and their cycles are shorter than this where 64 bits do: some tenths of a second.
const ROOM: u64 = 1 << (30 + FRACTION);

/// Bounds and estimate of a time, in ticks with fraction.
struct Bounds<T> {
    lo: T,
    point: T,
    hi: T,
    /// The packets contradict each other.
    contradict: bool,
}

impl Interval {
    /// Of which nothing is settled yet.
    pub(super) fn new(
        left: Anchor,
        right: Anchor,
        all: Span,
        cbr: Option<Multiples>,
        measured: Option<Measured>,
    ) -> Self {
        Self { left, right, all, cbr, measured, stalls: false, cycle: None, near: None }
    }

    /// How long a cycle is, is settled.
    pub(super) fn settle(&mut self, cycle: Option<Range>, unseen: u64, conversion: TscClock) {
        self.cycle = cycle;
        self.near = self.near(unseen, conversion);
    }

    /// None if it does not fit 64 bits, or is so near to the TSC's 0 that times could be less.
    fn near(&self, unseen: u64, conversion: TscClock) -> Option<Near> {
        let origin = ticks::floor(self.left.lo.checked_sub(ROOM.into())?);
        let cycles = self.all.most.checked_add(unseen)?;
        let longest = cycles.checked_mul(self.cycle.map_or(1, |cycle| cycle.high))?;
        let (left, right) = (self.left.since(origin)?, self.right.since(origin)?);
        let clock = conversion.behind(origin, (4 * ROOM) >> FRACTION)?;
        (longest < ROOM).then_some(Near { left, right, clock })
    }

    /// How the times of slots follow that are up to `last` behind the left anchor, if it is such a one.
    pub(super) fn regular(&self, last: Span, unseen: u64) -> Option<Regular> {
        let &Near { left, right, clock } = self.near.as_ref()?;
        let is_regular = self.all.doubt.breaks == 0 && !self.stalls;
        let Range { low, high } = self.cycle.filter(|_| is_regular)?;
        let fits = last.most <= self.all.most && last.doubt == self.all.doubt;
        let best = left.best();
        let span = right.best().saturating_sub(best);
        span.checked_mul(self.all.most).filter(|_| fits)?;
        // Anchors are behind twice ROOM at most, and all cycles are shorter: 64 bits with a sign have room for their sums.
        let [left_lo, left_hi, right_lo, right_hi] =
            [left.lo, left.hi, right.lo, right.hi].map(|at| at as i64);
        let [low, high, slack] = [low, high, unseen * high].map(|ticks| ticks as i64);
        let (most, least) = (self.all.most as i64, self.all.least() as i64);
        Some(Regular {
            low,
            high,
            doubt: self.all.doubt.cycles,
            lo: left_lo,
            lo_and_short: left_lo - slack,
            lo_and_long: right_lo - most * high - slack,
            hi: right_hi,
            hi_and_short: right_hi + slack - least * low,
            hi_and_long: left_hi + slack,
            best,
            span,
            most: NonZeroU64::new(self.all.most)?,
            clock,
        })
    }

    /// All its cycles do not fit between its anchors.
    pub(super) fn contradicts(&self, unseen: u64) -> bool {
        match &self.near {
            Some(near) => self.bounds(near.left, near.right, self.all, unseen).contradict,
            None => self.bounds(self.left, self.right, self.all, unseen).contradict,
        }
    }

    /// The time of a slot `since` behind the left anchor.
    pub(super) fn time(&self, since: Span, unseen: u64, conversion: TscClock) -> EventTime {
        match &self.near {
            Some(Near { left, right, clock }) => {
                let Bounds { lo, point, hi, .. } = self.bounds(*left, *right, since, unseen);
                to_time(clock, lo, point, hi)
            }
            None => {
                let Bounds { lo, point, hi, .. } = self.bounds(self.left, self.right, since, unseen);
                let ns = |ticks: u128| conversion.to_ns(ticks::floor(ticks));
                EventTime { lo: ns(lo), point: ns(point), hi: conversion.to_ns(ticks::ceil(hi)) }
            }
        }
    }

    /// Of a slot `since` behind the left anchor.
    fn bounds<T: Ticks>(&self, left: Anchor<T>, right: Anchor<T>, since: Span, unseen: u64) -> Bounds<T> {
        let (cycle, all) = (self.cycle, self.all);
        let (mut lo, mut hi, mut contradict) = (left.lo, right.hi, false);
        if let Some(cycle) = cycle {
            let slack = T::of(unseen, cycle.high);
            let rest_min = T::of(all.least().saturating_sub(since.least()), cycle.low);
            lo = lo.max((left.lo + T::of(since.least(), cycle.low)).saturating_sub(slack));
            hi = hi.min((right.hi + slack).saturating_sub(rest_min));
            let most = left.hi + T::of(since.most, cycle.high) + slack;
            if since.doubt.breaks == 0 && !self.stalls {
                hi = hi.min(most);
            }
            if since.doubt.breaks == all.doubt.breaks && !self.stalls {
                let rest_max = T::of(all.most.saturating_sub(since.most), cycle.high);
                lo = lo.max(right.lo.saturating_sub(rest_max + slack));
            }
            contradict = lo > hi;
            if contradict {
                // An anchor or the cycles are wrong: what either says is possible.
                (lo, hi) = (left.lo, right.hi.max(most));
            }
        }
        Bounds { lo, point: self.point(left.best(), right.best(), since).clamp(lo, hi), hi, contradict }
    }

    #[inline]
    fn point<T: Ticks>(&self, left: T, right: T, since: Span) -> T {
        let all = self.all;
        match self.cycle.map(Range::middle) {
            Some(length) if all.doubt.breaks != 0 && since.doubt.breaks == all.doubt.breaks => {
                right.saturating_sub(T::of(all.most.saturating_sub(since.most), length))
            }
            Some(length) if all.doubt.breaks != 0 => left + T::of(since.most, length),
            _ => left + right.saturating_sub(left).part(since.most, all.most.max(1)),
        }
    }
}

/// A time that no anchor follows; `hi` is open if nothing bounds it.
pub(super) struct Open {
    pub(super) lo: u128,
    pub(super) point: u128,
    pub(super) hi: Option<u128>,
}

/// Of a slot `since` behind the last anchor.
pub(super) fn behind(anchor: Anchor, since: Span, cycle: Option<Range>, unseen: u64) -> Open {
    let Some(cycle) = cycle else { return Open { lo: anchor.lo, point: anchor.lo, hi: None } };
    let slack = u128::of(unseen, cycle.high);
    let lo = anchor.lo + u128::of(since.least(), cycle.low).saturating_sub(slack);
    let hi = anchor.hi + u128::of(since.most, cycle.high) + slack;
    let point = anchor.best() + u128::of(since.most, cycle.middle());
    Open { lo, point, hi: (since.doubt.breaks == 0).then_some(hi) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However many bits do.
        #[test]
        fn near_bounds_are_those_of_any_interval(
            tsc in 1_u64 << 33..1 << 50,
            lens in [0_u64..1 << 20, 0..1 << 34, 0..1 << 20],
            all in 1_u64..1 << 27,
            (since, straddle) in (0_u64..=1 << 27, 0_u64..100),
            (breaks, all_breaks) in (0_u32..2, 0_u32..3),
            cycle in proptest::option::of((1_u64..1 << 18, 0_u64..1 << 12)),
            stalls: bool,
        ) {
            let left = u128::from(tsc) << FRACTION;
            let right = left + u128::from(lens[1]);
            let anchor = |lo: u128, len: u64| Anchor { lo, hi: lo + u128::from(len) };
            let span = |most: u64, breaks: u32| Span { most, doubt: Doubt { cycles: straddle.min(most), breaks } };
            let all = span(all, all_breaks);
            let mut interval =
                Interval::new(anchor(left, lens[0]), anchor(right, lens[2]), all, None, None);
            interval.stalls = stalls;
            let clock = TscClock { shift: 31, mult: 715_827_883, zero: 1_000_000 };
            interval.settle(cycle.map(|(low, more)| Range { low, high: low + more }), 2, clock);
            let since = span(since.min(all.most), breaks.min(all_breaks));
            let near = (interval.time(since, 2, clock), interval.contradicts(2));
            let regular = interval.regular(since, 2);
            let is_plain = !stalls && all.doubt.breaks == 0 && since.doubt == all.doubt;
            prop_assert_eq!(regular.is_some(), is_plain && cycle.is_some());
            if let Some(time) = regular.and_then(|regular| regular.time(since.most)) {
                prop_assert_eq!(time, near.0);
            }
            prop_assert!(interval.near.take().is_some());
            let far = (interval.time(since, 2, clock), interval.contradicts(2));
            prop_assert_eq!(near, far);
        }
    }
}
