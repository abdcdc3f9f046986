//! Which trace a capture has: of each buffer from a PSB to a PSB, so that all of a time can be decoded.
//!
//! ```text
//!   trace   PSB ... PSB ... PSB ... PSB ... PSB ... PSB ... PSB
//!           |       |   from|---------------|to     |
//!           |       the clock               |       the clock
//!           first                           |       end
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use model::{AuxOffset, AuxPiece, Ns, Recording};
use perfdata::Excerpt;

/// How much earlier than asked for the trace may begin: the first with which each buffer has two PSBs.
const LEADS_NS: [u64; 4] = [20_000, 200_000, 2_000_000, 20_000_000];
/// How much longer records are taken than asked for: those of the time are not written at once.
const TAIL_NS: u64 = 200_000;
/// PSBs before a time: the second settles the clock.
const PSBS: usize = 2;
/// Bytes in which PSBs are looked for first.
const SEARCHED: u64 = 1 << 15;

/// The part of some files of one recording that has all from `from` to `to`.
pub(super) fn excerpt(files: &[&Recording<'_>], from: Ns, to: Ns) -> Excerpt {
    let mut buffers: BTreeMap<u32, Vec<AuxPiece<'_>>> = BTreeMap::new();
    for buffer in files.iter().flat_map(|file| &file.buffers) {
        buffers.entry(buffer.index).or_default().extend(&buffer.pieces);
    }
    buffers.values_mut().for_each(|pieces| pieces.retain(|piece| !piece.bytes.is_empty()));
    buffers.retain(|_, pieces| !pieces.is_empty());
    let Some(file) = files.first() else {
        return Excerpt { from, to, trace: BTreeMap::new(), is_of_copies: false, untold: Vec::new() };
    };
    let after = |pieces: &[AuxPiece<'_>], time: Ns| decoder::first_psb_after(file, pieces, time);
    let needed = |pieces: &[AuxPiece<'_>]| psb_before(pieces, after(pieces, from));
    let begins = |lead_ns: u64| Ns(from.0.saturating_sub(lead_ns));
    let is_enough = |lead_ns: &u64| {
        let has = |pieces: &Vec<AuxPiece<'_>>| after(pieces, begins(*lead_ns)) <= needed(pieces);
        buffers.values().all(has)
    };
    let [.., longest_ns] = LEADS_NS;
    let begin = begins(LEADS_NS.into_iter().find(is_enough).unwrap_or(longest_ns));
    let trace = |(buffer, pieces): (&u32, &Vec<AuxPiece<'_>>)| {
        let start = needed(pieces).min(after(pieces, begin));
        let end = after(pieces, to);
        // A buffer that begins after `to` is left out: no record of the excerpt says which threads ran then.
        (start < end).then(|| (*buffer, start..end_of(pieces, end)))
    };
    Excerpt {
        from: begin,
        to: Ns(to.0.saturating_add(TAIL_NS)),
        trace: buffers.iter().filter_map(trace).collect(),
        is_of_copies: false,
        untold: Vec::new(),
    }
}

/// Where the stream ends.
fn stream_end(pieces: &[AuxPiece<'_>]) -> AuxOffset {
    pieces.last().map_or(AuxOffset(0), |last| last.offset.plus(last.bytes.len() as u64))
}

/// The PSB from which on what begins at `end` can be decoded, or else the first byte.
fn psb_before(pieces: &[AuxPiece<'_>], end: AuxOffset) -> AuxOffset {
    let start = pieces.first().map_or(AuxOffset(0), |piece| piece.offset);
    let mut reach = SEARCHED;
    loop {
        let from = AuxOffset(end.0.saturating_sub(reach)).max(start);
        let found = psbs(pieces, from..end);
        match found.iter().rev().nth(PSBS - 1) {
            Some(psb) => return *psb,
            None if from == start => return start,
            None => reach = reach.saturating_mul(4),
        }
    }
}

/// The PSB after the one at `at`, which settles the clock before that; or else the end.
fn end_of(pieces: &[AuxPiece<'_>], at: AuxOffset) -> AuxOffset {
    let last = stream_end(pieces);
    let mut from = at.plus(packet::PSB.len() as u64);
    while from < last {
        let to = from.plus(SEARCHED).min(last);
        // A PSB that the range ends in is in the next one.
        match psbs(pieces, from..to.plus(packet::PSB.len() as u64)).first() {
            Some(psb) => return *psb,
            None => from = to,
        }
    }
    last
}

/// The PSBs that a part of a stream has.
fn psbs(pieces: &[AuxPiece<'_>], part: Range<AuxOffset>) -> Vec<AuxOffset> {
    let mut found = Vec::new();
    for piece in pieces {
        let in_piece =
            |at: AuxOffset| usize::try_from(at.0.saturating_sub(piece.offset.0)).unwrap_or(usize::MAX);
        let (mut at, end) = (in_piece(part.start), in_piece(part.end).min(piece.bytes.len()));
        let Some(bytes) = piece.bytes.get(..end).filter(|_| at < end) else { continue };
        while let Some(psb) = packet::find_psb(bytes, at) {
            found.push(piece.offset.plus(psb as u64));
            at = psb + packet::PSB.len();
        }
    }
    found
}
