//! Segments that several workers decode.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use model::{AuxBuffer, AuxOffset, AuxOwner, AuxPiece, EventSink, Pid, Recording, Schedule, SpaceId, Tid};

use super::code::Code;
use crate::{Context, DecodeOptions, Segment, SegmentDecoder, SegmentOutput, decode_with};

/// Panics at the segment with this number.
struct Panics(usize, AtomicUsize);

impl SegmentDecoder for Panics {
    fn decode(&self, _: &Context<'_>, _: &Segment<'_>) -> SegmentOutput {
        assert_ne!(self.1.fetch_add(1, Relaxed), self.0, "as it should");
        SegmentOutput::default()
    }
}

struct Nothing;

impl EventSink for Nothing {
    fn events(&mut self, _: Pid, _: Tid, _: SpaceId, _: &[model::TraceEvent]) {}
}

/// No thread waits for the output of one that has panicked.
#[test]
fn a_worker_that_panics_ends_all() {
    let bytes = [&packet::PSB[..], &[0; 84]].concat().repeat(40);
    let pieces = vec![AuxPiece { offset: AuxOffset(0), bytes: &bytes, file_offset: 0 }];
    let buffer = AuxBuffer { index: 0, owner: AuxOwner::Thread(Tid(9)), pieces, records: vec![] };
    let recording = Recording { buffers: vec![buffer], ..Recording::default() };
    let (schedule, code) = (Schedule::default(), Code::assemble(&["f: ret"]));
    let context = Context::new(&recording, &schedule, &code, false);
    for (at, workers) in [0, 1, 7, 39].into_iter().flat_map(|at| [(at, 1), (at, 2), (at, 5)]) {
        let options = DecodeOptions { workers, segment_bytes: 100, ..DecodeOptions::default() };
        let decode = |at| {
            decode_with(Box::new(Panics(at, AtomicUsize::new(0))), &context, &options, &|_| (), &mut Nothing)
        };
        assert!(catch_unwind(AssertUnwindSafe(|| decode(at))).is_err(), "{at}, {workers} workers");
        assert_eq!(decode(usize::MAX).stats.bytes, bytes.len() as u64);
    }
}
