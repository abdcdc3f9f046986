//! The trace: payloads and PERF_RECORD_AUX, sorted into the buffers that they belong to.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::{AuxBuffer, AuxOffset, AuxOwner, AuxPiece, AuxRecord, Cpu, Damage, Ns, Tid};

use super::bytes::Cursor;
use super::records::RawRecord;
use super::sample_id::SampleFields;
use super::snapshots::{self, PAYLOAD_ALIGN};

/// Where the stream of a buffer ends at the latest: at 1 GB/s that takes 292 years. What a decoder adds to
/// an offset (the size of a segment, what it reads ahead) does not wrap then.
const STREAM_END_MAX: u64 = 1 << 63;
/// "No CPU", "no thread".
const NONE: u32 = u32::MAX;

/// An entry of ID_INDEX: the buffer that an event's id writes to.
#[derive(Clone, Copy, Debug)]
struct IdEntry {
    /// `None` for events that have no buffer (-1).
    index: Option<u32>,
    owner: AuxOwner,
    /// It traces a thread, wherever that runs, or on that CPU.
    is_of_thread: bool,
}

/// An AUX record of a stream, and the fields of its trailer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    pub(super) record: AuxRecord,
    pub(super) by: SampleFields,
}

/// All buffers of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffers<'a> {
    by_index: BTreeMap<u32, AuxBuffer<'a>>,
    ids: HashMap<u64, IdEntry>,
    said: Vec<Said>,
}

/// The owner that AUXTRACE and ID_INDEX name.
pub(super) fn owner(cpu: u32, tid: u32) -> AuxOwner {
    if cpu == NONE { AuxOwner::Thread(Tid(tid as i32)) } else { AuxOwner::Cpu(Cpu(cpu)) }
}

/// A stream may have `len` bytes at `offset`.
fn is_possible(offset: u64, len: u64) -> bool {
    offset.checked_add(len).is_some_and(|end| end <= STREAM_END_MAX)
}

impl<'a> Buffers<'a> {
    /// Takes an AUXTRACE record with its payload.
    pub(super) fn add_payload(&mut self, record: &RawRecord<'_>, payload: &'a [u8]) -> Result<(), String> {
        let mut c = Cursor::new(record.body);
        let _len = c.u64();
        let mut place = || -> Option<_> {
            let offset = c.u64()?;
            let _reference = c.u64()?;
            let (index, tid, cpu) = (c.u32()?, c.u32()?, c.u32()?);
            Some((offset, index, owner(cpu, tid)))
        };
        let (offset, index, owner) = place().ok_or("the AUXTRACE record is too short")?;
        if !is_possible(offset, payload.len() as u64) {
            return Err(format!("an AUX offset of {offset:#x} is impossible"));
        }
        let buffer = self.buffer(index, owner);
        if buffer.owner != owner {
            return Err(format!("buffer {index} is that of {:?} and of {owner:?}", buffer.owner));
        }
        let offset = AuxOffset(offset);
        buffer.pieces.push(AuxPiece { offset, bytes: payload, file_offset: record.payload_offset });
        Ok(())
    }

    /// The buffer with this number of perf's, which is of `owner` if it was not known.
    pub(super) fn buffer(&mut self, index: u32, owner: AuxOwner) -> &mut AuxBuffer<'a> {
        let empty = || AuxBuffer { index, owner, pieces: Vec::new(), records: Vec::new() };
        self.by_index.entry(index).or_insert_with(empty)
    }

    /// The owner of the buffer with this number of perf's.
    pub(super) fn owner_of(&self, index: u32) -> Option<AuxOwner> {
        self.by_index.get(&index).map(|buffer| buffer.owner)
    }

    /// Takes the body of an ID_INDEX record; returns the threads that have buffers of their own by it. `None`
    /// if it is shorter than it says.
    pub(super) fn add_ids(&mut self, body: &[u8]) -> Option<BTreeSet<Tid>> {
        let mut threads = BTreeSet::new();
        let mut c = Cursor::new(body);
        for _ in 0..c.u64()? {
            let (id, index, cpu, tid) = (c.u64()?, c.u64()?, c.u64()?, c.u64()?);
            // Absent is -1, in 64 bits here; the low half of it is the -1 of AUXTRACE.
            let (index, is_of_thread) = (u32::try_from(index).ok(), tid as u32 != NONE);
            let entry = IdEntry { index, owner: owner(cpu as u32, tid as u32), is_of_thread };
            self.ids.insert(id, entry);
            threads.extend(if let AuxOwner::Thread(tid) = entry.owner { Some(tid) } else { None });
        }
        Some(threads)
    }

    /// The CPUs that events were opened on, by ID_INDEX.
    pub(super) fn cpus(&self) -> impl Iterator<Item = (u64, Cpu)> {
        self.ids.iter().filter_map(|(id, entry)| match entry.owner {
            AuxOwner::Cpu(cpu) => Some((*id, cpu)),
            AuxOwner::Thread(_) => None,
        })
    }

    /// The event with this id is about all that runs on its CPU.
    pub(super) fn is_of_whole_cpu(&self, id: u64) -> bool {
        self.ids.get(&id).is_some_and(|entry| !entry.is_of_thread)
    }

    /// Takes a PERF_RECORD_AUX.  Its buffer may not be known yet.
    pub(super) fn add_record(&mut self, record: AuxRecord, by: SampleFields) -> Result<(), String> {
        if !is_possible(record.offset.0, record.size) {
            return Err(format!("AUX data at {} of {} bytes is impossible", record.offset, record.size));
        }
        self.said.push(Said { record, by });
        Ok(())
    }

    /// The buffer that an AUX record speaks of. `None`: it is not known, or of several under a number none
    /// is named.
    pub(super) fn index_of(&self, said: &Said) -> Option<u32> {
        let owned_by = |owner: AuxOwner| {
            let mut owned = self.by_index.values().filter(|buffer| buffer.owner == owner);
            let only = owned.next().filter(|_| owned.next().is_none())?;
            Some(only.index)
        };
        if let Some(entry) = said.by.id.and_then(|id| self.ids.get(&id)) {
            let named = entry.index.and_then(|index| self.by_index.get(&index));
            if let Some(buffer) = named.filter(|buffer| buffer.owner == entry.owner) {
                return Some(buffer.index);
            }
            // Without trace in the file: the buffer that is there is of another thread with the number.
            let is_missing = entry.index.is_some() && named.is_none();
            let is_of_thread = matches!(entry.owner, AuxOwner::Thread(_));
            return if is_missing && is_of_thread { None } else { owned_by(entry.owner) };
        }
        let by_cpu = said.by.cpu.and_then(|cpu| owned_by(AuxOwner::Cpu(cpu)));
        let by_thread = || said.by.tid.and_then(|tid| owned_by(AuxOwner::Thread(tid)));
        let only = || self.by_index.keys().next().copied().filter(|_| self.by_index.len() == 1);
        by_cpu.or_else(by_thread).or_else(only)
    }

    /// Buffers for AUX records without any trace in the file, as when perf was killed before it read the
    /// buffer: the loss must be seen.
    fn add_lost_buffers(&mut self) {
        for said in std::mem::take(&mut self.said) {
            let silent = said.record.size == 0 && !said.record.lost_data();
            let entry = said.by.id.and_then(|id| self.ids.get(&id)).copied();
            if let Some(IdEntry { index: Some(index), owner, .. }) = entry
                && !silent
                && self.index_of(&said).is_none()
                && !self.by_index.contains_key(&index)
            {
                self.buffer(index, owner);
            }
            self.said.push(said);
        }
    }

    /// What the kernel had written by then is all that there is.
    pub(super) fn end_at(&mut self, until: Ns) {
        self.said.retain(|said| said.record.time.is_none_or(|time| time <= until));
        let mut ends: BTreeMap<u32, AuxOffset> = BTreeMap::new();
        for said in &self.said {
            if let Some(index) = self.index_of(said) {
                let end = ends.entry(index).or_insert(AuxOffset(0));
                *end = (*end).max(said.record.end());
            }
        }
        for buffer in self.by_index.values_mut() {
            let end = ends.get(&buffer.index).map_or(0, |end| end.0);
            for piece in &mut buffer.pieces {
                let len = usize::try_from(end.saturating_sub(piece.offset.0)).unwrap_or(usize::MAX);
                piece.bytes = piece.bytes.get(..len).unwrap_or(piece.bytes);
            }
            buffer.pieces.retain(|piece| !piece.bytes.is_empty());
        }
    }

    /// Everything in its place and order; overlaps, which snapshots alone may have, are told to `damage`.
    pub(super) fn finish(mut self, snapshot: bool, damage: &mut impl FnMut(Damage)) -> Vec<AuxBuffer<'a>> {
        self.add_lost_buffers();
        for said in std::mem::take(&mut self.said) {
            if let Some(buffer) = self.index_of(&said).and_then(|index| self.by_index.get_mut(&index)) {
                buffer.records.push(said.record);
            }
        }
        let mut buffers: Vec<_> = self.by_index.into_values().collect();
        for buffer in &mut buffers {
            let last_said = buffer.records.last().copied();
            buffer.records.sort_by_key(|record| record.offset);
            let mut pieces = std::mem::take(&mut buffer.pieces);
            if snapshot {
                // The kernel's offsets are places in its ring.
                (buffer.pieces, buffer.records) = snapshots::joined(pieces, last_said);
            } else {
                pieces.sort_by_key(|piece| piece.offset);
                buffer.pieces = without_overlaps(pieces, damage);
            }
        }
        buffers
    }
}

/// Pieces that are sorted by offset, without what two of them have.
fn without_overlaps<'a>(pieces: Vec<AuxPiece<'a>>, damage: &mut impl FnMut(Damage)) -> Vec<AuxPiece<'a>> {
    let mut kept: Vec<AuxPiece<'a>> = Vec::with_capacity(pieces.len());
    for mut piece in pieces {
        let Some(last) = kept.last_mut() else {
            kept.push(piece);
            continue;
        };
        let over = (last.offset.0 + last.bytes.len() as u64).saturating_sub(piece.offset.0);
        let over_len = usize::try_from(over).unwrap_or(usize::MAX);
        let split = last.bytes.len().saturating_sub(over_len);
        let (front, tail) = last.bytes.split_at(split);
        if over < PAYLOAD_ALIGN && tail.iter().all(|b| *b == 0) {
            last.bytes = front;
            kept.push(piece);
            continue;
        }
        let file_offset = piece.file_offset.max(last.file_offset);
        let what = format!("{over} bytes of trace at AUX offset {} are there twice", piece.offset);
        damage(Damage { file_offset, what });
        if let Some(rest) = piece.bytes.get(over_len..).filter(|rest| !rest.is_empty()) {
            piece.bytes = rest;
            piece.offset = piece.offset.plus(over);
            piece.file_offset += over;
            kept.push(piece);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(list: &[(u64, &'static [u8])]) -> Vec<AuxPiece<'static>> {
        list.iter().map(|(at, bytes)| AuxPiece { offset: AuxOffset(*at), bytes, file_offset: 0 }).collect()
    }

    fn merged(list: &[(u64, &'static [u8])]) -> (Vec<(u64, &'static [u8])>, usize) {
        let mut found = 0;
        let kept = without_overlaps(pieces(list), &mut |_| found += 1);
        (kept.into_iter().map(|p| (p.offset.0, p.bytes)).collect(), found)
    }

    #[test]
    fn padding_is_no_overlap() {
        assert_eq!(
            merged(&[(0, &[1, 2, 0, 0]), (2, &[3, 4]), (4, &[5])]),
            (vec![(0, &[1, 2][..]), (2, &[3, 4]), (4, &[5])], 0)
        );
        // A hole stays a hole.
        assert_eq!(merged(&[(0, &[1]), (9, &[2])]), (vec![(0, &[1][..]), (9, &[2])], 0));
    }

    #[test]
    fn what_is_there_twice_is_damage() {
        assert_eq!(merged(&[(0, &[1, 2, 3]), (1, &[2, 3, 4])]), (vec![(0, &[1, 2, 3][..]), (3, &[4])], 1));
        assert_eq!(
            merged(&[(0, &[1, 2, 3]), (1, &[2]), (3, &[4])]),
            (vec![(0, &[1, 2, 3][..]), (3, &[4])], 1)
        );
    }

    fn said(id: Option<u64>, cpu: Option<u32>, tid: Option<i32>, size: u64) -> Said {
        let record = AuxRecord { offset: AuxOffset(0), size, flags: 0, time: None };
        Said {
            record,
            by: SampleFields { id, cpu: cpu.map(Cpu), tid: tid.map(Tid), ..SampleFields::default() },
        }
    }

    #[test]
    fn aux_records_find_their_buffer() {
        let mut b = Buffers::default();
        b.buffer(0, AuxOwner::Cpu(Cpu(4)));
        b.buffer(1, AuxOwner::Cpu(Cpu(5)));
        b.buffer(2, AuxOwner::Thread(Tid(70)));
        let mut ids: Vec<u8> = 3u64.to_le_bytes().to_vec();
        let none = u64::MAX;
        ids.extend(
            [100, 1, 5, none, 101, 9, none, 71, 102, none, 4, 1].iter().flat_map(|w: &u64| w.to_le_bytes()),
        );
        assert_eq!(b.add_ids(&ids), Some([Tid(71)].into()));
        // The id decides, then the CPU, then the thread.
        assert_eq!(b.index_of(&said(Some(100), Some(4), Some(70), 8)), Some(1));
        assert_eq!(b.index_of(&said(Some(102), Some(5), None, 8)), Some(0));
        assert_eq!(b.index_of(&said(None, Some(4), Some(70), 8)), Some(0));
        assert_eq!(b.index_of(&said(None, None, Some(70), 8)), Some(2));
        assert_eq!(b.index_of(&said(None, None, None, 8)), None);
        let mut reused = b.clone();
        reused.buffer(3, AuxOwner::Thread(Tid(70)));
        assert_eq!(reused.index_of(&said(None, None, Some(70), 8)), None, "one of two");
        // Trace that is not in the file makes an empty buffer, silence does not.
        b.said = vec![said(Some(101), None, None, 0)];
        assert_eq!(b.clone().finish(false, &mut |_| ()).len(), 3);
        b.said = vec![said(Some(101), None, None, 8)];
        let buffers = b.finish(false, &mut |_| ());
        assert_eq!((buffers[3].index, buffers[3].owner), (9, AuxOwner::Thread(Tid(71))));
        assert_eq!((buffers[3].pieces.len(), buffers[3].records.len()), (0, 1));
    }

    /// It was told of the buffer of the next thread with the number.
    #[test]
    fn what_is_said_of_a_buffer_without_trace_is_of_no_other_one() {
        let mut b = Buffers::default();
        b.buffer(2, AuxOwner::Thread(Tid(70)));
        let entry = [1, 100, 1, u64::MAX, 70].iter().flat_map(|word: &u64| word.to_le_bytes());
        b.add_ids(&entry.collect::<Vec<_>>());
        b.said = vec![said(Some(100), None, Some(70), 8)];
        let buffers = b.finish(false, &mut |_| ());
        let records: Vec<_> = buffers.iter().map(|buffer| (buffer.index, buffer.records.len())).collect();
        assert_eq!(records, [(1, 1), (2, 0)]);
    }

    #[test]
    fn short_id_index() {
        let mut b = Buffers::default();
        assert_eq!(b.add_ids(&u64::MAX.to_le_bytes()), None);
    }
}
