//! The trees of a page: the nodes of all of them, column by column.

use std::io;

use analyzer::{ChildKey, Reason, Status, Wait, Waker};
use serde::Serialize;

use super::calls::{Child, NumberTable};
use super::columns::ByteColumns;
use crate::inside::{Inside, PrunedNode, PrunedTree, What};
use crate::printable::printable;
use crate::render::View;
use crate::render::names::{reason_name, waker_name};

/// How many trees there are, and what the numbers of their nodes mean.
#[derive(Serialize)]
pub(super) struct Trees {
    trees: usize,
    /// What nodes are.  Number 0 is what was left out, 1 is the first of these.
    callees: Vec<Child>,
    /// What the calls waited for off the CPU.
    reasons: Vec<String>,
    /// Their wakers.  Number 0 is not known, 1 is the first of these.
    wakers: Vec<String>,
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
    let callees: NumberTable<ChildKey> = NumberTable::of(nodes().filter_map(key));

    let mut columns = ByteColumns::new();
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
    let (reasons, wakers) = put_waits(&mut columns, inside.trees.values())?;
    let callees = callees.keys().map(|key| Child::of(view.names, key)).collect();
    Ok((Some(Trees { trees: inside.trees.len(), callees, reasons, wakers }), columns.finish()?))
}

/// The number of calls; of a node for nodes left out, of those nodes.
fn count(node: &PrunedNode) -> u64 {
    match node.what {
        What::Calls(..) => node.total.count,
        What::More(nodes) => nodes as u64,
    }
}

/// How the call ended, numbered as in the flags of rows: 0 it has ended, 1 it was unwound, 2 it was seen
/// running, 3 it went on, 4 it was cut.
fn has_ended(node: &PrunedNode) -> u64 {
    match node.what {
        What::Calls(_, status) => super::calls::status_number(status),
        What::More(_) => super::calls::status_number(Status::Complete),
    }
}

/// Columns: how many waits of each call are known one by one, when each was, how long (the lowest bit: the
/// CPU was taken away), for what, and the waker; then the number and time of the others. Returns the reasons
/// and the wakers.
fn put_waits<'t>(
    columns: &mut ByteColumns,
    trees: impl Iterator<Item = &'t PrunedTree> + Clone,
) -> io::Result<(Vec<String>, Vec<String>)> {
    let waits = || trees.clone().flat_map(|tree| &tree.waits.longest);
    let reasons: NumberTable<&Reason> = NumberTable::of(waits().map(|wait| &wait.reason));
    let wakers: NumberTable<&Waker> = NumberTable::of(waits().filter_map(|wait| wait.waker.as_ref()));
    let since =
        |tree: &'t PrunedTree| tree.waits.longest.iter().map(move |wait: &Wait| wait.from.since(tree.begin));
    let ns = |wait: &Wait| wait.to.since(wait.from) << 1 | u64::from(wait.is_preempted);
    columns.put(trees.clone().map(|tree| tree.waits.longest.len() as u64))?;
    columns.put(trees.clone().flat_map(since))?;
    columns.put(waits().map(ns))?;
    columns.put(waits().map(|wait| reasons.number(&&wait.reason)))?;
    columns.put(waits().map(|wait| wait.waker.as_ref().map_or(0, |waker| wakers.number(&waker) + 1)))?;
    columns.put(trees.clone().map(|tree| tree.waits.more as u64))?;
    columns.put(trees.map(|tree| tree.waits.more_ns))?;
    let reasons = reasons.keys().map(|reason| printable(&reason_name(reason))).collect();
    Ok((reasons, wakers.keys().map(|waker| printable(&waker_name(waker))).collect()))
}
