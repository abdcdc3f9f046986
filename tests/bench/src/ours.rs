//! Our decoder, with its time stamps, into a sink that only counts.

use decoder::DecodeOptions;
use model::{BranchKind, EventSink, Pid, SpaceId, Tid, TraceEvent, Transfer};

use crate::Counts;
use crate::opened::Opened;

/// Decodes all of a recording: calls, returns and what else the analysis asks for, or every taken branch.
pub(crate) fn decode(opened: &Opened<'_>, all_branches: bool) -> Counts {
    let Opened { recording, schedule, image } = opened;
    let options = DecodeOptions { all_branches, ..DecodeOptions::default() };
    let mut sink = Counting::default();
    decoder::decode(recording, schedule, image, image, &options, &|_| (), &mut sink);
    vec![("events", sink.events), ("calls", sink.calls), ("gaps", sink.gaps)]
}

/// Looks at every event once, as any consumer must.
#[derive(Default)]
struct Counting {
    events: u64,
    /// Calls and returns.
    calls: u64,
    gaps: u64,
}

impl EventSink for Counting {
    fn events(&mut self, _: Pid, _: Tid, _: SpaceId, events: &[TraceEvent]) {
        self.events += events.len() as u64;
        for event in events {
            match event {
                TraceEvent::Branch(branch) => self.calls += u64::from(is_call(&branch.transfer)),
                TraceEvent::Gap(_) => self.gaps += 1,
            }
        }
    }
}

fn is_call(transfer: &Transfer) -> bool {
    use BranchKind::{Call, IndirectCall, Return};
    matches!(transfer, Transfer::Branch { kind: Call | IndirectCall | Return, .. })
}
