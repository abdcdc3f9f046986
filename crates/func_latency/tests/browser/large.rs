//! A page of very many calls.

use analyzer::CallRow;
use func_latency::inside::Picks;

use crate::made_up;
use crate::opened::{Opened, start, typical_call};

/// Those that did not end come first, then the slowest; all trees together have a bound.
#[test]
fn trees_are_those_of_the_slowest_and_of_typical_calls() {
    let report = made_up::report(20_000);
    let rows = &report.functions[0].rows;
    let picks = Picks::of(&report.functions[0], |_| true);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|at| (rows[*at].end.status.counted(), std::cmp::Reverse(rows[*at].latency_ns), *at));
    let picked: Vec<usize> = order.iter().copied().filter(|at| picks.rows().contains(at)).collect();
    assert_eq!(picked[..1_500], order[..1_500]);
    let typical: Vec<usize> = picks.typical().values().copied().collect();
    assert!(picked[1_500..].iter().all(|at| typical.contains(at)), "the others are typical ones");
    for at in typical {
        assert_eq!(rows[at].id, typical_call(&report, &rows[at]).id, "it is typical beside itself");
    }
    assert_eq!(picks.nodes_max(), 600_000 / picked.len());
}

#[test]
fn a_million_calls_are_small_and_fast() {
    const CALLS: u64 = 1_000_000;
    let report = made_up::report(CALLS);
    let Some(mut opened) = Opened::new("million", &report) else { return };
    let bytes = std::fs::metadata(&opened.page).unwrap().len();
    assert!(bytes < 30_000_000, "{bytes} bytes");

    assert_eq!(opened.browser.value("document.getElementById('plot').dataset.kind"), "heat");
    assert_eq!(opened.number("plot", "shown"), CALLS as f64);
    let spread = report.functions[0].figures.latency.spread.unwrap();
    let singles = |row: &&CallRow| !row.end.status.counted() || row.latency_ns > spread.p999_ns;
    let singles = report.functions[0].rows.iter().filter(singles).count() as f64;
    assert_eq!(opened.number("plot", "singles"), singles);
    assert_eq!(opened.number("plot", "many"), CALLS as f64 - singles);
    let densest = opened.densest_cell(&report, spread.p999_ns);
    // The two logarithms may differ in their last bit, and a call be in the next cell.
    assert!((opened.number("plot", "densest") - densest).abs() <= 3.0, "{densest}");
    opened.screenshot("light.png");

    // More children than the page takes: it says so, and has those of the slowest.
    let sampled = opened.browser.text("#children");
    assert!(sampled.contains("of the slowest 1 % and of one in 2 of the other calls"), "{sampled}");
    let ended = report.functions[0].rows.iter().filter(|row| row.end.status.counted());
    let slowest = *ended.max_by_key(|row| row.latency_ns).unwrap();
    let at = opened.place(start(&slowest), slowest.latency_ns);
    opened.browser.click(at);
    let details = opened.rows("details");
    assert!(details.iter().any(|row| row.starts_with("fsync")), "{details:?}");
    opened.browser.key("Escape");

    // An ordinary call has no tree here, and the page says how to get it.
    opened.choose("from-latency", "");
    opened.choose("to-latency", "800 ns");
    opened.browser.value("document.querySelector('#slowest button').click()");
    let text = opened.browser.text("#details");
    let id = opened.browser.value("document.getElementById('details').dataset.call");
    let command = format!("func_latency show {} -i perf.data -f row_search_mvcc", id.as_str().unwrap());
    assert!(text.contains("The call trees of the slowest calls") && text.contains(&command), "{text}");
    assert_eq!(opened.browser.value("document.querySelectorAll('.tree').length"), 0);
    opened.browser.key("Escape");

    // On a busy machine some are slow.
    let mut fastest_ms = f64::MAX;
    for step in (0..8).cycle().take(80) {
        let (from, to) =
            (opened.place(700_000_000 + step * 20_000_000, 600), opened.place(1_000_000_000, 2_000_000));
        opened.browser.drag(from, to);
        fastest_ms = fastest_ms.min(opened.number("page", "brushMs"));
        if fastest_ms < 100.0 {
            break;
        }
    }
    opened.browser.key("t");
    let draw_ms = opened.number("plot", "drawMs");
    println!(
        "{CALLS} calls: {bytes} bytes, {fastest_ms} ms for a brush, {draw_ms} ms to count and draw the heat map"
    );
    assert!(fastest_ms < 100.0, "{fastest_ms} ms");
    opened.screenshot("dark.png");
    opened.finish();
}
