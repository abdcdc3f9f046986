//! The scheduler's events: why threads were off their CPUs.
//!
//! What takes them is given to us ([`SchedSource`]): eBPF programs, in a crate that nothing here depends on.
//! Their times are those of `CLOCK_MONOTONIC`, the recording's are perf's. Both clocks are read with each
//! batch, and events are placed between two such pairs:
//!
//! ```text
//!   CLOCK_MONOTONIC   |------ event --------|
//!   perf's clock      |------ ? ------------|
//!                    pair of the last     pair of this batch
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use model::{Avma, Ns, Pid, SchedEvent, TscClock};
use perfdata::write::{AboutSamples, encode_sched_event, tracing_data};

use crate::clocks::{self, Pair};
use crate::cpu_list::CpuList;
use crate::drain::Shared;
use crate::procfs::Proc;
use crate::target::Target;

/// Events are read so often.
const TICK: Duration = Duration::from_millis(10);

/// Takes events of the scheduler.
pub trait SchedSource: Sync {
    /// Events of these processes, threads or CPUs (as the recording's target names them) are told from now
    /// on. They are asked for when that is ready, so that no thread is born between the two.
    ///
    /// # Errors
    /// Why that is not possible.
    fn start(&mut self, ids: &dyn Fn() -> Vec<u32>) -> Result<(), String>;

    /// Gives events to `take`, batch after batch, in any order; what that leaves of a batch stays in it. When
    /// it returns false, one more batch follows.
    ///
    /// # Errors
    /// They cannot be read.
    fn read(&self, take: &mut dyn FnMut(&mut Vec<SchedEvent>) -> bool) -> Result<(), String>;

    /// Events are told no longer.
    fn stop(&mut self);

    /// How many had no room.
    fn lost(&self) -> u64;

    /// The kernel's symbols (lines of `/proc/kallsyms`) that name these addresses.
    fn symbols(&self, addresses: &BTreeSet<Avma>) -> String;
}

/// What became of the scheduler's events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sched {
    /// No source takes them.
    #[default]
    NotAsked,
    /// They cannot be taken; why.
    Refused(String),
    /// They are in the file.
    Written {
        /// How many.
        events: u64,
        /// How many had no room.
        lost: u64,
        /// How far off their times may be, as those of two clocks, in ns.
        clocks_apart_ns: u64,
        /// They have stacks in the kernel, and it does not tell its symbols.
        unnamed: bool,
    },
}

/// What has been written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) events: u64,
    pub(crate) clocks_apart_ns: u64,
    /// Of the stacks.
    pub(crate) addresses: BTreeSet<Avma>,
    /// None of them has a name.
    pub(crate) unnamed: bool,
    pub(crate) failed: Option<String>,
}

/// The numbers of the processes, threads or CPUs with wanted events; `started`: the program that was started.
pub(crate) fn ids(target: &Target, started: Option<Pid>, cpus: &CpuList, proc: &Proc) -> Vec<u32> {
    match target {
        Target::Processes(_) | Target::Families(_) => {
            target.processes(proc).iter().map(|pid| pid.0 as u32).collect()
        }
        Target::Threads(tids) => tids.iter().map(|tid| tid.0 as u32).collect(),
        Target::Program(_) => started.iter().map(|pid| pid.0 as u32).collect(),
        Target::WholeCpus => cpus.0.iter().map(|cpu| cpu.0).collect(),
    }
}

/// Stops the source, and tells readers of the file what its samples are.
pub(crate) fn end(source: &mut dyn SchedSource, written: &mut Written) -> Vec<u8> {
    source.stop();
    let symbols = source.symbols(&written.addresses);
    written.unnamed = symbols.is_empty() && !written.addresses.is_empty();
    tracing_data(&AboutSamples { symbols, apart_ns: Some(written.clocks_apart_ns) })
}

/// What there is to say of them.
pub(crate) fn summary(refused: Option<String>, source: Option<&dyn SchedSource>, written: Written) -> Sched {
    match (refused.or(written.failed), source) {
        (Some(why), _) => Sched::Refused(why),
        (None, None) => Sched::NotAsked,
        (None, Some(source)) => Sched::Written {
            events: written.events,
            lost: source.lost(),
            clocks_apart_ns: written.clocks_apart_ns,
            unnamed: written.unnamed,
        },
    }
}

/// Writes events until the window is over.
pub(crate) fn write(source: &dyn SchedSource, shared: &Shared<'_>) -> Written {
    let mut written = Written::default();
    let mut clocks = Joined::new(shared.clock);
    let mut records = Vec::new();
    let read = source.read(&mut |batch| {
        let is_ending = shared.is_ending();
        clocks.take_pair();
        records.clear();
        for event in batch.drain(..) {
            let time = clocks.time(event.monotonic_ns);
            // What happens while all is switched off is not in the window.
            if time <= shared.ended_at() {
                encode_sched_event(&event, time, &mut records);
                written.events += 1;
                written.addresses.extend(event.stack);
            }
        }
        shared.output.records(&records);
        if !is_ending {
            std::thread::sleep(TICK);
        }
        !is_ending
    });
    written.failed = read.err();
    written.clocks_apart_ns = clocks.apart_ns;
    written
}

/// Perf's clock by `CLOCK_MONOTONIC`.
struct Joined {
    clock: TscClock,
    last: Pair,
    now: Pair,
    /// The most that a pair may be off.
    apart_ns: u64,
}

impl Joined {
    fn new(clock: TscClock) -> Self {
        let pair = clocks::pair(clock);
        Self { clock, last: pair, now: pair, apart_ns: pair.apart_ns }
    }

    /// Reads both clocks again.
    fn take_pair(&mut self) {
        self.last = self.now;
        self.now = clocks::pair(self.clock);
        self.apart_ns = self.apart_ns.max(self.now.apart_ns);
    }

    /// Between the last two pairs, or near them.
    fn time(&self, monotonic_ns: u64) -> Ns {
        between(self.last, self.now, monotonic_ns)
    }
}

fn between(last: Pair, now: Pair, monotonic_ns: u64) -> Ns {
    let since = |later: u64, earlier: u64| i128::from(later) - i128::from(earlier);
    let (by_one, by_other) = (since(now.monotonic_ns, last.monotonic_ns), since(now.perf.0, last.perf.0));
    let passed = since(monotonic_ns, last.monotonic_ns);
    let passed = if by_one > 0 { passed * by_other / by_one } else { passed };
    Ns(u64::try_from(i128::from(last.perf.0) + passed).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use model::{Cpu, Tid};

    use super::*;

    #[test]
    fn times_lie_between_two_pairs() {
        let pair = |perf, monotonic_ns| Pair { perf: Ns(perf), monotonic_ns, apart_ns: 1 };
        let (last, now) = (pair(1_000_000, 5_000), pair(1_002_000, 6_000));
        let at = |monotonic_ns| between(last, now, monotonic_ns).0;
        assert_eq!([at(5_000), at(5_500), at(6_000)], [1_000_000, 1_001_000, 1_002_000]);
        // A little before and after, the same.
        assert_eq!([at(4_999), at(6_001)], [999_998, 1_002_002]);
        assert_eq!(between(last, last, 5_007), Ns(1_000_007));
        assert_eq!(between(pair(3, 5_000), now, 0), Ns(0));
    }

    #[test]
    fn whose_events_are_wanted() {
        let cpus = CpuList(vec![Cpu(2)]);
        let of = |target: Target| ids(&target, Some(Pid(9)), &cpus, &Proc::host());
        assert_eq!(of(Target::Processes(vec![Pid(7)])), [7]);
        assert_eq!(of(Target::Threads(vec![Tid(8)])), [8]);
        assert_eq!(of(Target::Program(vec![])), [9]);
        assert_eq!(of(Target::WholeCpus), [2]);
    }
}
