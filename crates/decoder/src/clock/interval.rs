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

use model::Tsc;

use super::core::{Measured, Multiples, Range};

/// Time spans are in TSC ticks with this many fractional bits.
pub(super) const FRACTION: u32 = 16;
/// Counts of cycles saturate here, so that sums of them, as ticks, cannot overflow.
const MAX_CYCLES: u64 = 1 << 62;

/// Ticks, with fraction, of so many cycles.
#[inline]
pub(super) fn ticks(cycles: u64, length: u64) -> u128 {
    u128::from(cycles) * u128::from(length)
}

#[inline]
pub(super) fn floor(ticks: u128) -> Tsc {
    Tsc(u64::try_from(ticks >> FRACTION).unwrap_or(u64::MAX))
}

#[inline]
pub(super) fn ceil(ticks: u128) -> Tsc {
    floor(ticks + ((1 << FRACTION) - 1))
}

/// A place in the stream at which the TSC is known: from `lo` to `hi`, with fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) lo: u128,
    pub(super) hi: u128,
}

impl Anchor {
    pub(super) fn exact(Tsc(tsc): Tsc) -> Self {
        let at = u128::from(tsc) << FRACTION;
        Self { lo: at, hi: at }
    }

    /// The best guess: a tick's rounding on both sides, and packets are rarely late.
    pub(super) fn best(self) -> u128 {
        self.lo + ((self.hi - self.lo) / 2).min(1 << FRACTION)
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

impl Span {
    /// `straddles`: some of these cycles, nobody knows how many, lie before the anchor.
    #[inline]
    pub(super) fn add_cycles(&mut self, cycles: u64, straddles: bool) {
        self.most = self.most.saturating_add(cycles).min(MAX_CYCLES);
        if straddles {
            self.doubt.cycles = self.doubt.cycles.saturating_add(cycles).min(MAX_CYCLES);
        }
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
    pub(super) cycle: Option<Range>,
}

/// Bounds and estimate of a time, in ticks with fraction.
pub(super) struct Bounds {
    pub(super) lo: u128,
    pub(super) point: u128,
    pub(super) hi: u128,
    /// The packets contradict each other.
    pub(super) contradict: bool,
}

impl Interval {
    /// All its cycles do not fit between its anchors.
    pub(super) fn contradicts(&self, unseen: u64) -> bool {
        self.bounds(self.all, unseen).contradict
    }

    /// Of a slot `since` behind the left anchor.
    pub(super) fn bounds(&self, since: Span, unseen: u64) -> Bounds {
        let cycle = self.cycle;
        let (left, right, all) = (self.left, self.right, self.all);
        let (mut lo, mut hi, mut contradict) = (left.lo, right.hi, false);
        if let Some(cycle) = cycle {
            let slack = ticks(unseen, cycle.high);
            let rest_min = ticks(all.least().saturating_sub(since.least()), cycle.low);
            lo = lo.max((left.lo + ticks(since.least(), cycle.low)).saturating_sub(slack));
            hi = hi.min((right.hi + slack).saturating_sub(rest_min));
            let most = left.hi + ticks(since.most, cycle.high) + slack;
            if since.doubt.breaks == 0 && !self.stalls {
                hi = hi.min(most);
            }
            if since.doubt.breaks == all.doubt.breaks && !self.stalls {
                let rest_max = ticks(all.most.saturating_sub(since.most), cycle.high);
                lo = lo.max(right.lo.saturating_sub(rest_max + slack));
            }
            contradict = lo > hi;
            if contradict {
                // An anchor or the cycles are wrong: what either says is possible.
                (lo, hi) = (left.lo, right.hi.max(most));
            }
        }
        Bounds { lo, point: self.point(since, cycle).clamp(lo, hi), hi, contradict }
    }

    fn point(&self, since: Span, cycle: Option<Range>) -> u128 {
        let (left, right, all) = (self.left.best(), self.right.best(), self.all);
        match cycle.map(Range::middle) {
            Some(length) if all.doubt.breaks != 0 && since.doubt.breaks == all.doubt.breaks => {
                right.saturating_sub(ticks(all.most.saturating_sub(since.most), length))
            }
            Some(length) if all.doubt.breaks != 0 => left + ticks(since.most, length),
            _ => left + part(right.saturating_sub(left), since.most, all.most.max(1)),
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
    let slack = ticks(unseen, cycle.high);
    let lo = anchor.lo + ticks(since.least(), cycle.low).saturating_sub(slack);
    let hi = anchor.hi + ticks(since.most, cycle.high) + slack;
    let point = anchor.best() + ticks(since.most, cycle.middle());
    Open { lo, point, hi: (since.doubt.breaks == 0).then_some(hi) }
}

/// `whole * share / all`, roughly if that is too much for 128 bits; `share` is at most `all`, which is not 0.
fn part(whole: u128, share: u64, all: u64) -> u128 {
    if let Some(product) = u64::try_from(whole).ok().and_then(|whole| whole.checked_mul(share)) {
        return u128::from(product / all); // nearly always, and quicker
    }
    let (share, all) = (u128::from(share), u128::from(all));
    whole.checked_mul(share).map_or(whole / all * share, |product| product / all)
}
