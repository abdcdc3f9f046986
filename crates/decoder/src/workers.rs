//! Workers that decode segments, a few of them ahead of the next that is taken.
//!
//! ```text
//!   segments   | 0 | 1 | 2 | 3 | 4 | 5 | 6 ...
//!              taken |   |   |   |   | not begun
//!                      ^   \_____ begun
//!                      the next that is taken
//! ```
//! A worker that is free finds the next segment and decodes it: so its bytes are first read, and its pages
//! mapped, by any thread.
//!
//! The thread that takes the outputs is a worker, too: while the next one is not there, it decodes. So
//! there are never more threads than workers, and one worker alone needs no thread; more threads would only
//! take turns on the CPUs.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use model::{DigestedRun, Digester, Ns};

use crate::Context;
use crate::again::Again;
use crate::segment::Segment;
use crate::segment_decoder::SegmentDecoder;
use crate::segment_output::SegmentOutput;
use crate::stretch::Stretch;

/// Segments that are decoded or wait to be taken, per worker: while one decodes two, any other one finds
/// something to do.
const AHEAD_PER_WORKER: usize = 3;

/// A segment, and the place of its output, which must be known before it is decoded.
pub(crate) struct QueuedSegment<'s> {
    pub(crate) place: Place,
    pub(crate) segment: Segment<'s>,
}

/// Where a segment's output belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Number of the group of segments that are merged by time.
    pub(crate) group: usize,
    /// None of its stretches is given out before this time.
    pub(crate) start: Ns,
    /// Index in `Recording::buffers`.
    pub(crate) buffer: usize,
    pub(crate) bytes: u64,
    /// What of its events is given out; `None`: all, as the segment is decoded once.
    pub(crate) again: Option<Again>,
}

/// A segment's output, and the digested runs of each stretch's events.
type DigestedOutput<D> = (SegmentOutput, Vec<Vec<DigestedRun<D>>>);

/// A segment that a worker has begun.
struct Job<'s> {
    segment: Segment<'s>,
    /// It is decoded more than once.
    is_again: bool,
    /// Its place among all segments.
    number: usize,
}

/// What decodes segments, and what those need to know.
#[derive(Clone, Copy)]
pub(crate) struct Decoding<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) decoder: &'a dyn SegmentDecoder,
}

/// Calls `take` with the outputs of `segments`, which `workers` threads decode and digest meanwhile.
///
/// `again` decodes those that are decoded more than once.
pub(crate) fn with_outputs<'s, S: Iterator<Item = QueuedSegment<'s>> + Send, G: Digester>(
    once: Decoding<'_>,
    again: Decoding<'_>,
    digester: Option<&G>,
    workers: usize,
    segments: S,
    take: impl FnOnce(&mut Outputs<'_, 's, S, G>),
) {
    let most = workers * AHEAD_PER_WORKER;
    let ahead = VecDeque::new();
    let queue = Mutex::new(Queue { segments, ahead, taken: 0, most, waiting: 0, is_awaited: false });
    let (room, given) = (Condvar::new(), Condvar::new());
    let work = SharedQueue { once, again, digester, queue, room, given };
    thread::scope(|scope| {
        for _ in 1..workers {
            // If there are no threads to be had, others do its work.
            let _ = thread::Builder::new().spawn_scoped(scope, || work.run());
        }
        take(&mut Outputs { work: &work, begun: None });
    });
}

/// The outputs of segments, in their order.
pub(crate) struct Outputs<'w, 's, S, G: Digester> {
    work: &'w SharedQueue<'w, S, G>,
    /// The next segment that is taken, if no other worker has begun it.
    begun: Option<Job<'s>>,
}

impl<'s, S: Iterator<Item = QueuedSegment<'s>>, G: Digester> Outputs<'_, 's, S, G> {
    /// The place of the next segment that is taken; `None`: all are taken.
    pub(crate) fn place(&mut self) -> Option<Place> {
        let mut queue = self.work.queue();
        if queue.ahead.is_empty() {
            self.begun = queue.begin();
        }
        queue.ahead.front().map(|(place, _)| *place)
    }

    /// The output of the next segment; nothing where there is none.
    pub(crate) fn take(&mut self) -> DigestedOutput<G::Digest> {
        let mut begun = self.begun.take();
        loop {
            if let Some(job) = begun {
                self.work.decode(job);
            }
            let mut queue = self.work.queue();
            begun = if queue.is_given() == Some(false) { queue.begin() } else { None };
            if begun.is_none() {
                queue.is_awaited = true;
                let is_to_come = |queue: &mut Queue<S, G::Digest>| queue.is_given() == Some(false);
                let queue = self.work.given.wait_while(queue, is_to_come);
                let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
                queue.is_awaited = false;
                let Some((_, output)) = queue.ahead.pop_front() else { return Default::default() };
                queue.taken += 1;
                if queue.waiting > 0 {
                    self.work.room.notify_one();
                }
                return output.unwrap_or_default();
            }
        }
    }
}

impl<S, G: Digester> Drop for Outputs<'_, '_, S, G> {
    /// Whatever happens to the thread that takes them, the workers' threads end.
    fn drop(&mut self) {
        self.work.queue().most = 0;
        self.work.room.notify_all();
    }
}

/// What all workers share.
struct SharedQueue<'a, S, G: Digester> {
    once: Decoding<'a>,
    again: Decoding<'a>,
    digester: Option<&'a G>,
    queue: Mutex<Queue<S, G::Digest>>,
    /// One that is ahead was taken, or no more will be.
    room: Condvar,
    /// The output of the next segment that is taken is there.
    given: Condvar,
}

/// Segments that are still to come, and those that a worker has begun.
struct Queue<S, D> {
    segments: S,
    /// With their outputs, once those are there.
    ahead: VecDeque<(Place, Option<DigestedOutput<D>>)>,
    /// The number of segments before these.
    taken: usize,
    /// The most that may be ahead; 0: they are not taken any more.
    most: usize,
    /// Workers that wait for room. To wake none takes a system call, too.
    waiting: usize,
    /// The next output is waited for.
    is_awaited: bool,
}

impl<'s, S: Iterator<Item = QueuedSegment<'s>>, D> Queue<S, D> {
    /// The next segment, if there is one and not enough are ahead.
    fn begin(&mut self) -> Option<Job<'s>> {
        if self.ahead.len() >= self.most {
            return None;
        }
        let QueuedSegment { place, segment } = self.segments.next()?;
        let number = self.taken + self.ahead.len();
        self.ahead.push_back((place, None));
        Some(Job { segment, is_again: place.again.is_some(), number })
    }
}

impl<S, D> Queue<S, D> {
    /// The output of the next segment that is taken is there; `None`: there is no such segment.
    fn is_given(&self) -> Option<bool> {
        self.ahead.front().map(|(_, output)| output.is_some())
    }
}

impl<S, G: Digester> SharedQueue<'_, S, G> {
    fn queue(&self) -> MutexGuard<'_, Queue<S, G::Digest>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decode(&self, Job { segment, is_again, number }: Job<'_>) {
        let mut given = Given { work: self, number, output: DigestedOutput::default() };
        let Decoding { context, decoder } = if is_again { self.again } else { self.once };
        let mut output = decoder.decode(context, &segment);
        // Its events are cut where those begin that were given out.
        let digester = self.digester.filter(|_| !is_again);
        let stretches = output.stretches.iter_mut();
        let runs = stretches.map(|stretch| digested(digester, stretch)).collect();
        given.output = (output, runs);
    }
}

/// The output of a segment: it is given when this is dropped, also by a panic, so that no thread waits on.
struct Given<'w, 'a, S, G: Digester> {
    work: &'w SharedQueue<'a, S, G>,
    number: usize,
    output: DigestedOutput<G::Digest>,
}

impl<S, G: Digester> Drop for Given<'_, '_, S, G> {
    fn drop(&mut self) {
        let mut queue = self.work.queue();
        let place = self.number - queue.taken;
        if let Some((_, output)) = queue.ahead.get_mut(place) {
            *output = Some(std::mem::take(&mut self.output));
        }
        if place == 0 && queue.is_awaited {
            self.work.given.notify_one();
        }
    }
}

impl<'s, S: Iterator<Item = QueuedSegment<'s>>, G: Digester> SharedQueue<'_, S, G> {
    /// Decodes until there is nothing left.
    fn run(&self) {
        while let Some(job) = self.next() {
            self.decode(job);
        }
    }

    /// Waits for a segment to begin; none: there will be no other one.
    fn next(&self) -> Option<Job<'s>> {
        let is_full = |queue: &mut Queue<S, G::Digest>| queue.most > 0 && queue.ahead.len() >= queue.most;
        let mut queue = self.queue();
        queue.waiting += 1;
        let queue = self.room.wait_while(queue, is_full);
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        queue.waiting -= 1;
        queue.begin()
    }
}

/// Makes a stretch ready to be given out; the runs of it that are digested.
fn digested<G: Digester>(digester: Option<&G>, stretch: &mut Stretch) -> Vec<DigestedRun<G::Digest>> {
    if let Some(stored) = &stretch.stored {
        let digest = digester.and_then(|digester| digester.unpack(&stored.digest, &stored.with(())));
        return digest.map(|digest| stored.with(digest)).into_iter().collect();
    }
    stretch.keep_forward();
    digester.map_or_else(Vec::new, |digester| digester.digest(stretch.tid, stretch.space, &stretch.events))
}
