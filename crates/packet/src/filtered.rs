//! What most of a trace with an IP filter is, beside [`crate::Common`] packets.

use crate::MAX_PACKET_LEN;
use crate::decode::{decode_address, decode_common_cyc};
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

/// The packet at the start of `bytes`, of which there are as many as any packet has, if it is one of those, and the bytes behind it.
#[inline(always)]
#[must_use]
pub fn decode_filtered<'a>(bytes: &'a [u8], last_ip: &mut LastIp) -> Option<(Filtered, &'a [u8])> {
    let &[first, second, ..] = bytes.first_chunk::<MAX_PACKET_LEN>()?;
    if let Some((cycles, len)) = decode_common_cyc(bytes) {
        return Some((Filtered::Cyc(cycles), &bytes[len..]));
    }
    let start = |(ip, behind)| (Filtered::TipPge(ip), behind);
    let end = |(ip, behind)| (Filtered::TipPgd(Some(ip)), behind);
    Some(match first {
        0x31 => start(decode_address::<1, 2>(bytes, last_ip)?),
        0x51 => start(decode_address::<2, 4>(bytes, last_ip)?),
        0x71 => start(decode_address::<3, 6>(bytes, last_ip)?),
        0x21 => end(decode_address::<1, 2>(bytes, last_ip)?),
        0x41 => end(decode_address::<2, 4>(bytes, last_ip)?),
        0x61 => end(decode_address::<3, 6>(bytes, last_ip)?),
        0x01 => (Filtered::TipPgd(None), &bytes[1..]),
        0x59 => (Filtered::Mtc(second), &bytes[2..]),
        0x99 if second & 0xe1 == 1 => (Filtered::Mode64, &bytes[2..]),
        _ => return None,
    })
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
}
