//! The events of a recording (`struct perf_event_attr`) and which of them wrote a record.

use std::collections::HashMap;

use super::bytes::Cursor;
use super::sample_id::{self, SampleFields};

/// `PERF_ATTR_SIZE_VER0`: all that every version of the struct has.
const ATTR_SIZE_VER0: u32 = 64;
/// Offset of `aux_sample_size`.
const AUX_SAMPLE_SIZE_AT: usize = 112;

const FLAG_INHERIT: u64 = 1 << 1;
const FLAG_EXCLUDE_USER: u64 = 1 << 4;
const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
const FLAG_USE_CLOCKID: u64 = 1 << 25;
const FLAG_CONTEXT_SWITCH: u64 = 1 << 26;
/// Offset of `clockid`.
const CLOCKID_AT: usize = 92;
/// `PERF_TYPE_TRACEPOINT`.
const TYPE_TRACEPOINT: u32 = 2;

/// What we use of a `perf_event_attr`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EventAttr {
    /// The event's name as perf prints it; empty if the file does not say.
    pub(super) name: String,
    /// `type`: a fixed one or the number of the PMU.
    pub(super) pmu_type: u32,
    pub(super) config: u64,
    pub(super) sample_type: u64,
    pub(super) read_format: u64,
    flags: u64,
    clockid: u32,
    aux_sample_size: u32,
}

impl EventAttr {
    /// Reads an attr of any version from 64 bytes up: fields beyond its size are 0, fields that we do not
    /// know are left out.  The second value is its size.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut c = Cursor::new(bytes);
        let pmu_type = c.u32()?;
        // Size 0 stands for the first version.
        let size = match c.u32()? {
            0 => ATTR_SIZE_VER0,
            size if size >= ATTR_SIZE_VER0 => size,
            _ => return None,
        } as usize;
        let attr = bytes.get(..size)?;
        let config = c.u64()?;
        let _sample_period = c.u64()?;
        let sample_type = c.u64()?;
        let read_format = c.u64()?;
        let flags = c.u64()?;
        let half_at = |at: usize| attr.get(at..).and_then(|rest| Cursor::new(rest).u32()).unwrap_or(0);
        let (clockid, aux_sample_size) = (half_at(CLOCKID_AT), half_at(AUX_SAMPLE_SIZE_AT));
        let name = String::new();
        let event =
            Self { name, pmu_type, config, sample_type, read_format, flags, clockid, aux_sample_size };
        Some((event, size))
    }

    pub(super) fn exclude_user(&self) -> bool {
        self.flags & FLAG_EXCLUDE_USER != 0
    }

    /// Threads and processes that are made later are traced, too.
    pub(super) fn is_inherited(&self) -> bool {
        self.flags & FLAG_INHERIT != 0
    }

    pub(super) fn exclude_kernel(&self) -> bool {
        self.flags & FLAG_EXCLUDE_KERNEL != 0
    }

    /// The clock of its records, if not perf's own (`perf record -k`).
    pub(super) fn clock(&self) -> Option<u32> {
        (self.flags & FLAG_USE_CLOCKID != 0).then_some(self.clockid)
    }

    /// The number of the kernel's tracepoint that it is of.
    pub(super) fn tracepoint(&self) -> Option<u64> {
        (self.pmu_type == TYPE_TRACEPOINT).then_some(self.config)
    }

    /// It tells of context switches.
    pub(super) fn tells_of_switches(&self) -> bool {
        self.flags & FLAG_CONTEXT_SWITCH != 0 || self.tracepoint().is_some()
    }

    /// The trace is in samples and not in AUXTRACE records (`perf record --aux-sample`).
    pub(super) fn has_aux_samples(&self) -> bool {
        self.aux_sample_size != 0 || self.sample_type & sample_id::AUX != 0
    }

    /// The `sample_type` of the trailers of its records; 0 if they have none.
    fn trailer_type(&self) -> u64 {
        if self.flags & FLAG_SAMPLE_ID_ALL != 0 { self.sample_type } else { 0 }
    }

    /// How messages call it.
    pub(super) fn display_name(&self) -> String {
        if self.name.is_empty() {
            format!("type {} config {:#x}", self.pmu_type, self.config)
        } else {
            self.name.clone()
        }
    }
}

/// All events, and the event of each id.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    list: Vec<EventAttr>,
    by_id: HashMap<u64, usize>,
}

impl Events {
    pub(super) fn add(&mut self, event: EventAttr, ids: impl IntoIterator<Item = u64>) {
        let index = self.list.len();
        self.list.push(event);
        self.by_id.extend(ids.into_iter().map(|id| (id, index)));
    }

    pub(super) fn list(&self) -> &[EventAttr] {
        &self.list
    }

    /// The event that was opened with this id.
    pub(super) fn with_id(&self, id: u64) -> Option<&EventAttr> {
        self.by_id.get(&id).and_then(|index| self.list.get(*index))
    }

    /// Names the event with this id.
    pub(super) fn set_name(&mut self, id: u64, name: &str) {
        if let Some(event) = self.by_id.get(&id).and_then(|index| self.list.get_mut(*index)) {
            name.clone_into(&mut event.name);
        }
    }

    /// The event that wrote a record.  perf demands that the id stands at the same place in the records of
    /// all events, so that the first event tells where to look; id 0 (synthesised) is the first event's.
    fn of_id(&self, id: Option<u64>) -> Option<&EventAttr> {
        let index = id.and_then(|id| self.by_id.get(&id)).copied().unwrap_or(0);
        self.list.get(index)
    }

    /// The event that wrote a record with this body, by its trailer.
    fn of_record(&self, body: &[u8]) -> Option<&EventAttr> {
        let id = sample_id::id_from_end(self.list.first()?.trailer_type())
            .and_then(|back| body.len().checked_sub(back))
            .and_then(|at| Cursor::new(body.get(at..)?).u64());
        self.of_id(id)
    }

    /// How far before the end of a record that the kernel wrote its time stands; `None` if it has none.
    pub(super) fn time_from_end(&self, body: &[u8]) -> Option<usize> {
        sample_id::time_from_end(self.of_record(body)?.trailer_type())
    }

    /// Splits the body of a record that the kernel wrote from its trailer; `None` if it is too short.
    pub(super) fn split<'a>(&self, body: &'a [u8]) -> Option<(&'a [u8], SampleFields)> {
        if self.list.is_empty() {
            return Some((body, SampleFields::default()));
        }
        sample_id::split_trailer(body, self.of_record(body)?.trailer_type())
    }

    /// The event that wrote a SAMPLE; `None` if that is too short.
    pub(super) fn of_sample(&self, body: &[u8]) -> Option<&EventAttr> {
        let first = self.list.first()?;
        let id = sample_id::id_from_start(first.sample_type)
            .and_then(|at| body.get(at..))
            .and_then(|rest| Cursor::new(rest).u64());
        self.of_id(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(size: u32, bytes: usize) -> Vec<u8> {
        let mut attr = vec![0xff; bytes];
        attr[0..4].copy_from_slice(&8u32.to_le_bytes());
        attr[4..8].copy_from_slice(&size.to_le_bytes());
        attr[8..16].copy_from_slice(&0x300e601u64.to_le_bytes());
        attr[24..32].copy_from_slice(&(sample_id::TIME | sample_id::IDENTIFIER).to_le_bytes());
        attr[40..48].copy_from_slice(&(FLAG_SAMPLE_ID_ALL | FLAG_EXCLUDE_KERNEL).to_le_bytes());
        attr
    }

    #[test]
    fn attrs_of_every_size() {
        for size in [64, 72, 96, 112, 120, 128, 136, 400] {
            let (event, len) = EventAttr::read(&attr(size, 400)).unwrap();
            assert_eq!((event.pmu_type, event.config, len), (8, 0x300e601, size as usize));
            assert!(event.exclude_kernel() && !event.exclude_user());
            assert_eq!(event.has_aux_samples(), size >= 116);
        }
        assert_eq!(EventAttr::read(&attr(0, 64)).unwrap().1, 64);
        assert_eq!(EventAttr::read(&attr(63, 400)), None);
        assert_eq!(EventAttr::read(&attr(401, 400)), None);
        assert_eq!(EventAttr::read(&attr(64, 400)[..63]), None);
    }

    #[test]
    fn each_record_is_read_as_its_event_wrote_it() {
        let (with_time, _) = EventAttr::read(&attr(64, 64)).unwrap();
        let mut without_time = with_time.clone();
        without_time.sample_type = sample_id::IDENTIFIER;
        let mut events = Events::default();
        events.add(with_time, [10]);
        events.add(without_time, [11]);
        let body: Vec<u8> = [1000u64, 10].iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(events.split(&body).unwrap().1.time, Some(model::Ns(1000)));
        let body: Vec<u8> = [1000u64, 11].iter().flat_map(|w| w.to_le_bytes()).collect();
        let (rest, said) = events.split(&body).unwrap();
        assert_eq!((rest.len(), said.time), (8, None));
    }
}
