//! The trace unit's clocks: when CYC, MTC and TSC packets come and what they say.

use packet::Packet;

use crate::clock::{Crystal, Time};
use crate::options::TscLag;
use crate::rng::Rng;

/// Which timing packets there are.
#[derive(Clone, Debug)]
pub(crate) struct TimingConfig {
    pub(crate) cyc: bool,
    /// `cyc_thresh` of the PMU: a CYC comes when at least 2^(n-1) cycles have passed; 0 always.
    pub(crate) cyc_threshold: u32,
    /// An MTC every 2^n ticks of the crystal clock.
    pub(crate) mtc_period: Option<u32>,
    /// TSC comes with TMA where there is MTC.
    pub(crate) tma: bool,
    pub(crate) crystal: Crystal,
    pub(crate) tsc_lag: TscLag,
    /// Probability that the unit skips an MTC.
    pub(crate) skip_mtc: f64,
    /// CBR says the new ratio so long after the change, in 1/1024 TSC ticks.
    pub(crate) cbr_delay: u64,
    /// Of the dice.
    pub(crate) seed: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct PtClock {
    config: TimingConfig,
    rng: Rng,
    /// Dice for [`TimingConfig::tsc_lag`].
    lag_dice: Rng,
    /// What the last TSC packet said: none is earlier than one before it.
    last_tsc: Time,
    /// Core:bus ratio.
    cbr: u8,
    /// The ratio that CBR packets say.
    said_cbr: u8,
    /// When they will say the true one.
    cbr_due: Time,
    /// The cycle counter at `base_time`; it counts only while tracing is on.
    base_cycles: u64,
    base_time: Time,
    /// The cycle counter at the last CYC.
    last_cyc: u64,
    /// The crystal's counter at the next MTC, and when that is.
    next_mtc: (u64, Time),
}

impl PtClock {
    pub(crate) fn new(config: TimingConfig, cbr: u8) -> Self {
        Self {
            rng: Rng::new(config.seed),
            lag_dice: Rng::new(!config.seed),
            last_tsc: Time::default(),
            config,
            cbr,
            said_cbr: cbr,
            cbr_due: Time::NEVER,
            base_cycles: 0,
            base_time: Time::default(),
            last_cyc: 0,
            next_mtc: (0, Time::NEVER),
        }
    }

    /// The cycle counter.
    pub(crate) fn cycles(&self, now: Time) -> u64 {
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

    /// TSC, and TMA if there is an MTC to relate it to: both of the same instant, some cycles before their
    /// place in the trace.
    pub(crate) fn tsc(&mut self, now: Time) -> (Packet, Option<Packet>) {
        let lag = self.config.tsc_lag.draw((self.lag_dice.unit(), self.lag_dice.unit()));
        let at = now.before(lag, u64::from(self.cbr)).max(self.last_tsc);
        self.last_tsc = at;
        let crystal = self.config.crystal;
        let counter = crystal.counter(at);
        let fast = Time(at.since(crystal.time(counter))).tsc().0;
        let tma = Packet::Tma { ctc: counter as u16, fast: fast as u16 };
        (Packet::Tsc(at.tsc().0), self.config.mtc_period.filter(|_| self.config.tma).map(|_| tma))
    }

    pub(crate) fn cbr(&self) -> u8 {
        self.cbr
    }

    /// What CBR packets say.
    pub(crate) fn said_cbr(&self) -> u8 {
        self.said_cbr
    }

    pub(crate) fn set_cbr(&mut self, cbr: u8, now: Time) {
        self.base_cycles = self.cycles(now);
        self.base_time = now;
        self.cbr = cbr;
        self.cbr_due = now.plus(self.config.cbr_delay);
    }

    /// The CBR packet that tells of the last change, if it is due.
    pub(crate) fn new_cbr(&mut self, now: Time) -> Option<Packet> {
        if self.cbr_due > now {
            return None;
        }
        (self.cbr_due, self.said_cbr) = (Time::NEVER, self.cbr);
        Some(Packet::Cbr(self.cbr))
    }

    /// The core's clock stands still from `from` until `now`.
    pub(crate) fn sleep(&mut self, from: Time, now: Time) {
        self.base_cycles = self.cycles(from);
        self.base_time = now;
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
        if let Some(period) = self.config.mtc_period {
            let counter = ((self.config.crystal.counter(now) >> period) + 1) << period;
            self.next_mtc = (counter, self.config.crystal.time(counter));
        }
    }

    pub(crate) fn stop_mtc(&mut self) {
        self.next_mtc.1 = Time::NEVER;
    }

    /// An MTC or a CBR is due.
    #[inline]
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.next_mtc.1 <= now || self.cbr_due <= now
    }

    /// The MTC that is due at `now` or before, and its time.
    pub(crate) fn mtc(&mut self, now: Time) -> Option<(Time, Packet)> {
        let period = self.config.mtc_period?;
        loop {
            let (counter, at) = self.next_mtc;
            if at > now {
                return None;
            }
            let next = counter + (1 << period);
            self.next_mtc = (next, self.config.crystal.time(next));
            if !self.rng.happens(self.config.skip_mtc) {
                return Some((at, Packet::Mtc((counter >> period) as u8)));
            }
        }
    }

    /// The MTC on wake-up, if the counter has changed since the last one: late.
    pub(crate) fn late_mtc(&self, now: Time) -> Option<Packet> {
        let period = self.config.mtc_period?;
        (self.next_mtc.1 <= now).then(|| Packet::Mtc((self.config.crystal.counter(now) >> period) as u8))
    }
}
