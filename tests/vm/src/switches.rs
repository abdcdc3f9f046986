//! When the recorded threads were off their CPU, held against what the scheduler itself has traced (ftrace's `sched_switch`, in perf's
//! clock): the report's off-CPU time is that of the recording's switch records.
//!
//! perf writes its record of a switch behind the scheduler's event, and before the thread's next one.  So each record has its event, one
//! after the other, however long the emulator sleeps in between.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use model::{Ns, Tid};
use tracegen::truth::File;
use truth_tests::Opened;

/// ftrace prints microseconds.
const ROUNDING_NS: u64 = 1_000;

/// A thread left its CPU, or came to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Switch {
    at: Ns,
    out: bool,
}

/// Each switch of a traced thread in the recording is the scheduler's, and the other way round: how often threads came back.
pub(crate) fn same_as_traced(opened: &Opened<'_>, truth: &File, trace: &Path) -> Result<u64> {
    let text = fs::read_to_string(trace).with_context(|| trace.display().to_string())?;
    let traced = switches(&text);
    let mut count = 0;
    for tid in truth.threads().iter().map(|thread| thread.tid) {
        let traced = traced.get(&tid).map_or(&[][..], Vec::as_slice);
        let life = opened.schedule.thread(tid).map_or(&[][..], |life| &life.off_cpu);
        let mut last = None;
        for off in life {
            let out = Switch { at: off.from, out: true };
            let back = off.to.map(|at| Switch { at, out: false });
            for switch in std::iter::once(out).chain(back) {
                let found = event_of(traced, switch);
                let follows = last.is_none_or(|last| found == Some(last + 1));
                ensure!(
                    found.is_some() && follows,
                    "thread {}: {switch:?} is the scheduler's number {found:?}, behind {last:?}",
                    tid.0
                );
                last = found;
            }
            count += u64::from(back.is_some());
        }
    }
    Ok(count)
}

/// The number of the event that the record tells of: the thread's last one before it.
fn event_of(traced: &[Switch], record: Switch) -> Option<usize> {
    let behind = traced.partition_point(|event| event.at.0 <= record.at.0 + ROUNDING_NS);
    let number = behind.checked_sub(1)?;
    traced.get(number).filter(|event| event.out == record.out).map(|_| number)
}

/// Each thread's switches, in order.
fn switches(trace: &str) -> BTreeMap<Tid, Vec<Switch>> {
    let mut threads: BTreeMap<Tid, Vec<Switch>> = BTreeMap::new();
    for (at, from, to) in trace.lines().filter_map(switch) {
        threads.entry(from).or_default().push(Switch { at, out: true });
        threads.entry(to).or_default().push(Switch { at, out: false });
    }
    threads
}

/// `server-352   [000] d..2.   123.456789: sched_switch: prev_comm=server prev_pid=352 ... next_pid=0 next_prio=120`
fn switch(line: &str) -> Option<(Ns, Tid, Tid)> {
    let (before, fields) = line.split_once(": sched_switch: ")?;
    let (seconds, micros) = before.rsplit(' ').next()?.split_once('.')?;
    let number = |name: &str| {
        let value = fields.split(' ').find_map(|word| word.strip_prefix(name))?;
        value.parse().ok().map(Tid)
    };
    let at = seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1_000;
    Some((Ns(at), number("prev_pid=")?, number("next_pid=")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_of_the_event_before_it() {
        let trace = "\
# tracer: nop
          server-352     [000] d..2.    12.000010: sched_switch: prev_comm=server prev_pid=352 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
          <idle>-0       [000] d..2.    12.500000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=server next_pid=352 next_prio=120
";
        let threads = switches(trace);
        let server = &threads[&Tid(352)];
        let record = |at, out| event_of(server, Switch { at: Ns(at), out });
        assert_eq!(record(12_000_009_500, true), Some(0));
        assert_eq!(record(12_400_000_000, true), Some(0));
        assert_eq!(record(12_600_000_000, false), Some(1));
        assert_eq!(record(12_600_000_000, true), None);
        assert_eq!(record(11_000_000_000, true), None);
    }
}
