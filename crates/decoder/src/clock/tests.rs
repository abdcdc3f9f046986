//! Packets in, times out.

use model::EventTime;

use super::*;

/// 3 GHz TSC at 1 tick per ns of the test's clock, crystal 24 MHz (125 ticks), core 3.6 GHz.
fn clock(cyc: bool) -> Clock {
    clock_from(0, cyc)
}

/// [`clock`], with a TSC that is larger by `more`.
fn clock_from(more: u64, cyc: bool) -> Clock {
    let pt = PtConfig { cyc, tsc_ctc_ratio: (250, 2), max_nonturbo_ratio: 30, ..PtConfig::default() };
    let ratio = CrystalRatio::exact(125);
    let conversion = TscClock { shift: 0, mult: 1, zero: 0 };
    let mut clock = Clock::new(&pt, ratio, conversion, Tsc(more + 1_000_000), TimelineRoom::default());
    clock.tsc(more + 1_000_010, true);
    clock.tma(8000, 10);
    clock.cbr(36);
    clock.cyc(0);
    clock
}

fn range(time: EventTime) -> (u64, u64, u64) {
    (time.lo.0, time.point.0, time.hi.0)
}

/// It was exactly at 0.
#[test]
fn without_an_anchor_a_time_is_any_of_the_recording() {
    let without_anchor = |tsc| {
        let pt = PtConfig { cyc: true, tsc, ..PtConfig::default() };
        let conversion = TscClock { shift: 0, mult: 1, zero: 0 };
        let mut clock = Clock::new(&pt, None, conversion, Tsc(1_000_000), TimelineRoom::default());
        clock.bound(Ns(1_000_000), Ns(3_000_000));
        clock
    };
    let mut clock = without_anchor(true);
    clock.cyc(600);
    let slot = clock.slot(0);
    clock.finish(Some(Ns(3_000_000)));
    assert_eq!(range(clock.times().at(slot)), (1_000_000, 1_000_000, 3_000_000));
    // A recording without times has none, whatever its packets say.
    let mut clock = without_anchor(false);
    clock.tsc(2_000_000, true);
    let slot = clock.slot(0);
    clock.finish(Some(Ns(3_000_000)));
    assert_eq!((clock.is_set(), range(clock.times().at(slot))), (false, (0, 0, 0)));
}

#[test]
fn cycles_between_two_anchors_are_scaled() {
    let mut clock = clock(true);
    clock.cyc(600); // 500 ticks by CBR
    let slot = clock.slot(0);
    clock.cyc(588);
    clock.mtc((8008 >> 3) as u8); // 8 * 125 - 10 = 990 ticks after the TSC
    clock.finish(None);
    let (lo, point, hi) = range(clock.times().at(slot));
    assert_eq!(point, 1_000_010 + 990 * 600 / 1188);
    assert!((1_000_504..=point).contains(&lo) && (point..=1_000_517).contains(&hi), "{lo} {point} {hi}");
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
    clock.tsc(1_010_000, true); // 9990 ticks
    clock.finish(None);
    let (lo, point, hi) = range(clock.times().at(before));
    assert_eq!(point, 1_000_109 + USUAL);
    assert!(lo >= 1_000_107 && hi <= 1_000_115 + LONGEST, "{lo} {hi}");
    let (lo, point, hi) = range(clock.times().at(after));
    assert_eq!(point, 1_010_000 - 300 + USUAL - 1);
    assert!(lo >= 1_010_000 - 306 && hi <= 1_010_000 - 295 + LONGEST, "{lo} {hi}");
}

#[test]
fn it_is_said_how_long_now_stays_in_a_range() {
    let at = |lo, point| Now { lo: Tsc(lo), point: Tsc(point) };
    let (first, last) = (at(1_000_010, 1_000_010), at(1_000_500, 1_000_600));
    let until = clock(true).cycles_until(first, last).unwrap();
    assert!((540..=546).contains(&until), "{until}"); // 490 ticks, less the usual lag
    for cycles in [0, until - 1] {
        let mut clock = clock(true);
        clock.cyc(cycles);
        let now = clock.now().unwrap();
        assert!(first.lo <= now.lo && first.point <= now.point && now.point <= last.lo, "{now:?}");
    }
    assert_eq!(clock(true).cycles_until(at(1_000_011, 1_000_010), last), None);
    assert_eq!(clock(true).cycles_until(at(1_000_010, 1_000_011 + USUAL), last), None);
    assert_eq!(clock(true).cycles_until(first, at(1_000_500, 1_000_009 + USUAL)), Some(0));
    assert_eq!(clock(true).cycles_until(first, at(u64::MAX, u64::MAX)), Some(u64::MAX / ((30 << 16) / 36)));
}

/// MTC packets 1000 ticks apart, 1200 cycles between each; in the second interval only 300, 120 of them
/// before the slot.
#[test]
fn time_that_cycles_do_not_account_for_is_anywhere_in_its_interval() {
    let mut clock = clock(true);
    let mtc = |clock: &mut Clock, number: u64| clock.mtc((1000 + number) as u8);
    clock.cyc(1188);
    mtc(&mut clock, 1);
    clock.cyc(120); // 100 ticks
    let slot = clock.slot(0);
    clock.cyc(180); // 150 ticks
    mtc(&mut clock, 2);
    clock.cyc(1200);
    mtc(&mut clock, 3);
    clock.finish(None);
    let (lo, _, hi) = range(clock.times().at(slot));
    assert!((1_001_090..=1_001_100).contains(&lo) && (1_001_850..=1_001_860).contains(&hi), "{lo} {hi}");
}

#[test]
fn where_anchor_and_cycles_contradict_each_other_both_may_be_right() {
    let mut clock = clock(true);
    clock.cyc(2400); // 2000 ticks, but the next MTC stands for 990
    clock.discontinuity();
    let slot = clock.slot(0);
    clock.mtc((8008 >> 3) as u8);
    clock.finish(None);
    let (lo, _, hi) = range(clock.times().at(slot));
    assert!(lo <= 1_001_000 && hi >= 1_002_010, "{lo} {hi}");
    assert!(clock.errors > 0);
}

#[test]
fn without_cyc_the_anchors_are_the_bounds() {
    let mut clock = clock(false);
    clock.progress(3);
    let slot = clock.slot(0);
    clock.progress(6);
    clock.mtc((8008 >> 3) as u8);
    assert_eq!(range(clock.times().at(slot)), (1_000_010, 1_000_363, 1_001_001));
}

#[test]
fn bytes_that_look_like_a_tsc_far_ahead_are_not_one() {
    let mut clock = clock(true);
    clock.bound(Ns(0), Ns(2_000_000));
    clock.tsc(1 << 55, true);
    clock.tma(1, 1);
    let slot = clock.slot(0);
    clock.tsc(1_000_500, true);
    clock.finish(None);
    assert_eq!((clock.times().at(slot).hi, clock.errors), (Ns(1_000_500 + LONGEST), 1));
}

#[test]
fn no_count_of_cycles_and_no_jump_of_the_tsc_is_too_much() {
    let mut clock = clock(true);
    clock.cyc(u64::MAX >> 3);
    let slot = clock.slot(0);
    clock.cyc(u64::MAX >> 3);
    clock.tsc((1 << 55) - 1, true);
    clock.finish(None);
    let time = clock.times().at(slot);
    assert!(time.lo <= time.point && time.point <= time.hi);
}

#[test]
fn mtc_counts_on_over_its_eight_bits() {
    let mut clock = clock(true);
    let mut mtc = |period: u64| {
        clock.cyc(1200);
        let slot = clock.slot(0);
        clock.mtc(((8000 + 8 * period) >> 3) as u8);
        slot
    };
    let slots: Vec<_> = (1..600).map(&mut mtc).collect();
    clock.finish(None);
    for (slot, period) in slots.into_iter().zip(1..) {
        assert_eq!(clock.times().at(slot).hi.0, 1_000_001 + 1000 * period);
    }
}

#[test]
fn a_wrong_ratio_is_counted_and_widens() {
    let mut clock = clock(true);
    clock.cyc(1150);
    clock.mtc(mtc(1));
    clock.cyc(2400); // by CBR 2000 ticks, but only 1000 pass
    let slot = clock.slot(0);
    clock.cyc(10);
    clock.mtc(mtc(2));
    clock.finish(None);
    let (lo, point, hi) = range(clock.times().at(slot));
    assert!(lo <= point && point <= hi && hi <= 1_002_001 && lo >= 1_000_999);
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
    assert!(clock.times().at(sure).hi.0 <= 1_000_115 + 2 * LONGEST);
    assert_eq!(range(clock.times().at(unsure)), (1_000_107, 1_000_109 + USUAL, 1_002_000));
}

/// A death is no end of the trace of another thread that has the number since, if its birth was lost.
#[test]
fn an_end_that_is_before_the_last_anchor_is_none() {
    let mut clock = clock(true);
    clock.discontinuity();
    let slot = clock.slot(0);
    clock.finish([Ns(1_000_000), Ns(1_002_000), Ns(1_003_000)]);
    assert_eq!(clock.times().at(slot).hi, Ns(1_002_000));
}

/// The number of the MTC packet `period` periods after the TMA of [`clock`].
fn mtc(period: u64) -> u8 {
    ((8000 + 8 * period) >> 3) as u8
}

#[test]
fn an_mtc_that_says_what_is_known_is_no_anchor() {
    let mut clock = clock(false);
    let slot = clock.slot(0);
    clock.mtc(mtc(0)); // TMA had this already
    clock.mtc(mtc(1));
    clock.mtc(mtc(1));
    let after = clock.slot(0);
    clock.mtc(mtc(2));
    assert_eq!((clock.times().at(slot).hi.0, clock.times().at(after).hi.0), (1_001_001, 1_002_001));
    assert_eq!(clock.errors, 0);
}

#[test]
fn an_mtc_behind_skipped_ones_may_be_late() {
    let mut clock = clock(false);
    clock.mtc(mtc(3));
    let slot = clock.slot(0);
    clock.mtc(mtc(5));
    assert_eq!(range(clock.times().at(slot)).0, 1_002_999);
    assert_eq!(range(clock.times().at(slot)).2, 1_006_001);
}

#[test]
fn cycles_tell_how_often_the_counter_went_round() {
    let mut clock = clock(true);
    clock.cyc(300 * 1200);
    let slot = clock.slot(0);
    clock.mtc(mtc(300)); // 44 by its eight bits
    clock.tsc(1_300_000, true);
    clock.finish(None);
    let time = clock.times().at(slot);
    assert!(time.lo.0 <= 1_300_000 && 1_300_000 <= time.hi.0, "{time:?}");
}

#[test]
fn a_tsc_before_what_mtc_said_takes_that_back() {
    let mut clock = clock(false);
    clock.mtc(mtc(100));
    let wrong = clock.slot(0);
    clock.mtc(mtc(101));
    clock.tsc(1_002_000, true);
    let right = clock.slot(0);
    clock.tsc(1_003_000, true);
    // Without cycles CBR may be late, and the core half as fast as it says.
    let latest = 1_002_000 + 2 * LONGEST;
    assert_eq!(range(clock.times().at(wrong)), (1_000_010, latest, latest));
    assert_eq!(range(clock.times().at(right)), (1_002_000, 1_002_000 + USUAL - 1, 1_003_000 + 2 * LONGEST));
    assert_eq!(clock.errors, 1);
}

/// TSC ticks for a lag of 42 and of 64 cycles at the ratio of [`clock`], and where there is no CBR.
const USUAL: u64 = 35;
const LONGEST: u64 = 54;
const LONGEST_BY_NO_CBR: u64 = 0x1000;

#[test]
fn a_tsc_may_be_older_than_an_mtc_before_it() {
    // At a PSB a segment may begin, which does not know of the MTC.
    for (in_psb, lo) in [(false, 1_001_999), (true, 1_001_990)] {
        let mut clock = clock(false);
        clock.mtc(mtc(1));
        let before = clock.slot(0);
        clock.mtc(mtc(2));
        clock.tsc(1_001_990, in_psb);
        clock.tma(8015, 115);
        let after = clock.slot(0);
        clock.mtc(mtc(3));
        let later = clock.slot(0);
        clock.mtc(mtc(4));
        assert_eq!((clock.times().at(before).lo.0, clock.times().at(before).hi.0), (1_000_999, 1_002_001));
        // The next MTC follows the one before it, not the counter that TMA says: none was skipped.
        let time = clock.times().at(after);
        assert_eq!((time.lo.0, time.hi.0), (lo, 1_003_001));
        assert_eq!((clock.times().at(later).hi.0, clock.errors), (1_004_001, 0));
    }
}

/// What is asked for before a PSB changes nothing after it: there, bounds start anew from the TSC, which may
/// be older.
#[test]
fn no_bound_before_a_psb_is_above_those_after_it() {
    let mut clock = clock(true);
    clock.cyc(1188);
    clock.mtc(mtc(1));
    clock.cyc(1198);
    let before = clock.slot(0);
    clock.cyc(2);
    clock.mtc(mtc(2));
    clock.cyc(6);
    let between = clock.slot(0);
    clock.tsc(1_001_990, true);
    clock.tma(8015, 115);
    clock.cyc(6);
    let after = clock.slot(0);
    clock.cyc(1188);
    clock.mtc(mtc(3));
    clock.finish(None);
    let lo = [before, between, after].map(|slot| clock.times().at(slot).lo.0);
    assert_eq!((lo.is_sorted(), lo[0], clock.errors), (true, 1_001_994, 0), "{lo:?}");
}

/// Bounds that MTC is taken back for start at the TSC before, and no bound before them is above that.
#[test]
fn no_bound_before_what_is_taken_back_is_above_it() {
    let mut clock = clock(true);
    clock.cyc(1188);
    clock.mtc(mtc(1));
    clock.cyc(600);
    let before = clock.slot(0);
    clock.tsc(1_001_470, false);
    clock.tma(8011, 95);
    clock.cyc(12);
    let after = clock.slot(0);
    clock.cyc(588);
    clock.mtc(mtc(2));
    clock.mtc(mtc(100));
    clock.tsc(1_003_000, false);
    clock.finish(None);
    let lo = [before, after].map(|slot| clock.times().at(slot).lo.0);
    assert_eq!((lo, clock.errors), ([1_001_470; 2], 1));
}

/// So late that times come down to lines.
const LATE: u64 = 1 << 40;

/// The usual case and the general one count alike, and counting changes no time.
#[test]
fn cycles_that_come_with_times_are_those_of_the_slots() {
    let mut clock = clock_from(LATE, true);
    clock.cyc(1188);
    clock.mtc(mtc(1));
    let (mut slots, mut work, mut ratio) = (vec![], 0, 36);
    for period in 2..60 {
        for part in 0..4 {
            clock.cyc(1000 * ratio / 30 / 4);
            slots.push((clock.slot(work), work));
            work += 3 + 5 * part;
        }
        if period % 7 == 0 {
            ratio = 30 + period % 11;
            clock.cbr(ratio as u8);
        }
        clock.mtc(mtc(period));
    }
    clock.finish(None);
    let (mut counting, mut plain) = (clock.times_with_cycles(), clock.times());
    let mut cycles = clock.cycles().unwrap();
    let mut counted = 0;
    for group in slots.windows(3) {
        let [(first, _), (second, from), (last, to)] = *group else { unreachable!() };
        for (lo, work) in [first, second].into_iter().flat_map(|lo| (from..=to).map(move |work| (lo, work))) {
            let (time, passed) = counting.between_with_cycles(lo, last, work);
            assert_eq!(time, plain.between(lo, last, work));
            let Some(passed) = passed else { continue };
            assert_eq!(passed, cycles.between(lo, last, work));
            counted += 1;
        }
    }
    assert!(counted > 1000, "{counted}");
}

/// A damaged count is no sum that others can be added to.
#[test]
fn a_count_of_cycles_that_is_too_much_is_left_to_the_general_case() {
    let mut clock = clock_from(LATE, true);
    clock.cyc(u64::MAX);
    clock.tsc(LATE + 1_010_000, true);
    clock.tma(8080, 0);
    let mut slots = vec![];
    for period in 11..20 {
        (0..4).for_each(|_| {
            clock.cyc(300);
            slots.push(clock.slot(0));
        });
        clock.mtc(mtc(period));
    }
    clock.finish(None);
    let mut times = clock.times_with_cycles();
    for pair in slots.windows(2) {
        times.at(pair[1]);
        assert_eq!(times.between_with_cycles(pair[0], pair[1], 0).1, None);
    }
}

/// A TSC packet that is `lag` cycles old, 600 cycles after the MTC before it, in PSB+ or not; a slot 60
/// cycles after it, an MTC at the 1200th cycle, and two more: the slot's time, in truth 1_001_550.
fn slot_after_a_tsc(clock: &mut Clock, lag: u64, in_psb: bool) -> EventTime {
    clock.cyc(1150);
    clock.mtc(mtc(1));
    clock.cyc(600);
    let ticks = 1_001_500 - lag * 30 / 36;
    clock.tsc(ticks, in_psb);
    clock.tma(8000 + ((ticks - 1_000_000) / 125) as u16, (ticks % 125) as u16);
    clock.cyc(60);
    let slot = clock.slot(0);
    clock.cyc(540);
    (2..5).for_each(|period| {
        clock.mtc(mtc(period));
        clock.cyc(1200);
    });
    clock.finish(None);
    clock.times().at(slot)
}

#[test]
fn a_tsc_says_what_the_tsc_was_at_most_64_core_cycles_ago() {
    for (lag, in_psb) in [0, 39, 42, 60, 64].into_iter().flat_map(|lag| [(lag, true), (lag, false)]) {
        let mut clock = clock(true);
        let time = slot_after_a_tsc(&mut clock, lag, in_psb);
        assert!(time.lo.0 <= 1_001_550 && 1_001_550 <= time.hi.0, "{lag} {in_psb}: {time:?}");
        assert!(time.hi.since(time.lo) <= 16, "{lag} {in_psb}: {time:?}");
        // The MTC packets around say it better than the usual lag.
        assert!(time.point.0.abs_diff(1_001_550) <= 1, "{lag} {in_psb}: {time:?}");
        assert_eq!(clock.errors, 0, "{lag} {in_psb}");
    }
}

#[test]
fn a_tsc_older_than_64_core_cycles_is_a_contradiction_that_widens() {
    let mut clock = clock(true);
    let time = slot_after_a_tsc(&mut clock, 200, false);
    assert!(time.lo.0 <= 1_001_550 && 1_001_550 <= time.hi.0, "{time:?}");
    // One of the intervals on both sides, as nothing says yet how fast the core is.
    assert_eq!(clock.errors, 1);
}

#[test]
fn no_frequency_is_measured_from_an_interval_that_a_tsc_ends() {
    let mut clock = clock(true);
    clock.cyc(1150);
    clock.mtc(mtc(1));
    assert!(clock.measured.is_none());
    for period in 1..20 {
        clock.cyc(60);
        clock.tsc(1_000_010 + 1000 * period, false); // 48 cycles ago
        clock.cyc(1140);
        clock.mtc(mtc(period + 1));
    }
    clock.finish(None);
    assert!(clock.measured.is_none());
    assert_eq!(clock.errors, 0);
}

/// An MTC, a skipped one, `cycles` cycles with tracing off in between or not, an MTC two periods later: when
/// that was.
fn after_a_skipped_mtc(cycles: u64, breaks: bool) -> (u64, u64) {
    let mut clock = clock(true);
    clock.cyc(1150);
    clock.mtc(mtc(1));
    clock.cyc(cycles);
    if breaks {
        clock.discontinuity();
    }
    clock.mtc(mtc(3));
    let anchor = clock.anchor.unwrap();
    (ticks::floor(anchor.lo).0, ticks::ceil(anchor.hi).0)
}

#[test]
fn cycles_tell_whether_an_mtc_behind_a_skipped_one_is_late() {
    for breaks in [false, true] {
        assert_eq!(after_a_skipped_mtc(2400, breaks), (1_002_999, 1_003_001), "on time");
        assert_eq!(after_a_skipped_mtc(3000, breaks), (1_002_999, 1_004_001), "half a period late");
        // The core has slept: the MTC comes on wake-up, whenever that was.
        assert_eq!(after_a_skipped_mtc(600, breaks), (1_002_999, 1_004_001), "asleep");
    }
}

#[test]
fn a_tsc_that_runs_backwards_is_damage() {
    let mut clock = clock(true);
    clock.tsc(1_000_005, true);
    let slot = clock.slot(0);
    clock.tsc(1_000_500, true);
    clock.finish(None);
    assert_eq!((clock.times().at(slot).hi, clock.errors), (Ns(1_000_500 + LONGEST), 1));
}

#[test]
fn a_tsc_that_is_not_of_the_recording_is_no_time() {
    let pt = PtConfig { max_nonturbo_ratio: 30, ..PtConfig::default() };
    let conversion = TscClock { shift: 0, mult: 1, zero: 0 };
    let start = 2 * START_ROOM_NS;
    let mut clock = Clock::new(&pt, None, conversion, Tsc(start), TimelineRoom::default());
    clock.bound(Ns(start), Ns(start + 1000));
    clock.tsc(start - START_ROOM_NS - 1, true); // of a guest
    let slot = clock.slot(0);
    clock.tsc(start + 5, true);
    clock.finish(None);
    assert_eq!(
        (range(clock.times().at(slot)), clock.errors),
        ((0, start + 5, start + 5 + LONGEST_BY_NO_CBR), 1)
    );
}

/// Ten periods of `cycles` cycles each, with a slot in the middle of each; the slots' distance from where
/// they truly are.
fn periods(clock: &mut Clock, from: u64, cycles: u64) -> Vec<(Slot, u64)> {
    let slots = (from..from + 10).map(|period| {
        clock.cyc(cycles / 2);
        let slot = clock.slot(0);
        clock.cyc(cycles / 2);
        clock.mtc(mtc(period + 1));
        (slot, 1_000_500 + 1000 * period)
    });
    slots.collect()
}

#[test]
fn a_core_clock_that_changes_without_cbr_is_measured() {
    let mut clock = clock(true);
    clock.mtc(mtc(1));
    let mut slots = periods(&mut clock, 1, 1200);
    slots.extend(periods(&mut clock, 11, 1000)); // 36 to 30 at an anchor, and CBR says nothing
    clock.finish(None);
    for (slot, truth) in slots {
        let time = clock.times().at(slot);
        assert!(time.lo.0 <= truth && truth <= time.hi.0, "{truth}: {time:?}");
    }
    // Far from the change the measured frequency is all that is used.
    let last = clock.times().at(Slot(clock.timeline.next().0 - 2));
    assert!(last.hi.since(last.lo) < 16, "{last:?}");
    assert_eq!(clock.errors, 11); // and nothing says where the cycles before the first MTC are
}

#[test]
fn without_cbr_and_ratio_the_core_clock_is_measured() {
    let mut clock = clock(true);
    clock.ratio = CoreRatio::new(0);
    clock.mtc(mtc(1));
    for (slot, truth) in periods(&mut clock, 1, 1200) {
        clock.finish(None);
        let time = clock.times().at(slot);
        assert!(time.lo.0 <= truth && truth <= time.hi.0 && time.hi.since(time.lo) < 20, "{truth}: {time:?}");
    }
}

/// Periods at ratio 36 without a known nonturbo ratio; then one at 30 in which tracing is off for a while:
/// bounds of a slot 500 cycles, and so 500 ticks, after its start, and that start.
fn after_periods_without_ratio(count: u64) -> (EventTime, u64) {
    let mut clock = clock(true);
    clock.ratio = CoreRatio::new(0);
    clock.cbr(36);
    clock.mtc(mtc(1));
    for period in 1..=count {
        clock.cyc(1200);
        clock.mtc(mtc(period + 1));
    }
    clock.cbr(30);
    clock.mtc(mtc(count + 2));
    clock.cyc(500);
    let slot = clock.slot(0);
    clock.discontinuity();
    clock.mtc(mtc(count + 3));
    clock.finish(None);
    (clock.times().at(slot), 1_000_000 + 1000 * (count + 2))
}

#[test]
fn without_cbr_and_ratio_what_was_measured_elsewhere_bounds_nothing() {
    let (time, start) = after_periods_without_ratio(1);
    assert_eq!((time.lo.0, time.hi.0), (start - 1, start + 1001));
}

#[test]
fn what_a_ratio_means_is_learned_from_what_was_measured() {
    let (time, start) = after_periods_without_ratio(3);
    let truth = start + 500;
    assert!(time.lo.0 <= truth && truth <= time.hi.0 && time.hi.since(time.lo) < 30, "{truth}: {time:?}");
}

/// The core runs slower than CBR says up to the first MTC packet, and as CBR says from the second on: nothing
/// tells how fast it is between the two.
#[test]
fn a_first_interval_that_measures_nothing_can_refute_cbr() {
    let mut clock = clock(true);
    clock.cyc(800); // in 990 ticks; CBR says 667
    clock.mtc(mtc(1));
    clock.cyc(500);
    clock.discontinuity();
    let slot = clock.slot(0);
    clock.cyc(300);
    clock.mtc(mtc(2));
    for period in 3..6 {
        clock.cyc(1200);
        clock.mtc(mtc(period));
    }
    clock.finish(None);
    let (lo, _, hi) = range(clock.times().at(slot));
    // The 300 cycles up to the next MTC packet take 371 ticks if the core is as slow as before, 250 if it is
    // as fast as after them, and 125 if it slept before and CBR was late.
    assert!((1_001_620..=1_001_629).contains(&lo) && (1_001_875..=1_001_885).contains(&hi), "{lo} {hi}");
}

/// It was at 1,001,260, when an MTC packet had been skipped. The core slept until 1,257,010, when its MTC
/// packet has the bits of 256 counts before.
#[test]
fn the_counter_may_go_round_while_the_core_sleeps() {
    for cyc in [true, false] {
        let mut clock = clock(cyc);
        clock.cyc(1500);
        clock.progress(1);
        let slot = clock.slot(0);
        clock.discontinuity();
        clock.cyc(60);
        clock.mtc((8008 >> 3) as u8);
        clock.tsc(1_257_010, false);
        clock.finish(None);
        let (lo, _, hi) = range(clock.times().at(slot));
        assert!((lo..=hi).contains(&1_001_260), "{lo} to {hi}");
    }
}

/// A core wakes up 100 ticks after the counter has come to this period.
fn wakes_up(clock: &mut Clock, period: u64) {
    clock.cyc(2); // from before it slept
    clock.mtc(mtc(period));
    clock.tsc(1_000_100 + 1000 * period, false);
    clock.tma((8000 + 8 * period) as u16, 100);
    clock.cbr(36);
}

/// Random program 4006471: the intervals before and after seemed to measure the same longer cycle.
#[test]
fn intervals_that_a_sleep_ends_measure_nothing() {
    let mut clock = clock(true);
    clock.cyc(1188);
    clock.mtc(mtc(1));
    clock.cyc(300);
    let before = clock.slot(0); // at 1_001_250
    wakes_up(&mut clock, 2);
    clock.cyc(540);
    let slot = clock.slot(0); // at 1_002_550
    wakes_up(&mut clock, 5);
    clock.cyc(1080);
    clock.mtc(mtc(6));
    clock.cyc(300);
    wakes_up(&mut clock, 7);
    clock.finish(None);
    let (lo, _, hi) = range(clock.times().at(slot));
    assert!((1_002_540..=1_002_550).contains(&lo) && (1_002_550..=1_002_620).contains(&hi), "{lo} {hi}");
    let (lo, _, hi) = range(clock.times().at(before));
    assert!((1_001_240..=1_001_250).contains(&lo) && (1_001_250..=1_001_260).contains(&hi), "{lo} {hi}");
    assert_eq!(clock.errors, 0);
}
