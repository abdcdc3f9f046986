//! Packets of a byte stream that lies in pieces: AUXTRACE records cut it anywhere.

use model::{AuxOffset, AuxPiece};
use packet::{Context, MAX_PACKET_LEN, Packet, PacketError};

/// What tells a PSB: its bytes, and that two more like them do not follow.
const WINDOW: usize = MAX_PACKET_LEN + 2;

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
    /// OVF may replace the rest of a CYC: see [`crate::errata::Errata`].
    skd007: bool,
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
    pub(crate) fn new(pieces: &'a [AuxPiece<'a>], skd007: bool) -> Self {
        let mut reader = Self { pieces, bytes: &[], at: 0, base: AuxOffset(0), block: Context::Flow, skd007 };
        reader.next_piece();
        reader
    }

    /// The offset of the next packet.
    #[inline]
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

    /// The bytes from here on that lie in one piece as they are.  A packet that starts before `end` has
    /// [`MAX_PACKET_LEN`] of them from its start on, and one that starts after it has not.
    pub(crate) fn run(&self, end: AuxOffset) -> &'a [u8] {
        let is_plain = matches!(self.block, Context::Flow) && !self.skd007;
        let starts = usize::try_from(end.0.saturating_sub(self.offset().0)).unwrap_or(usize::MAX);
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let len = starts.saturating_add(MAX_PACKET_LEN - 1).min(rest.len());
        if is_plain && starts > 0 { rest.get(..len).unwrap_or_default() } else { &[] }
    }

    /// Moves on by bytes of [`Self::run`].
    #[inline(always)]
    pub(crate) fn advance(&mut self, len: usize) {
        self.at += len;
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
            // A CYC of two bytes, the second of which begins an OVF: two CYC in a row would be full ones.
            Ok((Packet::Cyc(_), 2)) if self.skd007 && rest.get(1..3) == Some(&[0x02, 0xf3]) => {
                self.skip(1);
                Some(Item::Packet(start, Packet::Pad))
            }
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

    /// Decodes a packet near the end of a piece, with the bytes of the pieces after it.
    #[cold]
    fn decode_stitched(&self, rest: &[u8]) -> Result<(Packet, usize), PacketError> {
        let (window, len) = self.window(rest);
        packet::decode(&window[..len.min(MAX_PACKET_LEN)], self.block)
    }

    /// The stream is cut inside of the next packet at `end`: the bytes after that are of another one,
    /// whatever both together look like.
    pub(crate) fn is_cut_at(&self, end: AuxOffset) -> bool {
        let (window, len) = self.window(self.bytes.get(self.at..).unwrap_or_default());
        let whole = usize::try_from(end.0.saturating_sub(self.offset().0)).unwrap_or(usize::MAX);
        let cut = window.get(..whole).filter(|_| whole <= len);
        cut.is_some_and(|bytes| packet::decode(bytes, self.block) == Err(PacketError::Truncated))
    }

    /// `rest` and the bytes after it in the next pieces, up to a hole: the first bytes, and how many.
    fn window(&self, rest: &[u8]) -> ([u8; WINDOW], usize) {
        let mut window = [0; WINDOW];
        let mut len = 0;
        let mut end = self.base.plus(self.bytes.len() as u64);
        let mut fill = |bytes: &[u8]| {
            for (to, from) in window.iter_mut().skip(len).zip(bytes) {
                *to = *from;
                len += 1;
            }
            len
        };
        let mut filled = fill(rest);
        for piece in self.pieces {
            if piece.offset != end || filled == WINDOW {
                break; // a hole, or enough
            }
            filled = fill(piece.bytes);
            end = piece.offset.plus(piece.bytes.len() as u64);
        }
        (window, filled)
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

    /// Moves on to `offset`, or to the first byte after it.
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

    /// Moves on to the first packet other than PAD.
    pub(crate) fn skip_padding(&mut self) {
        let mut ahead = *self;
        while let Some(Item::Packet(_, Packet::Pad)) = ahead.next() {
            *self = ahead;
        }
    }

    /// The next packet is a PSB; none if there is no packet.
    pub(crate) fn starts_with_psb(mut self) -> Option<bool> {
        self.next().map(|item| matches!(item, Item::Packet(_, Packet::Psb)))
    }

    /// Moves to the first PSB after the next byte; to the end of the stream if there is none.
    pub(crate) fn resync(&mut self) {
        self.skip(1);
        self.resync_here();
    }

    /// Moves to the first PSB from here on; to the end of the stream if there is none.
    pub(crate) fn resync_here(&mut self) {
        self.block = Context::Flow;
        loop {
            let found = packet::find_psb(self.bytes, self.at);
            // One that is not whole in this piece, or may be the beginning of a longer run, is looked at with
            // the next.
            let is_whole = |at: &usize| at + WINDOW <= self.bytes.len();
            if let Some(at) = found.filter(is_whole) {
                self.at = at;
                return;
            }
            let near_end = self.bytes.len().saturating_sub(WINDOW - 1).max(self.at);
            for at in found.unwrap_or(near_end)..self.bytes.len() {
                let (window, len) = self.window(&self.bytes[at..]);
                if packet::find_psb(&window[..len], 0) == Some(0) {
                    self.at = at;
                    return;
                }
            }
            self.at = self.bytes.len();
            if !self.next_piece() {
                return;
            }
        }
    }
}

/// All packets of a buffer, for listing: bad bytes are an error at their offset, and reading goes on at the
/// next PSB.
pub fn packets<'a>(
    pieces: &'a [AuxPiece<'a>],
) -> impl Iterator<Item = (AuxOffset, Result<Packet, PacketError>)> + 'a {
    let mut reader = Reader::new(pieces, false);
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
    fn a_psb_that_is_cut_in_two_is_found_behind_damage() {
        let mut bytes = vec![0x05];
        // A CYC and a TNT that end like the beginning of a PSB.
        packet::encode(&Packet::Cyc(63), &mut bytes);
        packet::encode(&Packet::Tnt(packet::Tnt::new(1, 6)), &mut bytes);
        packet::encode(&Packet::Psb, &mut bytes);
        packet::encode(&Packet::PsbEnd, &mut bytes);
        for cut in 0..bytes.len() {
            let piece = |from: usize, to: usize| AuxPiece {
                offset: AuxOffset(from as u64),
                bytes: &bytes[from..to],
                file_offset: 0,
            };
            let pieces = [piece(0, cut), piece(cut, bytes.len())];
            let read: Vec<_> = packets(&pieces).map(|(at, p)| (at.0, p.ok())).collect();
            let expect = [(0, None), (4, Some(Packet::Psb)), (20, Some(Packet::PsbEnd))];
            assert_eq!(read, expect, "cut at {cut}");
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
