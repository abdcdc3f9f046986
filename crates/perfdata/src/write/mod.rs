//! Writes perf.data files that perf and this crate read.
//!
//! [`Writer`] streams: each record goes to the file at once, so that a recording of any size needs no memory
//! and one that is cut off still opens.  Records come as bytes: the kernel's own, passed through, or made
//! from values by [`Record::encode`] and the functions of [`IntelPtInfo`].
//!
//! ```text
//! Writer::new            header, ids, attrs
//!   .record(..)          AUXTRACE_INFO first, then sideband
//!   .aux(..)             AUXTRACE and its payload
//!   .finished_round()    no later record is older than those before the previous round's end
//!   .finish(..)          features; sizes go into the header
//! ```
//!
//! Until then the header says that there are 0 bytes of records, which a reader takes for "read to the end".

mod auxtrace;
mod event;
mod feature;
mod le;
mod record;
mod sched;
#[cfg(test)]
mod unfinished;

use std::io::{self, ErrorKind, Seek, SeekFrom, Write};

pub use auxtrace::{AuxChunk, ClockSample, IntelPtInfo, id_index, pt_config, time_conv};
pub use event::{
    ATTR_SIZE, Attr, Event, EventId, PERF_COUNT_SW_DUMMY, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT,
};
pub use feature::Features;
pub use record::{FileIdentity, Record, SampleId};
pub use sched::{AboutSamples, encode_sched_event, sched_descriptions, sched_events, tracing_data};

use crate::record_types::{FINISHED_ROUND, HEADER_FEATURE, HEADER_SIZE};
use auxtrace::AUXTRACE_SIZE;
use feature::AuxtraceIndex;
use le::Append;
use record::user_record;

const MAGIC: &[u8; 8] = b"PERFILE2";
const FILE_HEADER_SIZE: u64 = 104;
/// An attr and the section (offset, size) of its ids.
const ATTR_ENTRY_SIZE: u64 = ATTR_SIZE as u64 + 16;

/// A perf.data file in the making.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    events: Vec<Event>,
    layout: HeaderLayout,
    /// Ids came after the header was written.
    ids_added: bool,
    position: u64,
    auxtrace: AuxtraceIndex,
}

/// What the header says of where things are.
#[derive(Clone, Copy, Debug)]
struct HeaderLayout {
    attrs_start: u64,
    attrs_size: u64,
    data_start: u64,
}

impl<W: Write + Seek> Writer<W> {
    /// Starts a file with these events.  `out` must be at its start and should be buffered.
    ///
    /// # Errors
    /// What `out` says.
    pub fn new(mut out: W, events: Vec<Event>) -> io::Result<Self> {
        let (described, attrs_start) = describe(&events, FILE_HEADER_SIZE);
        let data_start = FILE_HEADER_SIZE + described.len() as u64;
        let layout = HeaderLayout { attrs_start, attrs_size: data_start - attrs_start, data_start };
        let mut head = file_header(layout, 0, 0);
        head.extend_from_slice(&described);
        out.write_all(&head)?;
        Ok(Self { out, events, layout, ids_added: false, position: data_start, auxtrace: vec![] })
    }

    /// Starts another file with what this one, `bytes`, has so far.
    ///
    /// # Errors
    /// What `out` says.
    pub fn copy_to<V: Write + Seek>(&self, mut out: V, bytes: &[u8]) -> io::Result<Writer<V>> {
        out.write_all(bytes)?;
        Ok(Writer {
            out,
            events: self.events.clone(),
            layout: self.layout,
            ids_added: self.ids_added,
            position: self.position,
            auxtrace: self.auxtrace.clone(),
        })
    }

    /// What the file is written to.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// Bytes in the file so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Adds one or more whole records.
    ///
    /// # Errors
    /// What the file says; `InvalidInput` if `records` is not a sequence of whole records.
    pub fn record(&mut self, records: &[u8]) -> io::Result<()> {
        let mut rest = records;
        while !rest.is_empty() {
            let size =
                rest.get(6..HEADER_SIZE).map_or(0, |size| usize::from(size[0]) | usize::from(size[1]) << 8);
            rest = rest.get(size..).filter(|_| size >= HEADER_SIZE).ok_or_else(|| {
                io::Error::new(ErrorKind::InvalidInput, format!("not a whole record: {size} bytes"))
            })?;
        }
        self.put(records)
    }

    /// Adds a stretch of trace, in one piece or more (a ring buffer wraps).
    ///
    /// # Errors
    /// What the file says.
    pub fn aux(&mut self, chunk: &AuxChunk, payload: &[&[u8]]) -> io::Result<()> {
        let size = payload.iter().map(|piece| piece.len() as u64).sum();
        let start = self.position;
        let mut pieces = payload.iter();
        let written =
            self.put(&chunk.encode(size)).and_then(|()| pieces.try_for_each(|piece| self.put(piece)));
        match written {
            Ok(()) => self.auxtrace.push((start, AUXTRACE_SIZE)),
            // Half a payload is none: [`Self::finish`] ends the records where the last whole one ends.
            Err(_) => self.position = start,
        }
        written
    }

    /// Tells a reader that sorts by time what it may let go: all that is older than the newest record before
    /// the previous such mark.
    ///
    /// # Errors
    /// What the file says.
    pub fn finished_round(&mut self) -> io::Result<()> {
        self.put(&user_record(FINISHED_ROUND, &[]))
    }

    /// Further file descriptors, each with the number of its event. [`Self::finish`] describes the events
    /// anew, with all ids; a file that is cut before has only ID_INDEX to know them by.
    ///
    /// # Errors
    /// What the file says.
    pub fn add_ids(&mut self, ids: &[(usize, EventId)]) -> io::Result<()> {
        for (event, id) in ids {
            if let Some(event) = self.events.get_mut(*event) {
                event.ids.push(*id);
                self.ids_added = true;
            }
        }
        let ids: Vec<EventId> = ids.iter().map(|(_, id)| *id).collect();
        auxtrace::index_of(&ids).iter().try_for_each(|record| self.record(record))
    }

    /// The features as records: in the data, so that a file that never comes to [`Self::finish`] has them,
    /// too. One that is too long for a record (a command line of 64 KB) is left to that.
    ///
    /// # Errors
    /// What the file says.
    pub fn feature_records(&mut self, features: &Features) -> io::Result<()> {
        for (number, section) in features.about_the_machine() {
            let mut body = vec![];
            body.u64(u64::from(number));
            body.extend_from_slice(&section);
            if HEADER_SIZE + body.len() <= usize::from(u16::MAX) {
                self.put(&user_record(HEADER_FEATURE, &body))?;
            }
        }
        Ok(())
    }

    /// Writes the features and completes the header.  Returns the whole file.
    ///
    /// # Errors
    /// What the file says; its records can be read all the same.
    pub fn finish(mut self, features: &Features) -> io::Result<W> {
        let data_end = self.position;
        // What is whole so far stays whole if there is no room for more.
        self.write_header(self.layout, data_end, 0)?;
        // A write that failed half-way may have moved on.
        self.out.seek(SeekFrom::Start(data_end))?;
        let sections = features.sections(&self.events, &self.auxtrace);
        let mut table = vec![];
        let mut offset = data_end + 16 * sections.len() as u64;
        for (_, section) in &sections {
            table.u64(offset);
            table.u64(section.len() as u64);
            offset += section.len() as u64;
        }
        self.put(&table)?;
        for (_, section) in &sections {
            self.put(section)?;
        }
        if self.ids_added {
            let (described, attrs_start) = describe(&self.events, self.position);
            let attrs_size = self.position + described.len() as u64 - attrs_start;
            self.put(&described)?;
            self.layout = HeaderLayout { attrs_start, attrs_size, ..self.layout };
        }
        let bits = sections.iter().fold(0, |bits, (feature, _)| bits | 1 << feature);
        self.write_header(self.layout, data_end, bits)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_header(&mut self, layout: HeaderLayout, data_end: u64, features: u64) -> io::Result<()> {
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&file_header(layout, data_end - layout.data_start, features))
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.position += bytes.len() as u64;
        Ok(())
    }
}

/// The ids of the events and then their attrs, as they stand from `start` on; and where the attrs start.
fn describe(events: &[Event], start: u64) -> (Vec<u8>, u64) {
    let mut out = vec![];
    for id in events.iter().flat_map(|event| &event.ids) {
        out.u64(id.id);
    }
    let attrs_start = start + out.len() as u64;
    let mut ids_start = start;
    for event in events {
        out.extend_from_slice(&event.attr.bytes());
        let ids_size = 8 * event.ids.len() as u64;
        out.u64(ids_start);
        out.u64(ids_size);
        ids_start += ids_size;
    }
    (out, attrs_start)
}

/// `struct perf_file_header`.
fn file_header(layout: HeaderLayout, data_size: u64, features: u64) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.u64(FILE_HEADER_SIZE);
    header.u64(ATTR_ENTRY_SIZE);
    header.u64(layout.attrs_start);
    header.u64(layout.attrs_size);
    header.u64(layout.data_start);
    header.u64(data_size);
    header.extend_from_slice(&[0; 16]); // event types: unused
    header.u64(features);
    header.extend_from_slice(&[0; 24]); // features 64 to 255
    header
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use model::{
        AuxOffset, AuxOwner, AuxRecord, Avma, BuildId, Cpu, CpuModel, FileOffset, Ns, Pid, Sideband, Tid,
        TscClock,
    };

    use super::*;

    fn events() -> Vec<Event> {
        let ids = |first: u64| -> Vec<EventId> {
            (0..2).map(|i| EventId { id: first + i, index: i as u32, cpu: i as i32, tid: -1 }).collect()
        };
        vec![
            Event {
                name: "intel_pt//u".into(),
                attr: Attr { event_type: 8, config: 0x2401, ..Attr::default() },
                ids: ids(10),
            },
            Event {
                name: "dummy:u".into(),
                attr: Attr { event_type: 1, config: 9, flags: Attr::MMAP2, aux_watermark: 0 },
                ids: ids(20),
            },
        ]
    }

    fn word(file: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(file[at..at + 8].try_into().unwrap())
    }

    pub(super) fn info() -> IntelPtInfo {
        IntelPtInfo {
            pmu_type: 8,
            clock: TscClock { shift: 31, mult: 7, zero: 9 },
            have_sched_switch: 2,
            snapshots: false,
            per_cpu_buffers: true,
            tsc_ctc_ratio: (250, 2),
            max_nonturbo_ratio: 30,
            filter: "filter 0x10/0x20@/x".into(),
        }
    }

    fn small_file() -> Vec<u8> {
        let mut writer = Writer::new(Cursor::new(vec![]), events()).unwrap();
        let info = info();
        writer.record(&info.auxtrace_info()).unwrap();
        writer.record(&info.time_conv()).unwrap();
        id_index(&events()).iter().for_each(|record| writer.record(record).unwrap());
        let chunk = AuxChunk { index: 1, owner: AuxOwner::Cpu(Cpu(1)), offset: AuxOffset(64), reference: 5 };
        writer.aux(&chunk, &[b"abcd", b"efgh"]).unwrap();
        writer.finished_round().unwrap();
        let features = Features {
            build_ids: vec![("/x".into(), BuildId(vec![1, 2, 3]))],
            command_line: vec!["func_latency".into()],
            ..Features::default()
        };
        writer.finish(&features).unwrap().into_inner()
    }

    #[test]
    fn the_header_finds_attrs_records_and_features() {
        let file = small_file();
        assert_eq!(&file[..8], MAGIC);
        let (attrs, data, data_size) =
            (word(&file, 24) as usize, word(&file, 40) as usize, word(&file, 48) as usize);
        assert_eq!((attrs, data), (104 + 32, 104 + 32 + 2 * 144));
        assert_eq!(word(&file, attrs + 8), 0x2401); // config
        assert_eq!((word(&file, attrs + 128), word(&file, attrs + 136)), (104, 16));
        assert_eq!((word(&file, attrs + 144 + 128), word(&file, 104 + 16)), (120, 20));

        let mut types = vec![];
        let mut at = data;
        while at < data + data_size {
            let record = at;
            types.push(word(&file, at) as u32);
            at += (word(&file, at) >> 48) as usize;
            if types.last() == Some(&71) {
                assert_eq!((word(&file, record + 8), word(&file, record + 16)), (8, 64));
                assert_eq!(&file[at..at + 8], b"abcdefgh");
                at += 8;
            }
        }
        assert_eq!(at, data + data_size);
        assert_eq!(types, [70, 79, 69, 71, 68]);

        let bits = word(&file, 72);
        let expect = [2, 3, 4, 5, 6, 7, 11, 12, 16, 18].iter().fold(0, |bits, bit| bits | 1u64 << bit);
        assert_eq!(bits, expect);
        let table = data + data_size;
        let build_ids = word(&file, table) as usize;
        assert_eq!(word(&file, table + 8), 36 + 64);
        assert_eq!(&file[build_ids + 12..build_ids + 15], &[1, 2, 3]);
        assert_eq!(&file[build_ids + 32..build_ids + 39], &[3, 0, 0, 0, b'/', b'x', 0]);
        let last = table + 16 * 9;
        assert_eq!(word(&file, last) + word(&file, last + 8), file.len() as u64);
    }

    #[test]
    fn the_reader_reads_what_was_written() {
        let mut writer = Writer::new(Cursor::new(vec![]), events()).unwrap();
        let info = info();
        writer.record(&info.auxtrace_info()).unwrap();
        let id = SampleId { pid: Pid(5), tid: Tid(6), time: Ns(70), cpu: Cpu(1), id: 21 };
        let mut records = vec![];
        Record::Mmap2 {
            pid: Pid(5),
            tid: Tid(5),
            start: 0x1000,
            len: 0x2000,
            file_offset: FileOffset(0x3000),
            identity: FileIdentity::Inode { major: 1, minor: 2, inode: 3, generation: 0 },
            protection: 5,
            flags: 2,
            path: "/x",
        }
        .encode(&id, &mut records);
        Record::Switch { out: true, preempted: true }.encode(&id, &mut records);
        Record::Aux { offset: 0, size: 8, flags: AuxRecord::TRUNCATED }
            .encode(&SampleId { id: 11, ..id }, &mut records);
        writer.record(&records).unwrap();
        let owner = AuxOwner::Cpu(Cpu(1));
        let chunk = AuxChunk { index: 1, owner, offset: AuxOffset(0), reference: 5 };
        writer.aux(&chunk, &[b"abcdefgh"]).unwrap();
        let build_id = BuildId(vec![7; 20]);
        let features = Features {
            build_ids: vec![("/x".into(), build_id.clone())],
            cpuid: "GenuineIntel,6,85,7".into(),
            command_line: vec!["a".into(), "b c".into()],
            ..Features::default()
        };
        let file = writer.finish(&features).unwrap().into_inner();

        let recording = crate::read::parse(&file, Path::new("small")).unwrap();
        assert_eq!(recording.damage, None);
        assert_eq!((recording.clock, recording.pt.tsc_ctc_ratio), (Some(info.clock), (250, 2)));
        assert_eq!(recording.ip_filter, info.filter);
        assert_eq!(recording.command_line, ["a", "b c"]);
        assert_eq!(recording.cpu_model, Some(CpuModel { family: 6, model: 85, stepping: 7 }));
        let buffer = &recording.buffers[0];
        assert_eq!((buffer.owner, buffer.pieces[0].bytes), (owner, &b"abcdefgh"[..]));
        assert!(buffer.records[0].lost_data());
        let seen =
            |record: &&model::SidebandRecord| record.time == Some(Ns(70)) && record.tid == Some(Tid(6));
        let bodies: Vec<_> = recording.sideband.iter().filter(seen).map(|record| &record.body).collect();
        let Sideband::Mmap(mmap) = bodies[0] else { panic!("{bodies:?}") };
        assert_eq!((mmap.start, mmap.len, &*mmap.path), (Avma(0x1000), 0x2000, "/x"));
        assert_eq!(mmap.build_id, Some(build_id));
        assert!(mmap.executable);
        assert_eq!(*bodies[1], Sideband::Switch { out: true, preempted: true });
    }

    #[test]
    fn half_records_are_refused() {
        let mut writer = Writer::new(Cursor::new(vec![]), events()).unwrap();
        let record = user_record(68, &[0; 8]);
        assert!(writer.record(&record[..12]).is_err());
        assert!(writer.record(&[]).is_ok());
        assert!(writer.record(&[0; 16]).is_err());
        assert!(writer.record(&[record.clone(), record].concat()).is_ok());
    }
}
