//! Copies of a program's only thread (`tracegen encode --copies`), of which `cargo xtask bench --fleet` makes
//! a long recording: each of them has the calls of the first.

use std::collections::BTreeMap;
use std::path::Path;

use analyzer::CallRow;
use decoder::DecodeOptions;
use model::{Cpu, Ns, Tid};
use tracegen::Options;
use truth_tests::{Fixture, Opened, fixture, pipeline};

fn rows(data: &Path) -> Vec<CallRow> {
    let file = pipeline::open(data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let options = DecodeOptions { workers: 2, ..DecodeOptions::default() };
    opened.analyse(&[opened.function("sqlite3VdbeExec").unwrap()], &options).functions.remove(0).rows
}

/// Start, latency and time off the CPU.
type Times = (Ns, u64, Option<u64>);

#[test]
fn each_copy_has_the_calls_of_the_first() {
    let Some(Fixture { data, log, .. }) = fixture("sq1") else { return };
    let directory = tempfile::tempdir().unwrap();
    let copies = directory.path().join("copies.data");
    let log = data.with_file_name("logs").join(log);
    let options = Options::from_args(["--copies=3"]).unwrap();
    tracegen::encode(&log, &copies, Path::new("/dev/null"), &options).unwrap();

    let times = |row: &CallRow| (row.start_ns, row.latency_ns, row.off_cpu_ns);
    let first = rows(&data);
    let expected: Vec<Times> = first.iter().map(times).collect();
    let mut found: BTreeMap<(Tid, Option<Cpu>), Vec<Times>> = BTreeMap::new();
    for row in &rows(&copies) {
        found.entry((row.id.tid, row.cpu)).or_default().push(times(row));
    }
    let main = first[0].id.tid.0;
    let threads: Vec<_> = (0..3).map(|copy| (Tid(main + copy as i32), Some(Cpu(8 * copy)))).collect();
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), threads);
    assert!(found.values().all(|times| *times == expected));
}
