//! Packets that are no flow of their own, but say what the next FUP or TIP means.
//!
//! ```text
//! PTW.ip | EXSTOP.ip | BEP.ip | TRIG.ip | CFE.ip | MODE.TSX | MODE.Exec
//!                  FUP                                  where that was; it interrupts nothing
//! CFE              FUP (MODE.Exec PIP)  TIP | TIP.PGD   what the interrupt is
//! MODE.TSX abort   FUP                  TIP             a transaction goes to its abort handler
//! PIP non-root                          TIP             a virtual machine runs
//! ```
//!
//! SDM volume 3, "Intel Processor Trace": "Flow Update (FUP) Packet", "MODE Packets", "Event Trace", "VMX".

use model::AsyncCause;
use packet::{ControlFlowEvent, Packet};

use super::fup::{FupUse, Interruption};
use super::loss::Lost;
use super::{Flow, State};
use crate::work::Work;

impl<W: Work> Flow<'_, W> {
    /// A MODE.Exec packet: the code after it is 64-bit code or not. After an event's FUP it belongs to the
    /// event's TIP; otherwise to the next packet, FUP or TIP.
    pub(super) fn mode_exec(&mut self, long: bool) {
        self.long_mode = long;
        if self.psb.is_some() {
            return; // PSB+ says how things are, not what happens
        }
        match &mut self.state {
            State::Lost(lost) => lost.fup_is_late = true,
            State::On | State::Kernel => (),
            State::Unsynced | State::Off | State::Guest => return,
        }
        if self.fup.is_none() {
            self.fup_use = FupUse::Bound;
        }
    }

    /// A packet that is neither flow nor time.
    pub(super) fn event(&mut self, packet: Packet) {
        if let Packet::Pip { non_root, .. } = packet {
            self.pip(non_root);
        }
        if self.psb.is_some() {
            return; // PSB+ says how things are, not what happens; its FUP is its own
        }
        if let State::Lost(Lost { fup_is_late, .. }) = &mut self.state {
            *fup_is_late |= !matches!(packet, Packet::Mnt(_));
        }
        let tracing = matches!(self.state, State::On | State::Kernel | State::Lost(_));
        match packet {
            Packet::ModeTsx { aborted: true, .. } if tracing => {
                self.fup_use = FupUse::Interruption(Interruption::Abort);
            }
            // Where tracing is off, MODE.TSX has no FUP.
            Packet::ModeTsx { aborted: false, .. } if tracing => self.fup_use = FupUse::Bound,
            Packet::Cfe { ip: false, event, vector } if tracing => {
                if let Some(cause) = cause_of(event, vector) {
                    self.fup_use = FupUse::Interruption(Interruption::Event(cause));
                }
            }
            Packet::Ptw { ip: true, .. }
            | Packet::Mwait { .. }
            | Packet::Exstop { ip: true }
            | Packet::Bep { ip: true }
            | Packet::Cfe { ip: true, .. }
            | Packet::Trig { ip: true, .. } => self.fup_use = FupUse::Bound,
            _ => (),
        }
    }
}

/// What a CFE packet before an asynchronous event's FUP says of it; `None` for an event without such a FUP.
fn cause_of(event: ControlFlowEvent, vector: u8) -> Option<AsyncCause> {
    /// SDM volume 3, "Interrupt and Exception Handling": vectors below 32 are exceptions, but 2 is the NMI.
    const EXCEPTIONS: u8 = 32;
    const NMI: u8 = 2;
    Some(match event {
        ControlFlowEvent::Interrupt if vector < EXCEPTIONS && vector != NMI => AsyncCause::Fault(vector),
        ControlFlowEvent::Interrupt => AsyncCause::Interrupt(vector),
        ControlFlowEvent::Iret | ControlFlowEvent::UserInterruptReturn | ControlFlowEvent::VmEntry => {
            return None;
        }
        ControlFlowEvent::Reserved(_) => AsyncCause::Unknown,
        _ => AsyncCause::Other,
    })
}
