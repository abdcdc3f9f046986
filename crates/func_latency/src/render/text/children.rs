//! Where the time of a call went.

use std::collections::BTreeMap;
use std::io::{self, Write};

use analyzer::{ChildKind, ChildRow, Place, Total};
use model::FunctionId;

use crate::render::View;
use crate::render::names::child_name;
use crate::render::table::{Align, Table, bar};
use crate::render::units::{duration, grouped, mean_duration, percent, share};

const BAR: usize = 20;

/// Rows of one callee, folded over its sites.
struct Folded {
    /// The row of the first site, with the sums of all.
    row: ChildRow,
    sites: Vec<Place>,
}

pub(super) fn write(
    out: &mut dyn Write,
    view: &View<'_>,
    children: &[ChildRow],
    width: usize,
) -> io::Result<()> {
    let rows = if view.unfold { single(children) } else { folded(children.iter()) };
    let off_cpu = view.report.trace.off_cpu_known;
    let whole = rows.iter().fold(0_u64, |sum, f| sum.saturating_add(f.row.total.sum_ns));
    let most = rows.iter().map(|f| f.row.total.sum_ns).max().unwrap_or(0);
    let mut titles = vec![("name", Align::Left)];
    if view.unfold {
        titles.push(("site", Align::Left));
    }
    if view.srcline {
        titles.push(("line", Align::Left));
    }
    titles.extend([("average", Align::Right), ("count", Align::Right)]);
    if off_cpu {
        titles.push(("off-CPU avg", Align::Right));
    }
    titles.extend([
        ("CPU %", Align::Right),
        ("total", Align::Right),
        ("share %", Align::Right),
        ("of the total", Align::Left),
    ]);
    let mut table = Table::new(&titles);
    for Folded { row, sites } in &rows {
        let total = row.total;
        let mut cells = vec![shown_name(view, row)];
        if view.unfold {
            cells.push(row.site.map(|site| view.names.site(site)).unwrap_or_default());
        }
        if view.srcline {
            cells.push(lines(view, sites));
        }
        cells.extend([average(total.sum_ns, total.count), grouped(total.count)]);
        if off_cpu {
            cells.push(average(total.off_cpu_ns, total.count));
        }
        cells.extend([
            percent(row.cpu_percent),
            duration(total.sum_ns),
            percent(share(total.sum_ns, whole)),
            bar(total.sum_ns, most, BAR),
        ]);
        table.row(cells);
    }
    table.write(out, width)
}

fn average(sum: u64, count: u64) -> String {
    if count == 0 { "-".to_owned() } else { mean_duration(sum as f64 / count as f64) }
}

fn shown_name(view: &View<'_>, row: &ChildRow) -> String {
    let name = child_name(view.names, row);
    match row.kind {
        ChildKind::Tail => format!("{name} (tail call)"),
        ChildKind::Recursion => format!("{name} (recursion)"),
        ChildKind::Signal if row.function != FunctionId::UNKNOWN => format!("{name} (signal)"),
        _ => name,
    }
}

/// The first site's line, and how many more there are.
fn lines(view: &View<'_>, sites: &[Place]) -> String {
    let Some(first) = sites.first() else { return String::new() };
    let line = view.names.line(*first).unwrap_or_else(|| "??".to_owned());
    match sites.len() - 1 {
        0 => line,
        more => format!("{line} +{more}"),
    }
}

fn single(children: &[ChildRow]) -> Vec<Folded> {
    children.iter().map(|row| Folded { row: *row, sites: row.site.into_iter().collect() }).collect()
}

/// One row for each callee, longest first.
fn folded<'a>(children: impl Iterator<Item = &'a ChildRow>) -> Vec<Folded> {
    let mut by_callee: BTreeMap<(ChildKind, FunctionId), Folded> = BTreeMap::new();
    for child in children {
        let entry = by_callee.entry((child.kind, child.function));
        let folded = entry.or_insert_with(|| Folded {
            row: ChildRow { total: Total::default(), cpu_percent: 0.0, ..*child },
            sites: Vec::new(),
        });
        folded.row.total = plus(folded.row.total, child.total);
        folded.row.cpu_percent += child.cpu_percent;
        folded.sites.extend(child.site);
    }
    let mut rows: Vec<Folded> = by_callee.into_values().collect();
    for row in &mut rows {
        row.sites.sort_unstable();
        row.sites.dedup();
    }
    rows.sort_by_key(|f| std::cmp::Reverse(f.row.total.sum_ns)); // stable: ties by kind and function
    rows
}

fn plus(a: Total, b: Total) -> Total {
    Total {
        count: a.count.saturating_add(b.count),
        sum_ns: a.sum_ns.saturating_add(b.sum_ns),
        off_cpu_ns: a.off_cpu_ns.saturating_add(b.off_cpu_ns),
    }
}
