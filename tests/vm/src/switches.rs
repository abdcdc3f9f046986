//! When the recorded threads were off their CPU, held against what the scheduler itself has traced (ftrace's `sched_switch`, in perf's
//! clock): the report's off-CPU time is that of the recording's switch records.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use model::{Ns, Tid};
use truth_tests::Opened;

/// From the scheduler's own event to perf's record of it: the module ends its packets in between.
const APART_NS: u64 = 5_000_000;

/// A stretch off the CPU is in both, or in neither; how many there are.
pub(crate) fn same_as_traced(opened: &Opened<'_>, trace: &Path) -> Result<u64> {
    let text = fs::read_to_string(trace).with_context(|| trace.display().to_string())?;
    let traced = off_cpu(&text);
    let mut count = 0;
    for (tid, life) in opened.schedule.threads() {
        let recorded: Vec<(Ns, Ns)> =
            life.off_cpu.iter().filter_map(|off| Some((off.from, off.to?))).collect();
        let (Some(first), Some(last)) = (recorded.first(), recorded.last()) else { continue };
        let window = (Ns(first.0.0.saturating_sub(APART_NS)), Ns(last.1.0 + APART_NS));
        let in_window = |(out, back): &&(Ns, Ns)| *out >= window.0 && *back <= window.1;
        let traced: Vec<(Ns, Ns)> =
            traced.get(&tid).into_iter().flatten().filter(in_window).copied().collect();
        let numbers = (recorded.len(), traced.len());
        ensure!(
            numbers.0 == numbers.1,
            "thread {}: {numbers:?} stretches off the CPU, recorded and traced",
            tid.0
        );
        for (recorded, traced) in recorded.iter().zip(&traced) {
            let apart = |a: Ns, b: Ns| a.0.abs_diff(b.0);
            let is_same = apart(recorded.0, traced.0).max(apart(recorded.1, traced.1)) < APART_NS;
            ensure!(is_same, "thread {}: off the CPU {recorded:?}, traced {traced:?}", tid.0);
        }
        count += recorded.len() as u64;
    }
    Ok(count)
}

/// Each thread's times of leaving and of coming back.
fn off_cpu(trace: &str) -> BTreeMap<Tid, Vec<(Ns, Ns)>> {
    let mut out: BTreeMap<Tid, Ns> = BTreeMap::new();
    let mut stretches: BTreeMap<Tid, Vec<(Ns, Ns)>> = BTreeMap::new();
    for (at, from, to) in trace.lines().filter_map(switch) {
        out.insert(from, at);
        if let Some(left) = out.remove(&to) {
            stretches.entry(to).or_default().push((left, at));
        }
    }
    stretches
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
    fn stretches_are_between_leaving_and_coming_back() {
        let trace = "\
# tracer: nop
          server-352     [000] d..2.    12.000010: sched_switch: prev_comm=server prev_pid=352 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
          <idle>-0       [000] d..2.    12.500000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=server next_pid=352 next_prio=120
";
        let stretches = off_cpu(trace);
        assert_eq!(stretches[&Tid(352)], [(Ns(12_000_010_000), Ns(12_500_000_000))]);
        assert_eq!(stretches.len(), 1);
    }
}
