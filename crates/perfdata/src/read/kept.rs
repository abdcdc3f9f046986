//! Keeps the sideband records, up to the number that a real file of the size may have.
//!
//! A record of 8 bytes in the file takes some 90 in memory, so that a small file could be made which does not
//! fit into it (packed records, `perf record -z`, take still less). A real file's records are in proportion
//! to its size.

use model::SidebandRecord;

/// Bytes of a context switch with its trailer: of the records that are many, a kernel writes none that are
/// smaller.
const RECORD_BYTES: usize = 32;
/// Any file may have this number of records: packed records are smaller, and not in proportion to anything.
const ALWAYS: usize = 1 << 24;

/// Records in the order of the file.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) records: Vec<SidebandRecord>,
    most: usize,
}

impl Kept {
    /// For a recording of `bytes` bytes, trace included.
    pub(super) fn of_file(bytes: usize) -> Self {
        Self { records: Vec::new(), most: (bytes / RECORD_BYTES).max(ALWAYS) }
    }

    /// # Errors
    /// There are more than in any real file.
    pub(super) fn push(&mut self, record: SidebandRecord) -> Result<(), String> {
        if self.records.len() >= self.most {
            return Err(format!("more than {} sideband records in so small a file", self.most));
        }
        self.records.push(record);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use model::Sideband;

    use super::*;

    /// A busy server has more than 2^24 switches; a recording of them was called damaged.
    #[test]
    fn a_large_file_has_as_many_as_the_kernel_writes() {
        let switches = (1 << 24) + 1;
        assert!(Kept::of_file(switches * 40).most >= switches);
        assert_eq!(Kept::of_file(0).most, ALWAYS);
        assert!(size_of::<SidebandRecord>() <= 96, "{}", size_of::<SidebandRecord>());
    }

    #[test]
    fn one_too_many_is_an_error() {
        let body = Sideband::Switch { out: true, preempted: false };
        let switch = SidebandRecord { time: None, cpu: None, pid: None, tid: None, file_offset: 0, body };
        let mut kept = Kept { records: Vec::new(), most: 2 };
        assert_eq!([(); 2].map(|()| kept.push(switch.clone())), [Ok(()), Ok(())]);
        assert_eq!(kept.push(switch), Err("more than 2 sideband records in so small a file".to_owned()));
        assert_eq!(kept.records.len(), 2);
    }
}
