//! One call, opened: its tree, from the bytes around it alone.
//!
//! A row says where its call is: thread, buffer, packet and time of the entry, latency.  So only the segments that have
//! it are decoded.  What was open below the call is not known there, and seldom matters (where control goes
//! on after an exception, say).  Whether it did shows: then the call is not as its row says, or not there at all, and more
//! of what came before is decoded, in the end all of it.

use analyzer::{Analysis, CallRow, CallTree, Request, Status, Surroundings, TreeSink, Trees};
use anyhow::Result;
use decoder::{Context, DecodeOptions, Part};
use image::Image;
use model::{AuxOffset, FunctionId, Ns, Recording, Schedule, Tid};

use crate::args::DecoderChoice;

/// Segments more on either side, attempt by attempt; after that all is decoded.
const AROUND: [usize; 4] = [0, 1, 4, 16];

/// How a row knows its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallKey {
    /// Thread.
    pub tid: Tid,
    /// perf's number of the buffer that has its entry.
    pub aux_buffer: Option<u32>,
    /// The packet of its entry.
    pub aux_offset: AuxOffset,
    /// When it was entered.
    pub start: Ns,
    /// How long it took.
    pub latency_ns: u64,
    /// Of that, off the CPU.
    pub off_cpu_ns: u64,
    /// How much of it was seen.
    pub status: Status,
}

impl CallKey {
    /// That of a row.
    #[must_use]
    pub fn of(row: &CallRow) -> Self {
        Self {
            tid: row.tid,
            aux_buffer: row.aux_buffer,
            aux_offset: row.aux_offset,
            start: row.start_ns,
            latency_ns: row.latency_ns,
            off_cpu_ns: row.off_cpu_ns,
            status: row.status,
        }
    }
}

/// A call and its tree.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenedCall {
    /// Its row; number and depth are not known here.
    pub row: CallRow,
    /// Its tree.
    pub tree: CallTree,
    /// Bytes of trace that were decoded to find it, in all attempts.
    pub bytes: u64,
    /// How many attempts there were.
    pub attempts: u64,
}

/// Where to look.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The recording.
    pub recording: &'a Recording<'a>,
    /// Who ran when.
    pub schedule: &'a Schedule,
    /// What ran.
    pub image: &'a Image,
    /// Decoding threads.
    pub workers: usize,
    /// Who decodes.
    pub decoder: DecoderChoice,
}

/// Opens the call of `function` that `key` says; of several that are the same to it, number `twin`, in the order of their
/// entries.  `None`: the recording does not have it.
///
/// # Errors
/// The decoder is not there.
pub fn open(
    place: Place<'_>,
    function: FunctionId,
    key: &CallKey,
    twin: usize,
) -> Result<Option<OpenedCall>> {
    let to = Ns(key.start.0.saturating_add(key.latency_ns));
    let part = |around| Part { tid: key.tid, from: key.start, to, around };
    let mut bytes = 0;
    for (part, attempts) in AROUND.map(|around| Some(part(around))).into_iter().chain([None]).zip(1..) {
        let (found, decoded) = look(place, function, key, twin, part)?;
        bytes += decoded;
        if let Some((row, tree)) = found {
            return Ok(Some(OpenedCall { row, tree, bytes, attempts }));
        }
    }
    Ok(None)
}

fn look(
    place: Place<'_>,
    function: FunctionId,
    key: &CallKey,
    twin: usize,
    part: Option<Part>,
) -> Result<(Option<(CallRow, CallTree)>, u64)> {
    let Place { recording, schedule, image, workers, decoder } = place;
    let request = Request {
        functions: vec![function],
        tids: vec![key.tid],
        stack_switches: !image.stack_switchers().is_empty(),
        ..Request::default()
    };
    let mut calls = Calls { key, found: Vec::new() };
    let around = Surroundings { is_part: part.is_some(), ..Surroundings::of(recording, schedule, image) };
    let mut analysis = Analysis::with_trees(&request, around, &mut calls);
    let options = DecodeOptions { workers, part, ..DecodeOptions::default() };
    let context = Context::new(recording, schedule, image, false);
    let decoded = decoder::decode_with(decoder.decoder()?, &context, &options, &|_| (), &mut analysis);
    let _ = analysis.finish(); // the figures are those of a part
    calls.found.sort_by_key(|(row, _)| row.id);
    let found = (twin < calls.found.len()).then(|| calls.found.swap_remove(twin));
    Ok((found, decoded.stats.bytes))
}

/// Those that are the same to a key.
struct Calls<'k> {
    key: &'k CallKey,
    found: Vec<(CallRow, CallTree)>,
}

impl TreeSink for Calls<'_> {
    fn wanted(&self) -> Trees {
        Trees::EnteredAt(vec![self.key.aux_offset])
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        if CallKey::of(call) == *self.key {
            self.found.push((*call, tree.clone()));
        }
    }
}
