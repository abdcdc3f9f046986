//! Our packets as `ptdump` prints them: offset, name, payload, and what it tracks.

use model::{AuxOffset, AuxPiece};
use packet::{ControlFlowEvent, IpPayload, LastIp, Packet, PacketError};

/// How `ptdump` is told to print.
pub(crate) struct Options {
    offsets: bool,
    raw: bool,
    /// From the first byte on, not from the first PSB.
    no_sync: bool,
    last_ip: bool,
    exec_mode: bool,
    no_cyc: bool,
}

impl Options {
    pub(crate) fn of(words: &[&str]) -> Self {
        let has = |name| words.contains(&name);
        Self {
            offsets: !has("--no-offset"),
            raw: has("--raw"),
            no_sync: has("--no-sync"),
            last_ip: has("--lastip"),
            exec_mode: has("--exec-mode"),
            no_cyc: has("--no-cyc"),
        }
    }
}

/// A line for each packet of `bytes`, and for each byte that begins none.
pub(crate) fn lines(bytes: &[u8], options: &Options) -> Vec<String> {
    let start = if options.no_sync { Some(0) } else { packet::find_psb(bytes, 0) };
    let Some(start) = start else { return vec![] };
    let pieces = [AuxPiece { offset: AuxOffset(start as u64), bytes: &bytes[start..], file_offset: 0 }];
    let mut last_ip = LastIp::default();
    let all: Vec<_> = decoder::packets(&pieces).collect();
    let ends = all.iter().skip(1).map(|(at, _)| at.0 as usize).chain([bytes.len()]);
    let line = |((AuxOffset(at), item), end): (&(AuxOffset, _), usize)| {
        let packet = match item {
            Ok(Packet::Cyc(_)) if options.no_cyc => return None,
            Ok(packet) => packet,
            // `ptdump` ends there without a word.
            Err(PacketError::Truncated) => return None,
            Err(PacketError::Unknown { .. }) => return Some(format!("[{at:x}: error decoding packet]")),
        };
        let bytes = &bytes[*at as usize..end];
        let mut columns = vec![];
        columns.extend(options.offsets.then(|| format!("{at:016x}")));
        columns.extend(options.raw.then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect()));
        columns.push(name(packet, bytes).to_owned());
        columns.push(payload(packet));
        columns.push(tracked(packet, options, &mut last_ip));
        columns.retain(|column| !column.is_empty());
        Some(columns.join(" "))
    };
    all.iter().zip(ends).filter_map(line).collect()
}

fn name(packet: &Packet, bytes: &[u8]) -> &'static str {
    match packet {
        Packet::Pad => "pad",
        Packet::Psb => "psb",
        Packet::PsbEnd => "psbend",
        Packet::Tnt(_) if bytes.first() == Some(&0x02) => "tnt.64",
        Packet::Tnt(_) => "tnt.8",
        Packet::Tip(_) => "tip",
        Packet::TipPge(_) => "tip.pge",
        Packet::TipPgd(_) => "tip.pgd",
        Packet::Fup(_) => "fup",
        Packet::Pip { .. } => "pip",
        Packet::ModeExec { .. } => "mode.exec",
        Packet::ModeTsx { .. } => "mode.tsx",
        Packet::Tsc(_) => "tsc",
        Packet::Tma { .. } => "tma",
        Packet::Mtc(_) => "mtc",
        Packet::Cyc(_) => "cyc",
        Packet::Cbr(_) => "cbr",
        Packet::Ovf => "ovf",
        Packet::TraceStop => "stop",
        Packet::Vmcs(_) => "vmcs",
        Packet::Mnt(_) => "mnt",
        Packet::Ptw { .. } => "ptw",
        Packet::Exstop { .. } => "exstop",
        Packet::Mwait { .. } => "mwait",
        Packet::Pwre { .. } => "pwre",
        Packet::Pwrx { .. } => "pwrx",
        Packet::Bbp { .. } => "bbp",
        Packet::Bip { .. } => "bip",
        Packet::Bep { .. } => "bep",
        Packet::Cfe { .. } => "cfe",
        Packet::Evd { .. } => "evd",
        Packet::Trig { .. } => "trig",
    }
}

fn payload(packet: &Packet) -> String {
    match *packet {
        Packet::Tnt(tnt) => tnt.to_string().replace('T', "!").replace('N', "."),
        Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) | Packet::Fup(ip) => address(ip),
        Packet::Pip { cr3, non_root } => format!("{cr3:x}{}", flag(non_root, ", nr")),
        Packet::ModeExec { long, default_32, interrupts } => {
            let flags = [(default_32, "cs.d"), (long, "cs.l"), (interrupts, "if")];
            listed(&flags)
        }
        Packet::ModeTsx { in_transaction, aborted } => listed(&[(in_transaction, "intx"), (aborted, "abrt")]),
        Packet::Tma { ctc, fast } => format!("{ctc:x}, {fast:x}"),
        Packet::Mtc(value) | Packet::Cbr(value) => format!("{value:x}"),
        Packet::Tsc(value) | Packet::Cyc(value) | Packet::Vmcs(value) | Packet::Mnt(value) => {
            format!("{value:x}")
        }
        Packet::Ptw { value, wide, ip } => format!("{}: {value:x}{}", u8::from(wide), flag(ip, ", ip")),
        Packet::Exstop { ip } => flag(ip, "ip").to_owned(),
        Packet::Mwait { hints, extensions } => format!("{hints:08x}, {extensions:08x}"),
        Packet::Pwre { hardware, state, sub_state } => {
            format!("c{}.{}{}", (state + 1) & 0xf, (sub_state + 1) & 0xf, flag(hardware, ", hw"))
        }
        Packet::Pwrx { last, deepest, reason } => {
            let reasons = [(1, "int"), (4, "st"), (8, "hw")];
            let name = reasons.iter().find(|(bit, _)| reason & bit != 0).map_or("bad", |(_, name)| name);
            format!("{name}: c{}, c{}", (last + 1) & 0xf, (deepest + 1) & 0xf)
        }
        Packet::Cfe { ip, event, vector } => {
            use ControlFlowEvent::{Interrupt, Sipi, UserInterrupt, VmExitInterrupt};
            let vector = match event {
                Interrupt | VmExitInterrupt | UserInterrupt => format!(": {vector}"),
                Sipi => format!(": {vector:x}"),
                _ => String::new(),
            };
            format!("{}{vector}{}", event.bits(), flag(ip, ", ip"))
        }
        Packet::Evd { data, value } => format!("{}: {value:x}", data.bits()),
        _ => String::new(),
    }
}

/// `text` where it holds.
fn flag(holds: bool, text: &'static str) -> &'static str {
    if holds { text } else { "" }
}

fn listed(flags: &[(bool, &str)]) -> String {
    let set: Vec<&str> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    set.join(", ")
}

/// The stored bytes, with `?` for the others.
fn address(ip: IpPayload) -> String {
    let stored = 2 * IpPayload::stored_len(ip.ip_bytes).unwrap_or(0);
    let digits = if ip.ip_bytes == 3 {
        format!("{:016x}", (ip.value << 16) as i64 >> 16)
    } else {
        "?".repeat(16 - stored) + &format!("{:016x}", ip.value)[16 - stored..]
    };
    format!("{}: {digits}", ip.ip_bytes)
}

/// What `ptdump` prints beside a packet.
fn tracked(packet: &Packet, options: &Options, last_ip: &mut LastIp) -> String {
    match *packet {
        Packet::Psb => last_ip.reset(),
        Packet::Pip { cr3, .. } => return format!("cr3 {cr3:016x}"),
        Packet::Vmcs(base) => return format!("vmcs {base:016x}"),
        Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) | Packet::Fup(ip) if options.last_ip => {
            return match last_ip.expand(ip) {
                Some(ip) => format!("ip {ip:016x}"),
                None => "ip <suppressed>".to_owned(),
            };
        }
        Packet::ModeExec { long, default_32, .. } if options.exec_mode => {
            let bits = if long {
                "64"
            } else if default_32 {
                "32"
            } else {
                "16"
            };
            return format!("em {bits}-bit");
        }
        _ => (),
    }
    String::new()
}

/// The lines of `ptdump` that are compared, as [`lines`] has them. Its clock is not the packets': what it
/// tracks of the time (`tsc`, `tcal`), and what it says of that, is left out, and why a byte begins no
/// packet.
pub(crate) fn comparable(line: &str) -> Option<String> {
    if let Some((at, _)) = line.split_once(": error decoding packet") {
        return Some(format!("{at}: error decoding packet]"));
    }
    if line.starts_with('[') {
        return None;
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let clock = words.iter().skip(2).position(|word| matches!(*word, "tsc" | "tcal" | "fcr"));
    Some(words[..clock.map_or(words.len(), |at| at + 2)].join(" "))
}
