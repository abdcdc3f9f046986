//! Decoding a recording that still grows, to the same events as when it is decoded whole.
//!
//! ```text
//!   buffer     |---------|---------|---------|------
//!   segments   decoded    settled   settled   tail
//! ```
//! A segment is settled when all is there that its decoding reads: the bytes after it that settle the clock,
//! and the sideband of its time. It is cut where it would be cut in the whole recording, and is decoded
//! once. The tail waits, and with it what other buffers of CPUs have of its time.
//!
//! A buffer that does not grow would let all others wait. So a tail that is older than
//! [`Grown::patience_ns`] is decoded up to its end before it is settled, and again when it has grown: what
//! was given out is left out then. Such a segment is decoded with all branches that any sink may ask about,
//! because a call that is left out the second time may have been given out, and its return not.

use std::collections::{BTreeMap, BTreeSet};

use model::{AuxOffset, AuxOwner, DigestSink, Digester, Ns, Recording, Tid};

use crate::again::{Again, Until};
use crate::clock::CrystalRatio;
use crate::join::{Join, Pending};
use crate::lower::Lower;
use crate::pieces::{clip, extent, first_time, start_time};
use crate::segment::{AHEAD, Segment, Stream, segment_bytes_of};
use crate::segment_decoder::SegmentDecoder;
use crate::stretch::{LastTime, Stretch};
use crate::untraced::Stays;
use crate::workers::{Decoding, Place, QueuedSegment, with_outputs};
use crate::{Context, DecodeStats, OwnDecoder};

/// How far a recording has come.
#[derive(Clone, Copy, Debug)]
pub struct Grown {
    /// Trace and sideband are there up to this time; `None`: the recording is whole.
    pub until: Option<Ns>,
    /// A tail that began earlier is not waited for; `None`: every tail is.
    pub patience_ns: Option<u64>,
}

/// How far a recording that still grows has been decoded.
#[derive(Default)]
pub struct Continuation {
    /// By perf's number: a thread's number may be given to another one, with a buffer of its own.
    buffers: BTreeMap<u32, BufferProgress>,
    /// Last times given out, by thread.
    last: BTreeMap<Tid, LastTime>,
    /// Stretches of CPUs that wait for other buffers.
    waiting: Vec<((Ns, u32, u64), Stretch)>,
    last_start: BTreeMap<u32, Ns>,
    number: u64,
    stats: DecodeStats,
    until: Ns,
    /// The crystal clock's rate, as far as it is measured.
    crystal: Option<CrystalRatio>,
    /// See [`Self::of_whole`].
    is_whole: bool,
    once: Option<Box<OwnDecoder>>,
    again: Option<Box<OwnDecoder>>,
}

/// How far one buffer has been decoded.
#[derive(Clone, Copy, Debug, Default)]
struct BufferProgress {
    /// The thread that it is of; `None`: it is of a CPU.
    thread: Option<Tid>,
    /// Where the next segment starts; `None`: none was decoded.
    next: Option<AuxOffset>,
    /// When the last one started.
    latest: Ns,
    /// Where the buffer ended when it was looked at last.
    end: AuxOffset,
    /// The last AUX offset with events that were given out, of a segment that is decoded again.
    given: Option<AuxOffset>,
    /// When the tail began; `None`: there is none.
    tail: Option<Ns>,
}

/// Segments that are joined by time.
struct JoinedBuffers<'a> {
    items: Vec<QueuedSegment<'a>>,
    /// What begins then waits.
    most: Ns,
    /// Up to when its buffers are decoded.
    until: Ns,
}

impl Continuation {
    /// What was decoded so far.
    #[must_use]
    pub fn stats(&self) -> DecodeStats {
        self.stats
    }

    /// Up to when events were given out.
    #[must_use]
    pub fn until(&self) -> Ns {
        self.until
    }

    /// The schedule is needed from this time on. Of a tail that is much older, only the end may still come.
    #[must_use]
    pub fn needs_schedule_from(&self) -> Ns {
        let least = Ns(self.until.0.saturating_sub(TAIL_NS));
        let tails = self.buffers.values().filter_map(|progress| progress.tail);
        tails.filter(|start| *start >= least).fold(self.until, Ns::min)
    }

    /// Forgets threads that have ended ([`model::Schedule::ended_before`]). Returns those of which nothing
    /// more is given out: of the others something waits, or a buffer of their own goes on.
    #[must_use]
    pub fn forget_threads(&mut self, mut ended: Vec<Tid>) -> Vec<Tid> {
        let waiting = self.waiting.iter().map(|(_, stretch)| stretch.tid);
        let going_on = self.buffers.values().filter(|buffer| buffer.tail.is_some());
        let has_more: BTreeSet<Tid> = waiting.chain(going_on.filter_map(|buffer| buffer.thread)).collect();
        ended.retain(|tid| !has_more.contains(tid));
        ended.iter().for_each(|tid| _ = self.last.remove(tid));
        ended
    }

    /// The first byte that is still needed of the buffer with this number of perf's; `None`: all are.
    #[must_use]
    pub fn needed_from(&self, buffer: u32) -> Option<AuxOffset> {
        self.buffers.get(&buffer)?.next
    }

    /// More of the buffer with this number of perf's is to be decoded.
    #[must_use]
    pub fn goes_on(&self, buffer: u32) -> bool {
        self.buffers.get(&buffer).is_some_and(|progress| progress.tail.is_some())
    }

    /// All of the recording is there: the crystal clock's rate is measured by it, and trace that is decoded
    /// comes again. Otherwise the rate is measured by the trace so far, better and better, and times that are
    /// known less well have wider bounds.
    pub fn of_whole(&mut self, whole: &Recording<'_>) {
        self.crystal = CrystalRatio::measure(&whole.buffers, whole.pt.tsc_ctc_ratio);
        self.is_whole = true;
    }

    /// Measures it by the trace so far.
    fn measure_further(&mut self, part: &Recording<'_>) {
        let measured = CrystalRatio::measure(&part.buffers, part.pt.tsc_ctc_ratio);
        self.crystal = match (self.crystal, measured) {
            (Some(known), Some(measured)) => Some(known.refine(measured)),
            (known, measured) => known.or(measured),
        };
    }

    /// The code has changed: forgets all that is known of it.
    pub fn forget_code(&mut self) {
        (self.once, self.again) = (None, None);
    }

    /// Decodes the settled part of a recording that has grown.
    ///
    /// `context` has of the recording at least the trace from [`Self::needed_from`] on, and the schedule of
    /// its time. Of buffers that it does not have any more nothing comes.
    pub fn decode_on<G: Digester>(
        &mut self,
        context: &Context<'_>,
        (workers, segment_bytes): (usize, u64),
        grown: Grown,
        digester: Option<&G>,
        sink: &mut dyn DigestSink<G::Digest>,
    ) {
        let asks_about = sink.asks_about();
        let jumps_of = sink.takes_jumps_of();
        let whole = Context { jumps_of: jumps_of.as_ref(), ..*context };
        let pruned = Context { asks_about: asks_about.as_ref(), ..whole };
        let known: BTreeSet<u32> = context.recording.buffers.iter().map(|buffer| buffer.index).collect();
        self.buffers.retain(|index, _| known.contains(index));
        self.last_start.retain(|index, _| known.contains(index));
        let groups = self.groups(context, segment_bytes, grown);
        if !self.is_whole {
            self.measure_further(context.recording);
        }
        let mut once = self.once.take().unwrap_or_default();
        let mut again = self.again.take().unwrap_or_default();
        for decoder in [&mut once, &mut again] {
            decoder.pass_caches_on();
            decoder.set_crystal(self.crystal);
        }
        let digester = digester.filter(|digester| workers >= digester.workers_min());
        let lower = Lower::new(&pruned, None, digester);
        let mut join = Join::new(&*once as &dyn SegmentDecoder, &lower, &|_| (), sink);
        join.last = std::mem::take(&mut self.last);
        join.stats = self.stats;
        let mut pending = Pending {
            waiting: self.waiting.drain(..).map(|(key, stretch)| (key, (stretch, Vec::new()))).collect(),
            last_start: std::mem::take(&mut self.last_start),
            number: self.number,
        };
        let limits: Vec<(Ns, Ns)> = groups.iter().map(|group| (group.most, group.until)).collect();
        let decodings =
            [Decoding { context: &pruned, decoder: &*once }, Decoding { context: &whole, decoder: &*again }];
        let items = groups.into_iter().flat_map(|group| group.items);
        let mut until = grown.until.unwrap_or(Ns::MAX);
        let [of_once, of_again] = decodings;
        with_outputs(of_once, of_again, digester, workers, items, |outputs| {
            for (number, (most, reached)) in limits.into_iter().enumerate() {
                let given = join.group(number, &mut pending, Stays::none(), most, outputs);
                until = until.min(reached).min(given);
            }
        });
        for (index, at) in std::mem::take(&mut join.given) {
            if let Some(progress) = self.buffers.get_mut(&index) {
                progress.given = Some(at);
            }
        }
        (self.last, self.stats) = (join.last, join.stats);
        self.waiting = pending.waiting.into_iter().map(|(key, (stretch, _))| (key, stretch)).collect();
        (self.last_start, self.number) = (pending.last_start, pending.number);
        self.until = self.until.max(until);
        (self.once, self.again) = (Some(once), Some(again));
    }

    /// The segments to decode now: of each buffer of a thread, and of all buffers of CPUs.
    fn groups<'a>(
        &mut self,
        context: &Context<'a>,
        segment_bytes: u64,
        grown: Grown,
    ) -> Vec<JoinedBuffers<'a>> {
        let mut threads = vec![];
        let mut cpus = JoinedBuffers { items: vec![], most: Ns::MAX, until: Ns::MAX };
        for (index, buffer) in context.recording.buffers.iter().enumerate() {
            let whole = |pieces: &[_]| extent(pieces).unwrap_or_default();
            let thread = match buffer.owner {
                AuxOwner::Thread(tid) => Some(tid),
                AuxOwner::Cpu(_) => None,
            };
            let life = thread.and_then(|tid| context.schedule.thread(tid));
            // All is there of a thread that has died: nothing waits for more. Nor does what began before the
            // number was given to another thread.
            let reborn = life.and_then(|life| life.dead.last()).is_some_and(|dead| {
                first_time(context, &buffer.pieces).is_some_and(|began| began < dead.died)
            });
            let is_dead_by = |until| thread.is_some_and(|tid| context.schedule.is_over_by(tid, until));
            let is_over = |until: &Ns| reborn || is_dead_by(*until);
            let grown = Grown { until: grown.until.filter(|until| !is_over(until)), ..grown };
            let begin = life.and_then(|life| life.trace_start.max(life.born)).unwrap_or_default();
            let Some(stream) = Stream::new(index, buffer, whole) else {
                if let Some(progress) = self.buffers.get_mut(&buffer.index).filter(|_| grown.until.is_none())
                {
                    progress.tail = None;
                }
                continue;
            };
            let progress = self.buffers.entry(buffer.index).or_default();
            progress.thread = thread;
            let bytes = segment_bytes_of(context.recording, buffer.owner, segment_bytes);
            let group = progress.step(context, stream, (begin, bytes), grown);
            match thread {
                Some(_) => threads.push(JoinedBuffers { most: Ns::MAX, ..group }),
                None => {
                    cpus.items.extend(group.items);
                    cpus.most = cpus.most.min(group.most);
                    cpus.until = cpus.until.min(group.until);
                }
            }
        }
        cpus.items.sort_by_key(|item| (item.place.start, item.place.buffer));
        cpus.most = cpus.most.min(grown.until.unwrap_or(Ns::MAX));
        threads.push(cpus);
        for (number, group) in threads.iter_mut().enumerate() {
            group.items.iter_mut().for_each(|item| item.place.group = number);
        }
        threads
    }
}

/// A tail that is decoded again finds the threads of this time in the schedule.
const TAIL_NS: u64 = 10_000_000_000;

/// Events of the last bytes of a buffer that still grows wait: those of their packets may not be complete.
const HELD_BYTES: u64 = 1 << 10;

impl BufferProgress {
    /// The segments of one buffer that are decoded now, each of so many bytes. Its first event is not before
    /// `begin`.
    fn step<'a>(
        &mut self,
        context: &Context<'a>,
        stream: Stream<'a>,
        (begin, bytes): (Ns, u64),
        grown: Grown,
    ) -> JoinedBuffers<'a> {
        let end = stream.end();
        let stream = match self.next {
            Some(next) => stream.cut_at(next),
            None => stream,
        };
        let mut group = JoinedBuffers { items: vec![], most: Ns::MAX, until: Ns::MAX };
        self.tail = None;
        for segment in stream.segments(bytes) {
            let start = match segment.first {
                true => begin,
                false => self.latest.max(start_time(context, &segment.pieces)),
            };
            let next = segment.end;
            let is_settled = is_settled(context, &segment, end, grown);
            let again = Again { after: self.given, until: self.tail_until(start, end, grown) };
            let item = |segment: Segment<'a>, again| {
                let (buffer, bytes) = (segment.buffer, segment.len());
                QueuedSegment { place: Place { group: 0, start, buffer, bytes, again }, segment }
            };
            if is_settled {
                let again = self.given.map(|_| Again { until: None, ..again });
                group.items.push(item(segment, again));
                (self.next, self.latest) = (Some(next), start);
                self.given = self.given.filter(|given| *given >= next);
                continue;
            }
            self.tail = Some(start.max(start_time(context, &segment.pieces)));
            match again.until {
                Some(_) => group.items.push(item(stream.rest(segment.start()), Some(again))),
                None => (group.most, group.until) = (start, start),
            }
            break;
        }
        self.end = end;
        group
    }

    /// What is given out of a tail that began at `start`; `None`: nothing yet.
    fn tail_until(&self, start: Ns, end: AuxOffset, grown: Grown) -> Option<Until> {
        let (time, patience_ns) = (grown.until?, grown.patience_ns?);
        let is_growing = self.end != end;
        let at = if is_growing { AuxOffset(end.0.saturating_sub(HELD_BYTES)) } else { end };
        let is_late = start.0.saturating_add(patience_ns) <= time.0;
        is_late.then_some(Until { at, time, is_growing })
    }
}

/// Nothing that may still come changes what decoding the segment gives.
fn is_settled(context: &Context<'_>, segment: &Segment<'_>, end: AuxOffset, grown: Grown) -> bool {
    let Some(until) = grown.until else { return true };
    let is_read = segment.end.plus(AHEAD) <= end;
    is_read && start_time(context, &clip(&segment.pieces, segment.end, end)) <= until
}
