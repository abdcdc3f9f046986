//! The plot and the cards: brush, keys, filters, axes.

use analyzer::{CallRow, Stats};
use func_latency::render::units::{duration, grouped};

use crate::opened::{Opened, rows_between, sorted, start, typical_call};
use crate::{inside, made_up};

#[test]
fn slow_calls_are_brushed_explained_and_opened() {
    let report = made_up::report(20_000);
    let Some(mut opened) = Opened::new("scatter", &report) else { return };

    // As it opens: every call a dot, and the slowest hundredth compared with the rest.
    assert_eq!(opened.browser.value("document.getElementById('plot').dataset.kind"), "scatter");
    assert_eq!(opened.number("plot", "shown"), 20_000.0);
    let spread = report.functions[0].figures.latency.spread.unwrap();
    let singles = |row: &&CallRow| !row.end.status.counted() || row.latency_ns > spread.p999_ns;
    let singles = report.functions[0].rows.iter().filter(singles).count();
    assert_eq!(opened.number("plot", "singles"), singles as f64);
    assert_eq!(opened.number("page", "brushed") + opened.number("page", "others"), 20_000.0);
    let title = opened.browser.text("#title");
    assert_eq!(title, "row_search_mvcc");
    opened.screenshot("light.png");

    // The cause that the slow calls were given.
    let (times, latencies) = ((780_000_000, 920_000_000), (100_000, 2_000_000));
    let (from, to) = (opened.place(times.0, latencies.0), opened.place(times.1, latencies.1));
    opened.browser.drag(from, to);
    let slow = rows_between(&report, times, latencies);
    assert_eq!(opened.number("page", "brushed"), slow.len() as f64);
    let factors = opened.rows("factors");
    let factor = |what: &str| factors.iter().find(|row| row.starts_with(what)).cloned().unwrap_or_default();
    assert!(factor("has fsync").contains("|100.0 %|0.0 %|only here"), "{factors:?}");
    assert!(factor("was off its CPU").contains("|100.0 %|0.0 %|only here"), "{factors:?}");
    assert!(factor("thread 1003").contains("|100.0 %|"), "{factors:?}");
    // ... the functions that called these, whatever their names are, and the way that they went.
    let reload = "reload(\"'\\u{202e}daoler\\u{7}&lt;)";
    let chain = factor(&format!("called through {reload} › ha_innobase::index_read"));
    assert!(chain.ends_with("|0.0 %|only here"), "{factors:?}");
    assert!(
        factors.iter().any(|row| row.starts_with("goes way ") && row.contains("with fsync")),
        "{factors:?}"
    );
    assert!(opened.rows("ways")[0].contains("with fsync"), "{:?}", opened.rows("ways"));
    assert!(opened.rows("children")[0].starts_with("fsync|"), "{:?}", opened.rows("children"));
    let median = Stats::of(&sorted(&slow).into_iter().collect()).spread.unwrap().p50_ns;
    let shown = opened.rows("figures").into_iter().find(|row| row.starts_with("p50|")).unwrap();
    assert!(shown.starts_with(&format!("p50|{}|", duration(median))), "{shown}, {median}");
    assert_eq!(opened.rows("slowest").len(), slow.len().min(30));
    opened.screenshot("brushed.png");

    // The slowest of them: what the pointer says, and what a click opens.
    let slowest = **slow.iter().max_by_key(|row| row.latency_ns).unwrap();
    let at = opened.place(start(&slowest), slowest.latency_ns);
    opened.browser.hover(at);
    let id = slowest.id.to_string();
    assert_eq!(opened.browser.value("document.getElementById('tip').dataset.call"), id);
    let tip = opened.browser.text("#tip");
    assert!(tip.starts_with(&format!("{id}: {}", duration(slowest.latency_ns))), "{tip}");
    opened.browser.click(at);
    assert_eq!(opened.browser.value("document.getElementById('details').dataset.call"), id);
    let twin = typical_call(&report, &slowest).id.to_string();
    assert_eq!(opened.browser.value("document.getElementById('details').dataset.typical"), twin);
    let details = opened.rows("details");
    assert!(details[0].contains(&format!("({} ±", grouped(slowest.latency_ns))), "{details:?}");
    assert!(details[2].contains(&format!("({} ns of perf's clock)", slowest.start_ns.0)), "{details:?}");
    let threads = format!("thread|1003 ({}", inside::SLOW_NAME.replace('\u{202e}', "\\u{202e}"));
    assert!(details[3].starts_with(&threads), "{details:?}");
    let next = format!("func_latency show {id} -i perf.data -f row_search_mvcc");
    assert!(opened.browser.text("#details").contains(&next));
    opened.the_trees_are(&report, &slowest, typical_call(&report, &slowest));
    opened.screenshot("opened.png");
    opened.narrow(420);
    opened.screenshot("narrow.png");
    opened.widen();

    // A name of the program is text, whatever it looks like.
    assert_eq!(opened.browser.value("document.querySelectorAll('img').length"), 0);
    assert_eq!(opened.browser.value("document.querySelectorAll('script').length"), 5);

    opened.browser.key("t");
    assert_eq!(opened.browser.value("document.documentElement.dataset.theme"), "dark");
    let paper = opened.browser.value("getComputedStyle(document.body).backgroundColor");
    assert_eq!(paper, "rgb(20, 24, 29)");
    opened.screenshot("dark.png");
    opened.finish();
}

#[test]
fn keys_filters_and_axes_reach_every_call() {
    let mut report = made_up::report(5_000);
    report.functions.push(made_up::no_calls());
    let Some(mut opened) = Opened::new("keys", &report) else { return };
    let rows = &report.functions[0].rows;
    let details =
        "document.getElementById('details').hidden ? '' : document.getElementById('details').dataset.call";

    // From the keyboard alone: the longest call is one that did not end.
    opened.browser.key("Escape");
    assert_eq!(opened.number("page", "brushed"), 0.0);
    opened.browser.value("document.getElementById('plot').focus()");
    opened.browser.key("ArrowUp");
    opened.browser.key("Enter");
    let longest = rows.iter().max_by_key(|row| row.latency_ns).unwrap();
    assert_eq!(opened.browser.value(details), longest.id.to_string());
    opened.browser.key("Escape");
    assert_eq!(opened.browser.value(details), "");
    let single = opened.number("plot", "singles");
    assert!(single >= 4.0, "the walk through them needs some");
    let tip = "document.getElementById('tip').dataset.call";
    opened.browser.value("document.getElementById('plot').focus()");
    let spread = report.functions[0].figures.latency.spread.unwrap();
    let slow: Vec<&CallRow> =
        rows.iter().filter(|row| !row.end.status.counted() || row.latency_ns > spread.p999_ns).collect();
    let at = slow.iter().position(|row| row.id == longest.id).unwrap();
    opened.browser.key("ArrowLeft");
    assert_eq!(opened.browser.value(tip), slow[at - 1].id.to_string());
    opened.browser.key("ArrowDown");
    let mut order: Vec<&CallRow> = rows.iter().collect();
    order.sort_by_key(|row| row.latency_ns);
    let faster = order[order.iter().position(|row| row.id == slow[at - 1].id).unwrap() - 1];
    assert_eq!(opened.browser.value(tip), faster.id.to_string());

    // Beside the axes a brush is of latency or of time alone.
    let (left, top) = opened.corner();
    let beside = left + opened.number("plot", "left") / 2.0;
    let below = top + opened.number("plot", "bottom") + 15.0;
    let (low, high) = (opened.place(0, 3_000).1, opened.place(0, 10_000_000).1);
    opened.browser.drag((beside, low), (beside, high));
    let all = (0, made_up::SPAN_NS);
    let expected = rows_between(&report, all, (3_000, 10_000_000)).len() as f64;
    assert!((opened.number("page", "brushed") - expected).abs() <= 20.0, "a pixel is some calls");
    let (from, to) = (opened.place(500_000_000, 1_000).0, opened.place(1_000_000_000, 1_000).0);
    opened.browser.drag((from, below), (to, below));
    let expected = rows_between(&report, (500_000_000, 1_000_000_000), (0, u64::MAX)).len() as f64;
    assert!((opened.number("page", "brushed") - expected).abs() <= 5.0);

    // A view of the brush alone, and back.
    opened.browser.key("z");
    assert!((opened.number("plot", "shown") - expected).abs() <= 5.0);
    opened.screenshot("zoomed.png");
    opened.browser.key("0");
    assert_eq!(opened.number("plot", "shown"), 5_000.0);

    // Numbers typed in.
    opened.browser.key("Escape");
    opened.choose("from-latency", "100 us");
    let slow = rows_between(&report, all, (100_000, u64::MAX)).len() as f64;
    assert_eq!(opened.number("page", "brushed"), slow);

    // Filters: the fourth thread, then what did not end.
    opened.choose("filter-thread", "3");
    let of_thread = rows.iter().filter(|row| row.id.tid.0 == 1003).count() as f64;
    assert_eq!(opened.number("plot", "shown"), of_thread);
    opened.choose("filter-thread", "");
    opened.choose("filter-status", "2");
    assert_eq!(opened.number("plot", "shown"), 3.0);
    opened.choose("filter-status", "0");
    opened.choose("filter-caller", "0");
    let first = rows.iter().map(|row| row.from).min().unwrap();
    let of_caller = rows.iter().filter(|row| row.from == first).count() as f64;
    assert_eq!(opened.number("plot", "shown"), of_caller);

    // A function that was not called, and back: filters are as they were at first.
    for (function, calls) in [("1", 0.0), ("0", 5_000.0)] {
        opened.choose("function", function);
        opened.browser.wait_for("document.getElementById('page').ariaBusy === 'false'");
        assert_eq!(opened.number("plot", "shown"), calls);
    }

    let print = serde_json::json!({ "media": "print" });
    opened.browser.call("Emulation.setEmulatedMedia", print);
    opened.browser.key("t"); // paper is light, whatever the screen is
    let paper = opened.browser.value("getComputedStyle(document.body).backgroundColor");
    assert_eq!(paper, "rgb(255, 255, 255)");
    let paper = opened.directory.join("paper.pdf");
    opened.browser.print(&paper);
    opened.finish();
}
