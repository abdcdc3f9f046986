//! One call, opened: its tree or its branches, from the bytes around it alone.
//!
//! A row says where its call is: thread, buffer, packet and time of the entry, latency. So only what lies
//! between the PSBs around it is decoded. What was open below the call is not known there, and seldom matters
//! (where control goes on after an exception, say). Whether it did shows: then the call is not as its row
//! says, or not there at all, and more of what came before is decoded, in the end all of it.

use analyzer::branch_path::{BranchPath, BranchRecorder, OwnBranches};
use analyzer::{Analysis, CallRow, CallTree, Request, Status, Surroundings, TreeSink, Trees};
use anyhow::Result;
use decoder::{Around, Context, DecodeOptions, Part};
use image::Image;
use model::{AuxOffset, EventSink, FunctionId, FunctionLookup as _, Ns, Recording, Schedule, Tid};

use crate::args::DecoderChoice;

/// What is decoded with it, attempt by attempt; after that all is decoded.
const AROUND: [Around; 5] =
    [Around::Psbs, Around::Segments(0), Around::Segments(1), Around::Segments(4), Around::Segments(16)];

/// How a row knows its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallKey {
    /// Thread.
    pub tid: Tid,
    /// perf's number of the buffer that has its entry.
    pub aux_buffer: Option<u32>,
    /// The packet of its entry; `None`: probes have timed it, and no trace has it.
    pub aux_offset: Option<AuxOffset>,
    /// When it was entered.
    pub start: Ns,
    /// How long it took.
    pub latency_ns: u64,
    /// Of that, off the CPU.
    pub off_cpu_ns: Option<u64>,
    /// How much of it was seen.
    pub status: Status,
}

impl CallKey {
    /// That of a row.
    #[must_use]
    pub fn of(row: &CallRow) -> Self {
        Self {
            tid: row.id.tid,
            aux_buffer: row.traced().and_then(|traced| traced.aux_buffer),
            aux_offset: row.aux_offset(),
            start: row.start_ns,
            latency_ns: row.latency_ns,
            off_cpu_ns: row.off_cpu_ns,
            status: row.end.status,
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
pub struct CallPlace<'a> {
    /// The recording.
    pub recording: &'a Recording<'a>,
    /// Which thread ran when.
    pub schedule: &'a Schedule,
    /// What ran.
    pub image: &'a Image,
    /// Decoding threads.
    pub workers: usize,
    /// The decoder to use.
    pub decoder: DecoderChoice,
}

/// Opens the call of `function` that `key` says; of several that are the same to it, number `twin`, in the
/// order of their entries. `None`: the recording does not have it.
///
/// # Errors
/// The decoder is not there.
pub fn open(
    place: CallPlace<'_>,
    function: FunctionId,
    key: &CallKey,
    twin: usize,
) -> Result<Option<OpenedCall>> {
    let mut bytes = 0;
    // Of kernel code the functions below are asked for, too: user code that called long before.
    let needs_all = place.image.is_of_kernel(function);
    let parts = parts(key.tid, key.start, key.latency_ns).filter(|part| !needs_all || part.is_none());
    for (part, attempts) in parts.zip(1..) {
        let (found, decoded) = look(place, function, key, twin, part)?;
        bytes += decoded;
        if let Some((row, tree)) = found {
            return Ok(Some(OpenedCall { row, tree, bytes, attempts }));
        }
    }
    Ok(None)
}

/// The branches of a call; of several that begin with one packet, those of the first. `None`: the recording
/// does not have it.
///
/// # Errors
/// The decoder is not there.
pub fn branches(place: CallPlace<'_>, row: &CallRow) -> Result<Option<BranchPath>> {
    for part in parts(row.id.tid, row.start_ns, row.latency_ns) {
        let mut recorder = BranchRecorder::new(&[*row], place.image);
        place.decode(part, true, &mut recorder)?;
        if let Some(path) = recorder.finish().pop().flatten() {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// The branches that each of some calls took in its function's own code, out of all of the recording; `None`:
/// the call was not found.
///
/// # Errors
/// The decoder is not there.
pub(crate) fn own_branches(place: CallPlace<'_>, rows: &[CallRow]) -> Result<Vec<Option<OwnBranches>>> {
    let mut recorder = BranchRecorder::new(rows, place.image);
    place.decode(None, true, &mut recorder)?;
    Ok(recorder.finish())
}

/// What to decode for a call, attempt by attempt.
fn parts(tid: Tid, from: Ns, latency_ns: u64) -> impl Iterator<Item = Option<Part>> {
    let to = Ns(from.0.saturating_add(latency_ns));
    AROUND.into_iter().map(move |around| Some(Part { tid, from, to, around })).chain([None])
}

impl CallPlace<'_> {
    /// Decodes a part of it; how many bytes that had.
    fn decode(self, part: Option<Part>, all_branches: bool, sink: &mut dyn EventSink) -> Result<u64> {
        let CallPlace { recording, schedule, image, workers, decoder } = self;
        let options = DecodeOptions { workers, part, ..DecodeOptions::default() };
        let context = Context::new(recording, schedule, image, all_branches);
        let decoded = decoder::decode_with(decoder.decoder()?, &context, &options, &|_| (), sink);
        Ok(decoded.stats.bytes)
    }
}

fn look(
    place: CallPlace<'_>,
    function: FunctionId,
    key: &CallKey,
    twin: usize,
    part: Option<Part>,
) -> Result<(Option<(CallRow, CallTree)>, u64)> {
    let CallPlace { recording, schedule, image, .. } = place;
    let request = Request {
        functions: vec![function],
        tids: vec![key.tid],
        stack_switches: !image.stack_switchers().is_empty(),
        ..Request::default()
    };
    // A part has not all of them.
    let wants_callers = part.is_none() && image.is_of_kernel(function);
    let mut calls = CallSearch { key, wants_callers, found: Vec::new() };
    let around = Surroundings { is_part: part.is_some(), ..Surroundings::of(recording, schedule, image) };
    let mut analysis = Analysis::with_trees(&request, around, &mut calls);
    let bytes = place.decode(part, false, &mut analysis)?;
    let _ = analysis.finish(); // the figures are those of a part
    calls.found.sort_by_key(|(row, _)| row.id);
    let found = (twin < calls.found.len()).then(|| calls.found.swap_remove(twin));
    Ok((found, bytes))
}

/// Those that are the same to a key.
struct CallSearch<'k> {
    key: &'k CallKey,
    wants_callers: bool,
    found: Vec<(CallRow, CallTree)>,
}

impl TreeSink for CallSearch<'_> {
    fn wanted(&self) -> Trees {
        Trees::EnteredAt(self.key.aux_offset.into_iter().collect())
    }

    fn wants_callers(&self) -> bool {
        self.wants_callers
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        if CallKey::of(call) == *self.key {
            self.found.push((*call, tree.clone()));
        }
    }
}
