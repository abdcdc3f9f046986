//! libipt, Intel's reference decoder, with the interface of ours: a second opinion on every recording.
//!
//! ```text
//! Segment (decoder) --runs--> bytes without holes --sys: pt_insn_*--> instructions, events of libipt
//!     --flow--> TraceEvent --> Stretch (decoder), joined per thread as ours are
//! ```
//!
//! libipt's are the packets, IP and return compression, the walk over the code (with its own instruction
//! decoder) and the time. Ours, and so no second opinion, are the code bytes, where a buffer may be cut,
//! which thread runs when tracing starts, and the order of threads. `docs/testing/second-opinions.md` lists
//! what libipt cannot know.
//!
//! libipt gives a time without a bound on its error; the bounds of an event are the on-CPU stretch of its
//! thread.
//!
//! Without the feature `system` this crate is empty, and nothing of libipt need be installed.
#![cfg(feature = "system")]

mod abi;
#[cfg(test)]
mod abi_test;
mod blocks;
mod config;
mod flow;
mod functions;
mod instruction;
mod memory;
mod runs;
mod sys;
#[cfg(test)]
mod tests;
mod when;

pub use blocks::{BlockCounts, MappedFiles, Refused, decode_blocks};

use decoder::{Context, Segment, SegmentDecoder, SegmentOutput};

/// The version of `intel-pt.h` that [`abi`] follows; patches keep the interface.
const MAJOR: u8 = 2;
const MINOR: u8 = 0;

/// The library that is installed is not the one that we know.
#[derive(Debug, thiserror::Error)]
#[error("libipt {major}.{minor} is installed; this program was made for libipt {MAJOR}.{MINOR}")]
pub struct VersionError {
    major: u8,
    minor: u8,
}

/// libipt as a decoder of segments.
#[derive(Debug)]
pub struct Libipt(());

impl Libipt {
    /// Checks that the library's interface is the one that this crate was written for.
    ///
    /// # Errors
    /// It is another.
    pub fn new() -> Result<Self, VersionError> {
        match sys::version() {
            (MAJOR, MINOR, _) => Ok(Self(())),
            (major, minor, _) => Err(VersionError { major, minor }),
        }
    }
}

impl SegmentDecoder for Libipt {
    fn decode(&self, context: &Context<'_>, segment: &Segment<'_>) -> SegmentOutput {
        flow::decode_segment(context, segment)
    }

    /// From PSB to PSB: the trace unit's stack for compressed returns is empty after each (SDM, "RET
    /// Compression"), and libipt's only where it starts. It also stops at an error before a PSB.
    fn segment_bytes(&self, _: u64) -> u64 {
        1
    }
}
