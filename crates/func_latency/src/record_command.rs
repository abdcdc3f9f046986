//! Without a subcommand: record and report.  `record`: record only.

use anyhow::{Context, Result};
use recorder::{Ended, Interrupts, Layout, Losses, Sched, Summary, Target};

use crate::args::RecordArgs;
use crate::config::ReportConfig;
use crate::exit::Exit;
use crate::ip_ranges::Chosen;
use crate::prepared::{Prepared, create_directory_of};
use crate::record_config::{RecordConfig, Then};
use crate::render::units::{counted, duration, size};
use crate::{bundle_command, messages, output, preview_command, report_command, uprobe};

/// `--history=1`: record only.
const HISTORY_RECORD: u8 = 1;
/// `--history=2`: report what was recorded before.
const HISTORY_REPORT: u8 = 2;

/// Losses of more buffers than this are told as a sum.
const LOSSES_SHOWN: usize = 8;

/// Without a subcommand.
pub(crate) fn run(args: RecordArgs) -> Result<Exit> {
    match args.history {
        Some(HISTORY_REPORT) => report_command::run(&ReportConfig::of_recording(args)?),
        Some(HISTORY_RECORD) => record(args),
        _ => Ok(execute(args, Then::Report)?.exit),
    }
}

/// `record`.
pub(crate) fn record(args: RecordArgs) -> Result<Exit> {
    Ok(execute(args, Then::Keep)?.exit)
}

/// One of several runs: writes the rows of its calls, and no report.
pub(crate) fn record_rows(args: RecordArgs) -> Result<RecordEnd> {
    execute(args, Then::Rows)
}

/// How a run ended.
pub(crate) struct RecordEnd {
    pub(crate) exit: Exit,
    /// Ctrl-C or its kind ended it.
    pub(crate) is_interrupted: bool,
}

fn execute(args: RecordArgs, then: Then) -> Result<RecordEnd> {
    if let Some(directory) = &args.save {
        output::create_empty_directory("--save", directory)?;
    }
    let config = RecordConfig::new(args, then)?;
    // Before any thread is made: one that does not hold them back would die of them.
    let interrupts = Interrupts::hold().context("cannot hold signals back")?;
    let recorded = |exit, interrupts: &Interrupts| RecordEnd { exit, is_interrupted: interrupts.was_taken() };
    if uprobe::takes(&config) {
        return Ok(recorded(uprobe::run(&config, &interrupts)?, &interrupts));
    }
    if config.then == Then::Preview {
        return Ok(recorded(preview_command::run(&config, &interrupts)?, &interrupts));
    }
    let prepared = Prepared::new(&config, &interrupts)?;
    announce(&config, &prepared);
    create_directory_of(&config.output)?;
    let report = config.report.as_ref().filter(|_| config.then.is_of_calls());
    report.map_or(Ok(()), ReportConfig::check_outputs)?;
    let summary = prepared.record(&config.output, config.window, &interrupts)?;
    let recorded = recorded(Exit::Done, &interrupts);
    // The window is over: from here on Ctrl-C ends us at once.
    drop(interrupts);
    tell(&config, &summary);
    if let Some(bundle) = &config.bundle {
        bundle_command::run(bundle)?;
    }
    let exit = report.map_or(Ok(Exit::Done), report_command::run)?;
    Ok(RecordEnd { exit, ..recorded })
}

/// Says what will be recorded, before it is.
pub(crate) fn announce(config: &RecordConfig, Prepared { aim, session, .. }: &Prepared) {
    aim.filter.iter().flat_map(Chosen::warnings).for_each(messages::warn);
    if let Some(bytes) = session.refused_bytes() {
        messages::note(format!(
            "the kernel has no buffers of {} KB for us: they have {} KB each, and are full earlier (other recordings of this \
             user, ulimit -l, little free memory)",
            bytes / 1024,
            session.plan().trace_bytes / 1024
        ));
    }
    let request = &config.request;
    if session.plan().layout == Layout::Threads
        && !request.per_thread
        && !matches!(request.target, Target::Threads(_))
    {
        messages::note(
            "these are too many threads to have events of each on each CPU: each has a buffer of its own (as with -t), and one that \
             is born meanwhile is traced a few ms later",
        );
    }
    if config.verbose {
        if !aim.ranges().is_empty() {
            messages::note(recorder::ip_filter::for_kernel(aim.ranges()));
        }
        messages::note(format!("{}; {}", session.event(), session.plan()));
        if session.pmu().tsc_ctc_ratio == (0, 0) {
            messages::note("the rate of the crystal clock is not told here, and is measured by the trace");
        }
    }
}

/// Says how the recording ended, and what was lost.
pub(crate) fn tell(config: &RecordConfig, summary: &Summary) {
    let ns = |time: std::time::Duration| duration(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    match summary.ended {
        Ended::InTime => (),
        Ended::TargetGone if config.window.is_none() => (),
        Ended::TargetGone => messages::note(format!("the target ended after {}", ns(summary.window))),
        Ended::Interrupted => messages::note(format!("interrupted after {}", ns(summary.window))),
        Ended::OutputFailed => (), // an error of its own
    }
    summary.failed.into_iter().for_each(messages::program_failed);
    if config.verbose || config.then == Then::Keep {
        let trace: u64 = summary.losses.iter().map(|losses| losses.trace_bytes).sum();
        messages::note(format!(
            "{}: {} of {}, {} of trace from {}; start-up took {}",
            config.output.display(),
            size(summary.file_bytes),
            ns(summary.window),
            size(trace),
            counted(summary.losses.len() as u64, "buffer"),
            ns(summary.start_up)
        ));
    }
    losses(&summary.losses).into_iter().for_each(messages::warn);
    sched(config, &summary.sched);
    if !summary.untraced_cpus.0.is_empty() {
        messages::warn(format!(
            "CPU {} was switched on in the window: nothing was recorded there, and since then whatever a thread did off the \
             other CPUs is lost (`untraced CPU` in the report)",
            summary.untraced_cpus
        ));
    }
    if summary.missed_threads > 0 {
        messages::warn(format!(
            "{} ended before they could be traced, and nothing is known of them: without -t threads are traced from their \
             first instruction on",
            counted(summary.missed_threads, "newborn thread")
        ));
    }
    if summary.refused_threads > 0 {
        messages::warn(format!(
            "{} could not be traced: no descriptors or memory that may be locked were left; a smaller -m, or no -t",
            counted(summary.refused_threads, "newborn thread")
        ));
    }
}

/// Whether why calls are off the CPU was recorded.
fn sched(config: &RecordConfig, sched: &Sched) {
    match sched {
        Sched::NotAsked => (),
        Sched::Refused(why) => messages::note(format!(
            "why calls are off the CPU is not recorded, only whether they were preempted: {why}; --no-sched leaves it out \
             without a word"
        )),
        Sched::Written { events, lost, clocks_apart_ns, unnamed } => {
            if config.verbose {
                messages::note(format!(
                    "{} of the scheduler; CLOCK_MONOTONIC, which they were taken by, was joined to perf's clock to within {}",
                    counted(*events, "event"),
                    duration(*clocks_apart_ns)
                ));
            }
            if *lost > 0 {
                messages::warn(format!(
                    "{} of the scheduler had no room: why calls were off the CPU then is not known, and who was woken seems \
                     blocked up to its return",
                    counted(*lost, "event")
                ));
            }
            if *unnamed {
                messages::note(
                    "the kernel does not show this user its symbols: sleeps in no system call (page faults) have no reason; run \
                     as root, or with CAP_SYSLOG (func_latency doctor has the command)",
                );
            }
        }
    }
}

/// What was lost, by buffer, and what helps.
fn losses(all: &[Losses]) -> Vec<String> {
    let lossy: Vec<&Losses> = all.iter().filter(|losses| losses.any()).collect();
    let mut lines: Vec<String> = lossy.iter().take(LOSSES_SHOWN).map(|losses| line(losses)).collect();
    if let Some(more) = lossy.len().checked_sub(LOSSES_SHOWN).filter(|more| *more > 0) {
        lines.push(format!("and {} more with losses", counted(more as u64, "buffer")));
    }
    lines
}

fn line(losses: &Losses) -> String {
    let whose = match losses.owner {
        model::AuxOwner::Cpu(cpu) => format!("CPU {}", cpu.0),
        model::AuxOwner::Thread(tid) => format!("thread {}", tid.0),
    };
    let parts = [
        (losses.full, "the buffer of trace was full", "a larger -m, -i, or fewer threads"),
        (losses.partial, "a virtual machine ran, which stops the trace unit", "CPUs without any (-C)"),
        (losses.collisions, "another user had the trace unit", "no other tracer"),
        (losses.lost_records, "records of mappings and switches were lost", "fewer threads, or -t"),
    ];
    let said: Vec<String> = parts
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, what, helps)| format!("{what} ({}; what helps: {helps})", counted(*count, "time")))
        .collect();
    format!("{whose}: {}", said.join("; "))
}

#[cfg(test)]
mod tests {
    use model::{AuxOwner, Tid};

    use super::*;

    #[test]
    fn losses_are_told_with_what_helps() {
        let none = |tid| Losses {
            owner: AuxOwner::Thread(Tid(tid)),
            trace_bytes: 9,
            full: 0,
            collisions: 0,
            partial: 0,
            lost_records: 0,
        };
        assert_eq!(losses(&[none(7)]), [] as [String; 0]);
        let full = Losses { full: 2, ..none(8) };
        assert_eq!(
            losses(&[none(7), full]),
            [
                "thread 8: the buffer of trace was full (2 times; what helps: a larger -m, -i, or fewer threads)"
            ]
        );
        let many: Vec<Losses> = (0..10).map(|tid| Losses { full: 1, ..none(tid) }).collect();
        assert_eq!(losses(&many).last().unwrap(), "and 2 buffers more with losses");
    }
}
