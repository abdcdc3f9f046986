//! Intel PT packets, one at a time: bytes to [`Packet`] and back.
//!
//! A packet is a header of one or two bytes and a payload of fixed or self-described length (Intel SDM
//! volume 3, "Intel Processor Trace", section "Packet Definitions"; SDM hereafter).  The stream has no
//! framing: a reader must know every packet's length, and finds its place again only at a PSB, a pattern
//! that no other packet contains.
//!
//! ```text
//! PSB  TSC TMA CBR MODE FUP PSBEND   CYC TNT  CYC TIP  MTC  ...
//! |--- PSB+: where we are, when ---| |-- what happened next --|
//! ```
//!
//! This crate allocates nothing and keeps no state but [`LastIp`], the IP compression of TIP, TIP.PGE,
//! TIP.PGD and FUP.  What packets mean together is `decoder`'s business.

mod common;
mod decode;
mod display;
mod encode;
mod event;
mod ip;
mod psb;
mod tnt;

pub use common::{Common, decode_common, decode_cyc, decode_flow};
pub use decode::{Context, PacketError, decode};
pub use encode::encode;
pub use event::{ControlFlowEvent, EventData};
pub use ip::{IpPayload, LastIp};
pub use psb::{PSB, find_psb};
pub use tnt::Tnt;

/// The longest packet: PSB.
pub const MAX_PACKET_LEN: usize = 16;

/// One packet.  Fields are as in the SDM; values that IP compression applies to stay compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Padding.
    Pad,
    /// Packet stream boundary: decoding can start here.
    Psb,
    /// End of PSB+.
    PsbEnd,
    /// Taken/not-taken bits of conditional branches and compressed returns.
    Tnt(Tnt),
    /// Target of an indirect branch, uncompressed return, interrupt, exception.
    Tip(IpPayload),
    /// Packet generation enabled: tracing starts at this address.
    TipPge(IpPayload),
    /// Packet generation disabled: tracing stops; the address is where control went, if given.
    TipPgd(IpPayload),
    /// Flow update: the source address of an asynchronous event, or where an event is bound to.
    Fup(IpPayload),
    /// Paging information: CR3 changed.
    Pip {
        /// New CR3, low 5 bits clear.
        cr3: u64,
        /// In VMX non-root operation.
        non_root: bool,
    },
    /// MODE.Exec.
    ModeExec {
        /// CS.L: 64-bit mode.
        long: bool,
        /// CS.D: 32-bit default size (if not `long`).
        default_32: bool,
        /// RFLAGS.IF (event trace).
        interrupts: bool,
    },
    /// MODE.TSX.
    ModeTsx {
        /// In a transaction.
        in_transaction: bool,
        /// The transaction aborted.
        aborted: bool,
    },
    /// Time stamp counter, low 56 bits.
    Tsc(u64),
    /// Relates TSC and crystal clock.
    Tma {
        /// Crystal clock counter, low 16 bits.
        ctc: u16,
        /// TSC ticks since that crystal clock tick, 9 bits.
        fast: u16,
    },
    /// Crystal clock counter, 8 bits from bit `mtc_period` on.
    Mtc(u8),
    /// Core cycles since the last CYC.
    Cyc(u64),
    /// Core:bus ratio.
    Cbr(u8),
    /// Overflow: packets were lost here.
    Ovf,
    /// The trace stopped at a ToPA stop region or IP range.
    TraceStop,
    /// VMCS base address.
    Vmcs(u64),
    /// Maintenance: model-specific.
    Mnt(u64),
    /// PTWRITE operand.
    Ptw {
        /// The operand.
        value: u64,
        /// It has 8 bytes, not 4.
        wide: bool,
        /// A FUP with the instruction's address follows.
        ip: bool,
    },
    /// Execution stopped (power event).
    Exstop {
        /// A FUP with the address follows.
        ip: bool,
    },
    /// MWAIT is about to be executed.
    Mwait {
        /// MWAIT hints (EAX).
        hints: u32,
        /// MWAIT extensions (ECX).
        extensions: u32,
    },
    /// Entry into a C-state.
    Pwre {
        /// Hardware-initiated.
        hardware: bool,
        /// Thread C-state.
        state: u8,
        /// Thread sub C-state.
        sub_state: u8,
    },
    /// Exit from a C-state.
    Pwrx {
        /// Last core C-state.
        last: u8,
        /// Deepest core C-state.
        deepest: u8,
        /// Wake reason: bit 0 interrupt, 2 store to a monitored address, 3 by the hardware itself.
        reason: u8,
    },
    /// Block begin (PEBS to PT).
    Bbp {
        /// Items have 4 bytes, not 8.
        short_items: bool,
        /// Group type.
        group: u8,
    },
    /// Block item.
    Bip {
        /// Item id.
        id: u8,
        /// Value.
        value: u64,
    },
    /// Block end.
    Bep {
        /// A FUP follows.
        ip: bool,
    },
    /// Control flow event (event trace).
    Cfe {
        /// A FUP follows.
        ip: bool,
        /// What happened.
        event: ControlFlowEvent,
        /// Vector of an interrupt, fault or SIPI.
        vector: u8,
    },
    /// Event data (event trace).
    Evd {
        /// What the value is.
        data: EventData,
        /// The value.
        value: u64,
    },
    /// A trigger fired (trigger tracing).
    Trig {
        /// A FUP with the instruction's address follows.
        ip: bool,
        /// A trigger fired more than once since the last TRIG.
        multiple: bool,
        /// Bit vector of the triggers.
        triggers: u8,
        /// Instructions since the last packet that tells where execution is, if known.
        instructions: Option<u16>,
    },
}
