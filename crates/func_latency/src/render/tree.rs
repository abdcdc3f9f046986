//! One call's tree, as text and as JSON.

use std::io::{self, Write};

use analyzer::{CallId, CallRow, CallTree, Node, Status, Step, Total, off_cpu_spans};
use model::schedule::OffCpu;
use model::{Ns, Schedule};
use serde_json::{Value, json};

use super::Names;
use super::names::{callee_name, caller_name};
use super::table::{Align, Table};
use super::tree_lines::{Heaviest, LinesLeftOut, TreeLine};
use super::units::{counted, duration, duration_within, grouped, ns_within};

/// Name and version of the contract.
pub const SCHEMA: &str = "func_latency_call/2";

/// What of a tree is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeLimits {
    /// Levels below the root.
    pub depth: usize,
    /// Nodes that took less are left out.
    pub min_ns: u64,
    /// The most lines of the text; `None`: one for each call.
    pub lines: Option<usize>,
}

/// A call, and how its tree is shown.
#[derive(Clone, Copy)]
pub struct TreeView<'a> {
    /// Its id.
    pub id: CallId,
    /// Its row.
    pub row: &'a CallRow,
    /// Its tree.
    pub tree: &'a CallTree,
    /// Bytes of trace that were decoded to find it.
    pub decoded_bytes: u64,
    /// What ids are called.
    pub names: &'a dyn Names,
    /// When its thread was off the CPU.
    pub schedule: &'a Schedule,
    /// How much of the tree.
    pub limits: TreeLimits,
    /// The functions below a call of a kernel function, innermost first.
    pub below: &'a [Below],
}

/// A function that is open below a call.
#[derive(Clone, Debug)]
pub struct Below {
    /// Its name.
    pub name: String,
    /// It is the kernel's.
    pub is_kernel: bool,
}

impl TreeView<'_> {
    fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        let TreeLimits { depth, min_ns, .. } = self.limits;
        let is_shown = move |step: &Step<'_>| step.depth <= depth && step.node.total.sum_ns >= min_ns;
        // What took long enough is in something that did.
        self.tree.walk().filter(move |step| step.depth == 0 || is_shown(step))
    }

    fn off_cpu(&self) -> impl Iterator<Item = OffCpu> {
        let row = self.row;
        let end = Ns(row.start_ns.0.saturating_add(row.latency_ns));
        off_cpu_spans(self.schedule, row.id.tid, row.start_ns, end)
            .filter(|_| row.off_cpu_ns.is_some_and(|ns| ns > 0))
    }

    fn name(&self, node: &Node) -> String {
        callee_name(self.names, node.kind, node.function)
    }
}

/// Writes it for people: a line for each call, with the time since the call began.
///
/// # Errors
/// What `out` says.
pub fn write_text(out: &mut dyn Write, view: &TreeView<'_>) -> io::Result<()> {
    let row = view.row;
    let at_least = if row.end.status.counted() { "" } else { "at least " };
    let site = row.from.site.map(|site| format!(" at {}", view.names.site(site))).unwrap_or_default();
    writeln!(
        out,
        "call {} of [{}], called from {}{site}\nthread {}, start {} ns, {at_least}{} ({} ns +- {}), off-CPU {}, {}{}\n",
        view.id,
        view.names.function(row.function),
        caller_name(view.names, row.from.caller),
        row.id.tid.0,
        grouped(row.start_ns.0),
        duration_within(row.latency_ns, row.error_ns),
        grouped(row.latency_ns),
        row.error_ns,
        row.off_cpu_ns.map_or_else(|| "not known".to_owned(), duration),
        row.end.status.name(),
        row.end.cut_by.map(|cut| format!(" by {}", cut.cause.name())).unwrap_or_default(),
    )?;
    let calls: Vec<TreeLine<'_>> = view.steps().map(TreeLine::of).collect();
    let most = view.limits.lines.unwrap_or(usize::MAX);
    if calls.len() <= most {
        table(view, &calls).write(out, usize::MAX)?;
    } else {
        let Heaviest { lines, left_out } = Heaviest::of(&calls, most);
        table(view, &lines).write(out, usize::MAX)?;
        // One node is many calls where there were too many to keep apart.
        let all = calls.iter().map(|line| line.total.count).sum();
        write!(out, "  {}, those that are alike in one line; ", counted(all, "call"))?;
        match left_out {
            None => writeln!(out, "--all prints each")?,
            Some(LinesLeftOut { calls, heaviest }) => writeln!(
                out,
                "{} are on lines that are left out, the heaviest of {}\n  \
                 --top N prints more lines, --all each call, --min NS and --depth N fewer",
                grouped(calls),
                duration_within(heaviest.total.sum_ns, heaviest.error_ns)
            )?,
        }
    }
    let left_out = view.tree.nodes().len() - calls.len();
    if left_out > 0 {
        writeln!(out, "  {} more, deeper or shorter than asked for", grouped(left_out as u64))?;
    }
    off_cpu(out, view, most)?;
    stack_below(out, view, most)
}

/// The stack below a call of a kernel function: the kernel's part, and user code below the system call.
fn stack_below(out: &mut dyn Write, view: &TreeView<'_>, most: usize) -> io::Result<()> {
    if !view.below.is_empty() {
        writeln!(out, "\n  stack below the call")?;
    }
    for Below { name, is_kernel } in view.below.iter().take(most) {
        writeln!(out, "    {:<6}  {name}", if *is_kernel { "kernel" } else { "user" })?;
    }
    match view.below.len().saturating_sub(most) {
        0 => Ok(()),
        more => writeln!(out, "    ... {} more; --all prints them", grouped(more as u64)),
    }
}

fn table(view: &TreeView<'_>, lines: &[TreeLine<'_>]) -> Table {
    let mut table = Table::new(&[
        ("call", Align::Left),
        ("since start", Align::Right),
        ("total", Align::Right),
        ("self", Align::Right),
        ("off-CPU", Align::Right),
        ("", Align::Left),
    ]);
    for line in lines {
        let since = line.first.start.since(view.row.start_ns);
        let mut notes = Vec::new();
        if line.total.count > 1 {
            notes.push(format!("{} calls", grouped(line.total.count)));
        }
        let status = line.status.map_or("ends differ", Status::name);
        if line.status != Some(Status::Complete) {
            notes.push(status.to_owned());
        }
        notes.extend(line.first.site.and_then(|site| view.names.line(site)));
        table.row(vec![
            indented(line.depth, view.name(line.first)),
            format!("+{}", grouped(since)),
            ns_within(line.total.sum_ns, line.error_ns),
            ns_within(line.own.sum_ns, line.own_error_ns),
            line.total.off_cpu_ns.filter(|ns| *ns > 0).map(grouped).unwrap_or_default(),
            notes.join(", "),
        ]);
    }
    table
}

/// When the thread was off the CPU in the call.
fn off_cpu(out: &mut dyn Write, view: &TreeView<'_>, most: usize) -> io::Result<()> {
    for (span, number) in view.off_cpu().take(most).zip(0..) {
        if number == 0 {
            writeln!(out, "\n  off the CPU (ns since start, for)")?;
        }
        let since = span.from.since(view.row.start_ns);
        let for_ns = span.to.map_or(0, |to| to.since(span.from));
        let how = if span.preempted { ", preempted" } else { "" };
        writeln!(out, "    +{}  {}{how}", grouped(since), grouped(for_ns))?;
    }
    match view.off_cpu().skip(most).count() {
        0 => Ok(()),
        more => writeln!(out, "    ... {} more; --all prints them", grouped(more as u64)),
    }
}

/// A name, farther to the right the deeper it is; at some depth the number of the level has to do.
fn indented(depth: usize, name: String) -> String {
    const INDENTED_MAX: usize = 40;
    match depth.checked_sub(INDENTED_MAX) {
        None => format!("{:1$}{name}", "", 2 * depth),
        Some(_) => format!("{:1$}({depth}) {name}", "", 2 * INDENTED_MAX),
    }
}

/// Writes it for programs: nodes in the order of their entry, with their depth.
///
/// # Errors
/// What `out` says.
pub fn write_json(out: &mut dyn Write, view: &TreeView<'_>) -> io::Result<()> {
    let row = view.row;
    let site = |site: Option<analyzer::Place>| site.map(|site| view.names.site(site));
    let nodes: Vec<Value> = view.steps().map(|step| node(view, &step)).collect();
    let spans = view.off_cpu().map(|span| {
        let ns = span.to.map_or(0, |to| to.since(span.from));
        json!({ "start_ns": span.from.0, "ns": ns, "preempted": span.preempted })
    });
    let mut tree = json!({
        "schema": SCHEMA,
        "id": view.id.to_string(),
        "function": view.names.function(row.function),
        "tid": row.id.tid.0,
        "caller": caller_name(view.names, row.from.caller),
        "site": site(row.from.site),
        "start_ns": row.start_ns.0,
        "latency_ns": row.latency_ns,
        "error_ns": row.error_ns,
        "off_cpu_ns": row.off_cpu_ns,
        "status": row.end.status.name(),
        "cut_by": row.end.cut_by.map(|cut| cut.cause.name()),
        "decoded_bytes": view.decoded_bytes,
        "off_cpu": spans.collect::<Vec<_>>(),
        "nodes": nodes,
    });
    if let Some(tree) = tree.as_object_mut().filter(|_| !view.below.is_empty()) {
        let below = |Below { name, is_kernel }: &Below| json!({ "name": name, "kernel": is_kernel });
        tree.insert("below".to_owned(), view.below.iter().map(below).collect());
    }
    serde_json::to_writer(&mut *out, &tree)?;
    writeln!(out)
}

fn node(view: &TreeView<'_>, step: &Step<'_>) -> Value {
    let Step { node, depth, own, own_error_ns, .. } = step;
    let Total { count, sum_ns, off_cpu_ns } = node.total;
    json!({
        "depth": depth,
        "name": view.name(node),
        "kind": node.kind.name(),
        "site": node.site.map(|site| view.names.site(site)),
        "line": node.site.and_then(|site| view.names.line(site)),
        "start_ns": node.start.0,
        "count": count,
        "total_ns": sum_ns,
        "total_error_ns": node.error_ns,
        "self_ns": own.sum_ns,
        "self_error_ns": own_error_ns,
        "off_cpu_ns": off_cpu_ns,
        "self_off_cpu_ns": own.off_cpu_ns,
        "status": node.status.name(),
    })
}
