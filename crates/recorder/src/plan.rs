//! How many buffers of which size, and whose: decided before anything is opened, from what this process may have.

use std::fmt;

use crate::means::{LockLimit, Means};

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
        "{buffers} buffers of trace need {needed_kb} KB of locked memory at least, and this process may have {} KB ({limit}): \
         sudo sysctl kernel.perf_event_mlock_kb={setting_kb}, or ulimit -l unlimited (as root), or CAP_IPC_LOCK, or fewer \
         threads (-T) or CPUs (-C)",
        .limit.bytes() / 1024
    )]
    LockedMemory {
        /// Buffers.
        buffers: u64,
        /// KB for the smallest that make sense, and for those of newborn threads.
        needed_kb: u64,
        /// What there may be.
        limit: LockLimit,
        /// The setting that would be enough.
        setting_kb: u64,
    },
    /// Not enough memory.
    #[error(
        "{buffers} buffers of trace need {needed_kb} KB at least, which is more than a quarter of the {available_kb} KB that are \
         free: end what has the memory, until {enough_kb} KB are, or fewer threads (-T) or CPUs (-C)"
    )]
    Memory {
        /// Buffers.
        buffers: u64,
        /// KB for the smallest that make sense, and for those of newborn threads.
        needed_kb: u64,
        /// KB that are free.
        available_kb: u64,
        /// KB that must be.
        enough_kb: u64,
    },
}

/// Events to begin with: the trace, and the sideband, which is on further CPUs, too.
fn events(layout: Layout, asked: Asked) -> u64 {
    let (threads, cpus) = (asked.threads as u64, asked.cpus as u64);
    let on_cpus = 2 * cpus + asked.watched_cpus as u64;
    match layout {
        Layout::TasksByCpu => threads.saturating_mul(on_cpus),
        Layout::Threads => threads.saturating_mul(2),
        Layout::WholeCpus => on_cpus,
    }
}

/// Descriptors for events.
fn left(means: Means) -> u64 {
    means.descriptors.saturating_sub(OTHER_DESCRIPTORS)
}

/// What is missing for so many shares of what there is, and so many buffers for records only.
fn too_little(buffers: u64, shares: u64, watched: u64, means: Means) -> PlanError {
    const { assert!(MEMORY_SHARE == 4, "the text says a quarter") };
    let records = (shares + watched).saturating_mul(RECORDS_MIN_BYTES + PAGE_BYTES);
    let needed = records.saturating_add(shares.saturating_mul(TRACE_MIN_BYTES));
    let needed_kb = needed / 1024;
    match means.locked {
        Some(limit) if limit.bytes() < needed => {
            PlanError::LockedMemory { buffers, needed_kb, limit, setting_kb: limit.setting_for(needed) }
        }
        _ => PlanError::Memory {
            buffers,
            needed_kb,
            available_kb: means.available_bytes / 1024,
            enough_kb: needed_kb.saturating_mul(MEMORY_SHARE),
        },
    }
}

impl Plan {
    /// Decides.
    ///
    /// # Errors
    /// Too few descriptors, or too little memory, for what was asked.
    pub fn new(asked: Asked, means: Means) -> Result<Self, PlanError> {
        let by_cpu = || Self::with(Layout::TasksByCpu, asked, means);
        match asked.threads {
            0 => Self::with(Layout::WholeCpus, asked, means),
            _ if asked.only_these_cpus => by_cpu(),
            _ if asked.per_thread => Self::with(Layout::Threads, asked, means),
            _ if events(Layout::TasksByCpu, asked) <= EVENTS_MAX.min(left(means)) => by_cpu(),
            // Few large buffers may fit where many small ones do not.
            _ => Self::with(Layout::Threads, asked, means).or_else(|error| by_cpu().map_err(|_| error)),
        }
    }

    fn with(layout: Layout, asked: Asked, means: Means) -> Result<Self, PlanError> {
        let events = events(layout, asked);
        if events > left(means) {
            let needed = events.saturating_add(OTHER_DESCRIPTORS);
            return Err(PlanError::Descriptors { threads: asked.threads, needed, limit: means.descriptors });
        }
        let (buffers, shares, watched) = match layout {
            Layout::TasksByCpu | Layout::WholeCpus => {
                (asked.cpus as u64, asked.cpus as u64, asked.watched_cpus as u64)
            }
            // What newborn threads will need is not given away.
            Layout::Threads => (asked.threads as u64, 2 * asked.threads as u64, 0),
        };
        let all = means.locked_bytes().min(means.available_bytes / MEMORY_SHARE);
        let share = all / (shares + watched).max(1);
        let records_bytes =
            floor_power_of_two(share / RECORDS_SHARE).clamp(RECORDS_MIN_BYTES, RECORDS_MAX_BYTES);
        let without_watched = all.saturating_sub(watched * (records_bytes + PAGE_BYTES));
        let fits = (without_watched / shares.max(1)).saturating_sub(records_bytes + PAGE_BYTES);
        let trace_bytes = match asked.trace_bytes {
            Some(bytes) => bytes.max(PAGE_BYTES).next_power_of_two(),
            None if fits < TRACE_MIN_BYTES => return Err(too_little(buffers, shares, watched, means)),
            None => floor_power_of_two(fits).min(TRACE_MAX_BYTES),
        };
        let sized = asked.trace_bytes.is_some();
        Ok(Self { layout, buffers, watched, trace_bytes, records_bytes, events, sized })
    }

    /// What all buffers take.
    pub(crate) fn bytes(&self) -> u64 {
        let records =
            self.records_bytes.saturating_add(PAGE_BYTES).saturating_mul(self.buffers + self.watched);
        records.saturating_add(self.trace_bytes.saturating_mul(self.buffers))
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

    const ROOT: Means = Means { locked: None, available_bytes: 16 << 30, descriptors: 1 << 20 };
    /// Debian's defaults on four CPUs.
    const USER: Means = Means {
        locked: Some(LockLimit { ulimit_bytes: 8 << 20, setting_kb: 516, cpus: 4 }),
        descriptors: 1024,
        ..ROOT
    };

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
        assert!(user.bytes() <= USER.locked_bytes());
        let small = plan(ONE, Means { available_bytes: 256 << 20, ..ROOT });
        assert_eq!(small.trace_bytes, 8 << 20);
    }

    #[test]
    fn cpus_that_are_only_watched_have_buffers_for_records() {
        let asked = Asked { cpus: 1, watched_cpus: 63, only_these_cpus: true, ..ONE };
        let whole = Asked { threads: 0, ..asked };
        for (asked, means) in [(asked, USER), (asked, ROOT), (whole, ROOT)] {
            let plan = plan(asked, means);
            assert_eq!((plan.buffers, plan.watched, plan.events), (1, 63, 65));
            let all = means.locked_bytes().min(means.available_bytes / MEMORY_SHARE);
            assert!(plan.bytes() <= all, "{plan}");
        }
        assert_eq!(plan(Asked { threads: 9, ..asked }, ROOT).events, 9 * 65);
        assert!(plan(asked, USER).to_string().ends_with(", 63 more of records only; 65 events"));
        let locked = LockLimit { ulimit_bytes: 64 << 10, setting_kb: 0, cpus: 64 };
        let Err(PlanError::LockedMemory { setting_kb, .. }) =
            Plan::new(asked, Means { locked: Some(locked), ..USER })
        else {
            panic!("64 KB are too few for 64 buffers")
        };
        let enough = Means { locked: Some(LockLimit { setting_kb, ..locked }), ..USER };
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

    /// Where one buffer a thread is what is left, and so many do not fit, one a CPU does.
    #[test]
    fn many_threads_of_an_ordinary_user_have_buffers_by_cpu() {
        let asked = Asked { threads: 1000, cpus: 64, ..ONE };
        let limit = LockLimit { ulimit_bytes: 8 << 20, setting_kb: 516, cpus: 64 };
        let means = Means { locked: Some(limit), descriptors: 1 << 19, ..ROOT };
        let many = plan(asked, means);
        assert_eq!((many.layout, many.buffers, many.trace_bytes), (Layout::TasksByCpu, 64, 512 << 10));
        let one = Plan::new(Asked { per_thread: true, ..asked }, means);
        assert!(
            matches!(one, Err(PlanError::LockedMemory { buffers: 1000, .. })),
            "-t was left out: {one:?}"
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let limit = LockLimit { ulimit_bytes: 64 << 10, setting_kb: 0, cpus: 4 };
        let text = |means| Plan::new(ONE, means).unwrap_err().to_string();
        let locked = text(Means { locked: Some(limit), ..USER });
        let expect = "4 buffers of trace need 112 KB of locked memory at least, and this process may have 64 KB \
                      (ulimit -l is 64 KB, kernel.perf_event_mlock_kb is 0 for each of 4 CPUs): \
                      sudo sysctl kernel.perf_event_mlock_kb=28, or ";
        assert!(locked.starts_with(expect), "{locked}");
        let free = text(Means { available_bytes: 256 << 10, ..ROOT });
        let expect = "4 buffers of trace need 112 KB at least, which is more than a quarter of the 256 KB that are free: \
                      end what has the memory, until 448 KB are, or ";
        assert!(free.starts_with(expect), "root was told of what may be locked: {free}");
    }

    /// Each kind of trouble is mended once, and then there is a plan.
    #[test]
    fn who_does_what_is_said_has_a_plan() {
        let mut refused = 0;
        for (asked, means) in all_of_it() {
            let mut mended = means;
            for advice in 0.. {
                match Plan::new(asked, mended) {
                    Ok(_) => break,
                    Err(error) => {
                        refused += 1;
                        assert!(advice < 3, "{asked:?} {means:?}: {error}");
                        mended = followed(error, mended);
                    }
                }
            }
        }
        assert!(refused > 1000, "{refused}");
    }

    fn all_of_it() -> impl Iterator<Item = (Asked, Means)> {
        let threads = [0, 1, 7, 100, 1000, 9000].into_iter();
        let asked = threads.flat_map(|threads| {
            [1, 3, 64].into_iter().flat_map(move |cpus| {
                [(false, false), (true, false), (false, true)].map(|(per_thread, only_these_cpus)| Asked {
                    threads,
                    cpus,
                    watched_cpus: if only_these_cpus { 3 } else { 0 },
                    per_thread,
                    only_these_cpus,
                    trace_bytes: None,
                })
            })
        });
        asked.flat_map(|asked| {
            let locked =
                [(0, 0), (64 << 10, 0), (8 << 20, 516)].into_iter().flat_map(|(ulimit_bytes, setting_kb)| {
                    // More CPUs may run than are asked for.
                    [64, 96].map(|cpus| Some(LockLimit { ulimit_bytes, setting_kb, cpus }))
                });
            locked.chain([None]).flat_map(move |locked| {
                [1 << 16, 1 << 24, 1 << 34].into_iter().flat_map(move |available_bytes| {
                    [64, 1024, 1 << 19]
                        .map(|descriptors| (asked, Means { locked, available_bytes, descriptors }))
                })
            })
        })
    }

    /// What there is when that has been done.
    fn followed(error: PlanError, means: Means) -> Means {
        match error {
            PlanError::Descriptors { needed, .. } => Means { descriptors: needed, ..means },
            PlanError::LockedMemory { setting_kb, limit, .. } => {
                Means { locked: Some(LockLimit { setting_kb, ..limit }), ..means }
            }
            PlanError::Memory { enough_kb, .. } => Means { available_bytes: enough_kb * 1024, ..means },
        }
    }
}
