//! The listing as JSON.

use std::io::{self, Write};

use analyzer::ChildKind;
use model::FunctionId;
use serde::Serialize;

use super::{AnnotateView, SCHEMA};
use crate::listing::instructions::Listed;
use crate::listing::lines::Line;
use crate::listing::{Callees, Spent, Whole};
use crate::render::names::callee_name;

#[derive(Serialize)]
struct AnnotateDocument {
    schema: &'static str,
    function: String,
    object: Option<String>,
    groups: Vec<AnnotateGroup>,
    /// Null: the object says no lines.
    lines: Option<Vec<LineEntry>>,
    instructions: Vec<InstructionEntry>,
    /// What was called at no known place.
    nowhere: Nowhere,
}

#[derive(Serialize)]
struct AnnotateGroup {
    name: &'static str,
    calls: u64,
    latency_sum_ns: u64,
    self_ns: u64,
    self_error_ns: u64,
    inside_ns: u64,
    elsewhere_ns: u64,
    off_cpu_ns: Option<u64>,
}

#[derive(Serialize)]
struct LineEntry {
    /// Null: not known.
    file: Option<String>,
    line: Option<u32>,
    /// Null: without --source, and where the file is not there.
    text: Option<String>,
    /// Its first instruction.
    site: String,
    of: Vec<SpentEntry>,
    callees: Vec<CalleeEntry>,
    inlined: Vec<LineEntry>,
}

#[derive(Serialize)]
struct InstructionEntry {
    site: String,
    /// Null: it is no code of the function.
    text: Option<String>,
    line: Option<String>,
    of: Vec<SpentEntry>,
    callees: Vec<CalleeEntry>,
}

#[derive(Serialize)]
struct Nowhere {
    of: Vec<SpentEntry>,
    callees: Vec<CalleeEntry>,
}

#[derive(Serialize)]
struct SpentEntry {
    /// Null: not known, of code outside of the function.
    executions: Option<u64>,
    self_ns: u64,
    self_error_ns: u64,
    /// The part of `self_ns` that is a share of straight code, and an estimate.
    self_estimated_ns: u64,
    inside_ns: u64,
    inside_error_ns: u64,
    off_cpu_ns: Option<u64>,
}

#[derive(Serialize)]
struct CalleeEntry {
    name: String,
    kind: &'static str,
    of: Vec<CountAndSum>,
}

#[derive(Serialize)]
struct CountAndSum {
    count: u64,
    sum_ns: u64,
}

/// Writes the listing as one JSON document and a newline.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, view: &AnnotateView<'_>) -> io::Result<()> {
    let listing = view.listing;
    let groups = view.groups.names().iter().zip(&listing.groups);
    let document = AnnotateDocument {
        schema: SCHEMA,
        function: view.names.function(view.function),
        object: view.names.object_of(view.function),
        groups: groups.map(|(name, whole)| group(name, whole)).collect(),
        lines: view.lines.map(|lines| lines.iter().map(|one| line(view, one)).collect()),
        instructions: listing.instructions.iter().map(|one| instruction(view, one)).collect(),
        nowhere: Nowhere {
            of: spent(view, &listing.nowhere, false),
            callees: callees(view, &listing.nowhere_callees),
        },
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn group(name: &'static str, whole: &Whole) -> AnnotateGroup {
    let Whole { calls, latency_ns, own_ns, own_error_ns, inside_ns, elsewhere_ns, off_cpu_ns } = *whole;
    AnnotateGroup {
        name,
        calls,
        latency_sum_ns: latency_ns,
        self_ns: own_ns,
        self_error_ns: own_error_ns,
        inside_ns,
        elsewhere_ns,
        off_cpu_ns,
    }
}

fn line(view: &AnnotateView<'_>, of: &Line) -> LineEntry {
    LineEntry {
        file: Some(of.key.file.clone()).filter(|file| !file.is_empty()),
        line: Some(of.key.line).filter(|line| *line > 0),
        text: view.text_of(&of.key),
        site: view.names.site(of.first),
        of: spent(view, &of.spent, of.is_own),
        callees: callees(view, &of.callees),
        inlined: of.inlined.iter().map(|inlined| line(view, inlined)).collect(),
    }
}

fn instruction(view: &AnnotateView<'_>, of: &Listed) -> InstructionEntry {
    InstructionEntry {
        site: view.names.site(of.place),
        text: of.text.clone(),
        line: view.names.line(of.place),
        of: spent(view, &of.spent, of.is_own()),
        callees: callees(view, &of.callees),
    }
}

fn spent(view: &AnnotateView<'_>, groups: &[Spent], is_own: bool) -> Vec<SpentEntry> {
    let entry = |(spent, whole): (&Spent, &Whole)| SpentEntry {
        executions: is_own.then_some(spent.executions),
        self_ns: spent.own_ns,
        self_error_ns: spent.own_error_ns,
        self_estimated_ns: spent.estimated_ns,
        inside_ns: spent.inside_ns,
        inside_error_ns: spent.inside_error_ns,
        off_cpu_ns: whole.off_cpu_ns.map(|_| spent.off_cpu_ns),
    };
    groups.iter().zip(&view.listing.groups).map(entry).collect()
}

fn callees(view: &AnnotateView<'_>, of: &Callees) -> Vec<CalleeEntry> {
    let times = |(count, sum_ns): &(u64, u64)| CountAndSum { count: *count, sum_ns: *sum_ns };
    let entry = |(kind, function): (ChildKind, FunctionId), of: &[(u64, u64)]| CalleeEntry {
        name: callee_name(view.names, kind, function),
        kind: kind.name(),
        of: of.iter().map(times).collect(),
    };
    of.iter().map(|(callee, of)| entry(*callee, of)).collect()
}
