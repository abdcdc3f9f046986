//! Records as the kernel writes them into a buffer, one after the other (include/uapi/linux/perf_event.h).
//!
//! ```text
//!   0     4     6     8
//!   type  misc  size  body ...
//! ```

use model::{Ns, Pid, Tid};
use perfdata::record_types::HEADER_SIZE;

/// A whole record. Fields are found by their distance from its begin; those behind its end are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferRecord<'a>(&'a [u8]);

impl<'a> BufferRecord<'a> {
    /// With its header.
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// One of [`perfdata::record_types`], or another.
    pub(crate) fn kind(self) -> Option<u32> {
        self.u32(0)
    }

    /// Whether a flag of `misc` is set; they differ by type.
    pub(crate) fn has_flag(self, flag: u16) -> bool {
        self.field(4).is_some_and(|misc| u16::from_le_bytes(misc) & flag != 0)
    }

    pub(crate) fn u32(self, at: usize) -> Option<u32> {
        self.field(at).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(self, at: usize) -> Option<u64> {
        self.field(at).map(u64::from_le_bytes)
    }

    pub(crate) fn time(self, at: usize) -> Option<Ns> {
        self.u64(at).map(Ns)
    }

    /// What a FORK or EXIT says: `pid, ppid, tid, ptid, time`.
    pub(crate) fn task(self) -> Option<TaskRecord> {
        let id = |at| self.u32(at).map(u32::cast_signed);
        let (pid, parent_pid, tid) = (Pid(id(8)?), Pid(id(12)?), Tid(id(16)?));
        Some(TaskRecord { pid, parent_pid, tid, time: self.time(24)? })
    }

    fn field<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at + N)?.try_into().ok()
    }
}

/// The birth or the death of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskRecord {
    pub(crate) pid: Pid,
    pub(crate) parent_pid: Pid,
    pub(crate) tid: Tid,
    pub(crate) time: Ns,
}

/// The whole records at the begin of some bytes.
#[derive(Clone, Debug)]
pub(crate) struct BufferRecords<'a>(&'a [u8]);

impl<'a> BufferRecords<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl<'a> Iterator for BufferRecords<'a> {
    type Item = BufferRecord<'a>;

    fn next(&mut self) -> Option<BufferRecord<'a>> {
        let size = BufferRecord(self.0).field(6).map(u16::from_le_bytes).map(usize::from)?;
        let (record, after) = self.0.split_at_checked(size).filter(|_| size >= HEADER_SIZE)?;
        self.0 = after;
        Some(BufferRecord(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_records_are_taken_one_by_one() {
        let record = |kind: u32, size: u16| {
            let mut bytes = kind.to_le_bytes().to_vec();
            bytes.extend_from_slice(&[0, 0x20]);
            bytes.extend_from_slice(&size.to_le_bytes());
            bytes.resize(usize::from(size), 7);
            bytes
        };
        let bytes = [record(10, 16), record(14, 8), record(4, 32)].concat();
        let mut records = BufferRecords::of(&bytes);
        let seen: Vec<_> = records.by_ref().map(|it| (it.kind(), it.bytes().len())).collect();
        assert_eq!((seen, records.0.len()), (vec![(Some(10), 16), (Some(14), 8), (Some(4), 32)], 0));
        assert_eq!(BufferRecords::of(&record(1, 16)[..12]).next(), None, "a record without its end");
        assert_eq!(BufferRecords::of(&[0; 16]).next(), None, "a record of no bytes");

        let bytes = record(1, 16);
        let first = BufferRecords::of(&bytes).next().unwrap();
        assert_eq!((first.has_flag(0x2000), first.has_flag(0x20)), (true, false));
        assert_eq!((first.u32(12), first.u32(13)), (Some(0x0707_0707), None));
        assert_eq!((first.time(8), first.u64(9)), (Some(Ns(0x0707_0707_0707_0707)), None));
    }
}
