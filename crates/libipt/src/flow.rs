//! libipt's instructions and events to transfers: one segment.
//!
//! libipt says where an instruction was, not where it led: that is the address of the next one, or of the
//! event that comes first. So the last instruction is kept until its successor is known.

mod loss;
mod psb;

use decoder::{Context, Owner, Running, Segment, SegmentOutput, Stretch};
use model::{
    AsyncCause, AuxOffset, Avma, BranchEvent, BranchKind, EndKind, GapCause, NoCode, Ns, Site, SpaceId,
    Target, TraceEvent, Transfer,
};

use crate::abi::{self, Event, Insn, class};
use crate::config::config;
use crate::functions::Functions;
use crate::instruction::{branch_kind, end_kind, next_ip};
use crate::memory::Memory;
use crate::runs::{Run, runs};
use crate::sys::{InsnDecoder, Status};
use crate::when::{Clock, OnCpu};

use loss::Lost;

/// Branches without a packet; more is an endless loop that a wrong address led into.
const MAX_DIRECT: u32 = 1 << 12;

/// Losses of the kernel that a run can go on after; for each, the bytes before are decoded once more.
const MAX_PAUSES: usize = 16;

/// Decodes one segment.
pub(crate) fn decode_segment(context: &Context<'_>, segment: &Segment<'_>) -> SegmentOutput {
    let mut flow = Flow::new(context, segment);
    let next = psb::after(context, segment);
    let mut runs = runs(segment).into_iter().peekable();
    while let Some(mut run) = runs.next() {
        while let Some(next) = runs.peek() {
            if !is_pause(context, segment, &run) || !run.join(next) {
                break;
            }
            runs.next();
        }
        let is_last = runs.peek().is_none() && run.cut.is_none();
        let goal = next.as_ref().filter(|_| is_last).and_then(|next| next.ip);
        flow.run(&run, goal);
        if let Some(cause) = run.cut {
            let cause = if cause == GapCause::Truncated { flow.truncation_cause() } else { cause };
            flow.lose(cause, run.end(), true);
        }
    }
    flow.finish(next.as_ref());
    SegmentOutput { stretches: flow.stretches, overflows: flow.overflows, ..SegmentOutput::default() }
}

/// No packets are missing after a run if the kernel lost data at its end: they are whole, and tracing is
/// off. libipt is asked for that first, because it can go on after it only in one run.
fn is_pause(context: &Context<'_>, segment: &Segment<'_>, run: &Run<'_>) -> bool {
    if run.cut != Some(GapCause::Truncated) || run.pauses.len() >= MAX_PAUSES {
        return false;
    }
    let mut flow = Flow::new(context, segment);
    flow.run(run, None);
    matches!(flow.state, State::Off | State::Lost(Lost { cause: GapCause::Truncated, .. }))
        && flow.read_to == run.end()
}

/// An instruction; its successor is not known yet.
#[derive(Clone, Copy)]
struct Left {
    insn: Insn,
    time: Ns,
    at: AuxOffset,
}

/// What is known of execution.
#[derive(Clone, Copy)]
enum State {
    /// Tracing is off.
    Off,
    /// After a PSB that says where execution is; the segment before has seen it start, or none has.
    Synchronised {
        seen: bool,
    },
    On(Option<Left>),
    Lost(Lost),
}

struct Flow<'a> {
    context: &'a Context<'a>,
    segment: &'a Segment<'a>,
    functions: Functions<'a>,
    clock: Clock,
    owner: Owner<'a>,
    running: Running,
    on_cpu: OnCpu,
    space: SpaceId,
    state: State,
    /// The PSB after the segment was reached.
    at_goal: bool,
    /// How far the run's packets were read.
    read_to: AuxOffset,
    /// Losses of the kernel up to here are gaps already.
    paused: AuxOffset,
    /// The last time that libipt gave.
    now: Ns,
    /// Direct branches since the last one that took a packet.
    direct: u32,
    stretches: Vec<Stretch>,
    overflows: u64,
}

impl<'a> Flow<'a> {
    fn new(context: &'a Context<'a>, segment: &'a Segment<'a>) -> Self {
        let unknown = Owner::Thread { running: Running::UNKNOWN, until: Ns::MAX };
        let buffer = context.recording.buffers.get(segment.buffer);
        let owner = buffer.map_or(unknown, |buffer| Owner::new(context, buffer));
        let running = owner.at_start(segment.first);
        Self {
            context,
            segment,
            functions: Functions::new(context.functions),
            clock: Clock::new(context),
            owner,
            running,
            on_cpu: OnCpu::around(context, running, Ns(0)),
            space: context.code.space(running.pid, Ns(0)),
            state: State::Off,
            at_goal: false,
            read_to: segment.start(),
            paused: segment.start(),
            now: Ns(0),
            direct: 0,
            stretches: vec![],
            overflows: 0,
        }
    }

    /// Decodes bytes that follow one another; `goal`: where the PSB after them says that execution is.
    fn run(&mut self, run: &Run<'_>, goal: Option<Avma>) {
        let memory = Memory::new(self.context.code, self.space);
        let Some(mut decoder) = InsnDecoder::new(config(self.context.recording), &run.bytes, memory) else {
            return self.lose(GapCause::DamagedPacket, run.start, true);
        };
        // Each PSB is synchronised at once at most.
        for _ in 0..=run.bytes.len() {
            let status = decoder.sync_forward();
            match status.error() {
                Some(abi::error::EOS) => return self.no_psb(run),
                Some(code) => self.fail(&decoder, run, code, &Insn::default()),
                None => {
                    self.synchronise(&mut decoder, run, status);
                    if self.follow(&mut decoder, run, status, goal) {
                        self.read_to = offset(&decoder, run);
                        return self.pause(run, run.end());
                    }
                }
            }
        }
    }

    /// Follows execution until the packets end (true), or something is wrong.
    fn follow(
        &mut self,
        decoder: &mut InsnDecoder<'_>,
        run: &Run<'_>,
        mut status: Status,
        goal: Option<Avma>,
    ) -> bool {
        loop {
            while status.event_pending() {
                let (event, next) = decoder.event();
                status = next;
                if next.error().is_none() {
                    self.event(decoder, run, &event);
                }
            }
            if let Some(code) = status.error() {
                self.fail(decoder, run, code, &Insn::default());
                return false;
            }
            let at_end = status.is_at_end();
            if at_end && matches!(self.state, State::Off | State::Lost(_)) {
                return true;
            }
            let (insn, next) = decoder.next();
            status = next;
            if insn.ip != 0 {
                self.reach(Avma(insn.ip));
                self.at_goal = at_end && goal == Some(Avma(insn.ip));
                if self.at_goal || at_end && goal.is_none() {
                    return true;
                }
                self.pass(decoder, run, &insn);
            }
            match next.error() {
                Some(abi::error::EOS) => return true,
                Some(code) => {
                    self.fail(decoder, run, code, &insn);
                    return false;
                }
                None if self.direct > MAX_DIRECT => {
                    self.endless(Avma(insn.ip), offset(decoder, run));
                    return false;
                }
                None => (),
            }
        }
    }

    /// Direct branches without end: their events are not true.
    fn endless(&mut self, ip: Avma, at: AuxOffset) {
        if let Some(stretch) = self.stretches.last_mut() {
            stretch.take_back(at);
        }
        self.lose(GapCause::Desync { ip }, at, true);
    }

    /// An instruction ran; where it led is not known yet.
    fn pass(&mut self, decoder: &mut InsnDecoder<'_>, run: &Run<'_>, insn: &Insn) {
        if !matches!(self.state, State::On(_)) || insn.iclass == class::ERROR {
            return;
        }
        match branch_kind(insn) {
            Some(BranchKind::Call | BranchKind::Jump) => self.direct += 1,
            Some(_) => self.direct = 0,
            None => (),
        }
        if end_kind(insn).is_some() {
            self.read_clock(decoder);
        }
        self.state = State::On(Some(Left { insn: *insn, time: self.now, at: offset(decoder, run) }));
    }

    fn read_clock(&mut self, decoder: &mut InsnDecoder<'_>) {
        if let Some(tsc) = decoder.time() {
            self.now = self.clock.ns(tsc);
        }
    }

    /// Execution is at `ip` now: that is where the last instruction led.
    fn reach(&mut self, ip: Avma) {
        match self.state {
            State::On(Some(left)) => {
                self.transfer(&left, ip);
                self.state = State::On(None);
            }
            State::Synchronised { seen: false } => self.arrive(ip, self.segment.start()),
            State::Synchronised { seen: true } => {
                self.open_stretch();
                self.state = State::On(None);
            }
            State::Lost(lost) if lost.synchronised && self.running.is_known() => {
                self.arrive(ip, lost.psb.unwrap_or(lost.at));
            }
            State::On(None) | State::Off | State::Lost(_) => (),
        }
    }

    fn transfer(&mut self, left: &Left, ip: Avma) {
        let to = self.target(ip);
        let from = self.site(&left.insn);
        let Some(kind) = branch_kind(&left.insn) else {
            // A far transfer into traced code: of the kernel, or back.
            if let Some(kind) = end_kind(&left.insn) {
                self.push(left.time, left.at, Transfer::End { kind, from, to: Some(ip) });
                self.push(left.time, left.at, Transfer::Start { to, after_gap: false });
            }
            return;
        };
        if kind == BranchKind::ConditionalJump && ip == next_ip(&left.insn) {
            return;
        }
        if self.context.is_transfer(kind, from.function, to.function) {
            self.push(left.time, left.at, Transfer::Branch { kind, from, to });
        }
    }

    fn event(&mut self, decoder: &mut InsnDecoder<'_>, run: &Run<'_>, event: &Event) {
        let [first, second, _] = event.variant.map(Avma);
        if event.bits & abi::event_bits::STATUS_UPDATE != 0 {
            return; // of PSB+
        }
        let known = |ip| (event.bits & abi::event_bits::IP_SUPPRESSED == 0).then_some(ip);
        let at = offset(decoder, run);
        self.pause(run, at);
        if event.kind == abi::event::OVERFLOW {
            self.lose_packets(at); // the lost packets are of before the event
        }
        if event.bits & abi::event_bits::HAS_TSC != 0 && self.context.has_times() {
            self.now = self.clock.ns(event.tsc);
        }
        match event.kind {
            abi::event::ENABLED => {
                self.attribute(decoder);
                self.arrive(first, at);
            }
            abi::event::DISABLED => self.disabled(known(first), at),
            abi::event::ASYNC_DISABLED => {
                self.reach(first);
                self.end_async(first, known(second), at);
            }
            abi::event::ASYNC_BRANCH => {
                self.reach(first);
                if self.end_async(first, Some(second), at) {
                    self.arrive(second, at);
                }
            }
            abi::event::OVERFLOW => {
                if let Some(ip) = known(first) {
                    self.arrive(ip, at);
                }
            }
            _ => (),
        }
    }

    /// Tracing is off, and packets have been read up to `at`: the kernel may have lost data before.
    fn pause(&mut self, run: &Run<'_>, at: AuxOffset) {
        let lost = run.pauses.iter().find(|pause| (self.paused..at).contains(*pause));
        if let (State::Off, Some(pause)) = (self.state, lost) {
            self.paused = pause.plus(1);
            self.lose(self.truncation_cause(), *pause, false);
        }
    }

    /// Tracing ended with the last instruction, which left the traced code.
    fn disabled(&mut self, to: Option<Avma>, at: AuxOffset) {
        match self.state {
            State::On(Some(Left { insn, .. })) => {
                let kind = end_kind(&insn).unwrap_or(EndKind::FallThrough);
                let from = self.site(&insn);
                self.push(self.now, at, Transfer::End { kind, from, to });
            }
            State::On(None) | State::Synchronised { .. } => {
                // libipt has not said which instruction.
                self.lose(GapCause::Desync { ip: to.unwrap_or_default() }, at, false);
                self.close_gap(self.running, self.now);
            }
            State::Lost(_) => self.close_gap(self.running, self.now),
            State::Off => (),
        }
        self.state = State::Off;
    }

    /// An interrupt, fault or signal at `from`; false if execution was not known.
    fn end_async(&mut self, from: Avma, to: Option<Avma>, at: AuxOffset) -> bool {
        let is_on = matches!(self.state, State::On(_));
        if is_on {
            let from = Site { ip: from, function: self.target(from).function, len: 0 };
            self.push(self.now, at, Transfer::End { kind: EndKind::Async(AsyncCause::Unknown), from, to });
            self.state = State::Off;
        }
        is_on
    }

    /// Execution starts, or is known again, at `ip`.
    fn arrive(&mut self, ip: Avma, at: AuxOffset) {
        let after_gap = matches!(self.state, State::Lost(_));
        if after_gap {
            self.close_gap(self.running, self.now);
        }
        self.direct = 0;
        self.open_stretch();
        if !self.running.is_known() {
            self.state = State::Off;
            return self.lose(GapCause::UnknownThread, at, true);
        }
        let to = self.target(ip);
        self.push(self.now, at, Transfer::Start { to, after_gap });
        self.state = State::On(None);
    }

    /// Finds out which thread runs now, and in which address space.
    fn attribute(&mut self, decoder: &InsnDecoder<'_>) {
        self.attribute_at(self.now);
        decoder.memory().set_space(self.space);
    }

    fn attribute_at(&mut self, now: Ns) {
        self.now = now;
        let before = self.running;
        self.running = self.owner.at(now);
        self.on_cpu = OnCpu::around(self.context, self.running, now);
        self.space = self.context.code.space(self.running.pid, now.max(self.running.from));
        if let State::Lost(lost) = &mut self.state {
            lost.before = lost.before.or(Some(before));
        }
    }

    /// What follows is the running thread's.
    fn open_stretch(&mut self) {
        let (running, space) = (self.running, self.space);
        if !self.stretches.last().is_some_and(|last| last.is_of(running, space)) {
            self.stretches.push(Stretch::new(running, space, self.now));
        }
    }

    fn push(&mut self, at_time: Ns, at: AuxOffset, transfer: Transfer) {
        if self.stretches.is_empty() {
            self.open_stretch();
        }
        let time = self.on_cpu.time(at_time);
        if let Some(stretch) = self.stretches.last_mut() {
            stretch.push(TraceEvent::Branch(BranchEvent { time, at, transfer }));
        }
    }

    fn target(&self, ip: Avma) -> Target {
        self.functions.target(self.space, ip)
    }

    fn site(&self, insn: &Insn) -> Site {
        let ip = Avma(insn.ip);
        Site { ip, function: self.target(ip).function, len: insn.size }
    }

    /// libipt cannot go on: until the next PSB nothing is known.
    fn fail(&mut self, decoder: &InsnDecoder<'_>, run: &Run<'_>, code: i32, insn: &Insn) {
        let last = match self.state {
            State::On(Some(left)) => Avma(left.insn.ip),
            _ => Avma(insn.ip),
        };
        let here = if insn.ip == 0 { last } else { Avma(insn.ip) };
        let cause = match (code, decoder.memory().missing()) {
            (abi::error::BAD_OPC | abi::error::BAD_PACKET, _) => GapCause::DamagedPacket,
            (abi::error::NOMAP, Some(NoCode::MissingObject(object))) => GapCause::MissingCode { object },
            (abi::error::NOMAP, _) => GapCause::UnmappedCode { ip: here },
            (abi::error::BAD_INSN, _) => GapCause::UnknownInstruction { ip: here },
            _ => GapCause::Desync { ip: last },
        };
        self.lose(cause, offset(decoder, run), true);
    }
}

/// How far the packets of a run have been read.
fn offset(decoder: &InsnDecoder<'_>, run: &Run<'_>) -> AuxOffset {
    run.start.plus(decoder.offset())
}
