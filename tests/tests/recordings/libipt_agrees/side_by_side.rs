//! Two decoders' events of one buffer, side by side.
//!
//! They must be the same, but for the deviations of `docs/testing/second-opinions.md`, each of which is
//! predicted here, from our events and the packets: where one is predicted libipt must be wrong, and where
//! none is it must agree.
//! After a wrong way the two are held together again from the end of the next PSB+ on, where libipt starts
//! anew.

use std::collections::{BTreeMap, BTreeSet};

use model::{AuxOffset, BranchKind, EndKind, EventSink, GapCause, Pid, SpaceId, Tid, TraceEvent, Transfer};
use packet::{IpPayload, Packet};

use super::return_stack::LibiptStack;
use super::stream::Stream;

/// An event without what only one decoder knows: its time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shown {
    Transfer(Transfer),
    Gap(&'static str),
}

const OVERFLOW: Shown = Shown::Gap(GapCause::Overflow.name());

/// An event, and where in the buffer it comes from.
type Event = (Shown, AuxOffset);

/// The events of each thread of one buffer.
#[derive(Default)]
pub(crate) struct Threads(BTreeMap<Tid, Vec<Event>>);

impl EventSink for Threads {
    fn events(&mut self, _: Pid, tid: Tid, _: SpaceId, events: &[TraceEvent]) {
        let shown = events.iter().map(|event| match event {
            TraceEvent::Branch(branch) => (Shown::Transfer(branch.transfer), branch.at),
            TraceEvent::Gap(gap) => (Shown::Gap(gap.cause.name()), gap.at),
        });
        let thread = self.0.entry(tid).or_default();
        for event in shown {
            // A loss over several runs of a thread is a gap for each; of which runs depends on the time.
            if !matches!((thread.last(), event), (Some((Shown::Gap(a), _)), (Shown::Gap(b), _)) if *a == b) {
                thread.push(event);
            }
        }
    }
}

impl Threads {
    fn of(&self, tid: Tid) -> &[Event] {
        self.0.get(&tid).map_or(&[], Vec::as_slice)
    }
}

/// What came of holding two decoders against each other.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) same: u64,
    /// Transfers that led into an overflow: libipt tells where an instruction was, and of the last one before
    /// an overflow not where it led.
    pub(crate) into_overflow: u64,
    /// Gaps of a thread that came to its CPU as a loss ended.
    pub(crate) gaps_of_one: u64,
    /// Compressed returns that libipt followed to a stale address.
    pub(crate) stale_returns: u64,
    /// Conditional jumps that left the IP filter with a TIP.PGD without address.
    pub(crate) hidden_jumps: u64,
    /// Addresses after an overflow that libipt completes with 0, and the processor compressed against the
    /// last one.
    pub(crate) zeroed: u64,
    /// Our events from a wrong way of libipt to the next PSB.
    pub(crate) not_held: u64,
    pub(crate) differs: Option<String>,
}

impl Comparison {
    pub(crate) fn add(&mut self, other: Self) {
        self.same += other.same;
        self.into_overflow += other.into_overflow;
        self.gaps_of_one += other.gaps_of_one;
        self.stale_returns += other.stale_returns;
        self.hidden_jumps += other.hidden_jumps;
        self.zeroed += other.zeroed;
        self.not_held += other.not_held;
        self.differs = self.differs.take().or(other.differs);
    }
}

/// Holds libipt's events against ours.
///
/// `keeps_ip`: the processor keeps the last IP over an overflow.
pub(crate) fn compare(ours: &Threads, theirs: &Threads, stream: &Stream, keeps_ip: bool) -> Comparison {
    let tids = ours.0.keys().chain(theirs.0.keys());
    let tids: BTreeSet<Tid> = tids.copied().collect();
    let pairs =
        tids.into_iter().map(|tid| Pair { tid, ours: ours.of(tid), theirs: theirs.of(tid) }).collect();
    let stack = LibiptStack::new(stream);
    let mut sides = Sides { pairs, stream, keeps_ip, stack, psb_end: None, wrong: vec![] };
    let mut all = Comparison::default();
    while all.differs.is_none() {
        let Some(next) = sides.next() else { break };
        sides.step(next, &mut all);
    }
    all.differs = all.differs.or_else(|| sides.left_over());
    all
}

/// What is still to be compared of a thread.
struct Pair<'a> {
    tid: Tid,
    ours: &'a [Event],
    theirs: &'a [Event],
}

impl Pair<'_> {
    fn difference(&self, why: &str) -> String {
        let lines = |events: &[Event]| {
            let shown = events.iter().take(5).map(|(event, at)| format!("    {event:x?} {at}\n"));
            shown.collect::<String>()
        };
        let (ours, theirs) = (lines(self.ours), lines(self.theirs));
        format!("thread {}: {why}\n  ours\n{ours}  libipt\n{theirs}", self.tid.0)
    }
}

struct Sides<'a> {
    pairs: Vec<Pair<'a>>,
    stream: &'a Stream,
    keeps_ip: bool,
    stack: LibiptStack<'a>,
    /// The end of the next PSB+, where libipt starts anew.
    psb_end: Option<AuxOffset>,
    /// Where libipt was on a wrong way: first and last offset.
    wrong: Vec<(AuxOffset, AuxOffset)>,
}

impl Sides<'_> {
    /// The thread whose event is the next of the buffer.
    fn next(&self) -> Option<usize> {
        let heads = self.pairs.iter().enumerate();
        let heads = heads.filter_map(|(index, pair)| Some((pair.ours.first()?.1, index)));
        heads.min().map(|(_, index)| index)
    }

    fn is_wrong(&self, at: AuxOffset) -> bool {
        let after = self.wrong.partition_point(|(from, _)| *from <= at);
        after.checked_sub(1).is_some_and(|i| at <= self.wrong[i].1)
    }

    fn skip_wrong_ways(&mut self, index: usize) {
        while self.pairs[index].theirs.first().is_some_and(|(_, at)| self.is_wrong(*at)) {
            self.pairs[index].theirs = &self.pairs[index].theirs[1..];
        }
    }

    /// Compares one event of ours.
    fn step(&mut self, index: usize, all: &mut Comparison) {
        let (event, at) = self.pairs[index].ours[0];
        if self.is_wrong(at) {
            self.pairs[index].ours = &self.pairs[index].ours[1..];
            all.not_held += 1;
            return;
        }
        if self.psb_end.is_none_or(|end| end < at) {
            self.stack.clear();
            self.psb_end = Some(self.stream.psb_end_after(at).unwrap_or(AuxOffset(u64::MAX)));
        }
        self.skip_wrong_ways(index);
        let wrong_way = self.predict(event, at, all);
        let pair = &mut self.pairs[index];
        let is_same = pair.theirs.first().is_some_and(|(theirs, _)| *theirs == event);
        match (is_same, wrong_way) {
            (true, true) => all.differs = Some(pair.difference("libipt is right against all expectation")),
            (true, false) => {
                all.same += 1;
                (pair.ours, pair.theirs) = (&pair.ours[1..], &pair.theirs[1..]);
            }
            (false, true) => {
                let end = self.stream.psb_end_after(at).unwrap_or(AuxOffset(u64::MAX));
                self.wrong.push((at, end));
            }
            (false, false) if leads_into_overflow(pair) => {
                all.into_overflow += 1;
                pair.ours = &pair.ours[1..];
            }
            (false, false) if gap_is_of_one(pair.ours, pair.theirs) => {
                all.gaps_of_one += 1;
                pair.ours = &pair.ours[1..];
            }
            (false, false) if gap_is_of_one(pair.theirs, pair.ours) => {
                all.gaps_of_one += 1;
                pair.theirs = &pair.theirs[1..];
            }
            (false, false) => all.differs = Some(pair.difference("not the same")),
        }
    }

    /// libipt cannot follow this.
    fn predict(&mut self, event: Shown, at: AuxOffset, all: &mut Comparison) -> bool {
        let Shown::Transfer(transfer) = event else { return false };
        if self.keeps_ip && self.stream.is_zeroed(at) {
            all.zeroed += 1;
            return true;
        }
        if !self.stack.follows(&transfer, at) {
            all.stale_returns += 1;
            return true;
        }
        let jump = EndKind::Branch(BranchKind::ConditionalJump);
        let is_jump = matches!(transfer, Transfer::End { kind, .. } if kind == jump);
        let is_hidden = is_jump && self.stream.packet(at) == Some(Packet::TipPgd(IpPayload::NONE));
        all.hidden_jumps += u64::from(is_hidden);
        is_hidden
    }

    /// Describes what only libipt has.
    fn left_over(&mut self) -> Option<String> {
        (0..self.pairs.len()).for_each(|index| self.skip_wrong_ways(index));
        let more = self.pairs.iter().find(|pair| !pair.theirs.is_empty());
        more.map(|pair| pair.difference("only libipt has more"))
    }
}

/// Ours is the last branch before an overflow, and the overflow comes next in both.
fn leads_into_overflow(pair: &Pair<'_>) -> bool {
    let [(Shown::Transfer(Transfer::Branch { .. }), _), (next, _), ..] = pair.ours else { return false };
    *next == OVERFLOW && pair.theirs.first().is_some_and(|(theirs, _)| *theirs == OVERFLOW)
}

/// The first has a gap in front of where the thread goes on, the second only that it does: it came to its CPU
/// as the loss ended, and whether it has part in it depends on the time. Where tracing was off by the end, it
/// starts and does not resume.
fn gap_is_of_one(one: &[Event], other: &[Event]) -> bool {
    let [(Shown::Gap(_), _), (goes_on, _), ..] = one else { return false };
    let is_start = matches!(goes_on, Shown::Transfer(Transfer::Start { .. }));
    is_start && other.first().is_some_and(|(other, _)| other == goes_on)
}
