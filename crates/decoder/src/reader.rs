//! Packets of a byte stream that lies in pieces: AUXTRACE records cut it anywhere.

use model::{AuxOffset, AuxPiece};
use packet::{Context, MAX_PACKET_LEN, Packet, PacketError};

/// Where a reader stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pieces: &'a [AuxPiece<'a>],
    /// Bytes of the current piece, and where in them the next packet starts.
    bytes: &'a [u8],
    at: usize,
    /// Stream offset of `bytes[0]`.
    base: AuxOffset,
    block: Context,
}

/// One step of reading.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    /// A packet and where it starts.
    Packet(AuxOffset, Packet),
    /// These bytes are no packet, or the stream ends (or has a hole) inside one.
    Bad(AuxOffset, PacketError),
}

impl<'a> Reader<'a> {
    /// A reader at the start of `pieces`, which are in order of offset.
    pub(crate) fn new(pieces: &'a [AuxPiece<'a>]) -> Self {
        let mut reader = Self { pieces, bytes: &[], at: 0, base: AuxOffset(0), block: Context::Flow };
        reader.next_piece();
        reader
    }

    /// The offset of the next packet.
    pub(crate) fn offset(&self) -> AuxOffset {
        self.base.plus(self.at as u64)
    }

    /// Opens the next piece; false at the end.
    fn next_piece(&mut self) -> bool {
        match self.pieces.split_first() {
            Some((first, rest)) => {
                (self.pieces, self.bytes, self.at, self.base) = (rest, first.bytes, 0, first.offset);
                true
            }
            None => false,
        }
    }

    /// The next packet; `None` at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Item> {
        loop {
            if self.at < self.bytes.len() {
                break;
            }
            if !self.next_piece() {
                return None;
            }
        }
        let start = self.offset();
        let rest = &self.bytes[self.at..];
        let decoded = if rest.len() >= MAX_PACKET_LEN {
            packet::decode(rest, self.block)
        } else {
            self.decode_stitched(rest)
        };
        match decoded {
            Ok((packet, len)) => {
                self.skip(len);
                match packet {
                    Packet::Bbp { short_items: true, .. } => self.block = Context::ShortBlock,
                    Packet::Bbp { .. } => self.block = Context::Block,
                    Packet::Bep { .. } | Packet::Ovf | Packet::Psb => self.block = Context::Flow,
                    _ => (),
                }
                Some(Item::Packet(start, packet))
            }
            Err(error) => Some(Item::Bad(start, error)),
        }
    }

    /// Decodes a packet near the end of a piece, with the bytes of the pieces behind it.
    #[cold]
    fn decode_stitched(&self, rest: &[u8]) -> Result<(Packet, usize), PacketError> {
        let mut window = [0; MAX_PACKET_LEN];
        let mut len = 0;
        let mut end = self.base.plus(self.bytes.len() as u64);
        let mut fill = |bytes: &[u8]| {
            for (to, from) in window.iter_mut().skip(len).zip(bytes) {
                *to = *from;
                len += 1;
            }
        };
        fill(rest);
        for piece in self.pieces {
            if piece.offset != end {
                break; // a hole
            }
            fill(piece.bytes);
            end = piece.offset.plus(piece.bytes.len() as u64);
            if end.minus(self.offset()) >= MAX_PACKET_LEN as u64 {
                break;
            }
        }
        packet::decode(&window[..len], self.block)
    }

    /// Moves on by `len` bytes, over piece ends.
    fn skip(&mut self, len: usize) {
        self.at += len;
        while self.at > self.bytes.len() {
            let over = self.at - self.bytes.len();
            if !self.next_piece() {
                return;
            }
            self.at = over;
        }
    }

    /// Moves on to `offset`, or to the first byte behind it.
    pub(crate) fn seek(&mut self, offset: AuxOffset) {
        self.block = Context::Flow;
        loop {
            let end = self.base.plus(self.bytes.len() as u64);
            if offset < end {
                let inside = offset.0.saturating_sub(self.base.0);
                self.at = self.at.max(usize::try_from(inside).unwrap_or(usize::MAX));
                return;
            }
            self.at = self.bytes.len();
            if !self.next_piece() {
                return;
            }
        }
    }

    /// The stream starts with a PSB, padding apart.
    pub(crate) fn starts_with_psb(mut self) -> bool {
        loop {
            match self.next() {
                Some(Item::Packet(_, Packet::Pad)) => (),
                Some(Item::Packet(_, Packet::Psb)) => return true,
                _ => return false,
            }
        }
    }

    /// Moves to the first PSB behind the next byte; to the end of the stream if there is none.
    pub(crate) fn resync(&mut self) {
        self.skip(1);
        self.resync_here();
    }

    /// Moves to the first PSB from here on; to the end of the stream if there is none.
    pub(crate) fn resync_here(&mut self) {
        self.block = Context::Flow;
        loop {
            if let Some(at) = packet::find_psb(self.bytes, self.at) {
                self.at = at;
                return;
            }
            self.at = self.bytes.len();
            if !self.next_piece() {
                return;
            }
        }
    }
}

/// All packets of a buffer, for listing: bad bytes are an error at their offset, and reading goes on at the next
/// PSB.
pub fn packets<'a>(
    pieces: &'a [AuxPiece<'a>],
) -> impl Iterator<Item = (AuxOffset, Result<Packet, PacketError>)> + 'a {
    let mut reader = Reader::new(pieces);
    std::iter::from_fn(move || match reader.next()? {
        Item::Packet(at, packet) => Some((at, Ok(packet))),
        Item::Bad(at, error) => {
            reader.resync();
            Some((at, Err(error)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_cross_pieces() {
        let mut bytes = vec![];
        let all = [
            Packet::Psb,
            Packet::Tsc(0x1122_3344_5566),
            Packet::PsbEnd,
            Packet::Cyc(70_000),
            Packet::Tip(packet::IpPayload { ip_bytes: 6, value: 0x7fff_1234_5678 }),
            Packet::Mtc(9),
        ];
        all.iter().for_each(|p| packet::encode(p, &mut bytes));
        for first in 0..bytes.len() {
            for second in first..bytes.len().min(first + 20) {
                let cut = |from: usize, to: usize| AuxPiece {
                    offset: AuxOffset(from as u64 + 100),
                    bytes: &bytes[from..to],
                    file_offset: 0,
                };
                let pieces = [cut(0, first), cut(first, second), cut(second, bytes.len())];
                let read: Vec<_> = packets(&pieces).map(|(_, p)| p.unwrap()).collect();
                assert_eq!(read, all, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn bad_bytes_are_skipped_to_the_next_psb() {
        let mut bytes = vec![0x05, 0xff];
        packet::encode(&Packet::Psb, &mut bytes);
        bytes.push(0xd9);
        let pieces = [AuxPiece { offset: AuxOffset(0), bytes: &bytes, file_offset: 0 }];
        let read: Vec<_> = packets(&pieces).map(|(at, p)| (at.0, p.is_ok())).collect();
        assert_eq!(read, [(0, false), (2, true), (18, false)]);
    }
}
