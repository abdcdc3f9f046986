//! Where the time of a call went.

use std::collections::BTreeMap;
use std::io::{self, Write};

use analyzer::{ChildKind, ChildRow, Counted, Place, Total};
use model::FunctionId;

use super::counters;
use crate::render::View;
use crate::render::names::child_name;
use crate::render::table::{Align, Table, bar};
use crate::render::units::{
    duration_within, grouped, mean_duration, mean_duration_within, percent_within, share,
};

const BAR: usize = 20;

/// Stands for a time that other rows have.
const AGAIN: &str = "-";

/// Rows of one callee, folded over its sites.
pub(super) struct Folded {
    /// The row of the first site, with the sums of all.
    row: ChildRow,
    sites: Vec<Place>,
}

impl Folded {
    /// How often it was called.
    pub(super) fn count(&self) -> u64 {
        self.row.total.count
    }

    /// The sum of its times.
    pub(super) fn sum_ns(&self) -> u64 {
        self.row.total.sum_ns
    }

    /// The most by which the sum may differ from the true one.
    pub(super) fn error_ns(&self) -> u64 {
        self.row.error_ns
    }

    /// The part of the sum that was off the CPU, if it is known.
    pub(super) fn off_cpu_ns(&self) -> Option<u64> {
        self.row.total.off_cpu_ns
    }

    pub(super) fn kind(&self) -> ChildKind {
        self.row.kind
    }

    pub(super) fn name(&self, view: &View<'_>) -> String {
        shown_name(view, &self.row)
    }

    /// The cells below [`titles`].
    pub(super) fn cells(&self, view: &View<'_>) -> Vec<String> {
        let mut cells = vec![self.name(view)];
        if has_site_column(view) {
            cells.push(self.row.site.map(|site| view.names.site(site)).unwrap_or_default());
        }
        cells
    }

    /// Source lines, which stand below the row, with the site if each has a row.
    pub(super) fn notes(&self, view: &View<'_>) -> Vec<String> {
        let Some(first) = self.sites.first().filter(|_| view.srcline) else { return Vec::new() };
        let site = view.unfold.then(|| view.names.site(*first));
        let line = line(view, *first, self.sites.len() - 1);
        let parts: Vec<String> = [site, line].into_iter().flatten().collect();
        if parts.is_empty() { parts } else { vec![parts.join(" ")] }
    }
}

/// One row for each callee, or for each of its sites.
pub(super) fn rows(view: &View<'_>, children: &[ChildRow]) -> Vec<Folded> {
    if view.unfold { single(children) } else { folded(children.iter()) }
}

/// Titles of the columns that say which child a row is of.
pub(super) fn titles(view: &View<'_>) -> Vec<(&'static str, Align)> {
    let mut titles = vec![("name", Align::Left)];
    if has_site_column(view) {
        titles.push(("site", Align::Left));
    }
    titles
}

/// The site stands below the row, if its line does.
fn has_site_column(view: &View<'_>) -> bool {
    view.unfold && !view.srcline
}

/// `once_ns`: what the rows add up to without recursion, of which each has its part once; then the row of
/// recursion has none.
pub(super) fn write(
    out: &mut dyn Write,
    view: &View<'_>,
    children: &[ChildRow],
    once_ns: Option<u64>,
    width: usize,
) -> io::Result<()> {
    let rows = rows(view, children);
    let off_cpu = view.report.trace.no_off_cpu.is_none();
    let again = |folded: &Folded| once_ns.is_some() && folded.kind() == ChildKind::Recursion;
    let all = rows.iter().map(Folded::sum_ns).fold(0, u64::saturating_add);
    let whole = once_ns.unwrap_or(all);
    let most = rows.iter().filter(|row| !again(row)).map(Folded::sum_ns).max().unwrap_or(0);
    let mut titles = titles(view);
    titles.extend([("average", Align::Right), ("count", Align::Right)]);
    if off_cpu {
        titles.extend([("off-CPU avg", Align::Right), ("CPU %", Align::Right)]);
    }
    let of_kernel = |folded: &Folded| folded.row.counted.is_some_and(|counted| counted.is_of_kernel());
    let of_kernel = rows.iter().any(|row| row.kind() == ChildKind::Own && of_kernel(row));
    if rows.iter().any(|folded| folded.row.counted.is_some()) {
        titles.extend(counters::titles(of_kernel));
    }
    titles.extend([("total", Align::Right), ("share %", Align::Right), ("of the total", Align::Bar)]);
    let mut table = Table::new(&titles);
    let (rows, left_out) = view.table_rows.split(&rows, Folded::sum_ns, all);
    for folded in rows {
        let (row, total) = (&folded.row, folded.row.total);
        let mut cells = folded.cells(view);
        let cpu_error = |cpu_percent: f64| cpu_percent * row.error_ns as f64 / total.sum_ns.max(1) as f64;
        cells.extend([average(row), grouped(total.count)]);
        cells.extend(total.off_cpu_ns.map(|off_cpu_ns| mean(off_cpu_ns, total.count)));
        cells.extend(row.cpu_percent.map(|cpu_percent| match again(folded) {
            true => AGAIN.to_owned(),
            false => percent_within(cpu_percent, cpu_error(cpu_percent)),
        }));
        cells.extend(row.counted.iter().flat_map(|counted| counters::cells(counted, total.count, of_kernel)));
        cells.extend(match again(folded) {
            true => [AGAIN.to_owned(), AGAIN.to_owned(), String::new()],
            false => [
                duration_within(total.sum_ns, row.error_ns),
                percent_within(share(total.sum_ns, whole), share(row.error_ns, whole)),
                bar(total.sum_ns, most, BAR),
            ],
        });
        table.row_with_notes(cells, &folded.notes(view));
    }
    table.write(out, width)?;
    left_out.write(out, "the time")
}

fn average(row: &ChildRow) -> String {
    let Total { count, sum_ns, .. } = row.total;
    match count {
        0 => "-".to_owned(),
        _ => mean_duration_within(sum_ns as f64 / count as f64, row.error_ns as f64 / count as f64),
    }
}

fn mean(sum: u64, count: u64) -> String {
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

/// The line of a row's first site, if it is known, and the number of its other sites.
pub(super) fn line(view: &View<'_>, first: Place, others: usize) -> Option<String> {
    let line = view.names.line(first)?;
    Some(if others == 0 { line } else { format!("{line} +{others}") })
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
            row: ChildRow {
                total: Total::default(),
                error_ns: 0,
                cpu_percent: Some(0.0),
                counted: Some(Counted::default()),
                ..*child
            },
            sites: Vec::new(),
        });
        folded.row.total.add(child.total);
        folded.row.error_ns = folded.row.error_ns.saturating_add(child.error_ns);
        let cpu_percent = folded.row.cpu_percent.zip(child.cpu_percent);
        folded.row.cpu_percent = cpu_percent.map(|(sum, more)| sum + more);
        folded.row.counted = folded.row.counted.zip(child.counted).map(|(mut sum, more)| {
            sum.add(&more);
            sum
        });
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
