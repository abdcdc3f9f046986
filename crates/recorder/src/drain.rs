//! Reads buffers and writes the file, until it is told to stop.
//!
//! ```text
//! wait  for a buffer that is full by a quarter, or for the next tick
//! read  how far the trace has come, and then the records: they tell of all of it
//! write records, then the trace, straight from the mapping
//! free  what is written; enable the trace again if the buffer was full
//! ```
//! Of rings that are overwritten the trace is written when a copy is asked for, and when all is over: it is
//! off while the ring is copied to memory, and nothing is freed.
//!
//! Never woken by single records: our own switches would be among them, and wake us again.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::{AuxOffset, AuxOwner, AuxRecord, Cpu, Ns, Tid, TscClock};
use perfdata::write::{AuxChunk, Record, SampleId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::attach::OpenBuffer;
use crate::clocks;
use crate::events::BufferEvents;
use crate::losses::Losses;
use crate::newborns::Newborns;
use crate::output::Output;
use crate::ring_copies::{CopyOutcome, CopyingDrain, LastCopy, RingCopies, RingCopy, has_psb};
use crate::rounds::{Rounds, Turn};
use crate::sys::{Ring, tsc};

/// AUXTRACE payloads have whole words (perf's PERF_AUXTRACE_RECORD_ALIGNMENT): zeros are PAD packets.
const PAYLOAD_ALIGNMENT: u64 = 8;

/// The hardware stops at the end of the region in front of the one that the tail is in
/// (pt_buffer_reset_markers in arch/x86/events/intel/pt.c), and a region is up to half of the buffer (a
/// watermark, since Linux 5.13): up to half of a full buffer may be free. To enable an enabled event does no
/// harm.
const FREE_SHARE: u64 = 2;

/// A ring that is written while it is copied is copied again.
const COPIES_MAX: usize = 3;

/// What all drains share.
pub(crate) struct Shared<'a> {
    pub(crate) output: &'a Output,
    pub(crate) newborns: Option<&'a Newborns<'a>>,
    /// Readable when it is time to stop.
    pub(crate) stop: OwnedFd,
    /// The events of all buffers, those of newborns, too: the end of the window disables them.
    pub(crate) events: Mutex<Vec<Arc<BufferEvents>>>,
    pub(crate) clock: TscClock,
    /// The longest time between two reads of records.
    pub(crate) tick: Duration,
    pub(crate) rounds: Rounds,
    /// When the window was over, in perf's clock, from when on nothing is enabled any more; [`Ns::MAX`]: it
    /// is not.
    pub(crate) ended_at: AtomicU64,
    /// Rings are overwritten, and these are asked for; `None`: all of the trace is written.
    pub(crate) copies: Option<&'a RingCopies>,
}

impl Shared<'_> {
    /// Perf's clock.
    pub(crate) fn now(&self) -> Ns {
        clocks::now(self.clock)
    }

    /// The window is over now.
    pub(crate) fn end(&self) {
        self.ended_at.store(self.now().0, Ordering::SeqCst);
    }

    /// When the window was over; [`Ns::MAX`]: it is not.
    pub(crate) fn ended_at(&self) -> Ns {
        Ns(self.ended_at.load(Ordering::SeqCst))
    }

    /// The window is over.
    pub(crate) fn is_ending(&self) -> bool {
        self.ended_at() != Ns::MAX
    }

    /// All events that there are.
    pub(crate) fn all_events(&self) -> Vec<Arc<BufferEvents>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A buffer that is drained.
struct DrainedBuffer {
    events: Arc<BufferEvents>,
    ring: Ring,
    /// Records from before there was a file: the first ones.
    early: Vec<u8>,
    /// Which of the trace's events to wait for: that of an ended thread would be ready for ever.
    waits_for: usize,
    /// The kernel may disable its events.
    enables: Enables,
    losses: Losses,
    /// Of a ring that is overwritten, what was written last.
    last_copy: LastCopy,
}

/// After which passes to enable what the kernel has disabled because the buffer was full.
///
/// It disables an event a little later than it says that the buffer was full: so once more after the next
/// pass. And if the event had left its CPU by then, it does so at that event's next wake-up, whenever that
/// is, with an AUX record like any other (`pending_disable`, perf_pending_disable in kernel/events/core.c):
/// so after each pass that has read trace, from the first time on that the buffer was full. To enable what
/// is enabled does no harm.
#[derive(Debug, Default)]
struct Enables {
    /// The buffer has been full.
    has_been_full: bool,
    /// They were due after the last pass.
    last: bool,
}

impl Enables {
    /// After a pass that has found the buffer full, and has read some trace.
    fn are_due(&mut self, full: bool, read: bool) -> bool {
        self.has_been_full |= full;
        let now = full || self.has_been_full && read;
        let again = std::mem::replace(&mut self.last, now);
        now || again
    }
}

/// One thread's buffers.
pub(crate) struct Drain<'a> {
    shared: &'a Shared<'a>,
    buffers: Vec<DrainedBuffer>,
    /// Losses of buffers with ended threads.
    finished: Vec<Losses>,
    /// Records of one buffer.
    records: Vec<u8>,
    turn: Turn,
    copying: Option<CopyingDrain<'a>>,
    /// A copy of one ring.
    ring_bytes: Vec<u8>,
}

impl<'a> Drain<'a> {
    pub(crate) fn new(shared: &'a Shared<'a>, buffers: Vec<OpenBuffer>) -> Self {
        let mut drain = Self {
            shared,
            buffers: Vec::new(),
            finished: Vec::new(),
            records: Vec::new(),
            turn: shared.rounds.join(),
            copying: shared.copies.map(RingCopies::join),
            ring_bytes: Vec::new(),
        };
        buffers.into_iter().for_each(|buffer| drain.add(buffer));
        drain
    }

    fn add(&mut self, OpenBuffer { events, ring, early }: OpenBuffer) {
        let losses = Losses::none(events.owner);
        let events = Arc::new(events);
        let mut all = self.shared.events.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&events));
        drop(all);
        // The thread that ends the window says so first, and then disables all events that are known: one of
        // the two threads sees the other.
        if self.shared.is_ending() {
            events.disable_trace();
            events.disable_sideband();
        }
        self.buffers.push(DrainedBuffer {
            events,
            ring,
            early,
            waits_for: 0,
            enables: Enables::default(),
            losses,
            last_copy: LastCopy::default(),
        });
    }

    /// Drains until [`Shared::stop`] is readable, and then once more.
    pub(crate) fn run(mut self) -> Vec<Losses> {
        while !self.wait() {
            let asked = self.copying.as_ref().and_then(CopyingDrain::asked);
            self.pass(asked);
        }
        self.pass(Some(u64::MAX));
        self.finished.extend(self.buffers.iter().map(|buffer| buffer.losses));
        self.finished
    }

    /// Waits for trace or for the tick; true: it is time to stop.
    fn wait(&mut self) -> bool {
        let timeout = Timespec {
            tv_sec: self.shared.tick.as_secs() as i64,
            tv_nsec: self.shared.tick.subsec_nanos().into(),
        };
        let live =
            self.buffers.iter().enumerate().filter_map(|(at, buffer)| {
                buffer.events.trace.get(buffer.waits_for).map(|event| (at, event))
            });
        let (places, events): (Vec<usize>, Vec<_>) = live.unzip();
        let mut fds = vec![PollFd::new(&self.shared.stop, PollFlags::IN)];
        let asked = self.copying.as_ref().and_then(|copying| copying.wake.as_deref());
        let others = 1 + usize::from(asked.is_some());
        fds.extend(asked.map(|wake| PollFd::new(wake, PollFlags::IN)));
        fds.extend(events.into_iter().map(|event| PollFd::new(event, PollFlags::IN)));
        // Interrupted or refused: the pass that follows does no harm.
        let _ = poll(&mut fds, Some(&timeout));
        let ready = || fds.iter().map(PollFd::revents);
        let stop = ready().next().is_some_and(|flags| flags.contains(PollFlags::IN));
        let ended: Vec<usize> = places
            .into_iter()
            .zip(ready().skip(others))
            .filter(|(_, flags)| flags.intersects(PollFlags::HUP | PollFlags::ERR))
            .map(|(at, _)| at)
            .collect();
        for at in ended {
            if let Some(buffer) = self.buffers.get_mut(at) {
                buffer.waits_for += 1;
            }
        }
        stop
    }

    /// Reads all buffers; copies rings that are overwritten, too, if that is `asked` for.
    fn pass(&mut self, asked: Option<u64>) {
        self.shared.rounds.begin(&mut self.turn);
        let asked = asked.filter(|_| self.copying.is_some());
        let (mut opened, mut copies, mut has_left) = (Vec::new(), Vec::new(), false);
        for buffer in &mut self.buffers {
            self.records.clear();
            if asked.is_some() {
                match buffer.copy(&mut self.ring_bytes, self.shared) {
                    CopyOutcome::Copied(copy) => copies.push(copy),
                    CopyOutcome::Left => has_left = true,
                    CopyOutcome::Nothing => (),
                }
            }
            opened.extend(buffer.drain(&mut self.records, self.shared));
        }
        if let (Some(copying), Some(number)) = (&mut self.copying, asked) {
            copying.made(number, copies, has_left);
            self.shared.output.cut_after(self.shared.now());
        }
        if let Some(time) = self.shared.rounds.end(&mut self.turn, || self.shared.now()) {
            self.shared.output.complete_until(time);
        }
        self.free_ended();
        opened.into_iter().for_each(|buffer| self.add(buffer));
    }

    /// Gives back the buffers of threads that had ended before they were read for the last time.
    fn free_ended(&mut self) {
        if self.buffers.iter().all(|buffer| buffer.ended_thread().is_none()) {
            return;
        }
        let buffers = std::mem::take(&mut self.buffers).into_iter();
        let (ended, live): (Vec<_>, Vec<_>) = buffers.partition(|buffer| buffer.ended_thread().is_some());
        self.buffers = live;
        for mut buffer in ended {
            if let Some(copying) = &mut self.copying
                && let CopyOutcome::Copied(copy) = buffer.copy(&mut self.ring_bytes, self.shared)
            {
                copying.ended(copy);
            }
            let DrainedBuffer { events, losses, .. } = buffer;
            let mut all = self.shared.events.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|other| !Arc::ptr_eq(other, &events));
            drop(all);
            if let (Some(newborns), AuxOwner::Thread(tid)) = (self.shared.newborns, losses.owner) {
                newborns.forget(tid);
            }
            self.finished.push(losses);
        }
    }
}

impl DrainedBuffer {
    /// The thread that the buffer is of, if it has ended.
    fn ended_thread(&self) -> Option<Tid> {
        match self.events.owner {
            AuxOwner::Thread(tid) if self.waits_for >= self.events.trace.len() => Some(tid),
            _ => None,
        }
    }

    /// Reads the buffer; returns those of threads that were born.
    fn drain(&mut self, records: &mut Vec<u8>, shared: &Shared<'_>) -> Vec<OpenBuffer> {
        let head = self.ring.trace_head();
        records.append(&mut self.early);
        self.ring.take_records(records);
        let lost_before = self.losses.lost_records;
        let noticed = self.losses.notice(records);
        if !records.is_empty() {
            shared.output.records(records);
        }
        let written = if shared.copies.is_none() { self.write_trace(head, shared) } else { 0 };
        self.ring.release_trace(written);
        self.losses.trace_bytes += written;
        let room = self.ring.trace_bytes() - written;
        if written > 0 && room <= 1 && !noticed.full {
            self.tell_that_it_was_full(head, shared);
        }
        let lost = self.losses.lost_records > lost_before;
        let full = noticed.full || lost || written > 0 && room <= self.ring.trace_bytes() / FREE_SHARE;
        if self.enables.are_due(full, written > 0) {
            self.enable(shared);
        }
        let births = noticed.births.into_iter().filter(|_| !shared.is_ending());
        births
            .filter_map(|birth| Some((shared.newborns?, birth)))
            .flat_map(|(newborns, birth)| newborns.attend_birth(birth, shared.output, &|| shared.now()))
            .collect()
    }

    /// The trace goes on, unless the window is over.
    fn enable(&self, shared: &Shared<'_>) {
        if shared.is_ending() {
            return;
        }
        self.events.enable_trace();
        // The window ended meanwhile: its end disabled events before they were enabled here.
        if shared.is_ending() {
            self.events.disable_trace();
        }
    }

    /// Writes what is new in a ring that is overwritten.
    fn copy(&mut self, bytes: &mut Vec<u8>, shared: &Shared<'_>) -> CopyOutcome {
        let began = shared.now();
        // A thread that is born as its creator's event is disabled may inherit it enabled: the second time
        // finds it.
        self.events.disable_trace();
        self.events.disable_trace();
        let head = (0..COPIES_MAX).find_map(|_| self.ring.copy_trace(bytes));
        self.enable(shared);
        if self.ring.trace_bytes() == 0 {
            return CopyOutcome::Nothing;
        }
        let Some(head) = head else { return CopyOutcome::Left };
        let part = self.last_copy.new_part(bytes, head);
        if !has_psb(part.pieces) {
            return CopyOutcome::Nothing;
        }
        if !self.write(part.offset, part.pieces, shared) {
            return CopyOutcome::Left;
        }
        self.losses.trace_bytes += part.len();
        let range = self.last_copy.took(&part, head);
        CopyOutcome::Copied(RingCopy { buffer: self.events.index, range, span: (began, shared.now()) })
    }

    /// Writes the trace up to `head`; returns how much that was.
    fn write_trace(&self, head: u64, shared: &Shared<'_>) -> u64 {
        let pending = self.ring.trace(head);
        self.write(pending.offset, pending.pieces, shared);
        pending.len()
    }

    /// Writes trace that has this place in the buffer's stream. False: it had no room, and is left out.
    fn write(&self, offset: AuxOffset, [first, wrapped]: [&[u8]; 2], shared: &Shared<'_>) -> bool {
        const ZEROS: [u8; PAYLOAD_ALIGNMENT as usize] = [0; PAYLOAD_ALIGNMENT as usize];
        let bytes = (first.len() + wrapped.len()) as u64;
        if bytes == 0 {
            return true;
        }
        let padding = bytes.next_multiple_of(PAYLOAD_ALIGNMENT) - bytes;
        let zeros = ZEROS.get(..padding as usize).unwrap_or_default();
        let BufferEvents { index, owner, .. } = *self.events;
        let chunk = AuxChunk { index, owner, offset, reference: tsc().0 };
        shared.output.aux(&chunk, &[first, wrapped, zeros])
    }

    /// A buffer that is full to the last byte but one (`CIRC_SPACE` in perf_aux_output_begin) disables the
    /// event without a word; this says it in the kernel's place.
    fn tell_that_it_was_full(&mut self, head: u64, shared: &Shared<'_>) {
        self.losses.full += 1;
        let (cpu, tid) = match self.events.owner {
            AuxOwner::Cpu(cpu) => (cpu, Tid(-1)),
            AuxOwner::Thread(tid) => (Cpu(u32::MAX), tid),
        };
        let id = self.events.trace.first().and_then(|event| event.id().ok()).unwrap_or(0);
        let id = SampleId { tid, cpu, time: shared.now(), id, ..SampleId::default() };
        let mut record = Vec::new();
        Record::Aux { offset: head, size: 0, flags: AuxRecord::TRUNCATED }.encode(&id, &mut record);
        shared.output.records(&record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_was_full_once_is_enabled_after_all_that_is_read() {
        let mut enables = Enables::default();
        let passes =
            [(false, true), (true, true), (false, false), (false, false), (false, true), (false, false)];
        let due = passes.map(|(full, read)| enables.are_due(full, read));
        assert_eq!(due, [false, true, true, false, true, true]);
    }
}
