//! Process, thread, time and CPU: the fields that the kernel appends to each of its records
//! (`sample_id_all`), and the same fields at the front of a SAMPLE.  Which ones are there is the event's
//! `sample_type`.

use model::{Cpu, Ns, Pid, Tid};

use super::bytes::Cursor;

pub(super) const IP: u64 = 1;
pub(super) const TID: u64 = 1 << 1;
pub(super) const TIME: u64 = 1 << 2;
pub(super) const ADDR: u64 = 1 << 3;
const READ: u64 = 1 << 4;
const CALLCHAIN: u64 = 1 << 5;
pub(super) const ID: u64 = 1 << 6;
pub(super) const CPU: u64 = 1 << 7;
const PERIOD: u64 = 1 << 8;
pub(super) const STREAM_ID: u64 = 1 << 9;
const RAW: u64 = 1 << 10;
pub(super) const IDENTIFIER: u64 = 1 << 16;
pub(super) const AUX: u64 = 1 << 20;

const TRAILER_FIELDS: u64 = TID | TIME | ID | STREAM_ID | CPU | IDENTIFIER;

/// What a record says of its circumstances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SampleFields {
    pub(super) pid: Option<Pid>,
    pub(super) tid: Option<Tid>,
    pub(super) time: Option<Ns>,
    pub(super) id: Option<u64>,
    pub(super) cpu: Option<Cpu>,
}

/// Bytes of the trailer: each field is 8.
pub(super) fn trailer_len(sample_type: u64) -> usize {
    (sample_type & TRAILER_FIELDS).count_ones() as usize * 8
}

/// How far before a record's end its event id stands; `None` if it has none.
pub(super) fn id_from_end(sample_type: u64) -> Option<usize> {
    if sample_type & IDENTIFIER != 0 {
        Some(8)
    } else if sample_type & ID != 0 {
        Some((sample_type & (ID | STREAM_ID | CPU)).count_ones() as usize * 8)
    } else {
        None
    }
}

/// How far before a record's end its time stands; `None` if it has none.
pub(super) fn time_from_end(sample_type: u64) -> Option<usize> {
    let fields = (sample_type & (TRAILER_FIELDS & !TID)).count_ones() as usize;
    (sample_type & TIME != 0).then_some(fields * 8)
}

/// How far after the start of a SAMPLE's body its event id stands; `None` if it has none.
pub(super) fn id_from_start(sample_type: u64) -> Option<usize> {
    if sample_type & IDENTIFIER != 0 {
        Some(0)
    } else if sample_type & ID != 0 {
        Some((sample_type & (IP | TID | TIME | ADDR)).count_ones() as usize * 8)
    } else {
        None
    }
}

/// Splits a record's body into what the record is about and its trailer.
pub(super) fn split_trailer(body: &[u8], sample_type: u64) -> Option<(&[u8], SampleFields)> {
    let (body, trailer) = body.split_at_checked(body.len().checked_sub(trailer_len(sample_type))?)?;
    let has = |bit| sample_type & bit != 0;
    let mut c = Cursor::new(trailer);
    let mut said = SampleFields::default();
    if has(TID) {
        (said.pid, said.tid) = (Some(Pid(c.i32()?)), Some(Tid(c.i32()?)));
    }
    if has(TIME) {
        said.time = Some(Ns(c.u64()?));
    }
    if has(ID) {
        said.id = Some(c.u64()?);
    }
    if has(STREAM_ID) {
        c.u64()?;
    }
    if has(CPU) {
        said.cpu = Some(Cpu(c.u32()?));
        c.u32()?;
    }
    if has(IDENTIFIER) {
        said.id = Some(c.u64()?);
    }
    Some((body, said.or_synthesised()))
}

/// What a tracepoint says: the bytes of PERF_SAMPLE_RAW, and the addresses of its call chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) chain: &'a [u8],
}

/// Reads a SAMPLE: its ids and time, and the data of a tracepoint (`None` without).
pub(super) fn of_sample(
    body: &[u8],
    sample_type: u64,
    read_format: u64,
) -> Option<(SampleFields, Option<Raw<'_>>)> {
    let has = |bit| sample_type & bit != 0;
    let mut c = Cursor::new(body);
    let mut said = SampleFields::default();
    if has(IDENTIFIER) {
        said.id = Some(c.u64()?);
    }
    if has(IP) {
        c.u64()?;
    }
    if has(TID) {
        (said.pid, said.tid) = (Some(Pid(c.i32()?)), Some(Tid(c.i32()?)));
    }
    if has(TIME) {
        said.time = Some(Ns(c.u64()?));
    }
    if has(ADDR) {
        c.u64()?;
    }
    if has(ID) {
        let id = c.u64()?;
        said.id = said.id.or(Some(id));
    }
    if has(STREAM_ID) {
        c.u64()?;
    }
    if has(CPU) {
        said.cpu = Some(Cpu(c.u32()?));
        c.u32()?;
    }
    if has(PERIOD) {
        c.u64()?;
    }
    // What is further on is of no use unless all before it can be stepped over.
    let raw = if has(RAW) { raw(&mut c, has(READ), has(CALLCHAIN), read_format) } else { None };
    Some((said.or_synthesised(), raw))
}

/// The bytes of PERF_SAMPLE_RAW, which stand after the counters and the call chain.
fn raw<'a>(c: &mut Cursor<'a>, has_counters: bool, has_callchain: bool, read_format: u64) -> Option<Raw<'a>> {
    if has_counters {
        skip_counters(c, read_format)?;
    }
    let addresses = if has_callchain { c.u64()? } else { 0 };
    let chain = c.take(usize::try_from(addresses).ok()?.checked_mul(8)?)?;
    let len = usize::try_from(c.u32()?).ok()?;
    Some(Raw { bytes: c.take(len)?, chain })
}

/// `struct read_format` (include/uapi/linux/perf_event.h).
fn skip_counters(c: &mut Cursor<'_>, read_format: u64) -> Option<()> {
    const TIMES: u64 = 0b11;
    const GROUP: u64 = 1 << 3;
    /// Id and how many were lost, of each counter.
    const OF_COUNTER: u64 = 1 << 2 | 1 << 4;
    let each = 1 + (read_format & OF_COUNTER).count_ones() as usize;
    let counters = if read_format & GROUP == 0 { 1 } else { usize::try_from(c.u64()?).ok()? };
    let words = counters.checked_mul(each)?.checked_add((read_format & TIMES).count_ones() as usize)?;
    c.take(words.checked_mul(8)?).map(|_| ())
}

impl SampleFields {
    /// Records that perf made up of the state before it recorded have a trailer of zeros: it says nothing,
    /// not "CPU 0".  A time of 0 never is a time.
    fn or_synthesised(mut self) -> Self {
        if self.time == Some(Ns(0)) {
            self.time = None;
            if self.id.unwrap_or(0) == 0 {
                return Self::default();
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn trailer_with_all_fields() {
        let all = TID | TIME | ID | STREAM_ID | CPU | IDENTIFIER | IP | ADDR;
        let body = words(&[77, 5 | 6 << 32, 1000, 42, 43, 3, 42]);
        let (rest, said) = split_trailer(&body, all).unwrap();
        assert_eq!(rest, words(&[77]));
        assert_eq!(
            said,
            SampleFields {
                pid: Some(Pid(5)),
                tid: Some(Tid(6)),
                time: Some(Ns(1000)),
                id: Some(42),
                cpu: Some(Cpu(3))
            }
        );
        assert_eq!(split_trailer(&body[8..48], all), None);
        assert_eq!(id_from_end(all), Some(8));
        assert_eq!(id_from_end(all & !IDENTIFIER), Some(24));
        assert_eq!(id_from_end(TID | TIME), None);
        assert_eq!(id_from_start(all & !IDENTIFIER), Some(32));
    }

    #[test]
    fn no_fields_and_zeros_say_nothing() {
        let body = words(&[77]);
        assert_eq!(split_trailer(&body, IP), Some((&body[..], SampleFields::default())));
        let zeros = words(&[0, 0, 0, 0]);
        assert_eq!(split_trailer(&zeros, TID | TIME | CPU | IDENTIFIER).unwrap().1, SampleFields::default());
    }

    #[test]
    fn a_sample_has_them_in_front() {
        let body = words(&[42, 0x401000, 5 | 6 << 32, 1000, 3, 99]);
        let (said, raw) = of_sample(&body, IDENTIFIER | IP | TID | TIME | CPU, 0).unwrap();
        assert_eq!((said.id, said.time, said.cpu, raw), (Some(42), Some(Ns(1000)), Some(Cpu(3)), None));
        assert_eq!(of_sample(&body[..16], IDENTIFIER | IP | TID | TIME | CPU, 0), None);
    }

    #[test]
    fn what_a_tracepoint_says_stands_after_counters_and_call_chain() {
        let raw_at = |before: &[u64], sample_type: u64, read_format: u64| {
            let body = [words(before), vec![3, 0, 0, 0, 7, 8, 9, 0]].concat();
            let raw = of_sample(&body, sample_type | RAW, read_format).unwrap().1?;
            Some((raw.bytes.to_vec(), raw.chain.to_vec()))
        };
        let expect = Some((vec![7, 8, 9], vec![]));
        assert_eq!(raw_at(&[], 0, 0), expect);
        assert_eq!(raw_at(&[1000, 1], TIME | PERIOD, 0), expect);
        assert_eq!(raw_at(&[2, 0x401, 0x402], CALLCHAIN, 0), Some((vec![7, 8, 9], words(&[0x401, 0x402]))));
        // One counter with id; two of a group with id and lost, and the times.
        assert_eq!(raw_at(&[55, 1], READ, 4), expect);
        assert_eq!(raw_at(&[2, 10, 11, 55, 1, 0, 56, 2, 0], READ, 0x1f), expect);
        assert_eq!(raw_at(&[u64::MAX, 1], CALLCHAIN, 0), None);
        assert_eq!(raw_at(&[u64::MAX, 1], READ, 0x1f), None);
    }
}
