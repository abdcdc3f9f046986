//! An opened call: its tree by time and in order, folded and unfolded, its flame graph, and its waits.

use analyzer::{CallRow, Report};
use func_latency::render::units::{duration, grouped, mean_duration};
use serde_json::json;

use crate::opened::{Opened, start};
use crate::{inside, made_up};

/// The slowest of the calls that waited.
fn slowest_waiting(report: &Report) -> CallRow {
    *report.functions[0].rows.iter().max_by_key(|row| row.off_cpu_ns).unwrap()
}

/// What a call's child took; 0: it has none of that function.
fn child_ns(report: &Report, call: &CallRow, function: u32) -> u64 {
    let function_report = &report.functions[0];
    let at = function_report.rows.iter().position(|row| row.id == call.id).unwrap();
    let children = &function_report.row_details.children;
    let of = |child: &&analyzer::RowChild| children.keys[child.key as usize].function.0 == function;
    children.of(at).iter().filter(of).map(|child| child.total.sum_ns).sum()
}

/// The functions of the tree's rows; empty where a row stands for those left out.
fn names(opened: &mut Opened) -> Vec<String> {
    let rows = "[...document.querySelectorAll('.tree tbody tr')].map((row) => row.dataset.name ?? '')";
    let names = opened.browser.value(rows);
    names.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

fn opened_call(test: &str, report: &Report) -> Option<Opened> {
    let mut opened = Opened::new(test, report)?;
    let call = slowest_waiting(report);
    let at = opened.place(start(&call), call.latency_ns);
    opened.browser.click(at);
    let id = opened.browser.value("document.getElementById('details').dataset.call");
    assert_eq!(id, call.id.to_string());
    Some(opened)
}

/// Its first screen showed 11 us of a call of 10 ms.
#[test]
fn a_call_opens_at_its_hot_path() {
    let report = made_up::report(5_000);
    let Some(mut opened) = opened_call("hot-path", &report) else { return };
    // All that it waited for, and what is too short: a hundredth of its time.
    let rows = opened.rows("details .tree");
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert!(rows[1].starts_with("fsync") && rows[2].contains(" more "), "{rows:?}");

    // All of them, by time, and then in order.
    opened.choose_in("[data-tree=least]", "0");
    let by_time = names(&mut opened);
    assert_eq!(by_time[..2], ["row_search_mvcc", "fsync"]);
    opened.choose_in("[data-tree=sort]", "order");
    let in_order = names(&mut opened);
    assert_eq!(in_order[..2], ["row_search_mvcc", "lookup"]);
    assert_eq!(in_order.len(), by_time.len());

    // What was left out is shown from its own row.
    opened.choose_in("[data-tree=least]", "10");
    assert_eq!(opened.rows("details .tree").len(), 3);
    opened.browser.value("document.querySelector('.tree button.link').click()");
    assert_eq!(names(&mut opened), in_order);
    opened.finish();
}

#[test]
fn a_tree_is_walked_and_folded_by_keys() {
    let report = made_up::report(5_000);
    let Some(mut opened) = opened_call("tree-keys", &report) else { return };
    opened.choose_in("[data-tree=least]", "0");
    opened.choose_in("[data-tree=sort]", "order");
    let focused = "document.activeElement.dataset.name";
    let level = "document.activeElement.ariaLevel";
    opened.browser.value("document.querySelector('.tree tbody tr').focus()");
    let all = names(&mut opened);
    opened.browser.key("ArrowDown");
    assert_eq!(opened.browser.value(focused), "lookup");
    assert_eq!(opened.browser.value("document.activeElement.ariaExpanded"), "false");
    opened.browser.key("ArrowRight"); // unfolds it
    assert_eq!(opened.browser.value("document.activeElement.ariaExpanded"), "true");
    assert_eq!(names(&mut opened).len(), all.len() + 2);
    opened.browser.key("ArrowRight"); // goes in
    assert_eq!(opened.browser.value(focused), "buf_page_get");
    assert_eq!(opened.browser.value(level), "3");
    opened.browser.key("ArrowLeft"); // goes out
    opened.browser.key("ArrowLeft"); // folds it
    assert_eq!(opened.browser.value(focused), "lookup");
    assert_eq!(names(&mut opened), all);
    opened.browser.key("End");
    opened.browser.key("Home");
    assert_eq!(opened.browser.value(focused), "row_search_mvcc");
    opened.browser.key("ArrowLeft"); // folds the root
    assert_eq!(names(&mut opened), ["row_search_mvcc"]);
    opened.browser.key("Escape");
    assert_eq!(opened.browser.value("document.getElementById('details').hidden"), true);
    opened.finish();
}

#[test]
fn frames_are_as_wide_as_their_time() {
    let report = made_up::report(5_000);
    let Some(mut opened) = opened_call("flame", &report) else { return };
    let call = slowest_waiting(&report);
    let fsync_ns = child_ns(&report, &call, 6);
    let frames = "[...document.querySelectorAll('.frame')]";
    let widths = opened.browser.value(&format!("{frames}.map((f) => f.getBoundingClientRect().width)"));
    let share = widths[1].as_f64().unwrap() / widths[0].as_f64().unwrap();
    assert!((share - fsync_ns as f64 / call.latency_ns as f64).abs() < 0.002, "{widths}");
    let title = opened.browser.value(&format!("{frames}[1].title")).as_str().unwrap().to_owned();
    assert!(title.starts_with(&format!("fsync: {} (", duration(fsync_ns))), "{title}");
    assert!(title.contains(", 1 ×, off-CPU "), "{title}");

    // A click makes the frame as wide as the graph, and goes to its row.
    opened.browser.value(&format!("{frames}[1].click()"));
    assert_eq!(opened.browser.value("document.activeElement.dataset.name"), "fsync");
    let widths = opened.browser.value(&format!("{frames}.map((f) => f.getBoundingClientRect().width)"));
    assert_eq!(widths.as_array().unwrap().len(), 2);
    assert_eq!(widths[0], widths[1]);
    opened.browser.value(&format!("{frames}[0].click()"));
    assert_eq!(opened.browser.value("document.activeElement.dataset.name"), "row_search_mvcc");
    opened.finish();
}

#[test]
fn a_call_says_what_it_waited_for_and_what_woke_it() {
    let report = made_up::report(5_000);
    let Some(mut opened) = opened_call("waits", &report) else { return };
    let call = slowest_waiting(&report);
    let off_cpu = duration(call.off_cpu_ns.unwrap());
    let waker = format!("{} (2001)", inside::WAKER_NAME.replace('\u{202e}', "\\u{202e}"));
    assert_eq!(opened.rows("details .waits"), [format!("fsync|{waker}|1|{off_cpu}")]);
    let title = opened.browser.value("document.querySelector('.strip .off').title");
    assert_eq!(title, format!("off the CPU at +100 ns for {off_cpu}: fsync, woken by {waker}"));
    let elements = "document.querySelectorAll('.waits :is(b, i, img, script)').length";
    assert_eq!(opened.browser.value(elements), 0, "a name is text");
    opened.finish();
}

/// Words of the cards' names that are on more than one line.
fn broken_words(opened: &mut Opened) -> Vec<String> {
    let broken = "[...document.querySelectorAll('#cards :is(.name, .word)')].flatMap((cell) => {
        const found = [];
        const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
        const range = document.createRange();
        while (texts.nextNode()) {
            for (const { index, 0: word } of texts.currentNode.data.matchAll(/\\w+/g)) {
                range.setStart(texts.currentNode, index);
                range.setEnd(texts.currentNode, index + word.length);
                if (new Set([...range.getClientRects()].map(({ top }) => top)).size > 1) found.push(word);
            }
        }
        return found;
    })";
    let words = opened.browser.value(broken);
    words.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// Names were broken into letters beside the numbers of two columns.
#[test]
fn a_window_of_800_pixels_has_one_column() {
    let report = made_up::report(5_000);
    let Some(mut opened) = opened_call("narrow", &report) else { return };
    for (width, height) in [(1440, 900), (800, 900)] {
        for scheme in ["light", "dark"] {
            opened.browser.resize((width, height));
            opened.browser.prefer(scheme);
            assert_eq!(broken_words(&mut opened), [] as [String; 0], "{width}");
            opened.screenshot(&format!("{width}-{scheme}.png"));
        }
    }
    opened.narrow(800);
    let lefts = "new Set([...document.querySelectorAll('#cards > .card:not([hidden])')].map((card) => \
                 card.getBoundingClientRect().left)).size";
    assert_eq!(opened.browser.value(lefts), 1);
    assert!(opened.tree_has_room());
    opened.finish();
}

/// It stayed where the pointer had been: what moved before the next frame came after what left.
#[test]
fn the_tip_goes_with_the_pointer() {
    let report = made_up::report(5_000);
    let Some(mut opened) = Opened::new("tip", &report) else { return };
    let call = slowest_waiting(&report);
    let is_hidden = "document.getElementById('tip').hidden";
    let at = opened.place(start(&call), call.latency_ns);
    opened.browser.hover(at);
    assert_eq!(opened.browser.value(is_hidden), false);
    let left = opened.corner().0;
    let outside = (left + 200.0, 5.0);
    opened.browser.dart(&[(at.0 + 1.0, at.1), outside]);
    assert_eq!(opened.browser.value(is_hidden), true);

    // From the keyboard it is there until the plot is left.
    opened.browser.value("document.getElementById('plot').focus()");
    opened.browser.key("ArrowUp");
    assert_eq!(opened.browser.value(is_hidden), false);
    opened.browser.value("document.getElementById('theme').focus()");
    opened.browser.wait_for(is_hidden);
    opened.finish();
}

/// What was seen of calls that did not end was in no table.
#[test]
fn calls_that_did_not_end_have_children() {
    let mut report = made_up::report(5_000);
    let open = report.functions[0].rows.iter_mut().filter(|row| !row.end.status.counted());
    open.for_each(|row| row.error_ns = row.latency_ns / 10);
    let Some(mut opened) = Opened::new("open-calls", &report) else { return };
    opened.browser.key("Escape");
    opened.choose("filter-status", "2");
    let rows = &report.functions[0].rows;
    let seen: Vec<u64> =
        rows.iter().filter(|row| !row.end.status.counted()).map(|row| row.latency_ns).collect();
    let average = mean_duration(seen.iter().sum::<u64>() as f64 / seen.len() as f64);
    let table = opened.rows("children");
    assert_eq!(table.last(), Some(&format!("average time seen|{average}")), "{table:?}");
    assert!(opened.browser.text("#children").contains("Of the calls that did not end in sight"));
    let longest =
        rows.iter().filter(|row| !row.end.status.counted()).max_by_key(|row| row.latency_ns).unwrap();
    let at_least = format!("|≥ {}|", duration(longest.at_least_ns()));
    let slowest = opened.rows("slowest");
    assert!(slowest.iter().any(|row| row.contains(&at_least)), "{at_least} {slowest:?}");
    opened.finish();
}

/// What is compared with brushed calls is in view, and the axis begins and ends with the calls.
#[test]
fn others_are_those_in_view() {
    let report = made_up::report(5_000);
    let Some(mut opened) = Opened::new("in-view", &report) else { return };
    let rows = &report.functions[0].rows;
    let (first, last) = (start(&rows[0]) as f64, start(rows.last().unwrap()) as f64);
    let room = 0.02 * (last - first);
    assert_eq!(opened.number("plot", "fromTime"), (first - room).floor());
    assert_eq!(opened.number("plot", "toTime"), (last + room).ceil());

    opened.browser.key("Escape");
    opened.choose("from-time", "500 ms");
    opened.choose("to-time", "1 s");
    opened.browser.key("z");
    let in_view = rows.iter().filter(|row| (500_000_000..=1_000_000_000).contains(&start(row))).count();
    assert_eq!(opened.number("plot", "shown"), in_view as f64);
    assert_eq!(opened.number("page", "brushed"), 0.0);
    opened.choose("from-latency", "100 us");
    let slow =
        |row: &&CallRow| (500_000_000..=1_000_000_000).contains(&start(row)) && row.latency_ns >= 100_000;
    let brushed = rows.iter().filter(slow).count();
    assert_eq!(opened.number("page", "brushed"), brushed as f64);
    assert_eq!(opened.number("page", "others"), (in_view - brushed) as f64);
    let figures = opened.rows("figures");
    assert!(figures[0].starts_with(&format!("calls|{}|", grouped(brushed as u64))), "{figures:?}");
    assert_eq!(opened.browser.value("location.hash.includes('view=')"), json!(true));
    opened.finish();
}
