//! `merge`: one report of several summaries.

use std::path::PathBuf;

use clap::Args;

use super::headings::REPORT;
use super::{AFTER_HELP, Format, RowsArgs, form};
use crate::render::json;

/// `func_latency merge`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct MergeArgs {
    /// Summaries as `report --summary` or this command has written them, each recording once; or parts of one
    /// recording, as `report --part-out` or this command has written them, each part once
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Write the summary of all, too
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// Of parts: lay them together in this file, and print no report
    #[arg(long, value_name = "FILE", conflicts_with_all = ["summary", "missing"])]
    pub part_out: Option<PathBuf>,
    /// Of parts: where the recording is now; of its trace only the begin and the end are read
    #[arg(short, long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Of parts: where the objects are now, instead of the --symfs that the parts were made with
    #[arg(long, value_name = "DIR")]
    pub symfs: Option<PathBuf>,
    /// Of parts made with --kcore: where that is now
    #[arg(long, value_name = "FILE")]
    pub kcore: Option<PathBuf>,
    /// Of parts made with --vmlinux: where that is now
    #[arg(long, value_name = "FILE", conflicts_with = "kcore")]
    pub vmlinux: Option<PathBuf>,
    /// Of parts: threads that read and analyse [default: number of cores]
    #[arg(short = 'w', long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub workers: Option<u16>,
    /// Of parts: say on stderr what is done and how long it takes
    #[arg(short, long)]
    pub verbose: bool,
    /// Name a recording that has no summary, and why: the report says among its losses that the calls of this
    /// recording are missing; repeat it for several
    #[arg(long, value_name = "RECORDING: WHY")]
    pub missing: Vec<String>,
    /// Report only this function, by its whole name; repeat it for several
    #[arg(short = 'f', long = "func", value_name = "FUNC")]
    pub functions: Vec<String>,
    /// Form of the report.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help = form("report", json::SCHEMA))]
    pub format: Format,
    /// Show file:line of call sites, where the summaries were made with it
    #[arg(long, help_heading = REPORT)]
    pub srcline: bool,
    /// One row for every call site instead of one for every callee
    #[arg(short = 'U', long, help_heading = REPORT)]
    pub unfold: bool,
    /// Which rows of a table.
    #[command(flatten)]
    pub table_rows: RowsArgs,
}
