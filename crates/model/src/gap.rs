//! Holes in what we know.  A hole is data in the stream, never an exception and never silence.

use crate::address::{AuxOffset, Avma};
use crate::clock::EventTime;
use crate::code::ObjectId;
use serde::{Deserialize, Serialize};

/// Why part of a thread's execution is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GapCause {
    /// The trace unit lost packets (OVF).
    Overflow,
    /// The AUX buffer was full, or the kernel lost data otherwise (PERF_RECORD_AUX flags).
    Truncated,
    /// The bytes are not valid packets here.
    DamagedPacket,
    /// Packets and code contradict each other at this address.
    Desync {
        /// Last address that was certain.
        ip: Avma,
    },
    /// No code bytes for this object (missing file, wrong build id).
    MissingCode {
        /// The object; its name is `CodeSource::object_name`.
        object: ObjectId,
    },
    /// No mapping at this address.
    UnmappedCode {
        /// First address without code.
        ip: Avma,
    },
    /// Code of 32 or 16 bits (MODE.Exec), which is not followed.
    NarrowCode {
        /// Where it was entered.
        ip: Avma,
    },
    /// An instruction that the disassembler does not know: its length is unknown, and whether it is a branch.
    UnknownInstruction {
        /// Where it is.
        ip: Avma,
    },
    /// A virtual machine ran, and its code is not followed: a gap of no thread.
    Guest,
    /// The trace of a CPU does not say which thread ran.
    UnknownThread,
    /// The buffer starts before its first PSB.
    NoSync,
    /// The thread lived before it was attached to.
    NotYetAttached,
    /// The thread ran on a CPU that was not traced.
    UntracedCpu,
    /// Snapshots were recorded: what ran between two was overwritten, or not traced while one was copied.
    BetweenSnapshots,
    /// The trace was recorded, and not decoded: decoding was too slow to follow.
    NotDecoded,
    /// The ring of probed calls was full: one gap for each call that it had no room for.
    FullRing,
}

impl GapCause {
    /// Short name for tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::Truncated => "truncated",
            Self::DamagedPacket => "damaged packet",
            Self::Desync { .. } => "desync",
            Self::MissingCode { .. } => "missing code",
            Self::UnmappedCode { .. } => "unmapped code",
            Self::NarrowCode { .. } => "32-bit code",
            Self::UnknownInstruction { .. } => "unknown instruction",
            Self::Guest => "guest",
            Self::UnknownThread => "unknown thread",
            Self::NoSync => "no sync",
            Self::NotYetAttached => "not yet attached",
            Self::UntracedCpu => "untraced CPU",
            Self::BetweenSnapshots => "between snapshots",
            Self::NotDecoded => "not decoded",
            Self::FullRing => "full ring",
        }
    }

    /// Packets or code could not be decoded: neither the trace unit's doing nor the kernel's, nor a matter of
    /// when tracing began.
    #[must_use]
    pub const fn is_decoding_error(self) -> bool {
        match self {
            Self::DamagedPacket
            | Self::Desync { .. }
            | Self::MissingCode { .. }
            | Self::UnmappedCode { .. }
            | Self::NarrowCode { .. }
            | Self::UnknownInstruction { .. }
            | Self::UnknownThread => true,
            Self::Overflow
            | Self::Truncated
            | Self::Guest
            | Self::NoSync
            | Self::NotYetAttached
            | Self::UntracedCpu
            | Self::BetweenSnapshots
            | Self::NotDecoded
            | Self::FullRing => false,
        }
    }
}

/// Control flow between the event before and the event after is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// From here.
    pub from: EventTime,
    /// To here.  May equal `from`.
    pub to: EventTime,
    /// AUX bytes that were skipped; may be 0.
    pub bytes: u64,
    /// Where in the AUX stream.
    pub at: AuxOffset,
    /// Why.
    pub cause: GapCause,
}
