//! The bytes of one buffer: what the packets say of how libipt had to follow them.

use model::{AuxBuffer, AuxOffset, AuxPiece};
use packet::{IpPayload, LastIp, Packet};

/// A byte of trace is about one event of 64 bytes, which both decoders give.
const PART_BYTES: u64 = 1 << 22;

/// A buffer's stream, which has no holes.
pub(crate) struct Stream {
    start: AuxOffset,
    bytes: Vec<u8>,
    /// Each PSB, and the last packet of its PSB+.
    psbs: Vec<(AuxOffset, AuxOffset)>,
    /// The first address after an overflow, where libipt completes it otherwise than the last IP does.
    zeroed: Vec<AuxOffset>,
}

impl Stream {
    pub(crate) fn new(buffer: &AuxBuffer<'_>) -> Self {
        let start = buffer.pieces.first().map_or(AuxOffset(0), |piece| piece.offset);
        let mut bytes = Vec::new();
        for piece in &buffer.pieces {
            assert_eq!(piece.offset.minus(start), bytes.len() as u64, "a hole");
            bytes.extend_from_slice(piece.bytes);
        }
        let mut psbs = Vec::new();
        let mut from = 0;
        while let Some(psb) = packet::find_psb(&bytes, from) {
            from = psb_end(&bytes, psb);
            psbs.push((start.plus(psb as u64), start.plus(from as u64)));
        }
        let zeroed = zeroed(&bytes).into_iter().map(|at| start.plus(at as u64)).collect();
        Self { start, bytes, psbs, zeroed }
    }

    /// libipt completes the address there with 0, and it was compressed against the last IP before an
    /// overflow.
    pub(crate) fn is_zeroed(&self, at: AuxOffset) -> bool {
        self.zeroed.binary_search(&at).is_ok()
    }

    /// Where the first PSB+ ends that ends after `at`.
    pub(crate) fn psb_end_after(&self, at: AuxOffset) -> Option<AuxOffset> {
        self.psbs.get(self.psbs.partition_point(|(_, end)| *end <= at)).map(|(_, end)| *end)
    }

    /// The buffer in parts that fit in memory when they are decoded; each starts at a PSB.
    pub(crate) fn parts<'a>(&self, buffer: &AuxBuffer<'a>) -> Vec<AuxBuffer<'a>> {
        let mut cuts = vec![self.start];
        for (psb, _) in &self.psbs {
            if cuts.last().is_some_and(|last| psb.minus(*last) >= PART_BYTES) {
                cuts.push(*psb);
            }
        }
        let ends = cuts.iter().skip(1).copied().chain([AuxOffset(u64::MAX)]);
        cuts.iter().zip(ends).map(|(from, to)| part(buffer, *from, to)).collect()
    }

    /// The packet there.
    pub(crate) fn packet(&self, at: AuxOffset) -> Option<Packet> {
        let bytes = self.bytes.get(usize::try_from(at.minus(self.start)).ok()?..)?;
        decode(bytes).map(|(packet, _)| packet)
    }
}

/// What a buffer has in `[from, to)`.
fn part<'a>(buffer: &AuxBuffer<'a>, from: AuxOffset, to: AuxOffset) -> AuxBuffer<'a> {
    let clip = |piece: &AuxPiece<'a>| {
        let len = piece.bytes.len();
        let [from, to] = [from, to].map(|at| (at.0.saturating_sub(piece.offset.0) as usize).min(len));
        let (offset, file_offset) = (piece.offset.plus(from as u64), piece.file_offset + from as u64);
        (from < to).then(|| AuxPiece { offset, bytes: &piece.bytes[from..to], file_offset })
    };
    AuxBuffer { pieces: buffer.pieces.iter().filter_map(clip).collect(), ..buffer.clone() }
}

/// Where the first address after an OVF is another one if the last IP is 0.
fn zeroed(bytes: &[u8]) -> Vec<usize> {
    let (mut found, mut last_ip, mut is_first) = (vec![], LastIp::default(), false);
    let mut at = packet::find_psb(bytes, 0).unwrap_or(bytes.len());
    while let Some((packet, len)) = bytes.get(at..).and_then(decode) {
        match packet {
            Packet::Psb => (last_ip, is_first) = (LastIp::default(), false),
            Packet::Ovf => is_first = true,
            Packet::Tip(payload)
            | Packet::TipPge(payload)
            | Packet::TipPgd(payload)
            | Packet::Fup(payload)
                if payload != IpPayload::NONE =>
            {
                let zero = LastIp::default().expand(payload);
                if last_ip.expand(payload) != zero && std::mem::take(&mut is_first) {
                    found.push(at);
                }
                is_first = false;
            }
            _ => (),
        }
        at += len;
    }
    found
}

fn decode(bytes: &[u8]) -> Option<(Packet, usize)> {
    packet::decode(bytes, packet::Context::Flow).ok()
}

/// The PSBEND, or the OVF that a PSB+ ends with (SDM, "Packet Generation Scenarios").
fn psb_end(bytes: &[u8], psb: usize) -> usize {
    let mut at = psb;
    while let Some((packet, len)) = bytes.get(at..).and_then(decode) {
        if matches!(packet, Packet::PsbEnd | Packet::Ovf) {
            break;
        }
        at += len;
    }
    at
}
