//! Workers that decode segments, a few of them ahead of the one whose turn it is.
//!
//! ```text
//!   segments   | 0 | 1 | 2 | 3 | 4 | 5 | 6 ...
//!              taken |   |   |   |   | not begun
//!                      ^   \_____ jobs: whoever is free takes the first one
//!                      whose turn it is
//! ```
//! The thread that takes the outputs is a worker, too: while the next one is not there, it decodes.  So there are never more
//! threads than workers, which would take turns on as many CPUs, and one worker alone needs no thread.

use std::collections::VecDeque;
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::thread;

use crate::Context;
use crate::segment::Segment;
use crate::segment_decoder::{SegmentDecoder, SegmentOutput};
use crate::stretch::Stretch;

/// Segments that are decoded or wait to be taken, per worker: while one decodes two, any other one finds something to do.
const AHEAD_PER_WORKER: usize = 3;

/// A segment that nobody has begun, and where its output goes.
type Job<'s> = (Segment<'s>, mpsc::SyncSender<SegmentOutput>);

/// Calls `take` with the outputs of `segments`, which so many workers decode meanwhile.
pub(crate) fn with_outputs<'s, S: Iterator<Item = Segment<'s>>>(
    context: &Context<'_>,
    decoder: &dyn SegmentDecoder,
    workers: usize,
    segments: S,
    take: impl FnOnce(&mut Outputs<'_, 's, S>),
) {
    // One that decodes alone has nobody to spare work.
    let context = Context { digester: context.digester.filter(|_| workers > 1), ..*context };
    let (give, jobs) = mpsc::channel();
    let work = Work { context, decoder, jobs: Mutex::new(jobs) };
    thread::scope(|scope| {
        for _ in 1..workers {
            // If there are no threads to be had, others do its work.
            let _ = thread::Builder::new().spawn_scoped(scope, || work.run());
        }
        // Whatever happens to it, `give` ends with it, and so do the threads.
        take(&mut Outputs {
            work: &work,
            give,
            ahead: VecDeque::new(),
            most: workers * AHEAD_PER_WORKER,
            segments,
        });
    });
}

/// The outputs of segments, in their order.
pub(crate) struct Outputs<'w, 's, S> {
    work: &'w Work<'w, 's>,
    give: mpsc::Sender<Job<'s>>,
    /// Of segments that were given out.
    ahead: VecDeque<mpsc::Receiver<SegmentOutput>>,
    /// So many at most.
    most: usize,
    segments: S,
}

impl<'s, S: Iterator<Item = Segment<'s>>> Outputs<'_, 's, S> {
    /// Gives out segments until enough are ahead.
    fn give_out(&mut self) {
        for segment in self.segments.by_ref().take(self.most - self.ahead.len()) {
            let (output, given) = mpsc::sync_channel(1);
            let _ = self.give.send((segment, output)); // the other end lives as long
            self.ahead.push_back(given);
        }
    }

    /// The output of the next segment, and nothing behind the last one.
    pub(crate) fn take(&mut self) -> SegmentOutput {
        self.give_out();
        let Some(given) = self.ahead.pop_front() else { return SegmentOutput::default() };
        loop {
            match given.try_recv() {
                Ok(output) => return output,
                Err(TryRecvError::Empty) => match self.work.try_next() {
                    Some(job) => self.work.decode(job),
                    // If none comes its worker has panicked, and so will the scope.
                    None => return given.recv().unwrap_or_default(),
                },
                Err(TryRecvError::Disconnected) => return SegmentOutput::default(),
            }
        }
    }
}

/// What all workers share.
struct Work<'a, 's> {
    context: Context<'a>,
    decoder: &'a dyn SegmentDecoder,
    jobs: Mutex<mpsc::Receiver<Job<'s>>>,
}

impl<'s> Work<'_, 's> {
    /// Decodes until there is nothing left.
    fn run(&self) {
        while let Some(job) = self.next() {
            self.decode(job);
        }
    }

    /// Waits for a job; none: there will be no other one.
    fn next(&self) -> Option<Job<'s>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    /// A job if there is one.  Who has the lock waits for one, too, or is about to leave it.
    fn try_next(&self) -> Option<Job<'s>> {
        let jobs = match self.jobs.try_lock() {
            Ok(jobs) => jobs,
            Err(TryLockError::Poisoned(jobs)) => jobs.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        jobs.try_recv().ok()
    }

    fn decode(&self, (segment, give): Job<'s>) {
        let mut output = self.decoder.decode(&self.context, &segment);
        output.stretches.iter_mut().for_each(Stretch::keep_forward);
        if let Some(digester) = self.context.digester {
            output.stretches.iter_mut().for_each(|stretch| stretch.digest_with(digester));
        }
        let _ = give.send(output); // or nobody waits for it any more
    }
}
