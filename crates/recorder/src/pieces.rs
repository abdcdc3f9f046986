//! A recording in pieces, each a file that opens by itself, for a reader that follows the recorder.
//!
//! ```text
//!   0.data   head, what was there before | records, trace ...
//!   1.data   head, what was there before, what was mapped and born since | records, trace ...
//! ```
//! A reader of all pieces has what stands before the mark from earlier ones. A piece ends with a round of
//! reading ([`crate::rounds`]), so that up to its time nothing is missing.
//!
//! Trace that was not read yet is bounded: more than that is left out, and only the records are written.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Cursor};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use model::{Ns, Tid};
use perfdata::record_types;
use perfdata::write::{EventId, Features, Writer};

use crate::buffer_records::{BufferRecord, BufferRecords, TaskRecord};
use crate::ring_copies::RingCopies;

/// How a recording is cut, and where the pieces go.
#[derive(Debug)]
pub struct Pieces {
    /// Where all pieces are but the first, which has the path of the recording.
    pub directory: PathBuf,
    /// How long a piece is, about.
    pub length: Duration,
    /// Trace is left out where all pieces take more bytes than this.
    pub most_bytes: u64,
    /// Bytes of pieces that are complete and still there: their reader takes off what it has removed.
    pub waiting_bytes: Arc<AtomicU64>,
    /// Is told of each piece.
    pub reader: Sender<Piece>,
    /// By which copies of rings that are overwritten are asked for.
    pub copies: Option<Arc<RingCopies>>,
}

/// A piece that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Where in it the records begin that no piece before it has.
    pub new_from: u64,
    /// Up to when everything is there; `None`: it is the last one.
    pub until: Option<Ns>,
    /// Bytes of trace in it.
    pub trace_bytes: u64,
    /// Bytes of trace that had no room.
    pub left_out_bytes: u64,
    /// How long it took.
    pub length: Duration,
}

/// The state of a recording that is cut.
#[derive(Debug)]
pub(crate) struct Cutting {
    directory: PathBuf,
    length: Duration,
    most_bytes: u64,
    waiting_bytes: Arc<AtomicU64>,
    reader: Sender<Piece>,
    features: Features,
    /// What each new piece begins with.
    head: Writer<Cursor<Vec<u8>>>,
    /// What is known of threads that live, which follows it.
    threads: BTreeMap<Tid, LiveThread>,
    /// The ids of events of buffers that threads got in the window, by thread; they follow, too.
    ids: BTreeMap<Tid, Vec<(usize, EventId)>>,
    /// Deaths of which the time is not complete: records of the thread may still come from other rings.
    deaths: Vec<Death>,
    number: u64,
    path: PathBuf,
    new_from: u64,
    trace_bytes: u64,
    left_out_bytes: u64,
    began: Instant,
    /// It ends when everything up to then is there, however short it is.
    ends_after: Option<Ns>,
}

/// What a record tells that later pieces need, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// For ever: mappings, a program that is executed.
    Always,
    /// While the thread lives.
    OfThread(Tid, ThreadFact),
    /// The first thread of a process is known for ever, with its code.
    Death { tid: Tid, first: bool, time: Ns },
}

/// What a record tells of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadFact {
    Birth(Ns),
    Name,
    /// It is traced on a CPU.
    Start,
}

/// The records of a thread that lives.
#[derive(Debug, Default)]
struct LiveThread {
    /// `None`: it was there from the start, or its birth is yet to be read.
    birth: Option<(Ns, Vec<u8>)>,
    /// The last one.
    name: Vec<u8>,
    starts: Vec<u8>,
}

/// A thread that has died, and the record of that.
#[derive(Debug)]
struct Death {
    tid: Tid,
    first: bool,
    time: Ns,
    record: Vec<u8>,
    /// Of its events. The next thread with the number gets a buffer after this record was read.
    ids: Vec<(usize, EventId)>,
}

/// The room divided by this is left to records, which are written also where there is no room for trace.
const RECORDS_SHARE: u64 = 16;

/// Bytes of records that say where one thread is traced: those of all CPUs are fewer.
const STARTS_MAX: usize = 64 << 10;

impl LiveThread {
    fn add(&mut self, fact: ThreadFact, record: &[u8]) {
        match fact {
            ThreadFact::Birth(time) => {
                // Another thread had the number.
                if self.birth.as_ref().is_some_and(|(birth, _)| *birth < time) {
                    *self = Self::default();
                }
                self.birth = Some((time, record.to_vec()));
            }
            ThreadFact::Name => self.name = record.to_vec(),
            ThreadFact::Start if self.starts.len() < STARTS_MAX => self.starts.extend_from_slice(record),
            ThreadFact::Start => (),
        }
    }

    fn records(&self) -> [&[u8]; 3] {
        let birth = self.birth.as_ref().map_or(&[][..], |(_, record)| record);
        [birth, &self.name, &self.starts]
    }
}

impl Kept {
    fn of(record: BufferRecord<'_>) -> Option<Self> {
        let tid = |at| record.u32(at).map(|tid| Tid(tid.cast_signed()));
        match record.kind()? {
            record_types::MMAP | record_types::MMAP2 => Some(Self::Always),
            // `pid, tid`
            record_types::COMM if record.has_flag(record_types::MISC_COMM_EXEC) => Some(Self::Always),
            record_types::COMM => Some(Self::OfThread(tid(12)?, ThreadFact::Name)),
            record_types::ITRACE_START => Some(Self::OfThread(tid(12)?, ThreadFact::Start)),
            record_types::FORK => {
                let born = record.task()?;
                // A process has its code from its parent.
                let is_thread = born.pid == born.parent_pid;
                Some(if is_thread {
                    Self::OfThread(born.tid, ThreadFact::Birth(born.time))
                } else {
                    Self::Always
                })
            }
            record_types::EXIT => {
                let TaskRecord { pid, tid, time, .. } = record.task()?;
                Some(Self::Death { tid, first: tid.0 == pid.0, time })
            }
            _ => None,
        }
    }
}

impl Cutting {
    /// `head`: a file without records of the window.
    pub(crate) fn new(pieces: &Pieces, head: Writer<Cursor<Vec<u8>>>, features: Features) -> Self {
        Self {
            directory: pieces.directory.clone(),
            length: pieces.length,
            most_bytes: pieces.most_bytes,
            waiting_bytes: Arc::clone(&pieces.waiting_bytes),
            reader: pieces.reader.clone(),
            features,
            head,
            threads: BTreeMap::new(),
            ids: BTreeMap::new(),
            deaths: Vec::new(),
            number: 0,
            path: piece_path(&pieces.directory, 0),
            // A reader takes all of the first one.
            new_from: 0,
            trace_bytes: 0,
            left_out_bytes: 0,
            began: Instant::now(),
            // Requests for copies are heard by the reader, which waits for the first piece.
            ends_after: pieces.copies.as_ref().map(|_| Ns(0)),
        }
    }

    /// Keeps of whole records those that later pieces begin with.
    pub(crate) fn keep(&mut self, records: &[u8]) -> io::Result<()> {
        for record in BufferRecords::of(records) {
            let bytes = record.bytes();
            match Kept::of(record) {
                Some(Kept::Always) => self.head.record(bytes)?,
                Some(Kept::OfThread(tid, fact)) => self.threads.entry(tid).or_default().add(fact, bytes),
                Some(Kept::Death { tid, first, time }) => {
                    let ids = self.ids.remove(&tid).unwrap_or_default();
                    self.deaths.push(Death { tid, first, time, record: bytes.to_vec(), ids });
                }
                None => (),
            }
        }
        Ok(())
    }

    /// Keeps the ids of the events of a thread's buffer while the thread lives.
    pub(crate) fn add_ids(&mut self, tid: Tid, ids: &[(usize, EventId)]) {
        self.ids.insert(tid, ids.to_vec());
    }

    /// There is room for so much trace in the piece, which has `piece_bytes`.
    pub(crate) fn takes(&mut self, bytes: u64, piece_bytes: u64) -> bool {
        let all = self.waiting_bytes.load(Ordering::Relaxed).saturating_add(piece_bytes);
        let takes = all.saturating_add(bytes) <= self.most_bytes - self.most_bytes / RECORDS_SHARE;
        *(if takes { &mut self.trace_bytes } else { &mut self.left_out_bytes }) += bytes;
        takes
    }

    /// The piece ends when everything up to `time` is there.
    pub(crate) fn end_after(&mut self, time: Ns) {
        self.ends_after = self.ends_after.max(Some(time));
    }

    /// The piece is as long as it should be, where everything is there up to `until`. The first one has its
    /// name when the window begins.
    pub(crate) fn is_due(&self, until: Ns) -> bool {
        let is_asked = self.ends_after.is_some_and(|time| time <= until);
        (is_asked || self.began.elapsed() >= self.length) && self.path.exists()
    }

    /// Completes the piece in `writer`, and begins the next one.
    pub(crate) fn cut(&mut self, writer: &mut Writer<File>, until: Ns) -> io::Result<()> {
        let number = self.number + 1;
        let path = piece_path(&self.directory, number);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        self.bury(until)?;
        let mut next = self.head.copy_to(file, self.head.get_ref().get_ref())?;
        self.threads.values().flat_map(LiveThread::records).try_for_each(|records| next.record(records))?;
        next.add_ids(&self.known_ids())?;
        let new_from = next.position();
        let bytes = std::mem::replace(writer, next).finish(&self.features)?.metadata()?.len();
        let path = std::mem::replace(&mut self.path, path);
        self.tell(path, bytes, Some(until))?;
        (self.number, self.new_from) = (number, new_from);
        (self.trace_bytes, self.left_out_bytes, self.began) = (0, 0, Instant::now());
        self.ends_after = self.ends_after.filter(|time| *time > until);
        Ok(())
    }

    /// The ids of events of which records may still come.
    fn known_ids(&self) -> Vec<(usize, EventId)> {
        self.ids.values().chain(self.deaths.iter().map(|death| &death.ids)).flatten().copied().collect()
    }

    /// Forgets threads that had died by then: everything up to it was read.
    fn bury(&mut self, until: Ns) -> io::Result<()> {
        let (dead, later): (Vec<Death>, _) =
            std::mem::take(&mut self.deaths).into_iter().partition(|death| death.time <= until);
        self.deaths = later;
        for Death { tid, first, time, record, .. } in dead {
            let birth =
                self.threads.get(&tid).and_then(|thread| thread.birth.as_ref()).map(|(birth, _)| *birth);
            if birth.is_none_or(|birth| birth <= time) {
                self.threads.remove(&tid);
            }
            // What the head has of one that was there from the start stays there.
            if first || birth.is_none() {
                self.head.record(&record)?;
            }
        }
        Ok(())
    }

    /// The last piece is complete.
    pub(crate) fn finish(self, bytes: u64) {
        // A reader that has gone has said why.
        let _ = self.tell(self.path.clone(), bytes, None);
    }

    fn tell(&self, path: PathBuf, bytes: u64, until: Option<Ns>) -> io::Result<()> {
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let piece = Piece {
            path,
            bytes,
            new_from: self.new_from,
            until,
            trace_bytes: self.trace_bytes,
            left_out_bytes: self.left_out_bytes,
            length: self.began.elapsed(),
        };
        let has_gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "no reader follows the recording");
        self.reader.send(piece).map_err(has_gone)
    }
}

/// The path of a piece.
pub(crate) fn piece_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number}.data"))
}

#[cfg(test)]
mod tests {
    use model::{Pid, Tid};
    use perfdata::write::{Record, SampleId};

    use super::*;

    #[test]
    fn threads_are_kept_as_long_as_they_live_and_what_code_needs_for_ever() {
        let id = SampleId { time: Ns(50), ..SampleId::default() };
        let kept = |record: &Record<'_>| {
            let mut bytes = Vec::new();
            record.encode(&id, &mut bytes);
            BufferRecords::of(&bytes).next().and_then(Kept::of)
        };
        let (pid, tid) = (Pid(7), Tid(9));
        let fork = |parent_pid| Record::Fork { pid, tid, parent_pid, parent_tid: Tid(7) };
        let exit = |tid| Record::Exit { pid, tid, parent_pid: pid, parent_tid: Tid(7) };
        let comm = |exec| Record::Comm { pid, tid, name: "x", exec };
        let switch = Record::Switch { out: true, preempted: false };
        let birth = Kept::OfThread(Tid(9), ThreadFact::Birth(Ns(50)));
        assert_eq!((kept(&fork(pid)), kept(&fork(Pid(6)))), (Some(birth), Some(Kept::Always)));
        let name = Kept::OfThread(Tid(9), ThreadFact::Name);
        assert_eq!((kept(&comm(false)), kept(&comm(true))), (Some(name), Some(Kept::Always)));
        let start = Kept::OfThread(Tid(9), ThreadFact::Start);
        assert_eq!(kept(&Record::ItraceStart { pid, tid }), Some(start));
        let death = |tid, first| Some(Kept::Death { tid: Tid(tid), first, time: Ns(50) });
        assert_eq!((kept(&exit(tid)), kept(&exit(Tid(7)))), (death(9, false), death(7, true)));
        assert_eq!(kept(&switch), None);
        let of_no_thread = [3, 0, 0, 0, 0, 0, 12, 0, 9, 9, 9, 9];
        assert_eq!(BufferRecords::of(&of_no_thread).next().and_then(Kept::of), None, "a name of no thread");
    }

    fn cutting(directory: &Path) -> Cutting {
        let (reader, _pieces) = std::sync::mpsc::channel();
        let pieces = Pieces {
            directory: directory.to_path_buf(),
            length: Duration::ZERO,
            most_bytes: 1 << 20,
            waiting_bytes: Arc::default(),
            reader,
            copies: None,
        };
        let head = Writer::new(Cursor::new(Vec::new()), Vec::new()).unwrap();
        Cutting::new(&pieces, head, Features::default())
    }

    /// Those of all threads that had ever lived were in each piece.
    #[test]
    fn ids_are_known_until_all_up_to_the_threads_death_was_read() {
        let directory = tempfile::tempdir().unwrap();
        let mut cutting = cutting(directory.path());
        let tid = Tid(9);
        let id = |id| [(0, EventId { id, index: 1, cpu: -1, tid: tid.0 })];
        let dies = |cutting: &mut Cutting, time| {
            let mut bytes = Vec::new();
            let exit = Record::Exit { pid: Pid(7), tid, parent_pid: Pid(7), parent_tid: Tid(7) };
            exit.encode(&SampleId { time: Ns(time), ..SampleId::default() }, &mut bytes);
            cutting.keep(&bytes).unwrap();
        };
        let ids_after = |cutting: &mut Cutting, until| {
            cutting.bury(Ns(until)).unwrap();
            cutting.known_ids().iter().map(|(_, id)| id.id).collect::<Vec<_>>()
        };
        cutting.add_ids(tid, &id(10));
        dies(&mut cutting, 40);
        cutting.add_ids(tid, &id(11));
        assert_eq!([39, 40].map(|until| ids_after(&mut cutting, until)), [vec![11, 10], vec![11]]);
        dies(&mut cutting, 70);
        assert_eq!([69, 70].map(|until| ids_after(&mut cutting, until)), [vec![11], vec![]]);
    }

    /// Rings are read one after the other.
    #[test]
    fn a_thread_is_forgotten_when_all_up_to_its_death_was_read() {
        let directory = tempfile::tempdir().unwrap();
        let mut cutting = cutting(directory.path());
        let mut read = |time, record: &Record<'_>| {
            let mut bytes = Vec::new();
            record.encode(&SampleId { time: Ns(time), ..SampleId::default() }, &mut bytes);
            cutting.keep(&bytes).unwrap();
        };
        let pid = Pid(7);
        let born = |tid| Record::Fork { pid, tid: Tid(tid), parent_pid: pid, parent_tid: Tid(7) };
        let died = |tid| Record::Exit { pid, tid: Tid(tid), parent_pid: pid, parent_tid: Tid(7) };
        read(40, &died(9));
        read(20, &born(9));
        read(30, &Record::ItraceStart { pid, tid: Tid(9) });
        read(60, &born(8));
        read(70, &died(8));
        // Its number is another one's.
        read(80, &born(8));
        read(65, &died(5));
        let known = |cutting: &Cutting| cutting.threads.keys().map(|tid| tid.0).collect::<Vec<_>>();
        let head = cutting.head.get_ref().get_ref().len();
        cutting.bury(Ns(39)).unwrap();
        assert_eq!(known(&cutting), [8, 9]);
        cutting.bury(Ns(100)).unwrap();
        assert_eq!((known(&cutting), cutting.deaths.len()), (vec![8], 0));
        assert_eq!(cutting.threads[&Tid(8)].birth.as_ref().unwrap().0, Ns(80));
        assert!(cutting.head.get_ref().get_ref().len() > head, "5 was there from the start");
    }
}
