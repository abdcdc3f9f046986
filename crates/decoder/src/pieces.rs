//! Pieces of a buffer's stream: where they lie, and when they begin.

use std::ops::Range;

use model::{AuxOffset, AuxPiece, Ns, Tsc, TscClock};
use packet::Packet;

use crate::{Context, reader};

/// From the first byte to after the last.
pub(crate) fn extent(pieces: &[AuxPiece<'_>]) -> Option<Range<AuxOffset>> {
    let (first, last) = (pieces.first()?, pieces.last()?);
    Some(first.offset..last.offset.plus(last.bytes.len() as u64))
}

/// The parts of `pieces` in `[from, to)`.
pub(crate) fn clip<'a>(pieces: &[AuxPiece<'a>], from: AuxOffset, to: AuxOffset) -> Vec<AuxPiece<'a>> {
    parts(pieces, from, to).collect()
}

pub(crate) fn parts<'a>(
    pieces: &[AuxPiece<'a>],
    from: AuxOffset,
    to: AuxOffset,
) -> impl Iterator<Item = AuxPiece<'a>> {
    let first = pieces.partition_point(|p| p.offset.0 + p.bytes.len() as u64 <= from.0);
    pieces.iter().skip(first).take_while(move |p| p.offset < to).filter_map(move |p| {
        let skip = usize::try_from(from.0.saturating_sub(p.offset.0)).ok()?;
        let end = usize::try_from(to.minus(p.offset)).unwrap_or(usize::MAX).min(p.bytes.len());
        let bytes = p.bytes.get(skip..end)?;
        Some(AuxPiece {
            offset: p.offset.plus(skip as u64),
            bytes,
            file_offset: p.file_offset.saturating_add(skip as u64),
        })
    })
}

/// The TSC in the first PSB+; 0 if there is none.
pub(crate) fn start_time(context: &Context<'_>, pieces: &[AuxPiece<'_>]) -> Ns {
    first_time(context, pieces).unwrap_or(Ns(0))
}

/// The TSC in the first PSB+.
pub(crate) fn first_time(context: &Context<'_>, pieces: &[AuxPiece<'_>]) -> Option<Ns> {
    first_time_by((context.conversion(), context.reference()), pieces)
}

/// The TSC in the first PSB+, by this clock; the second one is a TSC near the recording.
pub(crate) fn first_time_by((clock, near): (TscClock, Tsc), pieces: &[AuxPiece<'_>]) -> Option<Ns> {
    let packets = reader::packets(pieces).take(64);
    let tsc = packets.filter_map(|(_, p)| if let Ok(Packet::Tsc(tsc)) = p { Some(tsc) } else { None }).next();
    tsc.map(|low| clock.to_ns(Tsc::of_packet(low, near)))
}
