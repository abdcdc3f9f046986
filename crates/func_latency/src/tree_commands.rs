//! `export` and `graph`: where the time of all calls went.

use std::io::{BufWriter, Write, stdout};

use analyzer::{Analysis, CountersAsked, FoundPaths, Paths, Report, Request};
use anyhow::{Context, Result};

use crate::args::ExportFormat;
use crate::calls::{self, Opened};
use crate::config::{CallsConfig, check_rows_output};
use crate::exit::{Exit, failure};
use crate::export::bounds::{Bound, Latencies};
use crate::export::{self, firefox, flamegraph, folded, graph, perfetto, pprof};
use crate::output::{self, OutputFile, cannot_write, check_writable, write_file};
use crate::printable::Printable;
use crate::render::Names;
use crate::render::image_names::ImageNames;
use crate::render::rows::{RowsFile, RowsForm, RowsOutput, RowsTarget, is_directory};
use crate::tree_config::{ExportConfig, GraphConfig};
use crate::{messages, uncalled};

/// Below the functions that were named, or all that was seen.
pub(crate) fn paths_of(config: &CallsConfig) -> Paths {
    if config.is_of_all() { Paths::of_threads() } else { Paths::of_calls() }
}

/// The paths of the calls that were asked for; an error if none was seen.
fn found_paths(opened: &Opened<'_>, counters: Option<CountersAsked>) -> Result<FoundPaths> {
    let mut paths = paths_of(opened.config);
    let report = opened.counted_trees(&mut paths, counters)?;
    check_seen(opened, &report)?;
    let found = paths.finish();
    if found.tree.nodes().is_empty() { Err(failure(Exit::Nothing, "no call was seen")) } else { Ok(found) }
}

/// Of the functions that were named, a call must have been seen, whole or not: else no file is touched.
fn check_seen(opened: &Opened<'_>, report: &Report) -> Result<()> {
    let without = uncalled::uncalled(report, &opened.wanted);
    if without.is_empty() || without.len() < report.functions.len() {
        return Ok(());
    }
    let message = uncalled::no_calls(opened.config, opened.recording, report, &without);
    Err(failure(Exit::Nothing, message))
}

pub(crate) fn export(config: &ExportConfig) -> Result<Exit> {
    calls::open(&config.calls, Some("export"), |opened| {
        if matches!(config.format, ExportFormat::Folded | ExportFormat::Flamegraph) {
            opened.check_weight(config.weight)?;
        }
        let names = &ImageNames::new(opened.image, false).with_threads_of(opened.schedule);
        let path = &config.output;
        match config.format {
            ExportFormat::Parquet => check_rows_output(path)?,
            _ => check_writable(path)?,
        }
        let lines = |form| RowsTarget::Lines(RowsFile { path: path.clone(), form });
        let counters = config.counters.then(|| opened.counters());
        let paths = || {
            let found = found_paths(opened, counters)?;
            export::observed_part(&found, names).into_iter().for_each(messages::note);
            anyhow::Ok(found)
        };
        match config.format {
            ExportFormat::Folded => {
                let stacks = folded::stacks(&paths()?.tree, names, config.weight);
                write_file(path, |out| folded::write(out, &stacks))?;
            }
            ExportFormat::Flamegraph => {
                flamegraph::write_file(path, &paths()?, &opened.names(names), config.weight, names)?;
            }
            ExportFormat::Pprof => {
                let window = opened.surroundings().window;
                let clocks = opened.recording.clock_offsets;
                let profile = pprof::profile(&paths()?, names, opened.image, window, clocks);
                write_file(path, |out| out.write_all(&profile))?;
            }
            ExportFormat::Firefox => export_firefox(opened, config, names)?,
            ExportFormat::Perfetto => export_perfetto(opened, config, names)?,
            ExportFormat::Csv => export_rows(opened, config, lines(RowsForm::Csv), names)?,
            ExportFormat::Jsonl => export_rows(opened, config, lines(RowsForm::JsonLines), names)?,
            ExportFormat::Parquet if is_directory(path) => {
                export_rows(opened, config, RowsTarget::Tables(path.clone()), names)?;
            }
            ExportFormat::Parquet => export_rows(opened, config, RowsTarget::Parquet(path.clone()), names)?,
        }
        Ok(Exit::Done)
    })
}

fn export_rows(
    opened: &Opened<'_>,
    config: &ExportConfig,
    target: RowsTarget,
    names: &dyn Names,
) -> Result<()> {
    let counters = config.counters.then(|| opened.counters());
    let origin = opened.origin(&config.labels);
    let mut rows = RowsOutput::new(&target, names, &origin, counters)?;
    let request = Request { counters, ..opened.request()? };
    let mut analysis = Analysis::new(&request, opened.surroundings()).giving_rows_to(rows.sink());
    opened.decode(&mut analysis)?;
    check_seen(opened, &analysis.finish())?;
    rows.finish()
}

fn export_firefox(opened: &Opened<'_>, config: &ExportConfig, names: &dyn Names) -> Result<()> {
    let path = &config.output;
    let (start, scratch) = (opened.surroundings().window.0, output::directory(path).to_owned());
    let min_ns = shortest(opened, config.bound)?;
    let counters = config.counters.then(|| opened.counters());
    let profile = firefox::Profile::new(names, opened.schedule, start, min_ns, scratch);
    let mut profile = profile.with_counters(counters.is_some());
    check_seen(opened, &opened.counted_trees(&mut profile, counters)?)?;
    profile.notes().into_iter().for_each(messages::note);
    write_file(path, |out| profile.write(out))
}

fn export_perfetto(opened: &Opened<'_>, config: &ExportConfig, names: &dyn Names) -> Result<()> {
    let path = &config.output;
    let min_ns = shortest(opened, config.bound)?;
    let mut file = OutputFile::create(path)?;
    let are_several = opened.wanted.len() > 1;
    let counters = config.counters.then(|| opened.counters());
    let trace = perfetto::Trace::new(&mut file.out, names, opened.schedule, min_ns, are_several);
    let mut trace = trace.with_counters(counters.is_some());
    let report = opened.counted_trees(&mut trace, counters)?;
    // Else the file does not take its place.
    check_seen(opened, &report)?;
    let notes = trace.finish(opened.surroundings().window.0).with_context(|| cannot_write(path))?;
    notes.into_iter().for_each(messages::note);
    file.finish()
}

/// What the calls of a timeline take at least, ns: to know which are the longest, all are decoded once more.
fn shortest(opened: &Opened<'_>, bound: Bound) -> Result<u64> {
    match bound {
        Bound::AtLeast(min_ns) => Ok(min_ns),
        Bound::Longest(most) => {
            let mut latencies = Latencies::default();
            check_seen(opened, &opened.trees(&mut latencies)?)?;
            Ok(latencies.reached_by(most))
        }
    }
}

pub(crate) fn graph(config: &GraphConfig) -> Result<Exit> {
    calls::open(&config.calls, Some("graph"), |opened| {
        opened.check_weight(config.style.weight)?;
        let found = found_paths(opened, None)?;
        let mut out = BufWriter::new(stdout().lock());
        let names = ImageNames::new(opened.image, false);
        let written = graph::write(&mut Printable(&mut out), &found, &names, &config.style);
        written.and_then(|()| out.flush()).context("cannot write to stdout")?;
        Ok(Exit::Done)
    })
}
