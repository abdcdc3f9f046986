//! The time that a stack or a function of a graph has.

use analyzer::Total;
use clap::ValueEnum;

/// Which time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Weight {
    /// All of it
    #[default]
    Latency,
    /// On the CPU
    Cpu,
}

impl Weight {
    /// Its name, as it is typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Cpu => "cpu",
        }
    }

    /// That time, of all; `None`: it is not known.
    #[must_use]
    pub const fn of(self, total: &Total) -> Option<u64> {
        match self {
            Self::Latency => Some(total.sum_ns),
            Self::Cpu => total.on_cpu_ns(),
        }
    }
}
