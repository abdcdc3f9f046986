//! The bodies of the sideband records (include/uapi/linux/perf_event.h), without their trailers.

use model::{Avma, BuildId, FileOffset, Inode, Mmap, Ns, Pid, Sideband, Tid};

use super::bytes::{Cursor, text};
use super::records::RawRecord;
use crate::record_types::{
    self, MISC_COMM_EXEC, MISC_KERNEL, MISC_MMAP_BUILD_ID, MISC_MMAP_DATA, MISC_SWITCH_OUT,
    MISC_SWITCH_OUT_PREEMPT,
};

const MISC_CPUMODE_MASK: u16 = 7;
/// Of a virtual machine's kernel and its users: addresses of another machine.
const MISC_GUEST: [u16; 2] = [4, 5];
const PROT_EXEC: u32 = 4;
/// Length of a build id that is a SHA-1, and the longest that perf stores.
pub(super) const BUILD_ID_MAX: usize = 20;

/// What a record says, from its body without the trailer; `None` if it is too short to be one.
pub(super) fn read(record: &RawRecord<'_>, body: &[u8]) -> Option<Sideband> {
    let mut c = Cursor::new(body);
    let misc = record.misc;
    let out = misc & MISC_SWITCH_OUT != 0;
    let preempted = out && misc & MISC_SWITCH_OUT_PREEMPT != 0;
    Some(match record.kind {
        record_types::MMAP | record_types::MMAP2 if !MISC_GUEST.contains(&(misc & MISC_CPUMODE_MASK)) => {
            Sideband::from(mmap(record, &mut c)?)
        }
        record_types::COMM => {
            let (pid, tid) = pid_tid(&mut c)?;
            Sideband::Comm { pid, tid, name: text(c.rest()), exec: misc & MISC_COMM_EXEC != 0 }
        }
        record_types::FORK | record_types::EXIT => {
            let (pid, parent_pid) = (Pid(c.i32()?), Pid(c.i32()?));
            let (tid, parent_tid) = (Tid(c.i32()?), Tid(c.i32()?));
            if record.kind == record_types::FORK {
                Sideband::Fork { pid, tid, parent_pid, parent_tid }
            } else {
                Sideband::Exit { pid, tid }
            }
        }
        record_types::SWITCH => Sideband::Switch { out, preempted },
        record_types::SWITCH_CPU_WIDE => {
            let (other_pid, other_tid) = pid_tid(&mut c)?;
            Sideband::SwitchCpuWide { out, preempted, other_pid, other_tid }
        }
        record_types::ITRACE_START => {
            let (pid, tid) = pid_tid(&mut c)?;
            Sideband::ItraceStart { pid, tid }
        }
        record_types::LOST => {
            c.u64()?;
            Sideband::Lost { count: c.u64()? }
        }
        record_types::AUX => Sideband::Aux { offset: c.u64()?, size: c.u64()?, flags: c.u64()? },
        record_type => Sideband::Other { record_type },
    })
}

/// The time in the body of FORK and EXIT: they have one even where records have no trailer.
pub(super) fn own_time(kind: u32, body: &[u8]) -> Option<Ns> {
    if kind != record_types::FORK && kind != record_types::EXIT {
        return None;
    }
    Cursor::new(body.get(16..)?).u64().filter(|ns| *ns != 0).map(Ns)
}

fn pid_tid(c: &mut Cursor<'_>) -> Option<(Pid, Tid)> {
    Some((Pid(c.i32()?), Tid(c.i32()?)))
}

fn mmap(record: &RawRecord<'_>, c: &mut Cursor<'_>) -> Option<Mmap> {
    let (pid, _tid) = pid_tid(c)?;
    let start = Avma(c.u64()?);
    let len = c.u64()?;
    let file_offset = FileOffset(c.u64()?);
    let (mut build, mut inode) = (None, None);
    let mut executable = record.misc & MISC_MMAP_DATA == 0;
    if record.kind == record_types::MMAP2 {
        let file = c.take(24)?;
        if record.misc & MISC_MMAP_BUILD_ID != 0 {
            let (size, id) = (file.first()?, file.get(4..)?);
            build = build_id(id.get(..usize::from(*size))?);
        } else {
            inode = self::inode(file);
        }
        executable = c.u32()? & PROT_EXEC != 0;
        let _flags = c.u32()?;
    }
    let kernel = record.misc & MISC_CPUMODE_MASK == MISC_KERNEL;
    let path = text(c.rest());
    Some(Mmap { pid, start, len, file_offset, path, build_id: build, inode, executable, kernel })
}

/// The inode in MMAP2; `None` where there is no file, or the writer of the record did not know it.
fn inode(bytes: &[u8]) -> Option<Inode> {
    let mut c = Cursor::new(bytes);
    let device = (c.u32()?, c.u32()?);
    Some(Inode { device, number: c.u64().filter(|number| *number != 0)? })
}

/// A build id; `None` where perf left zeros because it found none.
pub(super) fn build_id(bytes: &[u8]) -> Option<BuildId> {
    bytes.iter().any(|b| *b != 0).then(|| BuildId(bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_body(kind: u32, misc: u16, body: &[u8]) -> Option<Sideband> {
        let record = RawRecord { offset: 0, kind, misc, body, payload: &[], payload_offset: 0 };
        read(&record, body)
    }

    fn mmap2_body(file: &[u8; 24]) -> Vec<u8> {
        let mut body = [7u32, 8].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        body.extend([0x40_0000u64, 0x1000, 0x2000].iter().flat_map(|v| v.to_le_bytes()));
        body.extend(file);
        body.extend([5u32, 2].iter().flat_map(|v| v.to_le_bytes()));
        body.extend(b"/bin/x\0\0");
        body
    }

    #[test]
    fn mmap2_with_inode_and_with_build_id() {
        let Some(Sideband::Mmap(m)) = read_body(record_types::MMAP2, 2, &mmap2_body(&[9; 24])) else {
            panic!()
        };
        let expect = Mmap {
            pid: Pid(7),
            start: Avma(0x40_0000),
            len: 0x1000,
            file_offset: FileOffset(0x2000),
            path: "/bin/x".into(),
            build_id: None,
            inode: None,
            executable: true,
            kernel: false,
        };
        let number = u64::from_le_bytes([9; 8]);
        let device = (0x0909_0909, 0x0909_0909);
        assert_eq!(*m, Mmap { inode: Some(Inode { device, number }), ..expect.clone() });
        let mut file = [0; 24];
        let Some(Sideband::Mmap(m)) = read_body(record_types::MMAP2, 2, &mmap2_body(&file)) else { panic!() };
        assert_eq!(*m, expect);
        file[0] = 3;
        file[4..7].copy_from_slice(&[1, 2, 3]);
        let misc = 2 | MISC_MMAP_BUILD_ID;
        let Some(Sideband::Mmap(m)) = read_body(record_types::MMAP2, misc, &mmap2_body(&file)) else {
            panic!()
        };
        assert_eq!(*m, Mmap { build_id: Some(BuildId(vec![1, 2, 3])), ..expect });
        file[0] = 21;
        assert_eq!(read_body(record_types::MMAP2, misc, &mmap2_body(&file)), None);
    }

    #[test]
    fn switches() {
        let body = [5u32, 6].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        assert_eq!(
            read_body(record_types::SWITCH, MISC_SWITCH_OUT | MISC_SWITCH_OUT_PREEMPT, &[]),
            Some(Sideband::Switch { out: true, preempted: true })
        );
        assert_eq!(
            read_body(record_types::SWITCH_CPU_WIDE, 0, &body),
            Some(Sideband::SwitchCpuWide {
                out: false,
                preempted: false,
                other_pid: Pid(5),
                other_tid: Tid(6)
            })
        );
        assert_eq!(read_body(record_types::SWITCH_CPU_WIDE, 0, &body[..7]), None);
    }
}
