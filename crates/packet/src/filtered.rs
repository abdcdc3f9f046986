//! What most of a trace with an IP filter is, beside [`crate::Common`] packets.

use crate::MAX_PACKET_LEN;
use crate::decode::{MTC_LEN, decode_address, decode_common_cyc, decode_mtc};
use crate::ip::LastIp;

/// A packet of those that come where tracing starts and ends over and over, and in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filtered {
    /// Cycles, of a CYC of one or two bytes.
    Cyc(u64),
    /// MTC.
    Mtc(u8),
    /// The address of a TIP.PGE, as in [`crate::Common::Tip`].
    TipPge(u64),
    /// That of a TIP.PGD, or none.
    TipPgd(Option<u64>),
    /// MODE.Exec: 64-bit code.
    Mode64,
}

const TIP_PGE: u8 = 0x11;
const TIP_PGD: u8 = 0x01;
const MODE_LEN: usize = 2;

/// The packet at the start of `bytes`, of which there are as many as any packet has, if it is one of those,
/// and the bytes after it.
#[inline(always)]
#[must_use]
pub fn decode_filtered<'a>(bytes: &'a [u8], last_ip: &mut LastIp) -> Option<(Filtered, &'a [u8])> {
    let &[first, ..] = bytes.first_chunk::<MAX_PACKET_LEN>()?;
    let (packet, len) = if let Some((cycles, len)) = decode_common_cyc(bytes) {
        (Filtered::Cyc(cycles), len)
    } else if let Some((ip, len)) = decode_tip::<TIP_PGE>(bytes, last_ip) {
        (Filtered::TipPge(ip), len)
    } else if let Some((ip, len)) = decode_end(bytes, last_ip) {
        (Filtered::TipPgd(Some(ip)), len)
    } else if let Some(counter) = decode_mtc(bytes) {
        (Filtered::Mtc(counter), MTC_LEN)
    } else if is_mode_64(bytes) {
        (Filtered::Mode64, MODE_LEN)
    } else if first == TIP_PGD {
        (Filtered::TipPgd(None), 1)
    } else {
        return None;
    };
    Some((packet, &bytes[len..]))
}

/// Where tracing starts by the packets at the start of `bytes`, if they are the TIP.PGE of [`Filtered`], with
/// or without the MODE.Exec before it: the address, how many bytes are before the TIP.PGE, and how many both
/// have.
#[inline(always)]
#[must_use]
pub fn decode_start(bytes: &[u8], last_ip: &mut LastIp) -> Option<(u64, usize, usize)> {
    let before = if is_mode_64(bytes) { MODE_LEN } else { 0 };
    let (ip, len) = decode_tip::<TIP_PGE>(bytes.get(before..)?, last_ip)?;
    Some((ip, before, before + len))
}

/// Where tracing ends by the packet at the start of `bytes`, if it is the TIP.PGD of [`Filtered`] with an
/// address: the address, and its length.
#[inline(always)]
#[must_use]
pub fn decode_end(bytes: &[u8], last_ip: &mut LastIp) -> Option<(u64, usize)> {
    decode_tip::<TIP_PGD>(bytes, last_ip)
}

/// The address of such a TIP packet, as in [`crate::Common::Tip`], and its length.
#[inline(always)]
fn decode_tip<const OPCODE: u8>(bytes: &[u8], last_ip: &mut LastIp) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let stored = match first >> 5 {
        _ if first & 0x1f != OPCODE => return None,
        1 => decode_address::<1, 2>(bytes, last_ip),
        2 => decode_address::<2, 4>(bytes, last_ip),
        3 => decode_address::<3, 6>(bytes, last_ip),
        _ => return None,
    };
    let (ip, after) = stored?;
    Some((ip, bytes.len() - after.len()))
}

#[inline(always)]
fn is_mode_64(bytes: &[u8]) -> bool {
    matches!(bytes, [0x99, second, ..] if second & 0xe1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::tests::any_two_bytes;
    use crate::{Context, IpPayload, Packet, decode};

    #[test]
    fn they_are_what_all_others_are() {
        for (first, bytes, mut last_ip) in any_two_bytes() {
            let mut expected_ip = last_ip;
            let filtered = decode_filtered(&bytes, &mut last_ip);
            let expected = decode(&bytes, Context::Flow).ok().and_then(|(packet, len)| {
                let filtered = match packet {
                    Packet::Cyc(cycles) if len <= 2 => Filtered::Cyc(cycles),
                    Packet::Mtc(counter) => Filtered::Mtc(counter),
                    Packet::TipPge(payload @ IpPayload { ip_bytes: 1..=3, .. }) => {
                        Filtered::TipPge(expected_ip.expand(payload)?)
                    }
                    Packet::TipPgd(payload @ IpPayload { ip_bytes: 0..=3, .. }) => {
                        Filtered::TipPgd(expected_ip.expand(payload))
                    }
                    Packet::ModeExec { long: true, .. } => Filtered::Mode64,
                    _ => return None,
                };
                Some((filtered, &bytes[len..]))
            });
            assert_eq!((filtered, last_ip), (expected, expected_ip), "{first:x}");
        }
    }

    #[test]
    fn starts_and_ends_are_what_they_are_one_by_one() {
        for (first, bytes, last_ip) in any_two_bytes() {
            let decoded = |bytes: &[u8]| {
                let mut ip = last_ip;
                decode_filtered(bytes, &mut ip).map(|(packet, after)| (packet, bytes.len() - after.len(), ip))
            };
            let mut bytes = [bytes; 2].concat();
            bytes[2] = 0x51;
            let (expected_start, expected_end) = match (decoded(&bytes), decoded(&bytes[2..])) {
                (Some((Filtered::TipPge(ip), len, last_ip)), _) => (Some((ip, 0, len, last_ip)), None),
                (Some((Filtered::TipPgd(Some(ip)), len, last_ip)), _) => (None, Some((ip, len, last_ip))),
                (Some((Filtered::Mode64, ..)), Some((Filtered::TipPge(ip), len, last_ip))) => {
                    (Some((ip, 2, 2 + len, last_ip)), None)
                }
                _ => (None, None),
            };
            let (mut start_ip, mut end_ip) = (last_ip, last_ip);
            let start = decode_start(&bytes, &mut start_ip).map(|(ip, at, len)| (ip, at, len, start_ip));
            let end = decode_end(&bytes, &mut end_ip).map(|(ip, len)| (ip, len, end_ip));
            assert_eq!((start, end), (expected_start, expected_end), "{first:x}");
        }
    }
}
