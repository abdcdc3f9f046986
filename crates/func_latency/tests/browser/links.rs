//! Links to what a page shows, the functions of a page, and the search for them.

use analyzer::FunctionReport;
use model::FunctionId;

use crate::made_up;
use crate::opened::Opened;

/// What the page says of itself, and what its controls have.
const SHOWN: &str = "JSON.stringify({ \
    plot: ['shown', 'singles', 'fromTime', 'toTime', 'fromLog', 'toLog'].map((what) => plot.dataset[what]), \
    page: [page.dataset.brushed, page.dataset.others], \
    controls: [...document.querySelectorAll('#controls :is(input, select)')].map(({ value }) => value), \
    call: [details.hidden, details.dataset.call], \
    tree: [...document.querySelectorAll('#details .tree tbody tr')].map(({ innerText }) => innerText), \
    found: document.querySelectorAll('tr.found').length })";

fn shown(opened: &mut Opened) -> String {
    let element = |id: &str| format!("{id} = document.getElementById('{id}')");
    let elements = ["plot", "page", "details"].map(element).join(", ");
    let value = opened.browser.value(&format!("(() => {{ const {elements}; return {SHOWN}; }})()"));
    value.as_str().unwrap().to_owned()
}

#[test]
fn the_address_has_what_is_shown() {
    let report = made_up::report(5_000);
    let Some(mut opened) = Opened::new("link", &report) else { return };
    assert_eq!(opened.fragment(), "", "as it opens");
    let first = shown(&mut opened);
    opened.choose("from-time", "500 ms");
    opened.choose("to-time", "1.5 s");
    opened.browser.key("z");
    opened.choose("filter-thread", "3");
    opened.choose("from-latency", "100 us");
    opened.browser.value("document.querySelector('#slowest button').click()");
    opened.choose_in("[data-tree=sort]", "order");
    opened.choose_in("[data-tree=least]", "0");
    opened.browser.value("document.getElementById('search').focus()");
    opened.browser.call("Input.insertText", serde_json::json!({ "text": "fsync" }));
    opened.browser.wait_for("location.hash.includes('find=fsync')");
    let (here, fragment) = (shown(&mut opened), opened.fragment());
    let parts: Vec<&str> =
        fragment.trim_start_matches('#').split('&').map(|part| part.split('=').next().unwrap()).collect();
    assert_eq!(parts, ["thread", "view", "brush", "call", "find", "sort", "least"]);
    assert!(fragment.contains("thread=1003") && fragment.contains("call=1003-"), "{fragment}");

    // A colleague opens it, or pastes it where the page is open already.
    opened.open_at(&fragment);
    assert_eq!(shown(&mut opened), here);
    assert_eq!(opened.fragment(), fragment);
    opened.open_at("");
    assert_eq!(shown(&mut opened), first);
    opened.browser.value(&format!("location.hash = {fragment:?}"));
    opened.browser.wait_for("!document.getElementById('details').hidden");
    assert_eq!(shown(&mut opened), here);

    // No brush is something else than the first one.
    opened.open_at("");
    opened.browser.key("Escape");
    assert_eq!(opened.fragment(), "#brush=none");
    opened.open_at("#brush=none");
    assert_eq!(opened.number("page", "brushed"), 0.0);
    opened.finish();
}

/// A link comes from anywhere, with anything in it.
#[test]
fn a_wrong_link_opens_the_page() {
    let report = made_up::report(1_000);
    let Some(mut opened) = Opened::new("wrong-link", &report) else { return };
    let first = shown(&mut opened);
    let wrong = [
        "#function=99&thread=77&caller=-1&status=x&view=5,1,2,3&brush=a,b,c,d&call=1-1",
        "#function=NaN&view=1&brush=1,2&call=&sort=__proto__&least=1e9",
        "#%&&==&view=,,,&brush=%00,1,2,3,4&call=1003-99999999999999999999",
        "#function=<img src=x onerror=alert(1)>&call=<img src=x onerror=alert(1)>",
    ];
    for fragment in wrong {
        opened.open_at(fragment);
        assert_eq!(shown(&mut opened), first, "{fragment}");
    }
    opened.open_at("#find=<img src=x onerror=alert(1)>");
    assert_eq!(opened.browser.value("document.querySelectorAll('img').length"), 0);
    opened.finish();
}

#[test]
fn a_page_has_all_functions_and_finds_them() {
    let mut report = made_up::report(1_000);
    let other = |function: u32| FunctionReport { id: FunctionId(function), ..made_up::no_calls() };
    report.functions.extend([4, 5, 9].map(other));
    let Some(mut opened) = Opened::new("functions", &report) else { return };
    let functions = opened.rows("functions");
    let reload = "reload(\"'\\u{202e}daoler\\u{7}&lt;)";
    let names: Vec<&str> = functions.iter().map(|row| row.split('|').next().unwrap()).collect();
    assert_eq!(names, ["row_search_mvcc", "lookup", "copy", reload]);
    let spread = report.functions[0].figures.latency.spread.unwrap();
    let times = [spread.p50_ns, spread.p99_ns, spread.max_ns, report.functions[0].figures.latency.sum_ns];
    let times = times.map(func_latency::render::units::duration).join("|");
    assert_eq!(functions[0], format!("row_search_mvcc|1,000|{times}"));
    assert_eq!(functions[1], "lookup|0|–|–|–|–");

    // `/` goes to the search field, which leaves what has the text.
    opened.browser.key("/");
    assert_eq!(opened.browser.value("document.activeElement.id"), "search");
    opened.browser.call("Input.insertText", serde_json::json!({ "text": "LO" }));
    opened.browser.wait_for("document.querySelectorAll('#functions tbody tr').length === 2");
    let functions = opened.rows("functions");
    assert!(functions[0].starts_with("lookup|") && functions[1].starts_with("reload("), "{functions:?}");
    assert!(opened.browser.text("#found").starts_with("2 functions, "));

    // A click chooses one, and the link has it.
    opened.browser.value("document.querySelector('#functions button').click()");
    opened
        .browser
        .wait_for("document.getElementById('title').textContent === 'lookup' && page.ariaBusy === 'false'");
    assert_eq!(opened.fragment(), "#function=1&find=LO");
    opened.open_at("#function=3");
    assert_eq!(opened.browser.text("#title"), reload);
    opened.finish();
}

/// The way to the found function is unfolded, and marked in tree and flame graph.
#[test]
fn a_function_is_found_in_the_opened_call() {
    let report = made_up::report(5_000);
    let Some(mut opened) = Opened::new("search", &report) else { return };
    opened.browser.value("document.querySelector('#slowest button').click()");
    let found = "[...document.querySelectorAll('.tree tr.found')].map((row) => row.dataset.name).join()";
    assert_eq!(opened.browser.value(found), "");
    opened.browser.key("/");
    opened.browser.call("Input.insertText", serde_json::json!({ "text": "page_get" }));
    opened.browser.wait_for("document.getElementById('found').textContent !== ''");
    let names = opened.browser.value(found).as_str().unwrap().to_owned();
    assert!(!names.is_empty() && names.split(',').all(|name| name == "buf_page_get"), "{names}");
    let count = names.split(',').count();
    assert!(opened.browser.text("#found").ends_with(&format!("{count} in the call")));
    opened.finish();
}
