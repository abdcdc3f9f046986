//! Commands that say what makes calls slow: `explain`, `modes`, `annotate`, `diff`.

use std::path::PathBuf;

use clap::Args;

use super::{AFTER_HELP, CallsArgs, FailArgs, Format, InputArgs, form};
use crate::filter::{CallNumber, LabelValues, Percentile};
use crate::render::{annotate, diff, explain, modes};

/// `func_latency explain`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ExplainArgs {
    /// Explain this call, by the id of its row
    #[arg(value_name = "ID", conflicts_with_all = ["slow", "li"])]
    pub id: Option<CallNumber>,
    /// The recording [default: perf.data]
    #[arg(short, long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Explain the calls from this percentile on [default: p99]; with --li those of that latency
    #[arg(long, value_name = "pNN", conflicts_with = "li")]
    pub slow: Option<Percentile>,
    /// Which function.
    #[command(flatten)]
    pub calls: CallsArgs,
    /// Form of the explanation.
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        help = form("explanation", explain::json::SCHEMA)
    )]
    pub format: Format,
}

/// `func_latency modes`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ModesArgs {
    /// Which file.
    #[command(flatten)]
    pub input: InputArgs,
    /// Which function.
    #[command(flatten)]
    pub calls: CallsArgs,
    /// Form of the list.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help = form("list", modes::SCHEMA))]
    pub format: Format,
}

/// `func_latency annotate`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct AnnotateArgs {
    /// Which file.
    #[command(flatten)]
    pub input: InputArgs,
    /// Set the calls from this percentile on beside typical ones, each line by call; the recording is decoded
    /// twice for it
    #[arg(long, value_name = "pNN")]
    pub slow: Option<Percentile>,
    /// Show the text of source lines, from files below this directory
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,
    /// List instructions, also where the object says source lines
    #[arg(long)]
    pub instructions: bool,
    /// Which function.
    #[command(flatten)]
    pub calls: CallsArgs,
    /// Form of the listing.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help = form("listing", annotate::SCHEMA))]
    pub format: Format,
}

/// `func_latency diff`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DiffArgs {
    /// What B is compared with: a recording, rows of calls, or a directory of runs
    #[arg(value_name = "A")]
    pub base: PathBuf,
    /// What is compared with A: a recording, rows or runs with calls that may take longer
    #[arg(value_name = "B", required_unless_present = "by")]
    pub these: Option<PathBuf>,
    /// With --by: further summaries
    #[arg(value_name = "SUMMARY", requires = "by")]
    pub more: Vec<PathBuf>,
    /// Compare summaries (report --summary) with one value of a label and those with another; intervals come
    /// from the hosts, or the recordings where these are of one host
    #[arg(long, value_name = "LABEL[=A,B]")]
    pub by: Option<LabelValues>,
    /// What makes it fail.
    #[command(flatten)]
    pub fail: FailArgs,
    /// Which function; of rows, the only one by default.
    #[command(flatten)]
    pub calls: CallsArgs,
    /// Form of the comparison.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help = form("comparison", diff::SCHEMA))]
    pub format: Format,
}
