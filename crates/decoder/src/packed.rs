//! A segment's output as bytes, for a file: another process joins it as if it had decoded the segment.
//!
//! ```text
//!   transfers   each different one of the segment once
//!   gaps        in order
//!   stretches   thread, address space, and of each event:
//!                 number of its transfer + 1 (0: the next gap), AUX offset and estimate since the event
//!                 before, distance of the bounds from the estimate
//!               or, of a run with a digest in the place of its events: where these are, times, and digest
//! ```
//! Ids of functions, objects and address spaces stand as they are: they are those of every process that loads
//! the same image. Numbers have 7 bits a byte, so that an event has about 8 bytes; `postcard` writes all
//! that is not of each event.

use std::borrow::Cow;
use std::ops::Range;

use model::{
    AuxOffset, BranchEvent, DigestedRun, EventTime, Gap, Ns, Pid, SpaceId, Tid, TraceEvent, Transfer,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::owner::Running;
use crate::segment_output::SegmentOutput;
use crate::stored_run::{Level, OutputPlace, StoredRun};
use crate::stretch::Stretch;

/// Bytes that are no segment's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no output of a segment: {0}")]
pub struct NoOutput(&'static str);

#[derive(Default, Serialize, Deserialize)]
struct Packed<'b> {
    overflows: u64,
    clock_errors: u64,
    kernel_desyncs: u64,
    transfers: Vec<Transfer>,
    gaps: Vec<Gap>,
    #[serde(borrow)]
    stretches: Vec<PackedStretch<'b>>,
}

#[derive(Serialize, Deserialize)]
struct PackedStretch<'b> {
    pid: Pid,
    tid: Tid,
    space: SpaceId,
    start: Ns,
    left_out: u64,
    /// Of each event: number of the transfer, from 1, or 0 for a gap, which has its own place and time; AUX
    /// offset and estimate since the event before; from the lower bound to the estimate, and from there to
    /// the upper one.
    #[serde(borrow, serialize_with = "as_bytes")]
    events: Cow<'b, [u8]>,
    run: Option<PackedRun<'b>>,
}

/// See [`StoredRun`].
#[derive(Serialize, Deserialize)]
struct PackedRun<'b> {
    below: Range<OutputPlace>,
    events: u64,
    first: EventTime,
    last: EventTime,
    #[serde(borrow, serialize_with = "as_bytes")]
    digest: Cow<'b, [u8]>,
}

/// Writes bytes as such, and not one by one.
fn as_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// Where the event before was.
#[derive(Clone, Copy, Default)]
struct Last {
    at: u64,
    point: u64,
}

impl Last {
    fn of(event: &TraceEvent) -> Self {
        Self { at: event.at().0, point: event.time().point.0 }
    }
}

/// Packs an output, stretch by stretch.
#[derive(Default)]
pub(crate) struct Packer {
    packed: Packed<'static>,
    numbers: Numbers,
}

impl Packer {
    /// Adds a stretch that is `whole`, but for its events.
    pub(crate) fn stretch(&mut self, whole: &Stretch, left_out: u64, events: &[TraceEvent]) {
        let Self { packed, numbers } = self;
        let mut bytes = Vec::with_capacity(events.len() * EVENT_BYTES);
        let mut last = Last::default();
        for event in events {
            packed.event(numbers, last, event, &mut bytes);
            last = Last::of(event);
        }
        self.add(whole, left_out, bytes, None);
    }

    /// Adds a run of the stretch `whole`; what it was digested from, and the bytes of its digest.
    pub(crate) fn run<D>(
        &mut self,
        whole: &Stretch,
        below: Range<OutputPlace>,
        run: &DigestedRun<D>,
        digest: Vec<u8>,
    ) {
        let &DigestedRun { events, first, last, .. } = run;
        let run = PackedRun { below, events, first, last, digest: Cow::Owned(digest) };
        self.add(whole, 0, Vec::new(), Some(run));
    }

    fn add(&mut self, whole: &Stretch, left_out: u64, events: Vec<u8>, run: Option<PackedRun<'static>>) {
        let &Stretch { pid, tid, space, start, .. } = whole;
        let events = Cow::Owned(events);
        self.packed.stretches.push(PackedStretch { pid, tid, space, start, left_out, events, run });
    }

    /// The bytes of an output with these stretches and the counts of `output`.
    ///
    /// # Errors
    /// There are more transfers than have numbers.
    pub(crate) fn finish(self, output: &SegmentOutput) -> Result<Vec<u8>, NoOutput> {
        let SegmentOutput { overflows, clock_errors, kernel_desyncs, .. } = *output;
        let packed = Packed { overflows, clock_errors, kernel_desyncs, ..self.packed };
        postcard::to_allocvec(&packed).map_err(|_| NoOutput("it cannot be written"))
    }
}

/// No fewer than most events have.
pub(crate) const EVENT_BYTES: usize = 8;

/// The numbers of the transfers of an output.
struct Numbers {
    all: FxHashMap<Transfer, u32>,
    /// By what [`Self::place`] says: the number that was asked for last. Events are of few transfers, and
    /// their hash is of 40 bytes.
    recent: [u32; Self::PLACES],
}

impl Default for Numbers {
    fn default() -> Self {
        Self { all: FxHashMap::default(), recent: [0; Self::PLACES] }
    }
}

impl Numbers {
    const PLACES: usize = 1 << 10;

    fn place(transfer: &Transfer) -> usize {
        let (from, to) = match transfer {
            Transfer::Branch { from, to, .. } => (from.ip.0, to.ip.0),
            Transfer::Start { to, .. } => (0, to.ip.0),
            Transfer::End { from, .. } => (from.ip.0, 0),
        };
        let spread = (from ^ to.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (spread >> 54) as usize % Self::PLACES
    }

    /// The number of a transfer, which is added to `known` if it is new.
    #[inline]
    fn of(&mut self, transfer: &Transfer, known: &mut Vec<Transfer>) -> u32 {
        let recent = &mut self.recent[Self::place(transfer)];
        if known.get(*recent as usize) != Some(transfer) {
            *recent = *self.all.entry(*transfer).or_insert_with(|| {
                known.push(*transfer);
                known.len() as u32 - 1
            });
        }
        *recent
    }
}

impl SegmentOutput {
    /// The output as bytes. Counters are not in them.
    ///
    /// # Errors
    /// There are more transfers than have numbers.
    pub fn to_bytes(&self) -> Result<Vec<u8>, NoOutput> {
        let mut packer = Packer::default();
        for stretch in &self.stretches {
            match &stretch.stored {
                Some(run) => packer.run(stretch, run.below.clone(), &run.with(()), run.digest.clone()),
                None => packer.stretch(stretch, stretch.left_out, &stretch.events),
            }
        }
        packer.finish(self)
    }

    /// The output that these bytes are. It takes up to some forty times their memory.
    ///
    /// # Errors
    /// They are none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NoOutput> {
        let packed = Packed::of(bytes)?;
        let Packed { overflows, clock_errors, kernel_desyncs, transfers, gaps, stretches } = packed;
        let mut gaps = gaps.into_iter();
        let stretches = stretches.iter().map(|packed| packed.unpack(&transfers, &mut gaps));
        let stretches = stretches.collect::<Result<_, _>>()?;
        match gaps.next() {
            None => Ok(Self { stretches, overflows, clock_errors, kernel_desyncs }),
            Some(_) => Err(NoOutput("it has a gap that is in no stretch")),
        }
    }
}

/// Sums of such counts do not overflow.
const COUNT_MAX: u64 = 1 << 32;

const DAMAGED: NoOutput = NoOutput("its bytes are damaged");

impl<'b> Packed<'b> {
    fn of(bytes: &'b [u8]) -> Result<Self, NoOutput> {
        let (packed, rest) = postcard::take_from_bytes::<Self>(bytes).map_err(|_| DAMAGED)?;
        if !rest.is_empty() {
            return Err(NoOutput("there are bytes after its end"));
        }
        let Self { overflows, clock_errors, kernel_desyncs, ref stretches, .. } = packed;
        let of_run = |stretch: &PackedStretch<'_>| stretch.run.as_ref().map_or(0, |run| run.events);
        let in_stretches = stretches.iter().map(|stretch| stretch.left_out.saturating_add(of_run(stretch)));
        let in_stretches = in_stretches.fold(0, u64::saturating_add);
        if [overflows, clock_errors, kernel_desyncs, in_stretches].iter().any(|count| *count > COUNT_MAX) {
            return Err(NoOutput("it counts more than there can be"));
        }
        Ok(packed)
    }

    fn event(&mut self, numbers: &mut Numbers, last: Last, event: &TraceEvent, to: &mut Vec<u8>) {
        let BranchEvent { time: EventTime { lo, point, hi }, at, transfer } = match event {
            TraceEvent::Branch(branch) => branch,
            TraceEvent::Gap(gap) => {
                self.gaps.push(*gap);
                return to.push(0);
            }
        };
        write(to, u64::from(numbers.of(transfer, &mut self.transfers)) + 1);
        write(to, folded(at.0.wrapping_sub(last.at)));
        write(to, folded(point.0.wrapping_sub(last.point)));
        write(to, point.0.wrapping_sub(lo.0));
        write(to, hi.0.wrapping_sub(point.0));
    }
}

impl PackedStretch<'_> {
    fn unpack(
        &self,
        transfers: &[Transfer],
        gaps: &mut impl Iterator<Item = Gap>,
    ) -> Result<Stretch, NoOutput> {
        let Self { pid, tid, space, start, left_out, ref events, ref run } = *self;
        let running = Running { pid, tid, from: start, to: Ns::MAX };
        let mut stretch = Stretch::new(running, space, start);
        stretch.left_out = left_out;
        if let Some(run) = run {
            if !events.is_empty() {
                return Err(DAMAGED);
            }
            stretch.stored = Some(Box::new(run.unpack()?));
            return Ok(stretch);
        }
        stretch.events.reserve(events.len() / 6);
        let (mut last, mut rest) = (Last::default(), &**events);
        while !rest.is_empty() {
            let number = read(&mut rest).ok_or(DAMAGED)?;
            let event = match number.checked_sub(1) {
                None => TraceEvent::Gap(gaps.next().ok_or(NoOutput("a gap of it is missing"))?),
                Some(number) => {
                    let transfer = usize::try_from(number).ok().and_then(|number| transfers.get(number));
                    let transfer = *transfer.ok_or(NoOutput("a transfer of it is missing"))?;
                    TraceEvent::Branch(branch(&mut rest, last, transfer).ok_or(DAMAGED)?)
                }
            };
            last = Last::of(&event);
            stretch.push(event);
        }
        Ok(stretch)
    }
}

impl PackedRun<'_> {
    fn unpack(&self) -> Result<StoredRun, NoOutput> {
        let &Self { ref below, events, first, last, ref digest } = self;
        let is_time = |time: EventTime| time.lo <= time.point && time.point <= time.hi;
        let is_forward = first.lo <= last.lo && first.point <= last.point;
        if events == 0 || below.is_empty() || !is_time(first) || !is_time(last) || !is_forward {
            return Err(NoOutput("it has a run that there cannot be"));
        }
        let (below, digest) = (below.clone(), digest.to_vec());
        // The store sets buffer and level, which it knows.
        Ok(StoredRun { buffer: 0, level: Level::Decoded, below, events, first, last, digest })
    }
}

#[inline]
fn branch(rest: &mut &[u8], last: Last, transfer: Transfer) -> Option<BranchEvent> {
    let at = last.at.wrapping_add(unfolded(read(rest)?));
    let point = last.point.wrapping_add(unfolded(read(rest)?));
    // Time that runs backwards in damaged bytes is set right with that of all events.
    let lo = point.wrapping_sub(read(rest)?);
    let hi = point.wrapping_add(read(rest)?);
    let time = EventTime { lo: Ns(lo), point: Ns(point), hi: Ns(hi) };
    Some(BranchEvent { time, at: AuxOffset(at), transfer })
}

/// Writes 7 bits a byte, the lowest first; the high bit says that more follow.
#[inline]
fn write(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Reads what [`write`] has written.
#[inline(always)]
fn read(rest: &mut &[u8]) -> Option<u64> {
    let (&first, more) = rest.split_first()?;
    *rest = more;
    if first < 0x80 { Some(u64::from(first)) } else { read_on(rest, u64::from(first & 0x7f)) }
}

fn read_on(rest: &mut &[u8], mut number: u64) -> Option<u64> {
    for shift in (7..u64::BITS).step_by(7) {
        let (&byte, more) = rest.split_first()?;
        *rest = more;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// A difference, so that small negative ones are small: 0, -1, 1, -2 are 0, 1, 2, 3.
const fn folded(difference: u64) -> u64 {
    let sign = difference.cast_signed() >> 63;
    (difference << 1) ^ sign.cast_unsigned()
}

const fn unfolded(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use model::{AsyncCause, Avma, BranchKind, EndKind, FunctionId, GapCause, ObjectId, Site, Target};

    use super::*;

    fn events() -> Vec<TraceEvent> {
        let from = Site { ip: Avma(0x7fff_1234_5678), function: FunctionId(700), len: 5 };
        let to = Target { ip: Avma(u64::MAX), function: FunctionId::UNKNOWN, at_entry: true };
        let ends =
            [EndKind::Syscall, EndKind::Async(AsyncCause::Fault(14)), EndKind::Branch(BranchKind::Return)];
        let ends = ends.into_iter().map(|kind| Transfer::End { kind, from, to: None });
        let mut transfers: Vec<Transfer> = ends.collect();
        transfers.push(Transfer::Start { to, after_gap: true });
        transfers.push(Transfer::End { kind: EndKind::Skipped, from, to: Some(Avma(1)) });
        for kind in [BranchKind::Call, BranchKind::RunsOn, BranchKind::Call] {
            transfers.push(Transfer::Branch { kind, from, to });
        }
        let times = [(0, 0, 0), (5, 7, 9), (7, 8, u64::MAX), (1 << 60, 1 << 61, 1 << 62)];
        let times = times.map(|(lo, point, hi)| EventTime { lo: Ns(lo), point: Ns(point), hi: Ns(hi) });
        let event = |(number, transfer)| {
            let (time, at) = (times[number % 4], AuxOffset(number as u64 * 7 % 5));
            TraceEvent::Branch(BranchEvent { time, at, transfer })
        };
        let mut events: Vec<TraceEvent> = transfers.into_iter().enumerate().map(event).collect();
        let gap = |cause| Gap { from: times[1], to: times[3], bytes: 99, at: AuxOffset(3), cause };
        events.insert(2, TraceEvent::Gap(gap(GapCause::MissingCode { object: ObjectId(4) })));
        events.push(TraceEvent::Gap(gap(GapCause::Overflow)));
        events
    }

    fn output() -> SegmentOutput {
        let stretch = |tid, from, left_out| {
            let running = Running { pid: Pid(7), tid: Tid(tid), from: Ns(from), to: Ns::MAX };
            let mut stretch = Stretch::new(running, SpaceId(3), Ns(12));
            stretch.left_out = left_out;
            stretch
        };
        let mut stretches = [stretch(8, 0, 0), stretch(-1, 50, 77), stretch(9, 5, 1)];
        stretches[0].events = events();
        stretches[2].events = events().into_iter().rev().collect();
        let stretches = stretches.into();
        SegmentOutput { stretches, overflows: 3, clock_errors: COUNT_MAX, kernel_desyncs: 1 }
    }

    type Seen = (Pid, Tid, SpaceId, Ns, u64, Vec<TraceEvent>);

    fn seen(output: &SegmentOutput) -> (Vec<Seen>, [u64; 3]) {
        let of = |s: &Stretch| (s.pid, s.tid, s.space, s.start, s.left_out, s.events.clone());
        let counts = [output.overflows, output.clock_errors, output.kernel_desyncs];
        (output.stretches.iter().map(of).collect(), counts)
    }

    #[test]
    fn what_is_written_is_read() {
        for output in [output(), SegmentOutput::default()] {
            let bytes = output.to_bytes().unwrap();
            assert_eq!(seen(&SegmentOutput::from_bytes(&bytes).unwrap()), seen(&output));
        }
    }

    #[test]
    fn numbers_of_any_size() {
        for number in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            write(&mut bytes, number);
            assert_eq!(unfolded(folded(number)), number);
            let mut rest = &*bytes;
            assert_eq!((read(&mut rest), rest), (Some(number), &[][..]));
            assert_eq!(read(&mut &bytes[..bytes.len() - 1]), None);
        }
        assert_eq!([0, u64::MAX, 1, u64::MAX - 1].map(folded), [0, 1, 2, 3]);
        assert_eq!(read(&mut &[0xff; 11][..]), None);
    }

    #[test]
    fn what_is_none_says_so() {
        let bytes = output().to_bytes().unwrap();
        for len in 0..bytes.len() {
            assert_eq!(SegmentOutput::from_bytes(&bytes[..len]).map(drop), Err(DAMAGED));
        }
        let longer = [&bytes[..], &[0]].concat();
        let more = SegmentOutput::from_bytes(&longer).map(drop);
        assert_eq!(more, Err(NoOutput("there are bytes after its end")));
        let many = SegmentOutput { overflows: COUNT_MAX + 1, ..output() }.to_bytes().unwrap();
        let refused = SegmentOutput::from_bytes(&many).map(drop);
        assert_eq!(refused, Err(NoOutput("it counts more than there can be")));
        // A length that no memory has.
        let huge = [0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert!(SegmentOutput::from_bytes(&huge).is_err());
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut hurt = bytes.clone();
                hurt[at] = value;
                let read = SegmentOutput::from_bytes(&hurt).map(|output| output.to_bytes());
                assert!(!matches!(read, Ok(Err(_))), "byte {at}");
            }
        }
    }
}
