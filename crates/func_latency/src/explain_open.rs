//! `explain` of a function of which no call was seen from entry to end: an event loop, a thread's main
//! function.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write, stdout};

use analyzer::{ChildKind, FunctionReport, LatencyRange, OpenCalls, Report, Request, Spread};
use anyhow::{Context, Result};
use image::{Image, Query};
use model::FunctionId;

use crate::args::Format;
use crate::calls::Opened;
use crate::printable::{Printable, printable};
use crate::recording;
use crate::render::explain::open_calls::{OpenExplanation, write_json, write_text};
use crate::render::image_names::ImageNames;
use crate::render::names::file_name;
use crate::render::printable_names::with_printable;
use crate::render::row_limit::RowLimit;
use crate::render::{Names, View};
use crate::shell::quoted;
use crate::terminal::text_width;

/// Callees that are looked at for one with slow calls to explain.
const CALLEES_MAX: usize = 8;

/// All that is known is what open calls were seen to do.
pub(crate) fn has_open_calls_only(function: &FunctionReport) -> bool {
    function.figures.latency.count == 0 && function.open.observed.count > 0
}

/// Says what the observed part was spent in, and which command says more.
pub(crate) fn explain(
    opened: &Opened<'_>,
    report: &Report,
    function: &FunctionReport,
    format: Format,
) -> Result<()> {
    let names = ImageNames::new(opened.image, true);
    let next = next_command(opened, &names, function)?;
    let view = View {
        report,
        names: &names,
        input: &opened.config.input.display().to_string(),
        aux_bytes: recording::aux_bytes(opened.recording),
        decoder: opened.config.decoder.name(),
        clock_offsets: opened.recording.clock_offsets,
        sched_apart_ns: opened.recording.sched_apart_ns,
        inlined: &[],
        only: &opened.config.only(),
        problems: &opened.problems,
        srcline: false,
        unfold: false,
        table_rows: RowLimit::ALL,
        by: None,
        code_blocks: &[],
    };
    let mut out = BufWriter::new(stdout().lock());
    let written = match format {
        Format::Text => with_printable(&view, |view| {
            let explanation = OpenExplanation { view, function, next: &printable(&next) };
            write_text(&mut Printable(&mut out), &explanation, text_width())
        }),
        Format::Json => write_json(&mut out, &OpenExplanation { view: &view, function, next: &next }),
    };
    written.and_then(|()| out.flush()).context("cannot write to stdout")
}

/// The command to go on with: `explain` of the heaviest callee with calls that can be compared; if there is
/// none, `graph`.
fn next_command(opened: &Opened<'_>, names: &dyn Names, function: &FunctionReport) -> Result<String> {
    let callees = heaviest_callees(&function.open);
    let request = Request {
        functions: callees,
        ancestor: None,
        latency: LatencyRange::ALL,
        starts: None,
        ..opened.request()?
    };
    let callees = if request.functions.is_empty() { Vec::new() } else { opened.report(&request)?.functions };
    let differ = |spread: &Spread| spread.min_ns < spread.p99_ns;
    let comparable = callees.iter().find(|callee| callee.figures.latency.spread.as_ref().is_some_and(differ));
    let (command, function) = comparable.map_or(("graph", function.id), |callee| ("explain", callee.id));
    let input = quoted(&opened.config.input.display().to_string());
    Ok(format!(
        "func_latency {command} -i {input} -f {}",
        quoted(&name_to_ask(opened.image, names, function))
    ))
}

/// The functions that took most of the observed time, the heaviest first.
fn heaviest_callees(open: &OpenCalls) -> Vec<FunctionId> {
    let mut by_callee: BTreeMap<FunctionId, u64> = BTreeMap::new();
    let is_callee = |kind| matches!(kind, ChildKind::Call | ChildKind::Tail);
    for child in open.children.iter().filter(|child| is_callee(child.kind)) {
        *by_callee.entry(child.function).or_default() += child.total.sum_ns;
    }
    by_callee.remove(&FunctionId::UNKNOWN);
    let mut callees: Vec<_> = by_callee.into_iter().collect();
    callees.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns)); // stable: ties by function
    callees.into_iter().take(CALLEES_MAX).map(|(function, _)| function).collect()
}

/// What `-f` understands as this function alone: its name, if need be with its object.
pub(crate) fn name_to_ask(image: &Image, names: &dyn Names, function: FunctionId) -> String {
    let name = names.function(function);
    let object = names.object_of(function).map(|path| file_name(&path).to_owned());
    let with_object = object.map(|object| format!("{object}:{name}"));
    let is_it = |text: &&String| {
        let found = image.find(&Query { text: text.to_string(), object: None });
        found.is_ok_and(|found| matches!(found.as_slice(), [only] if only.id == function))
    };
    [Some(&name), with_object.as_ref()].into_iter().flatten().find(is_it).unwrap_or(&name).clone()
}
