//! All records in the order of the file: `offset [size] time cpu pid/tid what`.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};

use analyzer::Reason;
use anyhow::Result;
use model::{Sideband, SidebandRecord, Tid};
use perfdata::Listed;

use crate::config::DumpConfig;
use crate::filter::TidSet;
use crate::render::names::reason_name;
use crate::{exit, messages, recording, threads};

pub(super) fn dump(
    out: &mut dyn Write,
    file: &perfdata::File,
    config: &DumpConfig,
) -> Result<io::Result<()>> {
    let mut result = Ok(());
    let mut known = BTreeSet::new();
    let damage = file.list(&mut |listed| {
        let record = &listed.record;
        if config.tids != TidSet::default() {
            known.extend(threads_of(record));
        }
        let wanted = config.window.is_none_or(|w| record.time.is_some_and(|time| w.contains(time)));
        if result.is_ok() && wanted && concerns(record, &config.tids) {
            result = writeln!(out, "{}", SidebandLine(listed));
            if let Err(error) = &result {
                exit::leave_if_reader_is_gone(error);
            }
        }
    })?;
    if let Some(damage) = damage {
        messages::warn(recording::damage_message(&damage));
    }
    if config.tids != TidSet::default() {
        threads::check(&config.tids, &Vec::from_iter(known))?;
    }
    Ok(result)
}

/// The record is of one of the threads, or about one.
fn concerns(record: &SidebandRecord, tids: &TidSet) -> bool {
    *tids == TidSet::default() || threads_of(record).any(|tid| tids.contains(tid))
}

/// The threads that the record is of or about.
fn threads_of(record: &SidebandRecord) -> impl Iterator<Item = Tid> {
    let about = match &record.body {
        Sideband::Comm { tid, .. }
        | Sideband::Fork { tid, .. }
        | Sideband::Exit { tid, .. }
        | Sideband::ItraceStart { tid, .. }
        | Sideband::AttachedLate { tid }
        | Sideband::SchedSwitch { next: tid, .. } => Some(*tid),
        Sideband::SchedWaking(waking) => Some(waking.tid),
        Sideband::Mmap(mmap) => Some(Tid(mmap.pid.0)),
        _ => None,
    };
    // -1 is none.
    record.tid.into_iter().chain(about).filter(|tid| tid.0 >= 0)
}

struct SidebandLine<'a>(&'a Listed);

impl fmt::Display for SidebandLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = &self.0.record;
        write!(f, "{:#010x} [{:#x}] ", record.file_offset, self.0.size)?;
        write!(f, "{} {} ", or_dash(record.time.map(|t| t.0)), or_dash(record.cpu.map(|c| c.0)))?;
        write!(f, "{}/{} ", or_dash(record.pid.map(|p| p.0)), or_dash(record.tid.map(|t| t.0)))?;
        f.write_str(&self.0.type_name())?;
        details(f, &record.body)
    }
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}

/// What stands behind the name of the record's type.
fn details(f: &mut fmt::Formatter<'_>, body: &Sideband) -> fmt::Result {
    match body {
        Sideband::Mmap(m) => {
            let what = if m.kernel { " kernel" } else { "" };
            let access = if m.executable { "x" } else { "-" };
            write!(f, "{what} pid {} {}+{:#x} {access} offset {}", m.pid.0, m.start, m.len, m.file_offset)?;
            write!(f, " {} build-id {}", m.path.escape_debug(), or_dash(m.build_id.as_ref()))
        }
        Sideband::Comm { pid, tid, name, exec } => {
            let exec = if *exec { " exec" } else { "" };
            write!(f, "{exec} {}/{} {}", pid.0, tid.0, name.escape_debug())
        }
        Sideband::Fork { pid, tid, parent_pid, parent_tid } => {
            write!(f, " {}/{} by {}/{}", pid.0, tid.0, parent_pid.0, parent_tid.0)
        }
        Sideband::Exit { pid, tid } | Sideband::ItraceStart { pid, tid } => write!(f, " {}/{}", pid.0, tid.0),
        Sideband::Switch { out, preempted } => write!(f, " {}", direction(*out, *preempted)),
        Sideband::SwitchCpuWide { out, preempted, other_pid, other_tid } => {
            let other = if *out { "next" } else { "previous" };
            let direction = direction(*out, *preempted);
            write!(f, " {direction} {other} {}/{}", other_pid.0, other_tid.0)
        }
        Sideband::SchedSwitch { prev, preempted, next, waiting } => {
            let how = if *preempted { "preempted" } else { "blocked" };
            write!(f, " sched_switch {} {how} next {}", prev.0, next.0)?;
            let syscall = waiting.as_ref().and_then(|waiting| waiting.syscall);
            syscall.map_or(Ok(()), |syscall| write!(f, " in {}", reason_name(&Reason::Syscall(syscall))))
        }
        Sideband::SchedWaking(waking) => {
            let (woken, waker) = (waking.tid.0, &waking.waker);
            let how = if waker.is_perhaps_interrupted { " interrupted" } else { "" };
            write!(f, " sched_waking {woken} by {}/{}{how}", waker.pid.0, waker.tid.0)
        }
        Sideband::AttachedLate { tid } => write!(f, " late {}", tid.0),
        Sideband::Lost { count } => write!(f, " {count}"),
        Sideband::Aux { offset, size, flags } => {
            write!(f, " offset {offset:#x} size {size:#x} flags {flags:#x}")
        }
        Sideband::Other { .. } => Ok(()),
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
    use model::{Avma, BuildId, Cpu, FileOffset, Mmap, Ns, Pid, Waiting, WakerSeen, Waking};

    #[test]
    fn lines() {
        let check = |record_type, body: Sideband, expect: &str| {
            let record = SidebandRecord {
                time: Some(Ns(12)),
                cpu: Some(Cpu(1)),
                pid: Some(Pid(7)),
                tid: Some(Tid(8)),
                file_offset: 0x100,
                body,
            };
            let listed = Listed { record_type, size: 0x28, time_at: None, event_id: None, record };
            assert_eq!(SidebandLine(&listed).to_string(), format!("0x00000100 [0x28] 12 1 7/8 {expect}"));
        };
        check(14, Sideband::Switch { out: true, preempted: true }, "SWITCH out preempted");
        check(
            3,
            Sideband::Comm { pid: Pid(7), tid: Tid(8), name: "a\nb".into(), exec: true },
            "COMM exec 7/8 a\\nb",
        );
        let mapped = Sideband::from(Mmap {
            pid: Pid(7),
            start: Avma(0x40_0000),
            len: 0x1000,
            file_offset: FileOffset(0x2000),
            path: "/usr/bin/x".into(),
            build_id: Some(BuildId(vec![0xab, 1])),
            inode: None,
            executable: true,
            kernel: false,
        });
        check(10, mapped, "MMAP2 pid 7 0x400000+0x1000 x offset 0x2000 /usr/bin/x build-id ab01");
        let switch = Sideband::SchedSwitch { prev: Tid(7), preempted: false, next: Tid(9), waiting: None };
        check(9, switch, "SAMPLE sched_switch 7 blocked next 9");
        let waiting = Some(Box::new(Waiting { syscall: Some(202), stack: vec![] }));
        let switch = Sideband::SchedSwitch { prev: Tid(7), preempted: false, next: Tid(9), waiting };
        check(9, switch, "SAMPLE sched_switch 7 blocked next 9 in futex");
        let waker = WakerSeen {
            pid: Pid(3),
            tid: Tid(4),
            name: String::new(),
            stack: vec![],
            user_stack: vec![],
            is_perhaps_interrupted: true,
        };
        let waking = Sideband::SchedWaking(Box::new(Waking { tid: Tid(7), waker }));
        check(9, waking, "SAMPLE sched_waking 7 by 3/4 interrupted");
        check(200, Sideband::Other { record_type: 200 }, "RECORD 200");
        let bare = SidebandRecord {
            time: None,
            cpu: None,
            pid: None,
            tid: None,
            file_offset: 0,
            body: Sideband::Lost { count: 3 },
        };
        let listed = Listed { record_type: 2, size: 24, time_at: None, event_id: None, record: bare.clone() };
        assert_eq!(SidebandLine(&listed).to_string(), "0x00000000 [0x18] - - -/- LOST 3");
        assert!(concerns(&bare, &TidSet::default()));
        assert!(!concerns(&bare, &TidSet(vec!["1".parse().unwrap()])));
    }
}
