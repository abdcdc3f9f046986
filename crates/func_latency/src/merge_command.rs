//! `merge`: the report of several recordings, from their summaries; or of one, from its parts
//! ([`crate::parts::merge`]).

use std::collections::BTreeSet;
use std::io::{BufWriter, Write, stdout};

use analyzer::{Report, Summary};
use anyhow::{Context, Result};

use crate::args::{Format, MergeArgs};
use crate::exit::{Exit, failure};
use crate::output::{self, OutputAsked};
use crate::parts;
use crate::printable::Printable;
use crate::render::by_host::HostReport;
use crate::render::printable_names::with_printable;
use crate::render::units::counted;
use crate::render::{Names, View, by_host, json, text};
use crate::summary::names::SummaryNames;
use crate::summary::{RecordingFacts, SummaryFile};
use crate::terminal::text_width;
use crate::uncalled::seen;

pub(crate) fn run(args: &MergeArgs) -> Result<Exit> {
    if parts::merge::are_parts(args)? {
        return parts::merge::run(args);
    }
    if let Some(path) = &args.summary {
        let inputs: Vec<_> = args.files.iter().map(std::path::PathBuf::as_path).collect();
        output::check_apart(&inputs, &[OutputAsked { option: "--summary", path }])?;
        output::check_writable(path)?;
    }
    let mut file = merged(args)?;
    file.missing.extend(args.missing.iter().cloned());
    let names = SummaryNames::new(&file.names, args.srcline);
    let mut sums = file.sums().context("there is no summary")?;
    if !sums.is_plausible() {
        let message = "the summaries together count more calls than there can be: one of them is damaged";
        return Err(failure(Exit::BadInput, message));
    }
    choose(&mut sums, &args.functions, &names)?;
    if let Some(path) = &args.summary {
        file.write(path)?;
    }
    let report = sums.into_report();
    let hosts = hosts(&file, &report);
    write(args, &file, &names, &report, &hosts)?;
    let is_any_seen = report.functions.iter().any(|function| seen(&function.calls));
    Ok(if is_any_seen { Exit::Done } else { Exit::Nothing })
}

fn merged(args: &MergeArgs) -> Result<SummaryFile> {
    let mut merged: Option<SummaryFile> = None;
    for path in &args.files {
        let file = SummaryFile::read(path)?;
        merged = Some(match merged {
            None => file,
            Some(before) => before
                .merge(file)
                .map_err(|why| failure(Exit::Usage, format!("{}: {why}", path.display())))?,
        });
    }
    merged.context("there is no summary")
}

/// Leaves out the functions that are not wanted; all are, if none is named.
fn choose(sums: &mut Summary, wanted: &[String], names: &SummaryNames<'_>) -> Result<()> {
    let known: BTreeSet<String> = sums.functions().map(|id| names.function(id)).collect();
    if let Some(missing) = wanted.iter().find(|name| !known.contains(*name)) {
        let known: Vec<String> = known.into_iter().collect();
        let message = format!("no summary has '{missing}': they have {}", known.join(", "));
        return Err(failure(Exit::Usage, message));
    }
    if !wanted.is_empty() {
        sums.keep_functions(|id| wanted.contains(&names.function(id)));
    }
    Ok(())
}

/// The reports of the hosts, if there are several: of the functions that `all` has.
fn hosts(file: &SummaryFile, all: &Report) -> Vec<HostReport> {
    let host = |(host, sums): (&String, &Summary)| {
        let mut sums = sums.clone();
        sums.keep_functions(|id| all.functions.iter().any(|function| function.id == id));
        let recordings = sums.recordings().count() as u64;
        let host = Some(host.clone()).filter(|host| !host.is_empty());
        HostReport { host, recordings, report: sums.into_report() }
    };
    if file.hosts.len() > 1 { file.hosts.iter().map(host).collect() } else { Vec::new() }
}

/// What all recordings say alike; `None`: they differ.
fn common<'f, T: PartialEq>(file: &'f SummaryFile, of: impl Fn(&'f RecordingFacts) -> T + 'f) -> Option<T> {
    let mut all = file.recordings.values().map(of);
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

fn write(
    args: &MergeArgs,
    file: &SummaryFile,
    names: &SummaryNames<'_>,
    report: &Report,
    hosts: &[HostReport],
) -> Result<()> {
    let facts = || file.recordings.values();
    let input = match (file.recordings.len(), facts().next()) {
        (1, Some(only)) => only.input.clone(),
        (count, _) => {
            let hosts: BTreeSet<&str> = facts().map(|facts| facts.host.as_str()).collect();
            format!("{} of {}", counted(count as u64, "recording"), counted(hosts.len() as u64, "host"))
        }
    };
    let mut problems: Vec<String> = Vec::new();
    for problem in facts().flat_map(|facts| &facts.problems) {
        if !problems.contains(problem) {
            problems.push(problem.clone());
        }
    }
    problems.extend(file.missing.iter().map(|what| format!("missing: {what}; its calls are not counted")));
    let decoders: BTreeSet<&str> = facts().map(|facts| facts.decoder.as_str()).collect();
    let decoders: Vec<&str> = decoders.into_iter().collect();
    let inlined: Vec<Option<u64>> = report.functions.iter().map(|f| names.inlined(f.id)).collect();
    let view = View {
        report,
        names,
        input: &input,
        aux_bytes: facts().fold(0, |sum, facts| sum.saturating_add(facts.aux_bytes)),
        decoder: &decoders.join(", "),
        clock_offsets: common(file, RecordingFacts::clock_offsets).unwrap_or_default(),
        sched_apart_ns: facts().filter_map(|facts| facts.sched_apart_ns).max(),
        inlined: &inlined,
        only: common(file, |facts| facts.only.as_slice()).unwrap_or_default(),
        problems: &problems,
        srcline: args.srcline,
        unfold: args.unfold,
        table_rows: args.table_rows.limit(),
        by: None,
        code_blocks: &[],
    };
    let mut out = BufWriter::new(stdout().lock());
    let written = match args.format {
        Format::Text => {
            let (out, width) = (&mut Printable(&mut out), text_width());
            with_printable(&view, |view| {
                text::write(out, view, width)?;
                if hosts.is_empty() { Ok(()) } else { by_host::write_text(out, view, hosts, width) }
            })
        }
        Format::Json => json::write_with_hosts(&mut out, &view, hosts),
    };
    written.and_then(|()| out.flush()).context("cannot write to stdout")
}
