//! A function's own time, from call to call.

use std::io::{self, Write};

use analyzer::OwnCode;

use crate::render::View;
use crate::render::code_blocks::{Block, blocks};
use crate::render::names::file_name;
use crate::render::table::{Align, Table, bar};
use crate::render::units::{duration, grouped, mean_duration, percent, share};

const BAR: usize = 20;

/// Where the rest of the time is, in words.
const UNSEEN: &str = "in code that was not traced or is not known";

pub(super) fn write(out: &mut dyn Write, view: &View<'_>, code: &OwnCode, width: usize) -> io::Result<()> {
    let blocks = blocks(view.names, code);
    if blocks.is_empty() {
        return writeln!(out, "  none is known: {} {UNSEEN}", duration(code.elsewhere.sum_ns));
    }
    let sum_ns = |block: &Block| block.time.total.sum_ns;
    let whole = blocks.iter().map(sum_ns).fold(code.elsewhere.sum_ns, u64::saturating_add);
    let most = blocks.iter().map(sum_ns).max().unwrap_or(0);
    let off_cpu = view.report.trace.no_off_cpu.is_none();
    let mut titles = vec![
        ("block", Align::Left),
        ("average", Align::Right),
        ("+-", Align::Right),
        ("count", Align::Right),
    ];
    if off_cpu {
        titles.push(("off-CPU avg", Align::Right));
    }
    titles.extend([("total", Align::Right), ("share %", Align::Right), ("of the total", Align::Bar)]);
    let mut table = Table::new(&titles);
    let (shown, left_out) = view.table_rows.split(&blocks, sum_ns, whole);
    for block in shown {
        let (total, error_ns) = (block.time.total, block.time.error_ns);
        let count = total.count.max(1) as f64;
        let mut cells = vec![
            block.name(),
            mean_duration(total.sum_ns as f64 / count),
            mean_duration(error_ns as f64 / count),
            grouped(total.count),
        ];
        cells.extend(total.off_cpu_ns.filter(|_| off_cpu).map(|ns| mean_duration(ns as f64 / count)));
        cells.extend([
            duration(total.sum_ns),
            percent(share(total.sum_ns, whole)),
            bar(total.sum_ns, most, BAR),
        ]);
        table.row_with_notes(cells, &[place(view, block)]);
    }
    table.write(out, width)?;
    left_out.write(out, "the time")?;
    if code.elsewhere.sum_ns > 0 {
        writeln!(out, "  and {} {UNSEEN}", duration(code.elsewhere.sum_ns))?;
    }
    Ok(())
}

/// From where to where, by line if lines are asked for.
fn place(view: &View<'_>, block: &Block) -> String {
    let name = |place| {
        let line = view.names.line(place).filter(|_| view.srcline);
        line.map_or_else(|| view.names.site(place), |line| file_name(&line).to_owned())
    };
    let end = block.end.map_or_else(|| "?".to_owned(), name);
    format!("{} to {end}", name(block.start))
}
