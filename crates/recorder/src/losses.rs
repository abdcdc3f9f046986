//! What the kernel says it could not write, counted from its records.

use model::{AuxOwner, AuxRecord, Ns, Pid, Tid};

/// PERF_RECORD_LOST.
const LOST: u32 = 2;
/// PERF_RECORD_FORK.
const FORK: u32 = 7;
/// PERF_RECORD_AUX.
const AUX: u32 = 11;
const HEADER_BYTES: usize = 8;

/// Losses of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losses {
    /// The thread or CPU that the buffer is of.
    pub owner: AuxOwner,
    /// Bytes of trace that were read.
    pub trace_bytes: u64,
    /// How often the buffer of trace was full.
    pub full: u64,
    /// How often another user of the trace unit was in the way.
    pub collisions: u64,
    /// How often there was a hole: KVM ran a virtual machine, which stops the trace unit.
    pub partial: u64,
    /// Sideband records that did not fit their buffer.
    pub lost_records: u64,
}

/// The birth of a thread, from a FORK record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Birth {
    pub(crate) pid: Pid,
    pub(crate) tid: Tid,
    pub(crate) time: Ns,
}

/// What a batch of records tells the drain that reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noticed {
    /// The last AUX record says that the buffer was full, so that the kernel has disabled the event.
    pub(crate) full: bool,
    pub(crate) births: Vec<Birth>,
}

impl Losses {
    pub(crate) fn none(owner: AuxOwner) -> Self {
        Self { owner, trace_bytes: 0, full: 0, collisions: 0, partial: 0, lost_records: 0 }
    }

    /// Something is missing.
    #[must_use]
    pub fn any(&self) -> bool {
        [self.full, self.collisions, self.partial, self.lost_records].iter().any(|count| *count > 0)
    }

    /// Counts what the kernel's own records say.
    pub(crate) fn notice(&mut self, records: &[u8]) -> Noticed {
        let mut noticed = Noticed::default();
        let mut rest = records;
        while let Some((kind, body, after)) = next(rest) {
            rest = after;
            match kind {
                AUX => {
                    let flags = word(body, 2);
                    let counted = |flag: u64| u64::from(flags & flag != 0);
                    self.full += counted(AuxRecord::TRUNCATED);
                    self.collisions += counted(AuxRecord::COLLISION);
                    self.partial += counted(AuxRecord::PARTIAL);
                    noticed.full |= flags & AuxRecord::TRUNCATED != 0;
                }
                LOST => self.lost_records = self.lost_records.saturating_add(word(body, 1)),
                FORK => {
                    let (pids, tids) = (word(body, 0), word(body, 1));
                    let (pid, tid) = (Pid(pids as u32 as i32), Tid(tids as u32 as i32));
                    noticed.births.push(Birth { pid, tid, time: Ns(word(body, 2)) });
                }
                _ => (),
            }
        }
        noticed
    }
}

/// The first record: its type, its body, what follows.
fn next(records: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let kind = u32::from_le_bytes(records.get(..4)?.try_into().ok()?);
    let size = usize::from(u16::from_le_bytes(records.get(6..HEADER_BYTES)?.try_into().ok()?));
    let (record, after) = records.split_at_checked(size.max(HEADER_BYTES))?;
    Some((kind, record.get(HEADER_BYTES..)?, after))
}

/// The `index`-th word; 0 after the end.
fn word(body: &[u8], index: usize) -> u64 {
    let bytes = body.get(8 * index..8 * index + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use perfdata::write::{Record, SampleId};

    use super::*;

    #[test]
    fn losses_are_counted_and_births_seen() {
        let id = SampleId { time: Ns(5), ..SampleId::default() };
        let mut records = vec![];
        let aux = |flags| Record::Aux { offset: 0, size: 8, flags };
        aux(0).encode(&id, &mut records);
        aux(AuxRecord::TRUNCATED | AuxRecord::PARTIAL).encode(&id, &mut records);
        aux(AuxRecord::COLLISION).encode(&id, &mut records);
        let birth = Record::Fork { pid: Pid(7), tid: Tid(9), parent_pid: Pid(7), parent_tid: Tid(7) };
        birth.encode(&id, &mut records);
        records.extend([2, 0, 0, 0, 0, 0, 24, 0].iter().chain(&[1; 8]).chain(&[3, 0, 0, 0, 0, 0, 0, 0]));

        let mut losses = Losses::none(AuxOwner::Thread(Tid(7)));
        let noticed = losses.notice(&records);
        assert_eq!(
            noticed,
            Noticed { full: true, births: vec![Birth { pid: Pid(7), tid: Tid(9), time: Ns(5) }] }
        );
        assert_eq!((losses.full, losses.partial, losses.collisions, losses.lost_records), (1, 1, 1, 3));
        assert!(losses.any() && !Losses::none(losses.owner).any());
        assert_eq!(losses.notice(&records[..3]), Noticed::default());
    }
}
