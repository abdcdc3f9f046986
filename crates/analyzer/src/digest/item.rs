//! What a run is digested from: events, or events and digests of shorter runs.

use model::{EventTime, RunPart, SpaceId, TraceEvent};

use super::RunDigest;
use crate::runs::{ItemKind, RunItem};
use crate::session::Session;
use crate::thread::Thread;

/// What a run is digested from.
pub(super) trait DigestedItem: RunItem + Sized {
    /// Passes the items; whether all could be.
    fn pass<'a>(items: &[Self], thread: &mut Thread<'a>, session: &mut Session<'a>, space: SpaceId) -> bool;

    /// Frames that are open at once in these items, at most.
    fn depth(items: &[Self]) -> usize;
}

impl DigestedItem for TraceEvent {
    fn pass<'a>(items: &[Self], thread: &mut Thread<'a>, session: &mut Session<'a>, space: SpaceId) -> bool {
        thread.events(session, space, items);
        true
    }

    fn depth(items: &[Self]) -> usize {
        items.len()
    }
}

impl RunItem for RunPart<RunDigest> {
    fn kind(&self) -> ItemKind<'_> {
        match self {
            Self::Event(event) => ItemKind::Event(event),
            Self::Run(run) => {
                ItemKind::Run { caller: run.digest.needs.caller, starts: run.digest.needs.starts }
            }
        }
    }

    fn first(&self) -> EventTime {
        match self {
            Self::Event(event) => event.time(),
            Self::Run(run) => run.first,
        }
    }

    fn events(&self) -> u64 {
        match self {
            Self::Event(_) => 1,
            Self::Run(run) => run.events,
        }
    }
}

impl DigestedItem for RunPart<RunDigest> {
    fn pass<'a>(items: &[Self], thread: &mut Thread<'a>, session: &mut Session<'a>, space: SpaceId) -> bool {
        items.iter().all(|item| match item {
            Self::Event(event) => {
                thread.events(session, space, std::slice::from_ref(event));
                true
            }
            Self::Run(run) => {
                let takes = thread.takes(run);
                if takes {
                    thread.take(session, space, run);
                }
                takes
            }
        })
    }

    fn depth(items: &[Self]) -> usize {
        let (mut events, mut of_runs) = (0, 0);
        for item in items {
            match item {
                Self::Event(_) => events += 1,
                Self::Run(run) => of_runs = run.digest.needs.depth.max(of_runs),
            }
        }
        events + of_runs
    }
}
