//! One function of a trace without times: its calls, children and callers, counted.

use std::cmp::Reverse;
use std::io::{self, Write};

use analyzer::{CallCounts, FunctionReport};
use model::NoTimes;

use super::callers::{self, CallerGroup};
use super::children::{self, Folded};
use super::{counters, function, rule};
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
    counters::write(out, view, function, &name, width)?;
    if !function.figures.children.is_empty() {
        rule(out, '-', width)?;
        writeln!(out, "Children of [{name}]")?;
        let mut rows = children::rows(view, &function.figures.children);
        rows.sort_by_key(|row| Reverse(row.count()));
        let whole = rows.iter().map(Folded::count).fold(0, u64::saturating_add);
        let mut titles = children::titles(view);
        titles.push(("count", Align::Right));
        let mut table = Table::new(&titles);
        let (rows, left_out) = view.table_rows.split(&rows, Folded::count, whole);
        for row in rows {
            let mut cells = row.cells(view);
            cells.push(grouped(row.count()));
            table.row_with_notes(cells, &row.notes(view));
        }
        table.write(out, width)?;
        left_out.write(out, "the calls")?;
    }
    if !function.callers.is_empty() {
        rule(out, '-', width)?;
        writeln!(out, "Callers of [{name}]")?;
        let mut groups = callers::groups(&function.callers, view.unfold);
        groups.sort_by_key(|group| Reverse(group.calls()));
        let whole = groups.iter().map(CallerGroup::calls).fold(0, u64::saturating_add);
        let mut table = Table::new(&[("called from", Align::Left), ("count", Align::Right)]);
        let (groups, left_out) = view.table_rows.split(&groups, CallerGroup::calls, whole);
        for group in groups {
            table.row_with_notes(vec![group.title(view), grouped(group.calls())], &group.notes(view));
        }
        table.write(out, width)?;
        left_out.write(out, "the calls")?;
    }
    Ok(())
}
