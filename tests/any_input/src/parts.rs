//! Any bytes as outputs of segments that another process has decoded, as a file of parts has them.
//!
//! ```text
//!   flags   as of a stream (`flow`)
//!   bytes that are missing after each output, 2 bytes of length, an output; again and again
//! ```

use analyzer::{Analysis, Report, Request, Surroundings};
use decoder::{
    Context, DecodeOptions, DecodeStats, OwnDecoder, SegmentOutput, Share, StoredOutputs, StoredSegment,
    decode_share, join_stored,
};
use model::{AuxOffset, Ns, Recording, Schedule};

use crate::flow::{HEAD, functions, recorded};
use crate::program;

/// Bytes before an output.
const OUTPUT_HEAD: usize = 3;

/// The outputs, by where their segments are.
struct Outputs<'i>(Vec<(StoredSegment, &'i [u8])>);

impl StoredOutputs for Outputs<'_> {
    fn output(&self, _: usize, at: AuxOffset) -> SegmentOutput {
        let output = self.0.iter().find(|(segment, _)| segment.at == at);
        output.and_then(|(_, bytes)| SegmentOutput::from_bytes(bytes).ok()).unwrap_or_default()
    }
}

/// A byte that says how it was recorded, and outputs.
///
/// # Panics
/// If an output is not the same after it was written and read, or two workers join them to another report
/// than one does.
pub fn parts(input: &[u8]) {
    let Some((flags, mut rest)) = input.split_first() else { return };
    let head = [*flags, 0];
    let Some((recording, _)) = recorded(&head) else { return };
    let begin = recording.time_span.map_or(Ns(0), |(begin, _)| begin);
    let mut outputs = Outputs(Vec::new());
    let mut at = 0;
    while let Some((&[missing, low, high], after)) = rest.split_first_chunk::<OUTPUT_HEAD>() {
        let len = usize::from(u16::from_le_bytes([low, high]));
        let Some((bytes, after)) = after.split_at_checked(len) else { break };
        rest = after;
        check_rewritten(bytes);
        for (len, is_there) in [(1000, true), (u64::from(missing), false)] {
            let (start, end) = (Ns(begin.0 + at), at + len);
            let segment = StoredSegment {
                buffer: 0,
                at: AuxOffset(at),
                end: AuxOffset(end),
                start,
                until: Some(Ns(begin.0 + end)),
                bytes: len,
                is_there,
            };
            if len > 0 {
                outputs.0.push((segment, if is_there { bytes } else { &[] }));
            }
            at = end;
        }
    }
    assert_eq!(joined(&recording, &outputs, 1), joined(&recording, &outputs, 2));
}

fn check_rewritten(bytes: &[u8]) {
    let Ok(output) = SegmentOutput::from_bytes(bytes) else { return };
    let written = output.to_bytes().unwrap();
    assert_eq!(SegmentOutput::from_bytes(&written).unwrap().to_bytes().unwrap(), written);
}

fn joined(recording: &Recording<'_>, outputs: &Outputs<'_>, workers: usize) -> (DecodeStats, Report) {
    let (schedule, image) = (Schedule::new(&recording.sideband), program::image());
    let around = Surroundings::of(recording, &schedule, image);
    let request = Request { functions: functions().to_vec(), ..Request::default() };
    let mut analysis = Analysis::new(&request, around);
    let digester = analysis.digester();
    let context = Context::new(recording, &schedule, image, false);
    let segments: Vec<StoredSegment> = outputs.0.iter().map(|(segment, _)| *segment).collect();
    let decoded =
        join_stored(&context, &segments, outputs, workers, &|_| (), digester.as_ref(), &mut analysis);
    (decoded.stats, analysis.finish())
}

/// The input that has what a stream ([`crate::flow`]) is decoded to.
///
/// # Panics
/// If the stream is none, or has an output of more than 64 KB.
#[must_use]
pub fn parts_of_stream(input: &[u8]) -> Vec<u8> {
    let (recording, segment_bytes) = recorded(input).unwrap();
    let (schedule, image) = (Schedule::new(&recording.sideband), program::image());
    let context = Context::new(&recording, &schedule, image, false);
    let options = DecodeOptions { segment_bytes, ..DecodeOptions::default() };
    let mut parts = input[..HEAD - 1].to_vec();
    let mut take = |_, output: SegmentOutput| {
        let bytes = output.to_bytes().unwrap();
        parts.push(0);
        parts.extend(u16::try_from(bytes.len()).unwrap().to_le_bytes());
        parts.extend(bytes);
        std::ops::ControlFlow::Continue(())
    };
    let whole = Share { number: 1, of: 1 };
    decode_share(Box::<OwnDecoder>::default(), &context, &options, whole, &|_| (), &mut take);
    parts
}
