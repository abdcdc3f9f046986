//! What calls executed, in the page: the figures of the text, unknown where they are not known, and plots by
//! them.

use std::path::{Path, PathBuf};
use std::process::Command;

use analyzer::{Counted, CounterReport, CountersAsked, CycleCount, Evidence, Report, TracedRow};
use func_latency::render::units::grouped;
use model::Executed;

use crate::made_up;
use crate::opened::Opened;

/// The recordings, if they are there, which is said.
fn recordings() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fixtures");
    let fixtures = std::env::var_os("FUNC_LATENCY_FIXTURES").map_or(target, PathBuf::from);
    if fixtures.join("causes.data").exists() {
        return Some(fixtures);
    }
    assert!(std::env::var_os("FUNC_LATENCY_REQUIRE_FIXTURES").is_none(), "no {}", fixtures.display());
    println!("skipped: no recordings in {} (cargo xtask fixtures makes them)", fixtures.display());
    None
}

/// What a command says of `causes.data`.
fn text_of(fixtures: &Path, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    let output = command.args(words).args(["-i", "causes.data"]).current_dir(fixtures).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The cells of the table below a line of a text, joined by `|`, with the page's dash.
fn table_below(text: &str, title: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| !line.starts_with(title)).skip(2);
    let cells = |line: &str| {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        cells.map(|cell| if cell == "-" { "–" } else { cell }).collect::<Vec<_>>().join("|")
    };
    lines.take_while(|line| line.starts_with("  ") && !line.starts_with("  total")).map(cells).collect()
}

#[test]
fn the_page_has_the_counters_of_the_text() {
    let Some(fixtures) = recordings() else { return };
    let report = |page: &Path| {
        let page = page.display().to_string();
        text_of(&fixtures, &["report", "-f", "dear_child", "--counters", "--check", "--html", &page]);
    };
    let Some(mut opened) = Opened::written("counters", report) else { return };
    let text = text_of(&fixtures, &["report", "-f", "dear_child", "--counters"]);
    opened.browser.key("Escape"); // no brush: all calls, as in the text

    let figures = table_below(&text, "Counters of");
    assert_eq!(figures.len(), 7, "{text}");
    assert_eq!(opened.rows("counters"), figures);
    let total = text.lines().find(|line| line.starts_with("  total: 3,")).unwrap();
    let card = opened.browser.text("#counters");
    assert!(card.contains(&total.trim().replace("+-", "±")), "{total} {card}");

    // Each is called once a call. `*self`: its cycles are no more than their error.
    let children = table_below(&text, "Children of");
    let [instructions, ipc] = [5, 6].map(|column| children[0].split('|').nth(column).unwrap().to_owned());
    let of_page = opened.rows("children");
    assert!(of_page[0].starts_with("deep_1|") && of_page[0].ends_with(&format!("|{instructions}|{ipc}")));
    assert!(of_page[1].starts_with("*self|") && of_page[1].ends_with("|1,640.0|unknown"), "{of_page:?}");
    let callers = table_below(&text, "Callers of");
    let caller: Vec<&str> = callers[0].split('|').collect();
    let of_page = opened.rows("callers");
    assert!(
        of_page[0].ends_with(&format!("|100.0 %|{}|{}", caller[5], caller[6])),
        "{of_page:?} {callers:?}"
    );
    opened.screenshot("all.png");

    // The slowest call: its row, and its tree beside the typical one's.
    opened.browser.value("document.querySelector('#slowest button').click()");
    let details = opened.rows("details");
    assert!(details.contains(&"instructions|21,409|9,049".to_owned()), "{details:?}");
    assert!(details.contains(&"branches|208 (0 indirect)|88 (0 indirect)".to_owned()), "{details:?}");
    let tree = opened.rows("details .tree");
    // Instructions are those of the program, and about two for each cycle, as dice have it.
    for instructions in ["21,409", "9,049"] {
        let mut cells = tree[0].split('|').skip_while(|cell| *cell != instructions);
        let ipc: f64 = cells.nth(1).unwrap().parse().unwrap();
        assert!((1.5..3.0).contains(&ipc), "{tree:?}");
    }
    opened.screenshot("opened.png");
    opened.narrow(800);
    assert!(opened.tree_has_room(), "of 800 pixels");
    opened.finish();
}

/// Its columns of counters included: what differs is said in the last one.
#[test]
fn a_tree_of_long_names_has_room_beside_the_typical_one() {
    let Some(fixtures) = recordings() else { return };
    let report = |page: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
        command.args(["report", "-i", "sq1.data", "-f", "sqlite3VdbeExec", "--counters", "--html"]).arg(page);
        let output = command.current_dir(&fixtures).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let Some(mut opened) = Opened::written("room", report) else { return };
    opened.browser.value("document.querySelector('#slowest button').click()");
    for width in (800..=1750).rev().step_by(35) {
        opened.narrow(width);
        assert!(opened.tree_has_room(), "of {width} pixels");
    }
    opened.finish();
}

/// Which of the slow calls' time is more work, and on which lines: as `explain` and `annotate` say it.
#[test]
fn the_page_has_the_ledger_and_the_lines() {
    let Some(fixtures) = recordings() else { return };
    let report = |page: &Path| {
        let page = page.display().to_string();
        text_of(&fixtures, &["report", "-f", "dear_child", "--counters", "--html", &page]);
    };
    let Some(mut opened) = Opened::written("ledger", report) else { return };
    let explained = text_of(&fixtures, &["explain", "-f", "dear_child"]);
    let split = table_below(&explained, "More work or slower work");
    assert_eq!(split.len(), 2, "{explained}");
    let rows = opened.rows("ledger");
    assert_eq!(rows[0], format!("{}|causes.c:81", split[0]));
    assert_eq!(rows[1], format!("{}|", split[1]));
    assert!(rows[2].starts_with("[difference]|+"), "{rows:?}");
    let card = opened.browser.text("#ledger");
    assert!(card.contains("\nmore work: 4.0 times the instructions\n"), "{card}");

    let annotated = text_of(&fixtures, &["annotate", "-f", "dear_child", "--slow", "p99"]);
    let of_text = annotated.lines().filter(|line| line.trim_start().starts_with("causes.c:"));
    let of_text: Vec<Vec<String>> = of_text.map(|line| table_below(&format!("T\n\n{line}\n"), "T")).collect();
    let cells = |row: &str| row.split('|').map(str::to_owned).collect::<Vec<String>>();
    let lines = opened.rows("lines");
    assert_eq!(lines.len(), of_text.len(), "{lines:?}");
    for (line, of_text) in lines.iter().zip(&of_text) {
        let (line, of_text) = (cells(line), cells(&of_text[0]));
        assert!(line[0].starts_with(&of_text[0]), "{line:?}");
        // Slow beside typical there, all of the slow first here.
        let slow_first: Vec<&String> = [5, 8, 6, 9, 7, 10, 11].map(|column| &line[column]).to_vec();
        assert_eq!(slow_first, of_text[1..].iter().collect::<Vec<_>>(), "{line:?}");
    }
    let all = text_of(&fixtures, &["annotate", "-f", "dear_child"]);
    let executed = all.lines().find(|line| line.trim_start().starts_with("causes.c:31")).unwrap();
    let executed: Vec<&str> = executed.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    let line = cells(&lines[3]);
    assert_eq!(line[1], executed[1], "{lines:?} {executed:?}");
    // Straight code is shared out in whole ns: here in each of three groups of calls, there of all calls.
    let (here, there) = (last_digit_and_ns(&line[2]), last_digit_and_ns(executed[2]));
    assert!((here.1 - there.1).abs() <= here.0 + 3.0, "{lines:?} {executed:?}");

    // Beside the tree of an opened call, and then not below it.
    opened.browser.value("document.querySelector('#slowest button').click()");
    assert_eq!(opened.rows("details .lines"), lines);
    assert_eq!(opened.browser.value("document.getElementById('lines').hidden"), true);
    opened.screenshot("beside.png");
    opened.finish();
}

/// What one more in the last digit of a duration such as `82.8 us` is, in ns; and the duration.
fn last_digit_and_ns(duration: &str) -> (f64, f64) {
    let (number, unit) = duration.split_once(' ').unwrap();
    let unit = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        unit => panic!("{unit} in {duration}"),
    };
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    (unit / 10_f64.powi(decimals as i32), number.parse::<f64>().unwrap() * unit)
}

/// Gives counters to the calls that were seen from entry to end: three instructions for each ns on the CPU.
/// What their children executed is not known.
fn counted(mut report: Report, has_cycles: bool) -> Report {
    let function = &mut report.functions[0];
    for row in function.rows.iter_mut().filter(|row| row.end.status.counted()) {
        let instructions = 3 * (row.latency_ns - row.off_cpu_ns.unwrap_or(0));
        let executed = Executed {
            instructions,
            conditional_branches: instructions / 6,
            indirect_branches: instructions / 100,
            calls: instructions / 50,
            ..Executed::default()
        };
        let cycles = has_cycles.then_some(CycleCount { count: instructions / 2, error: 40 });
        let counted = Some(Counted { executed, cycles, bus: None });
        row.evidence = Evidence::Traced(TracedRow { counted, ..*row.traced().unwrap() });
    }
    let calls = function.rows.iter().filter_map(|row| row.counted());
    function.figures.counters =
        Some(CounterReport::of_calls(calls, CountersAsked { kernel: false, bus_khz: None }));
    report
}

/// Brushed by latency, seen by instructions; and back from a link.
#[test]
fn calls_are_drawn_by_instructions() {
    let report = counted(made_up::report(5_000), true);
    let Some(mut opened) = Opened::new("by", &report) else { return };
    let rows = &report.functions[0].rows;
    let brushed = opened.number("page", "brushed");
    opened.choose("by", "instructions");
    // Those that did not end were brushed, too.
    assert_eq!(opened.number("page", "brushed"), brushed - 3.0, "the brush of latencies stays");
    let counted: Vec<u64> =
        rows.iter().filter_map(|row| Some(row.counted()?.executed.instructions)).collect();
    assert_eq!(opened.number("plot", "shown"), counted.len() as f64);
    let legend = opened.browser.text("#legend");
    assert!(legend.contains("3 calls not drawn: Instructions unknown"), "{legend}");
    opened.screenshot("instructions.png");

    // A drag beside the axis brushes by instructions.
    let ((left, top), middle) = (opened.corner(), 200.0);
    let x = left + 20.0;
    opened.browser.drag((x, top + 12.0), (x, top + middle));
    let (from, to) = (opened.number("plot", "fromLog"), opened.number("plot", "toLog"));
    let (high, low) = (opened.number("plot", "top"), opened.number("plot", "bottom"));
    let least = 10f64.powf(from + (low - middle) / (low - high) * (to - from)).floor() as u64;
    let most = 10f64.powf(from + (low - 12.0) / (low - high) * (to - from)).ceil() as u64;
    let is_in = counted.iter().filter(|count| (least..=most).contains(count)).count();
    assert!(is_in > 0 && is_in < counted.len());
    assert_eq!(opened.number("page", "brushed"), is_in as f64);

    let fragment = opened.fragment();
    assert!(fragment.contains("by=instructions"), "{fragment}");
    opened.open_at(&fragment);
    assert_eq!(opened.number("page", "brushed"), is_in as f64);
    assert_eq!(opened.browser.value("document.getElementById('by').value"), "instructions");
    opened.finish();
}

/// Not 0, where the recording has no CYC packets, and of calls that did not end.
#[test]
fn what_is_not_known_is_unknown() {
    let report = counted(made_up::report(5_000), false);
    let Some(mut opened) = Opened::new("no-cycles", &report) else { return };
    opened.browser.key("Escape");
    let card = opened.browser.text("#counters");
    assert!(card.contains("cycles, IPC and MHz are unknown: the recording has no CYC packets"), "{card}");
    assert!(card.contains("unknown for 3 calls not seen from entry to end"), "{card}");
    let heads = opened.browser.text("#counters thead");
    assert!(heads.contains("instructions") && !heads.contains("cycles") && !heads.contains("IPC"), "{heads}");
    let slowest = opened.rows("slowest");
    let open = slowest.iter().find(|row| row.contains("|open at end|")).unwrap();
    assert!(open.contains("|unknown|unknown|"), "{open}");
    let ended = report.functions[0].rows.iter().filter(|row| row.end.status.counted());
    let slow = ended.max_by_key(|row| row.latency_ns).unwrap();
    let instructions = grouped(slow.counted().unwrap().executed.instructions);
    assert!(slowest.iter().any(|row| row.contains(&format!("|{instructions}|unknown|"))), "{slowest:?}");
    // The children of these calls were not counted.
    let children = opened.rows("children");
    assert!(children[0].ends_with("|unknown|unknown"), "{children:?}");
    opened.choose("by", "cycles");
    assert_eq!(opened.number("plot", "shown"), 0.0);
    assert!(opened.browser.text("#legend").contains("5,000 calls not drawn: Cycles unknown"));
    opened.screenshot("unknown.png");
    opened.finish();
}
