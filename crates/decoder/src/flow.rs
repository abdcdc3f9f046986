//! Packets to transfers: one segment, packet by packet.
//!
//! ```text
//!              PGE                     TNT TIP FUP            PGD, far TIP into the kernel
//!   Off/Kernel -----> Start ... On ------------------> ... End -----> Off/Kernel
//!   any --OVF, damage, contradiction, no code--> Lost --an address that is certain--> Gap, Start
//! ```

use model::{AuxOffset, Avma, GapCause, Ns, SpaceId, Transfer, TscClock};
use packet::{IpPayload, LastIp, Packet, PacketError, Tnt};

use crate::Context;
use crate::block::BlockId;
use crate::clock::{Clock, Slot};
use crate::graph::BlockGraph;
use crate::output::{Moment, Output, Stretch};
use crate::owner::{Owner, Running};
use crate::reader::{Item, Reader};
use crate::return_stack::ReturnStack;
use crate::segment::Segment;
use crate::walk::{Step, Walk};

/// A thread runs no code of its own in this time after its switch-in record.
const SWITCH_NS: u64 = 500;

/// What a segment's decoding gave.
pub(crate) struct SegmentOutput {
    pub(crate) stretches: Vec<Stretch>,
    pub(crate) overflows: u64,
    pub(crate) clock_errors: u64,
}

/// What is known of execution.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Nothing yet: before the end of the first PSB+.
    Unsynced,
    /// Tracing is off: in the kernel, or outside the IP filter.
    Off,
    /// In code that we follow, at `Walk::block`.
    On,
    /// In traced kernel code whose text we do not have.
    Kernel,
    Lost(Lost),
}

#[derive(Clone, Copy, Debug)]
struct Lost {
    cause: GapCause,
    from: Slot,
    at: AuxOffset,
    /// The bytes since `at` are not decoded,
    skips: bool,
    /// up to the next PSB.
    psb: Option<AuxOffset>,
    /// When packets were whole again, if that was before execution was known again.
    resolved: Option<(Slot, Ns)>,
}

impl Lost {
    /// How many bytes are not decoded if those from `end` on are.
    fn bytes_until(&self, end: AuxOffset) -> u64 {
        if self.skips { self.psb.unwrap_or(end).0.saturating_sub(self.at.0) } else { 0 }
    }
}

/// What the next FUP belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FupUse {
    /// The source of an asynchronous event, if TIP or TIP.PGD follows.
    Async,
    /// An event packet before it: it says where that happened.
    Bound,
}

/// Decodes one segment.
pub(crate) fn decode_segment(
    context: &Context<'_>,
    graph: &mut BlockGraph,
    segment: &Segment<'_>,
) -> SegmentOutput {
    let mut flow = Flow::new(context, graph, segment);
    flow.run();
    flow.finish()
}

struct Flow<'a> {
    context: &'a Context<'a>,
    segment: &'a Segment<'a>,
    reader: Reader<'a>,
    /// Offsets behind which the kernel lost data, ascending.
    truncations: Vec<AuxOffset>,
    next_truncation: usize,
    clock: Clock,
    owner: Owner<'a>,
    running: Running,
    walk: Walk<'a>,
    state: State,
    last_ip: LastIp,
    fup: Option<Avma>,
    fup_use: FupUse,
    /// The last flow packet.
    flow_slot: Slot,
    /// The one before it that the next one's events cannot precede.
    flow_lo: Slot,
    /// The last flow packet was a TNT; whether it was full.
    last_tnt: Option<bool>,
    /// TNT packets are long.
    long_tnt: bool,
    /// The flow packet before the one whose TNT bits are pending.
    tnt_lo: Slot,
    /// Inside PSB+: the address of its FUP.
    psb: Option<Option<Avma>>,
    /// The step from the last flow packet to the PSB, if that has a time.
    psb_step: Option<Step>,
    /// In the next segment's PSB+.
    tail: bool,
}

impl<'a> Flow<'a> {
    fn new(context: &'a Context<'a>, graph: &'a mut BlockGraph, segment: &'a Segment<'a>) -> Self {
        let recording = context.recording;
        let conversion = recording.clock.unwrap_or(TscClock { shift: 0, mult: 1, zero: 0 });
        let reference = conversion.to_tsc(recording.time_span.map_or(Ns(0), |(first, _)| first));
        let buffer = &recording.buffers[segment.buffer];
        let start = segment.start();
        let lost = buffer.records.iter().filter(|r| r.lost_data()).map(|r| r.end());
        let mut truncations: Vec<_> = lost.filter(|at| (start..=segment.end).contains(at)).collect();
        truncations.retain(|at| *at > start || segment.first);
        let owner = Owner::new(context, buffer.owner);
        let running = owner.at(Ns(0), || Ns(0));
        let mut clock = Clock::new(&recording.pt, conversion, reference);
        let start_slot = clock.slot();
        Self {
            context,
            segment,
            reader: Reader::new(&segment.pieces),
            truncations,
            next_truncation: 0,
            clock,
            owner,
            running,
            walk: Walk {
                context,
                graph,
                space: SpaceId::default(),
                block: BlockId::NONE,
                stack: ReturnStack::new(),
                tnt: Tnt::default(),
                output: Output::default(),
            },
            state: State::Unsynced,
            last_ip: LastIp::default(),
            fup: None,
            fup_use: FupUse::Async,
            flow_slot: start_slot,
            flow_lo: start_slot,
            last_tnt: None,
            long_tnt: false,
            tnt_lo: start_slot,
            psb: None,
            psb_step: None,
            tail: false,
        }
    }

    fn run(&mut self) {
        if self.segment.first && !self.reader.starts_with_psb() {
            self.lose(GapCause::NoSync, self.segment.start(), true);
            self.reader.resync_here();
        }
        loop {
            let offset = self.reader.offset();
            let truncation = self.truncations.get(self.next_truncation).copied();
            if truncation.is_some_and(|at| at <= offset) {
                self.truncated(offset);
                continue;
            }
            if offset > self.segment.end && !self.tail {
                // Damage swallowed the next segment's PSB: end where it starts.
                self.lose(GapCause::DamagedPacket, offset, true);
                self.seek_end();
                continue;
            }
            match self.reader.next() {
                None => return,
                Some(Item::Packet(at, _)) if truncation.is_some_and(|t| t < self.reader.offset()) => {
                    // The packet's end was lost: what stands there belongs to another one.
                    self.truncated(at);
                }
                Some(Item::Packet(at, packet)) => {
                    if !self.packet(at, packet) {
                        return;
                    }
                }
                Some(Item::Bad(_, _)) if self.tail => return,
                Some(Item::Bad(at, error)) => {
                    let ends = error == PacketError::Truncated
                        && self.truncations.last().is_some_and(|last| *last > at);
                    let cause = if ends { GapCause::Truncated } else { GapCause::DamagedPacket };
                    self.lose(cause, at, true);
                    self.reader.resync();
                }
            }
        }
    }

    fn seek_end(&mut self) {
        self.reader = Reader::new(&self.segment.pieces);
        self.reader.seek(self.segment.end);
    }

    /// Handles one packet; false if the segment ends with it.
    #[inline]
    fn packet(&mut self, at: AuxOffset, packet: Packet) -> bool {
        match packet {
            Packet::Tnt(tnt) => self.tnt(at, tnt),
            Packet::Cyc(cycles) => self.clock.cyc(cycles),
            Packet::Tip(ip) => self.tip(at, ip),
            Packet::Mtc(ctc) => {
                self.clock.mtc(ctc);
                self.resolved();
            }
            Packet::Pad => (),
            Packet::TipPge(ip) => self.pge(at, ip),
            Packet::TipPgd(ip) => self.pgd(at, ip),
            Packet::Fup(ip) => self.fup(at, ip),
            Packet::Psb => {
                self.tail = at >= self.segment.end && !self.segment.last;
                self.psb(at);
            }
            Packet::PsbEnd => {
                self.psb_end(at);
                return !self.tail;
            }
            Packet::Ovf if self.tail => return false,
            Packet::Ovf => self.overflow(at),
            Packet::Tsc(tsc) => {
                if self.psb.is_some() && matches!(self.state, State::On) {
                    // What ran before the PSB ran before this.
                    let stands_still = self.clock.stands_still();
                    let slot = self.clock.slot_before_anchor();
                    self.psb_step = Some(self.step_to(slot, stands_still, at));
                }
                self.clock.tsc(tsc);
                self.resolved();
            }
            Packet::Tma { ctc, fast } => self.clock.tma(ctc, fast),
            Packet::Cbr(ratio) => self.clock.cbr(ratio),
            // PSB+ repeats MODE.TSX; its FUP is its own.
            Packet::ModeTsx { aborted: false, .. }
            | Packet::Ptw { ip: true, .. }
            | Packet::Exstop { ip: true }
            | Packet::Bep { ip: true }
                if self.psb.is_none() =>
            {
                self.fup_use = FupUse::Bound;
            }
            _ => (),
        }
        true
    }

    /// A slot for the flow packet at hand, and the step from the last one to it.
    #[inline]
    fn step(&mut self, at: AuxOffset) -> Step {
        let stands_still = self.clock.stands_still();
        let slot = self.clock.slot();
        self.step_to(slot, stands_still, at)
    }

    /// The step from the last flow packet to the one at hand.
    ///
    /// A TNT packet that is not full was forced out by the packet at hand: what ran since its last bit may have run
    /// before its own time.
    #[inline]
    fn step_to(&mut self, slot: Slot, stands_still: bool, at: AuxOffset) -> Step {
        let forced = match self.last_tnt.take() {
            Some(full) => !full || stands_still,
            None => false,
        };
        if !forced {
            self.flow_lo = self.flow_slot;
        }
        self.flow_slot = slot;
        Step { lo: self.flow_lo, slot, at }
    }

    /// Goes on with what a step gave.
    #[inline]
    fn check(&mut self, walked: Result<(), GapCause>, at: AuxOffset) {
        if let Err(cause) = walked {
            self.lose(cause, at, true);
        }
    }

    fn tnt(&mut self, at: AuxOffset, tnt: Tnt) {
        self.fup = None;
        if !matches!(self.state, State::On) {
            return;
        }
        self.clock.progress(u64::from(tnt.len()));
        let step = self.step(at);
        if !self.walk.tnt.is_empty() {
            let ip = self.walk.position().ip;
            return self.lose(GapCause::Desync { ip }, at, true);
        }
        self.walk.tnt = tnt;
        self.tnt_lo = step.lo;
        self.long_tnt |= tnt.len() > Tnt::SHORT_MAX;
        self.last_tnt = Some(tnt.len() == if self.long_tnt { Tnt::LONG_MAX } else { Tnt::SHORT_MAX });
        let walked = self.walk.follow_tnt(step);
        self.check(walked, at);
    }

    fn tip(&mut self, at: AuxOffset, payload: IpPayload) {
        let ip = self.last_ip.expand(payload).map(Avma);
        let fup = self.fup.take();
        match (self.state, ip) {
            (State::On, Some(ip)) => {
                self.clock.progress(1);
                let mut step = self.step(at);
                if !self.walk.tnt.is_empty() {
                    step.lo = self.tnt_lo;
                }
                let walked = match fup {
                    Some(from) => self.walk.follow_async(step, from, Some(ip)).map(|()| true),
                    None => self.walk.follow_tip(step, ip),
                };
                match walked {
                    Ok(true) => self.arrive(step, ip, false),
                    Ok(false) => {
                        let walked = self.walk.follow_tnt(step);
                        self.check(walked, at);
                    }
                    Err(cause) => {
                        self.lose(cause, at, true);
                        self.recover(step, ip);
                    }
                }
            }
            (State::On, None) => {
                let ip = self.walk.position().ip;
                self.lose(GapCause::Desync { ip }, at, true);
            }
            (State::Kernel, Some(ip)) if !ip.is_kernel() => {
                self.clock.discontinuity();
                let step = self.step(at);
                self.arrive(step, ip, true);
            }
            (State::Lost(_), Some(ip)) => {
                let step = self.step(at);
                self.recover(step, ip);
            }
            _ => (),
        }
    }

    fn pge(&mut self, at: AuxOffset, payload: IpPayload) {
        self.fup = None;
        let Some(ip) = self.last_ip.expand(payload).map(Avma) else { return };
        if matches!(self.state, State::On) {
            // The end of the last stretch is missing.
            let before = self.walk.position().ip;
            self.lose(GapCause::Desync { ip: before }, at, false);
        }
        self.clock.discontinuity();
        let step = self.step(at);
        self.arrive(step, ip, true);
    }

    fn pgd(&mut self, at: AuxOffset, payload: IpPayload) {
        let ip = self.last_ip.expand(payload).map(Avma);
        let fup = self.fup.take();
        match self.state {
            State::On => {
                self.clock.progress(1);
                let step = self.step(at);
                self.clock.discontinuity();
                let desync =
                    (!self.walk.tnt.is_empty()).then(|| GapCause::Desync { ip: self.walk.position().ip });
                let walked = match (desync, fup) {
                    (Some(cause), _) => Err(cause),
                    (None, Some(from)) => self.walk.follow_async(step, from, ip),
                    (None, None) => self.walk.follow_end(step, ip),
                };
                if let Err(cause) = walked {
                    self.lose(cause, at, true);
                    self.close_gap(step, self.running);
                } else if self.running.to < self.clock.now_lo() {
                    // The switch records say that the thread had left before: whose code this was is not sure.
                    let moment = Moment::At(step.slot);
                    self.walk.output.gap(moment, moment, 0, at, GapCause::UnknownThread);
                }
                self.state = State::Off;
            }
            State::Lost(lost) if !matches!(lost.cause, GapCause::Overflow | GapCause::Truncated) => {
                let step = self.step(at);
                self.close_gap(step, self.running);
                self.state = State::Off;
            }
            State::Lost(_) => (),
            State::Kernel | State::Off | State::Unsynced => {
                self.clock.discontinuity();
                self.state = State::Off;
            }
        }
    }

    fn fup(&mut self, at: AuxOffset, payload: IpPayload) {
        let ip = self.last_ip.expand(payload).map(Avma);
        if let Some(psb_ip) = &mut self.psb {
            *psb_ip = ip;
            return;
        }
        if std::mem::replace(&mut self.fup_use, FupUse::Async) == FupUse::Bound {
            return;
        }
        match self.state {
            // Behind OVF: execution goes on here.
            State::Lost(Lost { cause: GapCause::Overflow, .. }) => {
                if let Some(ip) = ip {
                    let step = self.step(at);
                    self.recover(step, ip);
                }
            }
            _ => self.fup = ip,
        }
    }

    fn psb(&mut self, at: AuxOffset) {
        self.fup = None;
        self.fup_use = FupUse::Async;
        self.last_ip.reset();
        if matches!(self.state, State::On) && !self.walk.tnt.is_empty() {
            let ip = self.walk.position().ip;
            self.lose(GapCause::Desync { ip }, at, true);
        }
        if let State::Lost(lost) = &mut self.state {
            lost.psb = lost.psb.or(Some(at));
        }
        self.psb = Some(None);
        self.psb_step = None;
    }

    /// PSB+ is complete: execution is where its FUP says, or tracing is off.
    fn psb_end(&mut self, at: AuxOffset) {
        let Some(ip) = self.psb.take() else { return };
        let before = self.psb_step.take();
        let step = self.step(at);
        match (self.state, ip) {
            (State::Unsynced, Some(ip)) => self.begin(step, ip),
            (State::Unsynced | State::Off | State::Kernel, None) => self.state = State::Off,
            (State::On, Some(ip)) => {
                if let Err(cause) = self.walk.walk_to(before.unwrap_or(step), ip) {
                    self.lose(cause, at, false);
                    self.recover(step, ip);
                }
            }
            (State::Kernel, Some(ip)) if ip.is_kernel() => (),
            (State::Off | State::Kernel, Some(ip)) => {
                self.lose(GapCause::Desync { ip }, at, false);
                self.arrive(step, ip, true);
            }
            (State::On, None) => {
                let ip = self.walk.position().ip;
                self.lose(GapCause::Desync { ip }, at, false);
                self.close_gap(step, self.running);
                self.state = State::Off;
            }
            (State::Lost(_), Some(ip)) => self.arrive(step, ip, true),
            (State::Lost(_), None) => {
                self.close_gap(step, self.running);
                self.state = State::Off;
            }
        }
        self.walk.stack.clear();
    }

    /// The segment starts inside code at `ip`.  Its predecessor ends there, so nothing is emitted unless it has
    /// none.
    fn begin(&mut self, step: Step, ip: Avma) {
        if self.segment.first {
            self.state = State::Off;
            return self.arrive(step, ip, true);
        }
        self.attribute();
        self.walk.output.thread(self.running, self.walk.space, self.clock.now_lo());
        match self.walk.jump_to(ip) {
            Ok(()) => self.state = State::On,
            Err(_) if ip.is_kernel() => self.state = State::Kernel,
            Err(cause) => {
                self.state = State::Off;
                self.lose(cause, step.at, true);
            }
        }
    }

    fn overflow(&mut self, at: AuxOffset) {
        self.psb = None;
        self.fup = None;
        self.fup_use = FupUse::Async;
        self.walk.output.overflows += 1;
        self.walk.stack.clear();
        self.last_ip.reset();
        self.lose(GapCause::Overflow, at, false);
        self.clock.discontinuity();
    }

    /// The kernel lost data behind the next truncation; whole packets end at `offset`.
    fn truncated(&mut self, offset: AuxOffset) {
        let at = self.truncations[self.next_truncation];
        self.next_truncation += 1;
        let whole = offset == at && self.psb.is_none() && self.walk.tnt.is_empty();
        let clean = whole && matches!(self.state, State::Off | State::Kernel);
        self.lose(GapCause::Truncated, offset.min(at), !clean);
        self.clock.discontinuity();
        if !clean {
            self.psb = None;
            self.reader = Reader::new(&self.segment.pieces);
            self.reader.seek(at);
            self.reader.resync_here();
        }
    }

    /// Packets are whole again.
    fn resolved(&mut self) {
        let State::Lost(lost) = &mut self.state else { return };
        if lost.resolved.is_none() && self.psb.is_none() {
            lost.resolved = Some((self.clock.slot(), self.clock.now_lo()));
        }
    }

    /// From here on execution is not known; `skips`: the bytes that follow cannot be used.
    fn lose(&mut self, cause: GapCause, at: AuxOffset, skips: bool) {
        self.walk.tnt = Tnt::default();
        self.fup = None;
        if let State::Lost(lost) = &mut self.state {
            lost.skips |= skips;
            (lost.psb, lost.resolved) = (None, None);
            return;
        }
        let from = match self.state {
            State::On => self.flow_slot,
            _ => self.clock.slot(),
        };
        self.state = State::Lost(Lost { cause, from, at, skips, psb: None, resolved: None });
    }

    /// Lost, and a packet says where execution is: goes on there if there is code.
    fn recover(&mut self, step: Step, ip: Avma) {
        if self.running.is_known() && (ip.is_kernel() || self.walk.jump_to(ip).is_ok()) {
            self.arrive(step, ip, false);
        }
    }

    /// Execution is at `ip` now.  `switched`: another thread may be running.
    fn arrive(&mut self, step: Step, ip: Avma, switched: bool) {
        let before = self.running;
        let space_before = self.walk.space;
        if switched {
            self.attribute();
        }
        let after_gap = matches!(self.state, State::Lost(_));
        if after_gap {
            let now = std::mem::replace(&mut self.running, before);
            let space = std::mem::replace(&mut self.walk.space, space_before);
            self.close_gap(step, now);
            (self.running, self.walk.space) = (now, space);
            self.walk.stack.clear();
        }
        self.state = State::Off;
        if !self.running.is_known() {
            self.walk.output.thread(self.running, self.walk.space, self.clock.now_lo());
            return self.lose(GapCause::UnknownThread, step.at, true);
        }
        match self.walk.jump_to(ip) {
            Ok(()) => {
                self.walk.output.thread(self.running, self.walk.space, self.clock.now_lo());
                let to = self.walk.position();
                let start = Transfer::Start { to, after_gap };
                self.walk.output.transfer(step.slot, step.slot, step.at, start);
                self.state = State::On;
            }
            Err(GapCause::UnmappedCode { .. }) if ip.is_kernel() => self.state = State::Kernel,
            Err(cause) => {
                self.walk.output.thread(self.running, self.walk.space, self.clock.now_lo());
                self.lose(cause, step.at, true);
            }
        }
    }

    /// Finds out who runs now, and in which address space.
    fn attribute(&mut self) {
        self.running = self.owner.at(self.clock.now_lo(), || Ns::MAX);
        let now = self.clock.now_estimate().max(self.running.from);
        self.walk.space = self.context.code.space(self.running.pid, now);
    }

    /// Emits the gap of a `Lost` state, for every thread that may have run in it.  `now`: who runs behind it.
    fn close_gap(&mut self, step: Step, now: Running) {
        let State::Lost(lost) = self.state else { return };
        self.state = State::Off;
        let bytes = lost.bytes_until(step.at);
        let (end, end_lo) = lost.resolved.unwrap_or((step.slot, self.clock.now_lo()));
        let to = Moment::At(end);
        let output = &mut self.walk.output;
        let (before, space) = (self.running, self.walk.space);
        let same = (before.tid, before.from) == (now.tid, now.from);
        if before.is_known() || !now.is_known() || lost.cause == GapCause::UnknownThread {
            output.thread(before, space, self.clock.now_lo());
            let until = if same { to } else { Moment::NotAfter(end, before.to) };
            output.gap(Moment::At(lost.from), until, bytes, lost.at, lost.cause);
        } else {
            output.thread(now, self.context.code.space(now.pid, now.from), self.clock.now_lo());
            return output.gap(Moment::At(lost.from), to, bytes, lost.at, lost.cause);
        }
        if same || lost.cause == GapCause::UnknownThread {
            return;
        }
        for other in self.owner.between(before.to, now.from) {
            let (from, to) = (Moment::Exactly(other.from), Moment::NotAfter(end, other.to));
            if other.from < end_lo {
                output.thread(other, self.context.code.space(other.pid, other.from), other.from);
                output.gap(from, to, 0, lost.at, lost.cause);
            }
        }
        if now.is_known() && end_lo.since(now.from) > SWITCH_NS {
            output.thread(now, self.context.code.space(now.pid, now.from), now.from);
            output.gap(Moment::Exactly(now.from), to, 0, lost.at, lost.cause);
        }
    }

    fn finish(mut self) -> SegmentOutput {
        let recording_end = self.context.recording.time_span.map(|(_, last)| last);
        if let State::Lost(lost) = self.state {
            let bytes = lost.bytes_until(self.reader.offset().min(self.segment.end));
            let to = recording_end.map_or(Moment::At(lost.from), Moment::Exactly);
            let to = if self.segment.last { to } else { Moment::At(self.flow_slot) };
            self.walk.output.thread(self.running, self.walk.space, self.clock.now_lo());
            self.walk.output.gap(Moment::At(lost.from), to, bytes, lost.at, lost.cause);
        }
        self.clock.finish(recording_end);
        SegmentOutput {
            overflows: self.walk.output.overflows,
            clock_errors: self.clock.errors,
            stretches: self.walk.output.finish(&self.clock),
        }
    }
}
