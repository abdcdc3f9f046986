//! Excerpts of a recording in pieces, as the spool of `watch` has them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use model::{
    AuxOffset, AuxOwner, AuxRecord, Cpu, FileOffset, Ns, Pid, Recording, Schedule, Sideband, SidebandRecord,
    Tid, TscClock,
};
use perfdata::write::{
    Attr, AuxChunk, Event, EventId, Features, FileIdentity, IntelPtInfo, Record, SampleId, Writer, id_index,
};
use perfdata::{Excerpt, File, Source, parse, write_excerpt};

const CPU: Cpu = Cpu(1);
const OWNER: AuxOwner = AuxOwner::Cpu(CPU);

fn events() -> Vec<Event> {
    let id = |id| vec![EventId { id, index: 1, cpu: 1, tid: -1 }];
    let dummy = Attr { event_type: 1, config: 9, flags: Attr::MMAP2, aux_watermark: 0 };
    vec![
        Event {
            name: "intel_pt//u".into(),
            attr: Attr { event_type: 8, config: 0x2401, ..Attr::default() },
            ids: id(10),
        },
        Event { name: "dummy:u".into(), attr: dummy, ids: id(20) },
    ]
}

fn info() -> IntelPtInfo {
    IntelPtInfo {
        pmu_type: 8,
        clock: TscClock { shift: 31, mult: 7, zero: 9 },
        have_sched_switch: 2,
        snapshots: false,
        per_cpu_buffers: true,
        tsc_ctc_ratio: (250, 2),
        max_nonturbo_ratio: 30,
        filter: String::new(),
    }
}

/// A piece in the making.
struct Piece {
    writer: Writer<Cursor<Vec<u8>>>,
    new_from: u64,
}

impl Piece {
    fn new() -> Self {
        Self::of(&info())
    }

    fn of(info: &IntelPtInfo) -> Self {
        Self::with(info, events())
    }

    fn with(info: &IntelPtInfo, events: Vec<Event>) -> Self {
        let ids = id_index(&events);
        let mut writer = Writer::new(Cursor::new(Vec::new()), events).unwrap();
        writer.record(&info.auxtrace_info()).unwrap();
        writer.record(&info.time_conv()).unwrap();
        ids.iter().for_each(|record| writer.record(record).unwrap());
        Self { writer, new_from: 0 }
    }

    fn at(&mut self, time: u64, tid: i32, record: &Record<'_>) {
        self.on(CPU, time, tid, record);
    }

    fn on(&mut self, cpu: Cpu, time: u64, tid: i32, record: &Record<'_>) {
        let id = if matches!(record, Record::Aux { .. }) { 10 } else { 20 };
        let said = SampleId { pid: Pid(5), tid: Tid(tid), time: Ns(time), cpu, id };
        let mut bytes = Vec::new();
        record.encode(&said, &mut bytes);
        self.writer.record(&bytes).unwrap();
    }

    /// What was there before the time of both pieces.
    fn known(&mut self) {
        self.maps(10, "/program");
        self.at(11, 5, &Record::Comm { pid: Pid(5), tid: Tid(5), name: "program", exec: true });
        for tid in [5, 6, 7] {
            self.at(20, tid, &Record::ItraceStart { pid: Pid(5), tid: Tid(tid) });
        }
    }

    fn maps(&mut self, time: u64, path: &str) {
        let identity = FileIdentity::Inode { major: 1, minor: 2, inode: 3, generation: 0 };
        let (start, len, file_offset) = (0x1000 * time, 0x1000, FileOffset(0));
        let (pid, tid) = (Pid(5), Tid(5));
        self.at(
            time,
            5,
            &Record::Mmap2 { pid, tid, start, len, file_offset, identity, protection: 5, flags: 2, path },
        );
    }

    fn switch(&mut self, time: u64, tid: i32, out: bool) {
        self.at(time, tid, &Record::Switch { out, preempted: false });
    }

    /// Trace, and what the kernel says of it.
    fn trace(&mut self, time: u64, offset: u64, bytes: &[u8], flags: u64) {
        let chunk = AuxChunk { index: 1, owner: OWNER, offset: AuxOffset(offset), reference: 0 };
        self.writer.aux(&chunk, &[bytes]).unwrap();
        self.at(time, 5, &Record::Aux { offset, size: bytes.len() as u64, flags });
    }

    fn finish(self, path: &Path) -> u64 {
        let features = Features { command_line: vec!["watch".into()], ..Features::default() };
        std::fs::write(path, self.writer.finish(&features).unwrap().into_inner()).unwrap();
        self.new_from
    }
}

/// Times of what is said of switches, in order.
fn switches(recording: &Recording<'_>) -> Vec<(u64, i32, bool)> {
    let of = |record: &SidebandRecord| match record.body {
        Sideband::Switch { out, .. } => Some((record.time?.0, record.tid?.0, out)),
        _ => None,
    };
    recording.sideband.iter().filter_map(of).collect()
}

#[test]
fn an_excerpt_of_two_pieces_has_their_trace_and_what_was_before() {
    let directory = tempfile::tempdir().unwrap();
    let paths = [directory.path().join("0.data"), directory.path().join("1.data")];
    let mut first = Piece::new();
    first.known();
    first.switch(30, 6, false);
    first.switch(40, 6, true);
    first.switch(50, 5, false);
    first.at(55, 7, &Record::Exit { pid: Pid(5), tid: Tid(7), parent_pid: Pid(5), parent_tid: Tid(5) });
    first.trace(61, 0, &(0..16).collect::<Vec<u8>>(), 0);
    let mut second = Piece::new();
    second.known();
    second.new_from = second.writer.position();
    second.maps(100, "/library");
    second.trace(112, 16, &[16; 8], 0);
    second.switch(120, 5, true);
    second.switch(130, 6, false);
    second.trace(150, 24, &[24; 8], AuxRecord::TRUNCATED);
    second.switch(160, 6, true);
    let new_from = [first, second].into_iter().zip(&paths).map(|(piece, path)| piece.finish(path));
    let new_from: Vec<u64> = new_from.collect();

    let files = paths.map(|path| File::open(path).unwrap());
    let sources: Vec<Source<'_>> =
        files.iter().zip(new_from).map(|(file, new_from)| Source { file, new_from }).collect();
    let trace = BTreeMap::from([(1, AuxOffset(8)..AuxOffset(28))]);
    let mut out = Cursor::new(Vec::new());
    write_excerpt(
        &sources,
        &Excerpt { from: Ns(105), to: Ns(140), trace, is_of_copies: false, untold: Vec::new() },
        &mut out,
    )
    .unwrap();
    let bytes = out.into_inner();
    let recording = parse(&bytes, Path::new("excerpt")).unwrap();

    assert_eq!(recording.damage, None);
    assert_eq!(
        (recording.command_line.clone(), recording.pt.tsc_ctc_ratio),
        (vec!["watch".into()], (250, 2))
    );
    assert_eq!(recording.time_span, Some((Ns(105), Ns(140))), "what is older is there from the start");
    let maps = recording.sideband.iter().filter_map(|record| match &record.body {
        Sideband::Mmap(mmap) => Some((record.time, mmap.start.0)),
        _ => None,
    });
    assert_eq!(maps.collect::<Vec<_>>(), [(None, 0xa000), (None, 0x64000)], "each once");
    let traced = recording.sideband.iter().filter_map(|record| match record.body {
        Sideband::ItraceStart { tid, .. } => Some((record.time, tid.0)),
        _ => None,
    });
    let start = Some(Ns(105));
    assert_eq!(traced.collect::<Vec<_>>(), [(start, 5), (start, 6)], "7 has died");
    let expected = [(105, 0, true), (105, 6, true), (105, 5, false), (120, 5, true), (130, 6, false)];
    assert_eq!(switches(&recording), expected);
    let schedule = Schedule::new(&recording.sideband);
    let first = schedule.on_cpu(CPU).first().map(|run| (run.tid.0, run.from.0, run.to.0));
    assert_eq!(first, Some((0, 0, 105)), "no record says which thread the trace from before is of");

    let [buffer] = &recording.buffers[..] else { panic!("{} buffers", recording.buffers.len()) };
    let pieces: Vec<(u64, &[u8])> = buffer.pieces.iter().map(|piece| (piece.offset.0, piece.bytes)).collect();
    let padded = [24, 24, 24, 24, 0, 0, 0, 0];
    assert_eq!(pieces, [(8, &[8, 9, 10, 11, 12, 13, 14, 15][..]), (16, &[16; 8]), (24, &padded)]);
    let said: Vec<_> = buffer.records.iter().map(|said| (said.offset.0, said.size, said.flags)).collect();
    assert_eq!(said, [(8, 8, 0), (16, 8, 0), (24, 4, 0)], "what was lost after it is not of the excerpt");
}

/// Threads that died in one piece are not known in the next one.
#[test]
fn an_excerpt_has_the_ids_of_all_pieces() {
    let directory = tempfile::tempdir().unwrap();
    let file = |number: u64| {
        let path = directory.path().join(format!("{number}.data"));
        let mut piece = Piece::new();
        piece.writer.add_ids(&[(1, EventId { id: 30 + number, index: 2, cpu: -1, tid: 9 })]).unwrap();
        piece.finish(&path);
        File::open(path).unwrap()
    };
    let files = [file(0), file(1)];
    let sources = files.iter().map(|file| Source { file, new_from: 0 }).collect::<Vec<_>>();
    let trace = BTreeMap::new();
    let excerpt = Excerpt { from: Ns(0), to: Ns(9), trace, is_of_copies: false, untold: Vec::new() };
    let mut out = Cursor::new(Vec::new());
    write_excerpt(&sources, &excerpt, &mut out).unwrap();
    let bytes = out.into_inner();
    let word = |at: u64| u64::from_le_bytes(bytes[at as usize..][..8].try_into().unwrap());
    // Each attr ends with the section of its ids: offset, size.
    let (attr_size, attrs) = (word(16), word(24));
    let ids = |event: u64| {
        let section = attrs + attr_size * (event + 1) - 16;
        (0..word(section + 8) / 8).map(|id| word(word(section) + 8 * id)).collect::<Vec<_>>()
    };
    assert_eq!([ids(0), ids(1)], [vec![10], vec![20, 30, 31]]);
}

/// A payload of 17 bytes, which is padded, is cut in the middle of a word, and another one follows.
#[test]
fn no_payload_hides_a_part_of_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.data");
    let mut piece = Piece::new();
    piece.known();
    let new_from = piece.writer.position();
    piece.trace(110, 0, &(0..17).chain([0; 7]).collect::<Vec<u8>>(), 0);
    piece.trace(120, 17, &[17; 8], 0);
    piece.finish(&path);
    let file = File::open(&path).unwrap();
    let trace = BTreeMap::from([(1, AuxOffset(9)..AuxOffset(25))]);
    let excerpt = Excerpt { from: Ns(105), to: Ns(140), trace, is_of_copies: false, untold: Vec::new() };
    let mut out = Cursor::new(Vec::new());
    write_excerpt(&[Source { file: &file, new_from }], &excerpt, &mut out).unwrap();
    let bytes = out.into_inner();
    let recording = parse(&bytes, Path::new("excerpt")).unwrap();
    assert_eq!(recording.damage, None);
    let [buffer] = &recording.buffers[..] else { panic!("{} buffers", recording.buffers.len()) };
    let pieces: Vec<(u64, &[u8])> = buffer.pieces.iter().map(|piece| (piece.offset.0, piece.bytes)).collect();
    assert_eq!(pieces, [(8, &[8, 9, 10, 11, 12, 13, 14, 15, 16][..]), (17, &[17; 8])]);
}

/// Tracing of thread 5 started on CPU 1, and once more when it came to CPU 0; 6 came to CPU 1 after it.  perf
/// reads one ring after the other, so that what is later in a file may be earlier.
#[test]
fn a_thread_runs_only_where_it_was_last() {
    let (here, there) = (CPU, Cpu(0));
    let start = |tid| Record::ItraceStart { pid: Pid(5), tid: Tid(tid) };
    let switch = |out| Record::Switch { out, preempted: false };
    let born = Record::Fork { pid: Pid(5), tid: Tid(5), parent_pid: Pid(5), parent_tid: Tid(1) };
    let by_time = [
        (here, 15, 1, born),
        (here, 20, 5, start(5)),
        (here, 30, 5, switch(true)),
        (there, 40, 5, start(5)),
        (there, 41, 5, switch(false)),
        (here, 120, 6, switch(false)),
        (here, 130, 6, switch(true)),
        (there, 140, 5, switch(true)),
    ];
    let mut by_ring: Vec<_> = by_time.iter().collect();
    by_ring.sort_by_key(|(cpu, ..)| *cpu);
    where_threads_ran(&by_time.iter().collect::<Vec<_>>());
    where_threads_ran(&by_ring);
}

fn where_threads_ran(records: &[&(Cpu, u64, i32, Record<'_>)]) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.data");
    let (here, there) = (CPU, Cpu(0));
    let mut piece = Piece::new();
    piece.maps(10, "/program");
    for (cpu, time, tid, record) in records {
        piece.on(*cpu, *time, *tid, record);
    }
    let new_from = piece.finish(&path);

    let file = File::open(&path).unwrap();
    let mut out = Cursor::new(Vec::new());
    let excerpt = Excerpt {
        from: Ns(105),
        to: Ns(150),
        trace: BTreeMap::new(),
        is_of_copies: false,
        untold: Vec::new(),
    };
    write_excerpt(&[Source { file: &file, new_from }], &excerpt, &mut out).unwrap();
    let bytes = out.into_inner();
    let recording = parse(&bytes, Path::new("excerpt")).unwrap();

    let schedule = Schedule::new(&recording.sideband);
    let ran = |cpu| -> Vec<(i32, u64, u64, bool)> {
        schedule.on_cpu(cpu).iter().map(|run| (run.tid.0, run.from.0, run.to.0, run.doubtful)).collect()
    };
    assert_eq!(ran(there), [(5, 105, 105, false), (5, 105, 140, false)]);
    let expected = [(0, 0, 105, false), (6, 120, 130, false)];
    assert_eq!(ran(here), expected, "5 is not said to be there, and the CPU's old trace is not its own");
}

/// Threads have number 6 one after the other, each with a buffer of its own. The first has died before the
/// excerpt, which has a part of the trace of the others.
#[test]
fn each_buffer_under_a_number_has_its_own_trace() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.data");
    let (pid, tid) = (Pid(5), Tid(6));
    let mut events = events();
    let id = |index: u32| EventId { id: 30 + u64::from(index), index, cpu: -1, tid: tid.0 };
    events[0].ids = (0..3).map(id).collect();
    let mut piece = Piece::with(&IntelPtInfo { per_cpu_buffers: false, ..info() }, events);
    for index in 0..3 {
        let born = 50 * (1 + u64::from(index));
        piece.at(born, 5, &Record::Fork { pid, tid, parent_pid: pid, parent_tid: Tid(5) });
        let chunk = AuxChunk { index, owner: AuxOwner::Thread(tid), offset: AuxOffset(0), reference: 0 };
        piece.writer.aux(&chunk, &[&[index as u8; 32]]).unwrap();
        let said = SampleId { pid, tid, time: Ns(born + 40), cpu: CPU, id: id(index).id };
        let mut record = Vec::new();
        Record::Aux { offset: 0, size: 32, flags: 0 }.encode(&said, &mut record);
        piece.writer.record(&record).unwrap();
        piece.at(born + 40, 6, &Record::Exit { pid, tid, parent_pid: pid, parent_tid: Tid(5) });
    }
    let new_from = piece.finish(&path);
    let file = File::open(&path).unwrap();
    let part = |from, to| AuxOffset(from)..AuxOffset(to);
    let trace = BTreeMap::from([(0, part(0, 32)), (1, part(8, 32)), (2, part(0, 16))]);
    let excerpt = Excerpt { from: Ns(105), to: Ns(190), trace, is_of_copies: false, untold: Vec::new() };
    let mut out = Cursor::new(Vec::new());
    write_excerpt(&[Source { file: &file, new_from }], &excerpt, &mut out).unwrap();
    let bytes = out.into_inner();
    let recording = parse(&bytes, Path::new("excerpt")).unwrap();
    assert_eq!(recording.damage, None);
    let buffers = recording.buffers.iter().map(|buffer| {
        let pieces: Vec<_> = buffer.pieces.iter().map(|piece| (piece.offset.0, piece.bytes)).collect();
        let said: Vec<_> = buffer.records.iter().map(|said| (said.offset.0, said.size)).collect();
        (buffer.index, pieces, said)
    });
    let (second, third) = (&[1; 24][..], &[2; 16][..]);
    let expected = [(1, vec![(8, second)], vec![(8, 24)]), (2, vec![(0, third)], vec![(0, 16)])];
    assert_eq!(buffers.collect::<Vec<_>>(), expected);
}

/// A ring of 32 bytes that is overwritten, and copied twice: the kernel says where in the ring its head is.
#[test]
fn a_copy_of_a_ring_is_alone_in_its_excerpt() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.data");
    let mut piece = Piece::of(&IntelPtInfo { snapshots: true, ..info() });
    let mut copy = |time, (offset, head), bytes: &[u8]| {
        let chunk = AuxChunk { index: 1, owner: OWNER, offset: AuxOffset(offset), reference: 0 };
        piece.at(time, 5, &Record::Aux { offset: head, size: 32, flags: AuxRecord::OVERWRITE });
        piece.writer.aux(&chunk, &[bytes]).unwrap();
    };
    copy(100, (0, 16), &[1; 16]);
    copy(200, (48, 16), &[2; 32]);
    let new_from = piece.finish(&path);
    let file = File::open(&path).unwrap();
    let mut untold = Vec::new();
    let identity = FileIdentity::Inode { major: 0, minor: 0, inode: 0, generation: 0 };
    let page = Record::Mmap2 {
        pid: Pid(5),
        tid: Tid(5),
        start: 0x9000,
        len: 0x1000,
        file_offset: FileOffset(0),
        identity,
        protection: 4,
        flags: 2,
        path: "[uprobes]",
    };
    page.encode(&SampleId { pid: Pid(5), tid: Tid(5), ..SampleId::default() }, &mut untold);
    let copied = |range: std::ops::Range<u64>, to| {
        let trace = BTreeMap::from([(1, AuxOffset(range.start)..AuxOffset(range.end))]);
        let excerpt = Excerpt { from: Ns(50), to: Ns(to), trace, is_of_copies: true, untold: untold.clone() };
        let mut out = Cursor::new(Vec::new());
        write_excerpt(&[Source { file: &file, new_from }], &excerpt, &mut out).unwrap();
        let bytes = out.into_inner();
        let recording = parse(&bytes, Path::new("excerpt")).unwrap();
        assert!(recording.pt.snapshot);
        let [buffer] = &recording.buffers[..] else { panic!("{} buffers", recording.buffers.len()) };
        let pieces = buffer.pieces.iter().map(|piece| piece.bytes.to_vec()).collect::<Vec<_>>();
        let is_page = |record: &&SidebandRecord| match &record.body {
            Sideband::Mmap(map) => map.path == "[uprobes]" && record.time.is_none_or(|time| time == Ns(0)),
            _ => false,
        };
        assert_eq!(recording.sideband.iter().filter(is_page).count(), 1, "what the kernel does not tell");
        // No flag: the ring had nothing more when tracing stopped.
        (pieces, buffer.records.last().map(|said| said.flags))
    };
    assert_eq!(copied(0..16, 150), (vec![vec![1; 16]], Some(0)));
    assert_eq!(copied(48..80, 250), (vec![vec![2; 32]], Some(0)));
}
