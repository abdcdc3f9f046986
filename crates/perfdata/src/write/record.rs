//! Sideband records, from typed values.

use model::{BuildId, Cpu, FileOffset, Ns, Pid, Tid};

use super::le::Append;
use crate::record_types::{
    AUX, COMM, EXIT, FORK, HEADER_SIZE, ITRACE_START, LOST, LOST_SAMPLES, MISC_COMM_EXEC, MISC_KERNEL,
    MISC_MMAP_BUILD_ID, MISC_SWITCH_OUT, MISC_SWITCH_OUT_PREEMPT, MISC_USER, MMAP, MMAP2, SWITCH,
    SWITCH_CPU_WIDE,
};

/// Strings in records are padded to this.
const STR_ALIGNMENT: usize = 8;

/// The trailer of every record: process, thread, time, CPU and event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleId {
    /// Current process.
    pub pid: Pid,
    /// Current thread.
    pub tid: Tid,
    /// When; 0 in records that perf synthesised: true from the start.
    pub time: Ns,
    /// On which CPU.
    pub cpu: Cpu,
    /// Id of the event that wrote the record; 0 if synthesised.
    pub id: u64,
}

impl SampleId {
    fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.pid.0 as u32);
        out.u32(self.tid.0 as u32);
        out.u64(self.time.0);
        out.u32(self.cpu.0);
        out.u32(0);
        out.u64(self.id);
    }
}

/// How a mapped file is told from another one of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileIdentity {
    /// Device and inode.
    Inode {
        /// Major number of the device.
        major: u32,
        /// Minor number.
        minor: u32,
        /// Inode.
        inode: u64,
        /// Generation of the inode.
        generation: u64,
    },
    /// Build id (the `build_id` bit of the attr).
    BuildId(BuildId),
}

/// A sideband record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A file (or memory) was mapped.
    Mmap2 {
        /// Process; -1 for the kernel.
        pid: Pid,
        /// Thread.
        tid: Tid,
        /// First address.
        start: u64,
        /// Bytes.
        len: u64,
        /// Where in the file.
        file_offset: FileOffset,
        /// Which file.
        identity: FileIdentity,
        /// PROT_*.
        protection: u32,
        /// MAP_*.
        flags: u32,
        /// The file's path, as the kernel names it.
        path: &'a str,
    },
    /// The kernel's text, as perf makes it up.
    KernelMmap {
        /// First address.
        start: u64,
        /// Bytes.
        len: u64,
        /// Where the symbol is that `path` ends with: with the file's, that tells how far the kernel was
        /// moved.
        reference: u64,
        /// `[kernel.kallsyms]_text`.
        path: &'a str,
    },
    /// A name.
    Comm {
        /// Process.
        pid: Pid,
        /// Thread.
        tid: Tid,
        /// The name.
        name: &'a str,
        /// It changed because a new program was executed.
        exec: bool,
    },
    /// A thread was born.
    Fork {
        /// Its process.
        pid: Pid,
        /// The newborn.
        tid: Tid,
        /// Its creator's process.
        parent_pid: Pid,
        /// Its creator.
        parent_tid: Tid,
    },
    /// A thread died.
    Exit {
        /// Its process.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// Its creator's process.
        parent_pid: Pid,
        /// Its creator.
        parent_tid: Tid,
    },
    /// Records of the CPU were lost.
    Lost {
        /// How many.
        count: u64,
    },
    /// Everything from before [`SampleId::time`] is in the file: as LOST_SAMPLES of no samples, which perf
    /// passes over.
    Complete,
    /// New trace data.
    Aux {
        /// Where in the buffer's stream.
        offset: u64,
        /// Bytes.
        size: u64,
        /// PERF_AUX_FLAG_*, see [`model::AuxRecord`].
        flags: u64,
    },
    /// Tracing of a thread began.
    ItraceStart {
        /// Process.
        pid: Pid,
        /// Thread.
        tid: Tid,
    },
    /// The current thread went on or off its CPU.
    Switch {
        /// Off.
        out: bool,
        /// It would have run on.
        preempted: bool,
    },
    /// The current thread went on or off its CPU, where all threads are recorded.
    SwitchCpuWide {
        /// Off.
        out: bool,
        /// It would have run on.
        preempted: bool,
        /// Process of the next (out) or previous (in) thread.
        other_pid: Pid,
        /// That thread.
        other_tid: Tid,
    },
}

impl Record<'_> {
    /// Appends the record as the kernel writes it.
    pub fn encode(&self, id: &SampleId, out: &mut Vec<u8>) {
        let start = out.len();
        let (record_type, misc) = self.type_and_misc();
        out.u32(record_type);
        out.u16(misc);
        out.u16(0); // size, below
        self.encode_body(id, out);
        id.encode(out);
        patch_size(out, start);
    }

    fn type_and_misc(&self) -> (u32, u16) {
        let switch = |out: bool, preempted: bool| match (out, preempted) {
            (false, _) => 0,
            (true, false) => MISC_SWITCH_OUT,
            (true, true) => MISC_SWITCH_OUT | MISC_SWITCH_OUT_PREEMPT,
        };
        match self {
            Self::Mmap2 { identity: FileIdentity::Inode { .. }, .. } => (MMAP2, MISC_USER),
            Self::Mmap2 { .. } => (MMAP2, MISC_USER | MISC_MMAP_BUILD_ID),
            Self::KernelMmap { .. } => (MMAP, MISC_KERNEL),
            Self::Comm { exec, .. } => (COMM, u16::from(*exec) * MISC_COMM_EXEC),
            Self::Fork { .. } => (FORK, 0),
            Self::Exit { .. } => (EXIT, 0),
            Self::Lost { .. } => (LOST, 0),
            Self::Complete => (LOST_SAMPLES, 0),
            Self::Aux { .. } => (AUX, 0),
            Self::ItraceStart { .. } => (ITRACE_START, 0),
            Self::Switch { out, preempted } => (SWITCH, switch(*out, *preempted)),
            Self::SwitchCpuWide { out, preempted, .. } => (SWITCH_CPU_WIDE, switch(*out, *preempted)),
        }
    }

    fn encode_body(&self, id: &SampleId, to: &mut Vec<u8>) {
        match self {
            Self::Mmap2 { pid, tid, start, len, file_offset, identity, protection, flags, path } => {
                put_ids(to, &[pid.0, tid.0]);
                to.u64(*start);
                to.u64(*len);
                to.u64(file_offset.0);
                identity.encode(to);
                to.u32(*protection);
                to.u32(*flags);
                to.padded_str(path, STR_ALIGNMENT);
            }
            Self::KernelMmap { start, len, reference, path } => {
                put_ids(to, &[-1, 0]);
                [start, len, reference].into_iter().for_each(|&value| to.u64(value));
                to.padded_str(path, STR_ALIGNMENT);
            }
            Self::Comm { pid, tid, name, .. } => {
                put_ids(to, &[pid.0, tid.0]);
                to.padded_str(name, STR_ALIGNMENT);
            }
            Self::Fork { pid, tid, parent_pid, parent_tid }
            | Self::Exit { pid, tid, parent_pid, parent_tid } => {
                put_ids(to, &[pid.0, parent_pid.0, tid.0, parent_tid.0]);
                to.u64(id.time.0);
            }
            Self::Lost { count } => {
                to.u64(id.id);
                to.u64(*count);
            }
            Self::Complete => to.u64(0),
            Self::Aux { offset, size, flags } => {
                [offset, size, flags].into_iter().for_each(|&value| to.u64(value));
            }
            Self::ItraceStart { pid, tid } => put_ids(to, &[pid.0, tid.0]),
            Self::Switch { .. } => (),
            Self::SwitchCpuWide { other_pid, other_tid, .. } => put_ids(to, &[other_pid.0, other_tid.0]),
        }
    }
}

impl FileIdentity {
    /// 24 bytes: a union in the kernel's record.
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Inode { major, minor, inode, generation } => {
                out.u32(*major);
                out.u32(*minor);
                out.u64(*inode);
                out.u64(*generation);
            }
            Self::BuildId(build_id) => {
                let start = out.len();
                let bytes = &build_id.0[..build_id.0.len().min(20)];
                out.extend_from_slice(&[bytes.len() as u8, 0, 0, 0]);
                out.extend_from_slice(bytes);
                out.resize(start + 24, 0);
            }
        }
    }
}

fn put_ids(to: &mut Vec<u8>, ids: &[i32]) {
    ids.iter().for_each(|&id| to.u32(id as u32));
}

/// A record without sample id (perf's own, type 64 and up).
pub(super) fn user_record(record_type: u32, body: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    out.u32(record_type);
    out.u16(0);
    out.u16(0);
    out.extend_from_slice(body);
    patch_size(&mut out, 0);
    out
}

/// Writes the size of the record that starts at `start` and ends here.  Larger ones than 16 bits can say
/// get size 0, which [`super::Writer::record`] refuses.
pub(super) fn patch_size(out: &mut [u8], start: usize) {
    let size = u16::try_from(out.len() - start).unwrap_or(0);
    if let Some(field) = out.get_mut(start + 6..start + HEADER_SIZE) {
        field.copy_from_slice(&size.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: SampleId =
        SampleId { pid: Pid(0x11), tid: Tid(0x12), time: Ns(0x1314), cpu: Cpu(2), id: 0x1516 };

    fn words(record: &Record<'_>) -> Vec<u64> {
        let mut bytes = vec![];
        record.encode(&ID, &mut bytes);
        assert_eq!(bytes.len() % 8, 0);
        bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect()
    }

    #[test]
    fn records_are_laid_out_as_the_kernel_does() {
        let trailer = [0x12 << 32 | 0x11, 0x1314, 2, 0x1516];
        let check = |record: Record<'_>, misc: u64, record_type: u64, body: &[u64]| {
            let size = 8 * (1 + body.len() as u64 + 4);
            let expect: Vec<u64> = [&[size << 48 | misc << 32 | record_type], body, &trailer].concat();
            assert_eq!(words(&record), expect, "{record:?}");
        };
        check(Record::Switch { out: true, preempted: true }, 3 << 13, 14, &[]);
        check(Record::Switch { out: false, preempted: true }, 0, 14, &[]);
        check(
            Record::SwitchCpuWide { out: true, preempted: false, other_pid: Pid(7), other_tid: Tid(8) },
            1 << 13,
            15,
            &[8 << 32 | 7],
        );
        check(Record::Aux { offset: 1, size: 2, flags: 1 }, 0, 11, &[1, 2, 1]);
        check(
            Record::Fork { pid: Pid(1), tid: Tid(2), parent_pid: Pid(3), parent_tid: Tid(4) },
            0,
            7,
            &[3 << 32 | 1, 4 << 32 | 2, 0x1314],
        );
        check(
            Record::Comm { pid: Pid(1), tid: Tid(2), name: "12345678", exec: true },
            1 << 13,
            3,
            &[2 << 32 | 1, u64::from_le_bytes(*b"12345678"), 0],
        );
    }

    #[test]
    fn a_mapping_says_which_file() {
        let mapping = |identity| Record::Mmap2 {
            pid: Pid(1),
            tid: Tid(2),
            start: 0x1000,
            len: 0x2000,
            file_offset: FileOffset(0x3000),
            identity,
            protection: 5,
            flags: 2,
            path: "/x",
        };
        let inode = words(&mapping(FileIdentity::Inode { major: 8, minor: 1, inode: 77, generation: 3 }));
        assert_eq!(
            inode[1..10],
            [2 << 32 | 1, 0x1000, 0x2000, 0x3000, 1 << 32 | 8, 77, 3, 2 << 32 | 5, 0x782f]
        );
        let build_id = words(&mapping(FileIdentity::BuildId(BuildId(vec![0xab; 20]))));
        assert_eq!(build_id[0] >> 32 & 0xffff, u64::from(MISC_USER | MISC_MMAP_BUILD_ID));
        assert_eq!(build_id[5..8], [0xabab_abab_0000_0014, u64::MAX / 0xff * 0xab, u64::MAX / 0xff * 0xab]);
    }
}
