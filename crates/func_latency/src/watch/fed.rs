//! A watch of what no machine records here: trace of two CPUs that is made up, up to 200 MB of it each
//! second, in the pieces that a recorder writes.
//!
//! ```text
//!   CPU 0   thread 10 | thread 11 | thread 10 | ...
//!   CPU 1   thread 12 | thread 13 | thread 12 | ...
//!   slice   PSB+, calls of `f` in `outer`, the thread is switched out
//! ```

mod executed;
mod short_lived;
mod slice;
mod taken;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use model::{AuxOffset, AuxOwner, BuildId, Cpu, FileOffset, Ns, Pid, Tid, TscClock};
use perfdata::write::{
    Attr, AuxChunk, Event, EventId, FileIdentity, IntelPtInfo, Record, SampleId, id_index, pt_config,
};
use recorder::{Interrupts, Piece, PieceFeed, Pieces};
use serde_json::Value;

use self::slice::{AFTER_CALL, BUILD_ID, Slice, TEXT, program};
use self::taken::Taken;
use super::console::Console;
use super::display::Display;
use super::followed::Arriving;
use super::growing::Growing;
use super::live::Follow;
use super::{Watch, record_args};
use crate::args::{self, Command as Subcommand};
use crate::config::ReportConfig;
use crate::exit::Exit;

const PID: Pid = Pid(10);
const CPUS: u32 = 2;
/// Each CPU runs this number of threads in turns.
const THREADS: u32 = 2;
const PMU: u32 = 8;

/// Different slices, that of each CPU and turn another one.
const SLICES: usize = 7;
const SLICE_BYTES: usize = 16 << 10;

/// What was fed.
#[derive(Clone, Copy, Debug, Default)]
struct Fed {
    trace_bytes: u64,
    left_out_bytes: u64,
}

impl Fed {
    /// Feeds a slice of a buffer's trace.
    fn feed_slice(&mut self, feed: &PieceFeed, chunk: &AuxChunk, bytes: &[u8]) {
        let size = bytes.len() as u64;
        if !feed.trace(chunk, bytes) {
            self.left_out_bytes += size;
        }
        self.trace_bytes += size;
    }
}

fn of_cpu(cpu: u32, offset: u64) -> AuxChunk {
    let owner = AuxOwner::Cpu(Cpu(cpu));
    AuxChunk { index: cpu, owner, offset: AuxOffset(offset), reference: 0 }
}

fn tid_of(cpu: u32, turn: u64) -> Tid {
    Tid(PID.0 + (cpu * THREADS) as i32 + (turn % u64::from(THREADS)) as i32)
}

fn events() -> Vec<Event> {
    let flags =
        Attr::EXCLUDE_KERNEL | Attr::MMAP | Attr::MMAP2 | Attr::COMM | Attr::TASK | Attr::CONTEXT_SWITCH;
    let config = pt_config::PT | pt_config::BRANCH | pt_config::TSC | pt_config::CYC;
    let attr = Attr { event_type: PMU, config, flags, aux_watermark: 0 };
    let id = |cpu: u32| EventId { id: u64::from(cpu) + 1, index: cpu, cpu: cpu as i32, tid: -1 };
    vec![Event { name: "intel_pt//u".to_owned(), attr, ids: (0..CPUS).map(id).collect() }]
}

/// What stands in front of all.
fn head(events: &[Event], per_cpu_buffers: bool) -> Vec<u8> {
    let info = IntelPtInfo {
        pmu_type: PMU,
        clock: TscClock { shift: 0, mult: 1, zero: 0 },
        have_sched_switch: 2,
        snapshots: false,
        per_cpu_buffers,
        tsc_ctc_ratio: (2, 1),
        max_nonturbo_ratio: 20,
        filter: String::new(),
    };
    [vec![info.auxtrace_info(), info.time_conv()], id_index(events)].concat().concat()
}

/// Records of a CPU.
#[derive(Default)]
struct FedRecords(Vec<u8>);

impl FedRecords {
    fn add(&mut self, cpu: u32, tid: Tid, time: Ns, record: &Record<'_>) {
        let id = SampleId { pid: PID, tid, time, cpu: Cpu(cpu), id: u64::from(cpu) + 1 };
        record.encode(&id, &mut self.0);
    }

    /// The process executes the program.
    fn of_exec(program: &Path, time: Ns) -> Self {
        let mut records = Self::default();
        let main = tid_of(0, 0);
        records.add(0, main, time, &Record::Comm { pid: PID, tid: main, name: "program", exec: true });
        let mapped = Record::Mmap2 {
            pid: PID,
            tid: main,
            start: TEXT,
            len: 0x1000,
            file_offset: FileOffset(0x1000),
            identity: FileIdentity::BuildId(BuildId(BUILD_ID.to_vec())),
            protection: 5,
            flags: 2,
            path: program.to_str().unwrap(),
        };
        records.add(0, main, time, &mapped);
        records
    }

    /// The threads run when the recording begins.
    fn of_begin(program: &Path, time: Ns) -> Self {
        let mut records = Self::of_exec(program, time);
        for (cpu, turn) in (0..CPUS).flat_map(|cpu| (0..THREADS).map(move |turn| (cpu, turn))) {
            let tid = tid_of(cpu, turn.into());
            records.add(cpu, tid, time, &Record::ItraceStart { pid: PID, tid });
            records.add(cpu, tid, time, &Record::Switch { out: true, preempted: true });
        }
        records
    }
}

fn slices() -> Vec<Slice> {
    let mut dice = 1;
    (0..SLICES).map(|_| Slice::new(&mut dice, SLICE_BYTES, AFTER_CALL)).collect()
}

/// Which slice a CPU has in a turn.
fn slice_of(cpu: u32, turn: u64) -> usize {
    (turn as usize * CPUS as usize + cpu as usize) % SLICES
}

/// Calls in a feed.
fn calls_in(feed: &Feed) -> u64 {
    let slices = slices();
    let (mut bytes, mut calls) = (0, 0);
    for turn in 0.. {
        if bytes >= feed.bytes {
            break;
        }
        for slice in (0..CPUS).map(|cpu| &slices[slice_of(cpu, turn)]) {
            bytes += slice.bytes.len() as u64;
            calls += slice.calls;
        }
    }
    calls
}

/// Feeds `bytes` of trace at this rate.
fn feed(pieces: &Pieces, program: &Path, bytes: u64, bytes_each_s: u64) -> Fed {
    let feed = PieceFeed::new(pieces, events(), &head(&events(), true)).unwrap();
    let mut slices = slices();
    let start = Ns(1_000_000);
    feed.records(&FedRecords::of_begin(program, start).0);
    let mut fed = Fed::default();
    let mut at = [(Ns(start.0 + 1000), 0_u64); CPUS as usize];
    let began = Instant::now();
    for turn in 0.. {
        if fed.trace_bytes >= bytes {
            break;
        }
        for (cpu, (time, offset)) in (0..CPUS).zip(&mut at) {
            let slice = &mut slices[slice_of(cpu, turn)];
            let (tid, end) = (tid_of(cpu, turn), Ns(time.0 + slice.length_ns));
            let size = slice.bytes.len() as u64;
            let mut records = FedRecords::default();
            records.add(cpu, tid, *time, &Record::Switch { out: false, preempted: false });
            records.add(cpu, tid, end, &Record::Aux { offset: *offset, size, flags: 0 });
            records.add(cpu, tid, end, &Record::Switch { out: true, preempted: true });
            feed.records(&records.0);
            fed.feed_slice(&feed, &of_cpu(cpu, *offset), slice.at(Ns(time.0 + 50)));
            (*time, *offset) = (Ns(end.0 + 1000), *offset + size);
        }
        let complete = at.iter().map(|(time, _)| time.0).min().unwrap_or_default();
        feed.complete_until(Ns(complete - 500));
        let due = Duration::from_secs_f64(fed.trace_bytes as f64 / bytes_each_s as f64);
        thread::sleep(due.saturating_sub(began.elapsed()));
    }
    feed.finish().unwrap();
    fed
}

const LOOKED_AT_EACH: Duration = Duration::from_millis(20);
const INTERVAL: &str = "0.1";

/// A feed, and the room that its pieces have.
struct Feed {
    bytes: u64,
    bytes_each_s: u64,
    spool_bytes: u64,
}

/// How a watch follows the pieces.
struct FedWatch {
    interval: Duration,
    report: ReportConfig,
    pieces: Pieces,
    arrived: Receiver<Piece>,
    interrupts: Interrupts,
}

impl FedWatch {
    fn new(spool: &Path, spool_bytes: u64) -> Self {
        let words =
            ["func_latency", "watch", "-f", "f", "-n", INTERVAL, "-w", "2", "--format", "json", "-p", "10"];
        let Some(Subcommand::Watch(words)) = args::parse(words).unwrap().command else { panic!("no watch") };
        let interval = super::interval_of(words.interval).unwrap();
        let report = ReportConfig::of_recording(record_args(*words)).unwrap();
        let (reader, arrived) = mpsc::channel();
        let pieces = Pieces {
            directory: spool.to_path_buf(),
            length: interval,
            most_bytes: spool_bytes,
            waiting_bytes: Arc::default(),
            reader,
            copies: None,
        };
        Self { interval, report, pieces, arrived, interrupts: Interrupts::hold().unwrap() }
    }
}

/// Watches what `feed` feeds, and prints what comes of that.
fn watch_fed(spool_bytes: u64, feed: impl FnOnce(&Pieces, &Path) -> Fed + Send) -> (Fed, Taken) {
    let directory = tempfile::tempdir().unwrap();
    let program = program(directory.path());
    let spool = directory.path().join("spool");
    fs::create_dir(&spool).unwrap();
    let FedWatch { interval, report, pieces, arrived, interrupts } = FedWatch::new(&spool, spool_bytes);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut taken = Taken::default();
            while !is_over.load(Ordering::Relaxed) {
                taken.look(&spool);
                thread::sleep(LOOKED_AT_EACH);
            }
            taken
        });
        let waiting_bytes = Arc::clone(&pieces.waiting_bytes);
        let program = &program;
        let feeding = scope.spawn(move || feed(&pieces, program));
        let arriving = Arriving { pieces: arrived, waiting_bytes, interrupts: &interrupts };
        let exit = Follow::new(arriving, spool_bytes, false).run(|recording| {
            let growing = Growing::new(report.calls.clone(), recording, Some(interval));
            let console = Console::new(Display::new(report.format, false)?, None, None);
            Ok(Watch::new(growing, report, interval, console))
        });
        assert_eq!(exit.unwrap(), Exit::Done);
        let fed = feeding.join().unwrap();
        is_over.store(true, Ordering::Relaxed);
        (fed, looking.join().unwrap())
    })
}

/// Where this is set, this process is the one that watches: nothing else is in its memory.
const WATCHES: &str = "FUNC_LATENCY_TEST_WATCHES";

/// Does `watch` in a process that runs the test of this name. Returns the documents that it prints; `None`:
/// it is this one.
fn alone(name: &str, watch: impl FnOnce()) -> Option<Vec<Value>> {
    if env::var_os(WATCHES).is_some() {
        watch();
        return None;
    }
    let mut watch = Command::new(env::current_exe().unwrap());
    let watch = watch.args(["--exact", &format!("watch::fed::{name}"), "--nocapture"]).env(WATCHES, "1");
    let output = watch.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    println!("{said}");
    assert!(output.status.success(), "{said}");
    let printed = String::from_utf8(output.stdout).unwrap();
    // What prints the names of tests says also how long they take.
    let of_watch = |line: &&str| !line.contains("has been running for");
    let printed: Vec<&str> = printed.lines().filter(of_watch).collect();
    let printed = printed.join("\n");
    let from = printed.find('{').unwrap();
    let documents = serde_json::Deserializer::from_str(&printed[from..]).into_iter::<Value>();
    // They end with the result of the test.
    Some(documents.map_while(Result::ok).collect())
}

/// Watches a feed in a process of its own, where `check` is done, too. Returns the intervals and the report.
fn watched_alone(name: &str, of: &Feed, check: impl FnOnce(Fed, &Taken)) -> Option<(Vec<Value>, Value)> {
    let mut documents = alone(name, || {
        let (fed, taken) =
            watch_fed(of.spool_bytes, |pieces, program| feed(pieces, program, of.bytes, of.bytes_each_s));
        taken.tell(fed);
        check(fed, &taken);
    })?;
    let report = documents.pop().unwrap();
    check_sums(&documents, &report);
    Some((documents, report))
}

/// The intervals add up to the report.
fn check_sums(intervals: &[Value], report: &Value) {
    let calls = |line: &Value| line["functions"][0]["calls"].as_u64().unwrap_or(0);
    let complete = report["functions"][0]["calls"]["complete"].as_u64();
    assert_eq!(Some(intervals.iter().map(calls).sum()), complete);
}

fn is_full_run() -> bool {
    env::var_os("FUNC_LATENCY_FULL").is_some_and(|value| value != "0" && !value.is_empty())
}

const MB: u64 = 1_000_000;
/// Memory may grow by one part of so many, and by some room.
const GROWTH_SHARE: u64 = 20;
/// Parts have different sizes, and threads of other times other rooms.
const ROOM_KB: u64 = 1 << 10;

/// What the workers remember of packets fills up to its bound: 8 MB for each of two, of what is decoded
/// once and of what is decoded again.
const CACHES_KB: u64 = 32 << 10;

fn is_flat(taken: &Taken, room_kb: u64) {
    let (first, last) = taken.first_and_last_kb();
    assert!(last <= first + first / GROWTH_SHARE + room_kb, "{first} to {last} KB: {:?}", taken.memory_kb);
}

/// Workers were other threads in each interval, and what each of them knew of the code stayed: 0.8 MB.
#[test]
fn memory_stays_as_it_is_and_every_call_is_seen() {
    let seconds = if is_full_run() { 60 } else { 4 };
    let feed = Feed { bytes: seconds * 20 * MB, bytes_each_s: 20 * MB, spool_bytes: 1000 * MB };
    let check = |fed: Fed, taken: &Taken| {
        assert_eq!(fed.left_out_bytes, 0);
        is_flat(taken, ROOM_KB);
    };
    let name = "memory_stays_as_it_is_and_every_call_is_seen";
    let Some((intervals, report)) = watched_alone(name, &feed, check) else { return };
    assert!(intervals.iter().all(|line| line["decoded"] == 1.0), "{intervals:?}");
    assert_eq!(report["functions"][0]["calls"]["complete"], calls_in(&feed));
}

/// Trace comes faster than it can be decoded, and finds its room taken.
#[test]
fn two_hundred_megabytes_a_second_have_no_more_room_than_the_spool() {
    const SPOOL_BYTES: u64 = 128 * MB;
    let bytes = if is_full_run() { 10_000 * MB } else { 600 * MB };
    let feed = Feed { bytes, bytes_each_s: 200 * MB, spool_bytes: SPOOL_BYTES };
    let check = |_: Fed, taken: &Taken| {
        if is_full_run() {
            is_flat(taken, CACHES_KB);
        }
        assert!(taken.spool_bytes <= SPOOL_BYTES, "the spool has {} bytes", taken.spool_bytes);
    };
    let name = "two_hundred_megabytes_a_second_have_no_more_room_than_the_spool";
    let Some((intervals, report)) = watched_alone(name, &feed, check) else { return };
    let trace_bytes: u64 = intervals.iter().filter_map(|line| line["trace_bytes"].as_u64()).sum();
    assert!(trace_bytes >= bytes, "{trace_bytes} of {bytes} bytes are spoken of");
    let calls = &report["functions"][0]["calls"];
    let complete = calls["complete"].as_u64().unwrap();
    assert!((1..=calls_in(&feed)).contains(&complete), "{complete} of {} calls", calls_in(&feed));
    let is_all = intervals.iter().all(|line| line["decoded"] == 1.0);
    assert_eq!(is_all, complete == calls_in(&feed), "what is not decoded is said: {}", report["loss"]);
}

/// The first piece was read twice: for what all pieces share, and for what it has.
#[test]
fn the_first_piece_is_opened_once() {
    let directory = tempfile::tempdir().unwrap();
    let program = program(directory.path());
    let FedWatch { pieces, arrived, interrupts, .. } = FedWatch::new(directory.path(), MB);
    let waiting_bytes = Arc::clone(&pieces.waiting_bytes);
    let fed = feed(&pieces, &program, 1, MB);
    assert_eq!(fed.left_out_bytes, 0);
    drop(pieces);
    let first = directory.path().join("0.data");
    assert!(first.exists());
    let arriving = Arriving { pieces: arrived, waiting_bytes, interrupts: &interrupts };
    let ended = Follow::new(arriving, MB, false).run(|_| {
        assert!(!first.exists(), "it is to be opened again");
        Err(anyhow::anyhow!("there is no watch"))
    });
    assert_eq!(ended.unwrap_err().to_string(), "there is no watch");
}
