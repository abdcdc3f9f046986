//! What the kernel says it could not write, counted from its records.

use model::{AuxOwner, AuxRecord};
use perfdata::record_types;

use crate::buffer_records::{BufferRecords, TaskRecord};

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

/// What a batch of records tells the drain that reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noticed {
    /// The last AUX record says that the buffer was full, so that the kernel has disabled the event.
    pub(crate) full: bool,
    pub(crate) births: Vec<TaskRecord>,
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
        for record in BufferRecords::of(records) {
            match record.kind() {
                // `aux_offset, aux_size, flags`
                Some(record_types::AUX) => {
                    let flags = record.u64(24).unwrap_or_default();
                    let counted = |flag: u64| u64::from(flags & flag != 0);
                    self.full += counted(AuxRecord::TRUNCATED);
                    self.collisions += counted(AuxRecord::COLLISION);
                    self.partial += counted(AuxRecord::PARTIAL);
                    noticed.full |= flags & AuxRecord::TRUNCATED != 0;
                }
                // `id, lost`
                Some(record_types::LOST) => {
                    self.lost_records = self.lost_records.saturating_add(record.u64(16).unwrap_or_default());
                }
                Some(record_types::FORK) => noticed.births.extend(record.task()),
                _ => (),
            }
        }
        noticed
    }
}

#[cfg(test)]
mod tests {
    use model::{Ns, Pid, Tid};
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
        let birth = TaskRecord { pid: Pid(7), parent_pid: Pid(7), tid: Tid(9), time: Ns(5) };
        assert_eq!(noticed, Noticed { full: true, births: vec![birth] });
        assert_eq!((losses.full, losses.partial, losses.collisions, losses.lost_records), (1, 1, 1, 3));
        assert!(losses.any() && !Losses::none(losses.owner).any());
        assert_eq!(losses.notice(&records[..3]), Noticed::default());
    }
}
