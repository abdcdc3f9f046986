//! Fast decoding of the packets that most of a trace is made of.

use crate::MAX_PACKET_LEN;
use crate::ip::{IpPayload, LastIp};
use crate::tnt::Tnt;

/// A packet of a common form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Common {
    /// A TNT of one byte.
    Tnt(Tnt),
    /// The address of a TIP with two or four bytes of it, or six with a sign.
    Tip(u64),
    /// The address of such a TIP.PGE.
    TipPge(u64),
    /// The address of such a TIP.PGD, or of one without address.
    TipPgd(Option<u64>),
    /// The cycles of a CYC of one or two bytes.
    Cyc(u64),
    /// The counter of an MTC.
    Mtc(u8),
    /// MODE.Exec: 64-bit code.
    Mode64,
}

/// The CYC at the start of `bytes` if it has a common form: its cycles, and its length.
#[inline(always)]
#[must_use]
pub fn decode_cyc(bytes: &[u8]) -> Option<(u64, usize)> {
    //  c c c c c 0 1 1  of one byte, c c c c c 1 1 1  c c c c c c c 0  of two
    let [first, second, ..] = *bytes.first_chunk::<2>()?;
    let low = u64::from(first >> 3);
    match first & 7 {
        3 => Some((low, 1)),
        7 if second & 1 == 0 => Some((low | u64::from(second >> 1) << 5, 2)),
        _ => None,
    }
}

/// The packet at the start of `bytes` if it has a common form, and its length: the same packet that
/// [`crate::decode`] gives. Advances `last_ip` as [`LastIp::expand`] does. None of fewer bytes than
/// [`MAX_PACKET_LEN`].
#[inline(always)]
#[must_use]
pub fn decode_common(bytes: &[u8], last_ip: &mut LastIp) -> Option<(Common, usize)> {
    //  i i i 1 0 0 0 1  TIP.PGE   i: IPBytes
    //  i i i 0 0 0 0 1  TIP.PGD
    let bytes = bytes.first_chunk::<MAX_PACKET_LEN>()?;
    let [first, second, ..] = *bytes;
    match first {
        0x31 => address::<1, 2>(bytes, last_ip, Common::TipPge),
        0x51 => address::<2, 4>(bytes, last_ip, Common::TipPge),
        0x71 => address::<3, 6>(bytes, last_ip, Common::TipPge),
        0x21 => address::<1, 2>(bytes, last_ip, |ip| Common::TipPgd(Some(ip))),
        0x41 => address::<2, 4>(bytes, last_ip, |ip| Common::TipPgd(Some(ip))),
        0x61 => address::<3, 6>(bytes, last_ip, |ip| Common::TipPgd(Some(ip))),
        0x01 => Some((Common::TipPgd(None), 1)),
        0x59 => Some((Common::Mtc(second), 2)),
        0x99 if second & 0xe1 == 1 => Some((Common::Mode64, 2)),
        _ => match decode_cyc(bytes) {
            Some((cycles, len)) => Some((Common::Cyc(cycles), len)),
            None => decode_flow(bytes, last_ip),
        },
    }
}

/// [`decode_common`] of a TNT or TIP. To decode a TIP twice gives the same address twice.
#[inline(always)]
#[must_use]
pub fn decode_flow(bytes: &[u8], last_ip: &mut LastIp) -> Option<(Common, usize)> {
    //  1 b b b b b b 0  short TNT, stop bit first
    //  i i i 0 1 1 0 1  TIP       i: IPBytes
    let bytes = bytes.first_chunk::<MAX_PACKET_LEN>()?;
    let first = bytes[0];
    if first & 1 == 0 {
        return Some((Common::Tnt(Tnt::below_stop_bit(u64::from(first >> 1))?), 1));
    }
    match first {
        0x2d => address::<1, 2>(bytes, last_ip, Common::Tip),
        0x4d => address::<2, 4>(bytes, last_ip, Common::Tip),
        0x6d => address::<3, 6>(bytes, last_ip, Common::Tip),
        _ => None,
    }
}

/// A packet with this `IPBytes` field and `STORED` bytes of address.
#[inline(always)]
fn address<const IP_BYTES: u8, const STORED: usize>(
    bytes: &[u8; MAX_PACKET_LEN],
    last_ip: &mut LastIp,
    packet: impl FnOnce(u64) -> Common,
) -> Option<(Common, usize)> {
    let [_, stored @ ..] = bytes.first_chunk::<9>()?;
    let value = u64::from_le_bytes(*stored) & IpPayload::stored_bits(IP_BYTES);
    let ip = last_ip.expand(IpPayload { ip_bytes: IP_BYTES, value })?;
    Some((packet(ip), 1 + STORED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, Packet, decode};

    /// Any two bytes at the start, with an address before.
    #[test]
    fn common_packets_are_those_of_the_full_decoder() {
        for head in 0..=u16::MAX {
            let mut bytes = [0x5a; MAX_PACKET_LEN];
            bytes[..2].copy_from_slice(&head.to_le_bytes());
            let mut last_ip = LastIp::default();
            last_ip.expand(IpPayload { ip_bytes: 6, value: 0x1122_3344_5566_7788 });
            let mut expected_ip = last_ip;
            let common = decode_common(&bytes, &mut last_ip);
            let expected = decode(&bytes, Context::Flow).ok().and_then(|(packet, len)| {
                let common = match packet {
                    Packet::Tnt(tnt) if len == 1 => Common::Tnt(tnt),
                    Packet::Cyc(cycles) if len <= 2 => Common::Cyc(cycles),
                    Packet::Mtc(counter) => Common::Mtc(counter),
                    Packet::Tip(payload @ IpPayload { ip_bytes: 1..=3, .. }) => {
                        Common::Tip(expected_ip.expand(payload)?)
                    }
                    Packet::TipPge(payload @ IpPayload { ip_bytes: 1..=3, .. }) => {
                        Common::TipPge(expected_ip.expand(payload)?)
                    }
                    Packet::TipPgd(payload @ IpPayload { ip_bytes: 0..=3, .. }) => {
                        Common::TipPgd(expected_ip.expand(payload))
                    }
                    Packet::ModeExec { long: true, .. } => Common::Mode64,
                    _ => return None,
                };
                Some((common, len))
            });
            assert_eq!((common, last_ip), (expected, expected_ip), "{head:x}");
        }
    }
}
