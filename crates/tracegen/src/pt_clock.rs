//! The trace unit's clocks: when CYC, MTC and TSC packets come and what they say.

use packet::Packet;

use crate::clock::{TSC_PER_CTC, Time};

/// Which timing packets there are.
#[derive(Clone, Debug)]
pub(crate) struct TimingConfig {
    pub(crate) cyc: bool,
    /// `cyc_thresh` of the PMU: a CYC comes when at least 2^(n-1) cycles have passed; 0 always.
    pub(crate) cyc_threshold: u32,
    /// An MTC every 2^n ticks of the crystal clock.
    pub(crate) mtc_period: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct PtClock {
    config: TimingConfig,
    /// Core:bus ratio.
    cbr: u8,
    /// The cycle counter at `base_time`; it counts only while tracing is on.
    base_cycles: u64,
    base_time: Time,
    /// The cycle counter at the last CYC.
    last_cyc: u64,
    next_mtc: Time,
}

impl PtClock {
    pub(crate) fn new(config: TimingConfig, cbr: u8) -> Self {
        Self { config, cbr, base_cycles: 0, base_time: Time::default(), last_cyc: 0, next_mtc: Time::NEVER }
    }

    fn cycles(&self, now: Time) -> u64 {
        self.base_cycles + Time::cycles(now.since(self.base_time), u64::from(self.cbr))
    }

    /// The CYC packet that goes before a packet at `now`.
    #[inline]
    pub(crate) fn cyc(&mut self, now: Time) -> Option<Packet> {
        if !self.config.cyc {
            return None;
        }
        let cycles = self.cycles(now);
        let passed = cycles.saturating_sub(self.last_cyc);
        let threshold = self.config.cyc_threshold.checked_sub(1).map_or(1, |n| 1 << n);
        if passed < threshold {
            return None;
        }
        self.last_cyc = cycles;
        Some(Packet::Cyc(passed))
    }

    /// TSC, and TMA if there is an MTC to relate it to.
    pub(crate) fn tsc(&self, now: Time) -> (Packet, Option<Packet>) {
        let tsc = now.tsc().0;
        let tma = Packet::Tma { ctc: (tsc / TSC_PER_CTC) as u16, fast: (tsc % TSC_PER_CTC) as u16 };
        (Packet::Tsc(tsc), self.config.mtc_period.map(|_| tma))
    }

    pub(crate) fn cbr(&self) -> u8 {
        self.cbr
    }

    pub(crate) fn set_cbr(&mut self, cbr: u8, now: Time) {
        self.base_cycles = self.cycles(now);
        self.base_time = now;
        self.cbr = cbr;
    }

    /// Tracing is switched on: the cycle counter goes on from where it stood.
    pub(crate) fn start(&mut self, now: Time) {
        self.base_cycles = self.last_cyc;
        self.base_time = now.just_before();
    }

    /// What passed until now was not reported and never will be, but for the last `cycles`.
    pub(crate) fn forget_all_but(&mut self, cycles: u64, now: Time) {
        self.last_cyc = self.cycles(now).saturating_sub(cycles);
    }

    /// The next MTC is the one after `now`.
    pub(crate) fn schedule_mtc(&mut self, now: Time) {
        if let Some(period) = self.mtc_ticks() {
            self.next_mtc = Time::from_tsc((now.tsc().0 / period + 1) * period);
        }
    }

    pub(crate) fn stop_mtc(&mut self) {
        self.next_mtc = Time::NEVER;
    }

    /// An MTC is due.
    #[inline]
    pub(crate) fn mtc_due(&self, now: Time) -> bool {
        self.next_mtc <= now
    }

    /// The MTC that is due at `now` or before, and its time.
    pub(crate) fn mtc(&mut self, now: Time) -> Option<(Time, Packet)> {
        let (at, period) = (self.next_mtc, self.config.mtc_period?);
        if at > now {
            return None;
        }
        self.next_mtc = Time::from_tsc(at.tsc().0 + self.mtc_ticks()?);
        Some((at, Packet::Mtc(((at.tsc().0 / TSC_PER_CTC) >> period) as u8)))
    }

    fn mtc_ticks(&self) -> Option<u64> {
        self.config.mtc_period.map(|period| TSC_PER_CTC << period)
    }
}
