//! A ledger for people.

use std::io::{self, Write};

use analyzer::ledger::{Difference, End, LeftOut, Row, Spent};

use super::{Cause, LedgerView, ROWS, difference, each, mean_within, split};
use crate::render::table::{Align, Table, bar};
use crate::render::units::{counted, grouped, signed_percent_within};

const BAR: usize = 20;

/// Titles of the columns that say how often a call of each group called something.
#[derive(Clone, Copy, Debug)]
pub struct Titles {
    /// Of the calls that are asked about.
    pub these: &'static str,
    /// Of those that they are compared with.
    pub base: &'static str,
}

/// What is different, and where, in a sentence; and how much of the difference that is.
#[must_use]
pub fn cause(view: &LedgerView) -> Option<(String, String)> {
    let Cause { row, descent, callees, .. } = view.cause.as_ref()?;
    let row = view.comparison.rows.get(*row)?;
    let (last, callee) = (descent.levels.last()?, callees.last()?);
    let name = &callee.name;
    let at = match callee.place() {
        "" => String::new(),
        place => format!(", called at {place},"),
    };
    let per_call = |row: &Row| {
        let (calls, sums_ns, errors_ns) = (view.comparison.calls, row.sums_ns, row.errors_ns);
        let these = mean_within(sums_ns.0, errors_ns.0, calls.0);
        format!("{these} a call instead of {}", mean_within(sums_ns.1, errors_ns.1, calls.1))
    };
    let often = |counts: (u64, u64)| {
        let (these, base) = view.per_call(counts);
        let s = if these == 1.0 { "" } else { "s" };
        format!("{} time{s} a call instead of {}", times(these), times(base))
    };
    let longer = if row.difference.ns < 0 { "less time" } else { "longer" };
    let what = match (row.spent, descent.end) {
        (Spent::Running, End::MoreOften) => format!("{name}{at} is called {}", often(last.counts)),
        (Spent::Running, End::Several) => format!("several callees of {name}{at} take {longer}"),
        (Spent::Running, End::Own) if last.path == 0 => {
            format!("{name}'s own code takes {}", per_call(row))
        }
        (Spent::Running, End::Own) => match each(last) {
            (Some(these), Some(base)) => {
                format!("{name}{at} takes {longer} itself: {these} each instead of {base}")
            }
            _ => format!("{name}{at} takes {longer} itself"),
        },
        (Spent::Kernel, End::MoreOften) => {
            format!("system calls take {}, most in {name}{at} {}", per_call(row), often(last.counts))
        }
        (Spent::Kernel, _) if last.path == 0 => format!("system calls take {}", per_call(row)),
        (Spent::Kernel, _) => format!("system calls take {}, most in {name}", per_call(row)),
        (Spent::Interrupts, _) => format!("interrupts and faults take {}", per_call(row)),
        (spent, _) => {
            let chain: Vec<&str> = callees.iter().map(|callee| callee.name.as_str()).collect();
            format!("{} for {}, most in {}", spent.name(), per_call(row), chain.join(" > "))
        }
    };
    let of = format!("{} of {} ns", difference(row.difference), difference(view.comparison.difference));
    Some((what, of))
}

/// All rows, and below them the way down to the cause.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, view: &LedgerView, titles: Titles, width: usize) -> io::Result<()> {
    rows(out, view, width)?;
    split::write(out, view, width)?;
    match &view.cause {
        Some(cause) => way(out, view, cause, titles, width),
        None => Ok(()),
    }
}

fn rows(out: &mut dyn Write, view: &LedgerView, width: usize) -> io::Result<()> {
    writeln!(out, "\n{}", "-".repeat(width))?;
    let mut table = Table::new(&[
        ("where", Align::Left),
        ("ns", Align::Right),
        ("share %", Align::Right),
        ("of the difference", Align::Bar),
        ("called more often", Align::Right),
        ("each longer", Align::Right),
        ("variance %", Align::Right),
        ("line", Align::Left),
    ]);
    let Difference { ns: whole, error_ns } = view.comparison.difference;
    // Of a difference that may be none there are no shares.
    let is_known = error_ns < whole.unsigned_abs();
    let share = |part: Difference| {
        let percent = 100.0 / whole as f64;
        match is_known {
            false => "-".to_owned(),
            true => signed_percent_within(part.ns as f64 * percent, part.error_ns as f64 * percent.abs()),
        }
    };
    let listed = listed(&view.comparison.rows);
    let (mut others, mut of_others) = (0, Difference::default());
    for ((row, callee), is_listed) in view.comparison.rows.iter().zip(&view.callees).zip(listed) {
        if !is_listed {
            others += 1;
            of_others.ns = of_others.ns.saturating_add(row.difference.ns);
            of_others.error_ns = of_others.error_ns.saturating_add(row.difference.error_ns);
            continue;
        }
        let dash = || "-".to_owned();
        let runs_along = is_known && row.difference.ns.signum() == whole.signum();
        let part = if runs_along { row.difference.ns.unsigned_abs() } else { 0 };
        table.row(vec![
            callee.name.clone(),
            difference(row.difference),
            share(row.difference),
            bar(part, whole.unsigned_abs(), BAR),
            row.more_often.map_or_else(dash, difference),
            row.each_longer.map_or_else(dash, difference),
            row.variance_share.map_or_else(dash, percent),
            callee.short_place(),
        ]);
    }
    if others > 0 {
        let name = format!("[{}]", counted(others, "other row"));
        table.row(filled(vec![name, difference(of_others), share(of_others)]));
    }
    let name = "[difference]".to_owned();
    let all = if is_known { "100.0" } else { "-" };
    table.row(filled(vec![name, difference(view.comparison.difference), all.to_owned()]));
    table.write(out, width)
}

/// A row of the table of rows, with its last cells empty.
fn filled(mut cells: Vec<String>) -> Vec<String> {
    cells.resize_with(8, String::new);
    cells
}

/// Which rows are listed one by one.
fn listed(rows: &[Row]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let size = |at: usize| rows.get(at).map_or(0, |row| row.difference.ns.unsigned_abs());
    order.sort_by_key(|at| std::cmp::Reverse(size(*at)));
    let mut listed = vec![false; rows.len()];
    for at in order.into_iter().take(ROWS) {
        if let Some(is_listed) = listed.get_mut(at) {
            *is_listed = true;
        }
    }
    listed
}

fn way(
    out: &mut dyn Write,
    view: &LedgerView,
    cause: &Cause,
    titles: Titles,
    width: usize,
) -> io::Result<()> {
    let Cause { row, descent, callees, .. } = cause;
    if descent.levels.len() < 2 {
        return Ok(());
    }
    let name = view.callees.get(*row).map_or("", |callee| callee.name.as_str());
    writeln!(out, "\n{}\nDown the heaviest path of {name}", "-".repeat(width))?;
    let spent = view.comparison.rows.get(*row).map_or(Spent::Running, |row: &Row| row.spent);
    if spent != Spent::Running {
        writeln!(out, "(only time that is of that kind: {})", spent.name())?;
    }
    let mut table = Table::new(&[
        ("callee", Align::Left),
        ("ns", Align::Right),
        ("called more often", Align::Right),
        ("each longer", Align::Right),
        (titles.these, Align::Right),
        ("each", Align::Right),
        (titles.base, Align::Right),
        ("each", Align::Right),
        ("line", Align::Left),
    ]);
    for (depth, (level, callee)) in descent.levels.iter().zip(callees).enumerate() {
        let (these, base) = view.per_call(level.counts);
        let (these_each, base_each) = each(level);
        let dash = || "-".to_owned();
        table.row(vec![
            format!("{}{}", "  ".repeat(depth), callee.name),
            difference(level.difference),
            difference(level.more_often),
            difference(level.each_longer),
            times(these),
            these_each.unwrap_or_else(dash),
            times(base),
            base_each.unwrap_or_else(dash),
            callee.short_place(),
        ]);
    }
    table.write(out, width)
}

/// Calls that are not compared, if there are any: `1 open at end, 2 cut`.
#[must_use]
pub fn left_out(left_out: &LeftOut) -> Option<String> {
    let LeftOut { open_start, open_end, cut, nested } = *left_out;
    let counts = [
        (open_start, "open at start"),
        (open_end, "open at end"),
        (cut, "cut"),
        (nested, "too deep inside of others"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let list: Vec<String> = counts.map(|(count, what)| format!("{} {what}", grouped(*count))).collect();
    (!list.is_empty()).then(|| list.join(", "))
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// How often, on average: `1`, `0.04`, `30`.
fn times(mean: f64) -> String {
    if mean == mean.trunc() { format!("{mean:.0}") } else { format!("{mean:.2}") }
}
