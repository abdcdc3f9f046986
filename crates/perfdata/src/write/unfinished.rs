//! Files that do not come to their end as planned: ids that come late, a kill, a full disk.

use std::io::{self, Cursor, ErrorKind, Seek, SeekFrom, Write};
use std::path::Path;

use model::{AuxOffset, AuxOwner, ClockOffsets, Cpu, CpuModel, Ns};

use super::{
    AuxChunk, ClockSample, Event, EventId, Features, IntelPtInfo, Record, SampleId, Writer, time_conv,
};
use crate::write::tests::info;
use crate::write::{Attr, PERF_COUNT_SW_DUMMY, PERF_TYPE_SOFTWARE};

const CHUNK: AuxChunk =
    AuxChunk { index: 1, owner: AuxOwner::Cpu(Cpu(1)), offset: AuxOffset(0), reference: 5 };

fn events() -> Vec<Event> {
    let event = |event_type, config, id| Event {
        name: format!("event {event_type}"),
        attr: Attr { event_type, config, ..Attr::default() },
        ids: vec![EventId { id, index: 0, cpu: -1, tid: 5 }],
    };
    vec![event(8, 0x2401, 10), event(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY, 20)]
}

/// A file with all that is known before the first byte of trace.
fn started<W: Write + Seek>(out: W) -> Writer<W> {
    let mut writer = Writer::new(out, events()).unwrap();
    let info = IntelPtInfo { per_cpu_buffers: false, ..info() };
    writer.record(&info.auxtrace_info()).unwrap();
    let features = Features {
        cpuid: "GenuineIntel,6,85,7".into(),
        command_line: vec!["func_latency".into()],
        ..Features::default()
    };
    writer.feature_records(&features).unwrap();
    let sample = ClockSample { time: Ns(1000), monotonic_ns: 400, realtime_ns: 5000 };
    writer.record(&time_conv(info.clock, Some(&sample))).unwrap();
    writer.record(&time_conv(info.clock, Some(&ClockSample { realtime_ns: 5001, ..sample }))).unwrap();
    writer
}

fn word(file: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(file[at..at + 8].try_into().unwrap())
}

#[test]
fn ids_that_come_late_are_described_at_the_end() {
    let mut writer = started(Cursor::new(vec![]));
    writer.add_ids(&[(1, EventId { id: 99, index: 2, cpu: -1, tid: 7 })]).unwrap();
    let file = writer.finish(&Features::default()).unwrap().into_inner();
    let attrs = word(&file, 24) as usize;
    assert_eq!(attrs + word(&file, 32) as usize, file.len());
    let ids = |event: usize| {
        let entry = attrs + 144 * event + 128;
        (word(&file, entry) as usize, word(&file, entry + 8))
    };
    assert_eq!((ids(0).1, ids(1)), (8, (ids(0).0 + 8, 16)));
    assert_eq!([word(&file, ids(1).0), word(&file, ids(1).0 + 8)], [20, 99]);
    assert_eq!(crate::parse(&file, Path::new("late")).unwrap().damage, None);
}

#[test]
fn a_killed_recorder_leaves_the_machine_and_half_a_payload() {
    let mut writer = started(Cursor::new(vec![]));
    writer.aux(&CHUNK, &[b"abcdefgh"]).unwrap();
    let whole = writer.position() as usize;
    writer.aux(&AuxChunk { offset: AuxOffset(8), ..CHUNK }, &[&[7; 100]]).unwrap();
    let file = writer.out.into_inner();

    let recording = crate::parse(&file[..whole + 48 + 30], Path::new("killed")).unwrap();
    assert_eq!(recording.cpu_model, Some(CpuModel { family: 6, model: 85, stepping: 7 }));
    assert_eq!(recording.command_line, ["func_latency"]);
    let offsets = ClockOffsets { monotonic_ns: Some(-600), realtime_ns: Some(4000) };
    assert_eq!(recording.clock_offsets, offsets);
    let pieces: Vec<usize> = recording.buffers[0].pieces.iter().map(|piece| piece.bytes.len()).collect();
    assert_eq!(pieces, [8, 30]);
    assert!(recording.damage.is_some());
}

/// Trace and records of one CPU were there up to the kill, and of another one up to 10 ms before: a thread
/// that had come back to that one meanwhile seemed to have slept.
#[test]
fn of_a_killed_recorder_all_cpus_end_together() {
    let mut writer = started(Cursor::new(vec![]));
    let mut put = |time: u64, cpu: u32, record: &Record<'_>| {
        let mut bytes = vec![];
        record.encode(&SampleId { time: Ns(time), cpu: Cpu(cpu), ..SampleId::default() }, &mut bytes);
        writer.record(&bytes).unwrap();
    };
    let aux = |offset| Record::Aux { offset, size: 8, flags: 0 };
    let switch = Record::Switch { out: true, preempted: false };
    for (time, cpu, record) in [
        (2_000, 0, &aux(0)),
        (2_100, 1, &aux(0)),
        (2_200, u32::MAX, &Record::Complete),
        (2_200, 1, &switch),
        (2_201, 1, &switch),
        (2_300, 1, &aux(8)),
    ] {
        put(time, cpu, record);
    }
    for (index, offset) in [(0, 0), (1, 0), (1, 8)] {
        let chunk =
            AuxChunk { index, owner: AuxOwner::Cpu(Cpu(index)), offset: AuxOffset(offset), reference: 5 };
        writer.aux(&chunk, &[b"abcdefgh"]).unwrap();
    }
    let killed = writer.out.clone().into_inner();
    let whole = writer.finish(&Features::default()).unwrap().into_inner();
    let read = |file: &[u8]| {
        let recording = crate::parse(file, Path::new("killed")).unwrap();
        let lens: Vec<u64> = recording.buffers.iter().map(model::AuxBuffer::len).collect();
        (lens, recording.time_span, recording.sideband.len(), recording.damage.map(|damage| damage.what))
    };
    assert_eq!(read(&whole), (vec![8, 16], Some((Ns(2_000), Ns(2_300))), 2, None));
    let said = "the recorder was stopped before it closed the file; read up to 2200 ns, when all buffers had been read last";
    assert_eq!(read(&killed), (vec![8, 8], Some((Ns(2_000), Ns(2_200))), 1, Some(said.to_owned())));
}

/// Its record had size 0, at which every reader stops.
#[test]
fn a_long_command_line_is_left_to_the_end() {
    let mut writer = started(Cursor::new(vec![]));
    let features = Features { command_line: vec!["x".into(); 2000], ..Features::default() };
    writer.feature_records(&features).unwrap();
    writer.aux(&CHUNK, &[b"abcdefgh"]).unwrap();
    let file = writer.finish(&features).unwrap().into_inner();
    let recording = crate::parse(&file, Path::new("long")).unwrap();
    assert_eq!((recording.damage, recording.buffers.len()), (None, 1));
    assert_eq!(recording.command_line.len(), 2000);
}

/// A disk with room for n bytes, its second field.
struct Disk<'a>(&'a mut Cursor<Vec<u8>>, u64);

impl Write for Disk<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = usize::try_from(self.1.saturating_sub(self.0.position())).unwrap();
        if room == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        self.0.write(&bytes[..room.min(bytes.len())])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Disk<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn a_full_disk_keeps_what_was_whole() {
    let size = started(Cursor::new(vec![])).position();
    let mut disk = Cursor::new(vec![]);
    let mut writer = started(Disk(&mut disk, size + 200));
    writer.aux(&CHUNK, &[b"abcdefgh"]).unwrap();
    let whole = writer.position();
    let refused = writer.aux(&AuxChunk { offset: AuxOffset(8), ..CHUNK }, &[&[7; 400]]);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(writer.position(), whole);
    let refused = writer.finish(&Features { hostname: "h".repeat(200), ..Features::default() });
    assert_eq!(refused.map(|_| ()).unwrap_err().kind(), ErrorKind::StorageFull);

    let recording = crate::parse(disk.get_ref(), Path::new("full")).unwrap();
    assert_eq!((recording.damage, recording.buffers[0].pieces.len()), (None, 1));
}
