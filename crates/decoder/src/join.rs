//! All segments, decoded by any worker in any order, given to the sink in one order.
//!
//! Per-thread buffers follow one another: threads do not depend on each other. Per-CPU buffers are merged by
//! time, because a thread's stretches lie in several of them. Segments are decoded in the order in which they
//! start, some of them ahead of the next that is given out; a stretch is given out once no segment that is
//! still to come can start before it. So memory is bounded by a few segments per worker (and CPU), not by the
//! recording.

use std::collections::BTreeMap;
use std::ops::Range;

use model::{
    AuxOffset, AuxOwner, AuxPiece, Counters, CountersSince, DigestSink, DigestedRun, Digester, Ns, RunEvents,
    StretchCounters, Tid,
};

use crate::lower::{Below, Lower, WholeStored};
use crate::owner::Running;
use crate::part::Part;
use crate::pieces::{extent, start_time};
use crate::segment::{Stream, Timed, segment_bytes_of};
use crate::segment_decoder::SegmentDecoder;
use crate::store::Store;
use crate::stored_run::StoredRun;
use crate::stretch::{Counted, LastTime, Stretch};
use crate::untraced::Stays;
use crate::workers::{Decoding, Outputs, Place, QueuedSegment, with_outputs};
use crate::{Context, DecodeOptions, DecodeStats};

pub(crate) fn run<G: Digester>(
    context: &Context<'_>,
    decoder: &dyn SegmentDecoder,
    options: &DecodeOptions,
    progress: &dyn Fn(u64),
    digester: Option<&G>,
    sink: &mut dyn DigestSink<G::Digest>,
) -> DecodeStats {
    let segment_bytes = decoder.segment_bytes(options.segment_bytes);
    let groups = groups(context, options.part.as_ref(), segment_bytes);
    let digester = digester.filter(|digester| options.workers >= digester.workers_min());
    let lower = Lower::new(context, None, digester);
    join_groups(decoder, &lower, groups, options.workers, progress, sink)
}

/// Joins segments that are stored, as those of [`run`]: these of each buffer, by offset.
pub(crate) fn run_on<'a, G: Digester>(
    context: &Context<'a>,
    store: &Store<'_>,
    segments: impl Iterator<Item = Timed<'a>>,
    workers: usize,
    progress: &dyn Fn(u64),
    digester: Option<&G>,
    sink: &mut dyn DigestSink<G::Digest>,
) -> DecodeStats {
    let mut threads: BTreeMap<usize, Vec<Timed<'a>>> = BTreeMap::new();
    let (mut cpus, mut latest) = (vec![], BTreeMap::new());
    for mut timed in segments {
        let index = timed.segment.buffer;
        let Some(buffer) = context.recording.buffers.get(index) else { continue };
        let latest = latest.entry(index).or_insert(Ns(0));
        *latest = timed.start.max(*latest);
        timed.start = *latest;
        match buffer.owner {
            AuxOwner::Cpu(_) => cpus.push(timed),
            AuxOwner::Thread(_) => threads.entry(index).or_default().push(timed),
        }
    }
    cpus.sort_by_key(|timed| (timed.start, timed.segment.buffer));
    let threads = threads.into_values().map(Group::Part).collect();
    let groups = Groups { threads, cpus: Group::Part(cpus) };
    join_groups(store, &Lower::new(context, Some(store), digester), groups, workers, progress, sink)
}

fn join_groups<G: Digester>(
    decoder: &dyn SegmentDecoder,
    lower: &Lower<'_, G>,
    groups: Groups<'_>,
    workers: usize,
    progress: &dyn Fn(u64),
    sink: &mut dyn DigestSink<G::Digest>,
) -> DecodeStats {
    let Lower { context, digester, .. } = *lower;
    let mut join = Join::new(decoder, lower, progress, sink);
    let Groups { threads, cpus } = groups;
    let groups = || threads.iter().chain([&cpus]).enumerate();
    let segments = groups().flat_map(|(number, group)| {
        group.segments(context).map(move |Timed { start, segment }| {
            let (buffer, bytes) = (segment.buffer, segment.len());
            QueuedSegment { place: Place { group: number, start, buffer, bytes, again: None }, segment }
        })
    });
    let once = Decoding { context, decoder };
    with_outputs(once, once, digester, workers, segments, |outputs| {
        for (number, _) in groups() {
            let stays = if number < threads.len() { Stays::none() } else { Stays::on_untraced_cpus(context) };
            let _ = join.group(number, &mut Pending::default(), stays, Ns::MAX, outputs);
        }
    });
    join.stats
}

/// Segments that must be merged by time.
enum Group<'a> {
    /// All of these streams, each with the number of bytes after which it is cut.
    Whole(Vec<(Stream<'a>, u64)>),
    Part(Vec<Timed<'a>>),
}

impl<'a> Group<'a> {
    /// In the order of decoding.
    fn segments<'g>(&'g self, context: &'g Context<'_>) -> Box<dyn Iterator<Item = Timed<'a>> + Send + 'g> {
        let streams = match self {
            Self::Part(segments) => return Box::new(segments.iter().cloned()),
            Self::Whole(streams) => streams,
        };
        let timed = |(stream, bytes): &'g (Stream<'a>, u64)| timed(context, stream, *bytes).peekable();
        let mut streams: Vec<_> = streams.iter().map(timed).collect();
        Box::new(std::iter::from_fn(move || {
            let next = streams.iter_mut().filter_map(|stream| {
                let Timed { start, segment } = stream.peek()?;
                Some(((*start, segment.buffer), stream))
            });
            next.min_by_key(|(key, _)| *key)?.1.next()
        }))
    }
}

/// The segments of a stream.
fn timed<'g, 'a>(
    context: &'g Context<'_>,
    stream: &'g Stream<'a>,
    bytes: u64,
) -> impl Iterator<Item = Timed<'a>> + 'g {
    let mut latest = Ns(0);
    stream.segments(bytes).map(move |segment| {
        // Damage must not reorder a buffer.  A stream may begin with a loss before its first PSB.
        latest = if segment.first { Ns(0) } else { latest.max(start_time(context, &segment.pieces)) };
        Timed { start: latest, segment }
    })
}

struct Groups<'a> {
    /// Of each buffer of a thread.
    threads: Vec<Group<'a>>,
    /// Of all buffers of CPUs.
    cpus: Group<'a>,
}

/// The groups of a recording, or those that `part` may be in.
fn groups<'a>(context: &Context<'a>, part: Option<&Part>, segment_bytes: u64) -> Groups<'a> {
    let wanted = |streams| match (Group::Whole(streams), part) {
        (whole, Some(part)) => Group::Part(part.of(context, whole.segments(context).collect())),
        (whole, None) => whole,
    };
    let mut of_cpus = vec![];
    let mut threads = vec![];
    for (index, buffer) in context.recording.buffers.iter().enumerate() {
        let bytes = segment_bytes_of(context.recording, buffer.owner, segment_bytes);
        let stretch = |pieces: &[AuxPiece<'_>]| match part {
            Some(part) => part.stretch(context, buffer.owner, pieces, bytes),
            None => extent(pieces).unwrap_or_default(),
        };
        let Some(stream) = Stream::new(index, buffer, stretch) else { continue };
        match buffer.owner {
            AuxOwner::Cpu(_) => of_cpus.push((stream, bytes)),
            AuxOwner::Thread(_) => threads.push(wanted(vec![(stream, bytes)])),
        }
    }
    Groups { threads, cpus: wanted(of_cpus) }
}

pub(crate) struct Join<'a, G: Digester> {
    pub(crate) stats: DecodeStats,
    /// The last time given out, per thread.
    pub(crate) last: BTreeMap<Tid, LastTime>,
    /// The last AUX offset with events that were given out, of each buffer with segments decoded again, by
    /// perf's number.
    pub(crate) given: BTreeMap<u32, AuxOffset>,
    /// What each thread has executed up to there; none in a decode without counters.
    counted: Option<BTreeMap<Tid, Counters>>,
    decoder: &'a dyn SegmentDecoder,
    lower: &'a Lower<'a, G>,
    progress: &'a dyn Fn(u64),
    sink: &'a mut dyn DigestSink<G::Digest>,
}

/// Stretches that wait to be given out, by start; then by perf's number of the buffer and their own, so that
/// a buffer's stretches keep their order. Each with the digested runs of its events.
type Waiting<D> = BTreeMap<(Ns, u32, u64), (Stretch, Vec<DigestedRun<D>>)>;

/// The output of a group's segments that was not given out yet.
pub(crate) struct Pending<D> {
    pub(crate) waiting: Waiting<D>,
    /// By perf's number of the buffer: when its last stretch began.
    pub(crate) last_start: BTreeMap<u32, Ns>,
    /// The next stretch's number.
    pub(crate) number: u64,
}

impl<D> Default for Pending<D> {
    fn default() -> Self {
        Self { waiting: Waiting::new(), last_start: BTreeMap::new(), number: 0 }
    }
}

impl<'a, G: Digester> Join<'a, G> {
    pub(crate) fn new(
        decoder: &'a dyn SegmentDecoder,
        lower: &'a Lower<'a, G>,
        progress: &'a dyn Fn(u64),
        sink: &'a mut dyn DigestSink<G::Digest>,
    ) -> Self {
        Self {
            stats: DecodeStats::default(),
            last: BTreeMap::new(),
            given: BTreeMap::new(),
            counted: lower.context.counts.then(BTreeMap::new),
            decoder,
            lower,
            progress,
            sink,
        }
    }

    /// Joins the segments of a group; work that is possible before the next output is needed is done before
    /// the wait for it. No stretch is given out that begins at `most` or later. Returns that time, or an
    /// earlier one up to which the group was given out.
    pub(crate) fn group<'s>(
        &mut self,
        group: usize,
        pending: &mut Pending<G::Digest>,
        mut stays: Stays,
        mut most: Ns,
        outputs: &mut Outputs<'_, 's, impl Iterator<Item = QueuedSegment<'s>>, G>,
    ) -> Ns {
        while let Some(place) = outputs.place().filter(|place| place.group == group) {
            wait(&mut pending.waiting, stays.that_begin_before(place.start));
            self.feed_until(&mut pending.waiting, place.start.min(most));
            let (mut output, runs) = outputs.take();
            let Some(buffer) = self.lower.context.recording.buffers.get(place.buffer) else { continue };
            let mut runs = runs.into_iter();
            let again = place.again;
            if let Some(again) = again {
                let given = again.cut(&mut output.stretches);
                if again.until.is_some() {
                    self.given.extend(given.map(|(at, _)| (buffer.index, at)));
                }
                if again.is_growing() {
                    most = most.min(given.map_or(place.start, |(_, time)| time));
                }
            }
            if again.is_none_or(|again| again.until.is_none()) {
                if output.overflows > 0 {
                    self.sink.overflows(buffer.owner, output.overflows);
                }
                self.stats.add(&output, place.bytes);
            }
            let Pending { waiting, last_start, number } = pending;
            for stretch in output.stretches {
                let latest = last_start.entry(buffer.index).or_insert(Ns(0));
                *latest = stretch.start.max(place.start).max(*latest);
                waiting.insert((*latest, buffer.index, *number), (stretch, runs.next().unwrap_or_default()));
                *number += 1;
            }
            (self.progress)(self.stats.bytes);
        }
        wait(&mut pending.waiting, stays.that_begin_before(Ns::MAX));
        self.feed_until(&mut pending.waiting, most);
        most
    }

    /// Gives out all stretches that start before `watermark` (all of them at the end).
    fn feed_until(&mut self, waiting: &mut Waiting<G::Digest>, watermark: Ns) {
        while let Some(entry) = waiting.first_entry() {
            if entry.key().0 >= watermark && watermark != Ns::MAX {
                return;
            }
            let (stretch, runs) = entry.remove();
            self.give_out(stretch, runs);
        }
    }

    /// Gives out the next stretch of a thread.
    fn give_out(&mut self, mut stretch: Stretch, runs: Vec<DigestedRun<G::Digest>>) {
        if stretch.left_out > 0 {
            self.stats.events += stretch.left_out;
            self.sink.left_out(stretch.tid, stretch.left_out);
        }
        if let Some(run) = stretch.stored.take() {
            return self.give_out_run(stretch, &run, runs.first());
        }
        let last = self.last.entry(stretch.tid).or_default();
        let changed = stretch.continue_from(last);
        self.stats.events += stretch.events.len() as u64;
        let Stretch { pid, tid, space, events, counted, .. } = stretch;
        // A stay on a CPU that is not traced has counted nothing.
        let Counted { mut at_events, in_all } = counted.unwrap_or_default();
        if let Some(threads) = &mut self.counted {
            let before = threads.entry(tid).or_default();
            at_events.resize(events.len(), CountersSince::default());
            let has_cycles = in_all.cycles.is_some();
            let counters = StretchCounters { before: *before, at_events: &at_events, has_cycles };
            *before = *before + in_all;
            self.sink.counted(pid, tid, space, &events, counters);
        } else {
            let mut next = 0;
            let places = |places: Range<usize>| events.get(places).unwrap_or_default();
            for run in runs.iter().filter(|run| run.places.start >= changed) {
                let Range { start, end } = run.places;
                self.sink.events(pid, tid, space, places(next..start));
                let whole = RunEvents { pid, tid, space, events: places(start..end) };
                self.sink.run(pid, tid, space, run, &whole);
                next = end;
            }
            self.sink.events(pid, tid, space, places(next..events.len()));
        }
        self.decoder.give_back(events, at_events);
    }

    /// Gives out a stretch that is a run; `digested`: with its digest, if that is of use.
    fn give_out_run(&mut self, stretch: Stretch, run: &StoredRun, digested: Option<&DigestedRun<G::Digest>>) {
        let lower = self.lower;
        let Stretch { pid, tid, space, start, .. } = stretch;
        let last = self.last.entry(tid).or_default();
        if let Some(digested) = digested.filter(|_| last.is_before(run.first)) {
            *last = LastTime::of_branch(run.last);
            self.stats.events += run.events;
            return self.sink.run(pid, tid, space, digested, &WholeStored { lower, pid, tid, space, run });
        }
        // Its events have other times than those that were digested.
        lower.parts(run, &mut |part| {
            let mut stretch = Stretch::new(Running { pid, tid, from: start, to: Ns::MAX }, space, start);
            let mut digested = Vec::new();
            match part {
                Below::Events(events) => stretch.events = events,
                Below::Run(run) => {
                    digested.extend(lower.digested(&run));
                    stretch.stored = Some(run);
                }
            }
            stretch.keep_forward();
            self.give_out(stretch, digested);
        });
    }
}

/// After all buffers, in the order of their starts.
fn wait<D>(waiting: &mut Waiting<D>, stays: impl Iterator<Item = (u64, Stretch)>) {
    waiting.extend(stays.map(|(number, mut stay)| {
        stay.keep_forward();
        ((stay.start, u32::MAX, number), (stay, Vec::new()))
    }));
}
