//! Packet to bytes.

use crate::Packet;
use crate::ip::IpPayload;
use crate::psb::PSB;
use crate::tnt::Tnt;

/// Appends the bytes of `packet` to `out`.  A TNT of no bits writes nothing; one of more than six is long.
pub fn encode(packet: &Packet, out: &mut Vec<u8>) {
    match *packet {
        Packet::Pad => out.push(0),
        Packet::Psb => out.extend_from_slice(&PSB),
        Packet::PsbEnd => out.extend_from_slice(&[0x02, 0x23]),
        Packet::Tnt(tnt) => encode_tnt(tnt, out),
        Packet::Tip(ip) => encode_ip(0x0d, ip, out),
        Packet::TipPge(ip) => encode_ip(0x11, ip, out),
        Packet::TipPgd(ip) => encode_ip(0x01, ip, out),
        Packet::Fup(ip) => encode_ip(0x1d, ip, out),
        Packet::Pip { cr3, non_root } => {
            out.extend_from_slice(&[0x02, 0x43]);
            low_bytes(cr3 >> 5 << 1 | u64::from(non_root), 6, out);
        }
        Packet::ModeExec { long, default_32, interrupts } => {
            out.extend_from_slice(&[
                0x99,
                u8::from(long) | u8::from(default_32) << 1 | u8::from(interrupts) << 2,
            ]);
        }
        Packet::ModeTsx { in_transaction, aborted } => {
            out.extend_from_slice(&[0x99, 0x20 | u8::from(in_transaction) | u8::from(aborted) << 1]);
        }
        Packet::Tsc(tsc) => {
            out.push(0x19);
            low_bytes(tsc, 7, out);
        }
        Packet::Tma { ctc, fast } => {
            let ([c0, c1], [f0, f1]) = (ctc.to_le_bytes(), fast.to_le_bytes());
            out.extend_from_slice(&[0x02, 0x73, c0, c1, 0, f0, f1 & 1]);
        }
        Packet::Mtc(ctc) => out.extend_from_slice(&[0x59, ctc]),
        Packet::Cyc(cycles) => encode_cyc(cycles, out),
        Packet::Cbr(ratio) => out.extend_from_slice(&[0x02, 0x03, ratio, 0]),
        Packet::Ovf => out.extend_from_slice(&[0x02, 0xf3]),
        Packet::TraceStop => out.extend_from_slice(&[0x02, 0x83]),
        Packet::Vmcs(base) => {
            out.extend_from_slice(&[0x02, 0xc8]);
            low_bytes(base >> 12, 5, out);
        }
        Packet::Mnt(value) => {
            out.extend_from_slice(&[0x02, 0xc3, 0x88]);
            low_bytes(value, 8, out);
        }
        Packet::Ptw { value, wide, ip } => {
            out.extend_from_slice(&[0x02, u8::from(ip) << 7 | u8::from(wide) << 5 | 0x12]);
            low_bytes(value, if wide { 8 } else { 4 }, out);
        }
        _ => encode_event(packet, out),
    }
}

/// Power, block, event-trace and trigger packets.
fn encode_event(packet: &Packet, out: &mut Vec<u8>) {
    match *packet {
        Packet::Exstop { ip } => out.extend_from_slice(&[0x02, u8::from(ip) << 7 | 0x62]),
        Packet::Mwait { hints, extensions } => {
            out.extend_from_slice(&[0x02, 0xc2]);
            low_bytes(u64::from(hints) | u64::from(extensions) << 32, 8, out);
        }
        Packet::Pwre { hardware, state, sub_state } => {
            let states = state << 4 | sub_state & 0xf;
            out.extend_from_slice(&[0x02, 0x22, u8::from(hardware) << 7, states]);
        }
        Packet::Pwrx { last, deepest, reason } => {
            out.extend_from_slice(&[0x02, 0xa2, last << 4 | deepest & 0xf, reason & 0xf, 0, 0, 0]);
        }
        Packet::Bbp { short_items, group } => {
            out.extend_from_slice(&[0x02, 0x63, u8::from(short_items) << 7 | group & 0x1f]);
        }
        Packet::Bip { id, value } => {
            out.push(id << 3 | 4);
            low_bytes(value, 8, out);
        }
        Packet::Bep { ip } => out.extend_from_slice(&[0x02, u8::from(ip) << 7 | 0x33]),
        Packet::Cfe { ip, event, vector } => {
            out.extend_from_slice(&[0x02, 0x13, u8::from(ip) << 7 | event.bits() & 0x1f, vector]);
        }
        Packet::Evd { data, value } => {
            out.extend_from_slice(&[0x02, 0x53, data.bits() & 0x3f]);
            low_bytes(value, 8, out);
        }
        Packet::Trig { ip, multiple, triggers, instructions } => {
            let flags = u8::from(ip) << 7 | u8::from(instructions.is_some()) << 6 | u8::from(multiple) << 5;
            out.extend_from_slice(&[0xd9, flags, triggers]);
            out.extend(instructions.map(u16::to_le_bytes).into_iter().flatten());
        }
        _ => (), // `encode` has written all others
    }
}

fn low_bytes(value: u64, count: usize, out: &mut Vec<u8>) {
    out.extend(value.to_le_bytes().into_iter().take(count));
}

fn encode_tnt(tnt: Tnt, out: &mut Vec<u8>) {
    let payload = 1 << tnt.len() | tnt.bits();
    match tnt.len() {
        0 => (),
        1..=Tnt::SHORT_MAX => out.push((payload << 1) as u8),
        _ => {
            out.extend_from_slice(&[0x02, 0xa3]);
            low_bytes(payload, 6, out);
        }
    }
}

fn encode_ip(opcode: u8, ip: IpPayload, out: &mut Vec<u8>) {
    out.push(ip.ip_bytes << 5 | opcode);
    low_bytes(ip.value, IpPayload::stored_len(ip.ip_bytes).unwrap_or(0), out);
}

fn encode_cyc(cycles: u64, out: &mut Vec<u8>) {
    let mut rest = cycles >> 5;
    out.push((cycles as u8 & 0x1f) << 3 | u8::from(rest != 0) << 2 | 3);
    while rest != 0 {
        let more = rest >> 7;
        out.push((rest as u8 & 0x7f) << 1 | u8::from(more != 0));
        rest = more;
    }
}
