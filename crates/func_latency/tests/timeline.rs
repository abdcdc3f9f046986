//! The timeline of made-up calls, held against `tests/goldens`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod golden;
mod made_up;

use analyzer::Report;
use func_latency::render::View;
use func_latency::render::timeline::{self, TimelineStyle};
use golden::check_golden;
use model::{Ns, Tid};

const STYLE: TimelineStyle = TimelineStyle { bin_calls: 1, window: None, colour: false, width: 80 };

fn drawn(report: &Report, style: TimelineStyle) -> String {
    let mut out = vec![];
    timeline::write(&mut out, &made_up::view(report), &style).unwrap();
    String::from_utf8(out).unwrap()
}

/// Calls of three threads: the slow one, and two others.
fn three_threads() -> Report {
    let mut report = made_up::report(8_000);
    report.functions[0].rows.retain(|row| [Tid(1002), Tid(1003), Tid(1007)].contains(&row.id.tid));
    report
}

#[test]
fn each_call_is_a_dot() {
    check_golden("timeline.txt", drawn(&three_threads(), STYLE).as_bytes());
}

/// The slow ones would be gone in an average.
#[test]
fn bins_are_least_median_and_most() {
    let style = TimelineStyle { bin_calls: 50, ..STYLE };
    check_golden("timeline-bins.txt", drawn(&three_threads(), style).as_bytes());
}

#[test]
fn a_part_of_the_time_in_a_wide_terminal() {
    let from = made_up::BEGIN_NS + 790_000_000;
    let window = Some((Ns(from), Ns(from + 120_000_000)));
    let mut report = three_threads();
    let is_in = |start: Ns| (from..=from + 120_000_000).contains(&start.0);
    report.functions[0].rows.retain(|row| is_in(row.start_ns));
    check_golden(
        "timeline-part.txt",
        drawn(&report, TimelineStyle { window, width: 120, ..STYLE }).as_bytes(),
    );
}

/// The last line named a `show` that had nothing to open.
#[test]
fn calls_that_probes_have_timed_are_not_said_to_be_opened() {
    let report = three_threads();
    let mut out = vec![];
    let view = made_up::view(&report);
    timeline::write(&mut out, &View { decoder: "uprobe", ..view }, &STYLE).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        !text.contains("show ID") && text.contains("--html FILE; why they were slow: --explain"),
        "{text}"
    );
    assert!(drawn(&report, STYLE).contains("func_latency show ID -i perf.data -f FUNC"));
}

/// Their rows had nothing that said whether the figures are of them.
#[test]
fn probed_calls_say_where_they_began() {
    let text = drawn(&made_up::probed(three_threads()), STYLE);
    let says = "  figures are of calls that began where the function was probed alone; all are drawn\n";
    assert!(text.contains(says), "{text}");
    let mut list = text.lines().skip_while(|line| !line.starts_with("  called from"));
    assert!(list.next().unwrap().ends_with("  off-CPU  probed"), "{text}");
    let listed: Vec<&str> = list.filter(|line| line.contains(" ns    1003")).collect();
    let is_marked = |line: &&str| line.ends_with(" us  with children");
    assert!(listed.len() == 8 && listed.iter().all(is_marked), "{text}");
    assert!(!drawn(&three_threads(), STYLE).contains("probed"));
}

/// Without its colours the picture is the same.
#[test]
fn colours_change_no_character() {
    let report = three_threads();
    let coloured = drawn(&report, TimelineStyle { colour: true, ..STYLE });
    assert!(coloured.contains("\x1b[1;31m") && coloured.contains("\x1b[33m↑\x1b[0m"), "{coloured}");
    let plain: String = coloured
        .split('\x1b')
        .enumerate()
        .map(|(i, part)| if i == 0 { part } else { &part[part.find('m').unwrap() + 1..] })
        .collect();
    assert_eq!(plain, drawn(&report, STYLE));
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [80, 120] {
        let text = drawn(&made_up::report(3_000), TimelineStyle { width, ..STYLE });
        let lines = text.lines().filter(|line| line.contains(['┤', '│', '└', '↑']));
        assert_eq!(lines.map(|line| line.chars().count()).max(), Some(width));
    }
}

#[test]
fn no_call_is_no_plot() {
    let mut report = made_up::report(10);
    report.functions = vec![made_up::no_calls()];
    assert!(drawn(&report, STYLE).ends_with("  no call of any kind was seen\n"));
}
