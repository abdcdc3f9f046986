//! A segment's bytes as libipt wants them: stretches of memory without holes.

use std::borrow::Cow;

use decoder::Segment;
use model::{AuxOffset, GapCause};

/// Bytes that follow one another in the stream.
pub(crate) struct Run<'a> {
    pub(crate) start: AuxOffset,
    pub(crate) bytes: Cow<'a, [u8]>,
    /// Why the stream does not go on behind it; `None` at the segment's end.
    pub(crate) cut: Option<GapCause>,
}

impl Run<'_> {
    pub(crate) fn end(&self) -> AuxOffset {
        self.start.plus(self.bytes.len() as u64)
    }
}

/// The runs of a segment, up to its end; cut at holes and where the kernel lost data.
pub(crate) fn runs<'a>(segment: &Segment<'a>) -> Vec<Run<'a>> {
    let mut runs: Vec<Run<'a>> = Vec::new();
    let mut truncations = segment.truncations.iter().copied().peekable();
    for (start, mut bytes) in clipped(segment, segment.start(), segment.end) {
        let mut at = start;
        if let Some(last) = runs.last_mut() {
            if last.end() != at {
                last.cut = last.cut.or(Some(GapCause::DamagedPacket));
            }
        }
        while let Some(cut) = truncations.next_if(|cut| *cut <= at.plus(bytes.len() as u64)) {
            let inside = usize::try_from(cut.0.saturating_sub(at.0)).unwrap_or(usize::MAX);
            let (whole, rest) = bytes.split_at_checked(inside).unwrap_or((bytes, &[]));
            append(&mut runs, at, whole);
            if let Some(last) = runs.last_mut() {
                last.cut = Some(GapCause::Truncated);
            }
            (at, bytes) = (at.plus(whole.len() as u64), rest);
        }
        append(&mut runs, at, bytes);
    }
    runs
}

/// The bytes behind the segment's end: the next segment's PSB+, and perhaps more.
pub(crate) fn tail(segment: &Segment<'_>) -> Vec<u8> {
    clipped(segment, segment.end, AuxOffset(u64::MAX)).flat_map(|(_, bytes)| bytes).copied().collect()
}

/// Longer than any PSB period: what is longer has lost its PSBs, and its events would be in memory until it ends.
const MAX_BYTES: usize = 1 << 24;

fn append<'a>(runs: &mut Vec<Run<'a>>, start: AuxOffset, bytes: &'a [u8]) {
    if bytes.is_empty() {
        return;
    }
    match runs.last_mut() {
        Some(last) if last.cut.is_none() && last.end() == start => {
            let room = MAX_BYTES.saturating_sub(last.bytes.len());
            last.bytes.to_mut().extend(bytes.iter().take(room));
        }
        _ => {
            let bytes = bytes.get(..MAX_BYTES).unwrap_or(bytes);
            runs.push(Run { start, bytes: Cow::Borrowed(bytes), cut: None });
        }
    }
}

/// The parts of the pieces in `[from, to)`.
fn clipped<'a>(
    segment: &Segment<'a>,
    from: AuxOffset,
    to: AuxOffset,
) -> impl Iterator<Item = (AuxOffset, &'a [u8])> {
    segment.pieces.iter().filter_map(move |piece| {
        let skip = usize::try_from(from.0.saturating_sub(piece.offset.0)).ok()?;
        let end = usize::try_from(to.0.checked_sub(piece.offset.0)?).unwrap_or(usize::MAX);
        let bytes = piece.bytes.get(skip..end.min(piece.bytes.len()))?;
        (!bytes.is_empty()).then(|| (piece.offset.plus(skip as u64), bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::AuxPiece;

    #[test]
    fn cut_at_holes_and_truncations_and_joined_elsewhere() {
        let bytes: Vec<u8> = (0..60).collect();
        let piece = |at: u64, from: usize, to: usize| AuxPiece {
            offset: AuxOffset(at),
            bytes: &bytes[from..to],
            file_offset: 0,
        };
        let segment = Segment {
            buffer: 0,
            // A hole of 10 bytes in front of the third piece; the fourth is the next segment's.
            pieces: vec![piece(100, 0, 10), piece(110, 10, 20), piece(130, 30, 40), piece(140, 40, 60)],
            end: AuxOffset(145),
            first: true,
            last: false,
            truncations: vec![AuxOffset(115), AuxOffset(145)],
        };
        let found: Vec<_> = runs(&segment).iter().map(|r| (r.start.0, r.bytes.to_vec(), r.cut)).collect();
        assert_eq!(
            found,
            [
                (100, (0..15).collect(), Some(GapCause::Truncated)),
                (115, (15..20).collect(), Some(GapCause::DamagedPacket)),
                (130, (30..45).collect(), Some(GapCause::Truncated)),
            ]
        );
        assert_eq!(tail(&segment), (45..60).collect::<Vec<u8>>());
    }
}
