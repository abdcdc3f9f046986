//! Why a quantity is not known of a whole recording.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why no time in the trace is known.  Its calls can be counted all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoTimes {
    /// `tsc=0`: the trace unit was told to send no TSC packets.
    TscOff,
    /// There should be TSC packets (`tsc=1`), and there is none.
    NoTscPackets,
    /// Nothing says what a TSC is in perf's clock: the kernel does not where its own clock is not the TSC,
    /// and where perf was given a clock (`-k`).
    NoClock,
}

impl NoTimes {
    /// The reason, and what to do about it.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::TscOff => {
                "the trace has no time stamps (tsc=0): no time in it is known; record without tsc=0"
            }
            Self::NoTscPackets => {
                "the trace has no TSC packet, though it was recorded with tsc=1: no time in it is known"
            }
            Self::NoClock => {
                "the recording does not say what the trace's time stamps are in perf's clock (cap_user_time_zero is 0): \
                 no time in it is known; record without --clockid, where \
                 /sys/devices/system/clocksource/clocksource0/current_clocksource is tsc"
            }
        }
    }
}

impl fmt::Display for NoTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

/// Why off-CPU time is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NoOffCpu {
    /// The recording has no context-switch records, and no range of the kernel's scheduler in its IP filter.
    NoSwitches,
    /// No time is known.
    NoTimes,
    /// Probes timed the calls, and the scheduler was not to be followed (`--no-sched`).
    NotFollowed,
}

impl NoOffCpu {
    /// The reason.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NoSwitches => {
                "the recording has no context-switch records, and no range of __schedule in its IP filter"
            }
            Self::NoTimes => "no time in the trace is known",
            Self::NotFollowed => "the scheduler was not followed (--no-sched)",
        }
    }
}

impl fmt::Display for NoOffCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}
