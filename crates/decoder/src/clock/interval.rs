//! What lies between two anchors.
//!
//! For the time `t` of a slot at `c` cycles after the anchor A:
//!
//! ```text
//!  A ----- c cycles ----- t ----- rest ----- B            bounds of the cycles' length: see `core`
//!     t in [A + min(c), A + max(c)]                         max is unbounded once tracing was off in
//!     t in [B - max(rest), B - min(rest)]                   between (the core may have slept)
//! ```
//!
//! The estimate scales c so that c + rest is the measured B - A; where tracing was off in between, it counts
//! from the anchor on its own side. Without CYC the number of branches stands in for cycles in the estimate,
//! and the anchors alone are the bounds.

use std::num::NonZeroU64;

use model::{ClockBehind, EventTime, Ns, TscClock};

use super::anchor::{Anchor, Kind, of_lag};
use super::core::{Measured, Multiples};
use super::range::Range;
use super::span::{Doubt, Span};
use super::ticks::{self, FRACTION};

/// Two anchors, and what happened between them.
pub(super) struct Interval {
    pub(super) left: Anchor,
    pub(super) right: Anchor,
    pub(super) all: Span,
    /// What CBR packets say about it.
    pub(super) cbr: Option<Multiples>,
    pub(super) measured: Option<Measured>,
    /// Time passed in it that cycles do not account for; where is not known.
    pub(super) stalls: bool,
    /// The anchors around it are still to be narrowed, and what follows fits its start.
    pub(super) narrowing: Option<bool>,
    /// How long a cycle is, once that is settled, if it is known.
    cycle: Option<Range>,
    /// The least lower bound of what follows the right anchor.
    after: u128,
}

/// What most parts of an interval come down to, up to its first break, after its last one, and between: all
/// bounds are lines over the cycles that have passed. 64 bits have room for them, counted from [`ROOM`] and
/// less than a tick more before the left anchor, so that nothing is less than 0: anchors are after twice
/// that at most, and all cycles are shorter.
#[derive(Clone, Copy)]
pub(super) struct Regular {
    /// The shortest and the longest cycle.
    low: i64,
    high: i64,
    /// The number of cycles that may have passed before the anchor.
    doubt: u64,
    /// What bounds a slot at once, and what does with the cycles from the left anchor to it, short and long
    /// ones: by [`FAR`] where nothing does.
    lo: i64,
    lo_and_short: i64,
    lo_and_long: i64,
    hi: i64,
    hi_and_short: i64,
    hi_and_long: i64,
    /// The upper limit of all lower bounds.
    ceiling: i64,
    /// The estimate `most` cycles after the left anchor: `point + span * most / shares`.
    point: i64,
    span: u64,
    shares: NonZeroU64,
    /// The estimate of the right anchor, which no estimate before it exceeds.
    right: i64,
    clock: ClockBehind,
}

impl Regular {
    /// The time of a slot at most `most` cycles after the left anchor.
    #[inline(always)]
    pub(super) fn time(&self, most: u64) -> EventTime {
        let (lo, hi) = (self.lo_ticks(most).min(self.ceiling), self.hi_ticks(most));
        EventTime {
            lo: self.ns(lo),
            point: self.ns(self.point_ticks(most).max(lo).min(hi)),
            hi: self.ns_up(hi),
        }
    }

    /// What it comes down to between these two numbers of cycles, if no estimate is outside of its bounds
    /// there, and what follows bounds nothing.
    ///
    /// ```text
    ///   hi     the least of some lines        lies above, as it does at both ends
    ///   point  one line
    ///   lo     the greatest of some lines     lies below, as it does at both ends
    /// ```
    pub(super) fn steady(&self, first: u64, last: u64) -> Option<Steady> {
        let holds = |most: u64| {
            let point_up = self.point.saturating_add((self.span * most).div_ceil(self.shares.get()) as i64);
            self.lo_ticks(most) <= self.point_ticks(most) && point_up <= self.hi_ticks(most)
        };
        let is_free = self.lo_ticks(last) <= self.ceiling && self.point_of_line(last) <= self.right;
        // With fewer cycles than that nothing is known of the shortest: no line.
        let is_steady = self.doubt <= first && holds(first) && holds(last) && is_free;
        let before = (self.doubt as i64).checked_mul(self.low).filter(|_| is_steady)?;
        let &Self { low, high, lo, lo_and_long, hi, hi_and_long, point, span, shares, clock, .. } = self;
        let (lo_and_short, hi_and_short) = (self.lo_and_short - before, self.hi_and_short - before);
        Some(Steady {
            low,
            high,
            lo: [lo, lo_and_short, lo_and_long],
            hi: [hi, hi_and_short, hi_and_long],
            point,
            span,
            shares,
            clock,
        })
    }

    #[inline(always)]
    fn lo_ticks(&self, most: u64) -> i64 {
        self.lo.max(self.lo_and_short + self.short(most)).max(self.lo_and_long + self.long(most))
    }

    #[inline(always)]
    fn hi_ticks(&self, most: u64) -> i64 {
        self.hi.min(self.hi_and_short + self.short(most)).min(self.hi_and_long + self.long(most))
    }

    #[inline(always)]
    fn point_ticks(&self, most: u64) -> i64 {
        self.point_of_line(most).min(self.right)
    }

    #[inline(always)]
    fn point_of_line(&self, most: u64) -> i64 {
        self.point + (self.span * most / self.shares) as i64
    }

    #[inline(always)]
    fn short(&self, most: u64) -> i64 {
        most.saturating_sub(self.doubt) as i64 * self.low
    }

    #[inline(always)]
    fn long(&self, most: u64) -> i64 {
        most as i64 * self.high
    }

    #[inline(always)]
    fn ns(&self, ticks: i64) -> Ns {
        self.clock.to_ns(ticks as u64 >> FRACTION)
    }

    #[inline(always)]
    fn ns_up(&self, ticks: i64) -> Ns {
        self.ns(ticks + (ticks::ONE as i64 - 1))
    }
}

/// The times of slots where each part of one follows without the others: [`Regular::steady`].
#[derive(Clone, Copy)]
pub(super) struct Steady {
    /// The shortest and the longest cycle.
    low: i64,
    high: i64,
    /// What bounds a slot at once, what does with the short cycles up to it, and what with the long ones.
    lo: [i64; 3],
    hi: [i64; 3],
    /// The estimate `most` cycles after the left anchor: `point + span * most / shares`.
    point: i64,
    span: u64,
    shares: NonZeroU64,
    clock: ClockBehind,
}

impl Steady {
    /// The lower bound of the time of a slot `most` cycles after the left anchor.
    #[inline(always)]
    pub(super) fn lo(&self, most: u64) -> Ns {
        let [at_once, short, long] = self.lo;
        self.ns(at_once.max(short + most as i64 * self.low).max(long + most as i64 * self.high))
    }

    /// The estimate.
    #[inline(always)]
    pub(super) fn point(&self, most: u64) -> Ns {
        self.ns(self.point + (self.span * most / self.shares) as i64)
    }

    /// The upper bound.
    #[inline(always)]
    pub(super) fn hi(&self, most: u64) -> Ns {
        let [at_once, short, long] = self.hi;
        let hi = at_once.min(short + most as i64 * self.low).min(long + most as i64 * self.high);
        self.ns(hi + (ticks::ONE as i64 - 1))
    }

    #[inline(always)]
    fn ns(&self, ticks: i64) -> Ns {
        self.clock.to_ns(ticks as u64 >> FRACTION)
    }
}

/// What of an interval is [`Regular`], and what differs from one part to another.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    /// Between its first break and its last one.
    between: Regular,
    all: Span,
    /// Up to the first one.
    hi_and_long: i64,
    /// After the last one.
    lo_and_long: i64,
    point: i64,
}

impl Lines {
    /// The rule for slots up to `last` after the left anchor, with its number of breaks; `None` if more
    /// than these lines decides their times.
    #[inline]
    pub(super) fn of(&self, last: Span) -> Option<Regular> {
        let Self { all, hi_and_long, lo_and_long, point, .. } = *self;
        if last.most > all.most || last.doubt.cycles != all.doubt.cycles {
            return None;
        }
        let mut regular = self.between;
        if last.doubt.breaks == 0 {
            regular.hi_and_long = hi_and_long;
        }
        if last.doubt.breaks == all.doubt.breaks {
            (regular.lo_and_long, regular.point) = (lo_and_long, point);
        }
        Some(regular)
    }
}

/// Intervals and their cycles are shorter than this where 64 bits do: some tenths of a second.
const ROOM: u64 = 1 << (30 + FRACTION);
/// Farther than any cycles lead.
const FAR: i64 = 4 * ROOM as i64;

impl Interval {
    /// Of which nothing is settled yet.
    pub(super) fn new(
        left: Anchor,
        right: Anchor,
        all: Span,
        cbr: Option<Multiples>,
        measured: Option<Measured>,
    ) -> Self {
        Self {
            left,
            right,
            all,
            cbr,
            measured,
            stalls: false,
            narrowing: None,
            cycle: None,
            after: u128::MAX,
        }
    }

    /// What follows the right anchor has lower bounds from `after` on. Returns the ceiling for the interval
    /// before this one, if lower bounds there may exceed it.
    #[inline]
    pub(super) fn set_after(&mut self, after: u128) -> Option<u128> {
        self.after = self.after.min(after);
        Some(self.ceiling()).filter(|ceiling| *ceiling < self.left.lo)
    }

    /// The upper limit of the lower bounds of all slots: the least lower bound of the right anchor and of
    /// what follows it. So the bounds of an event do not depend on which events before it are asked for.
    #[inline]
    fn ceiling(&self) -> u128 {
        self.right.lo.min(self.after)
    }

    /// How long a cycle is, is settled.
    pub(super) fn settle(&mut self, cycle: Option<Range>) {
        self.cycle = cycle;
    }

    /// What its times come down to; none if time passed that nothing accounts for, if its packets contradict
    /// each other, or if it does not fit.
    pub(super) fn lines(&self, unseen: u64, conversion: TscClock) -> Option<Lines> {
        let (Anchor { lo: start, hi: left_hi, .. }, right, all) = (self.left, self.right, self.all);
        let ceiling = self.ceiling();
        if self.stalls || self.contradicts(unseen) {
            return None;
        }
        let origin = ticks::floor(start.checked_sub(ROOM.into())?);
        let from = Anchor::exact(origin).lo;
        let cycle = self.cycle.unwrap_or(Range { low: 0, high: 0 });
        let fits = |ticks: Option<u64>| ticks.is_some_and(|ticks| ticks < ROOM);
        let longest = all.most.checked_add(unseen)?.checked_mul(cycle.high.max(1));
        if !fits(longest) {
            return None;
        }
        let behind = |at: u128| at.checked_sub(from).filter(|at| *at < (2 * ROOM).into()).map(|at| at as i64);
        let (left_lo, left, left_hi) = (behind(start)?, behind(self.left.best)?, behind(left_hi)?);
        let (right_lo, right, right_hi) = (behind(right.lo)?, behind(right.best)?, behind(right.hi)?);
        let ceiling = behind(ceiling)?;
        let (low, high, middle) = (cycle.low as i64, cycle.high as i64, cycle.middle() as i64);
        let (most, least, slack) = (all.most as i64, all.least() as i64, unseen as i64 * high);
        let is_cut = self.cycle.is_some() && all.doubt.breaks != 0;
        let (span, shares, after_last) = match is_cut {
            false => ((right - left).max(0), all.most.max(1), left),
            true => (middle, 1, right - most * middle),
        };
        (span as u64).checked_mul(all.most)?;
        let bound = |at: i64, far: i64| if self.cycle.is_some() { at } else { far };
        let between = Regular {
            low,
            high,
            doubt: all.doubt.cycles,
            lo: left_lo,
            lo_and_short: bound(left_lo - slack, -FAR),
            lo_and_long: -FAR,
            hi: right_hi,
            hi_and_short: bound(right_hi + slack - least * low, FAR),
            hi_and_long: FAR,
            ceiling,
            point: left,
            span: span as u64,
            shares: NonZeroU64::new(shares)?,
            right,
            clock: conversion.behind(origin, (4 * ROOM) >> FRACTION)?,
        };
        Some(Lines {
            between,
            all,
            hi_and_long: bound(left_hi + slack, FAR),
            lo_and_long: bound(right_lo - most * high - slack, -FAR),
            point: after_last,
        })
    }

    /// Bounds the lag of a TSC packet that this interval ends with, where `next` begins, and narrows the
    /// anchor that it starts with by its cycles and its end: what `next` leaves of that.  False if they
    /// contradict each other.  `cycle`: around it, where they do not say.
    pub(super) fn narrow_start(&mut self, next: Option<&Self>, cycle: Option<Range>, unseen: u64) -> bool {
        let around = [self.cycle, next.and_then(|next| next.cycle)].into_iter().flatten();
        let end = self.right.bounded(around.reduce(Range::hull).or(cycle));
        self.right = next.and_then(|next| end.within((next.left.lo, next.left.hi))).unwrap_or(end);
        let fits = self.left.kind == Kind::Final || self.narrow_start_by_end(cycle, unseen);
        self.right = end;
        fits
    }

    fn narrow_start_by_end(&mut self, cycle: Option<Range>, unseen: u64) -> bool {
        let wide = self.left.bounded(self.cycle.or(cycle));
        self.left = wide;
        let own = wide.within(self.bounds_by_cycles(Span::default(), unseen));
        // The estimate is the same whether or not a segment begins here, which does not know where its first
        // CYC counts from.
        let all = Span { doubt: Doubt { cycles: 0, ..self.all.doubt }, ..self.all };
        let likely = wide.within(Self { all, ..*self }.bounds_by_cycles(Span::default(), unseen));
        let estimate = likely.unwrap_or(wide).narrowed(self.start_estimate()).best;
        self.left = own.unwrap_or(wide).narrowed(Some(estimate));
        own.is_some()
    }

    /// Narrows the anchor that this interval ends with, where `next` begins, by what bounds it from both
    /// sides: this interval's start and cycles, and the start of `next`, which [`Self::narrow_start`] has
    /// narrowed. In PSB+ that is all that narrows the start of `next`. False if nothing fits all of that. The
    /// estimate of an end in PSB+ is that of the start of `next`, or the usual lag: no estimate before the
    /// PSB is later than one after it.
    ///
    /// ```text
    ///   MTC ------ cycles ------ TSC ------ cycles ------ MTC
    ///   at least, and at most if    at most, and at least if
    ///   tracing was always on       tracing was always on
    /// ```
    pub(super) fn narrow_end(&mut self, next: Option<&mut Self>, unseen: u64) -> bool {
        let wide = self.right;
        let in_psb = wide.kind == Kind::PsbTsc;
        let estimate = match &next {
            Some(next) if in_psb => Some(next.left.best),
            None if in_psb => Some(wide.best),
            _ => next.as_ref().and_then(|next| next.start_estimate()).or_else(|| self.end_estimate()),
        };
        let right = next.as_ref().map_or(Some(wide), |next| wide.within((next.left.lo, next.left.hi)));
        let own = right.and_then(|right| right.within(self.bounds_by_cycles(self.all, unseen)));
        let fits = own.is_some();
        let mut own = own.unwrap_or(wide);
        if in_psb {
            own.lo = next.as_ref().map_or(wide.lo, |next| next.left.lo).min(own.hi);
        }
        self.right = own.narrowed(estimate);
        if let Some(next) = next
            && !in_psb
        {
            next.left = self.right;
        }
        fits
    }

    /// The start by its end and its cycles, if these are more exact than a TSC packet.
    fn start_estimate(&self) -> Option<u128> {
        let cycle = self.cycle.filter(|cycle| self.is_short(*cycle))?;
        self.right.best.checked_sub(ticks::of(self.all.most, cycle.middle()))
    }

    /// The end by its start and its cycles, if these are more exact than a TSC packet, and all of them were
    /// counted.
    fn end_estimate(&self) -> Option<u128> {
        let cycle = self.cycle.filter(|cycle| self.all.doubt == Doubt::default() && self.is_short(*cycle))?;
        Some(self.left.best + ticks::of(self.all.most, cycle.middle()))
    }

    /// What the length of its cycles leaves open is less than the lag of a TSC packet.
    fn is_short(&self, cycle: Range) -> bool {
        ticks::of(self.all.most, cycle.high - cycle.low) <= of_lag(cycle.high)
    }

    /// Neither of its anchors is still to be narrowed.
    #[inline]
    pub(super) fn is_narrow(&self) -> bool {
        self.left.kind == Kind::Final && self.right.kind == Kind::Final
    }

    /// All its cycles do not fit between its anchors: what bounds its end contradicts itself.
    pub(super) fn contradicts(&self, unseen: u64) -> bool {
        let Some(cycle) = self.cycle else { return false };
        let (shortest, longest) = self.left.lengths_to(self.right);
        let slack = ticks::of(unseen, cycle.high);
        let is_cut = self.all.doubt.breaks != 0 || self.stalls;
        ticks::of(self.all.least(), cycle.low) > longest + slack
            || !is_cut && shortest > ticks::of(self.all.most, cycle.high) + 2 * slack
    }

    /// The time of a slot `since` after the left anchor.
    pub(super) fn time(&self, since: Span, unseen: u64, conversion: TscClock) -> EventTime {
        let (lo, hi) = self.bounds(since, unseen);
        let ns = |ticks: u128| conversion.to_ns(ticks::floor(ticks));
        let point = self.point(since).clamp(lo, hi);
        EventTime { lo: ns(lo), point: ns(point), hi: conversion.to_ns(ticks::ceil(hi)) }
    }

    /// The bounds of a slot `since` after the left anchor. The lower one is not below that of a slot before
    /// it: so a contradiction widens the whole interval.
    fn bounds(&self, since: Span, unseen: u64) -> (u128, u128) {
        let (lo, hi) = match self.contradicts(unseen) {
            true => self.bounds_of_either(since, unseen),
            false => self.bounds_by_cycles(since, unseen),
        };
        (lo.min(self.ceiling()), hi)
    }

    /// The bounds of a slot `since` after the left anchor where an anchor or the cycles are wrong: what
    /// either says is possible.
    fn bounds_of_either(&self, since: Span, unseen: u64) -> (u128, u128) {
        let most = self.cycle.map(|cycle| self.left.hi + ticks::of(since.most + unseen, cycle.high));
        (self.left.lo, self.right.hi.max(most.unwrap_or_default()))
    }

    /// The bounds of a slot `since` after the left anchor, with no regard to what follows.
    fn bounds_by_cycles(&self, since: Span, unseen: u64) -> (u128, u128) {
        let &Self { left, right, all, .. } = self;
        let Some(cycle) = self.cycle else { return (left.lo, right.hi) };
        let slack = ticks::of(unseen, cycle.high);
        let rest_min = ticks::of(all.least().saturating_sub(since.least()), cycle.low);
        let mut lo = left.lo.max((left.lo + ticks::of(since.least(), cycle.low)).saturating_sub(slack));
        let mut hi = right.hi.min((right.hi + slack).saturating_sub(rest_min));
        let most = left.hi + ticks::of(since.most, cycle.high) + slack;
        if since.doubt.breaks == 0 && !self.stalls {
            hi = hi.min(most);
        }
        if since.doubt.breaks == all.doubt.breaks && !self.stalls {
            let rest_max = ticks::of(all.most.saturating_sub(since.most), cycle.high);
            lo = lo.max(right.lo.saturating_sub(rest_max + slack));
        }
        if lo <= hi { (lo, hi) } else { self.bounds_of_either(since, unseen) }
    }

    /// The estimate of a slot `since` after the left anchor, not later than that of the right anchor.
    fn point(&self, since: Span) -> u128 {
        let (all, left, right) = (self.all, self.left.best, self.right.best);
        let point = match self.cycle.map(Range::middle) {
            Some(length) if all.doubt.breaks != 0 && since.doubt.breaks == all.doubt.breaks => {
                right.saturating_sub(ticks::of(all.most.saturating_sub(since.most), length))
            }
            Some(length) if all.doubt.breaks != 0 => left + ticks::of(since.most, length),
            _ => left + ticks::part(right.saturating_sub(left), since.most, all.most.max(1)),
        };
        point.min(right)
    }
}

/// A time that no anchor follows; `hi` is open if nothing bounds it.
pub(super) struct OpenTime {
    pub(super) lo: u128,
    pub(super) point: u128,
    pub(super) hi: Option<u128>,
}

/// Of a slot `since` after the last anchor.
pub(super) fn after(anchor: Anchor, since: Span, cycle: Option<Range>, unseen: u64) -> OpenTime {
    let Some(cycle) = cycle else { return OpenTime { lo: anchor.lo, point: anchor.lo, hi: None } };
    let slack = ticks::of(unseen, cycle.high);
    let lo = anchor.lo + ticks::of(since.least(), cycle.low).saturating_sub(slack);
    let hi = anchor.hi + ticks::of(since.most, cycle.high) + slack;
    let point = anchor.best + ticks::of(since.most, cycle.middle());
    OpenTime { lo, point, hi: (since.doubt.breaks == 0).then_some(hi) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is regular has the times that any slot has.
        #[test]
        fn regular_times_are_those_of_any_slot(
            tsc in 1_u64 << 33..1 << 50,
            lens in [0_u64..1 << 20, 0..1 << 34, 0..1 << 20],
            all in 1_u64..1 << 27,
            (since, straddle) in (0_u64..=1 << 27, 0_u64..100),
            (breaks, all_breaks) in (0_u32..3, 0_u32..3),
            after in proptest::option::of(0_u64..1 << 34),
            cycle in proptest::option::of((1_u64..1 << 18, 0_u64..1 << 12)),
            stalls: bool,
        ) {
            let left = u128::from(tsc) << FRACTION;
            let right = left + u128::from(lens[1]);
            let anchor = |lo: u128, len: u64| Anchor::mtc(lo, lo + u128::from(len), Kind::Final);
            let span = |most: u64, breaks: u32| Span { most, doubt: Doubt { cycles: straddle.min(most), breaks } };
            let all = span(all, all_breaks);
            let mut interval =
                Interval::new(anchor(left, lens[0]), anchor(right, lens[2]), all, None, None);
            interval.stalls = stalls;
            let after = after.map_or(u128::MAX, |after| left - (1 << 20) + u128::from(after));
            prop_assert!(interval.set_after(after).is_none_or(|ceiling| ceiling < left));
            let clock = TscClock { shift: 31, mult: 715_827_883, zero: 1_000_000 };
            interval.settle(cycle.map(|(low, more)| Range { low, high: low + more }));
            let since = span(since.min(all.most), breaks.min(all_breaks));
            let regular = |since| interval.lines(2, clock).and_then(|lines| lines.of(since));
            let of_since = regular(since);
            let is_regular = !stalls && since.doubt.cycles == all.doubt.cycles && !interval.contradicts(2);
            prop_assert_eq!(of_since.is_some(), is_regular);
            let time = interval.time(since, 2, clock);
            if let Some(regular) = of_since {
                prop_assert_eq!(regular.time(since.most), time);
            }
            let first = since.least().max(straddle);
            let of_first = regular(since).filter(|_| first <= since.most);
            let steady = of_first.and_then(|regular| Some((regular, regular.steady(first, since.most)?)));
            if let Some((regular, steady)) = steady {
                for most in [first, first.midpoint(since.most), since.most] {
                    let [lo, point, hi] = [steady.lo(most), steady.point(most), steady.hi(most)];
                    let time = EventTime { lo, point, hi };
                    prop_assert_eq!(time, regular.time(most));
                }
            }
            let later = span(since.most.midpoint(all.most), all_breaks);
            prop_assert!(time.lo <= interval.time(later, 2, clock).lo);
        }
    }
}
