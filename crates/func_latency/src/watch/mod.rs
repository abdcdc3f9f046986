//! `watch`: the figures of each interval while a program runs, and the report of everything at the end.
//!
//! ```text
//! live      recorder -> pieces, each mapped and removed      replay   a recording, cut by its own time
//!               \__________________________________________________/
//! growing   part by part: schedule, image, decoder, analysis -> sums of the calls that have ended
//! display   the figures of one interval, and of all so far -> lines, JSON, or the view (screen)
//! triggers  hits -> captures          what was slow, with the trace around it
//! snapshots rings that are overwritten -> captures              nothing else is decoded
//!           SIGUSR2, the exit of a command, hits that probes see (probe_triggers)
//! ```

mod allowance;
#[cfg(feature = "bpf")]
mod by_probes;
mod captures;
mod console;
mod display;
mod extent;
#[cfg(test)]
mod fed;
mod followed;
mod growing;
mod kept_pieces;
mod lines;
mod live;
#[cfg(feature = "bpf")]
mod noticed;
mod outside;
#[cfg(feature = "bpf")]
mod probe_triggers;
#[cfg(feature = "bpf")]
mod probed_capture;
mod probed_hits;
mod recent;
mod replay;
mod screen;
mod snapshots;
mod trace_capture;
mod triggers;
mod uprobes_pages;

use std::io::{BufWriter, Write as _, stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use analyzer::Report;
use anyhow::{Context as _, Result};
use model::{Ns, Recording};
use recorder::Interrupts;

use crate::args::{CallsArgs, Format, QueryArgs, RecordArgs, WatchArgs};
use crate::config::ReportConfig;
use crate::exit::{Exit, failure};
use crate::output::check_writable;
use crate::record_config::{RecordConfig, Then};
use crate::render::View;
use crate::render::image_names::ImageNames;
use crate::render::interval::{SeenBy, TraceSeen};
use crate::uncalled::{leave_out_uncalled, seen};
use crate::{report_command, target, uprobe};
#[cfg(feature = "bpf")]
use by_probes::WatchAsked;
use captures::Limits;
use console::{ATTENDED_EACH, Console, HitsTaken, IntervalSeen};
use display::Display;
use followed::LiveWatch;
use growing::{Growing, Part};
use outside::{Heard, Listener, Outside};
use snapshots::SnapshotsAsked;
use trace_capture::{CaptureTrace, TraceCapturer};
use triggers::{Asked, Triggers};

/// Runs the command.
///
/// # Errors
/// Wrong usage; it cannot be recorded or read.
pub(crate) fn run(args: WatchArgs) -> Result<Exit> {
    let interval = interval_of(args.interval)?;
    if let Some(path) = &args.openmetrics {
        check_writable(path)?;
    }
    let openmetrics = args.openmetrics.clone();
    let replay = args.replay.clone();
    let (directory, most_bytes) = (args.spool_dir.clone(), args.spool.0);
    let (has_window, no_sched) = (args.duration.is_some(), args.no_sched);
    // A program that is started has the terminal itself.
    let has_snapshots = args.snapshot;
    let may_view = args.format == Format::Text && !args.lines && args.program.is_empty() && !has_snapshots;
    let on_screen = may_view && screen::is_possible();
    let has_triggers = args.capture.is_asked();
    let mut capturing = match has_triggers || on_screen || has_snapshots {
        true => Some(Capturing::of(&args, on_screen)?),
        false => None,
    };
    let record_args = record_args(args);
    if let Some(input) = replay {
        let mut report = ReportConfig::of_recording(record_args)?;
        report.calls.input = input;
        return run_replay(report, interval, on_screen, openmetrics, capturing);
    }
    let CallsArgs { pids, tids, .. } = &record_args.query.calls;
    if pids.is_empty() && tids.is_empty() && record_args.program.is_empty() {
        return Err(failure(Exit::Usage, "whom to trace? -p PID, -T TID, or -- CMD"));
    }
    let mut record = RecordConfig::new(record_args, Then::Report)?;
    if !has_window {
        record.window = None;
    }
    let report = record.report.clone().context("no function is named")?;
    if has_snapshots && uprobe::must_take(&record) {
        return Err(failure(Exit::NotPossible, "--snapshot needs Intel PT; `func_latency doctor` says more"));
    }
    #[cfg(feature = "bpf")]
    if !has_snapshots && uprobe::takes(&record) {
        let asked = WatchAsked { interval, format: report.format, on_screen, openmetrics, has_triggers };
        return by_probes::run(&record, asked, capturing);
    }
    #[cfg(not(feature = "bpf"))]
    if !has_snapshots && uprobe::takes(&record) {
        return uprobe::run(&record, &Interrupts::hold().context("cannot hold signals back")?);
    }
    record.request.overwrites = has_snapshots;
    let interrupts = Interrupts::hold().context("cannot hold signals back")?;
    let interrupts = &interrupts;
    let live = LiveWatch { record: &record, directory, most_bytes, interval, on_screen, interrupts };
    if let Some(Capturing { limits, listener, triggers, .. }) = capturing.take_if(|_| has_snapshots) {
        let (calls, format) = (&report.calls, report.format);
        let asked = SnapshotsAsked { calls, with_kernel: !no_sched, format, limits, listener };
        return snapshots::run(&live, asked, triggers);
    }
    capturing.as_mut().map_or(Ok(()), Capturing::begin)?;
    live::run(&live, |recording| {
        let growing = Growing::new(report.calls.clone(), recording, Some(interval));
        let growing = if no_sched { growing } else { growing.with_kernel_of_this_machine() };
        let heard = |listener| Outside::Heard(Heard::by(listener, recording.clock));
        let (triggers, captures) = capturing.map(|it| it.split(heard)).unzip();
        let console = Console::new(Display::new(report.format, on_screen)?, openmetrics, captures);
        Ok(Watch::new(growing.with_triggers(triggers), report, interval, console))
    })
}

/// Watches the recording that `report` names.
fn run_replay(
    report: ReportConfig,
    interval: Duration,
    on_screen: bool,
    openmetrics: Option<PathBuf>,
    mut capturing: Option<Capturing>,
) -> Result<Exit> {
    let calls = report.calls.clone();
    capturing.as_mut().map_or(Ok(()), Capturing::begin)?;
    // On a screen Ctrl-C is a key, and any other signal is to leave the terminal as it was.
    let interrupts = on_screen.then(Interrupts::hold).transpose().context("cannot hold signals back")?;
    let interrupts = interrupts.map(Arc::new);
    replay::run(&calls, interrupts.as_deref(), |recording| {
        let growing = Growing::new(report.calls.clone(), recording, None).of_whole(recording);
        let (triggers, captures) = capturing.map(|it| it.split(Outside::Polled)).unzip();
        let display = Display::new(report.format, on_screen)?;
        // Nothing is recorded that would have to be ended.
        interrupts.iter().for_each(|interrupts| display.let_go_when_left(interrupts));
        let console = Console::new(display, openmetrics, captures);
        Ok(Watch::new(growing.with_triggers(triggers), report, interval, console))
    })
}

/// What is captured, and where it goes.
struct Capturing {
    /// A view has the terminal.
    on_screen: bool,
    triggers: Triggers,
    limits: Limits,
    listener: Listener,
}

impl Capturing {
    /// `on_screen`: calls are chosen by keys, too.
    fn of(args: &WatchArgs, on_screen: bool) -> Result<Self> {
        let WatchArgs { capture, .. } = args;
        let limits = Limits {
            directory: capture.captures.clone().unwrap_or_else(|| PathBuf::from("captures")),
            before_ns: capture.before.0,
            after_ns: capture.after.0,
            rate: capture.max_captures,
            keep: capture.keep as usize,
            keep_bytes: capture.keep_bytes.0,
        };
        let asked = Asked { over: capture.over, on: capture.on.clone(), on_gap: capture.on_gap };
        let triggers = Triggers::new(asked);
        let triggers = if on_screen { triggers.with_slowest() } else { triggers };
        let listener = Listener::new(capture.until.as_deref())?;
        Ok(Self { on_screen, triggers, limits, listener })
    }

    /// The watch begins: so does the command of `--until`.
    ///
    /// # Errors
    /// It cannot be started.
    fn begin(&mut self) -> Result<()> {
        self.listener.begin(self.on_screen)
    }

    /// What looks for hits, and what is done with them.
    fn split(self, outside: impl FnOnce(Listener) -> Outside) -> (Triggers, HitsTaken) {
        let Self { triggers, limits, listener, .. } = self;
        (triggers, HitsTaken { limits, outside: outside(listener) })
    }
}

/// Nanoseconds; [`u64::MAX`] where there are more.
fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The interval of `-n`, which is from a microsecond to a day.
fn interval_of(seconds: f64) -> Result<Duration> {
    match seconds {
        s if (1e-6..=86_400.0).contains(&s) => Ok(Duration::from_secs_f64(s)),
        s => Err(failure(Exit::Usage, format!("-n {s}: not from a microsecond to a day"))),
    }
}

/// The options that a recording and its report have, too.
fn record_args(args: WatchArgs) -> RecordArgs {
    let calls = CallsArgs {
        functions: args.functions,
        candidate: args.candidate,
        object: args.object,
        pids: args.pids,
        tids: args.tids,
        ancestor: args.ancestor,
        li: args.li,
        workers: args.workers,
        verbose: args.verbose,
        ..CallsArgs::default()
    };
    RecordArgs {
        query: QueryArgs { calls, format: args.format, tu: 1, ..QueryArgs::default() },
        duration: args.duration,
        ip_filter: args.ip_filter,
        per_thread: args.per_thread,
        aux_size: args.aux_size,
        pt_config: args.pt_config,
        no_sched: args.no_sched,
        waker_stacks: args.waker_stacks,
        probes: args.probes,
        program: args.program,
        ..RecordArgs::default()
    }
}

/// The interval of a recording that a line is of: since the line before, up to the end of a part.
struct RecordedInterval {
    end: Ns,
    length_ns: u64,
    /// Bytes of trace that were recorded, and those of them that are left undecoded.
    trace_bytes: u64,
    not_decoded_bytes: u64,
    /// The time now, by the recording's clock.
    now: Ns,
}

/// A watch that goes on.
struct Watch {
    growing: Growing,
    report: ReportConfig,
    interval: Duration,
    console: Console,
    /// What was recorded so far.
    trace: TraceSeen,
    /// The end of the last part.
    last_time: Ns,
}

impl Watch {
    fn new(growing: Growing, report: ReportConfig, interval: Duration, console: Console) -> Self {
        Self { growing, report, interval, console, trace: TraceSeen::default(), last_time: Ns(0) }
    }

    fn with_switches(self, has_switches: bool, has_switch_records: bool) -> Self {
        Self { growing: self.growing.with_switches(has_switches, has_switch_records), ..self }
    }

    fn interval_ns(&self) -> u64 {
        ns(self.interval)
    }

    /// Decodes a part, and writes its line.
    fn add(&mut self, part: Part<'_>, interval: RecordedInterval) -> Result<()> {
        let is_whole = part.until.is_none();
        let gain = self.growing.add(part)?;
        self.last_time = interval.end;
        self.attend();
        self.console.take(gain.hits, gain.left_out_hits);
        self.console.hear(interval.end, is_whole);
        let decoded_until = if is_whole { interval.now } else { self.growing.decoded_until() };
        let behind_ns = match decoded_until {
            // Nothing is decoded: all that is recorded waits.
            Ns(0) => interval.length_ns,
            until => interval.now.since(until),
        };
        self.trace = TraceSeen {
            recorded_bytes: self.trace.recorded_bytes + interval.trace_bytes,
            not_decoded_bytes: self.trace.not_decoded_bytes + interval.not_decoded_bytes,
            behind_ns,
        };
        let of_interval = IntervalSeen {
            time: interval.end,
            interval_ns: interval.length_ns,
            figures: &self.growing.figures(&gain.calls),
            slowest: &gain.slowest,
            lost_ns: gain.lost_ns,
            seen_by: SeenBy::Trace(TraceSeen {
                recorded_bytes: interval.trace_bytes,
                not_decoded_bytes: interval.not_decoded_bytes,
                behind_ns,
            }),
        };
        self.console.tell(&of_interval, SeenBy::Trace(self.trace), &self.growing)
    }

    /// The time from which on captures need the trace; `None`: there are none.
    fn needs_from(&self) -> Option<Ns> {
        self.console.needs_from(self.growing.decoded_until())
    }

    /// Takes what was asked for by keys.
    fn attend(&mut self) {
        self.console.attend(&self.growing);
    }

    /// Everything was recorded: the view stays until it is left, or `is_over`.
    fn stay(&mut self, trace: &CaptureTrace<'_>, is_over: impl Fn() -> bool) {
        let Self { growing, report, console, .. } = self;
        let capturer = TraceCapturer { growing, trace, calls: &report.calls };
        console.stay(self.last_time, growing, &capturer, is_over);
    }

    /// Makes the captures that have all of their trace. Returns, once, whether the watch has come to its end.
    fn capture(&mut self, trace: &CaptureTrace<'_>, until: Option<Ns>) -> bool {
        let Self { growing, report, console, .. } = self;
        console.capture(&TraceCapturer { growing, trace, calls: &report.calls }, until)
    }

    /// Writes the report.
    fn finish(self) -> Result<Exit> {
        let Self { growing, report: config, console, trace, .. } = self;
        console.end();
        growing.finish(|mut report: Report, image, schedule, wanted, recording: &Recording<'_>| {
            let names = ImageNames::new(image, false).with_threads_of(schedule);
            let wanted = leave_out_uncalled(&mut report, wanted.to_vec());
            let inlined = target::inlined(image, &wanted);
            let input = match &config.calls.input {
                input if input.as_os_str().is_empty() => "watch".to_owned(),
                input => input.display().to_string(),
            };
            let view = View {
                report: &report,
                names: &names,
                input: &input,
                aux_bytes: trace.recorded_bytes - trace.not_decoded_bytes.min(trace.recorded_bytes),
                decoder: config.calls.decoder.name(),
                clock_offsets: recording.clock_offsets,
                sched_apart_ns: recording.sched_apart_ns,
                inlined: &inlined,
                only: &config.calls.only(),
                problems: &[],
                srcline: config.srcline,
                unfold: config.unfold,
                table_rows: config.table_rows,
                by: None,
                code_blocks: &[],
            };
            let mut out = BufWriter::new(stdout().lock());
            if config.format == Format::Text {
                writeln!(out).context("cannot write to stdout")?;
            }
            out.flush().context("cannot write to stdout")?;
            drop(out);
            report_command::write_report(&config, &view, &[], &[])?;
            let is_any_seen = report.functions.iter().any(|function| seen(&function.calls));
            Ok(if is_any_seen { Exit::Done } else { Exit::Nothing })
        })
    }
}
