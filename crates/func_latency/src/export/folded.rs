//! Folded stacks: `main;f;g 120`, one path of calls and the time that its last function took itself.

use std::collections::BTreeMap;
use std::io::{self, Write};

use analyzer::CallTree;

use super::weight::Weight;
use super::{NodeLabels, STACK_MAX};
use crate::render::Names;

/// The paths by name, and the time in ns; without those that took none.
#[must_use]
pub fn stacks(tree: &CallTree, names: &dyn Names, weight: Weight) -> BTreeMap<String, u64> {
    let mut labels = NodeLabels::of_text(names);
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    let mut path = String::new();
    let mut ends: Vec<usize> = Vec::new(); // of the path's frames
    for step in tree.walk() {
        if step.depth < STACK_MAX {
            ends.truncate(step.depth);
            path.truncate(ends.last().copied().unwrap_or(0));
            if !path.is_empty() {
                path.push(';');
            }
            let number = labels.of(step.node);
            // A semicolon ends a frame.  A line end, which would end the stack, is escaped in the label.
            path.extend(labels.name(number).chars().map(|c| if c == ';' { ':' } else { c }));
            ends.push(path.len());
        }
        if let Some(own_ns @ 1..) = weight.of(&step.own) {
            *stacks.entry(path.clone()).or_default() += own_ns;
        }
    }
    stacks
}

/// Writes them, by name.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, stacks: &BTreeMap<String, u64>) -> io::Result<()> {
    stacks.iter().try_for_each(|(stack, ns)| writeln!(out, "{stack} {ns}"))
}
