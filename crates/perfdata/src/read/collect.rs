//! One pass over a file: everything that a [`Recording`] is made of.

use model::{AuxOffset, AuxRecord, Damage, Ns, Pid, Recording, Sideband, SidebandRecord, TscClock};

use super::attr::{Event, Events};
use super::auxtrace::{self, TraceInfo};
use super::buffers::Buffers;
use super::bytes::{Cursor, text};
use super::error::Refusal;
use super::features::{self, Features};
use super::header::{FileHeader, Layout, Section};
use super::records::{self, Record, Records};
use super::sideband;

/// The most sideband records that we keep.  A record of 8 bytes in the file is one of some 140 in memory,
/// so a file could be made that does not fit it.  Real ones stay below: this is four minutes of 65,000
/// context switches a second.
const SIDEBAND_LIMIT: usize = 1 << 24;

/// `PERF_EVENT_UPDATE__NAME`.
const EVENT_UPDATE_NAME: u64 = 2;

/// Reads all of a file whose magic was checked.
pub(super) fn recording(bytes: &[u8]) -> Result<Recording<'_>, Refusal> {
    let mut collector = Collector::default();
    let file_end = bytes.len() as u64;
    match Layout::read(bytes) {
        None => collector.damaged(file_end, "cut inside the file's header"),
        Some(Layout::Pipe { records }) => collector.walk(Records::new(bytes, records, file_end, true))?,
        Some(Layout::File(header)) => collector.file(bytes, &header)?,
    }
    collector.finish()
}

#[derive(Debug, Default)]
struct Collector<'a> {
    events: Events,
    info: Option<TraceInfo>,
    time_conv: Option<TscClock>,
    buffers: Buffers<'a>,
    sideband: Vec<SidebandRecord>,
    features: Features,
    damage: Option<Damage>,
}

impl<'a> Collector<'a> {
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

    fn file(&mut self, bytes: &'a [u8], header: &FileHeader) -> Result<(), Refusal> {
        if header.has_feature(features::COMPRESSED) {
            return Err(compressed(0));
        }
        if header.has_feature(features::DIR_FORMAT) {
            return Err(Refusal::Unsupported {
                offset: 0,
                what: "its data in a directory (--kcore, --threads)",
                instead: "record without these options",
            });
        }
        self.attrs(bytes, header)?;
        let file_end = bytes.len() as u64;
        let data = header.data;
        let killed = data.size == 0;
        let end = data.end().filter(|end| !killed && *end <= file_end);
        self.walk(Records::new(bytes, data.offset, end.unwrap_or(file_end), end.is_none()))?;
        match end {
            Some(end) => self.feature_sections(bytes, header, end),
            None if killed => {
                self.damaged(file_end, "perf was stopped before it closed the file; read to its end");
            }
            None => {
                let missing = (u128::from(data.offset) + u128::from(data.size)) - u128::from(file_end);
                self.damaged(file_end, format!("the file is cut: at least {missing} bytes are missing"));
            }
        }
        Ok(())
    }

    /// The `attrs` section: entries of an attr and, at the end of each, the section of its ids.
    fn attrs(&mut self, bytes: &[u8], header: &FileHeader) -> Result<(), Refusal> {
        let count = header.attrs.size.checked_div(header.attr_size).unwrap_or(0);
        // Ids do not share bytes, so all together cannot be more than the file.
        let mut ids_left = bytes.len() as u64;
        for index in 0..count {
            // No overflow: index * attr_size <= attrs.size.
            let at = header.attrs.offset.saturating_add(index * header.attr_size);
            let entry = super::bytes::at(bytes, at, header.attr_size);
            let parts = entry.and_then(|entry| entry.split_last_chunk::<16>());
            let Some((attr, ids)) = parts else {
                self.damaged(at, "an event's description is cut");
                break;
            };
            let Some((event, _)) = Event::read(attr) else {
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
            self.add_event(at, event, ids)?;
        }
        Ok(())
    }

    fn add_event(&mut self, offset: u64, event: Event, ids: &[u8]) -> Result<(), Refusal> {
        if event.has_aux_samples() {
            return Err(Refusal::Unsupported {
                offset,
                what: "its trace in samples (--aux-sample)",
                instead: "record without --aux-sample",
            });
        }
        let mut ids = Cursor::new(ids);
        self.events.add(event, std::iter::from_fn(move || ids.u64()));
        Ok(())
    }

    /// A section for each feature bit, described behind the records.
    fn feature_sections(&mut self, bytes: &[u8], header: &FileHeader, start: u64) {
        let table = usize::try_from(start).ok().and_then(|start| bytes.get(start..));
        let mut table = Cursor::new(table.unwrap_or_default());
        for number in header.feature_bits() {
            let Some(section) = Section::read(&mut table) else {
                return self.damaged(bytes.len() as u64, "the file is cut behind the records");
            };
            let read = section.of(bytes).and_then(|contents| self.features.read(number, contents));
            if read.is_none() {
                self.damaged(section.offset.min(bytes.len() as u64), format!("feature {number} is damaged"));
            }
        }
    }

    // ---- records ----

    fn walk(&mut self, mut records: Records<'a>) -> Result<(), Refusal> {
        for record in records.by_ref() {
            // A body that does not fit its record means that the record's size is wrong, and then all
            // that follows is not where it seems to be.
            if let Err(what) = self.record(&record)? {
                self.damaged(record.offset, what);
                return Ok(());
            }
        }
        if let Some(damage) = records.damage() {
            self.note(damage);
        }
        Ok(())
    }

    fn record(&mut self, record: &Record<'a>) -> Result<Result<(), String>, Refusal> {
        if record.kind < records::USER_TYPE_START {
            return Ok(self.kernel_record(record));
        }
        let whole = match record.kind {
            records::AUXTRACE => return Ok(self.buffers.add_payload(record)),
            records::HEADER_ATTR => match Event::read(record.body) {
                Some((event, size)) => {
                    self.add_event(record.offset, event, record.body.get(size..).unwrap_or_default())?;
                    Some(())
                }
                None => None,
            },
            records::HEADER_FEATURE => self.feature_record(record)?,
            records::COMPRESSED | records::COMPRESSED2 => return Err(compressed(record.offset)),
            records::AUXTRACE_INFO => TraceInfo::read(record.offset, record.body).map(|info| {
                self.info.get_or_insert(info);
            }),
            records::TIME_CONV => {
                self.time_conv = self.time_conv.or(auxtrace::time_conv(record.body));
                Some(())
            }
            records::ID_INDEX => self.buffers.add_ids(record.body),
            records::HEADER_BUILD_ID => self.features.add_build_id(record.misc, record.body),
            records::EVENT_UPDATE => self.event_update(record.body),
            // They say nothing that we use, or are about the order of reading only.
            records::HEADER_EVENT_TYPE
            | records::HEADER_TRACING_DATA
            | records::FINISHED_ROUND
            | records::FINISHED_INIT => Some(()),
            record_type => {
                let body = Sideband::Other { record_type };
                let file_offset = record.offset;
                let nobody =
                    SidebandRecord { time: None, cpu: None, pid: None, tid: None, file_offset, body };
                return Ok(self.keep(nobody));
            }
        };
        Ok(whole.ok_or_else(|| format!("the record of type {} is too short", record.kind)))
    }

    fn feature_record(&mut self, record: &Record<'a>) -> Result<Option<()>, Refusal> {
        let mut c = Cursor::new(record.body);
        let Some(number) = c.u64() else { return Ok(None) };
        if number == u64::from(features::COMPRESSED) {
            return Err(compressed(record.offset));
        }
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Ok(self.features.read(number, c.rest()))
    }

    fn event_update(&mut self, body: &[u8]) -> Option<()> {
        let mut c = Cursor::new(body);
        let (kind, id) = (c.u64()?, c.u64()?);
        if kind == EVENT_UPDATE_NAME {
            self.events.set_name(id, &text(c.rest()));
        }
        Some(())
    }

    fn kernel_record(&mut self, record: &Record<'a>) -> Result<(), String> {
        let short = || format!("the record of type {} is too short", record.kind);
        let (body, said) = if record.kind == records::SAMPLE {
            (record.body, self.events.of_sample(record.body).ok_or_else(short)?)
        } else {
            self.events.split(record.body).ok_or_else(short)?
        };
        let time = said.time.or_else(|| sideband::own_time(record.kind, body));
        let body = sideband::read(record, body).ok_or_else(short)?;
        if let Sideband::Aux { offset, size, flags } = body {
            self.buffers.add_record(AuxRecord { offset: AuxOffset(offset), size, flags, time }, said)?;
        }
        let file_offset = record.offset;
        self.keep(SidebandRecord { time, cpu: said.cpu, pid: said.pid, tid: said.tid, file_offset, body })
    }

    fn keep(&mut self, record: SidebandRecord) -> Result<(), String> {
        if self.sideband.len() == SIDEBAND_LIMIT {
            return Err(format!("more than {SIDEBAND_LIMIT} sideband records"));
        }
        self.sideband.push(record);
        Ok(())
    }

    // ---- all together ----

    fn finish(mut self) -> Result<Recording<'a>, Refusal> {
        if self.events.list().is_empty() {
            return Err(Refusal::NoEvents { damage: self.damage });
        }
        let Some(info) = self.info.take() else { return Err(self.no_intel_pt()) };
        if let Some(kind) = info.other_kind() {
            return Err(Refusal::OtherTrace { offset: info.offset, kind });
        }
        let of_pmu = |event: &&Event| u64::from(event.pmu_type) == info.pmu_type();
        let Some(pt) = self.events.list().iter().find(of_pmu).map(|event| info.pt_config(event)) else {
            return Err(self.no_intel_pt());
        };
        let first_pid = self.features.asked_pid().or_else(|| first_comm(&self.sideband));
        for record in &mut self.sideband {
            if let Sideband::Mmap(mmap) = &mut record.body {
                self.features.complete(mmap);
            }
        }
        self.sideband.sort_by_key(|record| record.time);
        let mut overlaps = Vec::new();
        let buffers = std::mem::take(&mut self.buffers).finish(pt.snapshot, &mut |d| overlaps.push(d));
        overlaps.into_iter().for_each(|damage| self.note(damage));
        Ok(Recording {
            buffers,
            time_span: time_span(&self.sideband),
            sideband: self.sideband,
            pt,
            clock: info.clock().or(self.time_conv),
            ip_filter: info.filter,
            cpu_model: self.features.cpu_model,
            kernel_release: self.features.kernel_release,
            command_line: self.features.command_line,
            first_pid,
            damage: self.damage,
        })
    }

    fn no_intel_pt(self) -> Refusal {
        let of_attrs = || self.events.list().iter().map(Event::display_name).collect();
        let names = self.features.event_names;
        let events = if names.is_empty() { of_attrs() } else { names };
        Refusal::NoIntelPt { events, damage: self.damage }
    }
}

fn compressed(offset: u64) -> Refusal {
    Refusal::Unsupported { offset, what: "compressed records", instead: "record without -z" }
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

/// Of sideband that is sorted by time.
fn time_span(sideband: &[SidebandRecord]) -> Option<(Ns, Ns)> {
    let first = sideband.iter().find_map(|record| record.time)?;
    Some((first, sideband.last()?.time?))
}
