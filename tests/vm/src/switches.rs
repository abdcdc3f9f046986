//! When the recorded threads were off their CPU, held against what the scheduler itself has traced (ftrace's
//! `sched_switch`, in perf's clock): the report's off-CPU time is that of the recording's switch records.
//!
//! perf writes its record of a switch after the scheduler's event, and before the thread's next one. So each
//! record has its event, one after the other, however long the emulator sleeps in between.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use model::{Cpu, Ns, Tid};
use tracegen::truth::File;
use truth_tests::Opened;

/// ftrace prints microseconds.
const ROUNDING_NS: u64 = 1_000;

/// A thread left its CPU, or came to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Switch {
    at: Ns,
    out: bool,
    /// Where.
    cpu: Option<Cpu>,
}

/// A thread on a CPU that is not traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stay {
    /// When it came.
    pub(crate) from: Ns,
    /// When it left; [`Ns::MAX`] if it did not.
    pub(crate) to: Ns,
}

/// What the scheduler has traced.
#[derive(Debug)]
pub(crate) struct Trace(BTreeMap<Tid, Vec<Switch>>);

impl Trace {
    /// Reads ftrace's text.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        Ok(Self(switches(&fs::read_to_string(path).with_context(|| path.display().to_string())?)))
    }

    /// When a thread left its CPU (true), and when it came to one.
    pub(crate) fn switches(&self, tid: Tid) -> Vec<(Ns, bool)> {
        let switches = self.0.get(&tid).map_or(&[][..], Vec::as_slice);
        switches.iter().map(|switch| (switch.at, switch.out)).collect()
    }

    /// A thread's stays on other CPUs than this one, in order.
    pub(crate) fn stays_off(&self, tid: Tid, traced: Cpu) -> Vec<Stay> {
        let switches = self.0.get(&tid).map_or(&[][..], Vec::as_slice);
        let come =
            switches.iter().enumerate().filter(|(_, switch)| !switch.out && switch.cpu != Some(traced));
        let stay = |(at, come): (usize, &Switch)| {
            let to = switches.get(at + 1).map_or(Ns::MAX, |left| left.at);
            Stay { from: come.at, to }
        };
        come.map(stay).collect()
    }
}

/// Each switch of a traced thread in the recording is the scheduler's, and the other way round: how often
/// threads came back.
pub(crate) fn same_as_traced(opened: &Opened<'_>, truth: &File, Trace(traced): &Trace) -> Result<u64> {
    let mut count = 0;
    for tid in truth.threads().iter().map(|thread| thread.tid) {
        let traced = traced.get(&tid).map_or(&[][..], Vec::as_slice);
        let life = opened.schedule.thread(tid).map_or(&[][..], |life| &life.off_cpu);
        let mut last = None;
        for off in life {
            let out = Switch { at: off.from, out: true, cpu: None };
            let back = off.to.map(|at| Switch { at, out: false, cpu: opened.schedule.cpu_of(tid, at) });
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
    let after = traced.partition_point(|event| event.at.0 <= record.at.0 + ROUNDING_NS);
    let number = after.checked_sub(1)?;
    let is_it = |event: &&Switch| event.out == record.out && (record.out || event.cpu == record.cpu);
    traced.get(number).filter(is_it).map(|_| number)
}

/// Each thread's switches, in order.
fn switches(trace: &str) -> BTreeMap<Tid, Vec<Switch>> {
    let mut threads: BTreeMap<Tid, Vec<Switch>> = BTreeMap::new();
    for (at, cpu, from, to) in trace.lines().filter_map(switch) {
        threads.entry(from).or_default().push(Switch { at, out: true, cpu });
        threads.entry(to).or_default().push(Switch { at, out: false, cpu });
    }
    threads
}

/// `server-352 [000] d..2. 123.456789: sched_switch: prev_comm=server prev_pid=352 ... next_pid=0
/// next_prio=120`
fn switch(line: &str) -> Option<(Ns, Option<Cpu>, Tid, Tid)> {
    let (before, fields) = line.split_once(": sched_switch: ")?;
    let mut words = before.split_ascii_whitespace().rev();
    let (seconds, micros) = words.next()?.split_once('.')?;
    let cpu = words.nth(1).and_then(|cpu| cpu.strip_prefix('[')?.strip_suffix(']')?.parse().ok()).map(Cpu);
    let number = |name: &str| {
        let value = fields.split(' ').find_map(|word| word.strip_prefix(name))?;
        value.parse().ok().map(Tid)
    };
    let at = seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1_000;
    Some((Ns(at), cpu, number("prev_pid=")?, number("next_pid=")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_of_the_event_before_it() {
        let trace = "\
# tracer: nop
          server-352     [000] d..2.    12.000010: sched_switch: prev_comm=server prev_pid=352 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
          <idle>-0       [001] d..2.    12.500000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=server next_pid=352 next_prio=120
";
        let threads = switches(trace);
        let server = &threads[&Tid(352)];
        let on = |cpu, at, out| event_of(server, Switch { at: Ns(at), out, cpu: Some(Cpu(cpu)) });
        let record = |at, out| on(1, at, out);
        assert_eq!(record(12_000_009_500, true), Some(0));
        assert_eq!(record(12_400_000_000, true), Some(0));
        assert_eq!(record(12_600_000_000, false), Some(1));
        assert_eq!(record(12_600_000_000, true), None);
        assert_eq!(record(11_000_000_000, true), None);
        assert_eq!(on(0, 12_600_000_000, false), None, "it came to another CPU");
    }

    #[test]
    fn stays_on_other_cpus_are_between_coming_and_leaving() {
        let switch = |us: u64, cpu, out| Switch { at: Ns(us * 1_000), out, cpu: Some(Cpu(cpu)) };
        let switches = vec![
            switch(1, 1, true),
            switch(2, 0, false),
            switch(3, 0, true),
            switch(4, 1, false),
            switch(6, 1, true),
            switch(8, 1, false),
        ];
        let trace = Trace([(Tid(7), switches)].into());
        let stay = |from: u64, to| Stay { from: Ns(from * 1_000), to };
        assert_eq!(trace.stays_off(Tid(7), Cpu(0)), [stay(4, Ns(6_000)), stay(8, Ns::MAX)]);
        assert_eq!(trace.stays_off(Tid(8), Cpu(0)), []);
    }
}
