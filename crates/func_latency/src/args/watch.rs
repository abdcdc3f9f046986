//! The command that shows figures while a program runs: `watch`.

use std::path::PathBuf;

use clap::Args;

use super::headings::{CALLS, CAPTURES, DECODING, FILES, RECORDING, REPORT, TARGET};
use super::{AFTER_HELP, Format, ProbeArgs, form};
use crate::filter::{Ancestor, ByteSize, CandidateNumber, NsRange, TidRange};
use crate::render::interval::json;
use crate::trigger_words::{DurationNs, Over, Rate};

/// `func_latency watch`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct WatchArgs {
    /// Function: demangled name, unique prefix, glob or address; repeat it for several
    #[arg(short = 'f', long = "func", value_name = "FUNC", required = true)]
    #[arg(help_heading = TARGET)]
    pub functions: Vec<String>,
    /// Take the N-th of the functions that an ambiguous -f lists
    #[arg(short = 'I', long = "func_idx", value_name = "#N")]
    #[arg(help_heading = TARGET)]
    pub candidate: Option<CandidateNumber>,
    /// Object that holds FUNC; normally found from the process
    #[arg(short = 'b', long = "binary", value_name = "OBJECT")]
    #[arg(help_heading = TARGET)]
    pub object: Option<String>,
    /// These processes
    #[arg(short = 'p', long = "pid", value_name = "PIDS", value_delimiter = ',')]
    #[arg(help_heading = TARGET)]
    pub pids: Vec<i32>,
    /// These threads: 1,3-5
    #[arg(short = 'T', long = "tid", value_name = "TIDS", value_delimiter = ',')]
    #[arg(help_heading = TARGET)]
    pub tids: Vec<TidRange>,
    /// Only calls below this function, if given below a call of it of that latency (ns)
    #[arg(short, long, value_name = "FUNC[#min,max]")]
    #[arg(help_heading = TARGET)]
    pub ancestor: Option<Ancestor>,
    /// Only calls of this latency (ns, both included; either may be left out)
    #[arg(long, value_name = "min,max")]
    #[arg(help_heading = CALLS)]
    pub li: Option<NsRange>,
    /// How long to watch, in seconds [default: until Ctrl-C, or until the program ends]
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
    /// Settings of the trace unit: cyc=1,mtc_period=3 (see docs/recording.md)
    #[arg(long = "pt_config", value_name = "TERMS")]
    #[arg(help_heading = RECORDING)]
    pub pt_config: Option<String>,
    /// Trace that waits to be decoded takes no more than this; what has no room is not decoded, and counted
    /// as such
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    #[arg(help_heading = RECORDING)]
    pub spool: ByteSize,
    /// Where trace waits to be decoded [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = RECORDING)]
    pub spool_dir: Option<PathBuf>,
    /// What times the calls.
    #[command(flatten)]
    pub probes: ProbeArgs,
    /// What is captured.
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// Write and decode no trace until SIGUSR2, a hit of --over or --on (which eBPF probes at the functions
    /// look for), the exit of --until's command, or the end: the trace unit writes over its buffers for ever,
    /// and a capture has what they hold (-m says how much)
    #[arg(long, conflicts_with_all = ["on_gap", "before", "after", "openmetrics", "replay", "lines"])]
    #[arg(help_heading = CAPTURES)]
    pub snapshot: bool,
    /// Instead of recording, watch this recording as if it was made now, without waiting: the figures over
    /// its time
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ip_filter", "per_thread", "aux_size", "pt_config", "duration", "spool_dir", "program", "backend", "max_overhead", "uretprobe", "no_uretprobe", "waker_stacks"])]
    #[arg(help_heading = RECORDING)]
    pub replay: Option<PathBuf>,
    /// Seconds from line to line
    #[arg(short = 'n', long, value_name = "SECS", default_value_t = 1.0)]
    #[arg(help_heading = REPORT)]
    pub interval: f64,
    /// Form of the lines and of the report.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help = form("lines", json::SCHEMA))]
    #[arg(help_heading = REPORT)]
    pub format: Format,
    /// Print lines on a terminal, too, instead of the view of the whole screen
    #[arg(long)]
    #[arg(help_heading = REPORT)]
    pub lines: bool,
    /// Keep the figures so far in this file, for a collector of metrics; it is replaced as a whole
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = FILES)]
    pub openmetrics: Option<PathBuf>,
    /// Decoding threads [default: number of cores]
    #[arg(short = 'w', long = "workers", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    #[arg(help_heading = DECODING)]
    pub workers: Option<u16>,
    /// Say on stderr what is done and how long it takes
    #[arg(short, long)]
    pub verbose: bool,
    /// Program to run and watch
    #[arg(last = true, value_name = "CMD")]
    pub program: Vec<String>,
}

/// What makes a capture, and how many there are.
#[derive(Clone, Debug, Args)]
pub struct CaptureArgs {
    /// Capture calls that take longer: 5ms, or p99.9 of the last minute's calls; p99.9,1ms: of these only
    /// those above 1 ms
    #[arg(long, value_name = "TIME|pNN[,TIME]")]
    #[arg(help_heading = CAPTURES)]
    pub over: Option<Over>,
    /// Capture when this function is entered; repeat it for several
    #[arg(long, value_name = "FUNC")]
    #[arg(help_heading = CAPTURES)]
    pub on: Vec<String>,
    /// Capture where trace was lost
    #[arg(long)]
    #[arg(help_heading = CAPTURES)]
    pub on_gap: bool,
    /// Start this command (by sh -c); when it exits, capture and end
    #[arg(long, value_name = "CMD")]
    #[arg(help_heading = CAPTURES)]
    pub until: Option<String>,
    /// Where captures go [default: captures]. With any of these options SIGUSR2 makes a capture, too
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = CAPTURES)]
    pub captures: Option<PathBuf>,
    /// A capture begins this long before the call
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    #[arg(help_heading = CAPTURES)]
    pub before: DurationNs,
    /// A capture ends this long after the call
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    #[arg(help_heading = CAPTURES)]
    pub after: DurationNs,
    /// Keep N captures: the slowest
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(help_heading = CAPTURES)]
    pub keep: u32,
    /// Captures take no more than this, but for one
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    #[arg(help_heading = CAPTURES)]
    pub keep_bytes: ByteSize,
    /// Capture at most N calls in any TIME
    #[arg(long, value_name = "N/TIME", default_value = "1/10s")]
    #[arg(help_heading = CAPTURES)]
    pub max_captures: Rate,
}

impl CaptureArgs {
    /// Something is captured.
    pub(crate) fn is_asked(&self) -> bool {
        let has_trigger = self.over.is_some() || self.on_gap || !self.on.is_empty() || self.until.is_some();
        has_trigger || self.captures.is_some()
    }
}
