//! Options about what calls execute.

use analyzer::Metric;
use clap::{Args, ValueEnum};

use super::headings::REPORT;

/// Whether calls are counted, and what the histogram is of.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct CountersArgs {
    /// Count what each call executes in user code: instructions, branches and calls, exactly; and its cycles
    /// and frequency, where the recording has CYC packets (cyc=1)
    #[arg(long, help_heading = REPORT)]
    pub counters: bool,
    /// Draw the histogram by this, not by latency; all others need --counters, and imply it
    #[arg(long, value_enum, value_name = "WHAT", help_heading = REPORT)]
    pub by: Option<HistogramBy>,
}

impl CountersArgs {
    /// Calls are counted.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.counters || self.metric().is_some()
    }

    /// What the histogram is of; `None`: latency.
    #[must_use]
    pub fn metric(&self) -> Option<Metric> {
        match self.by? {
            HistogramBy::Latency => None,
            HistogramBy::Instructions => Some(Metric::Instructions),
            HistogramBy::Cycles => Some(Metric::Cycles),
            HistogramBy::Ipc => Some(Metric::MilliIpc),
            HistogramBy::Branches => Some(Metric::Branches),
        }
    }
}

/// What a histogram is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HistogramBy {
    /// Time from entry to return
    Latency,
    /// Instructions of user code
    Instructions,
    /// Core cycles of user code
    Cycles,
    /// Instructions per cycle
    Ipc,
    /// Conditional and indirect branches
    Branches,
}
