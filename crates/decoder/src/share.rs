//! Shares of a recording's trace, of about the same number of bytes, for machines that decode one each.
//!
//! ```text
//!   buffers         |--------------------|-----|--------------|
//!   segments        |---|----|---|---|---|-----|----|---|-----|
//!   share 1 to 3    |-----1------|------2------|------3-------|
//! ```
//! A share is the segments that begin in it, cut as all of the recording is: so the decoded events do not
//! depend on the number of shares. Where segments are cut depends on the cut before; so the cuts of a
//! share are searched from the last fixed cut before it, at most 8 MB earlier, by one PSB after each 64 KB.

use std::ops::Range;

use model::{AuxOffset, AuxPiece, Recording};

use crate::pieces::extent;
use crate::segment::{Segment, Stream, segment_bytes_of};

/// One share of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which one, from 1.
    pub number: u32,
    /// How many there are.
    pub of: u32,
}

/// Consecutive segments of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareRange {
    /// Index in [`Recording::buffers`].
    pub buffer: usize,
    /// A PSB, or where the buffer begins.
    pub from: AuxOffset,
    /// The next share's PSB, or where the buffer ends.
    pub to: AuxOffset,
    /// Bytes of trace.
    pub bytes: u64,
}

/// What each of `count` shares has: some have nothing where there are few segments. `segment_bytes`: as
/// [`crate::DecodeOptions`] has it.
#[must_use]
pub fn shares(recording: &Recording<'_>, segment_bytes: u64, count: u32) -> Vec<Vec<ShareRange>> {
    let all = Buffers::new(recording, segment_bytes);
    let mut shares = vec![Vec::new(); count as usize];
    for buffer in &all.buffers {
        for range in buffer.stream.ranges(buffer.segment_bytes) {
            let (from, to) = (buffer.before(range.start), buffer.before(range.end));
            let share = all.share_at(from, count).checked_sub(1).and_then(|i| shares.get_mut(i as usize));
            let Some(share): Option<&mut Vec<ShareRange>> = share else { continue };
            match share.last_mut().filter(|last| last.buffer == buffer.index) {
                Some(last) => (last.to, last.bytes) = (range.end, last.bytes + (to - from)),
                None => share.push(ShareRange {
                    buffer: buffer.index,
                    from: range.start,
                    to: range.end,
                    bytes: to - from,
                }),
            }
        }
    }
    shares
}

/// The segments of a share, in the order of buffers and offsets.
pub(crate) fn segments<'a>(recording: &Recording<'a>, segment_bytes: u64, share: Share) -> Vec<Segment<'a>> {
    let all = Buffers::new(recording, segment_bytes);
    let mut segments = Vec::new();
    for buffer in &all.buffers {
        let is_before =
            all.share_at(buffer.before(buffer.stream.end()).saturating_sub(1), share.of) < share.number;
        if is_before {
            continue;
        }
        let begin = buffer.at(all.begin_of(share));
        for Range { start, end } in buffer.stream.ranges_from(begin, buffer.segment_bytes) {
            let number = all.share_at(buffer.before(start), share.of);
            if number > share.number {
                return segments;
            }
            if number == share.number {
                segments.push(buffer.stream.segment(start, end));
            }
        }
    }
    segments
}

/// The streams of all buffers that have one.
struct Buffers<'a> {
    buffers: Vec<Buffer<'a>>,
    /// Bytes of all.
    bytes: u64,
}

struct Buffer<'a> {
    index: usize,
    stream: Stream<'a>,
    segment_bytes: u64,
    /// Bytes of all buffers before each of its pieces.
    pieces_after: Vec<u64>,
}

impl<'a> Buffers<'a> {
    fn new(recording: &Recording<'a>, segment_bytes: u64) -> Self {
        let mut bytes = 0;
        let whole = |pieces: &[AuxPiece<'_>]| extent(pieces).unwrap_or_default();
        let buffer = |(index, buffer)| {
            let stream = Stream::new(index, buffer, whole)?;
            let add = |piece: &AuxPiece<'_>| {
                bytes += piece.bytes.len() as u64;
                bytes - piece.bytes.len() as u64
            };
            let pieces_after = stream.pieces().iter().map(add).collect();
            let segment_bytes = segment_bytes_of(recording, buffer.owner, segment_bytes);
            Some(Buffer { index, stream, segment_bytes, pieces_after })
        };
        let buffers = recording.buffers.iter().enumerate().filter_map(buffer).collect();
        Self { buffers, bytes }
    }

    /// The share, from 1, of a segment that begins after `before` bytes.
    fn share_at(&self, before: u64, of: u32) -> u32 {
        let share = u128::from(before) * u128::from(of) / u128::from(self.bytes.max(1));
        u32::try_from(share).unwrap_or(u32::MAX).min(of.saturating_sub(1)) + 1
    }

    /// The bytes before a share: no segment that begins after fewer is in it.
    fn begin_of(&self, share: Share) -> u64 {
        let before = u128::from(self.bytes) * u128::from(share.number.saturating_sub(1));
        u64::try_from(before / u128::from(share.of.max(1))).unwrap_or(u64::MAX)
    }
}

impl Buffer<'_> {
    /// Where there are so many bytes before it, as [`Self::before`] counts them; its begin, if all are in the
    /// buffers before.
    fn at(&self, before: u64) -> AuxOffset {
        let last = self.pieces_after.partition_point(|bytes| *bytes <= before).saturating_sub(1);
        let piece = self.stream.pieces().get(last).map_or(AuxOffset(0), |piece| piece.offset);
        piece.plus(before.saturating_sub(self.pieces_after.get(last).copied().unwrap_or(before)))
    }

    /// Bytes of trace before `at`, those of the buffers before among them.
    fn before(&self, at: AuxOffset) -> u64 {
        let pieces = self.stream.pieces();
        let Some(last) = pieces.partition_point(|piece| piece.offset <= at).checked_sub(1) else {
            return self.pieces_after.first().copied().unwrap_or_default();
        };
        let inside = pieces.get(last).map_or(0, |piece| at.minus(piece.offset).min(piece.bytes.len() as u64));
        self.pieces_after.get(last).copied().unwrap_or_default() + inside
    }
}

#[cfg(test)]
mod tests {
    use model::{AuxBuffer, AuxOwner, Cpu, Tid};

    use super::*;

    /// A buffer of PSBs, each of 100 bytes; with a hole after the fifth, and a fixed cut soon after it.
    fn buffer(index: u32, owner: AuxOwner, bytes: &[u8]) -> AuxBuffer<'_> {
        let (first, second) = bytes.split_at(500.min(bytes.len()));
        let piece = |offset, bytes| AuxPiece { offset: AuxOffset(offset), bytes, file_offset: 0 };
        let pieces = vec![piece(1000, first), piece(19_150, second)];
        AuxBuffer { index, owner, pieces, records: vec![] }
    }

    #[test]
    fn shares_are_all_segments_once() {
        let psbs = |count: usize| {
            let psb = [&packet::PSB[..], &[0; 84]].concat();
            psb.repeat(count)
        };
        let bytes = [psbs(30), psbs(7), psbs(5)];
        let owners = [AuxOwner::Thread(Tid(1)), AuxOwner::Cpu(Cpu(0)), AuxOwner::Thread(Tid(2))];
        let buffers = (0..).zip(owners).zip(&bytes);
        let buffers = buffers.map(|((index, owner), bytes)| buffer(index, owner, bytes)).collect();
        let recording = Recording { buffers, ..Recording::default() };
        let shape = |segment: &Segment<'_>| (segment.buffer, segment.start(), segment.end, segment.len());
        let of = |number, of| segments(&recording, 150, Share { number, of });
        let all: Vec<_> = of(1, 1).iter().map(shape).collect();
        let whole = |(index, buffer): (usize, &AuxBuffer<'_>)| {
            let stream = Stream::new(index, buffer, |pieces| extent(pieces).unwrap()).unwrap();
            let bytes = segment_bytes_of(&recording, buffer.owner, 150);
            stream.segments(bytes).map(|segment| shape(&segment)).collect::<Vec<_>>()
        };
        assert_eq!(all, recording.buffers.iter().enumerate().flat_map(whole).collect::<Vec<_>>());
        for count in [1, 2, 3, 7, 20, 100] {
            let parts: Vec<Vec<_>> =
                (1..=count).map(|number| of(number, count).iter().map(shape).collect()).collect();
            assert_eq!(parts.concat(), all, "{count} shares");
            for (share, part) in shares(&recording, 150, count).iter().zip(&parts) {
                let bytes: u64 = part.iter().map(|(.., bytes)| bytes).sum();
                assert_eq!(share.iter().map(|range| range.bytes).sum::<u64>(), bytes, "{count} shares");
                let ends = (part.first().map(|first| first.1), part.last().map(|last| last.2));
                assert_eq!((share.first().map(|r| r.from), share.last().map(|r| r.to)), ends);
                assert!(bytes <= 4200 / u64::from(count) + 1000, "{count} shares: {bytes} bytes");
            }
        }
    }

    #[test]
    fn without_trace_shares_have_nothing() {
        let recording = Recording::default();
        assert_eq!(shares(&recording, 150, 3), vec![vec![]; 3]);
        assert!(segments(&recording, 150, Share { number: 2, of: 3 }).is_empty());
    }
}
