//! The trace unit: what the program does goes in, packets come out.
//!
//! One per AUX buffer.  Three switches decide what it does:
//!
//! ```text
//! output     On | Overflow (packets are lost) | Off (TraceEn = 0)
//! enabled    PacketEn: the code that runs is traced (user, inside the filter)
//! ```
//!
//! `enabled` follows the program in every state of `output`, so that the ground truth knows what
//! the trace would have held.

use model::Avma;
use packet::{LastIp, Packet, Tnt, encode};

use crate::clock::Time;
use crate::options::OverflowIp;
use crate::pt_clock::{PtClock, TimingConfig};
use crate::return_stack::ReturnStack;
use crate::rng::Rng;

/// How the unit is programmed.
#[derive(Clone, Debug)]
pub(crate) struct UnitConfig {
    pub(crate) timing: TimingConfig,
    /// TSC and TMA are sent.
    pub(crate) tsc_packets: bool,
    pub(crate) return_compression: bool,
    pub(crate) long_tnt: bool,
    /// Probability that a TIP waits for the TNT bits before it to be sent.
    pub(crate) defer_tip: f64,
    /// The time of a TNT is that of sending it, and MTC does not force it out.
    pub(crate) late_tnt: bool,
    /// Of the dice for that.
    pub(crate) seed: u64,
    /// The kernel is traced, too: PSB+ says which page tables there are.
    pub(crate) cr3: Option<u64>,
    /// A PSB comes after this many bytes.
    pub(crate) psb_bytes: u64,
    /// The FUP of a PSB+ has six bytes of address, also where the upper ones are zero.
    pub(crate) whole_psb_ip: bool,
    pub(crate) ovf_ip: OverflowIp,
}

/// What becomes of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    On,
    /// The unit could not keep up; OVF will say so.
    Overflow,
    /// Tracing is switched off.
    Off,
}

/// How many packets of each kind were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// PSB.
    pub psb: u64,
    /// TNT, short and long.
    pub tnt: u64,
    /// TIP.
    pub tip: u64,
    /// TIPs that stand after bits of later branches.
    pub deferred_tip: u64,
    /// FUP.
    pub fup: u64,
    /// TIP.PGE.
    pub pge: u64,
    /// CYC.
    pub cyc: u64,
    /// MTC.
    pub mtc: u64,
    /// OVF.
    pub ovf: u64,
    /// Returns that became a TNT bit.
    pub compressed_returns: u64,
}

impl PacketCounts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.psb += other.psb;
        self.tnt += other.tnt;
        self.tip += other.tip;
        self.deferred_tip += other.deferred_tip;
        self.fup += other.fup;
        self.pge += other.pge;
        self.cyc += other.cyc;
        self.mtc += other.mtc;
        self.ovf += other.ovf;
        self.compressed_returns += other.compressed_returns;
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TraceUnit {
    config: UnitConfig,
    clock: PtClock,
    out: Vec<u8>,
    /// Bytes that [`Self::take`] has given away.
    taken: u64,
    last_ip: LastIp,
    /// The next address is not compressed.
    next_ip_is_whole: bool,
    tnt: Tnt,
    /// The targets of TIPs that wait for `tnt` to be sent, each with the bits before its branch.
    deferred: Vec<(Avma, u8)>,
    dice: Rng,
    returns: ReturnStack,
    psb_at: u64,
    started: bool,
    enabled: bool,
    output: Output,
    counts: PacketCounts,
}

impl TraceUnit {
    pub(crate) fn new(config: UnitConfig, cbr: u8) -> Self {
        let clock = PtClock::new(config.timing.clone(), cbr);
        let dice = Rng::new(config.seed);
        Self {
            config,
            clock,
            out: vec![],
            taken: 0,
            last_ip: LastIp::default(),
            next_ip_is_whole: false,
            tnt: Tnt::default(),
            deferred: vec![],
            dice,
            returns: ReturnStack::new(),
            psb_at: 0,
            started: false,
            enabled: false,
            output: Output::On,
            counts: PacketCounts::default(),
        }
    }

    pub(crate) fn enabled(&self) -> bool {
        self.enabled
    }

    #[inline]
    pub(crate) fn output(&self) -> Output {
        self.output
    }

    pub(crate) fn counts(&self) -> PacketCounts {
        self.counts
    }

    /// Bytes made so far.
    fn written(&self) -> u64 {
        self.taken + self.out.len() as u64
    }

    /// Bytes that [`Self::take`] would give.
    pub(crate) fn pending(&self) -> usize {
        self.out.len()
    }

    /// Takes the packets out, padded to eight bytes as the driver reads them; and where they start in the
    /// stream.
    pub(crate) fn take(&mut self) -> (u64, Vec<u8>) {
        self.out.resize(self.out.len().next_multiple_of(8), 0);
        let start = self.taken;
        self.taken = self.written();
        (start, std::mem::take(&mut self.out))
    }

    // What the program does.

    /// A conditional branch.
    #[inline]
    pub(crate) fn conditional(&mut self, taken: bool, now: Time) {
        if self.output == Output::On {
            self.bit(taken, now);
        }
    }

    /// An indirect branch.
    pub(crate) fn indirect(&mut self, to: Avma, now: Time) {
        if self.output == Output::On && !self.defer(to) {
            self.tip(to, now);
        }
    }

    /// A call of which the target is traced, direct or (after [`Self::indirect`]) indirect.
    pub(crate) fn call(&mut self, return_to: Avma) {
        if self.output == Output::On {
            self.returns.push(return_to);
        }
    }

    /// A return to traced code.
    pub(crate) fn ret(&mut self, to: Avma, now: Time) {
        if self.output != Output::On {
            return;
        }
        let expected = self.returns.pop();
        if expected == Some(to) && self.config.return_compression {
            self.counts.compressed_returns += 1;
            self.bit(true, now);
        } else {
            // Never deferred: bits of later branches before it would be taken for it (SDM, "Indirect Transfer
            // Compression for Returns"), and decoders count on that without RET compression, too.
            self.tip(to, now);
        }
    }

    /// Code that is not traced is reached by a branch: into the kernel without address, or out of the
    /// filter.  `by_return`: a return did it; the hardware pops for it as for any other.
    pub(crate) fn leave(&mut self, to: Option<Avma>, by_return: bool, now: Time) {
        self.enabled = false;
        if self.output != Output::On {
            return;
        }
        if by_return {
            self.returns.pop();
        }
        self.flush(now);
        self.pgd(to);
    }

    /// An interrupt or fault before the instruction at `ip`; what handles it is traced, too.
    pub(crate) fn interrupt(&mut self, ip: Avma, handler: Avma, now: Time) {
        if self.output == Output::On {
            self.flush(now);
            self.fup(ip);
            self.tip(handler, now);
        }
    }

    /// An interrupt, fault or signal before the instruction at `ip`, or the switching off of tracing by it,
    /// leads to code that is not traced; the packet says to where if it is the IP filter that ends tracing.
    pub(crate) fn leave_async(&mut self, ip: Avma, to: Option<Avma>, now: Time) {
        self.enabled = false;
        if self.output != Output::On {
            return;
        }
        self.flush(now);
        self.fup(ip);
        self.pgd(to);
    }

    /// Traced code is reached.
    pub(crate) fn enter(&mut self, ip: Avma, now: Time) {
        self.enabled = true;
        if self.output != Output::On {
            return;
        }
        self.timer(now);
        if !self.started || self.psb_due() {
            self.psb(None, now);
        }
        self.cyc(now);
        // MODE.Exec only comes when the mode has changed since the last one; now and then leave it out.
        if self.counts.pge & 7 != 3 {
            self.put(&MODE_EXEC_64);
        }
        self.counts.pge += 1;
        let ip = self.payload(ip);
        self.put(&Packet::TipPge(ip));
    }

    // What the unit does by itself.

    /// It is time for a PSB.
    #[inline]
    pub(crate) fn psb_due(&self) -> bool {
        self.output == Output::On && self.written() - self.psb_at >= self.config.psb_bytes
    }

    /// PSB+; `ip` is the next instruction if it is traced.
    pub(crate) fn psb(&mut self, ip: Option<Avma>, now: Time) {
        if self.output != Output::On {
            return;
        }
        self.flush_tnt(now);
        // The first CYC after a PSB counts cycles from before it: sometimes it stands inside the PSB+.
        self.counts.psb += 1;
        let cyc_inside = self.counts.psb & 1 == 1 && self.started;
        if !self.started {
            self.clock.forget_all_but(0, now);
        } else if !cyc_inside {
            self.cyc(now);
        }
        self.started = true;
        self.psb_at = self.written();
        self.put(&Packet::Psb);
        self.last_ip.reset();
        self.returns.clear();
        if self.counts.psb & 3 == 0 {
            (0..6).for_each(|_| self.put(&Packet::Pad));
        }
        if cyc_inside {
            self.cyc(now);
        }
        self.time(now);
        self.put(&MODE_EXEC_64);
        self.put(&Packet::ModeTsx { in_transaction: false, aborted: false });
        if let Some(cr3) = self.config.cr3 {
            self.put(&Packet::Pip { cr3, non_root: false });
        }
        if let Some(ip) = ip {
            self.next_ip_is_whole |= self.config.whole_psb_ip;
            let ip = self.payload(ip);
            self.put(&Packet::Fup(ip));
        }
        self.put(&Packet::PsbEnd);
        self.clock.schedule_mtc(now);
    }

    fn payload(&mut self, ip: Avma) -> packet::IpPayload {
        if !std::mem::take(&mut self.next_ip_is_whole) {
            return self.last_ip.compress(ip.0);
        }
        let whole = packet::IpPayload { ip_bytes: 3, value: ip.0 & 0xffff_ffff_ffff };
        self.last_ip.expand(whole);
        whole
    }

    /// Whether [`Self::timer`] has something to do.
    #[inline]
    pub(crate) fn timer_due(&self, now: Time) -> bool {
        self.clock.is_due(now)
    }

    /// The MTC packets up to `now`, and a CBR that is due.
    pub(crate) fn timer(&mut self, now: Time) {
        if self.output != Output::On {
            self.clock.stop_mtc();
            return;
        }
        if let Some(cbr) = self.clock.new_cbr(now) {
            self.flush_tnt(now);
            self.put(&cbr);
        }
        while let Some((at, mtc)) = self.clock.mtc(now) {
            if !self.config.late_tnt {
                self.flush_tnt(at);
            }
            self.cyc(at);
            self.put(&mtc);
            self.counts.mtc += 1;
        }
    }

    /// TraceEn 0 to 1, in the kernel.
    pub(crate) fn trace_on(&mut self, force_psb: bool, now: Time) {
        if self.output != Output::On {
            return;
        }
        self.clock.start(now);
        if !self.started || force_psb || self.psb_due() {
            self.psb(None, now);
        } else {
            self.cyc(now);
            self.time(now);
            self.clock.schedule_mtc(now);
        }
    }

    /// TraceEn 1 to 0.
    pub(crate) fn trace_off(&mut self) {
        self.clock.stop_mtc();
    }

    /// The cycle counter.
    pub(crate) fn cycles(&self, now: Time) -> u64 {
        self.clock.cycles(now)
    }

    /// Core:bus ratio.
    pub(crate) fn cbr(&self) -> u8 {
        self.clock.cbr()
    }

    pub(crate) fn set_cbr(&mut self, cbr: u8, now: Time) {
        self.timer(now);
        self.clock.set_cbr(cbr, now);
        self.timer(now);
    }

    /// The core sleeps from `from` until `now`, so deeply that its clocks stand still; it is not in traced
    /// code. On wake-up MTC comes if its bits have changed, then TSC (SDM, TSC packet).
    pub(crate) fn sleep(&mut self, from: Time, now: Time) {
        self.timer(from);
        if self.output != Output::On {
            return;
        }
        self.clock.sleep(from, now);
        self.cyc(now);
        if let Some(mtc) = self.clock.late_mtc(now) {
            self.put(&mtc);
            self.counts.mtc += 1;
        }
        self.time(now);
        self.clock.schedule_mtc(now);
    }

    /// Forgets the calls that were seen.
    pub(crate) fn drop_returns(&mut self) {
        self.returns.clear();
    }

    /// Packets are lost from here on.
    pub(crate) fn begin_overflow(&mut self, now: Time) {
        self.flush_tnt(now);
        self.output = Output::Overflow;
        self.returns.clear();
    }

    /// The overflow is over; `ip` is the next instruction if it is traced.
    pub(crate) fn end_overflow(&mut self, ip: Option<Avma>, now: Time) {
        self.output = Output::On;
        self.counts.ovf += 1;
        self.put(&Packet::Ovf);
        match self.config.ovf_ip {
            OverflowIp::Whole => self.next_ip_is_whole = true,
            OverflowIp::Kept => (),
            OverflowIp::Zero => self.last_ip.reset(),
        }
        self.clock.forget_all_but(9, now);
        self.cyc(now);
        self.time(now);
        self.clock.schedule_mtc(now);
        if let Some(ip) = ip {
            self.fup(ip);
        }
        self.enabled = ip.is_some();
    }

    /// The kernel switches tracing off for longer; `enabled` goes on as if it had not.
    pub(crate) fn switch_off(&mut self) {
        self.output = Output::Off;
        self.clock.stop_mtc();
    }

    /// The kernel, still in its own code, switches tracing on again.
    pub(crate) fn switch_on(&mut self) {
        self.output = Output::On;
        self.enabled = false;
    }

    // Packets.

    fn put(&mut self, packet: &Packet) {
        encode(packet, &mut self.out);
    }

    /// The CYC before a TNT has the time of its first branch (SDM, "Cycle Packet Semantics").
    fn bit(&mut self, taken: bool, now: Time) {
        if self.tnt.is_empty() && !self.config.late_tnt {
            self.cyc(now);
        }
        // cannot fail: a full buffer is flushed below
        let _ = self.tnt.push(taken);
        let room = if self.config.long_tnt { Tnt::LONG_MAX } else { Tnt::SHORT_MAX };
        if self.tnt.len() == room {
            self.flush_tnt(now);
        }
    }

    /// Lets a TIP wait (SDM, "Deferred TIPs"): the TNT before it collects bits until it is full or another
    /// packet about the flow comes; then it is sent, the TIPs after it. False: it does not wait.
    fn defer(&mut self, to: Avma) -> bool {
        let waits = !self.tnt.is_empty() && self.dice.happens(self.config.defer_tip);
        if waits {
            self.deferred.push((to, self.tnt.len()));
        }
        waits
    }

    /// Sends the TNT bits, and the TIPs that waited for them.
    fn flush_tnt(&mut self, now: Time) {
        if self.tnt.is_empty() {
            return; // nothing waits for it then
        }
        if self.config.late_tnt {
            self.cyc(now);
        }
        self.counts.tnt += 1;
        let tnt = std::mem::take(&mut self.tnt);
        self.put(&Packet::Tnt(tnt));
        for (to, bits) in std::mem::take(&mut self.deferred) {
            self.counts.deferred_tip += u64::from(bits < tnt.len());
            self.put_tip(to);
        }
    }

    /// What must stand before any packet about the flow.
    fn flush(&mut self, now: Time) {
        self.flush_tnt(now);
        self.cyc(now);
    }

    fn cyc(&mut self, now: Time) {
        if let Some(cyc) = self.clock.cyc(now) {
            self.put(&cyc);
            self.counts.cyc += 1;
        }
    }

    fn time(&mut self, now: Time) {
        if self.config.tsc_packets {
            let (tsc, tma) = self.clock.tsc(now);
            self.put(&tsc);
            if let Some(tma) = tma {
                self.put(&tma);
            }
        }
        self.put(&Packet::Cbr(self.clock.said_cbr()));
    }

    fn tip(&mut self, to: Avma, now: Time) {
        self.flush(now);
        self.put_tip(to);
    }

    fn put_tip(&mut self, to: Avma) {
        self.counts.tip += 1;
        let ip = self.payload(to);
        self.put(&Packet::Tip(ip));
    }

    fn fup(&mut self, ip: Avma) {
        self.counts.fup += 1;
        let ip = self.payload(ip);
        self.put(&Packet::Fup(ip));
    }

    fn pgd(&mut self, to: Option<Avma>) {
        let ip = to.map_or(packet::IpPayload::NONE, |to| self.payload(to));
        self.put(&Packet::TipPgd(ip));
    }
}

const MODE_EXEC_64: Packet = Packet::ModeExec { long: true, default_32: false, interrupts: false };

#[cfg(test)]
mod tests;
