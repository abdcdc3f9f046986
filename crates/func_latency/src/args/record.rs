//! The command that records, alone or with a report.

use std::path::PathBuf;

use clap::Args;
use recorder::CpuList;

use super::headings::{FILES, OLD, RECORDING};
use super::{ProbeArgs, QueryArgs};
use crate::filter::ByteSize;

/// Options of recording; those of PT_PERF are all known.
#[derive(Clone, Debug, Default, Args)]
pub struct RecordArgs {
    /// Which calls, and how to show them.
    #[command(flatten)]
    pub query: QueryArgs,
    /// How long to record, in seconds [default: 1; of a program that is started: until it ends]
    #[arg(short, long, value_name = "SECS")]
    #[arg(help_heading = RECORDING)]
    pub duration: Option<f64>,
    /// Trace only the function (and the ancestor), by the hardware's IP filter
    #[arg(short, long = "ip_filter")]
    #[arg(help_heading = RECORDING)]
    pub ip_filter: bool,
    /// One buffer for each thread
    #[arg(short = 't', long = "per_thread")]
    #[arg(help_heading = RECORDING)]
    pub per_thread: bool,
    /// Off-CPU time: always on; with this a recording that does not tell of it is warned of
    #[arg(short, long = "offcpu")]
    #[arg(help_heading = OLD)]
    pub off_cpu: bool,
    /// Decode in parallel (always on)
    #[arg(short = 's', long = "parallel_script")]
    #[arg(help_heading = OLD)]
    pub parallel_script: bool,
    /// Trace on these CPUs only: 0-47; without -p and -T: every thread there
    #[arg(short = 'C', long = "cpu", value_name = "CPUS", conflicts_with = "per_thread")]
    #[arg(help_heading = RECORDING)]
    pub cpus: Option<CpuList>,
    /// Child processes and theirs, too: those that run already, and those that are started
    #[arg(long)]
    #[arg(help_heading = RECORDING)]
    pub follow: bool,
    /// Leave out why calls are off the CPU: what they wait for, and what wakes them (taken by eBPF, where
    /// that is permitted)
    #[arg(long)]
    #[arg(help_heading = RECORDING)]
    pub no_sched: bool,
    /// Record from where in their own code threads wake calls, too (by frame pointers)
    #[arg(long, conflicts_with = "no_sched")]
    #[arg(help_heading = RECORDING)]
    pub waker_stacks: bool,
    /// Size of each buffer of trace: 64M [default: by number of buffers and free memory]
    #[arg(short = 'm', long = "aux_size", value_name = "SIZE")]
    #[arg(help_heading = RECORDING)]
    pub aux_size: Option<ByteSize>,
    /// Say what would be recorded: which functions and ranges, which buffers, at which rate (0.1 s are
    /// tried), and stop
    #[arg(long, conflicts_with = "bundle")]
    #[arg(help_heading = RECORDING)]
    pub preview: bool,
    /// Copy the recording and the files that it needs into this directory, too
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = RECORDING)]
    pub bundle: Option<PathBuf>,
    /// Keep the rows of all calls in this directory, as `diff` and `stat` take them
    #[arg(long, value_name = "DIR", conflicts_with = "rows")]
    #[arg(help_heading = FILES)]
    pub save: Option<PathBuf>,
    /// 1: record only; 2: report the recording in the directory of -D
    #[arg(long, value_name = "1|2", conflicts_with = "preview")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=2))]
    #[arg(help_heading = OLD)]
    pub history: Option<u8>,
    /// Directory of perf.data [default: here]
    #[arg(short = 'D', long = "result_dir", value_name = "DIR")]
    #[arg(help_heading = RECORDING)]
    pub directory: Option<PathBuf>,
    /// Path of perf (not needed)
    #[arg(short = 'P', long, value_name = "FILE", hide = true)]
    #[arg(help_heading = OLD)]
    pub perf: Option<PathBuf>,
    /// Settings of the trace unit: cyc=1,mtc_period=3 (see docs/recording.md)
    #[arg(long = "pt_config", alias = "pt-config", value_name = "TERMS")]
    #[arg(help_heading = RECORDING)]
    pub pt_config: Option<String>,
    /// What times the calls.
    #[command(flatten)]
    pub probes: ProbeArgs,
    /// Program to run and trace
    #[arg(last = true, value_name = "CMD")]
    pub program: Vec<String>,
}
