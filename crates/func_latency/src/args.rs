//! The command line as it was typed.  [`crate::config`] makes sense of it.

mod command;
mod counters;
mod explain;
mod generated;
mod headings;
mod merge;
mod part;
mod probes;
mod record;
mod rows_shown;
mod runs;
mod top;
mod trees;
mod watch;

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

pub use crate::export::weight::Weight;
use crate::filter::{Ancestor, CandidateNumber, NsRange, RegionSpec, TidRange, TimeWindow};
pub use crate::render::Format;
use crate::render::json;
use crate::render::rows::Label;
pub use crate::render::top::TopBy;

pub use command::{command, completed, parse};
pub use counters::{CountersArgs, HistogramBy};
pub use explain::{AnnotateArgs, DiffArgs, ExplainArgs, ModesArgs};
pub use generated::{CompletionsArgs, ManArgs, Shell};
use headings::{CALLS, CHECKS, DECODING, FILES, REPORT, TARGET};
pub use merge::MergeArgs;
pub(crate) use part::PARTS_MAX;
pub use part::{PartArgs, PartNumber, PlanArgs};
pub use probes::ProbeArgs;
pub use record::RecordArgs;
pub use rows_shown::RowsArgs;
pub use runs::{CompareArgs, FailArgs, RepeatArgs, StatArgs};
pub use top::TopArgs;
pub use trees::{ExportArgs, ExportFormat, GraphArgs, ShowArgs};
pub use watch::WatchArgs;

const AFTER_HELP: &str = "\
Exit codes: 0 done; 1 no call of any kind was seen, more was lost than --max-loss allows, or B is
slower than --fail-above allows; 2 wrong usage; 3 not permitted, not supported or not possible here;
4 bad input file; 5 the report contradicts itself (--check).
Results go to stdout, everything else to stderr.  Times are integers in ns of perf's clock.";

/// How long every call of a function took, from Intel Processor Trace.
#[derive(Debug, Parser)]
#[command(name = "func_latency", version, after_help = AFTER_HELP)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CommandLine {
    /// What to do; without it, record and report.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of recording.
    #[command(flatten)]
    pub record: RecordArgs,
}

/// The steps one at a time.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Record only: perf.data in the directory of -D
    Record(Box<RecordArgs>),
    /// Report the calls of a function from a recording
    Report(Box<ReportArgs>),
    /// List the functions that are in a recording, to choose from
    #[command(visible_alias = "list")]
    Top(Box<TopArgs>),
    /// Open one call: its tree
    Show(Box<ShowArgs>),
    /// Write the calls for other tools: flame graphs, pprof, Firefox Profiler, Perfetto, rows
    Export(Box<ExportArgs>),
    /// Print the call graph, as perf report does
    Graph(Box<GraphArgs>),
    /// Say why the slow calls of a function were slow
    Explain(Box<ExplainArgs>),
    /// Tell apart the ways that calls of a function go, and which humps of the histogram they make
    Modes(Box<ModesArgs>),
    /// List the lines of a function, with how often each was executed and how long it took
    Annotate(Box<AnnotateArgs>),
    /// Say what makes the calls of a function take longer in recording B than in A
    Diff(Box<DiffArgs>),
    /// Repeat a run, and say how its figures spread over the runs
    Stat(Box<StatArgs>),
    /// Run two commands in turns (-- './old 3' './new 3'), and say by how much the second one is slower or
    /// faster
    Compare(Box<CompareArgs>),
    /// Say into which parts a recording is best divided, for machines that decode one each (report --part)
    Plan(PlanArgs),
    /// Report the calls of several recordings from their summaries (report --summary), or those of one from
    /// its parts (report --part)
    Merge(Box<MergeArgs>),
    /// Show the latency of a function while the program runs, a line each second, and report at the end
    Watch(Box<WatchArgs>),
    /// Print what is in a recording, one line each
    Dump(DumpArgs),
    /// Copy a recording and the files that it needs into a directory, for another machine
    Bundle(BundleArgs),
    /// Say what this machine lets us record, and what to do about what it does not
    Doctor,
    /// Write a shell's completions to stdout
    Completions(CompletionsArgs),
    /// Write man pages into a directory
    Man(ManArgs),
}

/// `func_latency report`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ReportArgs {
    /// Which file.
    #[command(flatten)]
    pub input: InputArgs,
    /// Which calls, and how to show them.
    #[command(flatten)]
    pub query: QueryArgs,
    /// Which part of it.
    #[command(flatten)]
    pub part: PartArgs,
}

/// The recording, by position or with `-i`.
#[derive(Debug, Args)]
pub struct InputArgs {
    /// The recording [default: perf.data]
    #[arg(value_name = "FILE", conflicts_with = "input")]
    pub file: Option<PathBuf>,
    /// The recording, as an option
    #[arg(short, long, value_name = "FILE")]
    pub input: Option<PathBuf>,
}

/// Which calls, and how to find them.
#[derive(Clone, Debug, Default, Args)]
pub struct CallsArgs {
    /// Function: demangled name, unique prefix, glob or address; repeat it for several. OBJECT:NAME is of
    /// that object, k:NAME of the kernel, if its code was traced and is here (--kcore, --vmlinux, a bundle)
    #[arg(short = 'f', long = "func", value_name = "FUNC")]
    #[arg(help_heading = TARGET)]
    pub functions: Vec<String>,
    /// Code between two places, as a function of this name: from where a thread comes to START to where it
    /// comes to END in the same frame. A place is an address, SYMBOL+0x10, file.c:120 or usdt:PROVIDER:NAME;
    /// repeat it for several; see docs/regions.md
    #[arg(long = "region", value_name = "NAME=START..END")]
    #[arg(help_heading = TARGET)]
    pub regions: Vec<RegionSpec>,
    /// Take the N-th of the functions that an ambiguous -f lists
    #[arg(short = 'I', long = "func_idx", value_name = "#N")]
    #[arg(help_heading = TARGET)]
    pub candidate: Option<CandidateNumber>,
    /// Object that holds FUNC; normally found from the recording. A file is also used for an object of its
    /// name that is not here
    #[arg(short = 'b', long = "binary", value_name = "OBJECT")]
    #[arg(help_heading = TARGET)]
    pub object: Option<String>,
    /// Only these processes
    #[arg(short = 'p', long = "pid", value_name = "PIDS", value_delimiter = ',')]
    #[arg(help_heading = TARGET)]
    pub pids: Vec<i32>,
    /// Only these threads: 1,3-5
    #[arg(short = 'T', long = "tid", value_name = "TIDS", value_delimiter = ',')]
    #[arg(help_heading = TARGET)]
    pub tids: Vec<TidRange>,
    /// Look for the objects below this directory, not at their own places
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = DECODING)]
    pub symfs: Option<PathBuf>,
    /// Where the kernel's code is.
    #[command(flatten)]
    pub kernel: KernelArgs,
    /// Decoding threads [default: number of cores]
    #[arg(short = 'w', long = "workers", alias = "worker_num", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    #[arg(help_heading = DECODING)]
    pub workers: Option<u16>,
    /// The decoder
    #[arg(long, value_enum, default_value_t, value_name = "DECODER")]
    #[arg(help_heading = DECODING)]
    pub decoder: DecoderChoice,
    /// Only calls below this function, if given below a call of it of that latency (ns)
    #[arg(short, long, value_name = "FUNC[#min,max]")]
    #[arg(help_heading = TARGET)]
    pub ancestor: Option<Ancestor>,
    /// Only calls of this latency (ns, both included; either may be left out)
    #[arg(long, alias = "latency_interval", value_name = "min,max")]
    #[arg(help_heading = CALLS)]
    pub li: Option<NsRange>,
    /// Only calls that start from start + min to start + max (ns of perf's clock)
    #[arg(long, alias = "time_interval", value_name = "start,min,max")]
    #[arg(help_heading = CALLS)]
    pub ti: Option<TimeWindow>,
    /// Say on stderr what is done and how long it takes
    #[arg(short, long)]
    pub verbose: bool,
}

impl CallsArgs {
    /// No function and no region is named.
    pub(crate) fn names_nothing(&self) -> bool {
        self.functions.is_empty() && self.regions.is_empty()
    }
}

/// Which calls, and how to report them: the same when reporting and when recording.
#[derive(Clone, Debug, Default, Args)]
pub struct QueryArgs {
    /// Which calls.
    #[command(flatten)]
    pub calls: CallsArgs,
    /// Show file:line of call sites
    #[arg(long)]
    #[arg(help_heading = REPORT)]
    pub srcline: bool,
    /// Which rows of a table.
    #[command(flatten)]
    pub table_rows: RowsArgs,
    /// One row for every call site instead of one for every callee
    #[arg(short = 'U', long, alias = "unfold_gathered_line")]
    #[arg(help_heading = REPORT)]
    pub unfold: bool,
    /// What calls execute.
    #[command(flatten)]
    pub counters: CountersArgs,
    /// List the function's code blocks, too: its own time from each call to the next
    #[arg(short = 'c', long = "code_block", alias = "code-block", conflicts_with = "check")]
    #[arg(help_heading = REPORT)]
    pub code_block: bool,
    /// Form of the report.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help = form("report", json::SCHEMA))]
    #[arg(help_heading = REPORT)]
    pub format: Format,
    /// Draw latency over time, by thread: a dot for each call, and the slowest calls one by one
    #[arg(short = 'l', long)]
    #[arg(help_heading = REPORT)]
    pub timeline: bool,
    /// In the timeline, draw N calls of a thread as their least, median and most
    #[arg(long, alias = "timeline_unit", value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(help_heading = REPORT)]
    pub tu: u32,
    /// No colours, on a terminal either (as with NO_COLOR in the environment)
    #[arg(long)]
    #[arg(help_heading = REPORT)]
    pub no_color: bool,
    /// After the report, say why the slowest calls of its function (from p99 on) were slow; see `explain`
    #[arg(long)]
    #[arg(help_heading = REPORT)]
    pub explain: bool,
    /// Write one row for every call; the extension says in which form. DIR/: Parquet tables of calls, their
    /// children, their waits and the trace's gaps; see docs/rows.md
    #[arg(long, value_name = "FILE.{parquet,jsonl,csv}|DIR/")]
    #[arg(help_heading = FILES)]
    pub rows: Option<PathBuf>,
    /// A column label_KEY with this value in all rows; repeat it for several
    #[arg(long = "label", value_name = "KEY=VALUE")]
    #[arg(help_heading = FILES)]
    pub labels: Vec<Label>,
    /// Write a summary: what the report is made of, which `func_latency merge` adds up over recordings
    #[arg(long, value_name = "FILE", conflicts_with_all = ["check", "code_block", "counters"])]
    #[arg(help_heading = FILES)]
    pub summary: Option<PathBuf>,
    /// Write a page for the browser with every call in it: plot, brush, filters, call trees; one file that
    /// needs no network
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = FILES)]
    pub html: Option<PathBuf>,
    /// Open the page of --html in the browser; over ssh, say how to get it to where there is one
    #[arg(long, requires = "html")]
    #[arg(help_heading = FILES)]
    pub open: bool,
    /// Fail (exit code 1) when more than this share of the threads' time was lost, and say why and what
    /// helps; gaps without a known time are only warned of, but 0 allows no gap at all, and no damaged file
    #[arg(long, value_name = "PCT")]
    #[arg(help_heading = CHECKS)]
    pub max_loss: Option<f64>,
    /// Check the report against itself: times run forward, calls nest, sums add up (exit code 5 if not)
    #[arg(long)]
    #[arg(help_heading = CHECKS)]
    pub check: bool,
    /// Write a flame graph of exact times, flamegraph-KIND.svg in the directory of -D: of the calls, or
    /// without -f of all
    #[arg(short = 'F', long, value_enum, value_name = "KIND")]
    #[arg(help_heading = FILES)]
    pub flamegraph: Option<Weight>,
}

/// Where the kernel's code is; by default, where it is found.
#[derive(Clone, Debug, Default, Args)]
pub struct KernelArgs {
    /// Kernel code as it ran: a copy of /proc/kcore, or a directory with it and kallsyms (perf record
    /// --kcore)
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = DECODING)]
    pub kcore: Option<PathBuf>,
    /// Kernel code as it was linked; code that the kernel patched does not fit and is skipped
    #[arg(long, value_name = "FILE", conflicts_with = "kcore")]
    #[arg(help_heading = DECODING)]
    pub vmlinux: Option<PathBuf>,
}

/// Help of an option that chooses a [`Format`].
fn form(of: &str, schema: &str) -> String {
    format!("Form of the {of}; json is of schema {schema}")
}

/// The decoder
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DecoderChoice {
    /// Our own
    #[default]
    Own,
    /// Intel's reference decoder: slower, times without bounds
    Libipt,
}

/// What times the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendChoice {
    /// Intel PT: the hardware's trace of every branch
    Pt,
    /// Probes at the function's entry and ends, by eBPF: any machine, one function, at a cost for each call
    Uprobe,
}

/// `func_latency bundle`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct BundleArgs {
    /// Which file.
    #[command(flatten)]
    pub input: InputArgs,
    /// Directory to write; report with -i DIR
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Look for the objects below this directory, not at their own places
    #[arg(long, value_name = "DIR")]
    pub symfs: Option<PathBuf>,
    /// Where the kernel's code is.
    #[command(flatten)]
    pub kernel: KernelArgs,
}

/// `func_latency dump`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
#[command(group = ArgGroup::new("what").required(true).args(["packets", "branches", "sideband"]))]
pub struct DumpArgs {
    /// Which file.
    #[command(flatten)]
    pub input: InputArgs,
    /// Packets of the AUX buffers: buffer, offset, packet
    #[arg(long)]
    pub packets: bool,
    /// Control transfers and gaps: thread, time, ~error, kind, from -> to
    #[arg(long)]
    pub branches: bool,
    /// The other records: mappings, names, births, deaths, context switches
    #[arg(long)]
    pub sideband: bool,
    /// Only these threads: 1,3-5
    #[arg(short = 'T', long = "tid", value_name = "TIDS", value_delimiter = ',')]
    pub tids: Vec<TidRange>,
    /// Only from start + min to start + max (ns of perf's clock)
    #[arg(long, value_name = "start,min,max")]
    pub ti: Option<TimeWindow>,
    /// Look for the objects below this directory, not at their own places
    #[arg(long, value_name = "DIR")]
    pub symfs: Option<PathBuf>,
    /// Where the kernel's code is.
    #[command(flatten)]
    pub kernel: KernelArgs,
    /// Decoding threads [default: number of cores]
    #[arg(short = 'w', long = "workers", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub workers: Option<u16>,
    /// The decoder
    #[arg(long, value_enum, default_value_t, value_name = "DECODER")]
    pub decoder: DecoderChoice,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definition_is_consistent() {
        CommandLine::command().debug_assert();
    }

    /// The command lines that users of PT_PERF have in their scripts.
    #[test]
    fn command_lines_of_pt_perf_parse() {
        let lines = [
            "-b /disk2/bin/mysqld -f row_search_mvcc -d 1 -i -t -s -p 77 -o",
            "-b /disk2/bin/mysqld -f do_command -d 1 -s -p 77 -o -w 10 -l -t",
            "-b /disk2/bin/mysqld -f do_command -d 1 -s -T 123205 -t -o -l",
            "-b /disk2/bin/mysqld -f do_command -d 0.01 -s -p 77 -t -o -l",
            "-b bin/mysqld -f do_command -d 1 -p 77 -s -i -t -I #2",
            "-b bin/mysqld -f buf_page_get_gen -a do_command#1,100000 -d 1 -p 77 -s -i -t",
            "-b bin/mysqld -f do_command -d 1 -p 77 -s -i -t -c",
            "-b bin/mysqld -f do_command -d 1 -p 77 -s -i -t --srcline",
            "-b bin/mysqld -f do_command -d 1 -p 77 -s -i -t --li=0,200000",
            "-b bin/mysqld -f do_command -d 1 -p 77 -s -i -t -l --tu=1 --ti=5133313694755869,100000,200000",
            "--flamegraph=latency -d 1 -p 77 -t -s",
            "-F cpu -d 1 -p 77 -t -s",
            "-d 10 -p 77 -t --history=1",
            "-b bin/mysqld -f do_command -d 1 -s -t -l --history=2",
            "-d 10 -p 77 -t -D trace1 --history=1",
            "-b bin/mysqld -f trx_commit -d 10 -t -s -l --tu=100 -T 123173 --history=2",
            "-C 0-47 --worker_num 4 -P perf --unfold_gathered_line --pt_config cyc=1 -v -f x",
            "--binary a --func b --duration 1 --ip_filter --per_thread --parallel_script --pid 7 --offcpu",
            "-f main -- ./program --with -f options",
        ];
        for line in lines {
            let words = std::iter::once("func_latency").chain(line.split(' '));
            let parsed = CommandLine::try_parse_from(words).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert!(parsed.command.is_none(), "{line}");
        }
    }

    #[test]
    fn report_takes_the_file_in_both_ways_but_not_twice() {
        let parse = |words: &[&str]| CommandLine::try_parse_from(words);
        for words in [
            &["func_latency", "report", "x.data", "-f", "a", "-f", "b"][..],
            &["func_latency", "report", "-i", "x.data", "-f", "a", "-f", "b"],
        ] {
            let Some(Command::Report(args)) = parse(words).unwrap().command else { panic!("{words:?}") };
            assert_eq!(args.input.file.or(args.input.input), Some(PathBuf::from("x.data")));
            assert_eq!(args.query.calls.functions, ["a", "b"]);
        }
        assert!(parse(&["func_latency", "report", "x", "-i", "y", "-f", "a"]).is_err());
    }

    #[test]
    fn dump_wants_exactly_one_kind() {
        let parse = |words: &[&str]| CommandLine::try_parse_from(words);
        assert!(parse(&["func_latency", "dump", "x", "--packets"]).is_ok());
        assert!(parse(&["func_latency", "dump", "x"]).is_err());
        assert!(parse(&["func_latency", "dump", "x", "--packets", "--branches"]).is_err());
    }
}
