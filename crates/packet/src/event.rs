//! What event-trace packets say happened (SDM "Event Trace", tables of CFE and EVD types).

use std::fmt;

/// The type of a CFE packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlFlowEvent {
    /// An interrupt, fault, trap or software interrupt; the packet's vector says which.
    Interrupt,
    /// IRET, or another return from an event.
    Iret,
    /// System management interrupt.
    Smi,
    /// Return from system management mode.
    Rsm,
    /// Start-up inter-processor interrupt.
    Sipi,
    /// INIT.
    Init,
    /// VM entry.
    VmEntry,
    /// VM exit.
    VmExit,
    /// VM exit because of an interrupt or exception; the packet's vector says which.
    VmExitInterrupt,
    /// Shutdown.
    Shutdown,
    /// User interrupt.
    UserInterrupt,
    /// UIRET.
    UserInterruptReturn,
    /// A type that is not assigned.
    Reserved(u8),
}

const EVENTS: [(u8, ControlFlowEvent, &str); 12] = [
    (0x01, ControlFlowEvent::Interrupt, "INTR"),
    (0x02, ControlFlowEvent::Iret, "IRET"),
    (0x03, ControlFlowEvent::Smi, "SMI"),
    (0x04, ControlFlowEvent::Rsm, "RSM"),
    (0x05, ControlFlowEvent::Sipi, "SIPI"),
    (0x06, ControlFlowEvent::Init, "INIT"),
    (0x07, ControlFlowEvent::VmEntry, "VMENTRY"),
    (0x08, ControlFlowEvent::VmExit, "VMEXIT"),
    (0x09, ControlFlowEvent::VmExitInterrupt, "VMEXIT_INTR"),
    (0x0a, ControlFlowEvent::Shutdown, "SHUTDOWN"),
    (0x0c, ControlFlowEvent::UserInterrupt, "UINTR"),
    (0x0d, ControlFlowEvent::UserInterruptReturn, "UIRET"),
];

impl ControlFlowEvent {
    /// The event that the packet's five bits stand for.
    #[must_use]
    pub fn from_bits(bits: u8) -> Self {
        let known = EVENTS.iter().find(|(code, ..)| *code == bits);
        known.map_or(Self::Reserved(bits), |(_, event, _)| *event)
    }

    /// The packet's five bits.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Self::Reserved(bits) => bits,
            _ => EVENTS.iter().find(|(_, event, _)| *event == self).map_or(0, |(code, ..)| *code),
        }
    }
}

/// The SDM's name, or the number.
impl fmt::Display for ControlFlowEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match EVENTS.iter().find(|(_, event, _)| event == self) {
            Some((.., name)) => f.write_str(name),
            None => write!(f, "{:#x}", self.bits()),
        }
    }
}

/// The type of an EVD packet: what its 8 bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventData {
    /// CR2: the address of a page fault.
    PageFaultAddress,
    /// VM exit qualification.
    VmExitQualification,
    /// VM exit reason.
    VmExitReason,
    /// A type that is not assigned.
    Reserved(u8),
}

impl EventData {
    /// The data that the packet's six bits stand for.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::PageFaultAddress,
            1 => Self::VmExitQualification,
            2 => Self::VmExitReason,
            _ => Self::Reserved(bits),
        }
    }

    /// The packet's six bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::PageFaultAddress => 0,
            Self::VmExitQualification => 1,
            Self::VmExitReason => 2,
            Self::Reserved(bits) => bits,
        }
    }
}

/// The SDM's name, or the number.
impl fmt::Display for EventData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PageFaultAddress => f.write_str("CR2"),
            Self::VmExitQualification => f.write_str("VMXQ"),
            Self::VmExitReason => f.write_str("VMXR"),
            Self::Reserved(bits) => write!(f, "{bits:#x}"),
        }
    }
}
