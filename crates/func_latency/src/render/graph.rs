//! A call graph on the terminal, as `perf report -g` draws it: functions by total, below each of them what it
//! called, or who called it.
//!
//! A function's total is that of its outermost activations: no time counts twice, however deep it recurses.

use std::collections::HashMap;
use std::io::{self, Write};

use analyzer::{CallTree, FoundPaths};

use super::Names;
use super::units::{counted, duration, grouped, share};
use crate::export::{Labels, observed_part};
use crate::tree_config::GraphStyle;

/// A function, or one in a graph below it.
#[derive(Clone, Debug, Default)]
struct Branch {
    label: usize,
    /// The time that went through here.
    total_ns: u64,
    children: Vec<usize>,
}

/// A function of the table.
#[derive(Clone, Copy, Debug, Default)]
struct Function {
    total_ns: u64,
    own_ns: u64,
    calls: u64,
}

/// All functions, and the graph below each: flat, the first branches are the functions'.
struct Graph {
    functions: Vec<Function>,
    branches: Vec<Branch>,
    places: HashMap<(usize, usize), usize>,
    whole_ns: u64,
}

impl Graph {
    fn new(tree: &CallTree, labels: &mut Labels<'_>, style: &GraphStyle) -> Self {
        let path_labels: Vec<usize> = tree.walk().map(|step| labels.of(step.node)).collect();
        let functions = vec![Function::default(); labels.all().len()];
        let root = |label| Branch { label, ..Branch::default() };
        let branches = (0..functions.len()).map(root).collect();
        let whole_ns = tree.roots().filter_map(|root| style.weight.of(&root.total)).sum();
        let mut graph = Self { functions, branches, places: HashMap::new(), whole_ns };
        let mut path: Vec<usize> = Vec::new();
        // Of each function on the path: its branch in the graph below each function above it.
        let mut below: Vec<Vec<usize>> = Vec::new();
        for (step, &label) in tree.walk().zip(&path_labels) {
            path.truncate(step.depth);
            below.truncate(step.depth);
            let total_ns = style.weight.of(&step.node.total).unwrap_or_default();
            let is_outermost = !path.contains(&label);
            if let Some(function) = graph.functions.get_mut(label) {
                function.own_ns += style.weight.of(&step.own).unwrap_or_default();
                function.calls += step.node.total.count;
                function.total_ns += if is_outermost { total_ns } else { 0 };
            }
            path.push(label);
            if style.callee {
                if is_outermost {
                    graph.add_callers(&path, total_ns, style.depth);
                }
            } else {
                let inside = below.last().map_or(&[][..], Vec::as_slice).to_vec();
                below.push(graph.add_callee(inside, label, total_ns, is_outermost));
            }
        }
        graph
    }

    /// A child of a branch, which is made if it is not there yet.
    fn child(&mut self, parent: usize, label: usize, total_ns: u64) -> usize {
        let next = self.branches.len();
        let index = *self.places.entry((parent, label)).or_insert(next);
        if index == next {
            self.branches.push(Branch { label, ..Branch::default() });
            if let Some(parent) = self.branches.get_mut(parent) {
                parent.children.push(index);
            }
        }
        if let Some(branch) = self.branches.get_mut(index) {
            branch.total_ns += total_ns;
        }
        index
    }

    /// Adds the callers of the function at the end of `path`.
    fn add_callers(&mut self, path: &[usize], total_ns: u64, depth: usize) {
        let mut callers = path.iter().rev();
        let Some(&function) = callers.next() else { return };
        let mut at = function;
        for &caller in callers.take(depth) {
            at = self.child(at, caller, total_ns);
        }
    }

    /// Adds a function to the graph below each function that is above it; `inside`: the branches of its
    /// caller there.
    fn add_callee(
        &mut self,
        inside: Vec<usize>,
        label: usize,
        total_ns: u64,
        is_outermost: bool,
    ) -> Vec<usize> {
        let mut branches: Vec<usize> =
            inside.into_iter().map(|branch| self.child(branch, label, total_ns)).collect();
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
    let mut labels = Labels::of_text(names);
    let graph = Graph::new(&found.tree, &mut labels, style);
    let Graph { functions, whole_ns, .. } = &graph;
    let below = if style.callee { "who called it" } else { "what it called" };
    let of = if style.fractal { "the function above" } else { "all" };
    writeln!(
        out,
        "{} {}; below each function {below}, in % of {of}",
        duration(*whole_ns),
        style.weight.name()
    )?;
    if let Some(note) = observed_part(found, names) {
        writeln!(out, "{note}")?;
    }
    writeln!(out)?;
    let mut order: Vec<usize> = (0..functions.len()).collect();
    let total = |label: &usize| functions.get(*label).map_or(0, |function| function.total_ns);
    order.sort_by(|a, b| total(b).cmp(&total(a)).then_with(|| labels.name(*a).cmp(labels.name(*b))));
    writeln!(out, " total %  self %      total       self         calls  function")?;
    let mut left_out = 0;
    for label in order {
        let Some(Function { total_ns, own_ns, calls }) = functions.get(label).copied() else { continue };
        let percent = share(total_ns, *whole_ns);
        if percent < style.percent_limit {
            left_out += 1;
            continue;
        }
        writeln!(
            out,
            "{percent:8.2}{:8.2} {:>10} {:>10} {:>13}  {}",
            share(own_ns, *whole_ns),
            duration(total_ns),
            duration(own_ns),
            grouped(calls),
            labels.name(label)
        )?;
        let drawing = Drawing { graph: &graph, labels: &labels, style };
        let base_ns = if style.fractal { total_ns } else { *whole_ns };
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
    labels: &'g Labels<'g>,
    style: &'g GraphStyle,
}

impl Drawing<'_> {
    /// Draws what is below a branch, in shares of `base_ns`.
    fn branches(
        &self,
        out: &mut dyn Write,
        parent: usize,
        base_ns: u64,
        margin: &str,
        depth: usize,
    ) -> io::Result<()> {
        let branch = |index: usize| self.graph.branches.get(index);
        let is_shown = |branch: &&Branch| {
            branch.total_ns > 0 && share(branch.total_ns, base_ns) >= self.style.percent_limit
        };
        let children = branch(parent).map_or(&[][..], |parent| &parent.children);
        let mut shown: Vec<(usize, &Branch)> = children
            .iter()
            .filter_map(|&index| Some((index, branch(index)?)))
            .filter(|(_, branch)| depth > 0 && is_shown(branch))
            .collect();
        let name = |branch: &Branch| self.labels.name(branch.label);
        shown.sort_by(|(_, a), (_, b)| b.total_ns.cmp(&a.total_ns).then_with(|| name(a).cmp(name(b))));
        let last = shown.len().saturating_sub(1);
        for (number, (index, branch)) in shown.into_iter().enumerate() {
            let percent = share(branch.total_ns, base_ns);
            let corner = if number == last { '`' } else { '|' };
            writeln!(out, "{margin}{corner}--{percent:.2}%-- {}", name(branch))?;
            let bar = if number == last { ' ' } else { '|' };
            let base_ns = if self.style.fractal { branch.total_ns } else { base_ns };
            self.branches(out, index, base_ns, &format!("{margin}{bar}  "), depth - 1)?;
        }
        Ok(())
    }
}
