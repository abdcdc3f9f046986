//! Whether the trace of a recording has times.
//!
//! TSC packets come in each PSB+ where they are on (SDM "TSC packet"), so that nearly always the first
//! packets tell. A trace that has none at all is read to its end.

use model::{AuxPiece, NoTimes, Recording};
use packet::Packet;

use crate::reader::{Item, Reader};

/// Why no time in the trace of a recording is known; `None`: times are known, or there is no trace.
#[must_use]
pub fn no_times(recording: &Recording<'_>) -> Option<NoTimes> {
    if !recording.pt.tsc {
        return Some(NoTimes::TscOff);
    }
    if recording.clock.is_none() {
        return Some(NoTimes::NoClock);
    }
    let mut synced = recording.buffers.iter().filter_map(|buffer| has_tsc(&buffer.pieces)).peekable();
    synced.peek()?;
    (!synced.any(|has_tsc| has_tsc)).then_some(NoTimes::NoTscPackets)
}

/// A trace has a TSC packet; `None`: it has no PSB+ either, in which one would be. Bytes before the first
/// PSB, and those that are no packet, may look like one.
fn has_tsc(pieces: &[AuxPiece<'_>]) -> Option<bool> {
    let mut reader = Reader::new(pieces, false);
    reader.resync_here();
    let mut has_tsc = None;
    while let Some(item) = reader.next() {
        match item {
            Item::Packet(_, Packet::Tsc(_)) => return Some(true),
            Item::Packet(_, Packet::PsbEnd) => has_tsc = Some(false),
            Item::Packet(..) => (),
            Item::Bad(..) => reader.resync(),
        }
    }
    has_tsc
}
