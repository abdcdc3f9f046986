//! The threads of a recording, and those that were asked for.

use anyhow::Result;
use model::{AuxOwner, Recording, Schedule, Tid};

use crate::exit::{Exit, failure};
use crate::filter::TidSet;
use crate::messages;

/// All threads that a recording tells of, in order.
pub(crate) fn known(recording: &Recording<'_>, schedule: &Schedule) -> Vec<Tid> {
    let owners = recording.buffers.iter().filter_map(|buffer| match buffer.owner {
        AuxOwner::Thread(tid) => Some(tid),
        AuxOwner::Cpu(_) => None,
    });
    let mut known: Vec<Tid> = schedule.threads().map(|(tid, _)| tid).chain(owners).collect();
    known.sort_unstable();
    known.dedup();
    known
}

/// Those of `-T` must be among the known ones: one at least, and others are warned of.
///
/// # Errors
/// None is.
pub(crate) fn check(asked: &TidSet, known: &[Tid]) -> Result<()> {
    if !known.iter().any(|tid| asked.contains(*tid)) {
        return Err(none_of("-T: no such thread", known));
    }
    warn_of_missing(asked, known);
    Ok(())
}

/// The error that what an option names is not among the known threads or processes: `-T: no such thread`.
pub(crate) fn none_of(what: &str, known: &[Tid]) -> anyhow::Error {
    failure(Exit::Usage, format!("{what} in the recording, which has {}", list(known)))
}

/// Warns of ranges of `-T` in which no thread is known.
pub(crate) fn warn_of_missing(asked: &TidSet, known: &[Tid]) {
    for range in asked.0.iter().filter(|range| !known.iter().any(|tid| range.contains(*tid))) {
        messages::warn(format!("-T {range}: no such thread in the recording, which has {}", list(known)));
    }
}

fn list(known: &[Tid]) -> String {
    known.iter().map(|tid| tid.0.to_string()).collect::<Vec<_>>().join(", ")
}
