//! What this process may have: locked memory, free memory, descriptors.

use std::fmt;

use rustix::process::{Resource, getrlimit};

use crate::permission::{CAP_IPC_LOCK, capabilities};
use crate::procfs::Proc;

/// The kernel's own, where the setting cannot be read.
const MLOCK_KB: i64 = 516;

/// What this process may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// Memory that perf may lock for it; `None`: as much as there is.
    pub locked: Option<LockLimit>,
    /// Memory that is free.
    pub available_bytes: u64,
    /// File descriptors.
    pub descriptors: u64,
}

impl Means {
    /// Of this process, which has `descriptors`, on a machine with `cpus` CPUs.
    #[must_use]
    pub fn here(proc: &Proc, cpus: usize, descriptors: u64) -> Self {
        Self {
            locked: LockLimit::here(proc, cpus),
            available_bytes: proc.memory_available_bytes().unwrap_or(1 << 30),
            descriptors,
        }
    }

    /// Memory that perf may lock for it.
    #[must_use]
    pub fn locked_bytes(&self) -> u64 {
        self.locked.map_or(u64::MAX, |limit| limit.bytes())
    }
}

/// How much memory perf may lock for an ordinary user (`perf_mmap` in kernel/events/core.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockLimit {
    /// `ulimit -l`: what goes beyond the setting.
    pub ulimit_bytes: u64,
    /// `kernel.perf_event_mlock_kb`: so much for each CPU that runs, whichever of them are traced.
    pub setting_kb: u64,
    /// CPUs that run.
    pub cpus: u64,
}

impl LockLimit {
    /// Of this process, on a machine where `cpus` CPUs run; `None`: it may lock as much as there is.
    #[must_use]
    pub fn here(proc: &Proc, cpus: usize) -> Option<Self> {
        let may_lock_all =
            capabilities(proc) & CAP_IPC_LOCK != 0 || proc.setting("kernel/perf_event_paranoid") == Some(-1);
        let setting = proc.setting("kernel/perf_event_mlock_kb").unwrap_or(MLOCK_KB);
        let limited = |ulimit_bytes| Self {
            ulimit_bytes,
            setting_kb: u64::try_from(setting).unwrap_or(0),
            cpus: cpus as u64,
        };
        getrlimit(Resource::Memlock).current.filter(|_| !may_lock_all).map(limited)
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let by_setting = self.setting_kb.saturating_mul(1024).saturating_mul(self.cpus);
        self.ulimit_bytes.saturating_add(by_setting)
    }

    /// The setting that alone is enough for so much.
    pub(crate) fn setting_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(1024).div_ceil(self.cpus.max(1))
    }
}

impl fmt::Display for LockLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ulimit_bytes, setting_kb, cpus } = self;
        write!(f, "ulimit -l is {} KB, kernel.perf_event_mlock_kb is {setting_kb}", ulimit_bytes / 1024)?;
        match cpus {
            1 => write!(f, " for the one CPU"),
            cpus => write!(f, " for each of {cpus} CPUs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_told_as_it_is_set() {
        let limit = LockLimit { ulimit_bytes: 64 << 10, setting_kb: 516, cpus: 8 };
        assert_eq!(
            limit.to_string(),
            "ulimit -l is 64 KB, kernel.perf_event_mlock_kb is 516 for each of 8 CPUs"
        );
        assert_eq!(limit.bytes(), (64 + 8 * 516) << 10);
        assert_eq!((limit.setting_for(8 << 20), limit.setting_for(1)), (1024, 1));
    }
}
