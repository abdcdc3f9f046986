//! One function of a trace without times: its calls, children and callers, counted.

use std::cmp::Reverse;
use std::io::{self, Write};

use analyzer::{CallCounts, FunctionReport};
use model::NoTimes;

use super::{callers, children, function, rule};
use crate::render::View;
use crate::render::table::{Align, Table};
use crate::render::units::grouped;

/// Writes what is known without times.
pub(super) fn write(
    out: &mut dyn Write,
    view: &View<'_>,
    function: &FunctionReport,
    (inlined, why): (u64, NoTimes),
    width: usize,
) -> io::Result<()> {
    let name = function::title(out, "Calls", view, function, width)?;
    if function.calls == CallCounts::default() {
        return function::no_call(out, inlined);
    }
    writeln!(out, "  latency: not known: {why}")?;
    function::counts(out, view, function, inlined)?;
    if !function.children.is_empty() {
        rule(out, '-', width)?;
        writeln!(out, "Children of [{name}]")?;
        let mut rows = children::rows(view, &function.children);
        rows.sort_by_key(|row| Reverse(row.count()));
        let mut titles = children::titles(view);
        titles.push(("count", Align::Right));
        let mut table = Table::new(&titles);
        for row in &rows {
            let mut cells = row.cells(view);
            cells.push(grouped(row.count()));
            table.row(cells);
        }
        table.write(out, width)?;
    }
    if !function.callers.is_empty() {
        rule(out, '-', width)?;
        writeln!(out, "Callers of [{name}]")?;
        let mut groups = callers::groups(&function.callers, view.unfold);
        groups.sort_by_key(|group| Reverse(group.calls()));
        let mut table = Table::new(&[("called from", Align::Left), ("count", Align::Right)]);
        groups.iter().for_each(|group| table.row(vec![group.title(view), grouped(group.calls())]));
        table.write(out, width)?;
    }
    Ok(())
}
