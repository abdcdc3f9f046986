//! The core clock: how long a cycle is.
//!
//! CBR gives the core:bus ratio, and so the length of a cycle in TSC ticks. But the packet has no exact place
//! ("There is not a precise IP to which to bind", SDM, CBR packet): it may come late, and where clocks change
//! without one it is wrong. So it is believed only where the frequencies that the anchors around measure
//! agree with it; where they do not, these are the bounds: the frequency changes less often than MTC packets
//! come.

use super::anchor::Anchor;
use super::range::Range;
use super::span::Span;
use super::ticks::FRACTION;

/// Cycles must outnumber those that CYC packets may have left out by this factor, and the time what the
/// anchors leave open, or they measure nothing: a vaguer measurement agrees with any CBR.
const MEASURABLE: u64 = 32;

/// What CBR packets say of a time: multiples of the bus clock, the least and the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Multiples {
    least: u8,
    most: u8,
}

impl Multiples {
    pub(super) fn hull(self, other: Self) -> Self {
        Self { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    /// The core's clock changed.
    fn differ(self) -> bool {
        self.least != self.most
    }
}

/// What CBR packets say, and what that means.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreRatio {
    bus: Bus,
    now: Option<Multiples>,
    /// How long a cycle is by that.
    now_length: Option<Range>,
    /// All since the last anchor.
    interval: Option<Multiples>,
    /// An interval has measured the length of a cycle.
    has_measured: bool,
}

/// A cycle of the bus clock, in TSC ticks.
#[derive(Clone, Copy, Debug)]
enum Bus {
    /// The recording says how long it is.
    Stated(Range),
    /// Anchors have measured it where CBR says how many cycles of the core it has; and how often they agreed,
    /// less how often they did not: CBR may be late.
    Learned(Range, u8),
    Unknown,
}

/// Measurements that must agree on the bus clock before it counts as known.
const WITNESSES: u8 = 2;

/// More do not make it surer: while CBR is late all measurements agree on a wrong one, and the more of them
/// count, the longer it takes to unlearn that. This many forgive the two intervals that a change of
/// frequency may spoil.
const MOST_WITNESSES: u8 = 2 * WITNESSES;

impl CoreRatio {
    /// `nonturbo`: the ratio at which the core clock equals the TSC's; 0 if unknown.
    pub(super) fn new(nonturbo: u32) -> Self {
        let length = u64::from(nonturbo) << FRACTION;
        let bus = if nonturbo == 0 { Bus::Unknown } else { Bus::Stated(Range { low: length, high: length }) };
        Self { bus, now: None, now_length: None, interval: None, has_measured: false }
    }

    pub(super) fn cbr(&mut self, core_to_bus: u8) {
        if core_to_bus == 0 {
            return;
        }
        let now = Multiples { least: core_to_bus, most: core_to_bus };
        self.interval = Some(self.interval.map_or(now, |before| before.hull(now)));
        self.now = Some(now);
        self.now_length = self.work_out(now);
    }

    /// How long a cycle is by CBR.
    #[inline]
    pub(super) fn length(&self, multiples: Option<Multiples>) -> Option<Range> {
        if multiples == self.now { self.now_length } else { self.work_out(multiples?) }
    }

    fn work_out(&self, Multiples { least, most }: Multiples) -> Option<Range> {
        let bus = match self.bus {
            Bus::Stated(bus) => bus,
            Bus::Learned(bus, witnesses) if witnesses >= WITNESSES => bus,
            Bus::Learned(..) | Bus::Unknown => return None,
        };
        Some(Range { low: bus.low / u64::from(most), high: bus.high / u64::from(least) }.with_tolerance())
    }

    /// Of the interval since the last anchor.
    pub(super) fn interval(&self) -> Option<Multiples> {
        self.interval
    }

    /// An anchor: what CBR said up to here, and a new interval begins.
    pub(super) fn next_interval(&mut self) -> Option<Multiples> {
        std::mem::replace(&mut self.interval, self.now)
    }

    /// A cycle was measured to be so long while CBR said `multiples`. Where the recording does not say how
    /// long a cycle of the bus clock is, this does. It may have drifted since it was measured last.
    fn learn(&mut self, measured: Range, multiples: Option<Multiples>) {
        let Some(Multiples { least: ratio, .. }) = multiples.filter(|multiples| !multiples.differ()) else {
            return;
        };
        let times = |length: u64| length.saturating_mul(u64::from(ratio));
        let new = Range { low: times(measured.low), high: times(measured.high) };
        self.bus = match self.bus {
            Bus::Stated(_) => return,
            Bus::Unknown => Bus::Learned(new, 1),
            Bus::Learned(known, witnesses) => match known.with_tolerance().intersection(new) {
                Some(both) => Bus::Learned(both, (witnesses + 1).min(MOST_WITNESSES)),
                None if witnesses > 1 => Bus::Learned(known, witnesses - 1),
                None => Bus::Learned(new, 1),
            },
        };
        self.now_length = self.now.and_then(|now| self.work_out(now));
    }

    /// What the anchors say of the interval between them; CBR says `multiples` of it. Before anything is
    /// measured, an interval that is too vague for that can still refute CBR.
    pub(super) fn measure(&mut self, cycle: Option<Cycle>, multiples: Option<Multiples>) -> Option<Measured> {
        let Cycle { range, is_vague } = cycle?;
        if is_vague {
            let is_refuted = self.length(multiples).is_some_and(|cbr| !cbr.overlaps(range));
            return (is_refuted && !self.has_measured).then_some(Measured { range, agrees: false });
        }
        self.has_measured = true;
        self.learn(range, multiples);
        let cbr = self.length(multiples);
        // Of a clock that changed the mean is measured: without CBR that says nothing of the parts.
        let is_mean = cbr.is_none() && multiples.is_some_and(Multiples::differ);
        (!is_mean).then(|| Measured { range, agrees: cbr.is_some_and(|cbr| cbr.overlaps(range)) })
    }
}

/// The length of a cycle by two anchors and the cycles between them.
pub(super) struct Cycle {
    range: Range,
    /// The anchors leave too much open: such a range agrees with any CBR.
    is_vague: bool,
}

/// What two anchors and the cycles between them say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    range: Range,
    /// CBR said the same at that time.
    pub(super) agrees: bool,
}

impl Measured {
    /// How long a cycle is by that.
    pub(super) fn range(&self) -> Range {
        self.range
    }

    /// Than by all of `others`.
    pub(super) fn is_longer(&self, others: Range) -> bool {
        self.range.low > others.high
    }
}

impl Span {
    /// The length of a cycle in the interval that this span fills; `None` if time passed that was not
    /// counted, or too few cycles.
    pub(super) fn cycle(&self, left: Anchor, right: Anchor, unseen: u64) -> Option<Cycle> {
        if self.doubt.breaks != 0 || self.least() <= unseen.saturating_mul(MEASURABLE) {
            return None;
        }
        let (shortest, longest) = left.lengths_to(right);
        let is_vague = (longest - shortest).saturating_mul(MEASURABLE.into()) >= longest;
        let per_cycle = |ticks: u128, cycles: u64| u64::try_from(ticks / u128::from(cycles.max(1))).ok();
        let low = per_cycle(shortest, self.most.saturating_add(unseen))?;
        let high = per_cycle(longest, self.least() - unseen)?.saturating_add(1);
        Some(Cycle { range: Range { low, high }, is_vague })
    }
}

/// CBR is refuted by a measurement on one side of an interval alone: nothing tells the frequency on the
/// other side, and so here.
pub(super) fn is_unknown([before, own, after]: [Option<&Measured>; 3]) -> bool {
    let is_one_sided = own.is_none() && (before.is_none() || after.is_none());
    is_one_sided && [before, after].into_iter().flatten().any(|measured| !measured.agrees)
}

/// CBR is refuted beside an interval that measures nothing itself, by a longer cycle. The core may have slept
/// there: then that measurement says nothing about CBR, which may be late, and the core here may be faster
/// than both say.
pub(super) fn may_be_faster(cbr: Option<Range>, [before, own, after]: [Option<&Measured>; 3]) -> bool {
    let is_longer = |measured: &Measured| cbr.is_some_and(|cbr| measured.is_longer(cbr));
    own.is_none() && [before, after].into_iter().flatten().any(is_longer)
}

/// The length of a cycle in an interval: by CBR if the measured frequencies before, of and after the
/// interval bear it out (or there is none); else by them and CBR. CBR is wrong only where two of them say the
/// same and CBR another thing: one alone may have a sleep in it that nothing tells of.
#[inline]
pub(super) fn length(cbr: Option<Range>, measured: [Option<&Measured>; 3]) -> Option<Range> {
    match cbr {
        Some(cbr) if measured.iter().flatten().all(|m| m.agrees) => Some(cbr),
        Some(cbr) => doubted(cbr, measured),
        // Nothing says that the clock was the same where it was measured.
        None => measured[1].map(|own| own.range),
    }
}

/// The length of a cycle where some measurements do not bear CBR out: the hull of all, and of CBR unless
/// there are two or more and all say the same.
#[cold]
fn doubted(cbr: Range, measured: [Option<&Measured>; 3]) -> Option<Range> {
    let mut others = measured.iter().flatten().filter(|m| !m.agrees).map(|m| m.range);
    let first = others.next()?;
    let says_the_same = |a: Option<&Measured>| a.is_none_or(|m| !m.agrees && m.range.overlaps(first));
    let wrong = others.next().is_some() && measured.into_iter().all(says_the_same);
    let hull = measured.into_iter().flatten().fold(first, |hull, m| hull.hull(m.range));
    Some(if wrong { hull } else { hull.hull(cbr) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bus clock's cycle, in TSC ticks.
    const BUS: f64 = 30.0;

    /// Measures a core with a cycle of `cycle` ticks, as well as 0.1 %, while CBR says `ratio`.
    fn measure(core: &mut CoreRatio, cycle: f64, ratio: u8) {
        let ticks = |length: f64| (length * f64::from(1u32 << FRACTION)) as u64;
        let range = Range { low: ticks(cycle * 0.999), high: ticks(cycle * 1.001) };
        core.cbr(ratio);
        core.measure(Some(Cycle { range, is_vague: false }), Some(Multiples { least: ratio, most: ratio }));
    }

    /// The length of a cycle at `ratio` by the measurements so far: least and most.
    fn cycle(core: &CoreRatio, ratio: u8) -> Option<(f64, f64)> {
        let range = core.length(Some(Multiples { least: ratio, most: ratio }))?;
        let ticks = |length: u64| length as f64 / f64::from(1u32 << FRACTION);
        Some((ticks(range.low), ticks(range.high)))
    }

    fn is_near(cycle: Option<(f64, f64)>, truth: f64) -> bool {
        cycle.is_some_and(|(least, most)| least <= truth && truth <= most && most - least < 0.03 * truth)
    }

    #[test]
    fn what_was_learned_while_cbr_was_late_is_soon_unlearned() {
        let mut core = CoreRatio::new(0);
        for _ in 0..1000 {
            measure(&mut core, BUS / 36.0, 30);
        }
        assert!(is_near(cycle(&core, 30), BUS / 36.0));
        let known: Vec<_> = (0..5)
            .map(|_| {
                measure(&mut core, BUS / 36.0, 36);
                cycle(&core, 36).map(|cycle| is_near(Some(cycle), BUS / 36.0))
            })
            .collect();
        assert_eq!(known, [Some(false), Some(false), None, None, Some(true)]);
    }

    #[test]
    fn two_measurements_that_a_change_of_frequency_spoils_unlearn_nothing() {
        let mut core = CoreRatio::new(0);
        for _ in 0..4 {
            measure(&mut core, BUS / 36.0, 36);
        }
        for _ in 0..2 {
            measure(&mut core, BUS / 33.0, 30);
        }
        assert!(is_near(cycle(&core, 30), BUS / 30.0));
    }

    #[test]
    fn a_bus_clock_that_drifts_is_followed() {
        let mut core = CoreRatio::new(0);
        for number in 0..100 {
            let bus = BUS * 1.005f64.powi(number);
            measure(&mut core, bus / 36.0, 36);
            assert_eq!(is_near(cycle(&core, 20), bus / 20.0), number > 0, "{number}: {:?}", cycle(&core, 20));
        }
    }
}
