//! The slowest calls one by one.

use std::io::{self, Write};

use analyzer::{CallRow, FunctionReport};

use crate::render::View;
use crate::render::names::{caller_name, slice_name};
use crate::render::table::{Align, Table};
use crate::render::units::{duration, duration_within, grouped};

/// More are counted only.
const SHOWN: usize = 20;

/// Lists the calls that took `from_ns` or longer, longest first; `begin_ns`: time 0.
pub(super) fn write(
    out: &mut dyn Write,
    view: &View<'_>,
    function: &FunctionReport,
    from_ns: u64,
    begin_ns: u64,
    width: usize,
) -> io::Result<()> {
    let mut slow: Vec<&CallRow> = function.rows.iter().filter(|row| is_outlier(row, from_ns)).collect();
    slow.sort_by_key(|row| std::cmp::Reverse(row.latency_ns)); // stable: then by start
    let cut = if slow.len() > SHOWN {
        format!("; the {SHOWN} longest of {}, --rows has all", grouped(slow.len() as u64))
    } else {
        String::new()
    };
    writeln!(out, "\nCalls from p99.9 ({}) on{cut}", duration(from_ns))?;
    let right = |title| (title, Align::Right);
    let mut titles =
        vec![("called from", Align::Left), right("id"), right("time"), right("thread"), right("latency")];
    if view.report.trace.no_off_cpu.is_none() {
        titles.push(right("off-CPU"));
    }
    if function.sliced.is_some() {
        titles.push(("probed", Align::Left));
    }
    let mut table = Table::new(&titles);
    for row in slow.into_iter().take(SHOWN) {
        let mut cells = vec![
            caller_name(view.names, row.from.caller),
            row.id.to_string(),
            format!("{} ns", grouped(row.start_ns.0.saturating_sub(begin_ns))),
            row.id.tid.0.to_string(),
            duration_within(row.latency_ns, row.error_ns),
        ];
        cells.extend(row.off_cpu_ns.map(duration));
        let began = row.probed().map(|probed| slice_name(probed.began).to_owned());
        cells.extend(began.filter(|_| function.sliced.is_some()));
        table.row(cells);
    }
    table.write(out, width)?;
    if view.is_probed() {
        // Nothing of a call is left but its row.
        return writeln!(
            out,
            "  what each of them waited for, and its children: --html FILE; why they were slow: --explain"
        );
    }
    writeln!(out, "  what is inside of one of them: func_latency show ID -i {} -f FUNC", view.input)
}

/// A call that entered the figures and is among the slowest.
pub(super) fn is_outlier(row: &CallRow, from_ns: u64) -> bool {
    row.end.status.counted() && row.latency_ns >= from_ns
}
