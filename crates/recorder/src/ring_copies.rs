//! Copies of rings that the trace unit writes over and over, made when they are asked for.
//!
//! ```text
//!   written   ------------------------------------------------------------->
//!   copy 1       [======|======|======]
//!   copy 2                            [======|==]       the ring goes on from where copy 1 ended
//!   copy 3                                            [======|======|======]   that place was overwritten
//! ```
//! That the place where a copy ended is as it was is told by the bytes in front of it, if a PSB+ is among
//! them: its TSC is no other's. Where none is left, the bytes up to the next PSB, which no decoder reads, may
//! be in both copies.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{AuxOffset, Ns};
use rustix::event::{EventfdFlags, eventfd};

use crate::sys::Pending;

/// Bytes in front of a copy's end that are kept: a PSB is in them up to `psb_period=6`.
const MARK_BYTES: usize = 256 << 10;
/// PSB, TSC, and some of what follows.
const FINGERPRINT_BYTES: usize = 48;
/// Copies that were not asked for; of more, the oldest are forgotten.
const UNASKED_MAX: usize = 1 << 12;

/// Who asks for copies, and the drains that make them.
#[derive(Debug, Default)]
pub struct RingCopies {
    asked: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    drains: Vec<DrainState>,
    made: Vec<Untaken>,
    /// Of a ring there is no copy that was asked for.
    has_left: bool,
}

/// What was copied of one ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RingCopy {
    /// perf's number of the buffer.
    pub(crate) buffer: u32,
    pub(crate) range: Range<AuxOffset>,
    /// From when on its trace was off for it until it was in the file, in perf's clock.
    pub(crate) span: (Ns, Ns),
}

/// What became of a ring that was to be copied.
pub(crate) enum CopyOutcome {
    Copied(RingCopy),
    /// Nothing is new that can be decoded.
    Nothing,
    /// It had no room, or was being written: the next copy has it.
    Left,
}

/// A copy that waits to be taken.
#[derive(Debug)]
struct Untaken {
    copy: RingCopy,
    /// The first request that it answers.
    number: u64,
    /// A copy that was not asked for is of a thread that has ended.
    is_asked: bool,
}

/// What was copied of all rings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// The part of each buffer's stream, by perf's number of the buffer.
    pub trace: BTreeMap<u32, Range<AuxOffset>>,
    /// When the first trace was off for it, in perf's clock; `None`: no ring had anything new.
    pub began: Option<Ns>,
    /// When all of it was in the file.
    pub until: Ns,
    /// Of a ring there is no copy, as it had no room, or was being written: the next one has it.
    pub has_left: bool,
}

impl Copied {
    /// What was copied after it belongs to it, too.
    pub fn add(&mut self, later: Self) {
        for (buffer, range) in later.trace {
            self.trace.entry(buffer).or_insert_with(|| range.clone()).end = range.end;
        }
        self.began = self.began.into_iter().chain(later.began).min();
        self.until = self.until.max(later.until);
        self.has_left = later.has_left;
    }
}

#[derive(Debug)]
struct DrainState {
    /// Readable when it is asked; `None`: it looks at its next pass.
    wake: Option<Arc<OwnedFd>>,
    /// The last number that it has answered.
    answered: u64,
}

/// A drain's part in the copies.
#[derive(Debug)]
pub(crate) struct CopyingDrain<'a> {
    copies: &'a RingCopies,
    place: usize,
    pub(crate) wake: Option<Arc<OwnedFd>>,
    answered: u64,
}

impl RingCopies {
    /// Asks for a copy of what is in all rings; returns its number.
    pub fn ask(&self) -> u64 {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        for drain in &self.state().drains {
            // What cannot be written is readable already.
            let _ = drain.wake.as_ref().map(|wake| rustix::io::write(wake, &1u64.to_ne_bytes()));
        }
        number
    }

    /// What was copied for this request, and not taken for one before; `None`: not all rings have been yet.
    #[must_use]
    pub fn take(&self, number: u64) -> Option<Copied> {
        let mut state = self.state();
        let are_made = !state.drains.is_empty() && state.drains.iter().all(|drain| drain.answered >= number);
        are_made.then(|| state.taken(number))
    }

    /// What was copied since, whether or not it was asked for: the recording has ended.
    #[must_use]
    pub fn take_rest(&self) -> Copied {
        self.state().taken(u64::MAX)
    }

    /// A request was not answered yet, or its copies were not taken.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        let (asked, state) = (self.asked.load(Ordering::SeqCst), self.state());
        let is_answered = state.drains.iter().all(|drain| drain.answered >= asked);
        !is_answered || state.made.iter().any(|untaken| untaken.is_asked)
    }

    /// Forgets what was not asked for and was in the file by then.
    pub fn forget_before(&self, time: Ns) {
        self.state().made.retain(|untaken| untaken.is_asked || untaken.copy.span.1 >= time);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more drain.
    pub(crate) fn join(&self) -> CopyingDrain<'_> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok().map(Arc::new);
        let mut state = self.state();
        state.drains.push(DrainState { wake: wake.clone(), answered: 0 });
        CopyingDrain { copies: self, place: state.drains.len() - 1, wake, answered: 0 }
    }
}

impl State {
    /// Takes out the copies that answer requests up to `number`.
    fn taken(&mut self, number: u64) -> Copied {
        let (due, later): (Vec<Untaken>, _) =
            std::mem::take(&mut self.made).into_iter().partition(|untaken| untaken.number <= number);
        self.made = later;
        let mut all = Copied::default();
        for Untaken { copy: RingCopy { buffer, range, span: (began, until) }, is_asked, .. } in due {
            let began = is_asked.then_some(began);
            all.add(Copied { trace: [(buffer, range)].into(), began, until, has_left: false });
        }
        all.has_left = std::mem::take(&mut self.has_left);
        all
    }
}

impl CopyingDrain<'_> {
    /// The number of the copy that is asked for; `None`: none is.
    pub(crate) fn asked(&self) -> Option<u64> {
        let mut count = [0; 8];
        let _ = self.wake.as_ref().map(|wake| rustix::io::read(wake, &mut count));
        let asked = self.copies.asked.load(Ordering::SeqCst);
        (asked > self.answered).then_some(asked)
    }

    /// All rings of this drain were copied since `number` was asked for, and these are in the file.
    /// `has_left`: of some ring there is no copy, which the next one has.
    pub(crate) fn made(&mut self, number: u64, copies: Vec<RingCopy>, has_left: bool) {
        let first = self.answered.saturating_add(1);
        self.answered = number;
        let mut state = self.copies.state();
        state.made.extend(copies.into_iter().map(|copy| Untaken { copy, number: first, is_asked: true }));
        state.has_left |= has_left;
        if let Some(drain) = state.drains.get_mut(self.place) {
            drain.answered = number;
        }
    }

    /// The ring of a thread that has ended: the next request has it, too.
    pub(crate) fn ended(&mut self, copy: RingCopy) {
        let mut state = self.copies.state();
        let unasked = |untaken: &Untaken| !untaken.is_asked;
        if state.made.iter().filter(|untaken| unasked(untaken)).count() >= UNASKED_MAX
            && let Some(oldest) = state.made.iter().position(unasked)
        {
            state.made.remove(oldest);
        }
        state.made.push(Untaken { copy, number: self.answered.saturating_add(1), is_asked: false });
    }
}

/// What was copied last of one ring.
#[derive(Debug, Default)]
pub(crate) struct LastCopy {
    /// Where it ended: in the buffer's stream, and in the ring.
    end: AuxOffset,
    head: usize,
    /// The bytes in front of that place; empty: there was no copy.
    mark: Vec<u8>,
}

impl LastCopy {
    /// What is new in a ring that was written up to `head`. What was written before and is gone has a place
    /// in the stream, of a size that is not known.
    pub(crate) fn new_part<'a>(&self, ring: &'a [u8], head: usize) -> Pending<'a> {
        let size = ring.len().max(1);
        if self.is_still_there(ring, head) {
            let len = (head + size - self.head) % size;
            return Pending { offset: self.end, pieces: pieces(ring, self.head, len) };
        }
        let (newer, older) = ring.split_at(head.min(ring.len()));
        let has_wrapped = older.iter().any(|byte| *byte != 0);
        let older = if has_wrapped { older } else { &[] };
        let least = if self.mark.is_empty() { 0 } else { self.end.0 + size as u64 };
        // As perf has it, a copy ends at the ring's head.
        let past = (least + older.len() as u64) % size as u64;
        let offset = AuxOffset(least + (size as u64 - past) % size as u64);
        Pending { offset, pieces: [older, newer] }
    }

    /// Nothing was written over the place where the copy ended. What is between `head` and that place has
    /// not been reached yet: a PSB+ there is the one that was.
    fn is_still_there(&self, ring: &[u8], head: usize) -> bool {
        let ahead = if head < self.head { self.head - head } else { ring.len() - (head - self.head) };
        let mark = self.mark.get(self.mark.len().saturating_sub(ahead)..).unwrap_or_default();
        let start = (self.head + ring.len()).saturating_sub(mark.len()) % ring.len().max(1);
        let [first, second] = pieces(ring, start, mark.len());
        let is_same = mark.strip_prefix(first) == Some(second);
        let last_psb = mark.len().saturating_sub(FINGERPRINT_BYTES);
        is_same && packet::find_psb(mark, 0).is_some_and(|psb| psb <= last_psb)
    }

    /// A part was copied, up to `head` in the ring. Returns its place in the stream.
    pub(crate) fn took(&mut self, part: &Pending<'_>, head: usize) -> Range<AuxOffset> {
        if part.offset != self.end {
            self.mark.clear();
        }
        for piece in part.pieces {
            let last = piece.get(piece.len().saturating_sub(MARK_BYTES)..).unwrap_or_default();
            self.mark.extend_from_slice(last);
        }
        let too_much = self.mark.len().saturating_sub(MARK_BYTES);
        self.mark.drain(..too_much);
        (self.end, self.head) = (part.offset.plus(part.len()), head);
        part.offset..self.end
    }
}

/// Whether any PSB is in these pieces, of which the second follows the first: else nothing of them can be
/// decoded.
pub(crate) fn has_psb([first, second]: [&[u8]; 2]) -> bool {
    let half = packet::PSB.len();
    let around = [first.get(first.len().saturating_sub(half)..), second.get(..half.min(second.len()))];
    let around: Vec<u8> = around.into_iter().flatten().flatten().copied().collect();
    [first, second, &around].iter().any(|piece| packet::find_psb(piece, 0).is_some())
}

/// So many bytes of a ring, from a place on.
fn pieces(ring: &[u8], from: usize, len: usize) -> [&[u8]; 2] {
    let to_end = ring.get(from..).unwrap_or_default();
    let first = to_end.get(..len).unwrap_or(to_end);
    [first, ring.get(..len - first.len()).unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: usize = 4096;

    /// A ring, and what the trace unit has written into it so far.
    struct Unit {
        ring: Vec<u8>,
        written: Vec<u8>,
    }

    impl Unit {
        fn new() -> Self {
            Self { ring: vec![0; RING], written: Vec::new() }
        }

        /// Blocks of a PSB, its time, and branches of a loop: all blocks are alike but for the time.
        fn run(&mut self, bytes: usize) {
            for _ in 0..bytes {
                let (block, at) = (self.written.len() / 256, self.written.len() % 256);
                let byte = match at {
                    0..16 => packet::PSB[at],
                    16 => 0x19,
                    17..24 => block.to_le_bytes()[at - 17],
                    _ => 0xaa,
                };
                self.ring[self.written.len() % RING] = byte;
                self.written.push(byte);
            }
        }

        fn head(&self) -> usize {
            self.written.len() % RING
        }
    }

    /// Whatever is written between two copies, each has what is there and was not copied, to the byte.
    #[test]
    fn copies_have_what_is_there_and_nothing_twice() {
        for first in [0, 1, 700, RING - 1, RING, RING + 300, 3 * RING + 5] {
            for between in [0, 1, 255, 256, 2000, RING - 400, RING, RING + 1, RING + 256, 2 * RING] {
                let (mut unit, mut last) = (Unit::new(), LastCopy::default());
                let mut copied_to = 0;
                for bytes in [first, between, 300, between] {
                    unit.run(bytes);
                    let part = last.new_part(&unit.ring, unit.head());
                    let (there, new) = (unit.written.len().min(RING), unit.written.len() - copied_to);
                    let goes_on = !last.mark.is_empty() && part.offset == last.end;
                    // Where no PSB+ is left of the copy before, some bytes are there twice.
                    assert!(goes_on || new + 512 > RING || copied_to < 512, "{first}, {between}");
                    assert!(!goes_on || new < RING, "{first}, {between}");
                    let expected = if goes_on { new } else { there };
                    let copied = part.pieces.concat();
                    assert_eq!(copied, unit.written[unit.written.len() - expected..], "{first}, {between}");
                    let range = last.took(&part, unit.head());
                    assert_eq!(range.end.0 as usize % RING, unit.head());
                    copied_to = unit.written.len();
                }
            }
        }
    }

    #[test]
    fn a_copy_is_there_when_all_drains_have_made_it() {
        let copies = RingCopies::default();
        let [mut one, mut two] = [copies.join(), copies.join()];
        assert_eq!((one.asked(), copies.take(0)), (None, Some(Copied::default())));
        let number = copies.ask();
        assert_eq!((number, one.asked(), two.asked()), (1, Some(1), Some(1)));
        let range = |from, to| AuxOffset(from)..AuxOffset(to);
        let made = |buffer, (from, to), at| {
            vec![RingCopy { buffer, range: range(from, to), span: (Ns(at - 5), Ns(at)) }]
        };
        assert!(copies.is_waited_for());
        one.made(1, made(0, (0, 8), 70), false);
        assert_eq!((one.asked(), copies.take(number)), (None, None));
        // The other drain answers two requests with one copy.
        assert_eq!((copies.ask(), two.asked()), (2, Some(2)));
        two.made(2, made(1, (0, 9), 60), true);
        one.made(2, made(0, (8, 12), 71), false);
        let all = Copied {
            trace: [(0, range(0, 8)), (1, range(0, 9))].into(),
            began: Some(Ns(55)),
            until: Ns(70),
            has_left: true,
        };
        assert_eq!(copies.take(1), Some(all));
        let second =
            Copied { trace: [(0, range(8, 12))].into(), began: Some(Ns(66)), until: Ns(71), has_left: false };
        assert_eq!((copies.take(2), copies.take(2)), (Some(second), Some(Copied::default())), "taken");
        // Of threads that have ended.
        let ended = |buffer, (from, to), at| made(buffer, (from, to), at).remove(0);
        one.ended(ended(0, (12, 13), 75));
        copies.forget_before(Ns(80));
        one.ended(ended(0, (20, 24), 90));
        one.ended(ended(0, (30, 31), 95));
        one.ended(ended(1, (0, 5), 99));
        let trace = [(0, range(20, 31)), (1, range(0, 5))].into();
        assert_eq!(copies.take_rest(), Copied { trace, began: None, until: Ns(99), has_left: false });
    }

    #[test]
    fn a_psb_may_be_in_both_pieces() {
        let psb = [&[7][..], &packet::PSB, &[8]].concat();
        for at in 0..=psb.len() {
            assert!(has_psb([&psb[..at], &psb[at..]]), "{at}");
        }
        assert!(!has_psb([&packet::PSB[1..], &[]]) && !has_psb([&[], &[]]));
    }
}
