//! A segment's output as bytes, for a file: another process joins it as if it had decoded the segment.
//!
//! ```text
//!   transfers   each different one of the segment once
//!   gaps        in order
//!   stretches   thread, address space, and of each event:
//!                 number of its transfer + 1 (0: the next gap), AUX offset and estimate since the event
//!                 before, distance of the bounds from the estimate
//! ```
//! Ids of functions, objects and address spaces stand as they are: they are those of every process that loads
//! the same image. Numbers have 7 bits a byte, so that an event has about 8 bytes; `postcard` writes all
//! that is not of each event.

use std::borrow::Cow;

use model::{AuxOffset, BranchEvent, EventTime, Gap, Ns, Pid, SpaceId, Tid, TraceEvent, Transfer};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::owner::Running;
use crate::segment_output::SegmentOutput;
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
    #[serde(borrow)]
    events: Cow<'b, [u8]>,
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

impl SegmentOutput {
    /// The output as bytes. Counters are not in them.
    ///
    /// # Errors
    /// There are more transfers than have numbers.
    pub fn to_bytes(&self) -> Result<Vec<u8>, NoOutput> {
        let Self { overflows, clock_errors, kernel_desyncs, .. } = *self;
        let mut packed = Packed { overflows, clock_errors, kernel_desyncs, ..Packed::default() };
        let mut numbers = FxHashMap::default();
        for stretch in &self.stretches {
            let (mut last, mut events) = (Last::default(), Vec::new());
            for event in &stretch.events {
                packed.event(&mut numbers, last, event, &mut events);
                last = Last::of(event);
            }
            let Stretch { pid, tid, space, start, left_out, .. } = *stretch;
            let events = Cow::Owned(events);
            packed.stretches.push(PackedStretch { pid, tid, space, start, left_out, events });
        }
        postcard::to_allocvec(&packed).map_err(|_| NoOutput("it cannot be written"))
    }

    /// The output that these bytes are. It takes up to some forty times their memory.
    ///
    /// # Errors
    /// They are none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NoOutput> {
        let read = postcard::take_from_bytes::<Packed<'_>>(bytes);
        let (packed, rest) = read.map_err(|_| DAMAGED)?;
        if !rest.is_empty() {
            return Err(NoOutput("there are bytes after its end"));
        }
        let Packed { overflows, clock_errors, kernel_desyncs, transfers, gaps, stretches } = packed;
        let left_out = stretches.iter().map(|stretch| stretch.left_out).fold(0, u64::saturating_add);
        if [overflows, clock_errors, kernel_desyncs, left_out].iter().any(|count| *count > COUNT_MAX) {
            return Err(NoOutput("it counts more than there can be"));
        }
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

impl Packed<'_> {
    fn event(
        &mut self,
        numbers: &mut FxHashMap<Transfer, u64>,
        last: Last,
        event: &TraceEvent,
        to: &mut Vec<u8>,
    ) {
        let BranchEvent { time: EventTime { lo, point, hi }, at, transfer } = match event {
            TraceEvent::Branch(branch) => branch,
            TraceEvent::Gap(gap) => {
                self.gaps.push(*gap);
                return to.push(0);
            }
        };
        let number = *numbers.entry(*transfer).or_insert_with(|| {
            self.transfers.push(*transfer);
            self.transfers.len() as u64
        });
        write(to, number);
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
        let Self { pid, tid, space, start, left_out, ref events } = *self;
        let running = Running { pid, tid, from: start, to: Ns::MAX };
        let mut stretch = Stretch::new(running, space, start);
        stretch.left_out = left_out;
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
