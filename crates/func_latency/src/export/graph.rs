//! A call graph on the terminal, as `perf report -g` draws it: functions by total, below each of them its
//! callees, or its callers.
//!
//! A function's total is that of its outermost activations: no time counts twice, however deep it recurses.

use std::collections::HashMap;
use std::io::{self, Write};

use analyzer::{CallTree, FoundPaths, Total};

use super::weight::Weight;
use super::{NodeLabels, observed_part};
use crate::render::Names;
use crate::render::time_sum::TimeSum;
use crate::render::units::{counted, grouped, percent_within, share};

/// How a call graph is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GraphStyle {
    /// Below each function its callers, not its callees.
    pub callee: bool,
    /// Which time.
    pub weight: Weight,
    /// What is less than this share of all time is left out, percent.
    pub percent_limit: f64,
    /// Shares are of the function above.
    pub fractal: bool,
    /// Levels.
    pub depth: usize,
}

/// A function, or one in a graph below it.
#[derive(Clone, Debug, Default)]
struct GraphBranch {
    label: usize,
    /// The time that went through here.
    total: TimeSum,
    children: Vec<usize>,
}

/// A function of the table.
#[derive(Clone, Copy, Debug, Default)]
struct GraphFunction {
    total: TimeSum,
    own: TimeSum,
    calls: u64,
}

/// In percent of a whole; to the hundredth, where that is known.
fn percent(time: TimeSum, whole_ns: u64) -> String {
    let (part, error) = (share(time.ns, whole_ns), share(time.error_ns, whole_ns));
    if error < 0.05 { format!("{part:.2}") } else { percent_within(part, error) }
}

/// All functions, and the graph below each: flat, the first branches are the functions'.
struct Graph {
    functions: Vec<GraphFunction>,
    branches: Vec<GraphBranch>,
    places: HashMap<(usize, usize), usize>,
    whole: TimeSum,
}

impl Graph {
    fn new(tree: &CallTree, labels: &mut NodeLabels<'_>, style: &GraphStyle) -> Self {
        let path_labels: Vec<usize> = tree.walk().map(|step| labels.of(step.node)).collect();
        let functions = vec![GraphFunction::default(); labels.all().len()];
        let root = |label| GraphBranch { label, ..GraphBranch::default() };
        let branches = (0..functions.len()).map(root).collect();
        let time = |of: &Total, error_ns| TimeSum { ns: style.weight.of(of).unwrap_or_default(), error_ns };
        let mut whole = TimeSum::default();
        tree.roots().for_each(|root| whole.add(time(&root.total, root.error_ns)));
        let mut graph = Self { functions, branches, places: HashMap::new(), whole };
        let mut path: Vec<usize> = Vec::new();
        // Of each function on the path: its branch in the graph below each function above it.
        let mut below: Vec<Vec<usize>> = Vec::new();
        for (step, &label) in tree.walk().zip(&path_labels) {
            path.truncate(step.depth);
            below.truncate(step.depth);
            let total = time(&step.node.total, step.node.error_ns);
            let is_outermost = !path.contains(&label);
            if let Some(function) = graph.functions.get_mut(label) {
                function.own.add(time(&step.own, step.own_error_ns));
                function.calls += step.node.total.count;
                function.total.add(if is_outermost { total } else { TimeSum::default() });
            }
            path.push(label);
            if style.callee {
                if is_outermost {
                    graph.add_callers(&path, total, style.depth);
                }
            } else {
                let inside = below.last().map_or(&[][..], Vec::as_slice).to_vec();
                below.push(graph.add_callee(inside, label, total, is_outermost));
            }
        }
        graph
    }

    /// A child of a branch, which is made if it is not there yet.
    fn child(&mut self, parent: usize, label: usize, total: TimeSum) -> usize {
        let next = self.branches.len();
        let index = *self.places.entry((parent, label)).or_insert(next);
        if index == next {
            self.branches.push(GraphBranch { label, ..GraphBranch::default() });
            if let Some(parent) = self.branches.get_mut(parent) {
                parent.children.push(index);
            }
        }
        if let Some(branch) = self.branches.get_mut(index) {
            branch.total.add(total);
        }
        index
    }

    /// Adds the callers of the function at the end of `path`.
    fn add_callers(&mut self, path: &[usize], total: TimeSum, depth: usize) {
        let mut callers = path.iter().rev();
        let Some(&function) = callers.next() else { return };
        let mut at = function;
        for &caller in callers.take(depth) {
            at = self.child(at, caller, total);
        }
    }

    /// Adds a function to the graph below each function that is above it; `inside`: the branches of its
    /// caller there.
    fn add_callee(
        &mut self,
        inside: Vec<usize>,
        label: usize,
        total: TimeSum,
        is_outermost: bool,
    ) -> Vec<usize> {
        let mut branches: Vec<usize> =
            inside.into_iter().map(|branch| self.child(branch, label, total)).collect();
        if is_outermost {
            branches.push(label);
        }
        branches
    }
}

/// Writes the graph.
///
/// # Errors
/// What `out` says.
pub fn write(
    out: &mut dyn Write,
    found: &FoundPaths,
    names: &dyn Names,
    style: &GraphStyle,
) -> io::Result<()> {
    let mut labels = NodeLabels::of_text(names);
    let graph = Graph::new(&found.tree, &mut labels, style);
    let Graph { functions, whole, .. } = &graph;
    let below = if style.callee { "who called it" } else { "what it called" };
    let of = if style.fractal { "the function above" } else { "all" };
    writeln!(out, "{} {}; below each function {below}, in % of {of}", whole.text(), style.weight.name())?;
    if let Some(note) = observed_part(found, names) {
        writeln!(out, "{note}")?;
    }
    writeln!(out)?;
    let mut order: Vec<usize> = (0..functions.len()).collect();
    let total = |label: &usize| functions.get(*label).map_or(0, |function| function.total.ns);
    order.sort_by(|a, b| total(b).cmp(&total(a)).then_with(|| labels.name(*a).cmp(labels.name(*b))));
    writeln!(out, " total %  self %      total       self         calls  function")?;
    let mut left_out = 0;
    for label in order {
        let Some(GraphFunction { total, own, calls }) = functions.get(label).copied() else { continue };
        if share(total.ns, whole.ns) < style.percent_limit {
            left_out += 1;
            continue;
        }
        writeln!(
            out,
            "{:>8}{:>8} {:>10} {:>10} {:>13}  {}",
            percent(total, whole.ns),
            percent(own, whole.ns),
            total.text(),
            own.text(),
            grouped(calls),
            labels.name(label)
        )?;
        let drawing = Drawing { graph: &graph, labels: &labels, style };
        let base_ns = if style.fractal { total.ns } else { whole.ns };
        drawing.branches(out, label, base_ns, "        ", style.depth)?;
    }
    if left_out > 0 {
        let functions = counted(left_out, "function");
        writeln!(out, "\n{functions} of less than {} % left out (--percent-limit)", style.percent_limit)?;
    }
    Ok(())
}

struct Drawing<'g> {
    graph: &'g Graph,
    labels: &'g NodeLabels<'g>,
    style: &'g GraphStyle,
}

impl Drawing<'_> {
    /// Draws the branches below a branch, in shares of `base_ns`.
    fn branches(
        &self,
        out: &mut dyn Write,
        parent: usize,
        base_ns: u64,
        margin: &str,
        depth: usize,
    ) -> io::Result<()> {
        let branch = |index: usize| self.graph.branches.get(index);
        let is_shown = |branch: &&GraphBranch| {
            branch.total.ns > 0 && share(branch.total.ns, base_ns) >= self.style.percent_limit
        };
        let children = branch(parent).map_or(&[][..], |parent| &parent.children);
        let mut shown: Vec<(usize, &GraphBranch)> = children
            .iter()
            .filter_map(|&index| Some((index, branch(index)?)))
            .filter(|(_, branch)| depth > 0 && is_shown(branch))
            .collect();
        let name = |branch: &GraphBranch| self.labels.name(branch.label);
        shown.sort_by(|(_, a), (_, b)| b.total.ns.cmp(&a.total.ns).then_with(|| name(a).cmp(name(b))));
        let last = shown.len().saturating_sub(1);
        for (number, (index, branch)) in shown.into_iter().enumerate() {
            let corner = if number == last { '`' } else { '|' };
            let percent = percent(branch.total, base_ns);
            writeln!(out, "{margin}{corner}--{percent}%-- {}", name(branch))?;
            let bar = if number == last { ' ' } else { '|' };
            let base_ns = if self.style.fractal { branch.total.ns } else { base_ns };
            self.branches(out, index, base_ns, &format!("{margin}{bar}  "), depth - 1)?;
        }
        Ok(())
    }
}
