//! The trees of a page: the nodes of all of them, column by column.

use std::io;

use analyzer::{ChildKey, Status};
use serde::Serialize;

use super::calls::{Child, Numbers};
use super::columns::Columns;
use crate::inside::{Inside, PrunedNode, PrunedTree, What};
use crate::render::View;

/// How many trees there are, and what the numbers of their nodes mean.
#[derive(Serialize)]
pub(super) struct Trees {
    trees: usize,
    /// What nodes are.  Number 0 is what was left out, 1 is the first of these.
    callees: Vec<Child>,
}

/// The table and the columns of a function; `None`: calls were not seen from inside.
pub(super) fn pack(view: &View<'_>, inside: Option<&Inside>) -> io::Result<(Option<Trees>, String)> {
    let Some(inside) = inside else { return Ok((None, String::new())) };
    let trees = || inside.trees.values();
    let nodes = || trees().flat_map(|tree| &tree.nodes);
    let key = |node: &PrunedNode| match node.what {
        What::Calls(key, _) => Some(key),
        What::More(_) => None,
    };
    let callees: Numbers<ChildKey> = Numbers::of(nodes().filter_map(key));

    let mut columns = Columns::new();
    let rows = inside.trees.keys().map(|row| *row as u64);
    let before = std::iter::once(0).chain(rows.clone());
    columns.put(rows.zip(before).map(|(row, before)| row - before))?;
    columns.put(trees().map(|tree| tree.nodes.len() as u64))?;
    columns.put(nodes().map(|node| node.depth as u64))?;
    columns.put(nodes().map(|node| key(node).map_or(0, |key| callees.number(&key) + 1)))?;
    columns.put(nodes().map(count))?;
    columns.put(nodes().map(|node| node.since_ns))?;
    columns.put(nodes().map(|node| node.total.sum_ns))?;
    columns.put(nodes().map(|node| node.error_ns))?;
    columns.put_known(nodes().map(|node| node.total.off_cpu_ns))?;
    columns.put(nodes().map(has_ended))?;
    put_off_cpu(&mut columns, inside.trees.values())?;
    let callees = callees.keys().map(|key| Child::of(view.names, key)).collect();
    Ok((Some(Trees { trees: inside.trees.len(), callees }), columns.finish()?))
}

/// Calls; of what was left out, nodes.
fn count(node: &PrunedNode) -> u64 {
    match node.what {
        What::Calls(..) => node.total.count,
        What::More(nodes) => nodes as u64,
    }
}

/// As the flags of rows: 0 it has, 1 it was unwound, 2 it was seen running, 3 it went on, 4 it was cut.
fn has_ended(node: &PrunedNode) -> u64 {
    match node.what {
        What::Calls(_, status) => super::calls::status_number(status),
        What::More(_) => super::calls::status_number(Status::Complete),
    }
}

/// How many times each call was off the CPU, when and how long (the lowest bit: the CPU was taken away), and
/// the rest.
fn put_off_cpu<'t>(
    columns: &mut Columns,
    trees: impl Iterator<Item = &'t PrunedTree> + Clone,
) -> io::Result<()> {
    let spans = || trees.clone().flat_map(|tree| &tree.off_cpu.longest);
    columns.put(trees.clone().map(|tree| tree.off_cpu.longest.len() as u64))?;
    columns.put(spans().map(|(since_ns, ..)| *since_ns))?;
    columns.put(spans().map(|(_, ns, is_preempted)| ns << 1 | u64::from(*is_preempted)))?;
    columns.put(trees.clone().map(|tree| tree.off_cpu.more as u64))?;
    columns.put(trees.map(|tree| tree.off_cpu.more_ns))
}
