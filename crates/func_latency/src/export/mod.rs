//! Calls for other tools, from exact times.
//!
//! ```text
//!   folded, flamegraph, pprof   the paths of all calls, with their own time        analyzer::Paths
//!   firefox, perfetto           every call on the line of time, by thread          its tree, as it ends
//! ```
//! Of the wanted functions' calls, those that count in the report and are in no other call of the same
//! function: what the exports show adds up to the report's total of them. Of a function that has none, the
//! observed part of its open calls, and it says so ([`observed_part`]). (Perfetto shows all calls, whole or
//! not.) The line of time has no calls that are too short to be seen on it ([`bounds`]).

pub mod bounds;
pub mod firefox;
pub mod flamegraph;
pub mod folded;
pub mod graph;
mod markers;
pub mod perfetto;
pub mod pprof;
mod spool;
pub mod weight;

use std::collections::HashMap;

use analyzer::{FoundPaths, Node};
use model::FunctionId;

use crate::messages::list;
use crate::printable::printable;
use crate::render::Names;
use crate::render::names::callee_name;

/// Frames of a stack, where each stack is written whole: with many deep ones that would be far more than
/// there is to say. What is deeper counts to the last frame.
pub(crate) const STACK_MAX: usize = 1 << 10;

/// A note on functions with paths that are not of whole calls; `None`: there are none.
#[must_use]
pub fn observed_part(found: &FoundPaths, names: &dyn Names) -> Option<String> {
    let open: Vec<String> = found.open.iter().map(|function| names.function(*function)).collect();
    (!open.is_empty()).then(|| of_open_calls(&open))
}

/// What is said of functions without a whole call.
pub(crate) fn of_open_calls(functions: &[String]) -> String {
    let functions = list(functions);
    format!(
        "no call of {functions} was seen from entry to end: this is the observed part of calls that were open"
    )
}

/// What nodes are called, and a number for each name: by first use, from 0.
pub(crate) struct NodeLabels<'a> {
    names: &'a dyn Names,
    /// Names are escaped: the format quotes nothing.
    is_text: bool,
    numbers: HashMap<String, usize>,
    labels: Vec<(String, FunctionId)>,
}

impl<'a> NodeLabels<'a> {
    /// Of a format that quotes them by its own rules.
    pub(crate) fn new(names: &'a dyn Names) -> Self {
        Self { names, is_text: false, numbers: HashMap::new(), labels: Vec::new() }
    }

    /// Of text.
    pub(crate) fn of_text(names: &'a dyn Names) -> Self {
        Self { is_text: true, ..Self::new(names) }
    }

    /// The number of a node's name.
    pub(crate) fn of(&mut self, node: &Node) -> usize {
        let name = callee_name(self.names, node.kind, node.function);
        let label = if self.is_text { printable(&name) } else { name };
        let Self { numbers, labels, .. } = self;
        *numbers.entry(label).or_insert_with_key(|label| {
            labels.push((label.clone(), node.function));
            labels.len() - 1
        })
    }

    /// All names in the order of their numbers, and the functions that they are of.
    pub(crate) fn all(&self) -> &[(String, FunctionId)] {
        &self.labels
    }

    pub(crate) fn name(&self, number: usize) -> &str {
        self.labels.get(number).map_or("", |(name, _)| name)
    }
}
