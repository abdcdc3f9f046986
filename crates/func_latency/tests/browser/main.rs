//! The page of `--html` in a real browser: opened from disk, brushed, clicked, switched to dark.
//!
//! Pictures are written below `target/tmp/browser`, to be looked at.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod devtools;
mod inside;
#[path = "../made_up/mod.rs"]
mod made_up;
#[path = "../program/mod.rs"]
mod program;
#[path = "../unknown/mod.rs"]
mod unknown;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use analyzer::{CallRow, Reason, Report, RowReasons, Stats};
use devtools::Browser;
use func_latency::inside::Picks;
use func_latency::render::html;
use func_latency::render::units::{duration, grouped, ns_within};
use model::OffCpuSplit;

const WINDOW: (u32, u32) = (1400, 900);

/// A page, the browser that shows it, and a directory for pictures of it.
struct Opened {
    browser: Browser,
    page: PathBuf,
    directory: PathBuf,
}

impl Opened {
    /// Writes the page of a report of calls that were seen from inside, and opens it; `None`: there is no
    /// browser here, which is said.
    fn new(test: &str, report: &Report) -> Option<Self> {
        Self::written(test, |page| {
            html::write_file(page, &made_up::view(report), &inside::inside(report)).unwrap()
        })
    }

    /// Opens the page that `write` writes.
    fn written(test: &str, write: impl FnOnce(&Path)) -> Option<Self> {
        let Some(program) = devtools::program() else {
            assert!(std::env::var_os("FUNC_LATENCY_REQUIRE_BROWSER").is_none(), "there is no chromium");
            println!("skipped: no chromium here (cargo xtask setup installs it)");
            return None;
        };
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser").join(test);
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let page = directory.join("calls.html");
        write(&page);
        let mut browser = Browser::start(&program, &directory);
        browser.open(&page, WINDOW);
        Some(Self { browser, page, directory })
    }

    fn screenshot(&mut self, name: &str) {
        self.browser.screenshot(&self.directory.join(name));
    }

    /// A number that the page says of itself.
    fn number(&mut self, id: &str, what: &str) -> f64 {
        let value = self.browser.value(&format!("Number(document.getElementById('{id}').dataset.{what})"));
        value.as_f64().unwrap()
    }

    /// Where in the window a time since the recording's begin and a latency are.
    fn place(&mut self, time_ns: u64, latency_ns: u64) -> (f64, f64) {
        let mut of = |what| self.number("plot", what);
        let (from, to) = (of("fromTime"), of("toTime"));
        let x = of("left") + (time_ns as f64 - from) / (to - from) * (of("right") - of("left"));
        let (low, high) = (of("fromLog"), of("toLog"));
        let share = ((latency_ns as f64).log10() - low) / (high - low);
        let y = of("bottom") - share * (of("bottom") - of("top"));
        let (left, top) = self.corner();
        (left + x, top + y)
    }

    /// How many ordinary calls are in the fullest cell of the heat map, counted without the page.
    fn densest_cell(&mut self, report: &Report, p999_ns: u64) -> f64 {
        const CELL: (f64, f64) = (4.0, 5.0);
        let mut cells: HashMap<(u64, u64), u32> = HashMap::new();
        let mut of = |what| self.number("plot", what);
        let (from, to, low, high) = (of("fromTime"), of("toTime"), of("fromLog"), of("toLog"));
        let (width, height) = (of("right") - of("left"), of("bottom") - of("top"));
        let ordinary = |row: &&CallRow| row.status.counted() && row.latency_ns <= p999_ns;
        for row in report.functions[0].rows.iter().filter(ordinary) {
            let x = (start(row) as f64 - from) / (to - from) * width;
            let y = ((row.latency_ns as f64).log10() - low) / (high - low) * height;
            *cells.entry(((x / CELL.0) as u64, (y / CELL.1) as u64)).or_default() += 1;
        }
        cells.into_values().max().unwrap().into()
    }

    /// Where in the window the plot begins.
    fn corner(&mut self) -> (f64, f64) {
        let corner = self.browser.value(
            "(({ left, top }) => [left, top])(document.getElementById('base').getBoundingClientRect())",
        );
        (corner[0].as_f64().unwrap(), corner[1].as_f64().unwrap())
    }

    /// The cells of a table's rows, joined by `|`.
    fn rows(&mut self, card: &str) -> Vec<String> {
        let cells = "[...row.cells].map((cell) => cell.innerText.trim()).join('|')";
        let rows = format!("[...document.querySelectorAll('#{card} tbody tr')].map((row) => {cells})");
        let rows = self.browser.value(&rows);
        rows.as_array().unwrap().iter().map(|row| row.as_str().unwrap().to_owned()).collect()
    }

    /// Both calls' trees are there side by side, to the nanosecond where that is known, with what is in one
    /// of them only.
    fn the_trees_are(&mut self, report: &Report, call: &CallRow, twin: &CallRow) {
        let rows = self.rows("details .tree");
        let number = |row: &CallRow| report.functions[0].rows.iter().position(|r| r.id == row.id).unwrap();
        let children = &report.functions[0].row_children;
        let of = |row: &CallRow, function: u32| -> Option<(u64, u64)> {
            let found = children.of(number(row)).iter();
            let is_it =
                |child: &&analyzer::RowChild| children.keys[child.key as usize].function.0 == function;
            found.filter(is_it).map(|child| (child.total.sum_ns, child.total.off_cpu_ns.unwrap())).next()
        };
        let own = |row: &CallRow| {
            let inside = children.of(number(row));
            let sum_ns = inside.iter().map(|child| child.total.sum_ns).sum::<u64>();
            let error_ns = inside.iter().map(|child| child.error_ns).sum::<u64>();
            ns_within(row.latency_ns - sum_ns, row.error_ns + error_ns)
        };
        let off = |ns: u64| if ns == 0 { String::new() } else { grouped(ns) };
        let side = |row: &CallRow| {
            let latency = ns_within(row.latency_ns, row.error_ns);
            format!("1|{latency}|{}|{}", own(row), off(row.off_cpu_ns.unwrap()))
        };
        let more = ns_within(call.latency_ns - twin.latency_ns, call.error_ns + twin.error_ns);
        let root = format!("row_search_mvcc|+0|{}|{}|+{more}|differs", side(call), side(twin));
        assert_eq!(rows[0], root, "{rows:?}");
        // `lookup` has a quarter of its time in each of two pages.
        let ((mine, _), (its, _)) = (of(call, 4).unwrap(), of(twin, 4).unwrap());
        let whole = |ns: u64| ns_within(ns, made_up::CHILD_ERROR_NS);
        let own = |ns: u64| ns_within(ns - 2 * (ns / 4), made_up::CHILD_ERROR_NS + 2 * inside::PAGE_ERROR_NS);
        let lookup = format!("|+0|1|{}|{}||1|{}|{}||", whole(mine), own(mine), whole(its), own(its));
        assert!(rows[1].starts_with("lookup") && rows[1].contains(&lookup), "{lookup} {rows:?}");
        assert!(rows[2].starts_with("buf_page_get") && rows[3].starts_with("buf_page_get"), "{rows:?}");
        let (fsync, asleep) = of(call, 6).unwrap();
        let row = rows.iter().find(|row| row.starts_with("fsync")).unwrap();
        let times = format!("|1|{0}|{0}|{1}|–|–|–|–|+{0}|only here", whole(fsync), grouped(asleep));
        assert!(rows.iter().any(|row| row.contains("|< ")), "{rows:?}");
        assert!(row.ends_with(&times), "{row} {times}");
        let strips = self.browser.text("#details .strip-row");
        assert!(strips.contains(&format!("off at +100 ns for {}", duration(asleep))), "{strips}");
    }

    fn narrow(&mut self) {
        self.browser.resize((420, 900));
        let widths = "[document.documentElement.scrollWidth, innerWidth]";
        let widths = self.browser.value(widths);
        assert!(widths[0].as_f64() <= widths[1].as_f64(), "it scrolls sideways: {widths}");
    }

    fn widen(&mut self) {
        self.browser.resize(WINDOW);
    }

    /// Gives a control a value, as a user does.
    fn choose(&mut self, id: &str, value: &str) {
        let control = format!("document.getElementById('{id}')");
        let change = "dispatchEvent(new Event('change', { bubbles: true }))";
        self.browser.value(&format!("{control}.value = '{value}'; {control}.{change}"));
    }

    /// Nothing went wrong in the page, and it has loaded nothing.
    fn finish(mut self) {
        assert_eq!(self.browser.complaints(&self.page), [] as [String; 0]);
    }
}

/// Since the recording's begin.
fn start(row: &CallRow) -> u64 {
    row.start_ns.0 - made_up::BEGIN_NS
}

fn rows_between(report: &Report, times: (u64, u64), latencies: (u64, u64)) -> Vec<&CallRow> {
    let is_in = |row: &&CallRow| {
        (times.0..=times.1).contains(&start(row)) && (latencies.0..=latencies.1).contains(&row.latency_ns)
    };
    report.functions[0].rows.iter().filter(is_in).collect()
}

fn sorted(rows: &[&CallRow]) -> Vec<u64> {
    let mut latencies: Vec<u64> = rows.iter().map(|row| row.latency_ns).collect();
    latencies.sort_unstable();
    latencies
}

/// The call of the median latency of the same caller.
fn typical_call<'r>(report: &'r Report, of: &CallRow) -> &'r CallRow {
    let is_same = |row: &&CallRow| (row.caller, row.site) == (of.caller, of.site) && row.status.counted();
    let mut same: Vec<&CallRow> = report.functions[0].rows.iter().filter(is_same).collect();
    same.sort_by_key(|row| row.latency_ns);
    same[same.len().div_ceil(2) - 1]
}

#[test]
fn slow_calls_are_brushed_explained_and_opened() {
    let report = made_up::report(20_000);
    let Some(mut opened) = Opened::new("scatter", &report) else { return };

    // As it opens: every call a dot, and the slowest hundredth compared with the rest.
    assert_eq!(opened.browser.value("document.getElementById('plot').dataset.kind"), "scatter");
    assert_eq!(opened.number("plot", "shown"), 20_000.0);
    let spread = report.functions[0].latency.spread.unwrap();
    let singles = |row: &&CallRow| !row.status.counted() || row.latency_ns > spread.p999_ns;
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
    // ... by whom these were called, whatever that is called, and the way that they went.
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
    opened.narrow();
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
    let spread = report.functions[0].latency.spread.unwrap();
    let slow: Vec<&CallRow> =
        rows.iter().filter(|row| !row.status.counted() || row.latency_ns > spread.p999_ns).collect();
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
    let of_thread = rows.iter().filter(|row| row.tid.0 == 1003).count() as f64;
    assert_eq!(opened.number("plot", "shown"), of_thread);
    opened.choose("filter-thread", "");
    opened.choose("filter-status", "2");
    assert_eq!(opened.number("plot", "shown"), 3.0);
    opened.choose("filter-status", "0");
    opened.choose("filter-caller", "0");
    let first = rows.iter().map(|row| (row.caller, row.site)).min().unwrap();
    let of_caller = rows.iter().filter(|row| (row.caller, row.site) == first).count() as f64;
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

/// It was 0 in the tables, and a call was "on the CPU all the time".
#[test]
fn a_page_without_switch_records_says_no_off_cpu_time() {
    let report = unknown::without_switches(made_up::report(5_000));
    let Some(mut opened) = Opened::new("no-switches", &report) else { return };
    assert!(opened.browser.text("#subtitle").contains("off-CPU time is not known"));
    let slowest = *report.functions[0].rows.iter().max_by_key(|row| row.latency_ns).unwrap();
    let at = opened.place(start(&slowest), slowest.latency_ns);
    opened.browser.click(at);
    let details = opened.rows("details");
    assert!(details.iter().any(|row| row.starts_with("off-CPU|not known")), "{details:?}");
    let text = opened.browser.text("#details");
    assert!(text.contains("whether it was off the CPU is not known"), "{text}");
    for card in ["figures", "slowest", "details"] {
        let heads =
            format!("[...document.querySelectorAll('#{card} thead th')].map((cell) => cell.textContent)");
        let heads = opened.browser.value(&heads).to_string();
        assert!(!heads.contains("off-CPU"), "{card}: {heads}");
        let rows = opened.rows(card);
        assert!(!rows.iter().any(|row| row.starts_with("of it off-CPU") || row.contains("NaN")), "{rows:?}");
    }
    opened.finish();
}

/// Of calls that were not seen from inside, what they waited for is known, and what they called themselves.
#[test]
fn calls_that_probes_have_timed_say_what_they_waited_for() {
    let mut report = made_up::report(5_000);
    let function = &mut report.functions[0];
    let waited = function.rows.iter().filter(|row| row.off_cpu_ns > Some(0));
    let slept = |row: &CallRow| OffCpuSplit { blocked_ns: row.off_cpu_ns.unwrap(), ..OffCpuSplit::default() };
    let fsync = |row: &CallRow| vec![(Reason::Syscall(74), slept(row))];
    let of_calls = waited.map(|row| (row.id, fsync(row))).collect();
    function.row_reasons = RowReasons::of_rows(&function.rows, &of_calls);
    let write = |page: &Path| html::write_file(page, &made_up::view(&report), &[]).unwrap();
    let Some(mut opened) = Opened::written("probes", write) else { return };

    let slowest = *report.functions[0].rows.iter().max_by_key(|row| row.off_cpu_ns).unwrap();
    opened.choose("from-latency", "100 us");
    opened.choose("to-latency", "5 ms");
    let factors = opened.rows("factors");
    let is_it = |row: &String| row.starts_with("waited: fsync|") && row.contains("|100.0 %|0.0 %");
    assert!(factors.iter().any(is_it), "{factors:?}");
    assert!(opened.rows("reasons")[0].starts_with("fsync|"));
    assert_eq!(opened.browser.value("document.getElementById('ways').hidden"), true);
    let at = opened.place(start(&slowest), slowest.latency_ns);
    opened.browser.click(at);
    let details = opened.rows("details");
    let waited = format!("waited for|fsync {}|nothing", duration(slowest.off_cpu_ns.unwrap()));
    assert!(details.contains(&waited), "{waited} {details:?}");
    assert!(details.iter().any(|row| row.starts_with("fsync|1|")), "{details:?}");
    let text = opened.browser.text("#details");
    assert!(text.contains("Probes have seen only the calls that it made itself"), "{text}");
    assert!(!text.contains("func_latency show"), "there is no recording: {text}");
    opened.screenshot("light.png");
    opened.finish();
}

/// Nothing had said whether the figures are of a call.
#[test]
fn probed_calls_say_where_they_began() {
    let report = made_up::probed(made_up::report(5_000));
    let write = |page: &Path| html::write_file(page, &made_up::view(&report), &[]).unwrap();
    let Some(mut opened) = Opened::written("slices", write) else { return };
    opened.choose("from-latency", "100 us");
    opened.choose("to-latency", "5 ms");
    let factors = opened.rows("factors");
    let is_it = |row: &String| row.starts_with("probed with children|") && row.contains("|100.0 %|0.0 %|");
    assert!(factors.iter().any(is_it), "{factors:?}");
    let slowest = opened.rows("slowest");
    assert!(slowest.iter().all(|row| row.contains("|complete|with children|")), "{slowest:?}");
    opened.browser.value("document.querySelector('#slowest button').click()");
    let details = opened.rows("details");
    let says = |began: &str| format!("{began} (the figures are of calls that began alone)");
    let probed = format!("probed|{}|{}", says("with children"), says("alone"));
    assert!(details.contains(&probed), "{probed} {details:?}");
    opened.screenshot("light.png");
    opened.finish();
}

/// What `report` writes of a recording.
fn reported(test: &str, directory: &Path, recording: &Path, function: &str) -> Option<Opened> {
    Opened::written(test, |page| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
        command.arg("report").arg(recording).args(["-f", function, "--check", "--html"]).arg(page);
        let output = command.current_dir(directory).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    })
}

#[test]
fn a_recording_without_much_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let recording = program::write(directory.path(), &program::BUILD_ID);
    let Some(mut opened) = reported("small", directory.path(), &recording, "f") else { return };
    assert_eq!(opened.number("plot", "shown"), 2.0);
    opened.browser.value("document.querySelector('#slowest button').click()");
    let tree = opened.rows("details .tree");
    assert!(tree.len() == 1 && tree[0].starts_with("f|+0|1|"), "{tree:?}");
    let details = opened.rows("details");
    assert!(details.contains(&"called through|outer".to_owned()), "{details:?}");
    assert!(details.contains(&"went|the usual way".to_owned()), "{details:?}");
    opened.finish();
}

/// The planted cause is three levels down (`fixtures/programs/causes.c`): the way there is marked, and
/// nothing beside it.
#[test]
fn the_trees_of_a_recording_differ_where_the_cause_was_planted() {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fixtures");
    let fixtures = std::env::var_os("FUNC_LATENCY_FIXTURES").map_or(target, PathBuf::from);
    let recording = fixtures.join("causes.data");
    if !recording.exists() {
        assert!(std::env::var_os("FUNC_LATENCY_REQUIRE_FIXTURES").is_none(), "no {}", recording.display());
        println!("skipped: no {} (cargo xtask fixtures makes it)", recording.display());
        return;
    }
    let Some(mut opened) = reported("causes", &fixtures, &recording, "dear_child") else { return };
    opened.browser.value("document.querySelector('#slowest button').click()");
    let rows = opened.rows("details .tree");
    let marked: Vec<&str> = rows
        .iter()
        .filter(|row| row.ends_with("|differs"))
        .map(|row| row.split(['|', '\n']).next().unwrap())
        .collect();
    let levels = ["dear_child", "deep_1", "deep_2", "deep_3"];
    assert!(
        marked.len() == 4 && marked.iter().zip(levels).all(|(row, name)| row.starts_with(name)),
        "{rows:?}"
    );
    opened.screenshot("opened.png");
    opened.finish();
}

/// Those that did not end come first, then the slowest; all trees together have a bound.
#[test]
fn trees_are_those_of_the_slowest_and_of_typical_calls() {
    let report = made_up::report(20_000);
    let rows = &report.functions[0].rows;
    let picks = Picks::of(&report.functions[0], |_| true);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|at| (rows[*at].status.counted(), std::cmp::Reverse(rows[*at].latency_ns), *at));
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
    let spread = report.functions[0].latency.spread.unwrap();
    let singles = |row: &&CallRow| !row.status.counted() || row.latency_ns > spread.p999_ns;
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
    let ended = report.functions[0].rows.iter().filter(|row| row.status.counted());
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
