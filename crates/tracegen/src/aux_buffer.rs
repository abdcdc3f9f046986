//! One AUX buffer: its trace unit, and the two ways in which data gets lost.
//!
//! ```text
//! overflow   the unit cannot write fast enough: packets are lost, OVF says so when it is over
//! full       the reader was too slow: the driver disables the event (TRUNCATED); when the reader comes,
//!            it drains the buffer and enables the event again
//! ```

use crate::clock::{Time, ticks};
use crate::pt_unit::{Output, TraceUnit};
use crate::rng::Rng;

#[derive(Debug)]
pub(crate) struct AuxBuffer {
    pub(crate) unit: TraceUnit,
    next_overflow: Time,
    overflow_until: Time,
    /// The next packet about a branch is the last before an overflow.
    overflow_due: bool,
    /// When a switched-off event is enabled again.
    enable_at: Time,
}

impl AuxBuffer {
    pub(crate) fn new(unit: TraceUnit, first_overflow: Time) -> Self {
        Self {
            unit,
            next_overflow: first_overflow,
            overflow_until: Time::default(),
            overflow_due: false,
            enable_at: Time::NEVER,
        }
    }

    /// Decides whether an overflow is due; the next one comes after `mean_ms` on average.
    #[inline]
    pub(crate) fn plan_overflow(&mut self, now: Time, mean_ms: f64, rng: &mut Rng) {
        if now >= self.next_overflow {
            self.next_overflow = now.plus_us(1000.0 * rng.exponential(mean_ms));
            self.overflow_due |= self.unit.output() == Output::On;
        }
    }

    /// An overflow begins now, if one is due.
    #[inline]
    pub(crate) fn begin_overflow(&mut self, now: Time, mean_us: f64, rng: &mut Rng) -> bool {
        let begins = self.overflow_due && self.unit.output() == Output::On;
        if begins {
            self.overflow_due = false;
            self.unit.begin_overflow();
            self.overflow_until = now.plus(ticks(rng.exponential(mean_us)));
        }
        begins
    }

    /// Packets are being lost, and need not be any more.
    #[inline]
    pub(crate) fn overflow_is_over(&self, now: Time) -> bool {
        self.unit.output() == Output::Overflow && now >= self.overflow_until
    }

    /// The overflow ends as soon as it can.
    pub(crate) fn hurry_overflow(&mut self) {
        self.overflow_until = Time::default();
    }

    /// Nothing is traced until `enable_at`.
    pub(crate) fn switch_off(&mut self, enable_at: Time) {
        self.overflow_due = false;
        self.enable_at = enable_at;
        self.unit.switch_off();
    }

    /// Tracing is off, and is to be on.
    #[inline]
    pub(crate) fn enable_due(&self, now: Time) -> bool {
        self.unit.output() == Output::Off && now >= self.enable_at
    }
}
