//! What probes add to the times that they take, as it was measured.

/// Time that probes add: between which values it lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeTime {
    /// 99 of 100 probes took no less, with warm caches.
    pub least_ns: u64,
    /// Three of four took no more, with cold caches.
    pub most_ns: u64,
    /// 99 of 100 took no more: interrupts are in it.
    pub rare_ns: u64,
}

/// A machine is that much faster or slower from one second to the next, in percent: its frequency, and other
/// virtual machines.
const DRIFT_PERCENT: u64 = 5;

impl ProbeTime {
    /// What is subtracted: as far from the least as from the most.
    #[must_use]
    pub const fn middle_ns(self) -> u64 {
        self.least_ns.midpoint(self.most_ns)
    }

    /// What was measured in one moment, for use in another one.
    #[must_use]
    pub fn widened(self) -> Self {
        let percent = |ns: u64, of: u64| ns / 100 * of + ns % 100 * of / 100;
        Self {
            least_ns: percent(self.least_ns, 100 - DRIFT_PERCENT),
            most_ns: percent(self.most_ns, 100 + DRIFT_PERCENT),
            rare_ns: percent(self.rare_ns, 100 + DRIFT_PERCENT),
        }
    }

    /// Adds another probe's.
    pub const fn add(&mut self, more: Self) {
        self.least_ns = self.least_ns.saturating_add(more.least_ns);
        self.most_ns = self.most_ns.saturating_add(more.most_ns);
        self.rare_ns = self.rare_ns.saturating_add(more.rare_ns);
    }

    /// One of two, and it is not known which.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            least_ns: self.least_ns.min(other.least_ns),
            most_ns: self.most_ns.max(other.most_ns),
            rare_ns: self.rare_ns.max(other.rare_ns),
        }
    }

    /// Of that many probes.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self {
            least_ns: self.least_ns.saturating_mul(count),
            most_ns: self.most_ns.saturating_mul(count),
            rare_ns: self.rare_ns.saturating_mul(count),
        }
    }
}

/// What the two probes of a call add.
///
/// ```text
///   caller | entry probe    | call | end probe     |         t: the probe reads the clock
///          |-------t--------|      |-----t---------|
///                  |== inside ===========|                  of the call's own latency
///          |== whole ==============================|        of calls around it, without the call
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallProbes {
    /// To the call itself.
    pub inside: ProbeTime,
    /// To a call around it.
    pub whole: ProbeTime,
}

impl CallProbes {
    /// Those of one of two calls, and it is not known which.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { inside: self.inside.or(other.inside), whole: self.whole.or(other.whole) }
    }
}

/// What the probes of a function add to each call, by how the call ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCost {
    /// It returns.
    pub returned: CallProbes,
    /// It leaves by a jump.
    pub jumped: CallProbes,
    /// One hit, of any of the probes.
    pub hit: ProbeTime,
}

impl ProbeCost {
    /// One of two costs, and it is not known which.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            returned: self.returned.or(other.returned),
            jumped: self.jumped.or(other.jumped),
            hit: self.hit.or(other.hit),
        }
    }
}
