//! One pass over a file: everything that a [`Recording`] is made of.

use std::collections::BTreeSet;

use model::{
    AuxOffset, AuxRecord, Cpu, CpuCoverage, Damage, Ns, Pid, Recording, Sideband, SidebandRecord, Tid,
    TscClock,
};

use super::attr::{EventAttr, Events};
use super::auxtrace::{self, TraceInfo};
use super::buffers::Buffers;
use super::bytes::{self, Cursor, text};
use super::compressed;
use super::error::Refusal;
use super::features::KnownFeatures;
use super::header::{FileHeader, Layout, Section};
use super::kept::Kept;
use super::listing::Listed;
use super::record_window::FileBytes;
use super::records::{RawRecord, Records};
use super::sample_id::{self, Raw, SampleFields};
use super::sideband;
use super::tracepoints::{TracepointSample, Tracepoints};
use crate::{feature_bits, record_types};

/// `PERF_EVENT_UPDATE__NAME`.
const EVENT_UPDATE_NAME: u64 = 2;

/// The bytes of a recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a, 'm> {
    /// `perf.data`, or the file `data` of the directory; its magic was checked.
    pub(super) main: FileBytes<'a>,
    /// The files `data.N` of a directory: records and nothing else.
    pub(super) more: &'m [FileBytes<'a>],
}

impl Parts<'_, '_> {
    fn all_bytes(&self) -> usize {
        let more = self.more.iter().map(|more| more.mapped.len());
        more.fold(self.main.mapped.len(), usize::saturating_add)
    }
}

/// Reads all of a recording.
pub(super) fn recording<'a>(parts: Parts<'a, '_>) -> Result<Recording<'a>, Refusal> {
    Collector::read(parts, &mut |_| ()).finish()
}

/// Tells all records of a recording, whatever it is of.
pub(super) fn list(
    parts: Parts<'_, '_>,
    listener: &mut dyn FnMut(&Listed),
) -> Result<Option<Damage>, Refusal> {
    let Collector { events, damage, .. } = Collector::read(parts, listener);
    if events.list().is_empty() { Err(Refusal::NoEvents { damage }) } else { Ok(damage) }
}

struct Collector<'a, 'l> {
    events: Events,
    info: Option<TraceInfo>,
    time_conv: Option<TscClock>,
    buffers: Buffers<'a>,
    sideband: Kept,
    time_span: Option<(Ns, Ns)>,
    /// Everything from before it is in the file, as a recorder of ours has said.
    complete_until: Option<Ns>,
    /// The file ends before the recording did.
    is_cut: bool,
    features: KnownFeatures,
    tracepoints: Tracepoints,
    damage: Option<Damage>,
    /// Where an event asks for trace in samples.
    aux_samples: Option<u64>,
    /// Is told of every record.
    listener: &'l mut dyn FnMut(&Listed),
}

impl<'a, 'l> Collector<'a, 'l> {
    fn read(parts: Parts<'a, '_>, listener: &'l mut dyn FnMut(&Listed)) -> Self {
        let mut collector = Self {
            events: Events::default(),
            info: None,
            time_conv: None,
            buffers: Buffers::default(),
            sideband: Kept::of_file(parts.all_bytes()),
            time_span: None,
            complete_until: None,
            is_cut: false,
            features: KnownFeatures::default(),
            tracepoints: Tracepoints::default(),
            damage: None,
            aux_samples: None,
            listener,
        };
        let (bytes, file_end) = (parts.main, parts.main.mapped.len() as u64);
        match Layout::read(bytes.mapped) {
            None => collector.damaged(file_end, "cut inside the file's header"),
            Some(Layout::Pipe { records }) => collector.walk(Records::new(bytes, records, file_end, true)),
            Some(Layout::File(header)) => collector.file(bytes, &header),
        }
        for more in parts.more {
            collector.walk(Records::new(*more, 0, more.mapped.len() as u64, true));
        }
        collector
    }

    /// Notes damage; the first place in the file is what the reader is told.
    fn note(&mut self, damage: Damage) {
        if self.damage.as_ref().is_none_or(|known| damage.file_offset < known.file_offset) {
            self.damage = Some(damage);
        }
    }

    fn damaged(&mut self, file_offset: u64, what: impl Into<String>) {
        self.note(Damage { file_offset, what: what.into() });
    }

    // ---- file layout ----

    fn file(&mut self, of: FileBytes<'a>, header: &FileHeader) {
        let bytes = of.mapped;
        self.attrs(bytes, header);
        if let Some(after) = header.data.end().filter(|_| header.data.size != 0) {
            self.tracing_data(bytes, header, after);
        }
        let file_end = bytes.len() as u64;
        let data = header.data;
        let killed = data.size == 0;
        let end = data.end().filter(|end| !killed && *end <= file_end);
        self.is_cut = end.is_none();
        self.walk(Records::new(of, data.offset, end.unwrap_or(file_end), end.is_none()));
        match end {
            Some(end) => self.feature_sections(bytes, header, end),
            None if killed => {
                let read = match self.complete_until {
                    Some(until) => format!("up to {} ns, when all buffers had been read last", until.0),
                    None => "to its end".to_owned(),
                };
                let what = format!("the recorder was stopped before it closed the file; read {read}");
                self.damaged(file_end, what);
            }
            None => {
                let missing = (u128::from(data.offset) + u128::from(data.size)) - u128::from(file_end);
                self.damaged(file_end, format!("the file is cut: at least {missing} bytes are missing"));
            }
        }
    }

    /// The `attrs` section: entries of an attr and, at the end of each, the section of its ids.
    fn attrs(&mut self, bytes: &[u8], header: &FileHeader) {
        let count = header.attrs.size.checked_div(header.attr_size).unwrap_or(0);
        // Ids do not share bytes, so all together cannot be more than the file.
        let mut ids_left = bytes.len() as u64;
        for index in 0..count {
            // No overflow: index * attr_size <= attrs.size.
            let at = header.attrs.offset.saturating_add(index * header.attr_size);
            let entry = bytes::at(bytes, at, header.attr_size);
            let parts = entry.and_then(|entry| entry.split_last_chunk::<16>());
            let Some((attr, ids)) = parts else {
                self.damaged(at, "an event's description is cut");
                break;
            };
            let Some((event, _)) = EventAttr::read(attr) else {
                self.damaged(at, "an event's description has an impossible size");
                continue;
            };
            let section = Section::read(&mut Cursor::new(ids)).unwrap_or_default();
            let ids = section.of(bytes).filter(|ids| ids.len() as u64 <= ids_left);
            if ids.is_none() {
                self.damaged(at, "the ids of an event are not in the file");
            }
            let ids = ids.unwrap_or_default();
            ids_left -= ids.len() as u64;
            self.add_event(at, event, ids);
        }
    }

    fn add_event(&mut self, offset: u64, event: EventAttr, ids: &[u8]) {
        if event.has_aux_samples() {
            self.aux_samples.get_or_insert(offset);
        }
        let mut ids = Cursor::new(ids);
        self.events.add(event, std::iter::from_fn(move || ids.u64()));
    }

    /// A section for each feature bit, described after the records.
    fn feature_sections(&mut self, bytes: &[u8], header: &FileHeader, start: u64) {
        let table = usize::try_from(start).ok().and_then(|start| bytes.get(start..));
        let mut table = Cursor::new(table.unwrap_or_default());
        for number in header.feature_bits() {
            let Some(section) = Section::read(&mut table) else {
                return self.damaged(bytes.len() as u64, "the file is cut after the records");
            };
            let read = section.of(bytes).and_then(|contents| self.features.read(number, contents));
            if read.is_none() {
                self.damaged(section.offset.min(bytes.len() as u64), format!("feature {number} is damaged"));
            }
        }
    }

    /// The formats of the tracepoints come before all records that need them.
    fn tracing_data(&mut self, bytes: &[u8], header: &FileHeader, start: u64) {
        let index = header.feature_bits().position(|number| number == feature_bits::TRACING_DATA);
        let entry = index.and_then(|index| bytes::at(bytes, start.checked_add(16 * index as u64)?, 16));
        let section = entry.and_then(|entry| Section::read(&mut Cursor::new(entry)));
        if let Some(contents) = section.and_then(|section| section.of(bytes)) {
            self.tracepoints.read(contents);
        }
    }

    // ---- records ----

    /// One file's records.
    fn walk(&mut self, mut records: Records<'a>) {
        let mut compressed = compressed::Stream::default();
        let bytes = records.mapped();
        while let Some(record) = records.next_record() {
            let read = match record.kind {
                record_types::AUXTRACE => {
                    self.list_own(&record);
                    let payload = bytes::at(bytes, record.payload_offset, record.payload.len() as u64);
                    self.buffers.add_payload(&record, payload.unwrap_or_default())
                }
                record_types::HEADER_TRACING_DATA => {
                    self.list_own(&record);
                    self.tracepoints.read(record.payload);
                    Ok(())
                }
                record_types::HEADER_EVENT_TYPE => {
                    self.list_own(&record);
                    self.tracepoints.read(record.body);
                    Ok(())
                }
                record_types::COMPRESSED | record_types::COMPRESSED2 => {
                    self.list_own(&record);
                    compressed.unpack(&record, &mut |inner| self.record(inner))
                }
                _ => self.record(&record),
            };
            // A body that does not fit its record means that the record's size is wrong, and then all
            // that follows is not where it seems to be.
            if let Err(what) = read {
                return self.damaged(record.offset, what);
            }
        }
        let end = records.position();
        match records.damage() {
            Some(damage) => self.note(damage),
            None if compressed.left() > 0 => self.damaged(end, "the compressed records end inside a record"),
            None => (),
        }
    }

    /// A record without payload.
    fn record(&mut self, record: &RawRecord<'_>) -> Result<(), String> {
        if record.kind < record_types::USER_TYPE_START {
            return self.kernel_record(record);
        }
        self.list_own(record);
        let whole = match record.kind {
            record_types::HEADER_ATTR => EventAttr::read(record.body).map(|(event, size)| {
                self.add_event(record.offset, event, record.body.get(size..).unwrap_or_default());
            }),
            record_types::HEADER_FEATURE => self.feature_record(record.body),
            record_types::AUXTRACE_INFO => TraceInfo::read(record.offset, record.body).map(|info| {
                self.info.get_or_insert(info);
            }),
            record_types::TIME_CONV => {
                self.time_conv = self.time_conv.or(auxtrace::time_conv(record.body));
                if let Some(sample) = auxtrace::clock_sample(record.body) {
                    self.features.add_clock_sample(sample);
                }
                Some(())
            }
            record_types::ID_INDEX => match self.buffers.add_ids(record.body) {
                Some(threads) => return self.attached(record.offset, threads),
                None => None,
            },
            record_types::HEADER_BUILD_ID => self.features.add_build_id(record.misc, record.body),
            record_types::EVENT_UPDATE => self.event_update(record.body),
            // They say nothing that we use, are about the order of reading only, or are newer than we are.
            _ => Some(()),
        };
        whole.ok_or_else(|| too_short(record))
    }

    /// Events of these threads are there. If the recording is under way, they were opened while the threads
    /// ran, after all that was read so far.
    fn attached(&mut self, file_offset: u64, threads: BTreeSet<Tid>) -> Result<(), String> {
        let Some((_, last)) = self.time_span else { return Ok(()) };
        let time = Some(last);
        threads.into_iter().try_for_each(|tid| {
            let body = Sideband::AttachedLate { tid };
            self.keep(SidebandRecord { time, cpu: None, pid: None, tid: Some(tid), file_offset, body })
        })
    }

    fn feature_record(&mut self, body: &[u8]) -> Option<()> {
        let mut c = Cursor::new(body);
        let number = u32::try_from(c.u64()?).unwrap_or(u32::MAX);
        self.features.read(number, c.rest())
    }

    fn event_update(&mut self, body: &[u8]) -> Option<()> {
        let mut c = Cursor::new(body);
        let (kind, id) = (c.u64()?, c.u64()?);
        if kind == EVENT_UPDATE_NAME {
            self.events.set_name(id, &text(c.rest()));
        }
        Some(())
    }

    /// Lists a record that perf wrote: it has neither thread nor time.
    fn list_own(&mut self, record: &RawRecord<'_>) {
        let body = Sideband::Other { record_type: record.kind };
        let file_offset = record.offset;
        let nobody = SidebandRecord { time: None, cpu: None, pid: None, tid: None, file_offset, body };
        let (record_type, size) = (record.kind, record.size());
        (self.listener)(&Listed { record_type, size, time_at: None, event_id: None, record: nobody });
    }

    fn kernel_record(&mut self, record: &RawRecord<'_>) -> Result<(), String> {
        let short = || too_short(record);
        let (said, time, body) = if record.kind == record_types::SAMPLE {
            let (said, body) = self.sample(record.body).ok_or_else(short)?;
            (said, said.time, body)
        } else {
            let (body, said) = self.events.split(record.body).ok_or_else(short)?;
            let time = said.time.or_else(|| sideband::own_time(record.kind, body));
            (said, time, sideband::read(record, body).ok_or_else(short)?)
        };
        if is_complete_until(record, &body) {
            self.complete_until = self.complete_until.max(time);
        } else if let Some(time) = time {
            let (first, last) = self.time_span.unwrap_or((time, time));
            self.time_span = Some((first.min(time), last.max(time)));
        }
        if let Sideband::Aux { offset, size, flags } = body {
            self.buffers.add_record(AuxRecord { offset: AuxOffset(offset), size, flags, time }, said)?;
        }
        let (file_offset, event_id) = (record.offset, said.id);
        let said = SidebandRecord { time, cpu: said.cpu, pid: said.pid, tid: said.tid, file_offset, body };
        let (record_type, size) = (record.kind, record.size());
        let back = self.events.time_from_end(record.body).filter(|_| record_type != record_types::SAMPLE);
        let time_at = back.and_then(|back| size.checked_sub(back));
        let listed = Listed { record_type, size, time_at, event_id, record: said };
        (self.listener)(&listed);
        self.keep(listed.record)
    }

    /// A SAMPLE, of which only those of scheduler tracepoints say something that we use.
    fn sample(&self, body: &[u8]) -> Option<(SampleFields, Sideband)> {
        let other = Sideband::Other { record_type: record_types::SAMPLE };
        if self.events.list().is_empty() {
            return Some((SampleFields::default(), other));
        }
        let event = self.events.of_sample(body)?;
        let (said, raw) = sample_id::of_sample(body, event.sample_type, event.read_format)?;
        let of_scheduler = event.tracepoint().zip(raw).and_then(|(id, Raw { bytes: raw, chain })| {
            self.tracepoints.sideband(&TracepointSample { id, said, raw, chain })
        });
        Some((said, of_scheduler.unwrap_or(other)))
    }

    /// Keeps what says something of threads and their code.
    fn keep(&mut self, record: SidebandRecord) -> Result<(), String> {
        if matches!(record.body, Sideband::Aux { .. } | Sideband::Other { .. }) {
            return Ok(());
        }
        self.sideband.push(record)
    }

    // ---- all together ----

    fn finish(mut self) -> Result<Recording<'a>, Refusal> {
        if self.events.list().is_empty() {
            return Err(Refusal::NoEvents { damage: self.damage });
        }
        if let Some(offset) = self.aux_samples {
            return Err(Refusal::Unsupported {
                offset,
                what: "its trace in samples (--aux-sample)",
                instead: "record without --aux-sample",
            });
        }
        let Some(info) = self.info.take() else { return Err(self.no_intel_pt()) };
        if let Some(kind) = info.other_kind() {
            return Err(Refusal::OtherTrace { offset: info.offset, kind });
        }
        let of_pmu = |event: &&EventAttr| u64::from(event.pmu_type) == info.pmu_type();
        let mut traces = self.events.list().iter().filter(of_pmu);
        let Some(first) = traces.next() else { return Err(self.no_intel_pt()) };
        let pt_clock = first.clock();
        let pt = traces.try_fold(info.pt_config(first), |pt, event| pt.and(info.pt_config(event)));
        let Some(pt) = pt else {
            return Err(Refusal::Unsupported {
                offset: info.offset,
                what: "intel_pt events whose timing packets differ",
                instead: "record them with the same cyc, mtc and mtc_period",
            });
        };
        if !pt.snapshot {
            self.forget_what_is_not_complete();
        }
        let first_pid = self.features.asked_pid().or_else(|| first_comm(&self.sideband.records));
        for record in &mut self.sideband.records {
            if let Sideband::Mmap(mmap) = &mut record.body {
                self.features.complete(mmap);
            }
        }
        self.sideband.records.sort_by_key(|record| record.time);
        let coverage = self.coverage(&info);
        let mut overlaps = Vec::new();
        let buffers = std::mem::take(&mut self.buffers).finish(pt.snapshot, &mut |d| overlaps.push(d));
        overlaps.into_iter().for_each(|damage| self.note(damage));
        Ok(Recording {
            buffers,
            time_span: self.time_span,
            sideband: self.sideband.records,
            coverage,
            pt,
            no_times: None,
            clock: info.clock().or(self.time_conv),
            clock_offsets: self.features.clock_offsets(pt_clock),
            ip_filter: info.filter,
            cpu_model: self.features.cpu_model,
            kernel_release: self.features.kernel_release,
            hostname: self.features.hostname,
            sched_apart_ns: self.tracepoints.apart_ns(),
            kernel_symbols: self.tracepoints.take_symbols(),
            command_line: self.features.command_line,
            first_pid,
            leaves_out: false,
            damage: self.damage,
        })
    }

    /// A file that was cut may have more of one CPU than of another: from when on it has not everything of
    /// all, it has nothing.
    fn forget_what_is_not_complete(&mut self) {
        let Some(until) = self.complete_until.filter(|_| self.is_cut) else { return };
        self.sideband.records.retain(|record| record.time.is_none_or(|time| time <= until));
        self.time_span = self.time_span.map(|(first, last)| (first, last.min(until).max(first)));
        self.buffers.end_at(until);
    }

    /// Which CPUs the trace and the switch records are of, where each has a buffer.
    fn coverage(&self, info: &TraceInfo) -> CpuCoverage {
        let opened = |of: &dyn Fn(&EventAttr) -> bool| -> Vec<(u64, Cpu)> {
            self.buffers.cpus().filter(|(id, _)| self.events.with_id(*id).is_some_and(of)).collect()
        };
        let on = |of: &dyn Fn(&EventAttr) -> bool| opened(of).into_iter().map(|(_, cpu)| cpu).collect();
        let is_trace = |event: &EventAttr| u64::from(event.pmu_type) == info.pmu_type();
        // perf lets the events of tasks be inherited, also where it does not write which tasks they are of.
        let is_whole = |event: &EventAttr| is_trace(event) && !event.is_inherited();
        CpuCoverage {
            traced: on(&is_trace),
            is_whole: opened(&is_whole).iter().any(|(id, _)| self.buffers.is_of_whole_cpu(*id)),
            watched: on(&EventAttr::tells_of_switches),
            running: self.features.running_cpus,
        }
    }

    fn no_intel_pt(self) -> Refusal {
        let of_attrs = || self.events.list().iter().map(EventAttr::display_name).collect();
        let names = self.features.event_names;
        let events = if names.is_empty() { of_attrs() } else { names };
        Refusal::NoIntelPt { events, damage: self.damage }
    }
}

/// LOST_SAMPLES of none: see `RawRecord::Complete` of the writer.
fn is_complete_until(record: &RawRecord<'_>, body: &Sideband) -> bool {
    matches!(body, Sideband::Other { record_type: record_types::LOST_SAMPLES })
        && Cursor::new(record.body).u64() == Some(0)
}

fn too_short(record: &RawRecord<'_>) -> String {
    format!("the record of type {} is too short", record.kind)
}

/// The process of the first COMM in the file, preferably of one that executed a program.
fn first_comm(sideband: &[SidebandRecord]) -> Option<Pid> {
    let mut comms = sideband.iter().filter_map(|record| match &record.body {
        Sideband::Comm { pid, exec, .. } => Some((*pid, *exec)),
        _ => None,
    });
    let first = comms.next()?;
    std::iter::once(first).chain(comms).find(|(_, exec)| *exec).or(Some(first)).map(|(pid, _)| pid)
}
