//! Sideband records: `offset time cpu pid/tid what`.

use std::fmt;
use std::io::{self, Write};

use model::{Recording, Sideband, SidebandRecord, Tid};

use crate::config::DumpConfig;
use crate::filter::TidSet;

pub(super) fn dump(out: &mut dyn Write, recording: &Recording<'_>, config: &DumpConfig) -> io::Result<()> {
    for record in &recording.sideband {
        let wanted = config.window.is_none_or(|w| record.time.is_some_and(|time| w.contains(time)));
        if wanted && concerns(record, &config.tids) {
            writeln!(out, "{}", Line(record))?;
        }
    }
    Ok(())
}

/// The record is of one of the threads, or about one.
fn concerns(record: &SidebandRecord, tids: &TidSet) -> bool {
    let about = match &record.body {
        Sideband::Comm { tid, .. }
        | Sideband::Fork { tid, .. }
        | Sideband::Exit { tid, .. }
        | Sideband::ItraceStart { tid, .. } => Some(*tid),
        Sideband::Mmap(mmap) => Some(Tid(mmap.pid.0)),
        _ => None,
    };
    *tids == TidSet::default() || record.tid.into_iter().chain(about).any(|tid| tids.contains(tid))
}

struct Line<'a>(&'a SidebandRecord);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = self.0;
        write!(f, "{:#010x} {} {} ", record.file_offset, or_dash(record.time.map(|t| t.0)), {
            or_dash(record.cpu.map(|c| c.0))
        })?;
        write!(f, "{}/{} ", or_dash(record.pid.map(|p| p.0)), or_dash(record.tid.map(|t| t.0)))?;
        body(f, &record.body)
    }
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}

fn body(f: &mut fmt::Formatter<'_>, body: &Sideband) -> fmt::Result {
    match body {
        Sideband::Mmap(m) => {
            let what = if m.kernel { "kernel " } else { "" };
            let access = if m.executable { "x" } else { "-" };
            write!(
                f,
                "MMAP {what}pid {} {}+{:#x} {access} offset {}",
                m.pid.0, m.start, m.len, m.file_offset
            )?;
            write!(f, " {} build-id {}", m.path.escape_debug(), or_dash(m.build_id.as_ref()))
        }
        Sideband::Comm { pid, tid, name, exec } => {
            let exec = if *exec { " exec" } else { "" };
            write!(f, "COMM{exec} {}/{} {}", pid.0, tid.0, name.escape_debug())
        }
        Sideband::Fork { pid, tid, parent_pid, parent_tid } => {
            write!(f, "FORK {}/{} by {}/{}", pid.0, tid.0, parent_pid.0, parent_tid.0)
        }
        Sideband::Exit { pid, tid } => write!(f, "EXIT {}/{}", pid.0, tid.0),
        Sideband::Switch { out, preempted } => write!(f, "SWITCH {}", direction(*out, *preempted)),
        Sideband::SwitchCpuWide { out, preempted, other_pid, other_tid } => {
            let other = if *out { "next" } else { "previous" };
            let direction = direction(*out, *preempted);
            write!(f, "SWITCH_CPU_WIDE {direction} {other} {}/{}", other_pid.0, other_tid.0)
        }
        Sideband::ItraceStart { pid, tid } => write!(f, "ITRACE_START {}/{}", pid.0, tid.0),
        Sideband::Lost { count } => write!(f, "LOST {count}"),
        Sideband::Aux { offset, size, flags } => {
            write!(f, "AUX offset {offset:#x} size {size:#x} flags {flags:#x}")
        }
        Sideband::Other { record_type } => write!(f, "RECORD {record_type}"),
    }
}

fn direction(out: bool, preempted: bool) -> &'static str {
    match (out, preempted) {
        (false, _) => "in",
        (true, false) => "out",
        (true, true) => "out preempted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Avma, BuildId, Cpu, FileOffset, Mmap, Ns, Pid};

    #[test]
    fn lines() {
        let check = |body: Sideband, expect: &str| {
            let record = SidebandRecord {
                time: Some(Ns(12)),
                cpu: Some(Cpu(1)),
                pid: Some(Pid(7)),
                tid: Some(Tid(8)),
                file_offset: 0x100,
                body,
            };
            assert_eq!(Line(&record).to_string(), format!("0x00000100 12 1 7/8 {expect}"));
        };
        check(Sideband::Switch { out: true, preempted: true }, "SWITCH out preempted");
        check(
            Sideband::Comm { pid: Pid(7), tid: Tid(8), name: "a\nb".into(), exec: true },
            "COMM exec 7/8 a\\nb",
        );
        check(
            Sideband::Mmap(Mmap {
                pid: Pid(7),
                start: Avma(0x40_0000),
                len: 0x1000,
                file_offset: FileOffset(0x2000),
                path: "/usr/bin/x".into(),
                build_id: Some(BuildId(vec![0xab, 1])),
                executable: true,
                kernel: false,
            }),
            "MMAP pid 7 0x400000+0x1000 x offset 0x2000 /usr/bin/x build-id ab01",
        );
        let bare = SidebandRecord {
            time: None,
            cpu: None,
            pid: None,
            tid: None,
            file_offset: 0,
            body: Sideband::Lost { count: 3 },
        };
        assert_eq!(Line(&bare).to_string(), "0x00000000 - - -/- LOST 3");
        assert!(concerns(&bare, &TidSet::default()));
        assert!(!concerns(&bare, &TidSet(vec!["1".parse().unwrap()])));
    }
}
