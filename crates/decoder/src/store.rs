//! Stored outputs in the place of a decoder.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use model::{AuxOffset, AuxOwner};

use crate::Context;
use crate::laid::Laid;
use crate::segment::{Segment, Stream, segment_bytes_of};
use crate::segment_decoder::SegmentDecoder;
use crate::segment_output::SegmentOutput;
use crate::stored_run::Level;
use crate::stored_segment::{SegmentKey, StoredSegment};
use crate::stretch::Stretch;

/// Where outputs are stored.
pub trait StoredOutputs: Sync {
    /// The output of a segment. Where it cannot be read, it is empty, and the store knows why.
    fn output(&self, segment: &StoredSegment) -> SegmentOutput;

    /// The trace has other runs there than that output.
    fn mismatch(&self, segment: &StoredSegment);
}

/// What was stored of a recording.
#[derive(Clone, Copy)]
pub struct StoredParts<'a> {
    /// In any order.
    pub segments: &'a [StoredSegment],
    /// Their outputs.
    pub outputs: &'a dyn StoredOutputs,
}

/// The outputs that are stored of a recording.
pub(crate) struct Store<'o> {
    outputs: &'o dyn StoredOutputs,
    segments: BTreeMap<SegmentKey, StoredSegment>,
    /// It gave the outputs.
    decoder: &'o dyn SegmentDecoder,
    segment_bytes: u64,
}

impl<'o> Store<'o> {
    /// `decoder` and `segment_bytes`: those with which the outputs were made.
    pub(crate) fn new(
        StoredParts { segments, outputs }: StoredParts<'o>,
        decoder: &'o dyn SegmentDecoder,
        segment_bytes: u64,
    ) -> Self {
        let segments = segments.iter().map(|segment| (segment.key(), *segment)).collect();
        Self { outputs, segments, decoder, segment_bytes }
    }

    /// The segments of which the outputs are all that is stored: below each joined one are others.
    pub(crate) fn top(&self) -> impl Iterator<Item = &StoredSegment> {
        let mut below = (0, AuxOffset(0));
        self.segments.values().filter(move |segment| {
            let is_top = (segment.buffer, segment.at) >= below;
            if segment.level == Level::Joined {
                below = (segment.buffer, segment.end);
            }
            is_top
        })
    }

    /// Where the segments of a buffer start that are below a joined one.
    pub(crate) fn starts(
        &self,
        buffer: usize,
        within: RangeInclusive<AuxOffset>,
    ) -> impl Iterator<Item = AuxOffset> {
        let (first, last) = within.into_inner();
        let within = (buffer, first, Level::Joined)..=(buffer, last.max(first), Level::Decoded);
        let segments = self.segments.range(within).map(|(_, segment)| segment);
        let is_below = |segment: &&StoredSegment| segment.is_there && segment.level == Level::Decoded;
        segments.filter(is_below).map(|segment| segment.at)
    }

    /// The output of a segment.
    pub(crate) fn output(&self, key: &SegmentKey) -> SegmentOutput {
        let Some(segment) = self.segments.get(key) else { return SegmentOutput::default() };
        let mut output = self.outputs.output(segment);
        let runs = output.stretches.iter_mut().filter_map(|stretch| stretch.stored.as_mut());
        runs.for_each(|run| (run.buffer, run.level) = (segment.buffer, segment.level));
        output
    }

    /// The output of a segment that is decoded, as it was before it was stored.
    pub(crate) fn decode_again(&self, context: &Context<'_>, buffer: usize, at: AuxOffset) -> SegmentOutput {
        let mut laid = Laid::default();
        let recording = context.recording;
        if let Some(stored) = self.segments.get(&(buffer, at, Level::Decoded))
            && let Some(buffer) = recording.buffers.get(buffer)
            && let Some(stream) = Stream::new(stored.buffer, buffer, |_| at..stored.end)
        {
            laid.begin(*stored, matches!(buffer.owner, AuxOwner::Thread(_)), stored.after);
            let bytes = segment_bytes_of(recording, buffer.owner, self.segment_bytes);
            for (number, segment) in stream.segments(bytes).enumerate() {
                let next = StoredSegment { at: segment.start(), end: segment.end, bytes: 0, ..*stored };
                // More was never laid together: the index is damaged.
                if number > 0 && !laid.is_followed_by(&next) {
                    break;
                }
                let mut output = self.decoder.decode(context, &segment);
                output.stretches.iter_mut().for_each(Stretch::keep_forward);
                laid.add(next, output, self.decoder);
            }
        }
        laid.into_output()
    }

    /// The trace has other runs there than the output.
    pub(crate) fn mismatch(&self, buffer: usize, at: AuxOffset) {
        if let Some(segment) = self.segments.get(&(buffer, at, Level::Decoded)) {
            self.outputs.mismatch(segment);
        }
    }
}

/// Outputs as they are joined: those at the top.
impl SegmentDecoder for Store<'_> {
    fn decode(&self, context: &Context<'_>, segment: &Segment<'_>) -> SegmentOutput {
        let (buffer, at) = (segment.buffer, segment.start());
        let joined = self.segments.get(&(buffer, at, Level::Joined));
        match joined.or_else(|| self.segments.get(&(buffer, at, Level::Decoded))) {
            None => SegmentOutput::default(),
            Some(segment) if segment.is_there => self.output(&segment.key()),
            Some(missing) => missing.lost(context),
        }
    }
}
