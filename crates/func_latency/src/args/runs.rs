//! Commands that repeat runs: `stat`, `compare`.

use std::path::PathBuf;

use analyzer::samples::Figure;
use clap::Args;

use super::headings::{CHECKS, RUNS};
use super::{AFTER_HELP, RecordArgs};
use crate::filter::{Rise, figure};
use crate::render::compare::FailAbove;

/// `func_latency stat`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct StatArgs {
    /// Runs that were made before: recordings, rows of calls, directories of these
    #[arg(value_name = "RUN", conflicts_with_all = ["runs", "warmup", "program", "save"])]
    pub there: Vec<PathBuf>,
    /// How often.
    #[command(flatten)]
    pub repeat: RepeatArgs,
    /// What each run is.
    #[command(flatten)]
    pub record: RecordArgs,
}

/// `func_latency compare`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct CompareArgs {
    /// How often.
    #[command(flatten)]
    pub repeat: RepeatArgs,
    /// What makes it fail.
    #[command(flatten)]
    pub fail: FailArgs,
    /// What each run is; its program is two lines of a shell, A and B.
    #[command(flatten)]
    pub record: RecordArgs,
}

/// How often something is run.
#[derive(Clone, Copy, Debug, Args)]
pub struct RepeatArgs {
    /// Runs that count; of two commands, of each
    #[arg(short = 'r', long, value_name = "N", default_value_t = 10, help_heading = RUNS)]
    #[arg(value_parser = clap::value_parser!(u8).range(2..=100))]
    pub runs: u8,
    /// Runs before these, which do not count: caches are warm then
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = RUNS)]
    pub warmup: u8,
}

/// What makes a comparison fail.
#[derive(Clone, Copy, Debug, Args)]
pub struct FailArgs {
    /// Fail (exit code 1) where B is slower than A by more than this share, with confidence: 5%
    #[arg(long, value_name = "PCT", help_heading = CHECKS)]
    pub fail_above: Option<Rise>,
    /// What --fail-above looks at: mean, p50, p90, p99 or p99.9
    #[arg(long, value_name = "FIGURE", default_value = "p50", requires = "fail_above", help_heading = CHECKS)]
    #[arg(value_parser = figure)]
    pub quantile: Figure,
}

impl FailArgs {
    /// What was asked for, if something was.
    #[must_use]
    pub fn fail_above(&self) -> Option<FailAbove> {
        self.fail_above.map(|Rise(percent)| FailAbove { figure: self.quantile, percent })
    }
}
