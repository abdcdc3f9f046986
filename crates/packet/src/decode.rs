//! Bytes to packet.

use std::fmt;

use crate::event::{ControlFlowEvent, EventData};
use crate::ip::IpPayload;
use crate::psb::PSB;
use crate::tnt::Tnt;
use crate::{MAX_PACKET_LEN, Packet};

/// What the meaning of a byte depends on besides itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Context {
    /// Anywhere.
    #[default]
    Flow,
    /// Between BBP and BEP, items of 8 bytes: `xxxxx100` is a BIP, not a TNT.
    Block,
    /// Between BBP and BEP, items of 4 bytes.
    ShortBlock,
}

/// Why no packet was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketError {
    /// The bytes end inside a packet.
    Truncated,
    /// No packet starts like this.
    Unknown {
        /// First byte.
        byte: u8,
        /// Second byte if the first is the extension prefix `02`.
        extension: Option<u8>,
    },
}

impl std::error::Error for PacketError {}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the data ends inside a packet"),
            Self::Unknown { byte, extension: None } => write!(f, "no packet starts with {byte:02x}"),
            Self::Unknown { byte, extension: Some(x) } => {
                write!(f, "no packet starts with {byte:02x} {x:02x}")
            }
        }
    }
}

/// The packet at the start of `bytes`, and its length.
///
/// # Errors
/// [`PacketError`]; the position does not matter to it, so the caller adds the offset.
#[inline]
pub fn decode(bytes: &[u8], context: Context) -> Result<(Packet, usize), PacketError> {
    let &first = bytes.first().ok_or(PacketError::Truncated)?;
    if context != Context::Flow && first & 7 == 4 {
        let width = if context == Context::Block { 8 } else { 4 };
        let value = low_bytes(bytes, 1, width)?;
        return Ok((Packet::Bip { id: first >> 3, value }, 1 + width));
    }
    //  7 6 5 4 3 2 1 0
    //  0 0 0 0 0 0 0 0  PAD
    //  0 0 0 0 0 0 1 0  extended: two-byte header
    //  1 b b b b b b 0  short TNT, stop bit first
    //  c c c c c e 1 1  CYC
    //  i i i 0 1 1 0 1  TIP       i: IPBytes
    //  i i i 1 0 0 0 1  TIP.PGE
    //  i i i 0 0 0 0 1  TIP.PGD
    //  i i i 1 1 1 0 1  FUP
    //  0 0 0 1 1 0 0 1  TSC
    //  0 1 0 1 1 0 0 1  MTC
    //  1 0 0 1 1 0 0 1  MODE
    //  1 1 0 1 1 0 0 1  TRIG
    match first {
        0x00 => Ok((Packet::Pad, 1)),
        0x02 => decode_extended(bytes),
        0x19 => Ok((Packet::Tsc(low_bytes(bytes, 1, 7)?), 8)),
        0x59 => Ok((Packet::Mtc(byte(bytes, 1)?), 2)),
        0x99 => Ok((decode_mode(byte(bytes, 1)?)?, 2)),
        0xd9 => decode_trig(bytes),
        _ if first & 1 == 0 => match Tnt::below_stop_bit(u64::from(first >> 1)) {
            Some(tnt) => Ok((Packet::Tnt(tnt), 1)),
            None => Err(unknown(first)),
        },
        _ if first & 3 == 3 => decode_cyc(bytes).map(|(cycles, len)| (Packet::Cyc(cycles), len)),
        _ => decode_ip(bytes, first),
    }
}

/// The CYC packet at the start of `bytes`: cycles and length.
///
/// # Errors
/// [`PacketError::Truncated`]; [`PacketError::Unknown`] if the count does not fit 64 bits, or has no end.
#[inline]
fn decode_cyc(bytes: &[u8]) -> Result<(u64, usize), PacketError> {
    let first = byte(bytes, 0)?;
    let mut cycles = u64::from(first >> 3);
    let mut more = first & 4 != 0;
    let (mut len, mut shift) = (1, 5);
    while more {
        if len == MAX_PACKET_LEN {
            return Err(unknown(first));
        }
        let next = byte(bytes, len)?;
        let part = u64::from(next >> 1);
        let shifted = part.checked_shl(shift).unwrap_or(0);
        if shifted.checked_shr(shift).unwrap_or(0) != part {
            return Err(unknown(first));
        }
        cycles |= shifted;
        more = next & 1 != 0;
        shift += 7;
        len += 1;
    }
    Ok((cycles, len))
}

fn unknown(byte: u8) -> PacketError {
    PacketError::Unknown { byte, extension: None }
}

#[inline]
fn byte(bytes: &[u8], at: usize) -> Result<u8, PacketError> {
    bytes.get(at).copied().ok_or(PacketError::Truncated)
}

/// `count` bytes from `at`, little endian.
#[inline]
fn low_bytes(bytes: &[u8], at: usize, count: usize) -> Result<u64, PacketError> {
    let stored = bytes.get(at..at + count).ok_or(PacketError::Truncated)?;
    Ok(stored.iter().rev().fold(0, |value, &b| value << 8 | u64::from(b)))
}

#[inline]
fn decode_ip(bytes: &[u8], first: u8) -> Result<(Packet, usize), PacketError> {
    let ip_bytes = first >> 5;
    let len = IpPayload::stored_len(ip_bytes).ok_or(unknown(first))?;
    let make = match first & 0x1f {
        0x0d => Packet::Tip,
        0x11 => Packet::TipPge,
        0x01 => Packet::TipPgd,
        0x1d => Packet::Fup,
        _ => return Err(unknown(first)),
    };
    Ok((make(IpPayload { ip_bytes, value: low_bytes(bytes, 1, len)? }), 1 + len))
}

fn decode_mode(payload: u8) -> Result<Packet, PacketError> {
    match payload >> 5 {
        0 => Ok(Packet::ModeExec {
            long: payload & 1 != 0,
            default_32: payload & 2 != 0,
            interrupts: payload & 4 != 0,
        }),
        1 => Ok(Packet::ModeTsx { in_transaction: payload & 1 != 0, aborted: payload & 2 != 0 }),
        _ => Err(PacketError::Unknown { byte: 0x99, extension: Some(payload) }),
    }
}

/// TRIG: `IP ICNTV MULT 00000`, the triggers, and where ICNTV is set the count of instructions.
fn decode_trig(bytes: &[u8]) -> Result<(Packet, usize), PacketError> {
    let (flags, triggers) = (byte(bytes, 1)?, byte(bytes, 2)?);
    let counted = flags & 0x40 != 0;
    let instructions = if counted { Some(low_bytes(bytes, 3, 2)? as u16) } else { None };
    let packet = Packet::Trig { ip: flags & 0x80 != 0, multiple: flags & 0x20 != 0, triggers, instructions };
    Ok((packet, if counted { 5 } else { 3 }))
}

/// Packets with the header `02 xx`.
fn decode_extended(bytes: &[u8]) -> Result<(Packet, usize), PacketError> {
    let second = byte(bytes, 1)?;
    let at = |i| byte(bytes, i);
    Ok(match second {
        0x82 => match bytes.get(..PSB.len()) {
            Some(found) if found == PSB => (Packet::Psb, PSB.len()),
            Some(_) => return Err(PacketError::Unknown { byte: 2, extension: Some(second) }),
            None => return Err(PacketError::Truncated),
        },
        0x23 => (Packet::PsbEnd, 2),
        0xa3 => match Tnt::below_stop_bit(low_bytes(bytes, 2, 6)?) {
            Some(tnt) => (Packet::Tnt(tnt), 8),
            None => return Err(PacketError::Unknown { byte: 2, extension: Some(second) }),
        },
        0x43 => {
            let payload = low_bytes(bytes, 2, 6)?;
            (Packet::Pip { cr3: payload >> 1 << 5, non_root: payload & 1 != 0 }, 8)
        }
        0x03 => {
            at(3)?;
            (Packet::Cbr(at(2)?), 4)
        }
        0x73 => {
            let ctc = u16::from_le_bytes([at(2)?, at(3)?]);
            (Packet::Tma { ctc, fast: u16::from_le_bytes([at(5)?, at(6)? & 1]) }, 7)
        }
        0xf3 => (Packet::Ovf, 2),
        0x83 => (Packet::TraceStop, 2),
        0xc8 => (Packet::Vmcs(low_bytes(bytes, 2, 5)? << 12), 7),
        0xc3 if at(2)? == 0x88 => (Packet::Mnt(low_bytes(bytes, 3, 8)?), 11),
        _ => return decode_event(bytes, second),
    })
}

/// PTWRITE, power, block and event-trace packets.
fn decode_event(bytes: &[u8], second: u8) -> Result<(Packet, usize), PacketError> {
    let at = |i| byte(bytes, i);
    let ip = second & 0x80 != 0;
    Ok(match second {
        0x12 | 0x92 => (Packet::Ptw { value: low_bytes(bytes, 2, 4)?, wide: false, ip }, 6),
        0x32 | 0xb2 => (Packet::Ptw { value: low_bytes(bytes, 2, 8)?, wide: true, ip }, 10),
        0x62 | 0xe2 => (Packet::Exstop { ip }, 2),
        0xc2 => {
            let payload = low_bytes(bytes, 2, 8)?;
            (Packet::Mwait { hints: payload as u32, extensions: (payload >> 32) as u32 }, 10)
        }
        0x22 => {
            let (flags, states) = (at(2)?, at(3)?);
            (Packet::Pwre { hardware: flags & 0x80 != 0, state: states >> 4, sub_state: states & 0xf }, 4)
        }
        0xa2 => {
            let (states, reason) = (at(2)?, at(3)?);
            at(6)?;
            (Packet::Pwrx { last: states >> 4, deepest: states & 0xf, reason: reason & 0xf }, 7)
        }
        0x63 => {
            let payload = at(2)?;
            (Packet::Bbp { short_items: payload & 0x80 != 0, group: payload & 0x1f }, 3)
        }
        0x33 | 0xb3 => (Packet::Bep { ip }, 2),
        0x13 => {
            let payload = at(2)?;
            let event = ControlFlowEvent::from_bits(payload & 0x1f);
            (Packet::Cfe { ip: payload & 0x80 != 0, event, vector: at(3)? }, 4)
        }
        0x53 => {
            (Packet::Evd { data: EventData::from_bits(at(2)? & 0x3f), value: low_bytes(bytes, 3, 8)? }, 11)
        }
        _ => return Err(PacketError::Unknown { byte: 2, extension: Some(second) }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode;
    use proptest::prelude::*;

    fn every_packet() -> Vec<Packet> {
        let ip = |ip_bytes, value| IpPayload { ip_bytes, value };
        let mut all = vec![
            Packet::Pad,
            Packet::Psb,
            Packet::PsbEnd,
            Packet::Pip { cr3: 0x1234_5678_9ae0, non_root: true },
            Packet::ModeExec { long: true, default_32: false, interrupts: true },
            Packet::ModeTsx { in_transaction: true, aborted: false },
            Packet::Tsc(0x00fe_dcba_9876_5432),
            Packet::Tma { ctc: 0xabcd, fast: 0x1ff },
            Packet::Mtc(0x82),
            Packet::Cbr(36),
            Packet::Ovf,
            Packet::TraceStop,
            Packet::Vmcs(0x12_3456_7000),
            Packet::Mnt(0x0123_4567_89ab_cdef),
            Packet::Ptw { value: 0xdead_beef, wide: false, ip: true },
            Packet::Ptw { value: 0x0123_4567_89ab_cdef, wide: true, ip: false },
            Packet::Exstop { ip: true },
            Packet::Mwait { hints: 0x31, extensions: 1 },
            Packet::Pwre { hardware: true, state: 6, sub_state: 1 },
            Packet::Pwrx { last: 3, deepest: 7, reason: 4 },
            Packet::Bbp { short_items: true, group: 9 },
            Packet::Bep { ip: true },
            Packet::Trig { ip: true, multiple: false, triggers: 0x81, instructions: Some(0) },
            Packet::Trig { ip: false, multiple: true, triggers: 1, instructions: None },
        ];
        all.extend((0..32).map(|bits| Packet::Cfe {
            ip: bits & 1 != 0,
            event: ControlFlowEvent::from_bits(bits),
            vector: 14,
        }));
        all.extend(
            (0..64).map(|bits| Packet::Evd { data: EventData::from_bits(bits), value: 0x7fff_0000_1000 }),
        );
        for bits in 0..8 {
            let (a, b, c) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            all.push(Packet::ModeExec { long: a, default_32: b, interrupts: c });
            all.push(Packet::ModeTsx { in_transaction: a, aborted: b });
        }
        all.extend([0, 1, 31, 32, 4095, 4096, u64::MAX >> 3, u64::MAX].map(Packet::Cyc));
        all.extend((1..=47).map(|len| Packet::Tnt(Tnt::new(0x2aaa_5555_2aaa_5555, len))));
        for make in [Packet::Tip, Packet::TipPge, Packet::TipPgd, Packet::Fup] {
            all.extend(
                [ip(0, 0), ip(1, 0x1234), ip(2, 0x1234_5678), ip(3, 0x7fff_1234_5678), ip(4, 5), ip(6, !0)]
                    .map(make),
            );
        }
        all
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for packet in every_packet() {
            let mut bytes = vec![];
            encode(&packet, &mut bytes);
            let len = bytes.len();
            assert_eq!(decode(&bytes, Context::Flow), Ok((packet, len)), "{bytes:02x?}");
            for cut in 0..len {
                assert_eq!(
                    decode(&bytes[..cut], Context::Flow),
                    Err(PacketError::Truncated),
                    "{packet:?} cut at {cut}"
                );
            }
        }
    }

    #[test]
    fn block_items_exist_only_in_blocks() {
        let mut bytes = vec![];
        encode(&Packet::Bip { id: 5, value: 0x1122_3344_5566_7788 }, &mut bytes);
        assert_eq!(
            decode(&bytes, Context::Block),
            Ok((Packet::Bip { id: 5, value: 0x1122_3344_5566_7788 }, 9))
        );
        assert_eq!(decode(&bytes, Context::ShortBlock), Ok((Packet::Bip { id: 5, value: 0x5566_7788 }, 5)));
        assert_eq!(decode(&bytes, Context::Flow), Ok((Packet::Tnt(Tnt::new(0b1_0110, 4)), 1)));
    }

    #[test]
    fn cycles_may_have_zeros_in_front_but_no_more_than_64_bits() {
        let padded = |zeros: usize, last: u8| [&[0x0f][..], &vec![1; zeros], &[last]].concat();
        assert_eq!(decode(&padded(3, 0), Context::Flow), Ok((Packet::Cyc(1), 5)));
        assert_eq!(decode(&padded(14, 0), Context::Flow), Ok((Packet::Cyc(1), 16)));
        assert_eq!(decode(&padded(15, 0), Context::Flow), Err(unknown(0x0f)));
        assert_eq!(
            decode(&padded(15, 0)[..MAX_PACKET_LEN], Context::Flow),
            Err(unknown(0x0f)),
            "no more is asked for"
        );
        assert_eq!(decode(&padded(14, 2), Context::Flow), Err(unknown(0x0f)));
    }

    proptest! {
        /// A packet is the same after encoding and decoding it, reserved bits apart.
        #[test]
        fn what_is_decoded_is_encoded(bytes: [u8; 16], extended: bool) {
            let mut bytes = bytes;
            if extended {
                bytes[0] = 2;
            }
            for context in [Context::Flow, Context::Block] {
                if let Ok((packet, _)) = decode(&bytes, context) {
                    let mut encoded = vec![];
                    encode(&packet, &mut encoded);
                    prop_assert_eq!(decode(&encoded, context), Ok((packet, encoded.len())));
                }
            }
        }
    }

    #[test]
    fn any_two_bytes_give_a_packet_or_an_error() {
        for head in 0..=u16::MAX {
            let mut bytes = [0x82; 18];
            bytes[..2].copy_from_slice(&head.to_le_bytes());
            match decode(&bytes, Context::Flow) {
                Ok((_, len)) => assert!((1..=16).contains(&len)),
                Err(PacketError::Unknown { .. }) => (),
                Err(PacketError::Truncated) => panic!("{head:04x}: enough bytes for all packets"),
            }
        }
    }
}
