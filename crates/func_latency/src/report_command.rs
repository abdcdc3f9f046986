//! `report`: from a recording to a function's latency.

use std::io::{BufWriter, Write, stdout};
use std::path::Path;
use std::time::Instant;

use analyzer::{
    Analysis, CallRow, CauseLoss, CheckedAnalysis, CodeDetail, CodeRequest, CountersAsked, OwnCode, Paths,
    Reason, Report, Request, RowGap, RowParts, RowSink, SlowestCalls, Summary, TreeSink, Violation, Waits,
};
use anyhow::{Context, Result};
use image::Image;
use model::{FunctionId, FunctionLookup, Recording};

use crate::args::Format;
use crate::calls::{self, Opened};
use crate::config::ReportConfig;
use crate::exit::Exit;
use crate::export::{self, flamegraph};
use crate::inside::{Inside, InsideOfCalls};
use crate::printable::Printable;
use crate::render::html::closer::Closer;
use crate::render::image_names::ImageNames;
use crate::render::printable_names::with_printable;
use crate::render::rows::RowsOutput;
use crate::render::timeline::{self, TimelineStyle};
use crate::render::units::duration;
use crate::render::{Names, View, html, json, text};
use crate::stored_trace::StoredTrace;
use crate::summary::names::NameTable;
use crate::summary::slowest::{self, SlowRow};
use crate::summary::{RecordingFacts, SummaryFile};
use crate::target::{self, Wanted};
use crate::uncalled::{leave_out_uncalled, no_calls, uncalled};
use crate::{explain_command, messages, open_page, recording, remedy, slow_calls, terminal, tree_commands};

pub(crate) fn run(config: &ReportConfig) -> Result<Exit> {
    let started = Instant::now();
    calls::open_for_report(&config.calls, config.needs_times(), |opened| {
        let mut problems = opened.problems.clone();
        let reported = report(config, opened, &mut problems, started);
        // A flame graph has no room for them.
        if reported.is_err() || config.calls.is_of_all() {
            problems.iter().for_each(messages::warn);
        }
        let exit = reported?;
        if config.explain && exit == Exit::Done {
            explain_command::slowest(opened)?;
        }
        Ok(exit)
    })
}

/// Reports on a recording with a trace decoded before: `check` says whether that is of this recording.
/// `missing` is named among its problems.
pub(crate) fn run_of_stored(
    config: &ReportConfig,
    stored: &dyn StoredTrace,
    check: &dyn Fn(&Opened<'_>) -> Result<()>,
    missing: &[String],
) -> Result<Exit> {
    let started = Instant::now();
    calls::open_for_report(&config.calls, config.needs_times(), |opened| {
        check(opened)?;
        let (mut problems, wanted) = (opened.problems.clone(), opened.wanted.clone());
        problems.extend_from_slice(missing);
        let opened = Opened { stored: Some(stored), problems: problems.clone(), wanted, ..*opened };
        let reported = report(config, &opened, &mut problems, started);
        reported.inspect_err(|_| problems.iter().for_each(messages::warn))
    })
}

fn report(
    config: &ReportConfig,
    opened: &Opened<'_>,
    problems: &mut Vec<String>,
    started: Instant,
) -> Result<Exit> {
    let Opened { config: calls, recording, image, .. } = *opened;
    config.check_outputs()?;
    let request = with_rows(config, opened.request()?);
    let counters = config.counters.then(|| opened.counters());
    let request = Request { counters, ..request };
    if let Some((weight, _)) = config.flamegraph {
        opened.check_weight(weight)?;
    }
    verbose(config, started, "opened");
    let names = ImageNames::new(image, config.srcline).with_threads_of(opened.schedule);
    let mut wants = TreesWanted::of(config, &request);
    let mut taken = RowsTaken::new(config, opened, &names, counters)?;
    let Analysed { mut report, summary, violations, code_blocks } =
        analyse(config, opened, &request, wants.sink(), taken.sink())?;
    explain_missing_code(&report, image, problems);
    verbose(config, started, "decoded and analysed");
    if let Some(why) = report.trace.no_off_cpu.filter(|_| config.off_cpu) {
        messages::warn(format!("-o: off-CPU time is not known: {why}"));
    }
    let wanted = leave_out_uncalled(&mut report, opened.wanted.clone());

    if let (Some(paths), Some((weight, target))) = (wants.take_paths(), &config.flamegraph) {
        let found = paths.finish();
        export::observed_part(&found, &names).into_iter().for_each(messages::note);
        flamegraph::write_file(target, &found, &opened.names(&names), *weight, &names)?;
        messages::note(format!("flame graph: {}", target.display()));
    }
    if calls.is_of_all() {
        return Ok(Exit::Done);
    }
    let slowest =
        taken.slowest.map(|slowest| slowest::rows(&slowest, &names, &opened.origin(&config.labels)));
    if let Some(rows) = taken.rows {
        rows.finish()?;
    }
    let inlined = target::inlined(image, &wanted);
    let view = View {
        report: &report,
        names: &names,
        input: &calls.input.display().to_string(),
        aux_bytes: recording::aux_bytes(recording),
        decoder: calls.decoder.name(),
        clock_offsets: recording.clock_offsets,
        sched_apart_ns: recording.sched_apart_ns,
        inlined: &inlined,
        only: &calls.only(),
        problems,
        srcline: config.srcline,
        unfold: config.unfold,
        table_rows: config.table_rows,
        by: config.by,
        code_blocks: &code_blocks,
    };
    if let (Some(path), Some(sums), Some(slowest)) = (&config.summary, summary, slowest) {
        write_summary(path, config, opened, &view, sums, slowest)?;
    }
    let inside = wants.inside(&report, opened);
    let closer = match &config.html {
        Some(_) if config.counters => slow_calls::look_closer(opened, &request, &report)?,
        _ => Vec::new(),
    };
    write_report(config, &view, &inside, &closer)?;
    verbose(config, started, "written");
    for violation in &violations {
        messages::inconsistent(violation, violation.function.map(|id| names.function(id)));
    }
    Ok(if violations.is_empty() {
        verdict(config, recording, &report, &wanted, &names)
    } else {
        Exit::Inconsistent
    })
}

/// What takes rows as calls end.
struct RowsTaken<'n> {
    /// The file of rows.
    rows: Option<RowsOutput<'n>>,
    /// Those of the summary.
    slowest: Option<SlowestCalls>,
}

impl<'n> RowsTaken<'n> {
    /// What a report is asked for.
    fn new(
        config: &'n ReportConfig,
        opened: &Opened<'_>,
        names: &'n dyn Names,
        counters: Option<CountersAsked>,
    ) -> Result<Self> {
        let target = config.rows.as_ref().filter(|_| !config.calls.is_of_all());
        let output = |target| RowsOutput::new(target, names, &opened.origin(&config.labels), counters);
        let slowest = config.summary.as_ref().map(|_| SlowestCalls::default());
        Ok(Self { rows: target.map(output).transpose()?, slowest })
    }

    /// `None`: nothing needs rows.
    fn sink(&mut self) -> Option<&mut dyn RowSink> {
        (self.rows.is_some() || self.slowest.is_some()).then_some(self)
    }
}

impl RowSink for RowsTaken<'_> {
    fn row(&mut self, function: usize, row: &CallRow, waited_for: Option<&Reason>) {
        self.rows.iter_mut().for_each(|rows| rows.sink().row(function, row, waited_for));
        self.slowest.iter_mut().for_each(|slowest| slowest.add(function, row, waited_for));
    }

    fn takes_all(&self) -> bool {
        self.rows.is_some()
    }

    fn wants_parts(&self) -> bool {
        self.rows.as_ref().is_some_and(RowsOutput::wants_parts)
    }

    fn parts(&mut self, row: &CallRow, parts: &RowParts) {
        self.rows.iter_mut().for_each(|rows| rows.sink().parts(row, parts));
    }

    fn gap(&mut self, gap: &RowGap) {
        self.rows.iter_mut().for_each(|rows| rows.sink().gap(gap));
    }
}

/// Writes what the report of `view` is made of.
fn write_summary(
    path: &Path,
    config: &ReportConfig,
    opened: &Opened<'_>,
    view: &View<'_>,
    mut sums: Summary,
    slowest: Vec<SlowRow>,
) -> Result<()> {
    let functions = &view.report.functions;
    sums.keep_functions(|id| functions.iter().any(|function| function.id == id));
    let inlined = (0..).zip(functions).filter_map(|(i, f)| Some((f.id, view.inlined_of(i)?))).collect();
    let origin = opened.origin(&config.labels);
    let recording = origin.recording.unwrap_or_default();
    let (names, sums) = NameTable::of(sums, view.names, &recording, &inlined);
    let facts = RecordingFacts {
        host: origin.host.unwrap_or_default(),
        labels: origin.labels.by_column().clone(),
        input: view.input.to_owned(),
        aux_bytes: view.aux_bytes,
        decoder: view.decoder.to_owned(),
        monotonic_offset_ns: view.clock_offsets.monotonic_ns,
        realtime_offset_ns: view.clock_offsets.realtime_ns,
        sched_apart_ns: view.sched_apart_ns,
        only: view.only.to_vec(),
        problems: view.problems.to_vec(),
    };
    SummaryFile::new(&recording, facts, names, sums, slowest).write(path)
}

/// Asks for the rows that the other outputs and the check need; those of `--rows` go to its file at once.
pub(crate) fn with_rows(config: &ReportConfig, request: Request) -> Request {
    let of_each_call = config.html.is_some() || config.check;
    let rows = config.timeline.is_some() || of_each_call;
    Request { rows, row_children: of_each_call, ..request }
}

/// Memory without a file is a problem only where it was executed.
fn explain_missing_code(report: &Report, image: &Image, problems: &mut Vec<String>) {
    let objects = report.loss.by_cause.iter().filter_map(CauseLoss::object);
    for problem in objects.filter_map(|object| image.missing_code(object)) {
        if !problems.contains(&problem.what) {
            problems.push(problem.what);
        }
    }
}

/// What came of the pass over a recording.
struct Analysed {
    report: Report,
    /// What it is made of, if that is written.
    summary: Option<Summary>,
    /// What is wrong with it, if that was looked for.
    violations: Vec<Violation>,
    /// Of each function, if they are wanted.
    code_blocks: Vec<(FunctionId, OwnCode)>,
}

fn analyse(
    config: &ReportConfig,
    opened: &Opened<'_>,
    request: &Request,
    trees: Option<&mut dyn TreeSink>,
    rows: Option<&mut dyn RowSink>,
) -> Result<Analysed> {
    let around = opened.surroundings();
    if config.check {
        let mut analysis = match trees {
            Some(trees) => CheckedAnalysis::with_trees(request, around, trees),
            None => CheckedAnalysis::new(request, around),
        };
        if let Some(rows) = rows {
            analysis = analysis.giving_rows_to(rows);
        }
        opened.analyse(analysis.digester(), &mut analysis)?;
        let (report, violations) = analysis.finish();
        return Ok(Analysed { report, summary: None, violations, code_blocks: Vec::new() });
    }
    let mut analysis = match trees {
        Some(trees) => Analysis::with_trees(request, around, trees),
        None => Analysis::new(request, around),
    };
    if let Some(rows) = rows {
        analysis = analysis.giving_rows_to(rows);
    }
    if config.code_blocks {
        if opened.image.regions().next().is_some() {
            messages::note("-c lists code blocks of functions only, not of regions");
        }
        let of_all = Box::new(|_: &_| Some(0));
        analysis =
            analysis.with_code(CodeRequest { detail: CodeDetail::Blocks, groups: 1, group_of: of_all });
    }
    opened.analyse(analysis.digester(), &mut analysis)?;
    if config.summary.is_some() {
        let summary = analysis.finish_with_summary();
        let report = summary.clone().into_report();
        let (violations, code_blocks) = (Vec::new(), Vec::new());
        return Ok(Analysed { report, summary: Some(summary), violations, code_blocks });
    }
    let (report, code) = analysis.finish_with_code();
    let of_each = report.functions.iter().map(|function| function.id).zip(code.into_iter().flatten());
    let of_each = of_each.filter(|(id, _)| opened.image.region(*id).is_none());
    Ok(Analysed { code_blocks: of_each.collect(), report, summary: None, violations: Vec::new() })
}

/// What takes the trees of calls, in the one pass over the recording.
enum TreesWanted {
    /// Nothing: then most of the trace is only passed by.
    Nothing,
    /// A flame graph.
    Paths(Paths),
    /// The page, and a flame graph that is asked for with it.
    Page(InsideOfCalls),
}

impl TreesWanted {
    fn of(config: &ReportConfig, request: &Request) -> Self {
        let paths = config.flamegraph.as_ref().map(|_| tree_commands::paths_of(&config.calls));
        match paths {
            paths if config.html.is_some() && !request.functions.is_empty() => {
                Self::Page(InsideOfCalls::new(&request.functions).with_paths(paths))
            }
            Some(paths) => Self::Paths(paths),
            None => Self::Nothing,
        }
    }

    fn sink(&mut self) -> Option<&mut dyn TreeSink> {
        match self {
            Self::Nothing => None,
            Self::Paths(paths) => Some(paths),
            Self::Page(inside) => Some(inside),
        }
    }

    fn take_paths(&mut self) -> Option<Paths> {
        match self {
            Self::Nothing => None,
            Self::Paths(paths) => Some(std::mem::replace(paths, Paths::of_calls())),
            Self::Page(inside) => inside.take_paths(),
        }
    }

    /// What the calls of each function of the report are like inside, if that is for a page.
    fn inside(self, report: &Report, opened: &Opened<'_>) -> Vec<Inside> {
        let around = opened.surroundings();
        match self {
            Self::Nothing | Self::Paths(_) => Vec::new(),
            Self::Page(inside) => inside.finish(report, &mut Waits::new(opened.schedule, &around)),
        }
    }
}

/// Writes the page, if it was asked for, with what calls are like inside and a closer look at slow ones; and
/// the report on stdout, which does not need the page.
pub(crate) fn write_report(
    config: &ReportConfig,
    view: &View<'_>,
    inside: &[Inside],
    closer: &[Closer],
) -> Result<()> {
    if config.rows_only {
        return Ok(());
    }
    let page = config.html.as_ref().map_or(Ok(()), |path| html::write_file(path, view, inside, closer));
    let text = write_text(config, view).context("cannot write to stdout");
    if let Some(path) = config.html.as_ref().filter(|_| config.open && page.is_ok()) {
        open_page::open(path);
    }
    // A reader that has gone is no reason to keep quiet of the page.
    page.and(text)
}

fn write_text(config: &ReportConfig, view: &View<'_>) -> std::io::Result<()> {
    let mut out = BufWriter::new(stdout().lock());
    match config.format {
        Format::Text => {
            with_printable(view, |view| text::write(&mut Printable(&mut out), view, terminal::text_width()))?;
        }
        Format::Json => json::write(&mut out, view)?,
    }
    if let Some(timeline) = config.timeline {
        let style = TimelineStyle {
            bin_calls: timeline.bin_calls as usize,
            window: config.calls.window.map(|window| (window.from, window.to)),
            colour: timeline.colour && terminal::has_colours(),
            width: terminal::plot_width(),
        };
        with_printable(view, |view| timeline::write(&mut out, view, &style))?;
    }
    out.flush()
}

fn verbose(config: &ReportConfig, started: Instant, what: &str) {
    if config.calls.verbose {
        let ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        messages::note(format!("{what} after {}", duration(ns)));
    }
}

/// Whether there was anything to report, and enough of it.
fn verdict(
    config: &ReportConfig,
    recording: &Recording<'_>,
    report: &Report,
    wanted: &[Wanted],
    names: &dyn Names,
) -> Exit {
    let without = uncalled(report, wanted);
    if !without.is_empty() {
        messages::warn(no_calls(&config.calls, recording, report, &without));
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
