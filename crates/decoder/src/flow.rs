//! Packets to transfers: one segment, packet by packet.
//!
//! ```text
//!              PGE                     TNT TIP FUP            PGD, far TIP into the kernel
//!   Off/Kernel -----> Start ... On ------------------> ... End -----> Off/Kernel
//!   any --OVF, damage, contradiction, no code--> Lost --an address that is certain--> Gap, Start
//! ```

mod ahead;
mod common;
mod events;
mod kernel;
mod loss;
mod sync;
mod tail;

use events::{Fup, FupUse, Interruption};
use loss::Lost;
use model::{AsyncCause, AuxOffset, Avma, GapCause, IpFilter, Ns, SpaceId};
use packet::{IpPayload, LastIp, Packet, PacketError, Tnt};

use crate::Context;
use crate::block::BlockId;
use crate::clock::{Clock, CrystalRatio, Marks, Slot};
use crate::errata::Errata;
use crate::output::Moment;
use crate::owner::{Owner, Running};
use crate::reader::{Item, Reader};
use crate::return_stack::ReturnStack;
use crate::segment::Segment;
use crate::segment_decoder::{Known, SegmentOutput};
use crate::walk::{Step, Walk};

/// The longest segment that is decoded: its events are in memory until it ends.  Far above the longest PSB period
/// that processors have, so what is longer has lost its PSBs.
const MAX_BYTES: u64 = 1 << 24;

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
    /// In a virtual machine, whose code we do not have.
    Guest,
    Lost(Lost),
}

/// Decodes one segment.
pub(crate) fn decode_segment(
    context: &Context<'_>,
    crystal: Option<CrystalRatio>,
    known: &mut Known,
    segment: &Segment<'_>,
) -> SegmentOutput {
    let marks = std::mem::take(&mut known.marks);
    let mut flow = Flow::new(context, crystal, known, marks, segment);
    flow.run();
    let (output, marks) = flow.finish();
    known.marks = marks;
    output
}

struct Flow<'a> {
    context: &'a Context<'a>,
    segment: &'a Segment<'a>,
    reader: Reader<'a>,
    next_truncation: usize,
    /// Behind this offset nothing is read but the next segment's PSB+.
    stop: AuxOffset,
    /// Reading went on at the end already.
    sought_end: bool,
    /// The last MODE.Exec: 64-bit code.
    long_mode: bool,
    clock: Clock,
    owner: Owner<'a>,
    running: Running,
    walk: Walk<'a>,
    state: State,
    last_ip: LastIp,
    fup: Option<Fup>,
    fup_use: FupUse,
    /// The last PIP: a virtual machine runs.
    guest: bool,
    errata: Errata,
    /// The last flow packet.
    flow_slot: Slot,
    /// The last flow packet was a TNT: nothing says yet when its last branch was.
    open_tnt: bool,
    /// No timing packet has come since the last TNT: TIPs may have waited for it to be sent.
    behind_tnt: bool,
    /// What the branches of the last TNT cannot precede: the flow packet before it.
    tnt_lo: Slot,
    /// Inside PSB+: the address of its FUP.
    psb: Option<Option<Avma>>,
    /// The step from the last flow packet to the PSB, if that has a time.
    psb_step: Option<Step>,
    /// Until then it has been said of each thread where its run is doubtful.
    doubted: Ns,
    /// In the next segment's PSB+.
    tail: bool,
    away: kernel::Away,
    /// How often kernel code contradicted the trace.
    kernel_desyncs: u64,
}

impl<'a> Flow<'a> {
    fn new(
        context: &'a Context<'a>,
        crystal: Option<CrystalRatio>,
        known: &'a mut Known,
        marks: Marks,
        segment: &'a Segment<'a>,
    ) -> Self {
        let recording = context.recording;
        let errata = Errata::of(recording.cpu_model);
        let buffer = &recording.buffers[segment.buffer];
        let owner = Owner::new(context, buffer.owner);
        let running = owner.at_start(segment.first);
        let mut clock = Clock::new(&recording.pt, crystal, context.conversion(), context.reference(), marks);
        if let Some((_, end)) = recording.time_span {
            clock.bound(end);
        }
        let start_slot = clock.slot(0);
        Self {
            context,
            segment,
            reader: Reader::new(&segment.pieces, errata.skd007),
            next_truncation: 0,
            stop: segment.end.min(segment.start().plus(MAX_BYTES)),
            sought_end: false,
            clock,
            owner,
            running,
            walk: Walk {
                context,
                graph: &mut known.graph,
                effects: &mut known.effects,
                space: SpaceId::default(),
                block: BlockId::NONE,
                stack: ReturnStack::new(),
                at_return: BlockId::NONE,
                filter: IpFilter::parse(&recording.ip_filter),
                own_calls: false,
                tnt: Tnt::default(),
                first_bit: None,
                work: 0,
                output: &mut known.output,
            },
            state: State::Unsynced,
            last_ip: LastIp::default(),
            fup: None,
            fup_use: FupUse::default(),
            guest: false,
            errata,
            flow_slot: start_slot,
            open_tnt: false,
            behind_tnt: false,
            tnt_lo: start_slot,
            psb: None,
            psb_step: None,
            doubted: Ns(0),
            tail: false,
            away: kernel::Away::default(),
            kernel_desyncs: 0,
            long_mode: true,
        }
    }

    fn run(&mut self) {
        if self.segment.first && !self.reader.starts_with_psb() {
            self.lose(GapCause::NoSync, self.segment.start(), true);
            self.reader.resync_here();
        }
        loop {
            self.common();
            let offset = self.reader.offset();
            let truncation = self.segment.truncations.get(self.next_truncation).copied();
            if truncation.is_some_and(|at| at <= offset) {
                self.truncated(offset);
                continue;
            }
            if offset > self.stop && !self.tail {
                if self.sought_end {
                    return; // pieces that contradict each other
                }
                // Damage swallowed the next segment's PSB (or all of them): end where it starts.
                self.lose(GapCause::DamagedPacket, offset, true);
                self.seek_end();
                continue;
            }
            match self.reader.next() {
                None => return,
                Some(Item::Packet(at, _)) if at != offset => {
                    if self.tail {
                        return;
                    }
                    self.hole(at);
                }
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
                        && self.segment.truncations.last().is_some_and(|last| *last > at);
                    let cause = if ends { self.truncation_cause() } else { GapCause::DamagedPacket };
                    self.lose(cause, at, true);
                    self.reader.resync();
                }
            }
        }
    }

    fn seek_end(&mut self) {
        self.sought_end = true;
        self.stop = self.segment.end;
        self.read_from(self.segment.end);
    }

    /// Reads on at `offset`, which may lie before the next packet.
    fn read_from(&mut self, offset: AuxOffset) {
        self.reader = Reader::new(&self.segment.pieces, self.errata.skd007);
        self.reader.seek(offset);
    }

    /// Handles one packet; false if the segment ends with it.
    #[inline]
    fn packet(&mut self, at: AuxOffset, packet: Packet) -> bool {
        match packet {
            Packet::Tnt(tnt) => self.tnt(at, tnt),
            Packet::Cyc(cycles) => self.cyc(cycles),
            Packet::Tip(ip) => self.tip(at, ip),
            Packet::Mtc(ctc) => {
                if std::mem::take(&mut self.open_tnt) {
                    self.clock.slot(self.walk.work); // MTC forces TNT out: its branches happened before
                }
                self.clock.mtc(ctc);
                self.behind_tnt = false;
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
                if self.tail {
                    self.settle_clock();
                }
                return !self.tail;
            }
            Packet::Ovf if self.tail => return false,
            Packet::Ovf => self.overflow(at),
            Packet::Tsc(tsc) => {
                if self.psb.is_some() && matches!(self.state, State::On) {
                    // What ran before the PSB ran before this.
                    let slot = self.clock.slot_before_anchor(self.walk.work);
                    self.psb_step = Some(self.step_to(slot, at));
                }
                self.clock.tsc(tsc, self.psb.is_some());
                self.behind_tnt = false;
                self.resolved();
            }
            Packet::Tma { ctc, fast } => self.clock.tma(ctc, fast),
            Packet::Cbr(ratio) => self.clock.cbr(ratio),
            _ => {
                if let Packet::ModeExec { long, .. } = packet {
                    self.long_mode = long;
                }
                self.event(packet);
            }
        }
        true
    }

    /// A slot for the flow packet at hand, and the step from the last one to it.
    #[inline]
    fn step(&mut self, at: AuxOffset) -> Step {
        let slot = self.clock.slot(self.walk.work);
        self.step_to(slot, at)
    }

    /// The step from the last flow packet to the one at hand.
    ///
    /// Where no time stands between, the packet may have forced out the TNT before it: what ran since the TNT's last
    /// bit is among its branches.
    #[inline]
    fn step_to(&mut self, slot: Slot, at: AuxOffset) -> Step {
        let lo = if self.behind_tnt { self.tnt_lo } else { self.flow_slot };
        self.flow_slot = slot;
        (self.open_tnt, self.behind_tnt) = (false, false);
        Step { lo, own: slot, slot, at }
    }

    /// The step for a TIP that may have waited for the TNT before it to be sent (SDM, "Deferred TIPs"): its branch is
    /// among those of the TNT, and has no time of its own.
    fn among_tnt(&self, at: AuxOffset) -> Step {
        Step { lo: self.tnt_lo, own: self.tnt_lo, slot: self.flow_slot.next(), at }
    }

    /// A packet of code that is skipped: what was deferred to the last TNT of code that is not was before it.
    fn end_waiting(&mut self, at: AuxOffset) {
        if self.open_tnt {
            self.step(at);
        }
    }

    /// Goes on with what a step gave.
    #[inline]
    fn check(&mut self, walked: Result<(), GapCause>, at: AuxOffset) {
        match walked {
            Ok(()) => (),
            Err(cause) if self.in_kernel() => self.skip_kernel(cause),
            Err(cause) => self.lose(cause, at, true),
        }
    }

    #[inline]
    fn cyc(&mut self, cycles: u64) {
        self.clock.cyc(cycles);
        self.behind_tnt = false;
    }

    #[inline]
    fn tnt(&mut self, at: AuxOffset, tnt: Tnt) {
        self.fup = None;
        self.fup_use = FupUse::default();
        self.still_lost(true);
        if matches!(self.state, State::Kernel) {
            self.end_waiting(at);
        }
        if matches!(self.state, State::On) {
            self.follow_tnt(at, tnt);
        }
    }

    fn tip(&mut self, at: AuxOffset, payload: IpPayload) {
        let ip = self.last_ip.expand(payload).map(Avma);
        let fup = self.fup.take().and_then(|fup| fup.of_tip(ip));
        self.fup_use = FupUse::default();
        match (self.state, ip) {
            (State::On, Some(ip)) => {
                let Some(Fup { ip: from, interruption, .. }) = fup else {
                    self.follow_tip(at, ip);
                    return;
                };
                self.clock.progress(1);
                // FUP forces TNT and all deferred TIPs out (SDM, "Deferred TIPs"): the TIP behind one has not waited.
                let step = self.step(at);
                let walked = match interruption {
                    Interruption::Event(cause) => {
                        self.walk.follow_async(step, cause, from, Some(ip)).map(|()| true)
                    }
                    Interruption::Abort => {
                        self.walk.follow_abort(step, from, ip, self.errata.bdm64).map(|()| false)
                    }
                };
                self.clock.reached(step.slot, self.walk.work);
                self.arrived(step, ip, walked);
            }
            (State::On, None) => {
                let ip = self.walk.position().ip;
                self.check(Err(GapCause::Desync { ip }), at);
            }
            (State::Kernel, Some(ip)) if !ip.is_kernel() => {
                self.clock.discontinuity();
                let step = self.step(at);
                self.arrive(step, ip, true);
            }
            (State::Lost(_), Some(ip)) => {
                self.still_lost(false);
                let step = self.step(at);
                self.recover(step, ip);
            }
            (State::Kernel, _) => self.end_waiting(at),
            _ => (),
        }
    }

    /// A TIP went to `ip`: goes on with what following it gave, and whether it was a far transfer.
    fn arrived(&mut self, step: Step, ip: Avma, walked: Result<bool, GapCause>) {
        match walked {
            Ok(true) => self.far(step, ip),
            Ok(false) => {
                self.walk.first_bit.get_or_insert(self.walk.work);
                let walked = self.walk.follow_tnt(step);
                self.check(walked, step.at);
            }
            Err(cause) if self.in_kernel() => {
                self.skip_kernel(cause);
                if !ip.is_kernel() {
                    self.arrive(step, ip, true);
                }
            }
            Err(cause) => {
                self.lose(cause, step.at, true);
                self.recover(step, ip);
            }
        }
    }

    fn pge(&mut self, at: AuxOffset, payload: IpPayload) {
        self.fup = None;
        self.fup_use = FupUse::default();
        let Some(ip) = self.last_ip.expand(payload).map(Avma) else { return };
        if matches!(self.state, State::On) {
            // The end of the last stretch is missing.
            let before = self.walk.position().ip;
            self.lose(GapCause::Desync { ip: before }, at, false);
        }
        self.clock.discontinuity();
        let step = self.step(at);
        self.arrive(step, ip, true);
        if matches!(self.state, State::Kernel) && self.context.recording.pt.has_ip_filter {
            self.skipped_start(step, ip);
        }
    }

    fn pgd(&mut self, at: AuxOffset, payload: IpPayload) {
        let ip = self.last_ip.expand(payload).map(Avma);
        let fup = self.fup.take();
        self.fup_use = FupUse::default();
        match self.state {
            State::On => {
                self.clock.progress(1);
                let step = self.step(at);
                self.clock.discontinuity();
                let in_kernel = self.in_kernel();
                let desync =
                    (!self.walk.tnt.is_empty()).then(|| GapCause::Desync { ip: self.walk.position().ip });
                let walked = match (desync, fup) {
                    (Some(cause), _) => Err(cause),
                    (None, Some(fup)) => self.interrupted(step, fup, ip),
                    (None, None) => self.walk.follow_end(step, ip),
                };
                self.clock.reached(step.slot, self.walk.work);
                if self.walk.own_calls && !in_kernel && walked.is_ok() {
                    self.leave_user();
                }
                if in_kernel {
                    // The kernel writes its switch records around those to the trace unit's registers.
                    walked.unwrap_or_else(|cause| self.skip_kernel(cause));
                } else if let Err(cause) = walked {
                    self.lose(cause, at, true);
                    self.close_gap(step, self.running);
                } else if self.running.to < self.clock.now_lo() {
                    // The switch records say that the thread had left before: whose code this was is not sure.
                    let moment = Moment::At(step.slot);
                    self.walk.output.gap(moment, moment, 0, at, GapCause::UnknownThread);
                }
                self.state = State::Off;
            }
            // Behind OVF it is APL11, or behind a FUP that SKD010 has lost.
            State::Lost(lost) if lost.cause != self.truncation_cause() => {
                self.still_lost(false);
                let step = self.step(at);
                self.close_gap(step, self.running);
                self.state = State::Off;
                self.forget_calls();
            }
            State::Lost(_) => (),
            State::Kernel | State::Guest | State::Off | State::Unsynced => {
                if self.away.in_filter() {
                    let step = self.step(at);
                    self.skipped_end(step, ip);
                }
                self.clock.discontinuity();
                self.state = State::Off;
            }
        }
    }

    /// Follows a FUP and TIP.PGD.
    fn interrupted(&mut self, step: Step, fup: Fup, to: Option<Avma>) -> Result<(), GapCause> {
        let cause = match fup.interruption {
            Interruption::Event(cause) => cause,
            Interruption::Abort => AsyncCause::Unknown,
        };
        if self.errata.skd022 && self.walk.is_vm_entry(fup.ip) {
            return self.walk.follow_end(step, to);
        }
        self.walk.follow_async(step, cause, fup.ip, to)
    }

    fn fup(&mut self, at: AuxOffset, payload: IpPayload) {
        let ip = self.last_ip.expand(payload).map(Avma);
        if let Some(psb_ip) = &mut self.psb {
            if !self.reader.tracing_starts_behind_psb_plus() {
                *psb_ip = ip;
            }
            return;
        }
        let fup_use = std::mem::take(&mut self.fup_use);
        let Some(ip) = ip else { return };
        if let State::Lost(Lost { overflowed: true, fup_is_late, .. }) = self.state {
            if self.reader.tracing_is_off() {
                return;
            }
            // Behind OVF: execution goes on here.
            if fup_is_late {
                self.still_lost(false);
            }
            let step = self.step(at);
            self.recover(step, ip);
            if !fup_is_late {
                return; // OVF's own
            }
        }
        if matches!(self.state, State::On) && !self.walk.tnt.is_empty() {
            // FUP forces TNT and all deferred TIPs out (SDM, "Deferred TIPs"): no bit is left before one.
            let ip = self.walk.position().ip;
            self.lose(GapCause::Desync { ip }, at, true);
        }
        let (interruption, may_be_ovf) = match fup_use {
            FupUse::Bound => return,
            FupUse::Interruption(interruption) => (interruption, false),
            FupUse::BehindPsb(psb_ip) => (Interruption::Event(AsyncCause::Unknown), psb_ip == ip),
        };
        self.fup = Some(Fup { ip, interruption, may_be_ovf });
    }

    fn finish(mut self) -> (SegmentOutput, Marks) {
        let recording_end = self.context.recording.time_span.map(|(_, last)| last);
        self.lost_at_the_end();
        // Any time may pass behind the last packet before what it stands for is over.
        self.clock.discontinuity();
        self.clock.slot(self.walk.work);
        self.clock.finish(recording_end);
        let output = SegmentOutput {
            overflows: std::mem::take(&mut self.walk.output.overflows),
            clock_errors: self.clock.errors,
            kernel_desyncs: self.kernel_desyncs,
            stretches: self.walk.output.finish(&self.clock, self.walk.effects),
        };
        (output, self.clock.into_marks())
    }
}
