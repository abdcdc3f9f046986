//! What a page leaves out or says where off-CPU time, ways or trees are not known.

use std::path::Path;

use analyzer::{CallRow, Reason, RowReasons};
use func_latency::render::html;
use func_latency::render::units::duration;
use model::OffCpuSplit;

use crate::opened::{Opened, start};
use crate::{made_up, unknown};

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
    function.row_details.reasons = RowReasons::of_rows(&function.rows, &of_calls);
    let write = |page: &Path| html::write_file(page, &made_up::view(&report), &[], &[]).unwrap();
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
    let write = |page: &Path| html::write_file(page, &made_up::view(&report), &[], &[]).unwrap();
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
