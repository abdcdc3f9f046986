//! The report as text, timeline, JSON, rows and page.

pub mod annotate;
pub(crate) mod by_host;
pub(crate) mod code_blocks;
pub mod compare;
pub mod counters;
pub mod diff;
pub mod explain;
pub mod histogram;
pub mod html;
pub(crate) mod image_names;
pub mod interval;
pub mod json;
mod json_causes;
mod json_loss;
pub mod ledger;
pub mod modes;
pub mod names;
pub(crate) mod plan;
pub(crate) mod printable_names;
#[cfg(feature = "bpf")]
pub(crate) mod probed_call;
pub mod row_limit;
pub mod rows;
pub mod runs;
pub mod screen;
pub mod stat;
pub mod table;
pub mod text;
pub(crate) mod time_sum;
pub mod timeline;
pub mod top;
pub mod tree;
mod tree_lines;
pub mod units;
mod wrappers;

use analyzer::{Metric, OwnCode, Report};
use clap::ValueEnum;
use model::{ClockOffsets, FunctionId};

pub use names::Names;
use row_limit::RowLimit;

/// Form of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// A report, and what else there is to say about the recording.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// What the analysis found out.
    pub report: &'a Report,
    /// What ids are called.
    pub names: &'a dyn Names,
    /// The recording's file, as it was named.
    pub input: &'a str,
    /// Bytes of trace.
    pub aux_bytes: u64,
    /// The decoder that was used.
    pub decoder: &'a str,
    /// The recording's times in other clocks.
    pub clock_offsets: ClockOffsets,
    /// How far off wake-ups may be, if another clock timed them, in ns.
    pub sched_apart_ns: Option<u64>,
    /// Inlined instances of each function, which are not counted, or `None` if they were not looked for; in
    /// the order of the report's functions.
    pub inlined: &'a [Option<u64>],
    /// Which calls were asked for, in words; empty: all.
    pub only: &'a [String],
    /// What makes the report less than whole: damage, objects that are missing.
    pub problems: &'a [String],
    /// Show source lines.
    pub srcline: bool,
    /// One row for every call site.
    pub unfold: bool,
    /// Which rows of the text's tables are printed.
    pub table_rows: RowLimit,
    /// What histograms of the text are of; `None`: latency.
    pub by: Option<Metric>,
    /// The code blocks of functions; of none, if they were not asked for.
    pub code_blocks: &'a [(FunctionId, OwnCode)],
}

/// [`View::decoder`] of calls that probes have timed.
pub(crate) const PROBES: &str = "uprobe";

impl View<'_> {
    /// Probes have timed the calls.
    pub(crate) fn is_probed(&self) -> bool {
        self.decoder == PROBES
    }

    /// A value that follows from times; `None`: no time is known.
    pub(crate) fn timed<T>(&self, value: T) -> Option<T> {
        self.report.trace.no_times.is_none().then_some(value)
    }

    /// The code blocks of a function, if they were asked for.
    pub(crate) fn code_blocks_of(&self, function: FunctionId) -> Option<&OwnCode> {
        self.code_blocks.iter().find(|(id, _)| *id == function).map(|(_, code)| code)
    }

    /// Inlined instances of the function with this index.
    #[must_use]
    pub fn inlined_of(&self, index: usize) -> Option<u64> {
        self.inlined.get(index).copied().flatten()
    }
}
