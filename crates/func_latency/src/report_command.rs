//! `report`: from a recording to a function's latency.

use std::io::{BufWriter, IsTerminal, Write, stdout};
use std::time::Instant;

use analyzer::{Analysis, CallCounts, CauseLoss, CheckedAnalysis, Report, Request, Surroundings, Violation};
use anyhow::{Context, Result};
use decoder::{DecodeOptions, SegmentDecoder};
use image::Image;
use model::{AuxOwner, EventSink, Pid, Recording, Schedule, Tid};

use crate::args::Format;
use crate::config::ReportConfig;
use crate::exit::{Exit, failure};
use crate::filter::TidSet;
use crate::printable::{Printable, PrintableNames};
use crate::progress::Progress;
use crate::render::image_names::ImageNames;
use crate::render::timeline::{self, TimelineStyle};
use crate::render::units::{counted, duration, size};
use crate::render::{Names, View, html, json, rows, text};
use crate::target::{self, Remarks, Wanted};
use crate::{messages, recording, remedy};

/// Columns of the text where there is no terminal that has some.
const WIDTH: usize = 120;

/// The same of a plot.
const PLOT_WIDTH: usize = 80;

pub(crate) fn run(config: &ReportConfig) -> Result<Exit> {
    let started = Instant::now();
    let decoder = config.decoder.decoder()?;
    let file = recording::open(&config.input)?;
    let recording = recording::read_timed(&file)?;
    let (image, schedule) = recording::load(&recording, config.symfs.as_deref(), &config.kernel);
    let mut problems = problems(&recording, &image);
    let wanted = target::wanted(&image, config, Remarks::Now)?;
    let request = request(config, &recording, &schedule, &image, &wanted)?;
    verbose(config, started, "opened");
    let (mut report, violations) = analyse(config, &recording, &schedule, &image, &request, &*decoder);
    explain_missing_code(&report, &image, &mut problems);
    verbose(config, started, "decoded and analysed");
    if config.off_cpu && !report.trace.off_cpu_known {
        messages::warn(
            "-o: off-CPU time is not known: the recording has no context switches, and no range of __schedule in its \
             IP filter",
        );
    }
    let wanted = leave_out_uncalled(&mut report, wanted);

    let names = ImageNames::new(&image, config.srcline);
    if let Some(target) = &config.rows {
        rows::write_file(target, &report, &names)?;
    }
    let inlined = target::inlined(&image, &wanted);
    let view = View {
        report: &report,
        names: &names,
        input: &config.input.display().to_string(),
        aux_bytes: recording::aux_bytes(&recording),
        decoder: config.decoder.name(),
        clock_offsets: recording.clock_offsets,
        inlined: &inlined,
        only: &config.only(),
        problems: &problems,
        srcline: config.srcline,
        unfold: config.unfold,
    };
    if let Some(path) = &config.html {
        html::write_file(path, &view)?;
    }
    write_report(config, &view).context("cannot write to stdout")?;
    verbose(config, started, "written");
    for violation in &violations {
        messages::inconsistent(violation, &names);
    }
    Ok(if violations.is_empty() {
        verdict(config, &recording, &report, &wanted, &names)
    } else {
        Exit::Inconsistent
    })
}

/// What makes the report less than whole; said on stderr, too.
fn problems(recording: &Recording<'_>, image: &Image) -> Vec<String> {
    let mut problems: Vec<String> = recording::damage(recording).into_iter().collect();
    for problem in image.problems() {
        messages::warn(&problem.what);
        problems.push(problem.what);
    }
    if recording.pt.kernel && recording.pt.user && !image.has_kernel_text() {
        messages::note(
            "the kernel was traced, and its code is not here: its time is that of the system calls and interrupts \
             (--kcore or --vmlinux give the code)",
        );
    }
    let switchers = image.stack_switchers();
    if !switchers.is_empty() {
        let names: Vec<&str> = switchers.iter().map(|id| image.object_basename(*id)).collect();
        let what = format!(
            "{} may switch stacks (swapcontext or Go): a switch into a function that is also open cannot be told \
             from unwinding",
            names.join(", ")
        );
        messages::warn(&what);
        problems.push(what);
    }
    problems
}

/// Memory without a file is a problem only where it was executed.
fn explain_missing_code(report: &Report, image: &Image, problems: &mut Vec<String>) {
    let objects = report.loss.by_cause.iter().filter_map(CauseLoss::object);
    for problem in objects.filter_map(|object| image.missing_code(object)) {
        if !problems.contains(&problem.what) {
            messages::warn(&problem.what);
            problems.push(problem.what);
        }
    }
}

fn request(
    config: &ReportConfig,
    recording: &Recording<'_>,
    schedule: &Schedule,
    image: &Image,
    wanted: &[Wanted],
) -> Result<Request> {
    let range = |r: crate::filter::NsRange| analyzer::LatencyRange { min_ns: r.min, max_ns: r.max };
    let ancestor = match &config.ancestor {
        Some(ancestor) => Some(analyzer::Ancestor {
            function: target::ancestor(image, config, &ancestor.function, Remarks::Now)?.id,
            latency: range(ancestor.latency_ns),
        }),
        None => None,
    };
    Ok(Request {
        functions: wanted.iter().map(|w| w.function.id).collect(),
        ancestor,
        latency: range(config.latency_ns),
        starts: config.window.map(|w| analyzer::StartWindow {
            start: w.from,
            min_ns: 0,
            max_ns: w.to.since(w.from),
        }),
        tids: tids(config, recording, schedule)?,
        rows: config.rows.is_some() || config.timeline.is_some() || config.html.is_some(),
        row_children: config.html.is_some(),
        stack_switches: !image.stack_switchers().is_empty(),
    })
}

/// The threads of `-p` and `-T`; empty: all.
fn tids(config: &ReportConfig, recording: &Recording<'_>, schedule: &Schedule) -> Result<Vec<Tid>> {
    if config.pids.is_empty() && config.tids == TidSet::default() {
        return Ok(Vec::new());
    }
    let owners = recording.buffers.iter().filter_map(|buffer| match buffer.owner {
        AuxOwner::Thread(tid) => Some(tid),
        AuxOwner::Cpu(_) => None,
    });
    let mut known: Vec<Tid> = schedule.threads().map(|(tid, _)| tid).chain(owners).collect();
    known.sort_unstable();
    known.dedup();
    let of_process = |tid: &Tid| {
        config.pids.is_empty()
            || config.pids.contains(&schedule.thread(*tid).map_or(Pid(tid.0), |life| life.pid))
    };
    let chosen: Vec<Tid> =
        known.iter().copied().filter(|tid| config.tids.contains(*tid) && of_process(tid)).collect();
    let list = known.iter().map(|tid| tid.0.to_string()).collect::<Vec<_>>().join(", ");
    if chosen.is_empty() {
        let message = format!("-p or -T: no such thread in the recording, which has {list}");
        return Err(failure(Exit::Nothing, message));
    }
    for range in config.tids.0.iter().filter(|range| !known.iter().any(|tid| range.contains(*tid))) {
        messages::warn(format!("-T {range}: no such thread in the recording, which has {list}"));
    }
    Ok(chosen)
}

fn analyse(
    config: &ReportConfig,
    recording: &Recording<'_>,
    schedule: &Schedule,
    image: &Image,
    request: &Request,
    decoder: &dyn SegmentDecoder,
) -> (Report, Vec<Violation>) {
    let around = Surroundings::of(recording, schedule, image);
    if config.check {
        let mut analysis = CheckedAnalysis::new(request, around);
        decode(config, recording, schedule, image, decoder, &mut analysis);
        return analysis.finish();
    }
    let mut analysis = Analysis::new(request, around);
    decode(config, recording, schedule, image, decoder, &mut analysis);
    (analysis.finish(), Vec::new())
}

fn decode(
    config: &ReportConfig,
    recording: &Recording<'_>,
    schedule: &Schedule,
    image: &Image,
    decoder: &dyn SegmentDecoder,
    sink: &mut dyn EventSink,
) {
    let options = DecodeOptions { workers: config.workers, ..DecodeOptions::default() };
    let progress = Progress::new("decoding", recording::aux_bytes(recording));
    let report = |done| progress.at(done);
    let context = decoder::Context::new(recording, schedule, image, false);
    let stats = decoder::decode_with(decoder, &context, &options, &report, sink);
    drop(progress);
    if stats.kernel_desyncs > 0 {
        let places = counted(stats.kernel_desyncs, "place");
        messages::warn(format!(
            "the kernel's code is not what ran at {places}: from there to the return to user code it was skipped"
        ));
    }
    if config.verbose {
        messages::note(format!(
            "{} of trace in {}, {}, {}, {}; {}",
            size(stats.bytes),
            counted(stats.segments, "segment"),
            counted(stats.events, "event"),
            counted(stats.overflows, "overflow"),
            counted(stats.clock_errors, "clock contradiction"),
            counted(config.workers as u64, "worker")
        ));
        decoder.diagnosis().into_iter().for_each(messages::note);
    }
}

fn write_report(config: &ReportConfig, view: &View<'_>) -> std::io::Result<()> {
    let stdout = stdout();
    let terminal = stdout.is_terminal().then(terminal_size::terminal_size).flatten();
    let width = terminal.map(|(width, _)| usize::from(width.0));
    let mut out = BufWriter::new(stdout.lock());
    match config.format {
        Format::Text => text::write(&mut Printable(&mut out), view, width.unwrap_or(WIDTH))?,
        Format::Json => json::write(&mut out, view)?,
    }
    if let Some(timeline) = config.timeline {
        let style = TimelineStyle {
            bin_calls: timeline.bin_calls as usize,
            window: config.window.map(|window| (window.from, window.to)),
            colour: timeline.colour && stdout.is_terminal() && !no_color_in_environment(),
            width: width.unwrap_or(PLOT_WIDTH),
        };
        timeline::write(&mut out, &View { names: &PrintableNames(view.names), ..*view }, &style)?;
    }
    out.flush()
}

/// <https://no-color.org>: set, and not empty.
fn no_color_in_environment() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

fn verbose(config: &ReportConfig, started: Instant, what: &str) {
    if config.verbose {
        let ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        messages::note(format!("{what} after {}", duration(ns)));
    }
}

/// A call of any status.
fn seen(calls: &CallCounts) -> bool {
    let CallCounts { complete, unwound, open_start, open_end, cut } = *calls;
    [complete, unwound, open_start, open_end, cut].iter().any(|n| *n > 0)
}

/// Leaves out what a pattern matched and nothing called, unless nothing else is there.
fn leave_out_uncalled(report: &mut Report, wanted: Vec<Wanted>) -> Vec<Wanted> {
    if !report.functions.iter().any(|f| seen(&f.calls)) {
        return wanted;
    }
    let all = wanted.len();
    let functions = std::mem::take(&mut report.functions);
    let pairs = functions.into_iter().zip(wanted);
    let (functions, wanted): (Vec<_>, Vec<_>) =
        pairs.filter(|(function, wanted)| seen(&function.calls) || !wanted.by_pattern()).unzip();
    report.functions = functions;
    if wanted.len() < all {
        messages::note(format!("{} of the {all} functions were not called", all - wanted.len()));
    }
    wanted
}

/// Whether there was anything to report, and enough of it.
fn verdict(
    config: &ReportConfig,
    recording: &Recording<'_>,
    report: &Report,
    wanted: &[Wanted],
    names: &dyn Names,
) -> Exit {
    let without: Vec<String> = (report.functions.iter().zip(wanted))
        .filter(|(function, _)| !seen(&function.calls))
        .map(|(_, wanted)| format!("{} ({})", wanted.function.name, wanted.function.object_name))
        .collect();
    if !without.is_empty() {
        messages::warn(no_calls(config, recording, report, &without));
    }
    // Where no call was seen because everything was lost, what helps against that is the answer.
    let mut too_much = None;
    if let Some(allowed_percent) = config.max_loss_percent {
        if let Some(untimed) = remedy::untimed(&report.loss) {
            messages::warn(untimed);
        }
        too_much = remedy::too_much_lost(&report.loss, allowed_percent, names)
            .or_else(|| remedy::not_all_there(recording.damage.as_ref(), allowed_percent));
    }
    if let Some(what) = &too_much {
        messages::warn(what);
    }
    if too_much.is_some() || without.len() == report.functions.len() { Exit::Nothing } else { Exit::Done }
}

/// What was seen instead of calls.
fn no_calls(config: &ReportConfig, recording: &Recording<'_>, report: &Report, names: &[String]) -> String {
    let mut text = format!(
        "no call of {} was seen: the trace has {} of {} with {} of control flow",
        messages::list(names),
        duration(report.trace.span_ns),
        counted(report.trace.threads, "thread"),
        counted(report.trace.events, "event"),
    );
    if recording.pt.has_ip_filter {
        text = format!("{text}, all inside its IP filter ({})", recording.ip_filter.trim());
    }
    if restricted(config) {
        text.push_str(", and -a, --li, --ti, -p or -T leave some out");
    }
    text
}

fn restricted(config: &ReportConfig) -> bool {
    config.ancestor.is_some()
        || config.latency_ns != crate::filter::NsRange::ALL
        || config.window.is_some()
        || !config.pids.is_empty()
        || config.tids != TidSet::default()
}
