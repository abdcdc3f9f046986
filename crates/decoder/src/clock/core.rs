//! The core clock: how long a cycle is.
//!
//! CBR gives the core:bus ratio, and so the length of a cycle in TSC ticks.  But the packet has no exact place ("There is
//! not a precise IP to which to bind", SDM, CBR packet): it may come late, and where clocks change without one it is
//! wrong.  So it is believed only where the frequencies that the anchors around measure agree with it; where they do
//! not, these are the bounds: the frequency changes less often than MTC packets come.

use super::interval::{Anchor, FRACTION, Span};

/// CBR counts multiples of the bus clock, whose own frequency is not exactly the nominal one, and spread: the true
/// ratio may be off by this part (1/128).
const CBR_TOLERANCE_SHIFT: u32 = 7;

/// Cycles must outnumber those that CYC packets may have left out by this factor, and the time what the anchors leave open, or
/// they measure nothing: what is as vague as that agrees with any CBR.
const MEASURABLE: u64 = 32;

/// The length of a core cycle in TSC ticks, with [`FRACTION`]: from shortest to longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) low: u64,
    pub(super) high: u64,
}

impl Range {
    pub(super) fn middle(self) -> u64 {
        self.low + (self.high - self.low) / 2
    }

    fn hull(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    fn overlaps(self, other: Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

/// What CBR packets say.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreRatio {
    nonturbo: u32,
    now: Option<Range>,
    /// All since the last anchor.
    interval: Option<Range>,
}

impl CoreRatio {
    /// `nonturbo`: the ratio at which the core clock equals the TSC's; 0 if unknown.
    pub(super) fn new(nonturbo: u32) -> Self {
        Self { nonturbo, now: None, interval: None }
    }

    pub(super) fn cbr(&mut self, core_to_bus: u8) {
        if core_to_bus == 0 || self.nonturbo == 0 {
            return;
        }
        let length = (u64::from(self.nonturbo) << FRACTION) / u64::from(core_to_bus);
        let tolerance = length >> CBR_TOLERANCE_SHIFT;
        let now = Range { low: length - tolerance, high: length + tolerance };
        self.interval = Some(self.interval.map_or(now, |before| before.hull(now)));
        self.now = Some(now);
    }

    /// Of the interval since the last anchor.
    pub(super) fn range(&self) -> Option<Range> {
        self.interval
    }

    /// An anchor: the range up to here, and a new one begins.
    pub(super) fn next_interval(&mut self) -> Option<Range> {
        std::mem::replace(&mut self.interval, self.now)
    }
}

/// What two anchors and the cycles between them say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    range: Range,
    /// CBR said the same at that time.
    pub(super) agrees: bool,
}

impl Span {
    /// The length of a cycle in the interval that this span fills; `None` if time passed that was not counted, or too
    /// few cycles.
    pub(super) fn measure(
        &self,
        left: Anchor,
        right: Anchor,
        cbr: Option<Range>,
        unseen: u64,
    ) -> Option<Measured> {
        let (shortest, longest) = (right.lo.saturating_sub(left.hi), right.hi.saturating_sub(left.lo));
        let is_vague = (longest - shortest).saturating_mul(MEASURABLE.into()) >= longest;
        if self.breaks != 0 || is_vague || self.least <= unseen.saturating_mul(MEASURABLE) {
            return None;
        }
        let per_cycle = |ticks: u128, cycles: u64| u64::try_from(ticks / u128::from(cycles.max(1))).ok();
        let low = per_cycle(shortest, self.most.saturating_add(unseen))?;
        let high = per_cycle(longest, self.least - unseen)?.saturating_add(1);
        let range = Range { low, high };
        Some(Measured { range, agrees: cbr.is_some_and(|cbr| cbr.overlaps(range)) })
    }
}

/// The length of a cycle in an interval: by CBR if the measured frequencies before, of and behind the interval bear it
/// out (or there is none); else by them and CBR.  CBR is wrong only where two of them say the same and CBR another thing:
/// one alone may have a sleep in it that nothing tells of.
pub(super) fn length(cbr: Option<Range>, measured: [Option<Measured>; 3]) -> Option<Range> {
    let around = measured.into_iter().flatten();
    let Some(cbr) = cbr else { return around.map(|m| m.range).reduce(Range::hull) };
    let mut others = around.filter(|m| !m.agrees).map(|m| m.range);
    let Some(first) = others.next() else { return Some(cbr) };
    let says_the_same = |a: Option<Measured>| a.is_none_or(|m| !m.agrees && m.range.overlaps(first));
    let wrong = others.clone().next().is_some() && measured.into_iter().all(says_the_same);
    let hull = measured.into_iter().flatten().fold(first, |hull, m| hull.hull(m.range));
    Some(if wrong { hull } else { hull.hull(cbr) })
}
