//! Number, layout and size of the buffers: decided before anything is opened, from what this process may
//! have.

mod error;

use std::fmt;

pub use error::PlanError;

use crate::means::Means;

const PAGE_BYTES: u64 = 4096;
/// At a gigabyte a second, more than a core writes, a drain has 6 ms to come. The kernel clears all of it at
/// the start.
const TRACE_MAX_BYTES: u64 = 8 << 20;
/// A trace unit that stops all the time for a smaller one measures itself.
const TRACE_MIN_BYTES: u64 = 16 << 10;
const RECORDS_MAX_BYTES: u64 = 512 << 10;
const RECORDS_MIN_BYTES: u64 = 2 * PAGE_BYTES;
/// A buffer's share of memory divided by this is for its records, about.
const RECORDS_SHARE: u64 = 8;
/// Free memory divided by this is the most that all buffers take together.
const MEMORY_SHARE: u64 = 4;
/// Descriptors that are not of events: the file, objects, standard streams.
const OTHER_DESCRIPTORS: u64 = 64;

/// More events than this are not opened where one for each thread does: each is 2 KB of the kernel's memory,
/// and a call when the window begins and ends.
const EVENTS_MAX: u64 = 1 << 15;

/// Buffers of newborn threads are small: how many there will be is not known, and each is opened while its
/// thread runs.
const NEWBORN_TRACE_BYTES: u64 = 256 << 10;
const NEWBORN_RECORDS_BYTES: u64 = 32 << 10;

/// How events share buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Events of the traced threads on each CPU, inherited by the threads that they create; one buffer for
    /// each CPU.
    TasksByCpu,
    /// One event and one buffer for each thread; newborn threads are opened when their birth is seen.
    Threads,
    /// One event and one buffer for each CPU, for all that runs there.
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
    /// How events share buffers.
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
            None if fits < TRACE_MIN_BYTES => return Err(error::too_little(buffers, shares, watched, means)),
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

    /// A plan with smaller buffers, for where the kernel does not map these: others of this user have locked
    /// memory, too, and memory that was free may be taken. `None`: they cannot be smaller, or their size was
    /// asked for.
    #[must_use]
    pub fn smaller(self) -> Option<Self> {
        let trace_bytes = self.trace_bytes / 2;
        let records_bytes = (self.records_bytes / 2).max(RECORDS_MIN_BYTES);
        (!self.sized && trace_bytes >= TRACE_MIN_BYTES).then_some(Self { trace_bytes, records_bytes, ..self })
    }

    /// This plan for a thread that is born later.
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
mod tests;
