//! The view of `watch`: what it shows, and what its keys do.

use analyzer::{Bucket, Spread, Stats};
use func_latency::render::interval::{SeenBy, TraceSeen};
use func_latency::render::screen::draw;
use func_latency::render::screen::figures::{FunctionFigures, IntervalFigures, ListedCall, TimeRow};
use func_latency::render::screen::state::{KnownCapture, ScreenKey, State, Wish};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;

use super::golden::check_golden;

const S: u64 = 1_000_000_000;

fn row(name: &str, sum_ns: u64, count: u64) -> TimeRow {
    TimeRow { name: name.to_owned(), sum_ns, count }
}

/// `counts` from 2^10 ns on.
fn function(name: &str, counts: &[u64]) -> FunctionFigures {
    let low_ns = |at: usize| 1024 << at;
    let bucket = |(at, count): (usize, &u64)| Bucket {
        low_ns: low_ns(at),
        high_ns: low_ns(at + 1),
        count: *count,
        off_cpu_count: None,
    };
    let spread = Spread {
        min_ns: 1_100,
        mean_ns: 2_345.6,
        stddev_ns: 1_000.0,
        p50_ns: 2_100,
        p90_ns: 3_900,
        p99_ns: 7_000,
        p999_ns: 60_000,
        max_ns: 131_000,
    };
    let count: u64 = counts.iter().sum();
    FunctionFigures {
        name: name.to_owned(),
        calls: count,
        error_ns: Some(120),
        latency: Some(Stats { count, sum_ns: count * 2_346, rounded: false, spread: Some(spread) }),
        off_cpu: Some(12.5),
        histogram: counts.iter().enumerate().map(bucket).collect(),
        children: vec![
            row("row_sel_get_clust_rec_for_mysql", 2_000_000, 900),
            row("*self", 500_000, 1_000),
            row("[syscall]", 1_000, 3),
        ],
        waits: vec![row("futex", 300_000, 4), row("[preempted]", 20_000, 1)],
        wakers: vec![row("log_writer (4712)", 280_000, 3), row("[interrupt]", 10_000, 1)],
        callers: vec![
            row("ha_innobase::index_read", 2_300_000, 990),
            row("ha_innobase::general_fetch", 1_000, 10),
        ],
    }
}

fn slow(id: &str, second: u64, latency_ns: u64) -> ListedCall {
    ListedCall { function: 0, id: id.to_owned(), tid: 4711, start_ns: second * S, latency_ns }
}

/// The n-th second of a watch.
fn interval(second: u64) -> IntervalFigures {
    let slow_calls = if second % 7 == 3 { 3 } else { 0 };
    let counts = [900 + second, 80, 7, 0, 0, 0, slow_calls];
    let of = |name| function(name, &counts);
    IntervalFigures {
        time_ns: (100 + second) * S,
        interval_ns: S,
        functions: vec![of("row_search_mvcc"), of("row_upd_step")],
        total: Some(vec![function("row_search_mvcc", &[90_000]), function("row_upd_step", &[1])]),
        slowest: vec![slow(&format!("4711-{second}"), 99 + second, 100_000 + second)],
        lost_ns: 0,
        seen_by: SeenBy::Trace(TraceSeen {
            recorded_bytes: 12_345_678,
            not_decoded_bytes: if second == 9 { 4_518_518 } else { 0 },
            behind_ns: 250_000_000,
        }),
    }
}

fn watched(seconds: u64) -> State {
    let mut state = State::default();
    (0..seconds).for_each(|second| state.add(interval(second)));
    state
}

fn drawn(state: &State, width: u16, height: u16, has_colours: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, has_colours)).unwrap();
    terminal.backend().buffer().clone()
}

fn text(state: &State, width: u16, height: u16) -> String {
    let buffer = drawn(state, width, height, false);
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

fn capture(path: &str) -> KnownCapture {
    KnownCapture {
        path: path.to_owned(),
        trigger: "over 100 us".to_owned(),
        cause: "blocked for 90 us in fsync".to_owned(),
    }
}

#[test]
fn a_watch_fills_the_screen() {
    let mut state = watched(10);
    state.captured("101000000000-4711-2", capture("captures/101000000000-4711-2"));
    check_golden("screen-80x24.txt", text(&state, 80, 24).as_bytes());
    let mut state = watched(150);
    state.press(ScreenKey::ToggleSpan);
    state.press(ScreenKey::NextFunction);
    for side in ["waited for", "woken by", "called from"] {
        state.press(ScreenKey::NextSide);
        let narrow = text(&state, 80, 24);
        let shown = ["waited for", "woken by", "called from"].map(|title| narrow.contains(title));
        assert_eq!(shown.iter().filter(|is_shown| **is_shown).count(), 1, "{narrow}");
        assert!(narrow.contains(side), "{side}: {narrow}");
    }
    check_golden("screen-200x60.txt", text(&state, 200, 60).as_bytes());
}

#[test]
fn every_size_and_every_state_is_drawn() {
    let mut states = vec![State::default(), watched(1), watched(10)];
    let mut opened = watched(3);
    opened.show("captures/x".to_owned(), "call\n\x1b[31m tree\u{200b} \u{597d}\n");
    states.push(opened);
    for state in &states {
        for (width, height) in [(1, 1), (59, 24), (60, 16), (61, 17), (80, 24), (300, 100)] {
            let text = text(state, width, height);
            assert!(!text.contains('\x1b'), "{text}");
            let has_room = width >= 60 && height >= 16;
            let keys = text.lines().last().unwrap();
            assert_eq!(keys.contains("q end") && height > 1, has_room, "{width} x {height}: {text}");
            assert_eq!(text.starts_with("60 x 16 at least"), !has_room && width > 16, "{text}");
        }
    }
}

#[test]
fn colours_are_those_of_the_number_of_calls() {
    let state = watched(10);
    let backgrounds = |has_colours| {
        let buffer = drawn(&state, 80, 24, has_colours);
        let mut colours: Vec<Color> = buffer.content().iter().map(|cell| cell.bg).collect();
        colours.sort_by_key(|colour| format!("{colour:?}"));
        colours.dedup();
        colours.len()
    };
    assert_eq!(backgrounds(false), 1, "none");
    assert!(backgrounds(true) > 3);
}

#[test]
fn a_paused_view_stands_still_and_loses_nothing() {
    let mut state = watched(5);
    let before = text(&state, 80, 24);
    state.press(ScreenKey::Pause);
    state.add(interval(5));
    state.add(interval(6));
    let paused = text(&state, 80, 24);
    assert!(paused.contains("paused, 2 intervals wait"), "{paused}");
    assert_eq!(before.lines().skip(1).collect::<Vec<_>>(), paused.lines().skip(1).collect::<Vec<_>>());
    state.press(ScreenKey::Pause);
    assert_eq!(text(&state, 80, 24), text(&watched(7), 80, 24));
}

#[test]
fn a_call_is_captured_and_then_opened() {
    let mut state = watched(5);
    let slowest = slow("4711-4", 103, 100_004);
    assert_eq!(state.press(ScreenKey::Open), Some(Wish::Capture(slowest)));
    assert_eq!(state.captured("1-other", capture("captures/1-other")), None, "not the one that was chosen");
    let path = "captures/103000000000-4711-4".to_owned();
    assert_eq!(state.captured("103000000000-4711-4", capture(&path)), Some(Wish::Show(path.clone())));
    // It is there now.
    assert_eq!(state.press(ScreenKey::WritePage), Some(Wish::WritePage(path.clone())));
    let lines: String = (0..100).map(|line| format!("line {line}\n")).collect();
    state.show(path.clone(), &lines);
    state.press(ScreenKey::PageDown);
    state.press(ScreenKey::Down);
    state.press(ScreenKey::Up);
    let opened = text(&state, 80, 24);
    assert!(opened.starts_with("captures/103000000000-4711-4"), "{opened}");
    assert_eq!(opened.lines().nth(1), Some("line 10"), "{opened}");
    assert_eq!(state.press(ScreenKey::WritePage), Some(Wish::WritePage(path)));
    state.press(ScreenKey::Back);
    assert!(text(&state, 80, 24).starts_with("row_search_mvcc"), "back");
}

#[test]
fn the_chosen_call_stays_chosen_as_others_come() {
    let mut state = watched(3);
    state.press(ScreenKey::Down);
    let Some(Wish::Capture(chosen)) = state.press(ScreenKey::Open) else { panic!("no capture") };
    assert_eq!(chosen.id, "4711-1");
    (3..6).for_each(|second| state.add(interval(second)));
    assert_eq!(state.press(ScreenKey::Open), Some(Wish::Capture(chosen)));
    // Five minutes later it is forgotten: the slowest of the others is selected.
    state.add(interval(400));
    let Some(Wish::Capture(selected)) = state.press(ScreenKey::Open) else { panic!("no capture") };
    assert_eq!(selected.id, "4711-400");
    state.press(ScreenKey::NextFunction);
    assert_eq!(state.press(ScreenKey::Open), None, "no slow call of the other function");
    assert_eq!(state.press(ScreenKey::Leave), Some(Wish::Leave));
}
