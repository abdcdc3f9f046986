//! The command that says which functions there are to choose from: `top`.

use std::path::PathBuf;

use clap::Args;

use super::headings::{DECODING, RECORDING, REPORT, TARGET};
use super::{AFTER_HELP, DecoderChoice, Format, InputArgs, KernelArgs, RowsArgs, form};
use crate::filter::TidRange;
use crate::render::top::{self, TopBy};

/// `func_latency top`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TopArgs {
    /// Which file.
    #[command(flatten)]
    pub input: InputArgs,
    /// Only these processes. Without a FILE they are recorded first, which needs Intel PT
    #[arg(short = 'p', long = "pid", value_name = "PIDS", value_delimiter = ',')]
    #[arg(help_heading = TARGET)]
    pub pids: Vec<i32>,
    /// Only these threads: 1,3-5. Without a FILE they are recorded first, which needs Intel PT
    #[arg(short = 'T', long = "tid", value_name = "TIDS", value_delimiter = ',')]
    #[arg(help_heading = TARGET)]
    pub tids: Vec<TidRange>,
    /// How long to record, in seconds, without a FILE [default: 1]
    #[arg(short, long, value_name = "SECS", conflicts_with_all = ["file", "input"])]
    #[arg(help_heading = RECORDING)]
    pub duration: Option<f64>,
    /// Which functions come first
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    #[arg(help_heading = REPORT)]
    pub by: TopBy,
    /// Which rows.
    #[command(flatten)]
    pub table_rows: RowsArgs,
    /// Form of the list.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help = form("list", top::SCHEMA))]
    #[arg(help_heading = REPORT)]
    pub format: Format,
    /// Look for the objects below this directory, not at their own places
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = DECODING)]
    pub symfs: Option<PathBuf>,
    /// Where the kernel's code is.
    #[command(flatten)]
    pub kernel: KernelArgs,
    /// Decoding threads [default: number of cores]
    #[arg(short = 'w', long = "workers", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    #[arg(help_heading = DECODING)]
    pub workers: Option<u16>,
    /// The decoder
    #[arg(long, value_enum, default_value_t, value_name = "DECODER")]
    #[arg(help_heading = DECODING)]
    pub decoder: DecoderChoice,
    /// Say on stderr what is done and how long it takes
    #[arg(short, long)]
    pub verbose: bool,
}
