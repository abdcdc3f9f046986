//! Intel PT packets and code bytes to control transfers, in parallel.
//!
//! ```text
//! AuxBuffer --segment--> Segment (PSB to PSB, about 64 KB)   each by any worker, in any order
//!     Segment --reader--> packets --flow--> records          effects of packets at blocks, worked out once
//!                            \--clock--> slots               one for each flow packet
//!     records --prune, times--> events                       only of what the sink asks about
//! Segment outputs --join--> EventSink, per thread in order   serial, in the same order always
//! ```
//!
//! A PSB clears the trace unit's IP compression and its stack for compressed returns, and PSB+ says where
//! execution is; so a segment needs nothing from the one before.  In return a segment's decoding ends only at
//! the end of the next segment's PSB+, having walked to the address that is given there.  What is lost is a
//! [`Gap`](model::Gap) in the stream; no input makes this crate panic, hang or allocate without bound.
//!
//! Pure: no files, no clocks, no environment.

mod again;
mod apx;
mod block;
mod clock;
mod continuation;
mod disassembly;
mod effects;
mod errata;
mod flow;
mod graph;
mod instruction;
mod join;
mod joined;
mod laid;
mod lower;
mod no_digester;
mod no_times;
mod output;
mod owner;
mod packed;
mod part;
mod pieces;
mod prune;
mod reader;
mod record;
mod return_stack;
mod search;
mod segment;
mod segment_decoder;
mod segment_output;
mod share;
mod step;
mod store;
mod stored;
mod stored_run;
mod stored_segment;
mod stretch;
mod terminator;
#[cfg(test)]
mod tests;
mod untraced;
mod walk;
mod work;
mod worker_cache;
mod workers;

use model::{
    Avma, BranchKind, CodeSource, DigestSink, Digester, EventSink, FunctionAt, FunctionId, FunctionLookup,
    FunctionSet, GapCause, Ns, Recording, Schedule, SpaceId, Target, Tsc, TscClock,
};

pub use continuation::{Continuation, Grown};
pub use disassembly::{Disassembled, disassemble};
pub use no_digester::NoDigester;
pub use no_times::no_times;
pub use owner::{LostPart, Owner, Running};
pub use packed::NoOutput;
pub use part::{Around, Part};
pub use reader::packets;
pub use search::first_psb_after;
pub use segment::Segment;
pub use segment_decoder::{OwnDecoder, SegmentDecoder};
pub use segment_output::SegmentOutput;
pub use share::{Share, ShareRange, shares};
pub use store::{StoredOutputs, StoredParts};
pub use stored::{decode_share, join_stored, with_missing};
pub use stored_run::Level;
pub use stored_segment::{SegmentKey, StoredSegment};
pub use stretch::LastTime;
pub use stretch::Stretch;

/// What to decode, and how.
#[derive(Clone, Debug)]
pub struct DecodeOptions {
    /// Threads that decode; the result does not depend on it.
    pub workers: usize,
    /// Emit every taken branch, not only calls, returns and jumps from one function to another.
    pub all_branches: bool,
    /// Segments are cut at the first PSB after this many bytes.
    pub segment_bytes: u64,
    /// Only this; `None`: all of the recording.
    pub part: Option<Part>,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self { workers: 1, all_branches: false, segment_bytes: 1 << 16, part: None }
    }
}

/// What decoding took and met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeStats {
    /// AUX bytes seen.
    pub bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Events given to the sink.
    pub events: u64,
    /// Overflow packets.
    pub overflows: u64,
    /// Times at which packets contradicted each other; the bounds there are widened.
    pub clock_errors: u64,
    /// Times at which the kernel's text contradicted the trace: what followed was skipped, to the return to
    /// user code.
    pub kernel_desyncs: u64,
}

impl DecodeStats {
    /// Adds what a segment of so many bytes gave, but for its events.
    pub(crate) fn add(&mut self, output: &SegmentOutput, bytes: u64) {
        self.segments += 1;
        self.bytes += bytes;
        self.overflows += output.overflows;
        self.clock_errors += output.clock_errors;
        self.kernel_desyncs += output.kernel_desyncs;
    }
}

/// How a decode went.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    /// What it took and met: the same with any decoder and any number of workers.
    pub stats: DecodeStats,
    /// A line on how the decoder worked, for diagnosis.
    pub diagnosis: Option<String>,
}

/// What every segment's decoding needs to know.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The whole recording.
    pub recording: &'a Recording<'a>,
    /// Which threads ran when.
    pub schedule: &'a Schedule,
    /// What ran.
    pub code: &'a dyn CodeSource,
    /// Its functions.
    pub functions: &'a dyn FunctionLookup,
    /// Emit every taken branch, see [`DecodeOptions::all_branches`].
    pub all_branches: bool,
    /// The functions that the sink asks about, see [`EventSink::asks_about`].
    pub asks_about: Option<&'a FunctionSet>,
    /// The sink takes counters, see [`EventSink::wants_counters`].
    pub counts: bool,
    /// The functions of which every taken branch is emitted, see [`EventSink::takes_jumps_of`].
    pub jumps_of: Option<&'a FunctionSet>,
}

impl<'a> Context<'a> {
    /// The context of a recording with the code of `image`.
    #[must_use]
    pub fn new(
        recording: &'a Recording<'a>,
        schedule: &'a Schedule,
        image: &'a (impl CodeSource + FunctionLookup),
        all_branches: bool,
    ) -> Self {
        Self {
            recording,
            schedule,
            code: image,
            functions: image,
            all_branches,
            asks_about: None,
            counts: false,
            jumps_of: None,
        }
    }

    /// The instruction at `ip`, which control reached.
    pub(crate) fn target(&self, space: SpaceId, ip: Avma) -> Target {
        let FunctionAt { id, at_entry } = self.functions.function_at(space, ip);
        Target { ip, function: id, at_entry }
    }

    /// A branch is emitted, unless it is a jump inside of a function, and such jumps of it are not asked for.
    #[must_use]
    pub fn is_transfer(&self, kind: BranchKind, from: FunctionId, to: FunctionId) -> bool {
        let is_jump = !matches!(kind, BranchKind::Call | BranchKind::IndirectCall | BranchKind::Return);
        !is_jump || from != to || self.all_branches || self.jumps_of.is_some_and(|of| of.contains(from))
    }

    /// Jumps inside of some function are emitted.
    pub(crate) fn takes_jumps(&self) -> bool {
        self.all_branches || self.jumps_of.is_some()
    }

    /// Control that leaves for code which is not there, because of `cause`, is seen where it comes back.
    ///
    /// Linked code ([`CodeSource::is_linked`]) leaves its object by indirect branches and returns only. Each
    /// of these has a TIP, unless returns are compressed: a bit says nothing where no code is followed.
    pub(crate) fn shows_way_back(&self, cause: GapCause) -> bool {
        match cause {
            GapCause::MissingCode { object } => {
                !self.recording.pt.return_compression && self.code.is_linked(object)
            }
            _ => false,
        }
    }

    /// The sink asks about the function, or about all ([`Self::asks_about`]).
    pub(crate) fn is_asked(&self, function: FunctionId) -> bool {
        self.asks_about.is_none_or(|asked| asked.contains(function))
    }

    /// A thread's trace does not go on after this: the recording ends, or it has left or died.
    pub(crate) fn last_of(&self, who: Running) -> Ns {
        let end = self.recording.time_span.map_or(Ns::MAX, |(_, last)| last);
        let died = self.schedule.thread(who.tid).and_then(|life| life.died).unwrap_or(Ns::MAX);
        end.min(who.to).min(died.max(who.from))
    }

    /// TSC to perf's clock; where the recording does not say, a tick counts as a nanosecond.
    pub(crate) fn conversion(&self) -> TscClock {
        self.recording.conversion()
    }

    /// Times are known: where they are not, every event is at time 0.
    #[must_use]
    pub fn has_times(&self) -> bool {
        self.recording.no_times.is_none()
    }

    /// A TSC near the recording, to complete the 56 bits that packets have.
    pub(crate) fn reference(&self) -> Tsc {
        self.recording.tsc_near(self.conversion())
    }
}

/// Decodes all buffers of a recording into `sink`; `progress` is told the AUX bytes done so far.
pub fn decode(
    recording: &Recording<'_>,
    schedule: &Schedule,
    code: &dyn CodeSource,
    functions: &dyn FunctionLookup,
    options: &DecodeOptions,
    progress: &dyn Fn(u64),
    sink: &mut dyn EventSink,
) -> DecodeStats {
    let all_branches = options.all_branches;
    let context = Context {
        recording,
        schedule,
        code,
        functions,
        all_branches,
        asks_about: None,
        counts: false,
        jumps_of: None,
    };
    decode_with(Box::new(OwnDecoder::default()), &context, options, progress, sink).stats
}

/// [`decode`] with any decoder of segments, which is used up: what it remembers is about this sink's
/// questions.
pub fn decode_with(
    decoder: Box<dyn SegmentDecoder>,
    context: &Context<'_>,
    options: &DecodeOptions,
    progress: &dyn Fn(u64),
    sink: &mut dyn EventSink,
) -> Decoded {
    decode_digested(decoder, context, options, progress, None::<&NoDigester>, &mut { sink })
}

/// Decodes like [`decode_with`]; where there are [workers enough](Digester::workers_min), `digester` works on
/// the events ahead of the sink.
pub fn decode_digested<G: Digester>(
    decoder: Box<dyn SegmentDecoder>,
    context: &Context<'_>,
    options: &DecodeOptions,
    progress: &dyn Fn(u64),
    digester: Option<&G>,
    sink: &mut dyn DigestSink<G::Digest>,
) -> Decoded {
    let asks_about = sink.asks_about().filter(|_| !context.all_branches);
    let (jumps_of, counts) = (sink.takes_jumps_of(), sink.wants_counters());
    let (asks_about, jumps_of) = (asks_about.as_ref(), jumps_of.as_ref());
    let context = Context { asks_about, jumps_of, counts, ..*context };
    let digester = digester.filter(|_| !counts);
    let stats = join::run(&context, &*decoder, options, progress, digester, sink);
    Decoded { stats, diagnosis: decoder.diagnosis() }
}
