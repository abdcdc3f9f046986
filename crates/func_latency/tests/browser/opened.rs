//! A page that is open in a browser: what it says of itself, and how it is used.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use analyzer::{CallRow, Report};
use func_latency::render::html;
use func_latency::render::units::{duration, grouped, ns_within};

use crate::devtools::{self, Browser};
use crate::{inside, made_up};

pub(crate) const WINDOW: (u32, u32) = (1400, 900);

/// A page, the browser that shows it, and a directory for pictures of it.
pub(crate) struct Opened {
    pub(crate) browser: Browser,
    pub(crate) page: PathBuf,
    pub(crate) directory: PathBuf,
}

impl Opened {
    /// Writes the page of a report of calls that were seen from inside, and opens it; `None`: there is no
    /// browser here, which is said.
    pub(crate) fn new(test: &str, report: &Report) -> Option<Self> {
        Self::written(test, |page| {
            html::write_file(page, &made_up::view(report), &inside::inside(report), &[]).unwrap()
        })
    }

    /// Opens the page that `write` writes.
    pub(crate) fn written(test: &str, write: impl FnOnce(&Path)) -> Option<Self> {
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

    pub(crate) fn screenshot(&mut self, name: &str) {
        self.browser.screenshot(&self.directory.join(name));
    }

    /// A number that the page says of itself.
    pub(crate) fn number(&mut self, id: &str, what: &str) -> f64 {
        let value = self.browser.value(&format!("Number(document.getElementById('{id}').dataset.{what})"));
        value.as_f64().unwrap()
    }

    /// Where in the window a time since the recording's begin and a latency are.
    pub(crate) fn place(&mut self, time_ns: u64, latency_ns: u64) -> (f64, f64) {
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
    pub(crate) fn densest_cell(&mut self, report: &Report, p999_ns: u64) -> f64 {
        const CELL: (f64, f64) = (4.0, 5.0);
        let mut cells: HashMap<(u64, u64), u32> = HashMap::new();
        let mut of = |what| self.number("plot", what);
        let (from, to, low, high) = (of("fromTime"), of("toTime"), of("fromLog"), of("toLog"));
        let (width, height) = (of("right") - of("left"), of("bottom") - of("top"));
        let ordinary = |row: &&CallRow| row.end.status.counted() && row.latency_ns <= p999_ns;
        for row in report.functions[0].rows.iter().filter(ordinary) {
            let x = (start(row) as f64 - from) / (to - from) * width;
            let y = ((row.latency_ns as f64).log10() - low) / (high - low) * height;
            *cells.entry(((x / CELL.0) as u64, (y / CELL.1) as u64)).or_default() += 1;
        }
        cells.into_values().max().unwrap().into()
    }

    /// Where in the window the plot begins.
    pub(crate) fn corner(&mut self) -> (f64, f64) {
        let corner = self.browser.value(
            "(({ left, top }) => [left, top])(document.getElementById('base').getBoundingClientRect())",
        );
        (corner[0].as_f64().unwrap(), corner[1].as_f64().unwrap())
    }

    /// The cells of a table's rows, joined by `|`.
    pub(crate) fn rows(&mut self, card: &str) -> Vec<String> {
        let cells = "[...row.cells].map((cell) => cell.innerText.trim()).join('|')";
        let rows = format!("[...document.querySelectorAll('#{card} tbody tr')].map((row) => {cells})");
        let rows = self.browser.value(&rows);
        rows.as_array().unwrap().iter().map(|row| row.as_str().unwrap().to_owned()).collect()
    }

    /// Both calls' trees are there side by side, to the nanosecond where that is known, with what is in one
    /// of them only.
    pub(crate) fn the_trees_are(&mut self, report: &Report, call: &CallRow, twin: &CallRow) {
        self.choose_in("[data-tree=sort]", "order");
        self.choose_in("[data-tree=least]", "0");
        self.browser.value("document.querySelector('.tree tr[data-name=lookup] .fold').click()");
        let rows = self.rows("details .tree");
        let number = |row: &CallRow| report.functions[0].rows.iter().position(|r| r.id == row.id).unwrap();
        let children = &report.functions[0].row_details.children;
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

    /// Opens the page again with a fragment, as from a link.
    pub(crate) fn open_at(&mut self, fragment: &str) {
        self.browser.call("Page.navigate", serde_json::json!({ "url": "about:blank" }));
        self.browser.open_at(&self.page, fragment, WINDOW);
    }

    /// The fragment of the page's address.
    pub(crate) fn fragment(&mut self) -> String {
        self.browser.value("location.hash").as_str().unwrap().to_owned()
    }

    /// All columns of the tree are in view.
    pub(crate) fn tree_has_room(&mut self) -> bool {
        let widths =
            "document.querySelector('.tree').scrollWidth <= document.querySelector('.scroll').clientWidth";
        self.browser.value(widths) == true
    }

    /// Makes the window narrow: nothing may scroll sideways.
    pub(crate) fn narrow(&mut self, width: u32) {
        self.browser.resize((width, 900));
        let widths = "[document.documentElement.scrollWidth, innerWidth]";
        let widths = self.browser.value(widths);
        assert!(widths[0].as_f64() <= widths[1].as_f64(), "it scrolls sideways: {widths}");
    }

    pub(crate) fn widen(&mut self) {
        self.browser.resize(WINDOW);
    }

    /// Gives a control a value, as a user does.
    pub(crate) fn choose(&mut self, id: &str, value: &str) {
        self.choose_in(&format!("#{id}"), value);
    }

    /// Gives the control that a selector finds a value.
    pub(crate) fn choose_in(&mut self, selector: &str, value: &str) {
        let control = format!("document.querySelector('{selector}')");
        let change = "dispatchEvent(new Event('change', { bubbles: true }))";
        self.browser.value(&format!("{control}.value = '{value}'; {control}.{change}"));
    }

    /// Nothing went wrong in the page, and it has loaded nothing.
    pub(crate) fn finish(mut self) {
        assert_eq!(self.browser.complaints(&self.page), [] as [String; 0]);
    }
}

/// Since the recording's begin.
pub(crate) fn start(row: &CallRow) -> u64 {
    row.start_ns.0 - made_up::BEGIN_NS
}

pub(crate) fn rows_between(report: &Report, times: (u64, u64), latencies: (u64, u64)) -> Vec<&CallRow> {
    let is_in = |row: &&CallRow| {
        (times.0..=times.1).contains(&start(row)) && (latencies.0..=latencies.1).contains(&row.latency_ns)
    };
    report.functions[0].rows.iter().filter(is_in).collect()
}

pub(crate) fn sorted(rows: &[&CallRow]) -> Vec<u64> {
    let mut latencies: Vec<u64> = rows.iter().map(|row| row.latency_ns).collect();
    latencies.sort_unstable();
    latencies
}

/// The call of the median latency of the same caller.
pub(crate) fn typical_call<'r>(report: &'r Report, of: &CallRow) -> &'r CallRow {
    let is_same = |row: &&CallRow| row.from == of.from && row.end.status.counted();
    let mut same: Vec<&CallRow> = report.functions[0].rows.iter().filter(is_same).collect();
    same.sort_by_key(|row| row.latency_ns);
    same[same.len().div_ceil(2) - 1]
}
