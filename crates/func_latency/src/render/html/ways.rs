//! How calls came about and went on, one number each: the functions around them, which way they went, what
//! they waited for.

use std::collections::BTreeSet;
use std::io;

use analyzer::modes::Modes;
use analyzer::{FunctionReport, RowReasons};
use model::{FunctionId, Tid};
use serde::Serialize;

use super::columns::ByteColumns;
use crate::inside::{Inside, Way};
use crate::printable::printable;
use crate::render::names::reason_name;
use crate::render::{Names, View, modes};

/// Ways that a page tells apart; the others are one.
const WAYS_MAX: usize = 100;

/// What the numbers in the columns mean.
#[derive(Serialize)]
pub(super) struct Ways {
    /// In words, the most frequent first.  Number 0 is not known, 1 is another one, 2 is the first of these.
    ways: Vec<String>,
    /// Number 0 is not known, 1 is the first of these.
    chains: Vec<ChainCell>,
    /// Of the threads, in their order; empty where it is not known.
    thread_names: Vec<String>,
    /// What calls waited for off the CPU.
    reasons: Vec<String>,
    /// Calls were seen from inside: ways and chains are known.
    known: bool,
}

#[derive(Serialize)]
struct ChainCell {
    /// The number of the chain that is nearer to the call.
    nearer: usize,
    name: String,
}

/// The tables and the columns of a function.
pub(super) fn pack(
    view: &View<'_>,
    function: &FunctionReport,
    inside: Option<&Inside>,
) -> io::Result<(Ways, String)> {
    let names = view.names;
    let rows = 0..function.rows.len();
    let mut columns = ByteColumns::new();
    columns.put(rows.clone().map(|row| inside.map_or(0, |inside| number(inside.way(row)))))?;
    columns.put(rows.map(|row| inside.map_or(0, |inside| inside.chain(row) as u64)))?;
    put_reasons(&mut columns, &function.row_details.reasons, function.rows.len())?;
    let chains = inside.map_or(&[][..], |inside| inside.chains.all());
    let ways = Ways {
        ways: inside.map_or_else(Vec::new, |inside| named_ways(view, function.id, &inside.modes)),
        chains: chains
            .iter()
            .map(|c| ChainCell { nearer: c.nearer, name: around(names, c.function) })
            .collect(),
        thread_names: thread_names(function, inside),
        reasons: function.row_details.reasons.reasons.iter().map(reason_name).collect(),
        known: inside.is_some(),
    };
    Ok((ways, columns.finish()?))
}

fn number(way: Way) -> u64 {
    match way {
        Way::NotKnown => 0,
        Way::Mode(index) if index < WAYS_MAX => index as u64 + 2,
        Way::Other | Way::Mode(_) => 1,
    }
}

/// How many each call has, then which, then how long.
fn put_reasons(columns: &mut ByteColumns, reasons: &RowReasons, rows: usize) -> io::Result<()> {
    columns.put((0..rows).map(|row| reasons.of(row).len() as u64))?;
    columns.put((0..rows).flat_map(|row| reasons.of(row)).map(|reason| u64::from(reason.reason)))?;
    columns.put((0..rows).flat_map(|row| reasons.of(row)).map(|reason| reason.split.total_ns()))
}

fn thread_names(function: &FunctionReport, inside: Option<&Inside>) -> Vec<String> {
    let tids: BTreeSet<Tid> = function.rows.iter().map(|row| row.id.tid).collect();
    let name = |tid: &Tid| inside.and_then(|inside| inside.thread_names.get(tid));
    tids.iter().map(|tid| name(tid).map(|name| printable(name)).unwrap_or_default()).collect()
}

fn named_ways(view: &View<'_>, function: FunctionId, all: &Modes) -> Vec<String> {
    let view = modes::ModesView { names: view.names, input: view.input, function, modes: all };
    all.modes.iter().take(WAYS_MAX).enumerate().map(|(index, mode)| view.label(index, mode)).collect()
}

fn around(names: &dyn Names, function: FunctionId) -> String {
    if function == FunctionId::UNKNOWN { "[signal]".to_owned() } else { names.function(function) }
}
