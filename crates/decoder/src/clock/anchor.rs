//! Anchors: packets that give the TSC, each a range that holds the instant of its place in the stream.
//!
//! ```text
//!   TSC          lo = the TSC it says          hi = 64 core cycles later: the packet is made, then written
//!   MTC          lo, hi = a tick around the crystal's tick, and what the two clocks' ratio leaves open
//!   late MTC     ... hi = a period later, where MTC packets were skipped before it: the core may have slept
//! ```
//!
//! The intervals on both sides narrow a wide one once their cycles are settled
//! ([`super::interval::Interval::narrow_end`]).

use model::Tsc;

use super::range::Range;
use super::ticks::{self, FRACTION};

/// A TSC packet says what the TSC was at most this many core cycles before the packet's place in the stream.
/// 39 to 60 were measured on two processors; perf's estimate is 40 (`tsc_slip` in intel-pt-decoder.c).
const LAG_CYCLES: u64 = 64;

/// The median of the lags that were measured, in core cycles.
const USUAL_LAG_CYCLES: u64 = 42;

/// The longest lag where the length of a core cycle is unknown: a core at one 64th of the TSC's frequency is
/// slower than any.
const LONGEST_LAG: u128 = of_lag(64 << FRACTION);

/// The longest lag, in TSC ticks with fraction, at this length of a core cycle.
pub(super) const fn of_lag(cycle: u64) -> u128 {
    LAG_CYCLES as u128 * cycle as u128
}

/// The longest lag at this length of a core cycle, or of any.
pub(super) fn longest_lag(cycle: Option<Range>) -> u128 {
    cycle.map_or(LONGEST_LAG, |cycle| of_lag(cycle.high).min(LONGEST_LAG))
}

/// A place in the stream at which the TSC is known: from `lo` to `hi`, and most likely `best`, with fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) lo: u128,
    pub(super) best: u128,
    pub(super) hi: u128,
    pub(super) kind: Kind,
}

/// Why an anchor may be a wide range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is not, or has been narrowed by its surroundings.
    Final,
    /// A TSC packet, which gives the TSC of some core cycles ago.
    Tsc,
    /// A TSC packet in PSB+. A segment may begin there: packets before it do not change the times after it.
    PsbTsc,
    /// An MTC packet that follows skipped ones, and may be late.
    LateMtc,
}

impl Anchor {
    /// An instant, as good as a tick.
    pub(super) fn exact(Tsc(tsc): Tsc) -> Self {
        let at = u128::from(tsc) << FRACTION;
        Self { lo: at, best: at, hi: at, kind: Kind::Final }
    }

    /// A TSC packet.
    pub(super) fn packet(tsc: Tsc, in_psb: bool) -> Self {
        let Self { lo, .. } = Self::exact(tsc);
        Self { lo, best: lo, hi: lo + LONGEST_LAG, kind: if in_psb { Kind::PsbTsc } else { Kind::Tsc } }
    }

    /// From `lo` to `hi`, of an MTC packet. The best guess: a tick's rounding on both sides, and packets are
    /// rarely late.
    pub(super) fn mtc(lo: u128, hi: u128, kind: Kind) -> Self {
        Self { lo, best: lo + ((hi - lo) / 2).min(ticks::ONE), hi, kind }
    }

    /// How far it is to `right`, which follows: at least, and at most.
    pub(super) fn lengths_to(self, right: Self) -> (u128, u128) {
        (right.lo.saturating_sub(self.hi), right.hi.saturating_sub(self.lo))
    }

    /// It is a TSC packet with a lag that is not settled.
    #[inline]
    pub(super) fn is_tsc(self) -> bool {
        matches!(self.kind, Kind::Tsc | Kind::PsbTsc)
    }

    /// Bounds the lag of a TSC packet by the length of a core cycle around it. If that is unknown, the
    /// estimate takes a cycle for a TSC tick.
    #[inline]
    pub(super) fn bounded(self, cycle: Option<Range>) -> Self {
        if !self.is_tsc() {
            return self;
        }
        let hi = cycle.map_or(self.hi, |cycle| self.hi.min(self.lo + of_lag(cycle.high)));
        let usual = ticks::of(USUAL_LAG_CYCLES, cycle.map_or(ticks::ONE as u64, |cycle| cycle.low));
        Self { best: (self.lo + usual).min(hi), hi, ..self }
    }

    /// The part of this range that lies within `bounds`; `None` if there is none.
    pub(super) fn within(self, bounds: (u128, u128)) -> Option<Self> {
        let (lo, hi) = (self.lo.max(bounds.0), self.hi.min(bounds.1));
        (lo <= hi).then(|| Self { lo, best: self.best.clamp(lo, hi), hi, kind: self.kind })
    }

    /// Marks the range as final; `estimate` becomes the best guess if it lies in the range.
    pub(super) fn narrowed(self, estimate: Option<u128>) -> Self {
        let best = estimate.filter(|at| (self.lo..=self.hi).contains(at)).unwrap_or(self.best);
        Self { best, kind: Kind::Final, ..self }
    }
}
