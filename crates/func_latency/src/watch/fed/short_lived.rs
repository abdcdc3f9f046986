//! A server with threads that are born and die, one after the other on each CPU.

use super::*;
use crate::run_words;

/// Time from the death of a thread to the birth of the next one on its CPU.
const BETWEEN_NS: u64 = 1_000_000;
/// Time from the birth of a thread until it is traced.
const ATTACHED_NS: u64 = 20;
const SIZE: usize = 200;
const ENTRY_OF_F: u64 = TEXT + 32;
/// Ids from here on are of events of one thread each.
const OWN_IDS: u64 = 1000;

/// Threads, and the numbers that they have in turns.
#[derive(Clone, Copy)]
struct ShortLives {
    threads: u64,
    numbers: u64,
    born_each_s: u64,
    has_own_buffers: bool,
}

impl ShortLives {
    fn tid(self, thread: u64) -> Tid {
        Tid(100 + (thread % self.numbers) as i32)
    }

    /// The first thread is there from the start.
    fn events(self) -> Vec<Event> {
        let mut events = events();
        if self.has_own_buffers {
            let id = EventId { id: OWN_IDS, index: 0, cpu: -1, tid: tid_of(0, 0).0 };
            events.iter_mut().for_each(|event| event.ids = vec![id]);
        }
        events
    }

    fn chunk(self, number: u64, cpu: u32, offset: u64) -> AuxChunk {
        let owner = AuxOwner::Thread(self.tid(number));
        match self.has_own_buffers {
            true => AuxChunk { index: 1 + number as u32, owner, offset: AuxOffset(0), reference: 0 },
            false => of_cpu(cpu, offset),
        }
    }

    /// The thread's event, with a buffer of its own.
    fn id(self, number: u64) -> Option<EventId> {
        let index = 1 + number as u32;
        let id = EventId { id: OWN_IDS + u64::from(index), index, cpu: -1, tid: self.tid(number).0 };
        self.has_own_buffers.then_some(id)
    }

    /// Feeds their lives; each third thread dies in a call.
    fn feed(self, pieces: &Pieces, program: &Path) -> Fed {
        let feed =
            PieceFeed::new(pieces, self.events(), &head(&self.events(), !self.has_own_buffers)).unwrap();
        let mut dice = 1;
        let mut slice = |last| Slice::new(&mut dice, SIZE, last);
        let mut slices = [slice(AFTER_CALL), slice(AFTER_CALL), slice(ENTRY_OF_F)];
        let start = Ns(1_000_000);
        feed.records(&FedRecords::of_begin(program, start).0);
        let (parent_pid, parent_tid) = (PID, tid_of(0, 0));
        let mut fed = Fed::default();
        let mut at = [(Ns(start.0 + 1000), 0_u64); CPUS as usize];
        let began = Instant::now();
        for number in 0..self.threads {
            let cpu = (number % u64::from(CPUS)) as u32;
            let (time, offset) = &mut at[cpu as usize];
            let slice = &mut slices[(number % 3) as usize];
            let (tid, pid) = (self.tid(number), PID);
            let (born, end, size) = (*time, Ns(time.0 + slice.length_ns), slice.bytes.len() as u64);
            let chunk = self.chunk(number, cpu, *offset);
            let aux = Record::Aux { offset: chunk.offset.0, size, flags: 0 };
            let mut records = FedRecords::default();
            records.add(cpu, parent_tid, born, &Record::Fork { pid, tid, parent_pid, parent_tid });
            // The buffer may be opened before the birth is read.
            if number.is_multiple_of(2) {
                feed.records(&std::mem::take(&mut records.0));
            }
            self.id(number).iter().for_each(|id| feed.ids(tid, &[(0, *id)]));
            records.add(cpu, tid, Ns(born.0 + ATTACHED_NS), &Record::ItraceStart { pid, tid });
            let id = self.id(number);
            let of_event = id.map_or(1 + u64::from(cpu), |id| id.id);
            aux.encode(&SampleId { pid, tid, time: end, cpu: Cpu(cpu), id: of_event }, &mut records.0);
            records.add(cpu, tid, end, &Record::Exit { pid, tid, parent_pid, parent_tid });
            feed.records(&records.0);
            fed.feed_slice(&feed, &chunk, slice.at(Ns(time.0 + 50)));
            (*time, *offset) = (Ns(end.0 + BETWEEN_NS), *offset + size);
            let complete = at.iter().map(|(time, _)| time.0).min().unwrap_or_default();
            feed.complete_until(Ns(complete - 500));
            let due = Duration::from_secs_f64(number as f64 / self.born_each_s as f64);
            thread::sleep(due.saturating_sub(began.elapsed()));
        }
        feed.finish().unwrap();
        fed
    }

    /// Makes one recording of their lives; returns its path.
    fn record(self, directory: &Path) -> String {
        let program = program(directory);
        let FedWatch { pieces, arrived: _arrived, .. } = FedWatch::new(directory, 1000 * MB);
        self.feed(&Pieces { length: Duration::MAX, ..pieces }, &program);
        directory.join("0.data").to_str().unwrap().to_owned()
    }
}

/// Room for what a thread leaves: its row of the report, the numbers of its calls.
const ROW_BYTES: u64 = 256;

/// Pieces that are longer than what a thread is known for after its EXIT.
fn long(pieces: &Pieces) -> Pieces {
    let Pieces { directory, waiting_bytes, reader, .. } = pieces;
    Pieces {
        directory: directory.clone(),
        length: Duration::from_millis(1_500),
        most_bytes: pieces.most_bytes,
        waiting_bytes: Arc::clone(waiting_bytes),
        reader: reader.clone(),
        copies: None,
    }
}

/// Memory is what it was when the first threads had been forgotten.
fn is_forgotten(name: &str, lives: ShortLives) {
    let documents = alone(name, || {
        let (fed, taken) = watch_fed(1000 * MB, |pieces, program| lives.feed(pieces, program));
        taken.tell(fed);
        assert_eq!(fed.left_out_bytes, 0);
        // A busy machine makes a part that is larger than the others now and then.
        let (middle_kb, last_kb) = (taken.median_kb(2), taken.median_kb(4));
        let room_kb = ROOM_KB + lives.threads * ROW_BYTES / 1024;
        let most_kb = middle_kb + middle_kb / GROWTH_SHARE + room_kb;
        assert!(last_kb <= most_kb, "{middle_kb} to {last_kb} KB: {:?}", taken.memory_kb);
    });
    let Some(mut intervals) = documents else { return };
    let report = intervals.pop().unwrap();
    check_sums(&intervals, &report);
    assert!(intervals.len() > 4, "{} intervals", intervals.len());
    let calls = &report["functions"][0]["calls"];
    assert_eq!(calls["open_end"], lives.threads / 3);
    assert_eq!(report["trace"]["threads"], lives.numbers + 4);
}

/// What was known of each thread stayed: its life, its stack, its last time.
#[test]
fn of_threads_that_have_died_the_report_alone_is_left() {
    let threads = if is_full_run() { 400_000 } else { 20_000 };
    let lives = ShortLives { threads, numbers: threads, born_each_s: 4_000, has_own_buffers: false };
    is_forgotten("short_lived::of_threads_that_have_died_the_report_alone_is_left", lives);
}

/// Each buffer was decoded again in every interval; and of a number that is given away again nothing was
/// decoded.
#[test]
fn buffers_of_threads_that_have_died_are_forgotten() {
    let lives = ShortLives { threads: 10_000, numbers: 6_000, born_each_s: 2_000, has_own_buffers: true };
    is_forgotten("short_lived::buffers_of_threads_that_have_died_are_forgotten", lives);
}

/// The trace of a piece must not be taken for that of the next threads with the numbers that end in it.
#[test]
fn buffers_are_forgotten_with_the_piece_that_they_ended_in() {
    let name = "short_lived::buffers_are_forgotten_with_the_piece_that_they_ended_in";
    let lives = ShortLives { threads: 12_000, numbers: 12_000, born_each_s: 4_000, has_own_buffers: true };
    let documents = alone(name, || {
        let (fed, taken) = watch_fed(1000 * MB, |pieces, program| lives.feed(&long(pieces), program));
        taken.tell(fed);
    });
    let Some(mut intervals) = documents else { return };
    let report = intervals.pop().unwrap();
    check_sums(&intervals, &report);
    assert!(intervals.len() <= 4, "{} intervals", intervals.len());
    assert_eq!(report["functions"][0]["calls"]["open_end"], lives.threads / 3);
}

/// The threads of one number are one row, and the numbers of their calls go on.
#[test]
fn the_report_of_a_watch_is_that_of_the_recording() {
    let lives = ShortLives { threads: 20_000, numbers: 7_000, born_each_s: 1 << 20, has_own_buffers: false };
    is_that_of_the_recording("short_lived::the_report_of_a_watch_is_that_of_the_recording", lives);
}

#[test]
fn the_report_of_a_watch_of_buffers_of_threads_is_that_of_the_recording() {
    let name = "short_lived::the_report_of_a_watch_of_buffers_of_threads_is_that_of_the_recording";
    let lives = ShortLives { threads: 5_000, numbers: 5_000, born_each_s: 1 << 20, has_own_buffers: true };
    is_that_of_the_recording(name, lives);
}

/// Each buffer ends with its own thread, not with the last one that has the number.
#[test]
fn the_report_of_a_watch_of_buffers_under_one_number_is_that_of_the_recording() {
    let name = "short_lived::the_report_of_a_watch_of_buffers_under_one_number_is_that_of_the_recording";
    let lives = ShortLives { threads: 5_000, numbers: 1_800, born_each_s: 1 << 20, has_own_buffers: true };
    is_that_of_the_recording(name, lives);
}

/// A buffer was put in the place of the one that the thread before had under its number.
#[test]
fn another_buffer_under_a_number_that_is_not_forgotten_begins_anew() {
    let name = "short_lived::another_buffer_under_a_number_that_is_not_forgotten_begins_anew";
    let lives = ShortLives { threads: 4_000, numbers: 40, born_each_s: 2_000, has_own_buffers: true };
    is_forgotten(name, lives);
}

/// Prints what a command says of `f`.
pub(super) fn run_of_f(words: &[&str]) {
    let words = [&["func_latency"], words, &["-f", "f", "--format", "json"]];
    assert_eq!(run_words(words.concat()), Exit::Done);
}

fn is_that_of_the_recording(name: &str, lives: ShortLives) {
    let documents = alone(name, || {
        let directory = tempfile::tempdir().unwrap();
        let path = lives.record(directory.path());
        run_of_f(&["report", "-i", &path]);
        for (workers, interval) in [("1", "0.7"), ("2", "5"), ("2", "100")] {
            run_of_f(&["watch", "--replay", &path, "-w", workers, "-n", interval]);
        }
    });
    let Some(documents) = documents else { return };
    let is_report = |document: &&Value| document["schema"] == documents[0]["schema"];
    let reports: Vec<&Value> = documents.iter().filter(is_report).collect();
    assert_eq!(reports.len(), 4);
    assert_eq!(reports[0]["trace"]["threads"], lives.numbers + 4);
    let late = &reports[0]["loss"]["by_cause"][0]["lost_ns"];
    assert_eq!(late.as_u64(), lives.has_own_buffers.then_some(lives.threads * ATTACHED_NS));
    for watched in &reports[1..] {
        assert!(*watched == reports[0], "another report");
    }
}

/// Buffers of one number were one: with the bytes of some at the places of others.
#[test]
fn a_capture_has_the_trace_of_each_buffer_under_a_number() {
    let name = "short_lived::a_capture_has_the_trace_of_each_buffer_under_a_number";
    let lives = ShortLives { threads: 60, numbers: 10, born_each_s: 1 << 20, has_own_buffers: true };
    let documents = alone(name, || {
        let directory = tempfile::tempdir().unwrap();
        let path = lives.record(directory.path());
        run_of_f(&["report", "-i", &path]);
        let captures = directory.path().join("captures");
        let to = captures.to_str().unwrap();
        let all = ["--over", "1ns", "--before", "1s", "--after", "1s", "--keep", "1", "--captures", to];
        run_of_f(&[&["watch", "--replay", &path], &all[..]].concat());
        let capture = fs::read_dir(captures).unwrap().next().unwrap().unwrap().path();
        run_of_f(&["report", "-i", capture.to_str().unwrap()]);
    });
    let Some(documents) = documents else { return };
    let is_report = |document: &&Value| document["schema"] == documents[0]["schema"];
    let reports: Vec<&Value> = documents.iter().filter(is_report).collect();
    assert_eq!(reports.len(), 3);
    assert_eq!(reports[2]["functions"], reports[0]["functions"]);
}
