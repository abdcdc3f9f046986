//! Any bytes as Intel PT packets.

use decoder::packets as read_packets;
use model::{AuxOffset, AuxPiece};
use packet::{Context, LastIp, MAX_PACKET_LEN, PSB, Packet, PacketError, decode, encode, find_psb};

const CONTEXTS: [Context; 3] = [Context::Flow, Context::Block, Context::ShortBlock];

/// A packet is as long as it says and no longer than the longest, what is decoded can be shown and encoded
/// again, and the reader gives the same packets wherever AUXTRACE records cut the stream.
///
/// # Panics
/// If that does not hold.
pub fn packets(bytes: &[u8]) {
    let mut last_ip = LastIp::default();
    for at in 0..bytes.len() {
        for context in CONTEXTS {
            one_packet(&bytes[at..], context, &mut last_ip);
        }
    }
    psbs(bytes);
    let whole = read(&[bytes], 0);
    let cut = bytes.first().map_or(0, |first| usize::from(*first) % bytes.len());
    let again = bytes.len().min(cut + 3);
    assert_eq!(read(&[&bytes[..cut], &bytes[cut..again], &bytes[again..]], 0), whole, "cut at {cut}");
}

fn one_packet(bytes: &[u8], context: Context, last_ip: &mut LastIp) {
    let (packet, len) = match decode(bytes, context) {
        Ok(decoded) => decoded,
        Err(PacketError::Truncated) => {
            assert!(bytes.len() < MAX_PACKET_LEN, "{bytes:02x?} is enough for any packet");
            return;
        }
        Err(error @ PacketError::Unknown { .. }) => return assert!(!error.to_string().is_empty()),
    };
    assert!((1..=MAX_PACKET_LEN).contains(&len) && len <= bytes.len(), "{packet:?} of {len} bytes");
    assert_eq!(decode(&bytes[..len], context), Ok((packet, len)), "{packet:?} depends on what follows it");
    assert_eq!(decode(&bytes[..len - 1], context), Err(PacketError::Truncated), "{packet:?} cut");
    assert!(!packet.to_string().is_empty(), "{packet:?}");
    if let Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) | Packet::Fup(ip) = packet {
        last_ip.expand(ip);
    }
    round_trip(packet, context);
}

/// Reserved bits are not kept, so bytes may differ; packets may not.
fn round_trip(packet: Packet, context: Context) {
    let context = match (packet, context) {
        // An item does not know the size that its block gave it.
        (Packet::Bip { .. }, Context::ShortBlock) => return,
        (Packet::Bip { .. }, _) => Context::Block,
        // In a block a short TNT may look like an item.
        _ => Context::Flow,
    };
    let mut encoded = vec![];
    encode(&packet, &mut encoded);
    assert_eq!(decode(&encoded, context), Ok((packet, encoded.len())), "{encoded:02x?}");
}

/// Every PSB is found, and nothing else: as a search that looks at every position does.
fn psbs(bytes: &[u8]) {
    let is_psb = |at: &usize| bytes[*at..].starts_with(&PSB) && !bytes[*at + 2..].starts_with(&PSB);
    let mut expect = (0..bytes.len()).filter(is_psb);
    let mut from = 0;
    while let Some(at) = find_psb(bytes, from) {
        assert_eq!(Some(at), expect.next());
        from = at + 1;
    }
    assert_eq!(expect.next(), None);
}

type Read = Vec<(AuxOffset, Result<Packet, PacketError>)>;

/// What the reader makes of a stream in pieces, from `start` on.
fn read(parts: &[&[u8]], start: u64) -> Read {
    let mut offset = AuxOffset(start);
    let mut pieces = vec![];
    for bytes in parts {
        pieces.push(AuxPiece { offset, bytes, file_offset: 0 });
        offset = offset.plus(bytes.len() as u64);
    }
    let read: Read = read_packets(&pieces).collect();
    assert!(read.windows(2).all(|pair| pair[0].0 < pair[1].0), "the reader goes forward");
    read
}
