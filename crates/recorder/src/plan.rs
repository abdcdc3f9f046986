//! How many buffers of which size, and whose: decided before anything is opened, from what this process may have.

use std::fmt;

use crate::procfs::{CAP_IPC_LOCK, Proc, capabilities};

const PAGE_BYTES: u64 = 4096;
/// At a gigabyte a second, more than a core writes, a drain has 6 ms to come.  The kernel clears all of it at the start.
const TRACE_MAX_BYTES: u64 = 8 << 20;
/// A trace unit that stops all the time for a smaller one measures itself.
const TRACE_MIN_BYTES: u64 = 16 << 10;
const RECORDS_MAX_BYTES: u64 = 512 << 10;
const RECORDS_MIN_BYTES: u64 = 2 * PAGE_BYTES;
/// The records are about one part in so many of what is mapped.
const RECORDS_SHARE: u64 = 8;
/// All buffers together take at most one part in so many of the memory that is free.
const MEMORY_SHARE: u64 = 4;
/// Descriptors that are not of events: the file, objects, standard streams.
const OTHER_DESCRIPTORS: u64 = 64;

/// More events than this are not opened where one for each thread does: each is 2 KB of the kernel's memory, and a call when
/// the window begins and ends.
const EVENTS_MAX: u64 = 1 << 15;

/// Buffers of newborn threads are small: nobody knows how many there will be, and each is opened while its thread runs.
const NEWBORN_TRACE_BYTES: u64 = 256 << 10;
const NEWBORN_RECORDS_BYTES: u64 = 32 << 10;

/// Who shares a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Events of the traced threads on each CPU, inherited by the threads that they create; one buffer for each CPU.
    TasksByCpu,
    /// One event and one buffer for each thread; newborn threads are opened when their birth is seen.
    Threads,
    /// One event and one buffer for each CPU, whoever runs there.
    WholeCpus,
}

/// What this process may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// Memory that perf may lock for it; `None`: as much as there is.
    pub locked_bytes: Option<u64>,
    /// Memory that is free.
    pub available_bytes: u64,
    /// File descriptors.
    pub descriptors: u64,
}

impl Means {
    /// Of this process, which has `descriptors`, on a machine with so many CPUs.
    #[must_use]
    pub fn here(proc: &Proc, cpus: usize, descriptors: u64) -> Self {
        let may_lock_all =
            capabilities(proc) & CAP_IPC_LOCK != 0 || proc.setting("kernel/perf_event_paranoid") == Some(-1);
        let by_setting = proc.setting("kernel/perf_event_mlock_kb").unwrap_or(516).max(0) as u64 * 1024;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        let limited = limit.map(|limit| limit.saturating_add(by_setting.saturating_mul(cpus as u64)));
        Self {
            locked_bytes: limited.filter(|_| !may_lock_all),
            available_bytes: proc.memory_available_bytes().unwrap_or(1 << 30),
            descriptors,
        }
    }

    /// Bytes for each of so many buffers.
    fn share(&self, buffers: u64) -> u64 {
        let all = self.locked_bytes.unwrap_or(u64::MAX).min(self.available_bytes / MEMORY_SHARE);
        all / buffers.max(1)
    }
}

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Threads that there are now; 0: whole CPUs.
    pub threads: usize,
    /// CPUs to trace on.
    pub cpus: usize,
    /// CPUs to know switches of, and not to trace on.
    pub watched_cpus: usize,
    /// One buffer for each thread (`-t`).
    pub per_thread: bool,
    /// Only on these CPUs (`-C`): a buffer of a thread has what it does anywhere.
    pub only_these_cpus: bool,
    /// Size of each buffer of trace (`-m`).
    pub trace_bytes: Option<u64>,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Who shares a buffer.
    pub layout: Layout,
    /// Buffers to begin with.
    pub buffers: u64,
    /// Further buffers, for records only.
    pub watched: u64,
    /// Size of each for trace; a power of two.
    pub trace_bytes: u64,
    /// Size of each for records; a power of two.
    pub records_bytes: u64,
    /// Events to begin with.
    pub events: u64,
    /// The size of the buffers was asked for.
    pub sized: bool,
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Too few descriptors even for one buffer a thread.
    #[error(
        "{threads} threads need {needed} file descriptors, and this process may have {limit}: ulimit -n {needed} (as root), \
         or fewer threads (-T)"
    )]
    Descriptors {
        /// Threads.
        threads: usize,
        /// How many are needed.
        needed: u64,
        /// How many there may be.
        limit: u64,
    },
    /// Not enough memory that may be locked.
    #[error(
        "{buffers} buffers of trace need {needed} KB of locked memory, and this process may have {limit} KB: \
         sudo sysctl kernel.perf_event_mlock_kb={setting}, or ulimit -l unlimited, or CAP_IPC_LOCK, or fewer threads (-T) \
         or CPUs (-C)"
    )]
    LockedMemory {
        /// Buffers.
        buffers: u64,
        /// KB for the smallest that make sense.
        needed: u64,
        /// KB that there may be.
        limit: u64,
        /// KB for each CPU that would be enough.
        setting: u64,
    },
}

impl Plan {
    /// Decides.
    ///
    /// # Errors
    /// Too few descriptors, or too little memory, for what was asked.
    pub fn new(asked: Asked, means: Means) -> Result<Self, PlanError> {
        let (threads, cpus) = (asked.threads as u64, asked.cpus as u64);
        let left = means.descriptors.saturating_sub(OTHER_DESCRIPTORS);
        // Two events each: the trace, and the sideband.
        let watched = asked.watched_cpus as u64;
        let on_cpus = cpus * 2 + watched;
        let by_cpu = threads.saturating_mul(on_cpus);
        let (layout, buffers, events) = match threads {
            0 => (Layout::WholeCpus, cpus, on_cpus),
            _ if asked.only_these_cpus => (Layout::TasksByCpu, cpus, by_cpu),
            _ if !asked.per_thread && by_cpu <= left.min(EVENTS_MAX) => (Layout::TasksByCpu, cpus, by_cpu),
            _ => (Layout::Threads, threads, threads * 2),
        };
        if events > left {
            let needed = events + OTHER_DESCRIPTORS;
            return Err(PlanError::Descriptors { threads: asked.threads, needed, limit: means.descriptors });
        }
        // What newborn threads will need is not given away.
        let share = match layout {
            Layout::Threads => means.share(buffers) / 2,
            // Buffers for records only have as much for them as the others.
            Layout::TasksByCpu | Layout::WholeCpus => means.share(buffers + watched.div_ceil(RECORDS_SHARE)),
        };
        let records_bytes =
            floor_power_of_two(share / RECORDS_SHARE).clamp(RECORDS_MIN_BYTES, RECORDS_MAX_BYTES);
        let in_watched = (records_bytes + PAGE_BYTES) * watched;
        let all = means.share(1).saturating_sub(in_watched);
        let fits = share.min(all / buffers.max(1)).saturating_sub(records_bytes + PAGE_BYTES);
        let trace_bytes = match asked.trace_bytes {
            Some(bytes) => bytes.max(PAGE_BYTES).next_power_of_two(),
            None => floor_power_of_two(fits).min(TRACE_MAX_BYTES),
        };
        if trace_bytes < TRACE_MIN_BYTES && asked.trace_bytes.is_none() {
            let in_watched = watched * (RECORDS_MIN_BYTES + PAGE_BYTES);
            let in_buffers = buffers * (TRACE_MIN_BYTES + RECORDS_MIN_BYTES + PAGE_BYTES);
            let needed = (in_buffers + in_watched) * 9 / 8 / 1024;
            let limit = share * buffers / 1024;
            return Err(PlanError::LockedMemory {
                buffers,
                needed,
                limit,
                setting: needed.div_ceil(cpus.max(1)),
            });
        }
        let sized = asked.trace_bytes.is_some();
        Ok(Self { layout, buffers, watched, trace_bytes, records_bytes, events, sized })
    }

    /// The next best, where the kernel does not map these buffers: others of this user have locked memory, too, and some
    /// machines have no large stretches of it.  `None`: they cannot be smaller, or their size was asked for.
    #[must_use]
    pub fn smaller(self) -> Option<Self> {
        let trace_bytes = self.trace_bytes / 2;
        let records_bytes = (self.records_bytes / 2).max(RECORDS_MIN_BYTES);
        (!self.sized && trace_bytes >= TRACE_MIN_BYTES).then_some(Self { trace_bytes, records_bytes, ..self })
    }

    /// The same for a thread that is born later.
    #[must_use]
    pub fn for_newborns(self) -> Self {
        let trace_bytes =
            if self.sized { self.trace_bytes } else { self.trace_bytes.min(NEWBORN_TRACE_BYTES) };
        Self { trace_bytes, records_bytes: self.records_bytes.min(NEWBORN_RECORDS_BYTES), ..self }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = match self.layout {
            Layout::TasksByCpu => "of the traced threads on each CPU",
            Layout::Threads => "of each thread",
            Layout::WholeCpus => "of each CPU",
        };
        write!(
            f,
            "{} buffer{} {whose}, {} KB of trace and {} KB of records each{}; {} events",
            self.buffers,
            if self.buffers == 1 { "" } else { "s" },
            self.trace_bytes / 1024,
            self.records_bytes / 1024,
            match self.watched {
                0 => String::new(),
                watched => format!(", {watched} more of records only"),
            },
            self.events
        )
    }
}

fn floor_power_of_two(bytes: u64) -> u64 {
    match bytes {
        0 => 0,
        bytes => 1 << bytes.ilog2(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Means = Means { locked_bytes: None, available_bytes: 16 << 30, descriptors: 1 << 20 };
    /// Debian's defaults on four CPUs: 8 MB by ulimit -l, 516 KB for each CPU.
    const USER: Means = Means { locked_bytes: Some((8 << 20) + 4 * 516 * 1024), descriptors: 1024, ..ROOT };

    fn plan(asked: Asked, means: Means) -> Plan {
        Plan::new(asked, means).unwrap()
    }

    const ONE: Asked = Asked {
        threads: 1,
        cpus: 4,
        watched_cpus: 0,
        per_thread: false,
        only_these_cpus: false,
        trace_bytes: None,
    };

    #[test]
    fn buffers_share_what_there_is() {
        let root = plan(ONE, ROOT);
        assert_eq!((root.layout, root.buffers, root.events), (Layout::TasksByCpu, 4, 8));
        assert_eq!((root.trace_bytes, root.records_bytes), (8 << 20, 512 << 10));
        let user = plan(ONE, USER);
        assert_eq!((user.trace_bytes, user.records_bytes), (2 << 20, 256 << 10));
        let together = user.buffers * (user.trace_bytes + user.records_bytes + PAGE_BYTES);
        assert!(together <= USER.locked_bytes.unwrap());
        let small = plan(ONE, Means { available_bytes: 256 << 20, ..ROOT });
        assert_eq!(small.trace_bytes, 8 << 20);
    }

    #[test]
    fn cpus_that_are_only_watched_have_buffers_for_records() {
        let asked = Asked { cpus: 1, watched_cpus: 63, only_these_cpus: true, ..ONE };
        let whole = Asked { threads: 0, ..asked };
        let mapped = |plan: Plan| {
            let records = plan.records_bytes + PAGE_BYTES;
            plan.buffers * (plan.trace_bytes + records) + plan.watched * records
        };
        for (asked, means) in [(asked, USER), (asked, ROOT), (whole, ROOT)] {
            let plan = plan(asked, means);
            assert_eq!((plan.buffers, plan.watched, plan.events), (1, 63, 65));
            assert!(mapped(plan) <= means.share(1), "{plan}");
        }
        assert_eq!(plan(Asked { threads: 9, ..asked }, ROOT).events, 9 * 65);
        assert!(plan(asked, USER).to_string().ends_with(", 63 more of records only; 65 events"));
        let Err(PlanError::LockedMemory { setting, .. }) =
            Plan::new(asked, Means { locked_bytes: Some(64 << 10), ..USER })
        else {
            panic!("64 KB are too few for 64 buffers")
        };
        let enough = Means { locked_bytes: Some(setting * 1024), ..USER };
        assert!(plan(asked, enough).trace_bytes >= TRACE_MIN_BYTES);
    }

    #[test]
    fn too_many_descriptors_mean_one_buffer_a_thread() {
        let many = Asked { threads: 300, ..ONE };
        assert_eq!(plan(many, ROOT).layout, Layout::TasksByCpu);
        let few = plan(many, Means { descriptors: 1024, ..ROOT });
        assert_eq!((few.layout, few.buffers, few.events), (Layout::Threads, 300, 600));
        let pinned = Asked { only_these_cpus: true, ..many };
        assert_eq!(plan(pinned, ROOT).layout, Layout::TasksByCpu);
        assert!(Plan::new(pinned, Means { descriptors: 1024, ..ROOT }).is_err(), "-C was left out");
        assert_eq!(plan(Asked { threads: 9000, ..ONE }, ROOT).layout, Layout::Threads);
        let error = Plan::new(Asked { threads: 1000, ..ONE }, Means { descriptors: 1024, ..ROOT });
        assert_eq!(error, Err(PlanError::Descriptors { threads: 1000, needed: 2064, limit: 1024 }));
    }

    #[test]
    fn what_was_asked_for_is_done() {
        let asked = Asked { per_thread: true, trace_bytes: Some(3 << 20), ..ONE };
        assert_eq!((plan(asked, USER).layout, plan(asked, USER).trace_bytes), (Layout::Threads, 4 << 20));
        assert_eq!(plan(Asked { threads: 0, ..ONE }, ROOT).layout, Layout::WholeCpus);
        assert_eq!(plan(Asked { trace_bytes: Some(1), ..ONE }, USER).trace_bytes, PAGE_BYTES);
        assert_eq!(plan(asked, USER).for_newborns().trace_bytes, 4 << 20);
        assert_eq!(plan(ONE, USER).for_newborns().trace_bytes, NEWBORN_TRACE_BYTES);
    }

    #[test]
    fn buffers_that_cannot_be_had_are_halved_unless_their_size_was_asked_for() {
        let sizes: Vec<u64> = std::iter::successors(Some(plan(ONE, ROOT)), |plan| plan.smaller())
            .map(|plan| plan.trace_bytes)
            .collect();
        assert_eq!((sizes[0], sizes[1], sizes.last()), (8 << 20, 4 << 20, Some(&TRACE_MIN_BYTES)));
        assert_eq!(plan(Asked { trace_bytes: Some(8 << 20), ..ONE }, ROOT).smaller(), None);
    }

    #[test]
    fn too_little_memory_says_how_much_is_enough() {
        let means = Means { locked_bytes: Some(64 << 10), ..USER };
        let Err(PlanError::LockedMemory { buffers, limit, setting, .. }) = Plan::new(ONE, means) else {
            panic!("64 KB are too few for four buffers")
        };
        assert_eq!((buffers, limit), (4, 64));
        let enough = Means { locked_bytes: Some(4 * setting * 1024), ..USER };
        assert_eq!(plan(ONE, enough).trace_bytes, TRACE_MIN_BYTES);
    }
}
