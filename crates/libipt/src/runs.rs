//! A segment's bytes as libipt wants them: stretches of memory without holes.

use std::borrow::Cow;

use decoder::Segment;
use model::{AuxOffset, GapCause};

/// Bytes that follow one another in the stream.
pub(crate) struct Run<'a> {
    pub(crate) start: AuxOffset,
    pub(crate) bytes: Cow<'a, [u8]>,
    /// Why the stream does not go on after it; `None` at the segment's end.
    pub(crate) cut: Option<GapCause>,
    /// Where the kernel lost data, but nothing of the packets: tracing was off.
    pub(crate) pauses: Vec<AuxOffset>,
}

impl Run<'_> {
    pub(crate) fn end(&self) -> AuxOffset {
        self.start.plus(self.bytes.len() as u64)
    }

    /// Goes on with the run after it, if that follows.
    pub(crate) fn join(&mut self, next: &Run<'_>) -> bool {
        let end = self.end();
        if next.start == end {
            self.pauses.push(end);
            self.bytes.to_mut().extend(next.bytes.iter());
            self.cut = next.cut;
        }
        next.start == end
    }
}

/// Longer than any PSB period: a longer run has lost its PSBs, and its events would be in memory until it
/// ends.
const MAX_BYTES: u64 = 1 << 24;

/// The runs of a segment, up to its end; cut at holes, where the kernel lost data, and where it is too long.
pub(crate) fn runs<'a>(segment: &Segment<'a>) -> Vec<Run<'a>> {
    let mut runs: Vec<Run<'a>> = Vec::new();
    let mut truncations = segment.truncations.iter().copied().peekable();
    let stop = segment.end.min(segment.start().plus(MAX_BYTES));
    for (start, mut bytes) in clipped(segment, segment.start(), stop) {
        let mut at = start;
        if let Some(last) = runs.last_mut()
            && last.end() != at
        {
            last.cut = last.cut.or(Some(GapCause::DamagedPacket));
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
    if let Some(last) = runs.last_mut().filter(|_| stop < segment.end) {
        last.cut = last.cut.or(Some(GapCause::DamagedPacket));
    }
    runs
}

/// The bytes after the segment's end: the next segment's PSB+, and perhaps more.
pub(crate) fn tail(segment: &Segment<'_>) -> Vec<u8> {
    clipped(segment, segment.end, AuxOffset(u64::MAX)).flat_map(|(_, bytes)| bytes).copied().collect()
}

fn append<'a>(runs: &mut Vec<Run<'a>>, start: AuxOffset, bytes: &'a [u8]) {
    match runs.last_mut() {
        _ if bytes.is_empty() => (),
        Some(last) if last.cut.is_none() && last.end() == start => last.bytes.to_mut().extend(bytes),
        _ => runs.push(Run { start, bytes: Cow::Borrowed(bytes), cut: None, pauses: vec![] }),
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
            lost_after: None,
            missing: 0,
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
        let [mut first, second, third] = runs(&segment).try_into().ok().unwrap();
        assert!(first.join(&second) && !first.join(&third));
        assert_eq!((first.end(), first.cut), (second.end(), second.cut));
        assert_eq!(first.pauses, [AuxOffset(115)]);
    }

    #[test]
    fn what_has_no_psb_for_too_long_is_cut() {
        let bytes = vec![0; (MAX_BYTES + 7) as usize];
        let pieces = vec![AuxPiece { offset: AuxOffset(5), bytes: &bytes, file_offset: 0 }];
        let end = AuxOffset(5 + bytes.len() as u64);
        let segment = Segment {
            buffer: 0,
            pieces,
            end,
            first: true,
            last: true,
            truncations: vec![],
            lost_after: None,
            missing: 0,
        };
        let found: Vec<_> = runs(&segment).iter().map(|r| (r.start.0, r.end().0, r.cut)).collect();
        assert_eq!(found, [(5, 5 + MAX_BYTES, Some(GapCause::DamagedPacket))]);
    }
}
