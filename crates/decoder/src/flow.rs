//! Packets to transfers: one segment, packet by packet.
//!
//! ```text
//!              PGE                     TNT TIP FUP            PGD, far TIP into the kernel
//!   Off/Kernel -----> Start ... On ------------------> ... End -----> Off/Kernel
//!   any --OVF, damage, contradiction, no code--> Lost --an address that is certain--> Gap, Start
//! ```

mod ahead;
mod attributed;
mod deferred;
mod events;
mod fast_path;
mod fup;
mod guest;
mod kernel;
mod last_flow;
mod loss;
mod overflow_ip;
mod packets;
mod sync;
mod tail;
mod uprobes;

use attributed::Attributed;
use fup::{Fup, FupUse};
use last_flow::LastFlow;
use loss::Lost;
use model::{AuxOffset, AuxOwner, Avma, GapCause, Ns, PtConfig};
use packet::{IpPayload, LastIp, Packet, PacketError, Tnt};
use uprobes::Uprobes;

use crate::Context;
use crate::clock::{Clock, CrystalRatio, Slot, TimelineRoom};
use crate::errata::Errata;
use crate::owner::{Owner, Running};
use crate::reader::{Item, Reader};
use crate::segment::Segment;
use crate::segment_output::SegmentOutput;
use crate::step::Step;
use crate::walk::Walk;
use crate::work::Work;
use crate::worker_cache::WorkerCache;

/// The longest segment that is decoded: its events are in memory until it ends. Far above the longest PSB
/// period that processors have, so a longer one has lost its PSBs.
const MAX_BYTES: u64 = 1 << 24;

/// What is known of execution.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Nothing yet: before the end of the first PSB+.
    Unsynced,
    /// Tracing is off: in the kernel, or outside the IP filter.
    Off,
    /// In code that we follow, at the block of `Walk::here`.
    On,
    /// In traced kernel code without text.
    Kernel,
    /// In a virtual machine: its code is not at hand.
    Guest,
    Lost(Lost),
}

/// Decodes one segment.
pub(crate) fn decode_segment<W: Work>(
    context: &Context<'_>,
    crystal: Option<CrystalRatio>,
    known: &mut WorkerCache<W>,
    segment: &Segment<'_>,
) -> SegmentOutput {
    let room = std::mem::take(&mut known.timeline);
    let mut flow = Flow::new(context, crystal, known, room, segment);
    flow.run();
    let (output, room) = flow.finish();
    known.timeline = room;
    output
}

struct Flow<'a, W> {
    context: &'a Context<'a>,
    segment: &'a Segment<'a>,
    reader: Reader<'a>,
    next_truncation: usize,
    /// After this offset nothing is read but the next segment's PSB+.
    stop: AuxOffset,
    /// At the end the next PSB was searched already.
    sought_end: bool,
    /// The last MODE.Exec: 64-bit code.
    long_mode: bool,
    clock: Clock,
    owner: Owner<'a>,
    running: Running,
    attributed: Attributed,
    walk: Walk<'a, W>,
    state: State,
    last_ip: LastIp,
    /// Bits; the last ones may wait for a TIP: see [`deferred`].
    waiting: Tnt,
    /// The last TNT, if nothing came that forces out the TIPs that waited for it.
    last_tnt: Tnt,
    fup: Option<Fup>,
    fup_use: FupUse,
    /// The last PIP: a virtual machine runs.
    guest: bool,
    stay: Option<guest::Stay>,
    uprobes: Uprobes,
    errata: Errata,
    last: LastFlow,
    /// Inside of a PSB+: the address of its FUP, if that came. `None`: outside of a PSB+.
    psb: Option<Option<Avma>>,
    /// The step from the last flow packet to the PSB, if that has a time.
    psb_step: Option<Step>,
    /// Up to this time doubtful runs of threads were reported.
    doubted: Ns,
    /// Reads the next segment's PSB+, for the clock alone.
    tail: bool,
    away: kernel::Away,
    /// How often kernel code contradicted the trace.
    kernel_desyncs: u64,
}

impl<'a, W: Work> Flow<'a, W> {
    fn new(
        context: &'a Context<'a>,
        crystal: Option<CrystalRatio>,
        known: &'a mut WorkerCache<W>,
        room: TimelineRoom,
        segment: &'a Segment<'a>,
    ) -> Self {
        let recording = context.recording;
        let errata = Errata::of(recording.cpu_model);
        let buffer = &recording.buffers[segment.buffer];
        let owner = Owner::new(context, buffer);
        let running = owner.at_start(segment.first);
        let pt = PtConfig { tsc: context.has_times(), ..recording.pt };
        let mut clock = Clock::new(&pt, crystal, context.conversion(), context.reference(), room);
        if let Some((start, end)) = recording.time_span {
            clock.bound(start, end);
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
            attributed: Attributed::NOBODY,
            walk: Walk::new(context, known),
            state: State::Unsynced,
            last_ip: LastIp::default(),
            waiting: Tnt::default(),
            last_tnt: Tnt::default(),
            fup: None,
            fup_use: FupUse::default(),
            guest: false,
            stay: None,
            uprobes: Uprobes::new(context.code.has_uprobes_pages()),
            errata,
            last: LastFlow { slot: start_slot, open_tnt: false, after_tnt: false, tnt_lo: start_slot },
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
        if self.segment.first {
            self.reader.skip_padding();
            if self.reader.starts_with_psb() == Some(false) {
                self.lose(GapCause::NoSync, self.reader.offset(), true);
                self.reader.resync_here();
            }
        }
        loop {
            self.fast_path();
            let offset = self.reader.offset();
            if !matches!(self.state, State::Guest) {
                self.end_stay(offset);
            }
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
                    // The packet's end was lost: the bytes there belong to another one.
                    self.truncated(at);
                }
                Some(Item::Packet(at, packet)) => {
                    if !self.packet(at, packet) {
                        return;
                    }
                }
                Some(Item::Bad(_, _)) if self.tail => return,
                Some(Item::Bad(at, _)) if truncation.is_some_and(|t| self.reader.is_cut_at(t)) => {
                    self.truncated(at);
                }
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
            Packet::Tip(payload) => {
                let ip = self.expand(payload);
                self.tip(at, ip);
            }
            Packet::Mtc(ctc) => self.mtc(ctc),
            Packet::Pad => (),
            Packet::TipPge(payload) => {
                let ip = self.expand(payload);
                self.pge(at, ip);
            }
            Packet::TipPgd(payload) => {
                let ip = self.expand(payload);
                self.pgd(at, ip);
            }
            Packet::Fup(payload) => {
                let ip = self.expand(payload);
                self.fup(at, ip);
            }
            Packet::ModeExec { long, .. } => self.mode_exec(long),
            Packet::Psb => {
                self.tail = at >= self.segment.end && !self.segment.last;
                if self.tail {
                    let end = (self.clock.next_slot(), self.clock.counted_cycles());
                    self.walk.output.bounds.end = Some(end);
                }
                self.psb(at);
            }
            Packet::PsbEnd => {
                self.psb_end(at);
                if self.tail {
                    self.cycles_in_psb();
                    self.settle_clock();
                }
                return !self.tail;
            }
            Packet::Ovf if self.tail => return false,
            Packet::Ovf => self.overflow(at),
            Packet::Tsc(_) => {
                if self.psb.is_some() && matches!(self.state, State::On) {
                    // What ran before the PSB ran before this.
                    let slot = self.clock.slot_before_anchor(self.walk.work());
                    self.psb_step = Some(self.step_to(slot, at));
                }
                self.clock.packet(&packet, self.psb.is_some());
                self.last.after_tnt = false;
                self.forced_out();
                self.resolved();
            }
            Packet::Tma { .. } | Packet::Cbr(_) => self.clock.packet(&packet, self.psb.is_some()),
            _ => {
                self.clock.packet(&packet, self.psb.is_some());
                self.event(packet);
            }
        }
        true
    }

    /// The address of a packet, if it has one.
    fn expand(&mut self, payload: IpPayload) -> Option<Avma> {
        self.last_ip.expand(payload).map(Avma)
    }

    /// A slot for the flow packet at hand, and the step from the last one to it.
    #[inline]
    fn step(&mut self, at: AuxOffset) -> Step {
        let slot = self.clock.slot(self.walk.work());
        self.step_to(slot, at)
    }

    /// The step from the last flow packet to the one at hand.
    ///
    /// Where no time stands between, the packet may have forced out the TNT before it: branches since the
    /// TNT's last bit are among its own.
    #[inline]
    fn step_to(&mut self, slot: Slot, at: AuxOffset) -> Step {
        let LastFlow { slot: last, after_tnt, tnt_lo, .. } = self.last;
        self.last = LastFlow { slot, open_tnt: false, after_tnt: false, tnt_lo };
        let lo = if after_tnt { tnt_lo } else { last };
        Step { lo, own: slot, slot, at }
    }

    /// A packet of skipped code: anything deferred to the last TNT of followed code was before it.
    fn end_waiting(&mut self, at: AuxOffset) {
        if self.last.open_tnt {
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

    #[inline(always)]
    fn cyc(&mut self, cycles: u64) {
        self.clock.cyc(cycles);
        self.last.after_tnt = false;
        self.forced_out();
    }

    fn mtc(&mut self, ctc: u8) {
        if std::mem::take(&mut self.last.open_tnt) {
            self.clock.slot(self.walk.work()); // MTC forces TNT out: its branches happened before
        }
        self.clock.mtc(ctc);
        self.last.after_tnt = false;
        self.forced_out();
        self.resolved();
    }

    /// What the trace does not go on after: the death of the thread that the buffer is of, and the end of the
    /// recording. A CPU's goes on in the kernel after the EXIT of its only thread.
    fn ends(&self) -> impl Iterator<Item = Ns> + use<W> {
        let recording = self.context.recording;
        let buffer = recording.buffers.get(self.segment.buffer);
        let is_own = buffer.is_some_and(|buffer| matches!(buffer.owner, AuxOwner::Thread(_)));
        let died = match self.owner {
            Owner::Thread { until, .. } if is_own => Some(until),
            _ => None,
        };
        died.into_iter().chain(recording.time_span.map(|(_, last)| last))
    }

    fn finish(mut self) -> (SegmentOutput, TimelineRoom) {
        let ends = self.ends();
        self.lost_at_the_end();
        self.end_stay(self.reader.offset().min(self.segment.end));
        // Any time may pass after the last packet before what it stands for is over.
        self.clock.discontinuity();
        self.clock.slot(self.walk.work());
        self.clock.finish(ends);
        self.walk.effects.packets += u64::from(self.clock.next_slot().0);
        let output = SegmentOutput {
            overflows: std::mem::take(&mut self.walk.output.overflows),
            clock_errors: self.clock.errors,
            kernel_desyncs: self.kernel_desyncs,
            stretches: self.walk.output.finish(&self.clock, self.walk.here.work, self.walk.effects),
        };
        (output, self.clock.into_room())
    }
}
