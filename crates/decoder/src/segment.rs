//! Cutting a buffer's stream at PSBs into segments that are decoded on their own.

use std::ops::Range;

use model::{AuxBuffer, AuxOffset, AuxOwner, AuxPiece, AuxRecord, Ns, Recording};

use crate::pieces::{clip, extent, parts};

/// A part of one buffer.
#[derive(Clone, Debug)]
pub struct Segment<'a> {
    /// Index in `Recording::buffers`.
    pub buffer: usize,
    /// The bytes up to the end of the next segment's PSB+ (as far as it can reach), in order.
    pub pieces: Vec<AuxPiece<'a>>,
    /// Where the next segment's PSB starts, or the stream ends.
    pub end: AuxOffset,
    /// The first of its stream: nothing before it says where execution was.
    pub first: bool,
    /// The last of its stream.
    pub last: bool,
    /// Offsets after which the kernel lost data, ascending.
    pub truncations: Vec<AuxOffset>,
    /// The first such offset after the end.
    pub lost_after: Option<AuxOffset>,
    /// The bytes that are missing after the end, by the kernel's records.
    pub missing: u64,
}

/// What is read after the segment: the next one's PSB+, and on for the clock until it has measured how long
/// a cycle is there.
pub(crate) const AHEAD: u64 = 1 << 16;

/// A fixed cut is at the first PSB after each multiple of the bytes of this many segments: the cuts after it
/// are found without those before.
const SEGMENTS_BETWEEN_FIXED_CUTS: u64 = 128;

/// With many CPUs segments are smaller: the output of one segment of each may have to wait. But not below
/// this.
const MIN_SEGMENT_BYTES: u64 = 1 << 14;

impl<'a> Segment<'a> {
    /// Its first offset.
    #[must_use]
    pub fn start(&self) -> AuxOffset {
        self.pieces.first().map_or(AuxOffset(0), |p| p.offset)
    }

    /// Where it can be cut: its start, and its PSBs.
    pub(crate) fn psbs(&self) -> Vec<AuxOffset> {
        cuts(&self.pieces, self.start()..self.end, 1).collect()
    }

    /// Its pieces from there on.
    pub(crate) fn pieces_from(&self, at: AuxOffset) -> Vec<AuxPiece<'a>> {
        clip(&self.pieces, at, self.end)
    }

    /// A part of it: from one of [`Self::psbs`] to another, or to its end.
    pub(crate) fn between(self, from: AuxOffset, to: AuxOffset) -> Self {
        let (starts_it, ends_it) = (from == self.start(), to == self.end);
        let is_in = |at: &AuxOffset| (*at > from || (*at == from && starts_it)) && *at <= to;
        let lost_after = self.truncations.iter().copied().chain(self.lost_after).find(|at| *at > to);
        Self {
            buffer: self.buffer,
            pieces: clip(&self.pieces, from, to.plus(AHEAD)),
            end: to,
            first: self.first && starts_it,
            last: self.last && ends_it,
            truncations: self.truncations.into_iter().filter(is_in).collect(),
            lost_after,
            missing: if ends_it { self.missing } else { 0 },
        }
    }

    /// Bytes that belong to this segment alone.
    pub(crate) fn len(&self) -> u64 {
        let own = |p: &AuxPiece<'_>| (p.bytes.len() as u64).min(self.end.0.saturating_sub(p.offset.0));
        self.pieces.iter().map(own).sum()
    }
}

/// A segment, and the time before which none of its stretches is given out.
#[derive(Clone)]
pub(crate) struct Timed<'a> {
    pub(crate) start: Ns,
    pub(crate) segment: Segment<'a>,
}

/// The stream of a buffer.  Its segments are found as they are asked for: of a long recording there are many.
pub(crate) struct Stream<'a> {
    /// Index in `Recording::buffers`.
    buffer: usize,
    pieces: Vec<AuxPiece<'a>>,
    extent: Range<AuxOffset>,
    /// What of it is decoded, from a PSB to another.
    stretch: Range<AuxOffset>,
    /// Offsets after which the kernel lost data, ascending.
    lost: Vec<AuxOffset>,
    /// Bytes that are missing after it.
    missing: u64,
    /// What was before `stretch` was decoded earlier.
    continues: bool,
}

impl<'a> Stream<'a> {
    /// `None` if it is empty.  Only what `stretch` takes of its pieces is decoded.
    pub(crate) fn new(
        index: usize,
        buffer: &AuxBuffer<'a>,
        stretch: impl FnOnce(&[AuxPiece<'a>]) -> Range<AuxOffset>,
    ) -> Option<Self> {
        let pieces = in_order(&buffer.pieces);
        let extent = extent(&pieces)?;
        let missing = missing_after(buffer, extent.end);
        let mut lost: Vec<_> = buffer.records.iter().filter(|r| r.lost_data()).map(|r| r.end()).collect();
        lost.sort_unstable();
        // A driver that finds no room for a whole region says so at each switch to the CPU until its buffer
        // is read.
        lost.dedup();
        let stretch = stretch(&pieces);
        Some(Self { buffer: index, stretch, pieces, extent, lost, missing, continues: false })
    }

    /// The rest of the stream, from a cut at which an earlier decode has ended.
    pub(crate) fn cut_at(self, at: AuxOffset) -> Self {
        Self { stretch: at..self.extent.end, continues: true, ..self }
    }

    /// Just after the last byte that is there.
    pub(crate) fn end(&self) -> AuxOffset {
        self.extent.end
    }

    /// Each of about `segment_bytes`, from a PSB to another.
    pub(crate) fn segments(&self, segment_bytes: u64) -> impl Iterator<Item = Segment<'a>> + '_ {
        self.ranges(segment_bytes).map(|range| self.segment(range.start, range.end))
    }

    /// All from a cut on, as one segment.
    pub(crate) fn rest(&self, start: AuxOffset) -> Segment<'a> {
        self.segment(start, self.stretch.end)
    }

    /// Where its segments of about `segment_bytes` start and end.
    pub(crate) fn ranges(&self, segment_bytes: u64) -> impl Iterator<Item = Range<AuxOffset>> + '_ {
        self.ranges_from(self.stretch.start, segment_bytes)
    }

    /// Where segments start and end, from the last fixed cut before `at` on.
    pub(crate) fn ranges_from(
        &self,
        at: AuxOffset,
        segment_bytes: u64,
    ) -> impl Iterator<Item = Range<AuxOffset>> + '_ {
        let Range { start, end } = self.stretch;
        let between = between_fixed_cuts(segment_bytes);
        let fixed = AuxOffset(at.0 / between * between);
        let first = if fixed <= start { start } else { whole_psb(&self.pieces, fixed..end).unwrap_or(end) };
        let mut cuts = cuts(&self.pieces, first..end, segment_bytes).peekable();
        std::iter::from_fn(move || {
            let start = cuts.next()?;
            Some(start..cuts.peek().copied().unwrap_or(end))
        })
    }

    /// Its bytes, by offset.
    pub(crate) fn pieces(&self) -> &[AuxPiece<'a>] {
        &self.pieces
    }

    /// Index in `Recording::buffers`.
    pub(crate) fn buffer(&self) -> usize {
        self.buffer
    }

    /// From the first byte to after the last.
    pub(crate) fn extent(&self) -> Range<AuxOffset> {
        self.extent.clone()
    }

    /// The segment from one cut to the next.
    pub(crate) fn segment(&self, start: AuxOffset, end: AuxOffset) -> Segment<'a> {
        let (first, last) = (start == self.extent.start && !self.continues, end == self.extent.end);
        let before = self.lost.partition_point(|at| *at < start || (*at == start && !first));
        let until = self.lost.partition_point(|at| *at <= end);
        Segment {
            buffer: self.buffer,
            pieces: clip(&self.pieces, start, end.plus(AHEAD)),
            end,
            first,
            last,
            truncations: self.lost.get(before..until).unwrap_or_default().to_vec(),
            lost_after: self.lost.get(until).copied(),
            missing: if last { self.missing } else { 0 },
        }
    }
}

/// Bytes after which the segments of a buffer are cut.
pub(crate) fn segment_bytes_of(recording: &Recording<'_>, owner: AuxOwner, segment_bytes: u64) -> u64 {
    match owner {
        AuxOwner::Thread(_) => segment_bytes,
        AuxOwner::Cpu(_) => {
            let is_of_cpu = |buffer: &&AuxBuffer<'_>| matches!(buffer.owner, AuxOwner::Cpu(_));
            let cpus = recording.buffers.iter().filter(is_of_cpu).count();
            segment_bytes.min((segment_bytes * 8 / cpus.max(8) as u64).max(MIN_SEGMENT_BYTES))
        }
    }
}

/// Bytes of trace between two fixed cuts, about.
fn between_fixed_cuts(segment_bytes: u64) -> u64 {
    segment_bytes.max(1).saturating_mul(SEGMENTS_BETWEEN_FIXED_CUTS)
}

/// The start of `stretch`, and then the first PSB after each `segment_bytes` in it, and at each fixed cut.
fn cuts<'p>(
    pieces: &'p [AuxPiece<'_>],
    stretch: Range<AuxOffset>,
    segment_bytes: u64,
) -> impl Iterator<Item = AuxOffset> + 'p {
    let Range { start, end } = stretch;
    let between = between_fixed_cuts(segment_bytes);
    std::iter::successors((start < end).then_some(start), move |cut| {
        let least = if *cut == start { 1 } else { packet::PSB.len() as u64 };
        let to_fixed = between - cut.0 % between;
        whole_psb(pieces, cut.plus(segment_bytes.min(to_fixed).max(least))..end)
    })
}

/// The first PSB there that is not cut short.
fn whole_psb(pieces: &[AuxPiece<'_>], within: Range<AuxOffset>) -> Option<AuxOffset> {
    parts(pieces, within.start, within.end).find_map(|piece| {
        let at = packet::find_psb(piece.bytes, 0)?;
        // At the end it may be the beginning of a longer run.
        (at + packet::PSB.len() + 2 <= piece.bytes.len()).then(|| piece.offset.plus(at as u64))
    })
}

/// Bytes that the kernel has recorded, and a cut file does not have. What a snapshot's records tell of has
/// been overwritten.
fn missing_after(buffer: &AuxBuffer<'_>, end: AuxOffset) -> u64 {
    if buffer.records.iter().any(|record| record.flags & AuxRecord::OVERWRITE != 0) {
        return 0;
    }
    let recorded = buffer.records.iter().map(AuxRecord::end).max();
    recorded.map_or(0, |recorded| recorded.0.saturating_sub(end.0))
}

/// The pieces, each after the one before: of bytes that a damaged file has twice, the first.
fn in_order<'a>(pieces: &[AuxPiece<'a>]) -> Vec<AuxPiece<'a>> {
    let mut end = AuxOffset(0);
    let mut ordered = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let twice = usize::try_from(end.0.saturating_sub(piece.offset.0)).unwrap_or(usize::MAX);
        let Some(bytes @ [_, ..]) = piece.bytes.get(twice..) else { continue };
        let offset = piece.offset.plus(twice as u64);
        ordered.push(AuxPiece { offset, bytes, file_offset: piece.file_offset + twice as u64 });
        end = offset.plus(bytes.len() as u64);
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::AuxOwner;
    use model::Tid;

    fn segments<'a>(
        buffer: &AuxBuffer<'a>,
        segment_bytes: u64,
        stretch: impl FnOnce(&[AuxPiece<'a>]) -> Range<AuxOffset>,
    ) -> Vec<Segment<'a>> {
        Stream::new(0, buffer, stretch).unwrap().segments(segment_bytes).collect()
    }

    fn whole(pieces: &[AuxPiece<'_>]) -> Range<AuxOffset> {
        extent(pieces).unwrap()
    }

    #[test]
    fn cuts_after_a_fixed_one_do_not_depend_on_those_before() {
        let psb = |number: usize| [&packet::PSB[..], &vec![0; number * 37 % 90]].concat();
        let bytes: Vec<u8> = (0..2000).flat_map(psb).collect();
        let pieces = vec![AuxPiece { offset: AuxOffset(1000), bytes: &bytes, file_offset: 7 }];
        let buffer = AuxBuffer { index: 0, owner: AuxOwner::Thread(Tid(1)), pieces, records: vec![] };
        let stream = Stream::new(0, &buffer, whole).unwrap();
        let all: Vec<_> = stream.ranges(100).collect();
        for at in [0, 12_799, 12_800, 12_900, 40_000, 100_000] {
            let some: Vec<_> = stream.ranges_from(AuxOffset(at), 100).collect();
            assert!(all.ends_with(&some), "from {at}");
            let before = &all[..all.len() - some.len()];
            assert!(before.iter().all(|range| range.start.0 < at), "from {at}");
            assert!(some[0].start.0 + 12_800 > at, "from {at}");
        }
    }

    #[test]
    fn cut_at_psbs_behind_the_wanted_size() {
        let mut bytes = vec![];
        for _ in 0..10 {
            bytes.extend_from_slice(&packet::PSB);
            bytes.extend_from_slice(&[0; 84]);
        }
        let piece = |from: usize, to: usize| AuxPiece {
            offset: AuxOffset(1000 + from as u64),
            bytes: &bytes[from..to],
            file_offset: 7,
        };
        let buffer = AuxBuffer {
            index: 0,
            owner: AuxOwner::Thread(Tid(1)),
            pieces: vec![piece(0, 350), piece(350, 1000)],
            records: vec![],
        };
        let cut = segments(&buffer, 250, whole);
        let ranges: Vec<_> = cut.iter().map(|s| (s.start().0, s.end.0, s.first, s.last)).collect();
        assert_eq!(
            ranges,
            [
                (1000, 1300, true, false),
                (1300, 1600, false, false),
                (1600, 1900, false, false),
                (1900, 2000, false, true)
            ]
        );
        assert_eq!(cut.iter().map(Segment::len).sum::<u64>(), 1000);
        assert_eq!(cut.iter().map(|s| s.missing).sum::<u64>(), 0);
        let record = AuxRecord { offset: AuxOffset(1900), size: 150, flags: 0, time: None };
        let buffer = AuxBuffer { records: vec![record], ..buffer };
        assert_eq!(
            segments(&buffer, 250, whole).iter().map(|s| s.missing).collect::<Vec<_>>(),
            [0, 0, 0, 50]
        );
        let all = segments(&buffer, 1, whole);
        assert_eq!(all.len(), 10);
        let some = segments(&buffer, 250, |_| AuxOffset(1300)..AuxOffset(1900));
        let shape = |s: &Segment<'_>| (s.start().0, s.end.0, s.first, s.last, s.missing);
        assert_eq!(
            some.iter().map(shape).collect::<Vec<_>>(),
            [(1300, 1600, false, false, 0), (1600, 1900, false, false, 0)]
        );
        let segment = segments(&buffer, 1000, whole).remove(0);
        let psbs = segment.psbs();
        assert_eq!(psbs, all.iter().map(Segment::start).collect::<Vec<_>>());
        let part = |from: usize, to| segment.clone().between(psbs[from], to);
        let shape = |s: Segment<'_>| (s.start().0, s.end.0, s.len(), s.first, s.last, s.missing);
        assert_eq!(shape(part(2, psbs[5])), (1200, 1500, 300, false, false, 0));
        assert_eq!(shape(part(0, segment.end)), (1000, 2000, 1000, true, true, 50));
    }
}
