//! Instructions to source lines: each with the lines that were inlined into it.
//!
//! ```text
//!   work.c:12                  of the function
//!     list.h:30                inlined there: a part of line 12
//!       list.h:7               inlined into that
//!   work.c:13
//! ```

use std::collections::BTreeMap;

use analyzer::Place;
use image::{Image, SourceLine};

use super::instructions::Listing;
use super::{Callees, Spent, share};

/// A source line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineKey {
    /// The file, as the compiler was told; empty: no line is known.
    pub file: String,
    /// The line; 0: not known.
    pub line: u32,
}

/// What calls did on a line, with what is inlined there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Which line.
    pub key: LineKey,
    /// Its first instruction.
    pub first: Place,
    /// By group. Executions: the most of any of its own instructions, or, where it has none, of the lines
    /// that are inlined there.
    pub spent: Vec<Spent>,
    /// Its executions are known: it has code of the function.
    pub is_own: bool,
    /// What it called.
    pub callees: Callees,
    /// The lines that are inlined there.
    pub inlined: Vec<Line>,
}

/// A line while it is added up.
struct Node {
    first: Place,
    spent: Vec<Spent>,
    is_own: bool,
    /// It has instructions that are not inlined.
    has_plain: bool,
    callees: Callees,
    inlined: BTreeMap<LineKey, usize>,
}

/// Nodes, by number, and those of the function itself.
#[derive(Default)]
struct Tree {
    nodes: Vec<Node>,
    outermost: BTreeMap<LineKey, usize>,
}

/// True if the object says lines.
#[must_use]
pub fn are_known(lines: &[Line]) -> bool {
    lines.iter().any(|line| line.is_own && line.key.line > 0)
}

/// The lines of a listing: those of the file that the function begins in first, in their order.
#[must_use]
pub fn lines(image: &Image, listing: &Listing) -> Vec<Line> {
    let line_at = |place: Place| image.source_line_at(place.object, place.svma);
    lines_by(line_at, listing)
}

fn lines_by(line_at: impl Fn(Place) -> Option<SourceLine>, listing: &Listing) -> Vec<Line> {
    let groups = listing.groups.len();
    let mut tree = Tree::default();
    let mut ways: Vec<Vec<usize>> = Vec::with_capacity(listing.instructions.len());
    for instruction in &listing.instructions {
        let chain = chain(line_at(instruction.place));
        let way = tree.way(&chain, instruction.place, groups);
        for (depth, number) in way.iter().enumerate() {
            let Some(node) = tree.nodes.get_mut(*number) else { continue };
            node.is_own |= instruction.is_own();
            let is_innermost = depth + 1 == way.len();
            node.has_plain |= is_innermost && instruction.is_own();
            for (sum, spent) in node.spent.iter_mut().zip(&instruction.spent) {
                sum.add_time(spent);
                if is_innermost {
                    sum.executions = sum.executions.max(spent.executions);
                }
            }
            add_callees(&mut node.callees, &instruction.callees);
        }
        ways.push(way);
    }
    tree.add_estimates(listing, &ways);
    let entry = listing.instructions.iter().find(|instruction| instruction.is_own());
    let first_file = entry.and_then(|entry| chain(line_at(entry.place)).first().map(|key| key.file.clone()));
    let outermost = std::mem::take(&mut tree.outermost);
    let mut lines = tree.finish(outermost);
    lines.sort_by_key(|line| (Some(&line.key.file) != first_file.as_ref(), line.key.clone()));
    lines
}

/// From the function's own line inwards.
fn chain(line: Option<SourceLine>) -> Vec<LineKey> {
    let Some(SourceLine { file, line, inlined_at }) = line else {
        return vec![LineKey { file: String::new(), line: 0 }];
    };
    let around = inlined_at.into_iter().rev().map(|at| LineKey { file: at.file, line: at.line });
    around.chain([LineKey { file, line }]).collect()
}

fn add_callees(sums: &mut Callees, callees: &Callees) {
    for (callee, times) in callees {
        let sum = sums.entry(*callee).or_insert_with(|| vec![(0, 0); times.len()]);
        for ((count, sum_ns), (more, ns)) in sum.iter_mut().zip(times) {
            *count += more;
            *sum_ns = sum_ns.saturating_add(*ns);
        }
    }
}

impl Tree {
    /// The nodes of a chain of lines, from the outermost on.
    fn way(&mut self, chain: &[LineKey], place: Place, groups: usize) -> Vec<usize> {
        let mut way: Vec<usize> = Vec::with_capacity(chain.len());
        for key in chain {
            let next = self.nodes.len();
            let around = way.last().and_then(|around| self.nodes.get_mut(*around));
            let lines = around.map_or(&mut self.outermost, |around| &mut around.inlined);
            let number = *lines.entry(key.clone()).or_insert(next);
            if number == next {
                self.nodes.push(Node {
                    first: place,
                    spent: vec![Spent::default(); groups],
                    is_own: false,
                    has_plain: false,
                    callees: Callees::new(),
                    inlined: BTreeMap::new(),
                });
            }
            way.push(number);
        }
        way
    }

    /// Of straight code that is on more than one line each line has a share.
    fn add_estimates(&mut self, listing: &Listing, ways: &[Vec<usize>]) {
        for straight in &listing.straight {
            let parts = straight.instructions.len();
            let mut met: BTreeMap<usize, (usize, u64)> = BTreeMap::new();
            for (number, instruction) in straight.instructions.iter().enumerate() {
                let own_ns = share(&straight.time, number, parts).own_ns;
                for node in ways.get(*instruction).into_iter().flatten() {
                    let (instructions, sum_ns) = met.entry(*node).or_default();
                    *instructions += 1;
                    *sum_ns = sum_ns.saturating_add(own_ns);
                }
            }
            for (node, (_, own_ns)) in met.into_iter().filter(|(_, (instructions, _))| *instructions < parts)
            {
                let node = self.nodes.get_mut(node);
                if let Some(spent) = node.and_then(|node| node.spent.get_mut(straight.group)) {
                    spent.estimated_ns = spent.estimated_ns.saturating_add(own_ns);
                }
            }
        }
    }

    fn finish(&mut self, numbers: BTreeMap<LineKey, usize>) -> Vec<Line> {
        let mut lines = Vec::with_capacity(numbers.len());
        for (key, number) in numbers {
            let Some(node) = self.nodes.get_mut(number) else { continue };
            let (first, is_own, has_plain) = (node.first, node.is_own, node.has_plain);
            let mut spent = std::mem::take(&mut node.spent);
            let callees = std::mem::take(&mut node.callees);
            let inlined = std::mem::take(&mut node.inlined);
            let inlined = self.finish(inlined);
            if !has_plain {
                for (group, sum) in spent.iter_mut().enumerate() {
                    let of_inlined = inlined.iter().filter_map(|line| line.spent.get(group));
                    sum.executions = of_inlined.map(|spent| spent.executions).max().unwrap_or(0);
                }
            }
            lines.push(Line { key, first, spent, is_own, callees, inlined });
        }
        lines
    }
}
