//! Any bytes as outputs of segments that another process has decoded, as a file of parts has them.
//!
//! ```text
//!   flags   as of a stream (`flow`)
//!   bytes that are missing after each output, or 255: it joins the next three; 2 bytes of length, an output;
//!   again and again
//! ```

use analyzer::{
    Analysis, CallRow, Reason, Report, Request, RowSink, RunDigester, SlowestCalls, Surroundings,
};
use decoder::{
    Context, DecodeOptions, DecodeStats, LastTime, Level, NoOutput, OwnDecoder, SegmentOutput, Share,
    StoredOutputs, StoredParts, StoredSegment, decode_share, join_stored,
};
use model::{AuxOffset, Ns, Recording, Schedule};

use crate::flow::{HEAD, functions, recorded};
use crate::program;

/// The outputs, by where their segments are.
struct Outputs<'i>(Vec<(StoredSegment, &'i [u8])>);

impl StoredOutputs for Outputs<'_> {
    fn output(&self, segment: &StoredSegment) -> SegmentOutput {
        let output = self.0.iter().find(|(known, _)| known.key() == segment.key());
        output.and_then(|(_, bytes)| SegmentOutput::from_bytes(bytes).ok()).unwrap_or_default()
    }

    fn mismatch(&self, _: &StoredSegment) {}
}

/// Two bytes of length, and so many bytes; then what is left.
fn counted(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = input.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_le_bytes(*len).into())
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
    while let Some((missing, after)) = rest.split_first() {
        let Some((output, after)) = counted(after) else { break };
        rest = after;
        check_rewritten(output);
        let segment = |at, bytes, level, is_there| StoredSegment {
            buffer: 0,
            at: AuxOffset(at),
            end: AuxOffset(at + bytes),
            start: Ns(begin.0 + at),
            until: Some(Ns(begin.0 + at + bytes)),
            after: LastTime::default(),
            bytes,
            is_there,
            level,
        };
        if *missing == u8::MAX {
            outputs.0.push((segment(at, 3000, Level::Joined, true), output));
            continue;
        }
        outputs.0.push((segment(at, 1000, Level::Decoded, true), output));
        at += 1000;
        if *missing > 0 {
            outputs.0.push((segment(at, u64::from(*missing), Level::Decoded, false), &[]));
            at += u64::from(*missing);
        }
    }
    assert_eq!(joined(&recording, &outputs, 1), joined(&recording, &outputs, 2));
}

fn check_rewritten(bytes: &[u8]) {
    let Ok(output) = SegmentOutput::from_bytes(bytes) else { return };
    let written = output.to_bytes().unwrap();
    assert_eq!(SegmentOutput::from_bytes(&written).unwrap().to_bytes().unwrap(), written);
}

/// The rows of the slowest calls.
#[derive(Default)]
struct Slow(SlowestCalls);

impl RowSink for Slow {
    fn row(&mut self, function: usize, row: &CallRow, waited_for: Option<&Reason>) {
        self.0.add(function, row, waited_for);
    }

    fn takes_all(&self) -> bool {
        false
    }
}

/// What the joined outputs give: the report, and how many rows of slow calls.
type Joined = (DecodeStats, Report, usize);

fn joined(recording: &Recording<'_>, outputs: &Outputs<'_>, workers: usize) -> Joined {
    let (schedule, image) = (Schedule::new(&recording.sideband), program::image());
    let around = Surroundings::of(recording, &schedule, image);
    let request = Request { functions: functions().to_vec(), ..Request::default() };
    let mut slow = Slow::default();
    let mut analysis = Analysis::new(&request, around).giving_rows_to(&mut slow);
    let digester = analysis.digester();
    let context = Context::new(recording, &schedule, image, false);
    let segments: Vec<StoredSegment> = outputs.0.iter().map(|(segment, _)| *segment).collect();
    let stored = StoredParts { segments: &segments, outputs };
    let options = DecodeOptions { workers, ..DecodeOptions::default() };
    let decoder = Box::<OwnDecoder>::default();
    let decoded = join_stored(decoder, &context, &options, stored, &|_| (), digester.as_ref(), &mut analysis);
    let report = analysis.finish();
    (decoded.stats, report, slow.0.rows().count())
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
    let mut take = |segment: StoredSegment, output: Result<Vec<u8>, NoOutput>| {
        let output = output.unwrap();
        parts.push(if segment.level == Level::Joined { u8::MAX } else { 0 });
        parts.extend(u16::try_from(output.len()).unwrap().to_le_bytes());
        parts.extend(output);
        std::ops::ControlFlow::Continue(())
    };
    let request = Request { functions: functions().to_vec(), ..Request::default() };
    let around = Surroundings::of(&recording, &schedule, program::image());
    let digester = Analysis::new(&request, around).digester().map(RunDigester::for_store);
    let whole = Share { number: 1, of: 1 };
    let decoder = Box::<OwnDecoder>::default();
    decode_share(decoder, &context, &options, whole, &|_| (), digester.as_ref(), &mut take);
    parts
}
