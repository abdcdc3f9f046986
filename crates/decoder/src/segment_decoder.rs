//! Who decodes a segment: ours does by default, and another decoder can stand in its place.
//!
//! What surrounds it is the same for both: cutting buffers into segments, workers, merging by time, time that never
//! runs backwards.

use std::sync::{Mutex, OnceLock};

use crate::Context;
use crate::clock::CrystalRatio;
use crate::flow::decode_segment;
use crate::graph::BlockGraph;
use crate::output::Stretch;
use crate::segment::Segment;

/// What a segment's decoding gave.
#[derive(Debug, Default)]
pub struct SegmentOutput {
    /// In the order of execution on the buffer.
    pub stretches: Vec<Stretch>,
    /// Overflow packets.
    pub overflows: u64,
    /// Times at which packets contradicted each other.
    pub clock_errors: u64,
    /// Times at which kernel code contradicted the trace.
    pub kernel_desyncs: u64,
}

/// Decodes segments, several at once.
///
/// A segment's output covers its bytes from where the PSB+ at its start says that execution is (or from the first
/// address that is certain, with a gap before it if nothing else covers that) to where the PSB+ behind its end says.
/// It depends on nothing but the segment and the context.
pub trait SegmentDecoder: Sync {
    /// Decodes one segment.
    fn decode(&self, context: &Context<'_>, segment: &Segment<'_>) -> SegmentOutput;

    /// How many bytes segments should have at least, if it can choose; `wanted`: what the options say.
    fn segment_bytes(&self, wanted: u64) -> u64 {
        wanted
    }
}

/// Our own decoder, of one recording.  A worker takes a block graph and gives it back: the code's blocks are decoded once
/// for each worker.
#[derive(Default)]
pub struct OwnDecoder {
    graphs: Mutex<Vec<BlockGraph>>,
    crystal: OnceLock<Option<CrystalRatio>>,
}

impl SegmentDecoder for OwnDecoder {
    fn decode(&self, context: &Context<'_>, segment: &Segment<'_>) -> SegmentOutput {
        let lock = || self.graphs.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut graph = lock().pop().unwrap_or_default();
        let recording = context.recording;
        let measure = || CrystalRatio::measure(&recording.buffers, recording.pt.tsc_ctc_ratio);
        let crystal = *self.crystal.get_or_init(measure);
        let output = decode_segment(context, crystal, &mut graph, segment);
        graph.trim();
        lock().push(graph);
        output
    }
}
