//! Events, report and output are the same for every number of workers, every size of the memo, and with and
//! without what no sink asked about.

use std::path::Path;
use std::process::Command;

use analyzer::{Analysis, CheckedAnalysis, Place, Request, RunDigest, Surroundings};
use decoder::{DecodeOptions, OwnDecoder};
use func_latency::render::Names;
use func_latency::render::rows::{self, Origin, RowsFile, RowsForm, RowsWriter};
use model::{
    AuxOwner, DigestSink, DigestedRun, EventSink, FunctionId, FunctionSet, ObjectId, Pid, SpaceId, Tid,
    TraceEvent, WholeRun,
};
use truth_tests::{Opened, fixture, pipeline};

const WORKERS: [usize; 4] = [1, 2, 3, 8];

const RECORDINGS: [(&str, &str); 9] = [
    ("demo-kernel-cpu2", "round_fn"),
    ("demo-offcpu", "worker"),
    ("demo", "round_fn"),
    ("demo-cpu2-ovf", "leaf"),
    ("demo-cpu2-trunc", "leaf"),
    ("demo-filter2", "mid"),
    ("calls-cpu8", "round_cc"),
    ("sq1", "sqlite3VdbeExec"),
    ("case-recursion-ovf", "deep"),
];

#[derive(Default, PartialEq)]
struct All(Vec<(Pid, Tid, SpaceId, TraceEvent)>);

impl EventSink for All {
    fn events(&mut self, pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        self.0.extend(events.iter().map(|event| (pid, tid, space, *event)));
    }
}

#[test]
fn events() {
    for (name, _) in RECORDINGS {
        let Some(fixture) = fixture(name) else { continue };
        let file = pipeline::open(&fixture.data).unwrap();
        let kernel = fixture.kernels().pop().unwrap_or_default();
        let opened = Opened::with_kernel(&file, &kernel).unwrap();
        let decode = |workers| {
            let mut all = All::default();
            let options = DecodeOptions { workers, segment_bytes: 50_000, ..DecodeOptions::default() };
            let stats = opened.decode(&options, &mut all);
            (all, stats)
        };
        let (one, stats) = decode(1);
        assert!(!one.0.is_empty());
        for workers in WORKERS {
            let (all, its_stats) = decode(workers);
            assert_eq!(all.0.len(), one.0.len(), "{name} with {workers} workers");
            assert!(all == one, "{name} with {workers} workers");
            assert_eq!(its_stats, stats, "{name} with {workers} workers");
        }
    }
}

/// With so few places nearly every lookup of the memo finds another's.
const SMALL_MEMO: usize = 256;

#[test]
fn the_size_of_the_memo() {
    for (name, _) in RECORDINGS {
        let Some(fixture) = fixture(name) else { continue };
        let file = pipeline::open(&fixture.data).unwrap();
        let opened = Opened::with_kernel(&file, &fixture.kernels().pop().unwrap_or_default()).unwrap();
        let decode = |decoder: OwnDecoder| {
            let mut all = All::default();
            let options = DecodeOptions { workers: 2, all_branches: true, ..DecodeOptions::default() };
            let stats = opened.decode_with(Box::new(decoder), &options, &mut all);
            (all, stats)
        };
        let (usual, stats) = decode(OwnDecoder::default());
        let (small, its_stats) = decode(OwnDecoder::with_memo(SMALL_MEMO));
        assert!(!usual.0.is_empty() && small == usual, "{name}");
        assert_eq!(its_stats, stats, "{name}");
    }
}

/// Asks for everything, whatever it needs.
struct Everything<S>(S);

impl<S: EventSink> EventSink for Everything<S> {
    fn events(&mut self, pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        self.0.events(pid, tid, space, events);
    }

    fn overflows(&mut self, owner: AuxOwner, count: u64) {
        self.0.overflows(owner, count);
    }
}

/// Opens each recording, for its function's rows.
fn for_each(mut work: impl FnMut(&str, &Opened<'_>, &Request)) {
    for (name, function) in RECORDINGS {
        let Some(fixture) = fixture(name) else { continue };
        let file = pipeline::open(&fixture.data).unwrap();
        let opened = Opened::with_kernel(&file, &fixture.kernels().pop().unwrap_or_default()).unwrap();
        let functions = vec![opened.function(function).unwrap()];
        work(name, &opened, &Request { functions, rows: true, ..Request::default() });
    }
}

/// The decoder leaves out what no sink asked about: the report is as if it did not.
#[test]
fn what_is_left_out() {
    for_each(|name, opened, request| {
        let around = Surroundings::of(&opened.recording, &opened.schedule, &opened.image);
        let options = DecodeOptions { workers: 2, ..DecodeOptions::default() };
        let mut asked = Analysis::new(request, around);
        opened.decode(&options, &mut asked);
        let mut everything = Everything(Analysis::new(request, around));
        opened.decode(&options, &mut everything);
        let (asked, everything) = (asked.finish(), everything.0.finish());
        assert!(asked.functions.iter().any(|function| !function.rows.is_empty()), "{name}");
        assert!(asked == everything, "{name}");
    });
}

/// An analysis of which the workers do a part.
struct Ahead<'a> {
    analysis: Analysis<'a>,
    /// Runs that they analysed.
    digested: usize,
}

impl EventSink for Ahead<'_> {
    fn asks_about(&self) -> Option<FunctionSet> {
        self.analysis.asks_about()
    }

    fn left_out(&mut self, tid: Tid, transfers: u64) {
        self.analysis.left_out(tid, transfers);
    }

    fn overflows(&mut self, owner: AuxOwner, count: u64) {
        self.analysis.overflows(owner, count);
    }

    fn events(&mut self, pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        self.analysis.events(pid, tid, space, events);
    }
}

impl DigestSink<RunDigest> for Ahead<'_> {
    fn run(
        &mut self,
        pid: Pid,
        tid: Tid,
        space: SpaceId,
        run: &DigestedRun<RunDigest>,
        whole: &dyn WholeRun<RunDigest>,
    ) {
        self.digested += 1;
        self.analysis.run(pid, tid, space, run, whole);
    }
}

/// Three workers or more analyse runs of calls, and two if many functions are wanted: the report is as if
/// they did not.
#[test]
fn who_analyses() {
    let (mut digested, mut recordings) = ([0; 3], 0);
    for_each(|name, opened, request| {
        recordings += 1;
        let request = Request { rows: false, ..request.clone() };
        let others = (1..).map(FunctionId).filter(|id| !request.functions.contains(id)).take(64);
        let many =
            Request { functions: request.functions.iter().copied().chain(others).collect(), ..request };
        let few = Request { functions: request.functions.clone(), ..many.clone() };
        for ((request, workers), digested) in
            [(&few, 2), (&few, 3), (&many, 2)].into_iter().zip(&mut digested)
        {
            let around = Surroundings::of(&opened.recording, &opened.schedule, &opened.image);
            let options = DecodeOptions { workers, segment_bytes: 50_000, ..DecodeOptions::default() };
            let mut in_turn = Analysis::new(request, around);
            opened.decode(&options, &mut in_turn);
            let mut ahead = Ahead { analysis: Analysis::new(request, around), digested: 0 };
            let digester = ahead.analysis.digester().unwrap();
            opened.decode_digested(&digester, &options, &mut ahead);
            *digested += ahead.digested;
            let (in_turn, ahead) = (in_turn.finish(), ahead.analysis.finish());
            assert!(in_turn.trace.events > 0 && ahead == in_turn, "{name}, {workers} workers");
        }
    });
    let is_any = recordings > 0;
    assert_eq!(digested.map(|runs| runs > 0), [false, is_any, is_any], "{digested:?} runs of calls");
}

/// Numbers in the place of names.
struct Numbers;

impl Names for Numbers {
    fn function(&self, id: FunctionId) -> String {
        id.0.to_string()
    }

    fn object_of(&self, _: FunctionId) -> Option<String> {
        None
    }

    fn object(&self, id: ObjectId) -> String {
        id.0.to_string()
    }

    fn site(&self, place: Place) -> String {
        format!("{}+{:#x}", place.object.0, place.svma.0)
    }

    fn line(&self, _: Place) -> Option<String> {
        None
    }
}

/// Rows that memory has no room for wait on disk: the file is as if there was room.
#[test]
fn the_room_for_rows() {
    let directory = tempfile::tempdir().unwrap();
    let target = RowsFile { path: directory.path().join("rows.csv"), form: RowsForm::Csv };
    for_each(|name, opened, request| {
        let around = Surroundings::of(&opened.recording, &opened.schedule, &opened.image);
        let options = DecodeOptions { workers: 2, ..DecodeOptions::default() };
        let mut writer = RowsWriter::new(&target, &Numbers, &Origin::default(), None).with_bound(1 << 8);
        let mut analysis = CheckedAnalysis::new(request, around).giving_rows_to(&mut writer);
        opened.decode(&options, &mut analysis);
        let (report, violations) = analysis.finish();
        assert_eq!(violations, [], "{name}");
        writer.finish().unwrap();
        let mut kept = Vec::new();
        rows::write(&mut kept, target.form, &report, &Numbers).unwrap();
        let written = std::fs::read_to_string(&target.path).unwrap();
        let kept = String::from_utf8(kept).unwrap();
        let differing = written.lines().zip(kept.lines()).find(|(written, kept)| written != kept);
        assert_eq!(differing, None, "{name}");
        assert_eq!(written.len(), kept.len(), "{name}");
    });
}

/// What the command prints, and its rows.
fn report(data: &Path, function: &str, workers: usize) -> (String, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let rows = directory.path().join("rows.jsonl");
    let output = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"))
        .args(["report", "--check", "--format", "json", "-f", function, "-w", &workers.to_string(), "-i"])
        .arg(data)
        .arg("--rows")
        .arg(&rows)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", data.display());
    let json = String::from_utf8(output.stdout).unwrap();
    (json, std::fs::read(rows).unwrap())
}

/// The tables of a recording's calls, and of what is inside of them.
fn tables(data: &Path, function: &str, workers: usize) -> Vec<(String, Vec<u8>)> {
    let directory = tempfile::tempdir().unwrap();
    let tables = directory.path().join("tables/");
    let output = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"))
        .args(["export", "--format", "parquet", "-f", function, "-w", &workers.to_string(), "-i"])
        .arg(data)
        .arg("-o")
        .arg(&tables)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}: {}", data.display(), String::from_utf8_lossy(&output.stderr));
    let mut files = Vec::new();
    for table in ["calls", "children", "gaps", "off_cpu"] {
        for recording in std::fs::read_dir(tables.join(table)).unwrap() {
            let recording = recording.unwrap().path();
            let name = format!("{table} {}", recording.file_name().unwrap().display());
            files.push((name, std::fs::read(recording.join(format!("{table}.parquet"))).unwrap()));
        }
    }
    files
}

/// The report says how many workers there were, and nothing else differs.
fn without_workers(json: &str, workers: usize) -> String {
    json.replace(&format!("\"workers\":{workers},"), "").replace(&format!("\"workers\": {workers},"), "")
}

#[test]
fn output() {
    for (name, function) in RECORDINGS {
        let Some(fixture) = fixture(name) else { continue };
        let (json, rows) = report(&fixture.data, function, 1);
        assert!(!rows.is_empty(), "{name}");
        let tables_of_one = tables(&fixture.data, function, 1);
        assert_eq!(tables_of_one.len(), 4, "{name}");
        for workers in WORKERS {
            let (its_json, its_rows) = report(&fixture.data, function, workers);
            assert_eq!(
                without_workers(&its_json, workers),
                without_workers(&json, 1),
                "{name}, {workers} workers"
            );
            assert!(its_rows == rows, "rows of {name} with {workers} workers");
            for (table, one) in tables(&fixture.data, function, workers).iter().zip(&tables_of_one) {
                assert!(table == one, "{} of {name} with {workers} workers", table.0);
            }
        }
    }
}
