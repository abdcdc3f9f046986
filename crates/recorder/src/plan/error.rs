//! Why there is no plan, and what would be enough for one.

use super::{MEMORY_SHARE, PAGE_BYTES, RECORDS_MIN_BYTES, TRACE_MIN_BYTES};
use crate::means::{LockLimit, Means};

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

/// What is missing for `shares` buffers of trace and records, and `watched` buffers of records only.
pub(super) fn too_little(buffers: u64, shares: u64, watched: u64, means: Means) -> PlanError {
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
