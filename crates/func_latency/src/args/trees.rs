//! Commands that look inside of calls: `show`, `export`, `graph`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::headings::TIMELINES;
use super::{AFTER_HELP, CallsArgs, Format, InputArgs, form};
use crate::export::bounds::Bound;
use crate::export::weight::Weight;
use crate::filter::CallNumber;
use crate::render::rows::Label;
use crate::render::tree;

/// `func_latency show`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ShowArgs {
    /// The call, by the id of its row; a capture of `watch` has one that it is about
    #[arg(value_name = "ID")]
    pub id: Option<CallNumber>,
    /// The recording [default: perf.data]
    #[arg(short, long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Which function.
    #[command(flatten)]
    pub calls: CallsArgs,
    /// The rows of a report (report --rows) say where the call is: only the trace around it is decoded (not
    /// with -a, --li, --ti, -p, -T)
    #[arg(long, value_name = "FILE.{jsonl,csv}")]
    #[arg(conflicts_with_all = ["ancestor", "li", "ti", "pids", "tids"])]
    pub rows: Option<PathBuf>,
    /// Not deeper than N levels below the call
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Only what took this long or longer
    #[arg(long, value_name = "NS", default_value_t = 0)]
    pub min: u64,
    /// Lines of the text: where there are more calls, those that are alike are in one, and the heaviest are
    /// printed; JSON has every call
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub top: u32,
    /// A line for every call
    #[arg(long, conflicts_with = "top")]
    pub all: bool,
    /// Show file:line of call sites
    #[arg(long)]
    pub srcline: bool,
    /// Form of the tree.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help = form("tree", tree::SCHEMA))]
    pub format: Format,
}

/// `func_latency export`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ExportArgs {
    /// Which file.
    #[command(flatten)]
    pub input: InputArgs,
    /// Which calls; folded, flamegraph and pprof without -f: all that was seen.
    #[command(flatten)]
    pub calls: CallsArgs,
    /// For which reader
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: ExportFormat,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Which time folded and flamegraph show
    #[arg(long, value_enum, default_value_t, value_name = "KIND")]
    pub weight: Weight,
    /// In rows (csv, jsonl, parquet): a column label_KEY with this value; repeat it for several
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<Label>,
    /// What each call executed (see `report --counters`): columns in csv, jsonl and parquet, arguments of
    /// slices in perfetto, markers of outermost calls in firefox, instructions and cycles in pprof
    #[arg(long)]
    pub counters: bool,
    /// Which calls a timeline has.
    #[command(flatten)]
    pub bound: BoundArgs,
}

/// Which calls a timeline has.
#[derive(Clone, Copy, Debug, Args)]
pub struct BoundArgs {
    /// Calls that firefox and perfetto have, at most: the longest, from the power of two of ns on that fits.
    /// How many others there are stands in the file and on stderr [default: 250,000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = TIMELINES)]
    pub top: Option<u32>,
    /// Calls that firefox and perfetto have: those that took this time, whatever their number
    #[arg(long, value_name = "NS", conflicts_with = "top", help_heading = TIMELINES)]
    pub min: Option<u64>,
    /// Every call in firefox and perfetto
    #[arg(long, conflicts_with_all = ["top", "min"], help_heading = TIMELINES)]
    pub all: bool,
}

impl BoundArgs {
    /// What they come to.
    #[must_use]
    pub fn bound(&self) -> Bound {
        let Self { top, min, all } = *self;
        match min.or(all.then_some(0)) {
            Some(min_ns) => Bound::AtLeast(min_ns),
            None => top.map_or(Bound::USUAL, |top| Bound::Longest(top.into())),
        }
    }
}

/// What `export` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Stacks and their own time in ns, one a line (speedscope, flamegraph.pl, inferno)
    Folded,
    /// Flame graph, SVG
    Flamegraph,
    /// go tool pprof, speedscope: calls, latency, time on the CPU
    Pprof,
    /// Firefox Profiler (profiler.firefox.com): each call's time, by thread
    Firefox,
    /// Perfetto (ui.perfetto.dev): calls as slices, off-CPU time beside them, by thread
    Perfetto,
    /// One row for every call
    Csv,
    /// One row for every call, as JSON
    Jsonl,
    /// One row for every call, typed; where -o is a directory: tables of calls, their children, their waits
    /// and the trace's gaps; see docs/rows.md
    Parquet,
}

/// `func_latency graph`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct GraphArgs {
    /// Which file.
    #[command(flatten)]
    pub input: InputArgs,
    /// Which calls; without -f: all that was seen.
    #[command(flatten)]
    pub calls: CallsArgs,
    /// Callers on top: below each function its callees (the default)
    #[arg(long)]
    pub caller: bool,
    /// Callees on top: below each function its callers
    #[arg(long, conflicts_with = "caller")]
    pub callee: bool,
    /// Which time
    #[arg(long, value_enum, default_value_t, value_name = "KIND")]
    pub weight: Weight,
    /// Leave out what is less than this share of all time
    #[arg(long, value_name = "PCT", default_value_t = 0.5)]
    pub percent_limit: f64,
    /// Shares of the function above, not of all time
    #[arg(long)]
    pub fractal: bool,
    /// Not deeper than N levels
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(..=256))]
    pub depth: u16,
}
