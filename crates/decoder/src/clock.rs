//! When: TSC, TMA, MTC, CYC and CBR packets to a bounded time for every flow packet.
//!
//! An *anchor* is a packet that gives the TSC (TSC itself, or MTC through TMA).  Between two anchors A and B
//! CYC packets count core cycles.  For the time `t` of a flow packet at `c` cycles behind A:
//!
//! ```text
//!  A ----- c cycles ----- t ----- rest ----- B            bounds of the cycles' length come from CBR:
//!     t in [A + min(c), A + max(c)]                         max is unbounded once tracing was off in
//!     t in [B - max(rest), B - min(rest)]                   between (the core may have slept)
//! ```
//!
//! The estimate scales c so that c + rest is the measured B - A; where tracing was off in between, it counts from
//! the anchor on its own side.  Without CYC the number of branches stands in for cycles in the estimate, and the
//! anchors alone are the bounds.  So a flow packet's time is known only at the anchor behind it: until then it is a
//! *slot*, and events refer to slots.

use crate::progress::Progress;
use model::{EventTime, Ns, PtConfig, Tsc, TscClock};

/// A flow packet's place in [`Clock::times`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    /// The one behind it, which may not be there yet; at the latest the end of the segment is one.
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Time spans are in TSC ticks with this many fractional bits.
const FRACTION: u32 = 16;
const ONE_TICK: u64 = 1 << FRACTION;
/// Spans saturate here, so that sums of them cannot overflow: 2^46 ticks.
const MAX_SPAN: u64 = 1 << 62;
/// Trace may be that much later than the last timed record.
const END_ROOM_NS: u64 = 60_000_000_000;
/// CBR counts multiples of the bus clock: the true ratio may be off by this part (1/128) before the next CBR.
const RATIO_TOLERANCE_SHIFT: u32 = 7;

/// Time since the last anchor, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    /// At least this many ticks.
    min: u64,
    /// About this many.
    estimate: u64,
    /// At most this many, breaks apart.
    max: u64,
    /// How often an unknown time passed in between: tracing was off, or packets were lost.
    breaks: u32,
}

/// A slot that waits for the next anchor.
#[derive(Clone, Copy, Debug)]
struct Pending {
    since: Span,
    slot: Slot,
}

/// Ticks of the crystal clock, and the TSC at one of them.
#[derive(Clone, Copy, Debug)]
struct Crystal {
    /// Counter at the last MTC or TMA; low bits only.
    counter: u64,
    /// How many low bits of `counter` are known.
    known_bits: u32,
    /// TSC at that counter, with fraction.
    tsc: u128,
}

/// TSC ticks per core cycle, with fraction.
#[derive(Clone, Copy, Debug)]
struct Ratio {
    now: u64,
    /// Lowest and highest since the last CYC.
    low: u64,
    high: u64,
}

/// The times of a segment's flow packets.
pub(crate) struct Clock {
    mtc_period: Option<u8>,
    has_cyc: bool,
    /// Cycles that may have passed without a CYC.
    threshold: u64,
    tsc_per_crystal: Option<(u32, u32)>,
    nonturbo_ratio: u32,
    conversion: TscClock,
    /// A TSC near the recording, to complete the packet's 56 bits.
    reference: Tsc,

    /// No TSC is behind this: such a packet is damage.
    latest: Tsc,
    anchor: Option<Tsc>,
    /// The last TSC packet, which a TMA packet refers to.
    packet: Option<Tsc>,
    since: Span,
    crystal: Option<Crystal>,
    ratio: Option<Ratio>,
    /// Some cycles of the next CYC lie before the anchor.
    cyc_straddles: bool,
    /// A CYC came since the last flow packet: the span is complete up to here.
    cyc_fresh: bool,

    pending: Vec<Pending>,
    times: Vec<EventTime>,
    progress: Progress,
    /// Contradictions met.
    pub(crate) errors: u64,
}

impl Clock {
    pub(crate) fn new(pt: &PtConfig, conversion: TscClock, reference: Tsc) -> Self {
        let (n, d) = pt.tsc_ctc_ratio;
        Self {
            mtc_period: pt.mtc_period,
            has_cyc: pt.cyc,
            threshold: u64::from(pt.cyc_threshold),
            tsc_per_crystal: (n != 0 && d != 0).then_some((n, d)),
            nonturbo_ratio: pt.max_nonturbo_ratio,
            conversion,
            reference,
            latest: Tsc(u64::MAX),
            anchor: None,
            packet: None,
            since: Span::default(),
            crystal: None,
            ratio: None,
            cyc_straddles: true,
            cyc_fresh: false,
            pending: vec![],
            times: vec![],
            progress: Progress::default(),
            errors: 0,
        }
    }

    /// The recording ended at `end`; with room for trace that was written after its last record.
    pub(crate) fn bound(&mut self, end: Ns) {
        self.latest = self.conversion.to_tsc(Ns(end.0.saturating_add(END_ROOM_NS)));
    }

    /// There is a time.
    pub(crate) fn is_set(&self) -> bool {
        self.anchor.is_some()
    }

    /// The time of a slot; final once [`Self::finish`] was called.
    pub(crate) fn time(&self, slot: Slot) -> EventTime {
        self.times.get(slot.0 as usize).copied().unwrap_or_default()
    }

    /// The time of what happened behind the packet of `lo` and not behind that of `slot`, when `work` instructions had
    /// passed.  The same slot twice: with the packet.
    pub(crate) fn time_between(&self, lo: Slot, slot: Slot, work: u32) -> EventTime {
        let (before, time) = (self.time(lo), self.time(slot));
        if lo == slot {
            return time;
        }
        let earliest = before.lo.min(time.lo);
        let point = self.progress.share(lo.0 as usize, slot.0 as usize, work, before.point, time);
        EventTime { lo: earliest, point: point.clamp(earliest, time.hi), hi: time.hi }
    }

    /// A slot for the flow packet at hand, met when `work` instructions had passed.
    #[inline]
    pub(crate) fn slot(&mut self, work: u32) -> Slot {
        self.progress.slot(work);
        let slot = Slot(self.times.len() as u32);
        self.times.push(EventTime::default());
        self.pending.push(Pending { since: self.since, slot });
        self.cyc_fresh = false;
        slot
    }

    /// As [`Self::slot`], for the packet that gives the TSC at the same time.
    pub(crate) fn slot_before_anchor(&mut self, work: u32) -> Slot {
        let fresh = self.cyc_fresh;
        let slot = self.slot(work);
        self.cyc_fresh = fresh;
        slot
    }

    /// What `slot` stands for happened when `work` instructions had passed.
    #[inline]
    pub(crate) fn reached(&mut self, slot: Slot, work: u32) {
        self.progress.reached(slot.0 as usize, work);
    }

    /// The earliest that it can be now.
    pub(crate) fn now_lo(&self) -> Ns {
        self.anchor
            .map_or(Ns(0), |a| self.ns(ticks(a) + u128::from(self.since.min.saturating_sub(self.slack()))))
    }

    /// The best guess of now, without the next anchor.
    pub(crate) fn now_estimate(&self) -> Ns {
        self.anchor.map_or(Ns(0), |a| self.ns(ticks(a) + u128::from(self.since.estimate)))
    }

    #[inline]
    pub(crate) fn cyc(&mut self, cycles: u64) {
        self.cyc_fresh = true;
        if !self.has_cyc {
            return;
        }
        let scaled = |ratio: u64| (u128::from(cycles) * u128::from(ratio)).min(u128::from(MAX_SPAN)) as u64;
        let add = |sum: u64, cycles: u64| sum.saturating_add(cycles).min(MAX_SPAN);
        match &mut self.ratio {
            Some(ratio) => {
                if !self.cyc_straddles {
                    self.since.min =
                        add(self.since.min, scaled(ratio.low - (ratio.low >> RATIO_TOLERANCE_SHIFT)));
                }
                self.since.estimate = add(self.since.estimate, scaled(ratio.now));
                self.since.max =
                    add(self.since.max, scaled(ratio.high + (ratio.high >> RATIO_TOLERANCE_SHIFT)));
                (ratio.low, ratio.high) = (ratio.now, ratio.now);
            }
            None => {
                self.since.estimate = add(self.since.estimate, scaled(ONE_TICK));
                self.since.breaks = self.since.breaks.saturating_add(1);
            }
        }
        self.cyc_straddles = false;
    }

    /// `branches` have passed: what the estimate goes by without CYC.
    #[inline]
    pub(crate) fn progress(&mut self, branches: u64) {
        if !self.has_cyc {
            self.since.estimate = self.since.estimate.saturating_add(branches << FRACTION).min(MAX_SPAN);
        }
    }

    /// Tracing was off up to here, or packets were lost: any time may have passed.
    pub(crate) fn discontinuity(&mut self) {
        self.since.breaks = self.since.breaks.saturating_add(1);
    }

    /// Packets were lost up to here: the next CYC may count cycles that others have counted.
    pub(crate) fn lost(&mut self) {
        self.discontinuity();
        self.cyc_straddles = true;
    }

    /// A CBR packet.
    pub(crate) fn cbr(&mut self, core_to_bus: u8) {
        if core_to_bus == 0 || self.nonturbo_ratio == 0 {
            return;
        }
        let now = (u64::from(self.nonturbo_ratio) << FRACTION) / u64::from(core_to_bus);
        self.ratio = Some(match self.ratio {
            Some(before) => Ratio { now, low: before.low.min(now), high: before.high.max(now) },
            None => Ratio { now, low: now, high: now },
        });
    }

    /// A TSC packet.
    pub(crate) fn tsc(&mut self, low_56: u64) {
        let tsc = complete_tsc(low_56, self.reference);
        self.packet = (tsc <= self.latest).then_some(tsc);
        if tsc > self.latest {
            // Behind damage any bytes may look like a TSC: nothing after it could have a time.
            self.errors += 1;
            return self.discontinuity();
        }
        if !self.cyc_fresh {
            self.since.breaks = self.since.breaks.saturating_add(1); // cycles since the last CYC are not counted yet
        }
        self.set_anchor(tsc);
        self.cyc_straddles = !self.cyc_fresh;
    }

    /// A TMA packet: relates the TSC packet before it to the crystal clock.
    pub(crate) fn tma(&mut self, ctc: u16, fast: u16) {
        if let Some(packet) = self.packet {
            let tsc = ticks(Tsc(packet.0.saturating_sub(u64::from(fast))));
            self.crystal = Some(Crystal { counter: u64::from(ctc), known_bits: 16, tsc });
        }
    }

    /// An MTC packet.
    pub(crate) fn mtc(&mut self, payload: u8) {
        let (Some(period), Some((n, d)), Some(crystal)) =
            (self.mtc_period, self.tsc_per_crystal, self.crystal)
        else {
            return;
        };
        let period = u32::from(period).min(32);
        // The payload's bits that the known counter covers: fewer than 8 right behind a TMA with a long period.
        let bits = crystal.known_bits.saturating_sub(period).min(8);
        if bits == 0 {
            return;
        }
        let mask = (1u64 << bits) - 1;
        let before = crystal.counter >> period;
        let steps = match u64::from(payload).wrapping_sub(before) & mask {
            0 => mask + 1,
            steps => steps,
        };
        let passed = ((before + steps) << period) - crystal.counter;
        let tsc = crystal.tsc + (u128::from(passed) << FRACTION) * u128::from(n) / u128::from(d);
        self.crystal = Some(Crystal { counter: u64::from(payload) << period, known_bits: period + 8, tsc });
        self.set_anchor(Tsc((tsc >> FRACTION) as u64));
        self.cyc_straddles = false;
    }

    /// The trace ends here, and the recording not later than `end`: settles all slots.
    pub(crate) fn finish(&mut self, end: Option<Ns>) {
        let Some(anchor) = self.anchor else { return };
        let base = ticks(anchor);
        for Pending { since, slot } in std::mem::take(&mut self.pending) {
            let lo = self.ns(base + u128::from(since.min.saturating_sub(self.slack())));
            let bound = end.unwrap_or(Ns::MAX).max(lo);
            let hi = if since.breaks == 0 && self.has_cyc {
                self.ns_up(base + u128::from(since.max + self.slack()))
            } else {
                bound
            };
            let guess = if self.has_cyc { since.estimate } else { 0 };
            let point = self.ns(base + u128::from(guess)).clamp(lo, hi);
            self.set(slot, EventTime { lo, point, hi });
        }
    }

    /// How far from the counted cycles an event may be: unfinished cycles, what CYC packets left out, the anchor's
    /// own tick.
    fn slack(&self) -> u64 {
        let ratio = self.ratio.map_or(ONE_TICK, |r| r.high).max(ONE_TICK);
        ratio.saturating_mul(2 + self.threshold).min(MAX_SPAN)
    }

    fn set(&mut self, slot: Slot, time: EventTime) {
        if let Some(to) = self.times.get_mut(slot.0 as usize) {
            *to = time;
        }
    }

    fn ns(&self, ticks: u128) -> Ns {
        self.conversion.to_ns(Tsc(u64::try_from(ticks >> FRACTION).unwrap_or(u64::MAX)))
    }

    fn ns_up(&self, ticks: u128) -> Ns {
        self.ns(ticks + u128::from(ONE_TICK - 1))
    }

    /// The time is `tsc` here: settles all pending slots.
    fn set_anchor(&mut self, tsc: Tsc) {
        let tsc = match self.anchor {
            Some(before) if tsc < before => {
                self.errors += 1; // damage: time does not run backwards
                before
            }
            _ => tsc,
        };
        self.settle(tsc);
        self.anchor = Some(tsc);
        self.since = Span::default();
    }

    /// Gives every pending slot its time, between the last anchor and `tsc`.
    fn settle(&mut self, tsc: Tsc) {
        let mut pending = std::mem::take(&mut self.pending);
        for Pending { since, slot } in pending.drain(..) {
            let time = match self.anchor {
                Some(anchor) => self.between(ticks(anchor), ticks(tsc), since),
                None => {
                    let hi = self.conversion.to_ns(tsc);
                    EventTime { lo: Ns(0), point: hi, hi }
                }
            };
            self.set(slot, time);
        }
        self.pending = pending;
    }

    /// The time at `since` behind the anchor `left`, where all of the span ends at the anchor `right`.
    fn between(&mut self, left: u128, right: u128, since: Span) -> EventTime {
        let all = self.since;
        let slack = u128::from(self.slack());
        let (mut lo, mut hi) = (left, right);
        if self.has_cyc {
            let rest_min = u128::from(all.min.saturating_sub(since.min));
            let rest_max = u128::from(all.max.saturating_sub(since.max));
            lo = lo.max((left + u128::from(since.min)).saturating_sub(slack));
            hi = hi.min((right + slack).saturating_sub(rest_min));
            if since.breaks == 0 {
                hi = hi.min(left + u128::from(since.max) + slack);
            }
            if since.breaks == all.breaks {
                lo = lo.max(right.saturating_sub(rest_max + slack));
            }
        }
        if lo > hi {
            self.errors += 1;
            (lo, hi) = (hi.clamp(left, right), lo.clamp(left, right));
        }
        let estimate = u128::from(since.estimate);
        let point = if all.breaks == 0 || !self.has_cyc {
            left + part(right - left, estimate, u128::from(all.estimate.max(1)))
        } else if since.breaks == all.breaks {
            right.saturating_sub(u128::from(all.estimate - since.estimate))
        } else {
            left + estimate
        };
        let point = self.ns(point.clamp(lo, hi));
        EventTime { lo: self.ns(lo), point, hi: self.ns_up(hi) }
    }
}

/// The TSC whose low 56 bits are given, nearest to `reference`.
pub(crate) fn complete_tsc(low_56: u64, reference: Tsc) -> Tsc {
    const WRAP: u64 = 1 << 56;
    let tsc = reference.0 & !(WRAP - 1) | low_56 & (WRAP - 1);
    if tsc.saturating_add(WRAP / 2) < reference.0 {
        Tsc(tsc.saturating_add(WRAP))
    } else if tsc > reference.0.saturating_add(WRAP / 2) {
        Tsc(tsc.checked_sub(WRAP).unwrap_or(tsc))
    } else {
        Tsc(tsc)
    }
}

/// `whole * share / all`, roughly if that is too much for 128 bits; `share` is at most `all`, which is not 0.
fn part(whole: u128, share: u128, all: u128) -> u128 {
    whole.checked_mul(share).map_or(whole / all * share, |product| product / all)
}

fn ticks(tsc: Tsc) -> u128 {
    u128::from(tsc.0) << FRACTION
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 3 GHz TSC at 1 tick per ns of the test's clock, crystal 24 MHz (125 ticks), core 3.6 GHz.
    fn clock(cyc: bool) -> Clock {
        let pt = PtConfig {
            cyc,
            cyc_threshold: 0,
            mtc_period: Some(3),
            tsc: true,
            branch: true,
            return_compression: true,
            kernel: false,
            user: true,
            tsc_ctc_ratio: (250, 2),
            max_nonturbo_ratio: 30,
            has_ip_filter: false,
            snapshot: false,
        };
        let mut clock = Clock::new(&pt, TscClock { shift: 0, mult: 1, zero: 0 }, Tsc(1_000_000));
        clock.tsc(1_000_010);
        clock.tma(8000, 10);
        clock.cbr(36);
        clock.cyc(0);
        clock
    }

    fn range(time: EventTime) -> (u64, u64, u64) {
        (time.lo.0, time.point.0, time.hi.0)
    }

    #[test]
    fn cycles_between_two_anchors_are_scaled() {
        let mut clock = clock(true);
        clock.cyc(600); // 500 ticks by CBR
        let slot = clock.slot(0);
        clock.cyc(588);
        clock.mtc((8008 >> 3) as u8); // 8 * 125 - 10 = 990 ticks behind the TSC
        let (lo, point, hi) = range(clock.time(slot));
        assert_eq!(point, 1_000_010 + 990 * 600 / 1188);
        assert!((1_000_504..=point).contains(&lo) && (point..=1_000_516).contains(&hi), "{lo} {point} {hi}");
        assert_eq!(clock.errors, 0);
    }

    #[test]
    fn behind_a_break_time_counts_back_from_the_next_anchor() {
        let mut clock = clock(true);
        clock.cyc(120);
        let before = clock.slot(0);
        clock.discontinuity();
        let after = clock.slot(0);
        clock.cyc(360);
        clock.mtc((8080 >> 3) as u8); // 10 periods: 9990 ticks
        let (lo, point, hi) = range(clock.time(before));
        assert_eq!(point, 1_000_109);
        assert!(lo >= 1_000_107 && hi <= 1_000_115, "{lo} {hi}");
        let (lo, point, hi) = range(clock.time(after));
        assert_eq!(point, 1_010_000 - 300);
        assert!(lo >= 1_010_000 - 306 && hi <= 1_010_000 - 295, "{lo} {hi}");
    }

    #[test]
    fn without_cyc_the_anchors_are_the_bounds() {
        let mut clock = clock(false);
        clock.progress(3);
        let slot = clock.slot(0);
        clock.progress(6);
        clock.mtc((8008 >> 3) as u8);
        assert_eq!(range(clock.time(slot)), (1_000_010, 1_000_340, 1_001_000));
    }

    #[test]
    fn bytes_that_look_like_a_tsc_far_ahead_are_not_one() {
        let mut clock = clock(true);
        clock.bound(Ns(2_000_000));
        clock.tsc(1 << 55);
        clock.tma(1, 1);
        let slot = clock.slot(0);
        clock.tsc(1_000_500);
        assert_eq!((clock.time(slot).hi, clock.errors), (Ns(1_000_500), 1));
    }

    #[test]
    fn no_count_of_cycles_and_no_jump_of_the_tsc_is_too_much() {
        let mut clock = clock(true);
        clock.cyc(u64::MAX >> 3);
        let slot = clock.slot(0);
        clock.cyc(u64::MAX >> 3);
        clock.tsc((1 << 55) - 1);
        let time = clock.time(slot);
        assert!(time.lo <= time.point && time.point <= time.hi);
    }

    #[test]
    fn mtc_counts_on_over_its_eight_bits() {
        let mut clock = clock(true);
        for period in 1..600u64 {
            clock.cyc(1200);
            let slot = clock.slot(0);
            clock.mtc(((8000 + 8 * period) >> 3) as u8);
            assert_eq!(clock.time(slot).hi.0, 1_000_000 + 1000 * period);
        }
    }

    #[test]
    fn a_wrong_ratio_is_counted_and_widens() {
        let mut clock = clock(true);
        clock.cyc(2400); // by CBR 2000 ticks, but only 990 pass
        let slot = clock.slot(0);
        clock.cyc(10);
        clock.mtc((8008 >> 3) as u8);
        let (lo, point, hi) = range(clock.time(slot));
        assert!(lo <= point && point <= hi && hi <= 1_001_000 && lo >= 1_000_010);
        assert_eq!(clock.errors, 1);
    }

    #[test]
    fn the_last_slots_are_bounded_by_the_end_of_the_recording() {
        let mut clock = clock(true);
        clock.cyc(120);
        let sure = clock.slot(0);
        clock.discontinuity();
        let unsure = clock.slot(0);
        clock.finish(Some(Ns(1_002_000)));
        assert!(clock.time(sure).hi.0 <= 1_000_115);
        assert_eq!(range(clock.time(unsure)), (1_000_107, 1_000_109, 1_002_000));
    }
}
