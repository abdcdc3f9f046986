//! A thread that is not the first of its process executes a program: it has the first one's number then, and
//! its own is given to another thread.

use super::short_lived::run_of_f;
use super::*;

/// The number of the thread that executes, and of the one after it.
const TID: Tid = Tid(100);
/// Of a thread of another process, which lives on.
const OTHER: Tid = Tid(300);
const SIZE: usize = 200;

/// What happens to the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivenAgain {
    Never,
    /// While the thread that executed lives.
    Early,
    /// After its death.
    Late,
}

/// A recording in the making.
struct Making<'a> {
    feed: &'a PieceFeed,
    has_own_buffers: bool,
    between_ns: u64,
    dice: u64,
    calls: u64,
    /// Where the streams of buffers end, by perf's number.
    ends: BTreeMap<u32, u64>,
}

impl Making<'_> {
    fn records(&self, cpu: u32, tid: Tid, time: Ns, record: &Record<'_>) {
        let mut records = FedRecords::default();
        records.add(cpu, tid, time, record);
        self.feed.records(&records.0);
    }

    /// A thread is born, and traced.
    fn born(&self, tid: Tid, index: u32, time: Ns) -> Ns {
        let (parent_pid, parent_tid) = (PID, Tid(PID.0));
        self.records(1, parent_tid, time, &Record::Fork { pid: PID, tid, parent_pid, parent_tid });
        if self.has_own_buffers {
            self.feed.ids(tid, &[(0, EventId { id: 1000 + u64::from(index), index, cpu: -1, tid: tid.0 })]);
        }
        self.records(1, tid, Ns(time.0 + 20), &Record::ItraceStart { pid: PID, tid });
        Ns(time.0 + 30)
    }

    fn dies(&self, tid: Tid, time: Ns) {
        self.records(1, tid, time, &Record::Exit { pid: PID, tid, parent_pid: Pid(1), parent_tid: Tid(1) });
    }

    /// A thread runs on a CPU; `opened`: the number under which its buffer was opened. Returns a time after.
    fn runs(&mut self, (cpu, tid): (u32, Tid), (index, opened): (u32, Tid), time: Ns) -> Ns {
        let mut slice = Slice::new(&mut self.dice, SIZE, AFTER_CALL);
        self.calls += slice.calls;
        let (index, owner, id) = match self.has_own_buffers {
            true => (index, AuxOwner::Thread(opened), 1000 + u64::from(index)),
            false => (cpu, AuxOwner::Cpu(Cpu(cpu)), u64::from(cpu) + 1),
        };
        let at = self.ends.entry(index).or_default();
        let (end, size, offset) = (Ns(time.0 + slice.length_ns), slice.bytes.len() as u64, *at);
        *at += size;
        let chunk = AuxChunk { index, owner, offset: AuxOffset(offset), reference: 0 };
        self.records(cpu, tid, time, &Record::Switch { out: false, preempted: false });
        let mut aux = Vec::new();
        let by = SampleId { pid: PID, tid, time: end, cpu: Cpu(cpu), id };
        Record::Aux { offset, size, flags: 0 }.encode(&by, &mut aux);
        self.feed.records(&aux);
        self.records(cpu, tid, end, &Record::Switch { out: true, preempted: true });
        assert!(self.feed.trace(&chunk, slice.at(Ns(time.0 + 50))));
        Ns(end.0 + self.between_ns)
    }
}

/// Records what happens. Returns the number of calls.
fn record(directory: &Path, given_again: GivenAgain, has_own_buffers: bool, between_ns: u64) -> u64 {
    let program = program(directory);
    let FedWatch { pieces, arrived: _arrived, .. } = FedWatch::new(directory, 1000 * MB);
    let mut events = events();
    if has_own_buffers {
        events[0].ids = vec![EventId { id: 1000, index: 0, cpu: -1, tid: PID.0 }];
    }
    let pieces = Pieces { length: Duration::MAX, ..pieces };
    let feed = PieceFeed::new(&pieces, events.clone(), &head(&events, !has_own_buffers)).unwrap();
    let start = Ns(1_000_000);
    feed.records(&FedRecords::of_begin(&program, start).0);
    let ends = BTreeMap::new();
    let mut made = Making { feed: &feed, has_own_buffers, between_ns, dice: 1, calls: 0, ends };
    let (main, executing, next) = (Tid(PID.0), (1, TID), (2, TID));
    let time = made.born(TID, 1, Ns(start.0 + 1000));
    let time = made.born(OTHER, 3, time);
    let executes = made.runs((0, TID), executing, time);
    made.dies(main, Ns(executes.0 - 10));
    feed.records(&FedRecords::of_exec(&program, executes).0);
    let mut time = made.runs((0, main), executing, Ns(executes.0 + 100));
    let give_again = |made: &mut Making<'_>, time: Ns| {
        let mut time = made.born(TID, 2, time);
        for _ in 0..3 {
            time = made.runs((1, TID), next, time);
        }
        made.dies(TID, time);
        Ns(time.0 + made.between_ns)
    };
    if given_again == GivenAgain::Early {
        time = give_again(&mut made, time);
    }
    for _ in 0..3 {
        time = made.runs((0, main), executing, time);
    }
    made.dies(main, time);
    time = Ns(time.0 + between_ns);
    if given_again == GivenAgain::Late {
        time = give_again(&mut made, time);
    }
    for _ in 0..3 {
        time = Ns(time.0 + between_ns);
        made.records(1, OTHER, time, &Record::Switch { out: false, preempted: false });
        made.records(1, OTHER, Ns(time.0 + 10), &Record::Switch { out: true, preempted: false });
    }
    let calls = made.calls;
    feed.finish().unwrap();
    calls
}

/// The report of a watch is that of the recording, with all calls.
fn is_that_of_the_recording(name: &str, has_own_buffers: bool, all_given_again: &[GivenAgain]) {
    let documents = alone(name, || {
        for &given_again in all_given_again {
            for between_ns in [2_000, 300_000_000] {
                let directory = tempfile::tempdir().unwrap();
                let calls = record(directory.path(), given_again, has_own_buffers, between_ns);
                println!("{{\"calls\": {calls}}}");
                let path = directory.path().join("0.data");
                let path = path.to_str().unwrap();
                run_of_f(&["report", "-i", path]);
                for (workers, interval) in [("1", "0.001"), ("2", "0.3")] {
                    run_of_f(&["watch", "--replay", path, "-w", workers, "-n", interval]);
                }
            }
        }
    });
    let Some(documents) = documents else { return };
    let is_interval = |document: &&Value| document["schema"] == "func_latency.watch/1";
    let documents: Vec<&Value> = documents.iter().filter(|document| !is_interval(document)).collect();
    assert_eq!(documents.len(), 8 * all_given_again.len());
    for (number, documents) in documents.chunks(4).enumerate() {
        let [made, report, watched @ ..] = documents else { panic!("{} documents", documents.len()) };
        assert_eq!(report["functions"][0]["calls"]["complete"], made["calls"], "recording {number}");
        let are_same = watched.iter().map(|watched| *watched == *report).collect::<Vec<_>>();
        assert_eq!(are_same, [true, true], "recording {number}");
    }
}

#[test]
fn the_number_of_a_thread_that_executed_is_another_thread() {
    let name = "executed::the_number_of_a_thread_that_executed_is_another_thread";
    is_that_of_the_recording(name, false, &[GivenAgain::Never, GivenAgain::Early, GivenAgain::Late]);
}

/// Its last times were bounded by the end of the recording, or of an interval.
#[test]
fn the_buffer_of_a_thread_that_executed_ends_with_it() {
    let name = "executed::the_buffer_of_a_thread_that_executed_ends_with_it";
    is_that_of_the_recording(name, true, &[GivenAgain::Never, GivenAgain::Late]);
}
