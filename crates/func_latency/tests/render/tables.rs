//! Tables in Parquet files: what a cell is, and what is null.

use std::fs::File;
use std::path::Path;

use analyzer::{
    Caller, ChildKey, ChildKind, PartOfRow, Reason, RowGap, RowParts, RowWait, Status, Total, Waker,
};
use func_latency::render::rows::{Labels, Origin, RowsOutput, RowsTarget};
use model::{AuxOffset, Cpu, EventTime, FunctionId, Gap, GapCause, Ns, ObjectId, OffCpuSplit, Pid, Tid};
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::report::{FakeNames, place, row};

/// The rows of a table, each as its columns that are not null.
fn rows(path: &Path) -> Vec<String> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let text = |row: parquet::record::Row| {
        let cells = row.get_column_iter().map(|(name, cell)| format!("{name}={cell}"));
        cells.filter(|cell| !cell.ends_with("=null")).collect::<Vec<_>>().join(" ")
    };
    reader.get_row_iter(None).unwrap().map(|row| text(row.unwrap())).collect()
}

fn origin() -> Origin {
    let labels = ["rack=r7", "build=v2"].map(|label| label.parse().unwrap());
    Origin {
        host: Some("db7".to_owned()),
        recording: Some("r1".to_owned()),
        realtime_offset_ns: Some(1000),
        labels: Labels::new(&labels).unwrap(),
    }
}

fn parts() -> RowParts {
    let key = |kind, function| ChildKey { kind, function: FunctionId(function), site: place(0x20) };
    let total = |sum_ns, off_cpu_ns| Total { count: 2, sum_ns, off_cpu_ns };
    let wait = |reason, waker, knows_wakeups| RowWait {
        from: Ns(10),
        to: Ns(60),
        split: OffCpuSplit { blocked_ns: 30, runnable_ns: 20, preempted_ns: 0 },
        knows_wakeups,
        reason,
        waker,
        woken_from: Vec::new(),
    };
    let worker = Waker::Thread { pid: Pid(8), tid: Tid(9), name: "worker".to_owned() };
    RowParts {
        children: vec![
            PartOfRow { key: key(ChildKind::Call, 2), total: total(40, Some(5)), error_ns: 3 },
            PartOfRow { key: key(ChildKind::Syscall, 0), total: total(7, None), error_ns: 0 },
        ],
        waits: vec![
            wait(Reason::Syscall(202), Some(worker), true),
            wait(Reason::Kernel("folio_wait_bit".to_owned()), Some(Waker::Interrupt), true),
            wait(Reason::Unknown, None, false),
        ],
    }
}

fn gap(tid: Option<Tid>, cause: GapCause) -> RowGap {
    let (from, to) = (EventTime::exact(Ns(100)), EventTime::exact(Ns(130)));
    let gap = Gap { from, to, bytes: 77, at: AuxOffset(0x40), cause };
    RowGap { tid, cpu: tid.map(|_| Cpu(3)), gap, lost_ns: 30 }
}

#[test]
fn what_is_not_known_is_null() {
    let directory = tempfile::tempdir().unwrap();
    let target = RowsTarget::Tables(directory.path().to_owned());
    let names = FakeNames { lines: false };
    let mut output = RowsOutput::new(&target, &names, &origin(), None).unwrap();
    let sink = output.sink();
    assert!(sink.wants_parts());
    let known = row(0, Status::Complete, 500, 100, Caller::Function { function: FunctionId(3), tail: false });
    let mut unknown = row(1, Status::Cut, 20, 0, Caller::Unknown);
    (unknown.off_cpu_ns, unknown.pid) = (None, None);
    sink.row(0, &known, Some(&Reason::Syscall(202)));
    sink.parts(&known, &parts());
    sink.row(0, &unknown, None);
    sink.gap(&gap(Some(Tid(42)), GapCause::Overflow));
    sink.gap(&gap(None, GapCause::MissingCode { object: ObjectId(1) }));
    output.finish().unwrap();
    let table = |name: &str| rows(&directory.path().join(format!("{name}/recording=r1/{name}.parquet")));
    let of_all = "host=\"db7\" recording=\"r1\"";
    let labels = "label_build=\"v2\" label_rack=\"r7\"";
    let of_calls = "function=\"row_search_mvcc\"";
    assert_eq!(
        table("calls"),
        [
            format!(
                "id=\"42-0\" tid=42 cpu=3 start_ns=5133313694755869 latency_ns=500 error_ns=7 off_cpu_ns=100 \
                 status=\"complete\" caller=\"ha_innobase::index_read\" site=\"mysqld+0x10\" {of_calls} \
                 aux_buffer=2 aux_offset=\"0x1234\" undecided=false ended_by_jump=false pid=40 \
                 waited_for=\"futex\" end_ns=5133313694756369 depth=0 object=\"/usr/sbin/mysqld\" {of_all} \
                 start_realtime_ns=5133313694756869 {labels}"
            ),
            format!(
                "id=\"42-1\" tid=42 start_ns=5133313694755870 latency_ns=20 error_ns=7 status=\"cut\" \
                 caller=\"[unknown]\" {of_calls} aux_offset=\"0x1234\" cut_by=\"overflow\" undecided=true \
                 ended_by_jump=false depth=0 object=\"/usr/sbin/mysqld\" {of_all} \
                 start_realtime_ns=5133313694756870 {labels}"
            ),
        ]
    );
    let which =
        format!("id=\"42-0\" {of_calls} object=\"/usr/sbin/mysqld\" status=\"complete\" depth=0 tid=42");
    assert_eq!(
        table("children"),
        [
            format!(
                "{which} child=\"btr_pcur_open_with_no_init_func\" kind=\"call\" site=\"mysqld+0x20\" count=2 \
                 sum_ns=40 error_ns=3 off_cpu_ns=5 {of_all} {labels}"
            ),
            format!(
                "{which} child=\"[syscall]\" kind=\"syscall\" site=\"mysqld+0x20\" count=2 sum_ns=7 error_ns=0 \
                 {of_all} {labels}"
            ),
        ]
    );
    let which = format!("{which} from_ns=10 to_ns=60 blocked_ns=30");
    assert_eq!(
        table("off_cpu"),
        [
            format!(
                "{which} runnable_ns=20 preempted_ns=0 reason=\"futex\" kind=\"syscall\" waker=\"worker\" \
                 waker_pid=8 waker_tid=9 {of_all} {labels}"
            ),
            format!(
                "{which} runnable_ns=20 preempted_ns=0 reason=\"[kernel] folio_wait_bit\" kind=\"kernel\" \
                 waker=\"[interrupt]\" {of_all} {labels}"
            ),
            format!("{which} preempted_ns=0 {of_all} {labels}"),
        ]
    );
    let times = "from_ns=100 to_ns=130 lost_ns=30 bytes=77";
    assert_eq!(
        table("gaps"),
        [
            format!("tid=42 cpu=3 {times} cause=\"overflow\" aux_offset=\"0x40\" {of_all} {labels}"),
            format!(
                "{times} cause=\"missing code\" object=\"/usr/lib/libz.so.1\" aux_offset=\"0x40\" {of_all} {labels}"
            ),
        ]
    );
}

/// Of many rows, groups are written as they fill, and each says between which values its columns lie.
#[test]
fn row_groups_are_bounded() {
    const CALLS: u64 = 300_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.parquet");
    let target = RowsTarget::Parquet(path.clone());
    let names = FakeNames { lines: false };
    let mut output = RowsOutput::new(&target, &names, &origin(), None).unwrap();
    assert!(!output.sink().wants_parts());
    // All calls of a group have one, and those of the next another one.
    let statuses = [Status::Complete, Status::Unwound, Status::Complete];
    for number in 0..CALLS {
        let status = statuses[number as usize / 122_880];
        let call = row(number, status, number % 1000, 0, Caller::Signal);
        output.sink().row(0, &call, None);
    }
    assert!(!path.exists(), "the file takes its place when it is whole");
    output.finish().unwrap();
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let groups = reader.metadata().row_groups();
    let counts: Vec<i64> = groups.iter().map(|group| group.num_rows()).collect();
    assert_eq!(counts, [122_880, 122_880, 54_240]);
    let start = groups[1].column(3);
    assert_eq!(start.column_path().string(), "start_ns");
    let statistics = start.statistics().unwrap();
    let bytes = |of: Option<&[u8]>| of.map(|of| i64::from_le_bytes(of.try_into().unwrap()));
    let first = 5_133_313_694_755_869 + 122_880;
    assert_eq!(bytes(statistics.min_bytes_opt()), Some(first));
    assert_eq!(bytes(statistics.max_bytes_opt()), Some(first + 122_879));
    assert_eq!(statistics.null_count_opt(), Some(0));
    for (group, status) in statuses.iter().enumerate() {
        let rows = reader.get_row_group(group).unwrap();
        let ends = [rows.get_row_iter(None).unwrap().next(), rows.get_row_iter(None).unwrap().last()];
        for row in ends {
            let text = row.unwrap().unwrap().to_string();
            assert!(text.contains(&format!("status: \"{}\"", status.name())), "{text}");
        }
        let statistics = groups[group].column(7).statistics().unwrap();
        assert_eq!(statistics.min_bytes_opt(), Some(status.name().as_bytes()));
        assert_eq!(statistics.max_bytes_opt(), Some(status.name().as_bytes()));
        assert_eq!(statistics.null_count_opt(), Some(0));
    }
    // A process and an address that come again are there once: some 5 bytes a call are left.
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes < 12 * CALLS, "{bytes} bytes");
}

/// A run without room for its calls replaced the children, waits and gaps of the run before.
#[test]
fn all_tables_take_their_places_or_none() {
    let directory = tempfile::tempdir().unwrap();
    let place = |table: &str| directory.path().join(format!("{table}/recording=r1/{table}.parquet"));
    std::fs::create_dir_all(place("calls").parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", place("calls")).unwrap();
    let target = RowsTarget::Tables(directory.path().to_owned());
    let names = FakeNames { lines: false };
    let mut output = RowsOutput::new(&target, &names, &origin(), None).unwrap();
    output.sink().gap(&gap(None, GapCause::Overflow));
    let error = output.finish().unwrap_err().to_string();
    assert_eq!(error, format!("cannot write {}", place("calls").display()));
    for table in ["children", "off_cpu", "gaps"] {
        let left = std::fs::read_dir(place(table).parent().unwrap()).unwrap().count();
        assert_eq!(left, 0, "{table}");
    }
}
