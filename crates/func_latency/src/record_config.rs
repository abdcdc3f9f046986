//! What to record, resolved and checked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use image::KernelOptions;
use model::{Pid, Tid};
use recorder::{Proc, ProgramStreams, Request, Target};

use crate::args::{BackendChoice, RecordArgs};
use crate::config::{BundleConfig, ReportConfig};
use crate::exit::{Exit, failure};
use crate::filter::TidRange;

/// What the command does with a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Nothing.
    Keep,
    /// Reports it.
    Report,
    /// Keeps the rows of its calls, and reports nothing: one of several runs.
    Rows,
    /// Throws it away, and says what it was like.
    Preview,
}

impl Then {
    /// Calls of a function are wanted.
    pub(crate) const fn is_of_calls(self) -> bool {
        matches!(self, Self::Report | Self::Rows)
    }
}

/// What a recording is of, and what becomes of it.
#[derive(Clone, Debug)]
pub(crate) struct RecordConfig {
    /// What to record, and how; the IP filter is found later.
    pub(crate) request: Request,
    /// How long; `None`: until the program ends.
    pub(crate) window: Option<Duration>,
    /// Trace only the functions.
    pub(crate) ip_filter: bool,
    /// The file.
    pub(crate) output: PathBuf,
    /// Which functions; `None`: none was named.
    pub(crate) report: Option<ReportConfig>,
    /// What becomes of the recording.
    pub(crate) then: Then,
    /// Where the recording is copied to, with what it needs.
    pub(crate) bundle: Option<BundleConfig>,
    /// Record why calls are off the CPU, too.
    pub(crate) sched: bool,
    /// Which stack of waking threads is recorded.
    #[cfg(feature = "bpf")]
    pub(crate) waker_stack: bpf::WakerStack,
    /// Say what is done.
    pub(crate) verbose: bool,
    /// What times the calls, if that was asked for.
    pub(crate) backend: Option<BackendChoice>,
    /// What probes may cost.
    #[cfg(feature = "bpf")]
    pub(crate) probing: ProbeLimits,
    /// How probes see that a call ends; `None`: as is safe, function by function.
    #[cfg(feature = "bpf")]
    pub(crate) ends: Option<bpf::Ends>,
}

impl RecordConfig {
    /// Of a command line.
    ///
    /// # Errors
    /// Wrong usage.
    pub(crate) fn new(args: RecordArgs, then: Then) -> Result<Self> {
        let then = if args.preview { Then::Preview } else { then };
        check_named(&args, then)?;
        let target = target(&args)?;
        check(&args, then, &target)?;
        let output = args.directory.clone().unwrap_or_default().join("perf.data");
        let request = Request {
            cpus: args.cpus.clone(),
            per_thread: args.per_thread,
            follow: args.follow,
            pt_config: args.pt_config.clone(),
            filter: Vec::new(),
            trace_bytes: args.aux_size.map(|size| size.0),
            overwrites: false,
            streams: if then == Then::Rows { ProgramStreams::Null } else { ProgramStreams::Ours },
            target,
        };
        let bundle = args.bundle.as_deref().map(|directory| BundleConfig::of_recording(&output, directory));
        Ok(Self {
            window: window(&args)?,
            ip_filter: args.ip_filter,
            then,
            bundle: bundle.transpose()?,
            sched: !args.no_sched && then != Then::Preview,
            #[cfg(feature = "bpf")]
            waker_stack: if args.waker_stacks { bpf::WakerStack::User } else { bpf::WakerStack::Kernel },
            verbose: args.query.calls.verbose,
            backend: args.probes.backend,
            #[cfg(feature = "bpf")]
            probing: ProbeLimits {
                most_percent: args.probes.max_overhead,
                // Rows have no children.
                most_probes: if then == Then::Rows { 0 } else { args.probes.max_probes },
            },
            #[cfg(feature = "bpf")]
            ends: match (args.probes.uretprobe, args.probes.no_uretprobe) {
                (true, _) => Some(bpf::Ends::ByReturnAddress),
                (false, true) => Some(bpf::Ends::AtInstructions),
                (false, false) => None,
            },
            report: report(args, then)?,
            output,
            request,
        })
    }
}

/// Refuses a report that names nothing.
fn check_named(args: &RecordArgs, then: Then) -> Result<()> {
    let usage = |message: &str| Err(failure(Exit::Usage, message));
    if args.query.calls.names_nothing()
        && (then.is_of_calls() && args.query.flamegraph.is_none() || args.ip_filter)
    {
        return usage("which function? Name it with -f FUNC, or code with --region");
    }
    Ok(())
}

/// Refuses options that contradict each other.
fn check(args: &RecordArgs, then: Then, target: &Target) -> Result<()> {
    let usage = |message: &str| Err(failure(Exit::Usage, message));
    if args.ip_filter && *target == Target::WholeCpus {
        return usage(
            "-i: the kernel filters only what certain threads run: name them with -p or -T, beside -C",
        );
    }
    if then == Then::Preview && !args.program.is_empty() {
        return usage("--preview: of what runs already; a program is not started for it");
    }
    if args.query.calls.symfs.is_some() {
        return usage("--symfs: what runs here is recorded with its own files");
    }
    if (args.probes.uretprobe || args.probes.no_uretprobe) && args.probes.backend == Some(BackendChoice::Pt) {
        return usage("--uretprobe and --no-uretprobe are kinds of probes, of --backend uprobe");
    }
    if let Some(percent) = args.probes.max_overhead.filter(|percent| !(0.0..f64::INFINITY).contains(percent))
    {
        return usage(&format!("--max-overhead {percent}: not a number of percent from 0 on"));
    }
    Ok(())
}

/// What a report shows of it: the processes that were asked for, and with `--follow` what came of them.
fn report(args: RecordArgs, then: Then) -> Result<Option<ReportConfig>> {
    if args.query.calls.names_nothing() && args.query.flamegraph.is_none() {
        return Ok(None);
    }
    let follow = args.follow;
    let mut config = ReportConfig::of_recording(args)?;
    config.rows_only = then == Then::Rows;
    if follow {
        config.calls.pids.clear();
    }
    Ok(Some(config))
}

fn target(args: &RecordArgs) -> Result<Target> {
    let named = !args.query.calls.pids.is_empty() || !args.query.calls.tids.is_empty();
    if !args.program.is_empty() {
        return match named {
            true => Err(failure(Exit::Usage, "-p or -T, or a program to start: not both")),
            false => Ok(Target::Program(args.program.iter().map(Into::into).collect())),
        };
    }
    if !args.query.calls.tids.is_empty() {
        return Ok(Target::Threads(tids(args)));
    }
    if !args.query.calls.pids.is_empty() {
        let pids = args.query.calls.pids.iter().copied().map(Pid).collect();
        return Ok(if args.follow { Target::Families(pids) } else { Target::Processes(pids) });
    }
    if args.cpus.is_some() {
        return Ok(Target::WholeCpus);
    }
    Err(failure(Exit::Usage, "whom to trace? -p PID, -T TID, -C CPUS, or -- CMD"))
}

/// The threads of `-T`, each once: of a range those that there are, and one that was named alone in any case.
fn tids(args: &RecordArgs) -> Vec<Tid> {
    let proc = Proc::host();
    let alone = |range: &&TidRange| range.ids().start() == range.ids().end();
    let (alone, ranges): (Vec<_>, Vec<_>) = args.query.calls.tids.iter().partition(alone);
    let mut tids: BTreeSet<Tid> = alone.into_iter().map(|range| Tid(*range.ids().start())).collect();
    // A range may name more numbers than there are threads: it is these that are gone through.
    if !ranges.is_empty() {
        let processes = proc.processes().unwrap_or_default().into_iter();
        let threads = processes.flat_map(|pid| proc.tasks(pid).unwrap_or_default());
        tids.extend(threads.filter(|tid| ranges.iter().any(|range| range.contains(*tid))));
    }
    tids.into_iter().collect()
}

fn window(args: &RecordArgs) -> Result<Option<Duration>> {
    /// The longest window; one of more than a year is a mistake.
    const MOST_SECONDS: f64 = 365.0 * 86_400.0;
    match args.duration {
        Some(seconds) if seconds > 0.0 && seconds <= MOST_SECONDS => {
            Ok(Some(Duration::from_secs_f64(seconds)))
        }
        Some(seconds) => Err(failure(Exit::Usage, format!("-d {seconds}: no time that can pass"))),
        None if args.program.is_empty() => Ok(Some(Duration::from_secs(1))),
        None => Ok(None),
    }
}

impl BundleConfig {
    /// Of a recording that is yet to be made.
    fn of_recording(input: &Path, output: &Path) -> Result<Self> {
        let kernel = KernelOptions::default();
        Self { input: input.to_path_buf(), output: output.to_path_buf(), symfs: None, kernel }.checked()
    }
}

/// What probes may take if nothing is said.
#[cfg(feature = "bpf")]
const MOST_PERCENT: f64 = 20.0;

/// What probes may cost.
#[cfg(feature = "bpf")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeLimits {
    /// Of the CPU time that the processes take without probes; `None`: [`MOST_PERCENT`].
    pub(crate) most_percent: Option<f64>,
    /// Probes at children.
    pub(crate) most_probes: usize,
}

#[cfg(feature = "bpf")]
impl ProbeLimits {
    /// Of the CPU time that the processes take without probes.
    pub(crate) fn most(self) -> f64 {
        self.most_percent.unwrap_or(MOST_PERCENT)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::CommandLine;
    use crate::exit;

    fn config(line: &str) -> Result<RecordConfig> {
        let words = std::iter::once("func_latency").chain(line.split(' '));
        RecordConfig::new(CommandLine::try_parse_from(words).unwrap().record, Then::Report)
    }

    #[test]
    fn a_target_is_one_of_four() {
        let target = |line: &str| config(line).unwrap().request.target;
        assert_eq!(target("-f f -p 7,8"), Target::Processes(vec![Pid(7), Pid(8)]));
        assert_eq!(target("-f f -p 7 --follow"), Target::Families(vec![Pid(7)]));
        assert_eq!(target("-f f -p 7 -T 9"), Target::Threads(vec![Tid(9)]));
        assert_eq!(target("-f f -C 0-1"), Target::WholeCpus);
        assert_eq!(target("-f f -- a b"), Target::Program(vec!["a".into(), "b".into()]));
    }

    /// Each number of the range was looked for in `/proc`: minutes, for those that a kernel may have.
    #[test]
    fn of_a_range_of_threads_those_that_there_are() {
        let own = std::process::id();
        let tids = |line: &str| match config(line).unwrap().request.target {
            Target::Threads(tids) => tids,
            other => panic!("{other:?}"),
        };
        assert!(tids("-f f -T 1-2000000000").contains(&Tid(own as i32)));
        let of_own = format!("-f f -T {own},{own}-{own},2000000000");
        assert_eq!(tids(&of_own), [Tid(own as i32), Tid(2_000_000_000)]);
    }

    #[test]
    fn the_window() {
        let window = |line: &str| config(line).unwrap().window;
        assert_eq!(window("-f f -p 7"), Some(Duration::from_secs(1)));
        assert_eq!(window("-f f -p 7 -d 0.01"), Some(Duration::from_millis(10)));
        assert_eq!(window("-f f -- a"), None);
        assert_eq!(window("-f f -d 2 -- a"), Some(Duration::from_secs(2)));
    }

    #[test]
    fn wrong_usage() {
        for line in [
            "-p 7",
            "-f f",
            "-f f -C 0 -i",
            "-f f -p 7 -d 0",
            "-f f -p 7 -d NaN",
            "-f f -p 7 -- a",
            "-f f --preview -- a",
            "-f f -p 7 --max-overhead nan",
            "-f f -p 7 --max-overhead=-1",
            "-f f -p 7 --max-overhead inf",
            "-f f -p 7 --symfs /",
        ] {
            let error = config(line).unwrap_err();
            assert_eq!(exit::of_error(&error), Some(Exit::Usage), "{line}: {error}");
        }
    }

    #[test]
    fn a_report_has_those_that_were_asked_for() {
        let pids = |line: &str| config(line).unwrap().report.unwrap().calls.pids;
        assert_eq!(pids("-f f -p 7"), [Pid(7)]);
        assert_eq!(pids("-f f -p 7 --follow"), []);
        assert_eq!(config("-f f -p 7 -D trace1").unwrap().output, Path::new("trace1/perf.data"));
    }
}
