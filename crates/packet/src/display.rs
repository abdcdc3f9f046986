//! Packets as text, one short line each: `dump --packets` and the decoder's text tests.

use std::fmt;

use crate::Packet;
use crate::ip::IpPayload;

impl fmt::Display for IpPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip_bytes {
            0 => f.write_str("no ip"),
            n => write!(f, "{:#x} ({n})", self.value),
        }
    }
}

/// ` name` where `flag` holds.
fn flag(flag: bool, name: &'static str) -> &'static str {
    if flag { name } else { "" }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Pad => f.write_str("PAD"),
            Self::Psb => f.write_str("PSB"),
            Self::PsbEnd => f.write_str("PSBEND"),
            Self::Tnt(tnt) => write!(f, "TNT {tnt}"),
            Self::Tip(ip) => write!(f, "TIP {ip}"),
            Self::TipPge(ip) => write!(f, "TIP.PGE {ip}"),
            Self::TipPgd(ip) => write!(f, "TIP.PGD {ip}"),
            Self::Fup(ip) => write!(f, "FUP {ip}"),
            Self::Pip { cr3, non_root } => write!(f, "PIP cr3 {cr3:#x}{}", flag(non_root, " non-root")),
            Self::ModeExec { long, default_32, interrupts } => {
                let bits = if long {
                    "64"
                } else if default_32 {
                    "32"
                } else {
                    "16"
                };
                write!(f, "MODE.Exec {bits}{}", flag(interrupts, " IF"))
            }
            Self::ModeTsx { in_transaction, aborted } => {
                write!(f, "MODE.TSX{}{}", flag(in_transaction, " InTX"), flag(aborted, " abort"))
            }
            Self::Tsc(tsc) => write!(f, "TSC {tsc:#x}"),
            Self::Tma { ctc, fast } => write!(f, "TMA ctc {ctc:#x} fast {fast:#x}"),
            Self::Mtc(ctc) => write!(f, "MTC {ctc:#x}"),
            Self::Cyc(cycles) => write!(f, "CYC {cycles}"),
            Self::Cbr(ratio) => write!(f, "CBR {ratio}"),
            Self::Ovf => f.write_str("OVF"),
            Self::TraceStop => f.write_str("TraceStop"),
            Self::Vmcs(base) => write!(f, "VMCS {base:#x}"),
            Self::Mnt(value) => write!(f, "MNT {value:#x}"),
            Self::Ptw { value, wide, ip } => {
                write!(f, "PTW {value:#x} size {}{}", if wide { 8 } else { 4 }, flag(ip, " FUP"))
            }
            Self::Exstop { ip } => write!(f, "EXSTOP{}", flag(ip, " FUP")),
            Self::Mwait { hints, extensions } => {
                write!(f, "MWAIT hints {hints:#x} extensions {extensions:#x}")
            }
            Self::Pwre { hardware, state, sub_state } => {
                write!(f, "PWRE C{state} sub {sub_state}{}", flag(hardware, " hardware"))
            }
            Self::Pwrx { last, deepest, reason } => {
                write!(f, "PWRX last C{last} deepest C{deepest} wake")?;
                let why = [(1, " interrupt"), (4, " store"), (8, " hardware")];
                why.iter().filter(|(bit, _)| reason & bit != 0).try_for_each(|(_, name)| f.write_str(name))
            }
            Self::Bbp { short_items, group } => {
                write!(f, "BBP type {group:#x} size {}", if short_items { 4 } else { 8 })
            }
            Self::Bip { id, value } => write!(f, "BIP id {id:#x} {value:#x}"),
            Self::Bep { ip } => write!(f, "BEP{}", flag(ip, " FUP")),
            Self::Cfe { ip, event, vector } => {
                write!(f, "CFE {event} vector {vector}{}", flag(ip, " FUP"))
            }
            Self::Evd { data, value } => write!(f, "EVD {data} {value:#x}"),
            Self::Trig { ip, multiple, triggers, instructions } => {
                write!(f, "TRIG {triggers:#x}{}{}", flag(multiple, " multiple"), flag(ip, " FUP"))?;
                instructions.map_or(Ok(()), |count| write!(f, " instructions {count}"))
            }
        }
    }
}
