//! The command line, resolved and checked: what the rest of the command works from.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use analyzer::Metric;
use anyhow::{Context as _, Result};
use image::KernelOptions;
use model::Pid;

use crate::args::{
    BundleArgs, CallsArgs, DecoderChoice, DumpArgs, Format, InputArgs, KernelArgs, QueryArgs, RecordArgs,
    ReportArgs, Weight,
};
use crate::exit::{Exit, failure};
use crate::filter::{Ancestor, NsRange, RegionSpec, TidSet, TimeWindow};
use crate::output::{OutputAsked, cannot_write, check_apart, check_writable};
use crate::render::row_limit::RowLimit;
use crate::render::rows::{Label, Labels, RowsTarget, is_directory};

/// Which calls, of which recording.
#[derive(Clone, Debug)]
pub struct CallsConfig {
    /// The recording.
    pub input: PathBuf,
    /// Functions as they were asked for; empty: none was named.
    pub functions: Vec<String>,
    /// Regions as they were asked for.
    pub regions: Vec<RegionSpec>,
    /// Which of several candidates, from 0; `None`: ambiguity is an error.
    pub candidate: Option<usize>,
    /// Object that holds the functions.
    pub object: Option<String>,
    /// Only these processes; empty: all.
    pub pids: Vec<Pid>,
    /// Only these threads.
    pub tids: TidSet,
    /// Where objects are looked for first.
    pub symfs: Option<PathBuf>,
    /// Where the kernel's code is.
    pub kernel: KernelOptions,
    /// Decoding threads.
    pub workers: usize,
    /// The decoder to use.
    pub decoder: DecoderChoice,
    /// Only calls below this one.
    pub ancestor: Option<Ancestor>,
    /// Only calls of this latency.
    pub latency_ns: NsRange,
    /// Only calls that start here.
    pub window: Option<TimeWindow>,
    /// Say what is done.
    pub verbose: bool,
}

/// What `report` does.
#[derive(Clone, Debug)]
pub struct ReportConfig {
    /// Which calls; without a function there is only a flame graph.
    pub calls: CallsConfig,
    /// Resolve source lines of call sites.
    pub srcline: bool,
    /// One row for every call site.
    pub unfold: bool,
    /// List code blocks.
    pub code_blocks: bool,
    /// Which rows of the text's tables are printed.
    pub table_rows: RowLimit,
    /// Form of the report.
    pub format: Format,
    /// Count what each call executes.
    pub counters: bool,
    /// What histograms of the text are of; `None`: latency.
    pub by: Option<Metric>,
    /// Draw a timeline.
    pub timeline: Option<Timeline>,
    /// Say why the slowest calls were slow.
    pub explain: bool,
    /// Where rows go.
    pub rows: Option<RowsTarget>,
    /// What rows say of where they are from.
    pub labels: Labels,
    /// Where the summary goes.
    pub summary: Option<PathBuf>,
    /// Where the page goes.
    pub html: Option<PathBuf>,
    /// Show the page in a browser.
    pub open: bool,
    /// A flame graph, and where it goes.
    pub flamegraph: Option<(Weight, PathBuf)>,
    /// Fail above this share of lost time, percent.
    pub max_loss_percent: Option<f64>,
    /// Check the report against itself.
    pub check: bool,
    /// Off-CPU time was asked for: say so if it is not known.
    pub off_cpu: bool,
    /// Write the rows, and no report.
    pub rows_only: bool,
}

/// How the timeline is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Calls that are drawn as one.
    pub bin_calls: u32,
    /// Colours may be used on a terminal.
    pub colour: bool,
}

impl ReportConfig {
    /// Of `report`'s arguments.
    ///
    /// # Errors
    /// Wrong usage.
    pub fn new(args: ReportArgs) -> Result<Self> {
        Self::of_query(input_path(args.input), Path::new(""), args.query)
    }

    /// Of a command line without a subcommand; its recording is in the directory of `-D`.
    ///
    /// # Errors
    /// Wrong usage.
    pub fn of_recording(args: RecordArgs) -> Result<Self> {
        let directory = args.directory.unwrap_or_default();
        let rows = args.save.map(|save| save.join(FIRST_RUN));
        let query = QueryArgs { rows: args.query.rows.or(rows), ..args.query };
        let config = Self::of_query(directory.join("perf.data"), &directory, query)?;
        Ok(Self { off_cpu: args.off_cpu, ..config })
    }

    fn of_query(input: PathBuf, directory: &Path, query: QueryArgs) -> Result<Self> {
        if query.calls.names_nothing() && query.flamegraph.is_none() {
            return Err(failure(Exit::Usage, NO_FUNCTION));
        }
        if let Some(percent) = query.max_loss.filter(|p| !(0.0..=100.0).contains(p)) {
            return Err(failure(Exit::Usage, format!("--max-loss {percent}: not between 0 and 100 percent")));
        }
        if query.summary.is_some() && query.calls.names_nothing() {
            return Err(failure(Exit::Usage, NO_FUNCTION));
        }
        if !query.labels.is_empty() && query.rows.is_none() && query.summary.is_none() {
            let message = "--label is said of rows and summaries, and none is written: add --rows or --summary, \
                           or leave it out";
            return Err(failure(Exit::Usage, message));
        }
        if query.explain && (query.calls.names_nothing() || query.format != Format::Text) {
            let message = "--explain goes on where the text report of a function ends; `explain --format json` has it as JSON";
            return Err(failure(Exit::Usage, message));
        }
        if query.code_block && query.calls.functions.is_empty() && !query.calls.regions.is_empty() {
            let message = "-c lists the code blocks of functions, not of regions: leave it out, or name the \
                           function that the region is in with -f FUNC";
            return Err(failure(Exit::Usage, message));
        }
        if query.counters.is_asked() {
            check_counters(&query.calls)?;
        }
        let flamegraph =
            |weight: Weight| (weight, directory.join(format!("flamegraph-{}.svg", weight.name())));
        let config = Self {
            calls: CallsConfig::new(input, query.calls)?,
            srcline: query.srcline,
            unfold: query.unfold,
            code_blocks: query.code_block,
            table_rows: query.table_rows.limit(),
            format: query.format,
            counters: query.counters.is_asked(),
            by: query.counters.metric(),
            timeline: timeline(query.timeline, query.tu, query.no_color, query.format)?,
            explain: query.explain,
            rows: query.rows.map(RowsTarget::new).transpose()?,
            labels: labels(&query.labels)?,
            summary: query.summary,
            html: query.html,
            open: query.open,
            flamegraph: query.flamegraph.map(flamegraph),
            max_loss_percent: query.max_loss,
            check: query.check,
            off_cpu: false,
            rows_only: false,
        };
        check_apart(&config.calls.inputs(), &config.outputs())?;
        Ok(config)
    }

    /// Which of its outputs needs times, if one does: the report itself has counts without.
    pub(crate) fn needs_times(&self) -> Option<&'static str> {
        first_that_needs(&[
            ("-l", self.timeline.is_some()),
            ("--explain", self.explain),
            ("--html", self.html.is_some()),
            ("--rows", self.rows.is_some()),
            ("--summary", self.summary.is_some()),
            ("-F", self.flamegraph.is_some()),
            ("--max-loss", self.max_loss_percent.is_some()),
        ])
    }

    /// The files that it writes.
    fn outputs(&self) -> Vec<OutputAsked<'_>> {
        let rows = self.rows.iter().map(|rows| OutputAsked { option: "--rows", path: rows.path() });
        let page = self.html.iter().map(|path| OutputAsked { option: "--html", path });
        let flamegraph = self.flamegraph.iter().map(|(_, path)| OutputAsked { option: "-F", path });
        let summary = self.summary.iter().map(|path| OutputAsked { option: "--summary", path });
        rows.chain(summary).chain(page).chain(flamegraph).collect()
    }

    /// Whether they can be written, before there is anything that would be lost if not.
    ///
    /// # Errors
    /// One cannot.
    pub(crate) fn check_outputs(&self) -> Result<()> {
        self.outputs().into_iter().try_for_each(|OutputAsked { option, path }| match option {
            "--rows" => check_rows_output(path),
            _ => check_writable(path),
        })
    }
}

/// Whether a file of rows, or tables in a directory, can be written there.
///
/// # Errors
/// It cannot.
pub(crate) fn check_rows_output(path: &Path) -> Result<()> {
    if is_directory(path) {
        return std::fs::create_dir_all(path).with_context(|| cannot_write(path));
    }
    check_writable(path)
}

/// The labels of rows.
///
/// # Errors
/// A key is there twice.
pub(crate) fn labels(all: &[Label]) -> Result<Labels> {
    Labels::new(all).map_err(|key| failure(Exit::Usage, format!("--label {key}: is there twice")))
}

/// The rows of the only run, in a directory of runs.
const FIRST_RUN: &str = "run-1.jsonl";

fn first_that_needs(needs: &[(&'static str, bool)]) -> Option<&'static str> {
    needs.iter().find(|(_, is_asked)| *is_asked).map(|(what, _)| *what)
}

/// What is said where a function must be named.
pub(crate) const NO_FUNCTION: &str =
    "which function? Name it with -f FUNC; `func_latency top` lists those that a recording has";

impl CallsConfig {
    pub(crate) fn new(input: PathBuf, calls: CallsArgs) -> Result<Self> {
        let chooses = calls.ancestor.is_some() || calls.li.is_some() || calls.ti.is_some();
        if calls.names_nothing() && chooses {
            return Err(failure(
                Exit::Usage,
                "-a, --li and --ti choose calls of a function: name it with -f FUNC",
            ));
        }
        Ok(Self {
            kernel: kernel_options(calls.kernel, &input)?,
            input,
            regions: regions(calls.regions, calls.decoder)?,
            functions: calls.functions,
            candidate: calls.candidate.map(|n| n.0 - 1),
            object: calls.object,
            pids: calls.pids.into_iter().map(Pid).collect(),
            tids: TidSet(calls.tids),
            symfs: checked_symfs(calls.symfs)?,
            workers: workers(calls.workers),
            decoder: calls.decoder,
            ancestor: calls.ancestor,
            latency_ns: calls.li.unwrap_or(NsRange::ALL),
            window: calls.ti,
            verbose: calls.verbose,
        })
    }

    /// No function and no region is named: it is about all calls.
    pub(crate) fn is_of_all(&self) -> bool {
        self.functions.is_empty() && self.regions.is_empty()
    }

    /// The files that are read, as far as the command line names them.
    pub(crate) fn inputs(&self) -> Vec<&Path> {
        let KernelOptions { kcore, vmlinux } = &self.kernel;
        [Some(&self.input), kcore.as_ref(), vmlinux.as_ref()]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
            .collect()
    }

    /// What chooses calls by their times, if something does.
    pub(crate) fn needs_times(&self) -> Option<&'static str> {
        let by_latency = |ancestor: &Ancestor| ancestor.latency_ns != NsRange::ALL;
        let needs = [
            ("--ti", self.window.is_some()),
            ("--li", self.latency_ns != NsRange::ALL),
            ("-a with a latency", self.ancestor.as_ref().is_some_and(by_latency)),
        ];
        first_that_needs(&needs)
    }

    /// Which calls were asked for, in words; empty: all.
    pub(crate) fn only(&self) -> Vec<String> {
        let mut only = Vec::new();
        if let Some(window) = self.window {
            only.push(format!("that start from {} to {} ns (--ti)", window.from.0, window.to.0));
        }
        if self.latency_ns != NsRange::ALL {
            only.push(format!("of {} (--li)", self.latency_ns));
        }
        if let Some(Ancestor { function, latency_ns }) = &self.ancestor {
            let of = if *latency_ns == NsRange::ALL { String::new() } else { format!(" of {latency_ns}") };
            only.push(format!("below a call of {function}{of} (-a)"));
        }
        only
    }
}

/// What `bundle` does.
#[derive(Clone, Debug)]
pub struct BundleConfig {
    /// The recording.
    pub input: PathBuf,
    /// Where the copies go.
    pub output: PathBuf,
    /// Where objects are looked for first.
    pub symfs: Option<PathBuf>,
    /// Where the kernel's code is.
    pub kernel: KernelOptions,
}

impl BundleConfig {
    /// Of `bundle`'s arguments.
    ///
    /// # Errors
    /// Wrong usage: the directory holds something that would be overwritten or mixed up.
    pub fn new(args: BundleArgs) -> Result<Self> {
        let input = input_path(args.input);
        let kernel = kernel_options(args.kernel, &input)?;
        Self { kernel, input, output: args.output, symfs: checked_symfs(args.symfs)? }.checked()
    }

    /// Nothing that is there already is overwritten or mixed up.
    pub(crate) fn checked(self) -> Result<Self> {
        if std::fs::read_dir(&self.output).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(failure(Exit::Usage, format!("{}: not an empty directory", self.output.display())));
        }
        Ok(self)
    }
}

/// What `dump` does.
#[derive(Clone, Debug)]
pub struct DumpConfig {
    /// The recording.
    pub input: PathBuf,
    /// What of it.
    pub what: DumpKind,
    /// Only these threads.
    pub tids: TidSet,
    /// Only this time.
    pub window: Option<TimeWindow>,
    /// Where objects are looked for first.
    pub symfs: Option<PathBuf>,
    /// Where the kernel's code is.
    pub kernel: KernelOptions,
    /// Decoding threads.
    pub workers: usize,
    /// The decoder to use.
    pub decoder: DecoderChoice,
}

/// What `dump` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpKind {
    /// Packets.
    Packets,
    /// Control transfers and gaps.
    Branches,
    /// Sideband records.
    Sideband,
}

impl DumpConfig {
    /// Of `dump`'s arguments.
    ///
    /// # Errors
    /// Wrong usage.
    pub fn new(args: DumpArgs) -> Result<Self> {
        let what = if args.packets {
            DumpKind::Packets
        } else if args.branches {
            DumpKind::Branches
        } else {
            DumpKind::Sideband
        };
        let input = input_path(args.input);
        Ok(Self {
            kernel: kernel_options(args.kernel, &input)?,
            input,
            what,
            tids: TidSet(args.tids),
            window: args.ti,
            symfs: checked_symfs(args.symfs)?,
            workers: workers(args.workers),
            decoder: args.decoder,
        })
    }
}

pub(crate) fn input_path(input: InputArgs) -> PathBuf {
    input.file.or(input.input).unwrap_or_else(|| PathBuf::from("perf.data"))
}

/// What is asked for, else what `perf record --kcore` put beside the recording.
fn kernel_options(args: KernelArgs, input: &Path) -> Result<KernelOptions> {
    let KernelArgs { kcore, vmlinux } = args;
    kcore.iter().try_for_each(|path| check_elf("--kcore", path))?;
    vmlinux.iter().try_for_each(|path| check_elf("--vmlinux", path))?;
    let beside = || {
        let directory = if input.is_dir() { input } else { input.parent()? };
        Some(directory.join("kcore_dir")).filter(|path| path.is_dir())
    };
    let kcore = if vmlinux.is_some() { kcore } else { kcore.or_else(beside) };
    Ok(KernelOptions { kcore, vmlinux })
}

/// Counters are those of the calls of a function, and of our own decoder.
///
/// # Errors
/// Wrong usage.
pub(crate) fn check_counters(calls: &CallsArgs) -> Result<()> {
    let message = if calls.names_nothing() {
        "--counters and --by count what the calls of a function execute: name it with -f FUNC"
    } else if calls.decoder == DecoderChoice::Libipt {
        "--counters: libipt does not say what was executed between two branches; leave out --decoder libipt"
    } else {
        return Ok(());
    };
    Err(failure(Exit::Usage, message))
}

/// A file that was asked for by name must be there, and be what it is named for. In a directory it is called
/// `kcore`.
fn check_elf(option: &str, path: &Path) -> Result<()> {
    let file = if path.is_dir() { path.join("kcore") } else { path.to_owned() };
    let mut magic = [0; 4];
    let why = match File::open(&file).and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) if magic == *b"\x7fELF" => return Ok(()),
        Ok(()) => "it is no ELF file".to_owned(),
        Err(error) => error.to_string(),
    };
    let message = format!("{option} {}: {why}; without the option kernel code is skipped", file.display());
    Err(failure(Exit::BadInput, message))
}

/// A report has one function of a name; and only our own decoder tells where control passes by.
fn regions(regions: Vec<RegionSpec>, decoder: DecoderChoice) -> Result<Vec<RegionSpec>> {
    if decoder != DecoderChoice::Own && !regions.is_empty() {
        return Err(failure(Exit::Usage, "--region needs our own decoder: leave out --decoder"));
    }
    for (number, region) in regions.iter().enumerate() {
        if regions.iter().take(number).any(|other| other.name == region.name) {
            let message =
                format!("--region: two regions are named '{}'; give each a name of its own", region.name);
            return Err(failure(Exit::Usage, message));
        }
    }
    Ok(regions)
}

fn workers(given: Option<u16>) -> usize {
    given.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}

fn checked_symfs(symfs: Option<PathBuf>) -> Result<Option<PathBuf>> {
    match symfs {
        Some(path) if !path.is_dir() => {
            Err(failure(Exit::Usage, format!("--symfs {}: no such directory", path.display())))
        }
        symfs => Ok(symfs),
    }
}

fn timeline(wanted: bool, bin_calls: u32, no_color: bool, format: Format) -> Result<Option<Timeline>> {
    if wanted && format != Format::Text {
        return Err(failure(
            Exit::Usage,
            "-l draws on the text report; with --format json, take --rows or --html",
        ));
    }
    Ok(wanted.then_some(Timeline { bin_calls, colour: !no_color }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::PartArgs;
    use crate::exit;
    use crate::render::rows::{RowsFile, RowsForm};

    fn calls_of_f() -> CallsArgs {
        CallsArgs { functions: vec!["f".to_owned()], ..CallsArgs::default() }
    }

    fn query(change: impl FnOnce(&mut QueryArgs)) -> Result<ReportConfig> {
        let mut query = QueryArgs { calls: calls_of_f(), ..QueryArgs::default() };
        change(&mut query);
        let input = InputArgs { file: None, input: None };
        ReportConfig::new(ReportArgs { input, query, part: PartArgs::default() })
    }

    #[test]
    fn defaults() {
        let config = query(|_| ()).unwrap();
        assert_eq!(config.calls.input, Path::new("perf.data"));
        assert_eq!((config.calls.latency_ns, config.calls.candidate), (NsRange::ALL, None));
        assert_eq!((config.rows, config.flamegraph), (None, None));
        assert!(config.calls.workers > 0);
    }

    #[test]
    fn wrong_usage_is_exit_2() {
        let wrong: [fn(&mut QueryArgs); 6] = [
            |q| q.calls.functions.clear(),
            |q| q.rows = Some("calls.txt".into()),
            |q| (q.counters.counters, q.calls.decoder) = (true, DecoderChoice::Libipt),
            |q| q.max_loss = Some(101.0),
            |q| q.max_loss = Some(f64::NAN),
            |q| q.calls.symfs = Some("/no/such/dir".into()),
        ];
        for change in wrong {
            assert_eq!(exit::of_error(&query(change).unwrap_err()), Some(Exit::Usage));
        }
    }

    #[test]
    fn extension_says_the_form() {
        let rows = |name: &str| query(|q| q.rows = Some(name.into())).unwrap().rows.unwrap();
        let lines = |name: &str, form| RowsTarget::Lines(RowsFile { path: name.into(), form });
        assert_eq!(rows("a/calls.jsonl"), lines("a/calls.jsonl", RowsForm::JsonLines));
        assert_eq!(rows("calls.csv"), lines("calls.csv", RowsForm::Csv));
        assert_eq!(rows("calls.parquet"), RowsTarget::Parquet("calls.parquet".into()));
        assert_eq!(rows("no/such/"), RowsTarget::Tables("no/such/".into()));
        let here = tempfile::tempdir().unwrap();
        assert_eq!(rows(here.path().to_str().unwrap()), RowsTarget::Tables(here.path().to_owned()));
    }

    #[test]
    fn history_reads_the_result_directory() {
        let args = RecordArgs {
            query: QueryArgs { calls: calls_of_f(), ..QueryArgs::default() },
            directory: Some("trace1".into()),
            ..RecordArgs::default()
        };
        assert_eq!(ReportConfig::of_recording(args).unwrap().calls.input, Path::new("trace1/perf.data"));
    }
}
