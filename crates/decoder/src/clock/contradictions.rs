//! Packets that contradict each other: a bound that no reading of them fits is a counted error.
//!
//! A *reading* of a stream gives each packet a time, in order, such that TSC and MTC packets tell that time
//! and CYC packets count the cycles between two times.  Each of these limits how long one time
//! is after another, so the readings of a stream are the solutions of a system of difference constraints:
//! all-pairs shortest paths say whether there are any, and from when to when a packet can have been
//! ([`Readings`]).  It is looser than [`Clock`] is, by the rounding of each packet.

use model::EventTime;
use proptest::prelude::*;

use super::ticks::ONE;
use super::*;

/// What a stream is made of.  TSC and crystal are as in [`super::tests`]: a period of MTC is 1000 ticks.
#[derive(Clone, Copy, Debug)]
enum Piece {
    /// TSC and TMA, in PSB+ or not: ticks since [`START`].
    Tsc(i64, bool),
    /// An MTC packet of the counter's period since [`START`].
    Mtc(u8),
    Cyc(u64),
    /// TIP.PGE: tracing was off before it.
    Pge,
    /// Any other flow packet.
    Flow,
}

const START: u64 = 1_000_000;
/// Of a period, and of a cycle by CBR.
const PERIOD: i64 = 1000 * ONE as i64;
const CYCLE: i64 = (30 << 16) / 36;
/// Cycles that a count may be off by, at both of its ends, and twice what CBR may be off by.
const SLACK: i64 = 4 * CYCLE;
const TOLERANCE_SHIFT: u32 = 6;
/// A TSC packet's lag, by a CBR that nothing bears out.
const LAG: i64 = 128 * CYCLE + SLACK;

/// `limits[i][j]`: the most by which packet j is after packet i; the last one is the instant [`START`].
struct Readings {
    limits: Vec<Vec<i64>>,
    start: usize,
}

/// No limit.
const FAR: i64 = 1 << 48;

impl Readings {
    fn of(stream: &[Piece]) -> Self {
        let start = stream.len();
        let limits = (0..=start).map(|i| (0..=start).map(|j| if i == j { 0 } else { FAR }).collect());
        let mut readings = Self { limits: limits.collect(), start };
        (1..start).for_each(|next| readings.limit(next, next - 1, 0));
        readings.anchors(stream);
        readings.cycles(stream);
        readings.close();
        readings
    }

    /// Packet `to` is at most `at_most` after packet `from`.
    fn limit(&mut self, from: usize, to: usize, at_most: i64) {
        let limit = &mut self.limits[from][to];
        *limit = at_most.min(*limit);
    }

    /// Packet `to` is so long after packet `from`.
    fn between(&mut self, from: usize, to: usize, least: i64, most: i64) {
        self.limit(from, to, most);
        self.limit(to, from, -least);
    }

    fn anchors(&mut self, stream: &[Piece]) {
        let mut period: Option<i64> = None;
        for (at, piece) in stream.iter().enumerate() {
            match *piece {
                Piece::Tsc(ticks, _) => {
                    let lo = ticks * ONE as i64;
                    self.between(self.start, at, lo, lo + LAG);
                    // What MTC said last may be later than what TSC and TMA say.
                    period = Some(ticks.div_euclid(1000));
                }
                Piece::Mtc(number) => {
                    let Some(before) = period else { continue };
                    let steps = i64::from(number.wrapping_sub(before as u8));
                    if steps == 0 {
                        continue;
                    }
                    let lo = (before + steps) * PERIOD - SLACK;
                    let late = if steps == 1 { 0 } else { PERIOD };
                    self.between(self.start, at, lo, lo + late + 2 * SLACK);
                    period = Some(before + steps);
                }
                _ => (),
            }
        }
    }

    /// From each packet to the next: CYC packets in front of it count all cycles between, unless tracing was
    /// off or the core slept, and none are uncounted.  Those of the first CYC after a TSC that has none in
    /// front of it may lie before that. A core that wakes up sends TSC, after an MTC if the counter has
    /// changed: it has slept before that, and counts a few cycles between the two.
    fn cycles(&mut self, stream: &[Piece]) {
        let (mut last, mut least, mut most) = (None, 0, 0);
        let (mut is_fresh, mut straddles) = (false, true);
        let mut period = None;
        for (at, piece) in stream.iter().enumerate() {
            let (mut is_cut, mut straddles_after) = (false, straddles);
            match *piece {
                Piece::Cyc(cycles) => {
                    let length = cycles as i64 * CYCLE;
                    least += if straddles { 0 } else { length - (length >> TOLERANCE_SHIFT) };
                    most += length + (length >> TOLERANCE_SHIFT);
                    (is_fresh, straddles) = (true, false);
                    continue;
                }
                Piece::Tsc(ticks, in_psb) => {
                    is_cut = !in_psb || !is_fresh;
                    straddles_after = !is_fresh;
                    period = Some(ticks.div_euclid(1000) as u8);
                }
                Piece::Mtc(number) => {
                    // Where some were skipped the core may have slept.
                    let skips = |before: u8| number.wrapping_sub(before) > 1;
                    let mut after = stream[at + 1..].iter().filter(|piece| !matches!(piece, Piece::Cyc(_)));
                    let wakes_up = matches!(after.next(), Some(Piece::Tsc(_, false)));
                    is_cut = period.replace(number).is_some_and(skips) || wakes_up;
                }
                Piece::Pge => is_cut = true,
                Piece::Flow => (),
            }
            if let Some(last) = last.replace(at) {
                self.between(last, at, least - SLACK, if is_cut { FAR } else { most + SLACK });
            }
            (least, most, is_fresh, straddles) = (0, 0, false, straddles_after);
        }
    }

    fn close(&mut self) {
        for via in 0..=self.start {
            for from in 0..=self.start {
                for to in 0..=self.start {
                    let by_way = self.limits[from][via] + self.limits[via][to];
                    self.limit(from, to, by_way);
                }
            }
        }
    }

    fn exist(&self) -> bool {
        (0..=self.start).all(|at| self.limits[at][at] >= 0)
    }

    /// From when to when packet `at` can have been: ticks since [`START`].
    fn range(&self, at: usize) -> (i64, i64) {
        (-self.limits[at][self.start] >> 16, (self.limits[self.start][at] >> 16) + 1)
    }
}

/// The clock's times of flow packets, by their places in the stream, and the errors that it has counted.
fn times(stream: &[Piece]) -> (Vec<(usize, EventTime)>, u64) {
    let pt = PtConfig { cyc: true, tsc_ctc_ratio: (250, 2), max_nonturbo_ratio: 30, ..PtConfig::default() };
    let conversion = TscClock { shift: 0, mult: 1, zero: 0 };
    let mut clock =
        Clock::new(&pt, CrystalRatio::exact(125), conversion, Tsc(START), TimelineRoom::default());
    let mut slots = vec![];
    for (at, piece) in stream.iter().enumerate() {
        match *piece {
            Piece::Tsc(ticks, in_psb) => {
                let tsc = START.wrapping_add_signed(ticks);
                clock.tsc(tsc, in_psb);
                clock.tma((tsc / 125) as u16, (tsc % 125) as u16);
                clock.cbr(36);
            }
            Piece::Mtc(period) => clock.mtc(((8000 + 8 * u64::from(period)) >> 3) as u8),
            Piece::Cyc(cycles) => clock.cyc(cycles),
            Piece::Pge => {
                clock.discontinuity();
                slots.push((at, clock.slot(0)));
            }
            Piece::Flow => slots.push((at, clock.slot(0))),
        }
    }
    clock.finish(None);
    let mut times = clock.times();
    (slots.into_iter().map(|(at, slot)| (at, times.at(slot))).collect(), clock.errors)
}

fn check(stream: &[Piece]) -> Result<(), TestCaseError> {
    let (times, errors) = times(stream);
    if errors > 0 {
        return Ok(());
    }
    let readings = Readings::of(stream);
    prop_assert!(readings.exist(), "no reading of {stream:?}: {times:?}");
    for (at, time) in times {
        let (lo, hi) = readings.range(at);
        let since_start = |ns: Ns| i64::try_from(ns.0).unwrap_or(i64::MAX).saturating_sub(START as i64);
        let (time_lo, time_hi) = (since_start(time.lo), since_start(time.hi));
        prop_assert!(
            time_lo <= hi && lo <= time_hi,
            "packet {at} of {stream:?}: {time_lo}..{time_hi}, not {lo}..{hi}"
        );
    }
    Ok(())
}

/// What happens next, after a number of ticks.
#[derive(Clone, Copy, Debug)]
enum Next {
    Flow,
    /// Tracing is off for all of that time.
    Pge,
    Tsc(bool),
    /// MTC packets as time passes.
    Mtc,
}

/// The packets of a core at 36 times the bus clock to which this happens.
fn stream(all: &[(Next, i64)]) -> Vec<Piece> {
    let mut stream = vec![Piece::Tsc(10, true)];
    let (mut now, mut counted) = (10, 10);
    let cycles_to = |at: i64, counted: &mut i64| {
        let cycles = (at - std::mem::replace(counted, at)) * 36 / 30;
        Piece::Cyc(cycles as u64)
    };
    for &(next, ticks) in all {
        let end = now + ticks;
        match next {
            Next::Mtc => {
                for period in now / 1000 + 1..=end / 1000 {
                    stream.extend([cycles_to(period * 1000, &mut counted), Piece::Mtc(period as u8)]);
                }
            }
            Next::Tsc(in_psb) => stream.extend([cycles_to(end, &mut counted), Piece::Tsc(end, in_psb)]),
            Next::Flow => stream.extend([cycles_to(end, &mut counted), Piece::Flow]),
            Next::Pge => {
                counted = end;
                stream.extend([Piece::Cyc(0), Piece::Pge]);
            }
        }
        now = end;
    }
    stream
}

/// What becomes of one of the packets.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Replaced(Piece),
    Lost,
    /// It comes this many packets late.
    Late(usize),
}

fn next() -> impl Strategy<Value = (Next, i64)> {
    let next = prop_oneof![
        1 => any::<bool>().prop_map(Next::Tsc),
        3 => Just(Next::Mtc),
        2 => Just(Next::Pge),
        4 => Just(Next::Flow),
    ];
    (next, 0..1500_i64)
}

fn damage() -> impl Strategy<Value = Damage> {
    let piece = prop_oneof![
        (0..8000_i64, any::<bool>()).prop_map(|(ticks, in_psb)| Piece::Tsc(ticks, in_psb)),
        (0..9_u8).prop_map(Piece::Mtc),
        (0..2500_u64).prop_map(Piece::Cyc),
        Just(Piece::Pge),
        Just(Piece::Flow),
    ];
    prop_oneof![piece.prop_map(Damage::Replaced), Just(Damage::Lost), (1..4_usize).prop_map(Damage::Late)]
}

fn damaged(mut stream: Vec<Piece>, damages: &[(prop::sample::Index, Damage)]) -> Vec<Piece> {
    for (index, damage) in damages {
        let at = index.index(stream.len());
        match *damage {
            Damage::Replaced(piece) => stream[at] = piece,
            Damage::Lost => _ = stream.remove(at),
            Damage::Late(packets) => {
                let piece = stream.remove(at);
                stream.insert((at + packets).min(stream.len()), piece);
            }
        }
        if stream.is_empty() {
            break;
        }
    }
    stream
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn a_bound_that_fits_no_reading_is_a_counted_error(
        all in prop::collection::vec(next(), 1..12),
        damages in prop::collection::vec((any::<prop::sample::Index>(), damage()), 0..5),
    ) {
        check(&damaged(stream(&all), &damages))?;
    }
}

/// The PGE was given 1 ns, 50 ns before the MTC in front of it: what the TSC in PSB+ and that after the PGE
/// leave open of each other was not looked at before the MTC was held against it.
#[test]
fn an_mtc_before_a_psb_contradicts_two_tsc_packets_after_it() {
    use Piece::{Cyc, Flow, Mtc, Pge, Tsc};
    let stream = [
        Tsc(10, true),
        Cyc(2388),
        Mtc(2),
        Cyc(1200),
        Mtc(3),
        Cyc(1200),
        Mtc(4),
        Tsc(3946, true),
        Pge,
        Cyc(1027),
        Flow,
        Cyc(392),
        Tsc(5064, false),
    ];
    assert_eq!(times(&stream).1, 1);
}

/// Nothing but a sleep in front of the MTC explains the time up to there, and CYC packets may stand between.
#[test]
fn cycles_between_the_packets_of_a_wake_up_are_no_contradiction() {
    use Piece::{Cyc, Flow, Mtc, Tsc};
    let stream = [Tsc(10, true), Cyc(0), Flow, Cyc(872), Mtc(1), Cyc(0), Tsc(946, false)];
    assert_eq!(times(&stream).1, 0);
    check(&stream).unwrap();
}

/// 1500 ticks after the MTC that said so.
#[test]
fn an_mtc_that_is_said_again_too_late_is_a_counted_error() {
    use Piece::{Cyc, Mtc, Tsc};
    let errors = |cycles| times(&[Tsc(10, true), Cyc(1188), Mtc(1), Cyc(cycles), Mtc(1)]).1;
    assert_eq!((errors(1100), errors(1800)), (0, 1));
}
