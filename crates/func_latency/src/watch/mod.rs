//! `watch`: the figures of each interval while a program runs, and the report of everything at the end.
//!
//! ```text
//! live      recorder -> pieces, each mapped and removed      replay   a recording, cut by its own time
//!               \__________________________________________________/
//! growing   part by part: schedule, image, decoder, analysis -> sums of the calls that have ended
//! display   the figures of one interval, and of all so far -> lines, JSON, or the view (screen)
//! triggers  hits -> captures          what was slow, with the trace around it
//! ```

mod captures;
mod display;
mod extent;
mod growing;
mod live;
mod outside;
mod recent;
mod replay;
mod screen;
mod triggers;

use std::io::{BufWriter, Write as _, stdout};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use analyzer::Report;
use anyhow::{Context as _, Result};
use model::{Ns, Recording};

use crate::args::{BackendChoice, CallsArgs, Format, QueryArgs, RecordArgs, WatchArgs};
use crate::config::ReportConfig;
use crate::exit::{Exit, failure};
use crate::output::check_writable;
use crate::record_config::{RecordConfig, Then};
use crate::render::View;
use crate::render::image_names::ImageNames;
use crate::render::interval::{Interval, openmetrics};
use crate::render::screen::state::Wish;
use crate::report_command;
use crate::target::{self, Wanted};
use crate::uncalled::{leave_out_uncalled, seen};
use captures::{CaptureTrace, Captures, Limits};
use display::Display;
use growing::{Growing, Part};
use outside::{Event, Heard, Listener};
use triggers::{Asked, Hit, Triggers};

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
    let on_screen =
        args.format == Format::Text && !args.lines && args.program.is_empty() && screen::is_possible();
    let capturing = match args.capture.is_asked() || on_screen {
        true => Some(Capturing::of(&args, on_screen)?),
        false => None,
    };
    let record_args = record_args(args);
    if let Some(input) = replay {
        let mut report = ReportConfig::of_recording(record_args)?;
        report.calls.input = input;
        let calls = report.calls.clone();
        return replay::run(&calls, on_screen, |recording| {
            let growing = Growing::new(report.calls.clone(), recording, None).of_whole(recording);
            let display = Display::new(report.format, on_screen)?;
            let watch = Watch::new(growing, report, interval, openmetrics, display);
            Ok(match capturing {
                Some(capturing) => watch.with_captures(capturing, Outside::Polled),
                None => watch,
            })
        });
    }
    let mut record = RecordConfig::new(record_args, Then::Report)?;
    if !has_window {
        record.window = None;
    }
    let report = record.report.clone().context("no function is named")?;
    let live = live::LiveWatch { record: &record, directory, most_bytes, interval, on_screen };
    live::run(&live, |recording| {
        let growing = Growing::new(report.calls.clone(), recording, Some(interval));
        let growing = if no_sched { growing } else { growing.with_kernel_of_this_machine() };
        let display = Display::new(report.format, on_screen)?;
        let watch = Watch::new(growing, report, interval, openmetrics, display);
        Ok(match capturing {
            Some(capturing) => watch
                .with_captures(capturing, |listener| Outside::Heard(Heard::by(listener, recording.clock))),
            None => watch,
        })
    })
}

/// What is captured, and where it goes.
struct Capturing {
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
        let listener = Listener::new(capture.until.as_deref(), on_screen)?;
        Ok(Self { triggers, limits, listener })
    }
}

/// What happens outside of the trace.
enum Outside {
    /// Looked for with each part.
    Polled(Listener),
    /// Heard of when it happens.
    Heard(Heard),
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

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
        backend: Some(BackendChoice::Pt),
        program: args.program,
        ..RecordArgs::default()
    }
}

/// What is known of a part besides what it has.
struct Meant {
    /// Its end.
    time: Ns,
    interval_ns: u64,
    /// Bytes of trace that were recorded, and those of them that are left undecoded.
    trace_bytes: u64,
    not_decoded_bytes: u64,
    /// The time now.
    now: Ns,
}

/// Keys wait no longer while nothing comes from the recorder.
const ATTENDED_EACH: Duration = Duration::from_millis(50);

/// A watch that goes on.
struct Watch {
    growing: Growing,
    report: ReportConfig,
    interval: Duration,
    openmetrics: Option<PathBuf>,
    /// Of the functions, as soon as they are found.
    names: Vec<(String, String)>,
    display: Display,
    trace_bytes: u64,
    not_decoded_bytes: u64,
    lost_ns: u64,
    captures: Option<(Captures, Outside)>,
    /// Captures go on so long after what made them.
    after_ns: u64,
    /// The watch ends when everything up to then was seen.
    ends_at: Option<Ns>,
    /// The view was left, by a key.
    is_left: bool,
    /// The end of the last part.
    last_time: Ns,
}

impl Watch {
    fn new(
        growing: Growing,
        report: ReportConfig,
        interval: Duration,
        openmetrics: Option<PathBuf>,
        display: Display,
    ) -> Self {
        Self {
            growing,
            report,
            interval,
            openmetrics,
            names: Vec::new(),
            display,
            trace_bytes: 0,
            not_decoded_bytes: 0,
            lost_ns: 0,
            captures: None,
            after_ns: 0,
            ends_at: None,
            is_left: false,
            last_time: Ns(0),
        }
    }

    fn with_captures(self, capturing: Capturing, outside: impl FnOnce(Listener) -> Outside) -> Self {
        let Capturing { triggers, limits, listener } = capturing;
        let after_ns = limits.after_ns;
        let captures = Captures::new(limits, self.report.calls.clone());
        let growing = self.growing.with_triggers(triggers);
        Self { growing, captures: Some((captures, outside(listener))), after_ns, ..self }
    }

    fn with_switches(self, has_switches: bool, has_switch_records: bool) -> Self {
        Self { growing: self.growing.with_switches(has_switches, has_switch_records), ..self }
    }

    fn interval_ns(&self) -> u64 {
        ns(self.interval)
    }

    /// Decodes a part, and writes its line.
    fn add(&mut self, part: Part<'_>, meant: Meant) -> Result<()> {
        let is_whole = part.until.is_none();
        let gain = self.growing.add(part)?;
        self.last_time = meant.time;
        let events = self.events(is_whole);
        self.attend();
        if let Some((captures, _)) = &mut self.captures {
            captures.take(gain.hits);
            captures.leave_out(gain.left_out_hits);
            captures.take(events);
        }
        if self.names.is_empty() {
            let name = |wanted: &Wanted| (wanted.function.name.clone(), wanted.function.object_name.clone());
            self.names = self.growing.wanted().iter().map(name).collect();
        }
        self.trace_bytes += meant.trace_bytes;
        self.not_decoded_bytes += meant.not_decoded_bytes;
        self.lost_ns += gain.lost_ns;
        let decoded_until = if is_whole { meant.now } else { self.growing.decoded_until() };
        let behind_ns = match decoded_until {
            // Nothing is decoded: all that is recorded waits.
            Ns(0) => meant.interval_ns,
            until => meant.now.since(until),
        };
        let figures = self.growing.figures(&gain.calls);
        let interval = Interval {
            time_ns: meant.time.0,
            interval_ns: meant.interval_ns,
            figures: &figures,
            names: &self.names,
            trace_bytes: meant.trace_bytes,
            not_decoded_bytes: meant.not_decoded_bytes,
            lost_ns: gain.lost_ns,
            behind_ns,
        };
        self.display.interval(&interval, &gain.slowest, &self.growing)?;
        if let Some(path) = &self.openmetrics {
            let figures = self.growing.figures(self.growing.total());
            let totals = openmetrics::Totals {
                figures: &figures,
                names: &self.names,
                trace_bytes: self.trace_bytes,
                not_decoded_bytes: self.not_decoded_bytes,
                lost_ns: self.lost_ns,
                behind_ns,
            };
            openmetrics::replace(path, &totals)?;
        }
        Ok(())
    }

    /// What has happened outside of the trace up to the end of a part.
    fn events(&mut self, is_whole: bool) -> Vec<Hit> {
        let time = self.last_time;
        let events: Vec<(Ns, Event)> = match &mut self.captures {
            None => return Vec::new(),
            Some((_, Outside::Polled(listener))) => {
                // A view stays, and looks for it meanwhile.
                let waits = is_whole && !self.display.is_view();
                let events = if waits { listener.wait() } else { listener.poll() };
                events.into_iter().map(|event| (time, event)).collect()
            }
            Some((_, Outside::Heard(heard))) => {
                heard.take().into_iter().map(|(at, event)| (at.unwrap_or(time), event)).collect()
            }
        };
        let hit = |(time, event): (Ns, Event)| {
            if event.ends {
                self.ends_at = Some(time);
            }
            Hit { is_asked: true, ..Hit::at(time, None, event.name, event.trigger) }
        };
        events.into_iter().map(hit).collect()
    }

    /// The time from which on captures need the trace; `None`: there are none.
    fn needs_from(&self) -> Option<Ns> {
        let (captures, _) = self.captures.as_ref()?;
        Some(captures.needs_from(self.growing.decoded_until()))
    }

    /// Takes what was asked for by keys.
    fn attend(&mut self) {
        for wish in self.display.wishes() {
            match wish {
                Wish::Leave => self.is_left = true,
                Wish::Capture(call) => {
                    let wanted = self.growing.wanted().get(call.function);
                    let function = wanted.map(|wanted| wanted.function.id);
                    let hit = Hit::chosen(&call, function);
                    self.captures.iter_mut().for_each(|(captures, _)| captures.take(vec![hit.clone()]));
                }
                // The view does these itself.
                Wish::Show(_) | Wish::WritePage(_) => (),
            }
        }
    }

    /// Closes the view, if there is one.
    fn leave(&mut self) -> bool {
        self.is_left = true;
        self.display.close()
    }

    /// Everything was recorded: the view stays until it is left, or `is_over`. Captures are still made.
    fn stay(&mut self, trace: &CaptureTrace<'_>, is_over: impl Fn() -> bool) {
        if !self.display.end(&self.growing) {
            return;
        }
        while !self.is_left && !is_over() {
            thread::sleep(ATTENDED_EACH);
            self.attend();
            let events = self.events(false);
            self.captures.iter_mut().for_each(|(captures, _)| captures.take(events.clone()));
            self.is_left |= self.capture(trace, None) || self.ends_at.is_some();
        }
    }

    /// Makes the captures that have all of their trace. Returns, once, whether the watch has come to its end.
    fn capture(&mut self, trace: &CaptureTrace<'_>, until: Option<Ns>) -> bool {
        if let Some((captures, _)) = &mut self.captures {
            captures.make(&self.growing, trace, until, &mut |capture| self.display.captured(capture));
        }
        let after_ns = self.after_ns;
        let is_over = |end: &mut Ns| until.is_some_and(|until| end.0.saturating_add(after_ns) <= until.0);
        self.ends_at.take_if(is_over).is_some()
    }

    /// Writes the report.
    fn finish(self) -> Result<Exit> {
        // Keys that might have asked for one are no reason to speak of captures.
        if let Some((captures, _)) = &self.captures
            && (captures.has_hits() || !self.display.is_view())
        {
            captures.summarise();
        }
        // The report goes where the view was.
        drop(self.display);
        let Self { growing, report: config, trace_bytes, not_decoded_bytes, .. } = self;
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
                aux_bytes: trace_bytes - not_decoded_bytes.min(trace_bytes),
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
