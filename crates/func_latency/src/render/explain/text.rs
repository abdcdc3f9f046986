//! The explanation for people.

use std::io::{self, Write};

use analyzer::branch_path::Trips;
use analyzer::ledger::{Descent, End, Level, Row, Spent, Typical};

use super::{Branches, Explanation};
use crate::render::names::file_name;
use crate::render::table::{Align, Table, bar};
use crate::render::units::{counted, grouped, mean_duration};

const BAR: usize = 20;
/// Ids of slow calls that are listed.
const IDS: usize = 8;
/// Loops that are listed.
const LOOPS: usize = 8;

/// Writes the explanation into lines of about `width` columns; no name is cut for it.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, explanation: &Explanation<'_>, width: usize) -> io::Result<()> {
    let width = width.clamp(80, 200);
    head(out, explanation)?;
    if let Some((row, descent)) = explanation.cause() {
        verdict(out, explanation, row, &descent)?;
        rows(out, explanation, width)?;
        way(out, explanation, row, &descent, width)?;
    }
    match &explanation.parting {
        Some(branches) => parting(out, explanation, branches, width),
        None => Ok(()),
    }
}

fn head(out: &mut dyn Write, explanation: &Explanation<'_>) -> io::Result<()> {
    let Explanation { names, groups, comparison, .. } = explanation;
    let name = names.function(explanation.function);
    let object = names.object_of(explanation.function);
    let object = object.map(|path| format!(" ({})", file_name(&path))).unwrap_or_default();
    writeln!(out, "{}: slow calls of [{name}]{object}\n", explanation.input)?;
    let (slow, typical) = comparison.calls;
    let of = match groups.whose {
        Typical::SameCallers => "of the same callers",
        Typical::AllCallers => "of all callers",
    };
    let mean = |sum: u64, calls: u64| mean_duration(sum as f64 / calls as f64);
    let (slow_mean, typical_mean) = (mean(comparison.sums_ns.0, slow), mean(comparison.sums_ns.1, typical));
    let (slow, typical) = (counted(slow, "slow call"), counted(typical, "typical one"));
    writeln!(out, "  {slow} ({}), mean {slow_mean}", explanation.asked)?;
    writeln!(out, "  {typical} ({of}, among the half nearest to their median), mean {typical_mean}")?;
    writeln!(out, "  difference of the means: {} ns", signed(comparison.difference_ns))?;
    let ids: Vec<String> = groups.slow.iter().take(IDS).map(|row| row.id.to_string()).collect();
    let more = if groups.slow.len() > IDS { ", ..." } else { "" };
    writeln!(out, "  slowest: {}{more}", ids.join(", "))?;
    let left = groups.left_out;
    if left.open_start + left.open_end + left.cut > 0 {
        writeln!(
            out,
            "  not compared: {} open at start, {} open at end, {} cut",
            grouped(left.open_start),
            grouped(left.open_end),
            grouped(left.cut)
        )?;
    }
    Ok(())
}

/// The answer in a sentence or two.
fn verdict(
    out: &mut dyn Write,
    explanation: &Explanation<'_>,
    row: &Row,
    descent: &Descent,
) -> io::Result<()> {
    let outlying = explanation.groups.outlying;
    let reach = format!(
        "{} above their callers' median, where {} spread like the other {} reach {}",
        mean_duration(outlying.above_ns.max(0.0)),
        if explanation.comparison.calls.0 == 1 { "a call" } else { "calls" },
        grouped(outlying.others),
        mean_duration(outlying.reach_ns)
    );
    if !outlying.is_so() {
        writeln!(out, "\nNo cause: the slow calls are no outliers ({reach}).")?;
        return writeln!(out, "The rows say where they differ from typical ones, which may be chance.");
    }
    let what = cause(explanation, row, descent);
    writeln!(out, "\nCause: {what}")?;
    writeln!(
        out,
        "  {} of {} ns; the slow calls are outliers ({reach})",
        signed(row.difference_ns),
        signed(explanation.comparison.difference_ns)
    )
}

/// What is different, where.
fn cause(explanation: &Explanation<'_>, row: &Row, descent: &Descent) -> String {
    let Some(last) = descent.levels.last() else { return String::new() };
    let name = explanation.path_name(last.path);
    let (site, line) = explanation.place(last.path);
    let at = line.or(site).map(|at| format!(", called at {at},")).unwrap_or_default();
    let (slow, typical) = explanation.per_call(last.counts);
    let per_call = |sums: (u64, u64)| {
        let (slow, typical) = explanation.per_call(sums);
        format!("{} a call instead of {}", mean_duration(slow), mean_duration(typical))
    };
    let times = format!("{} times a call instead of {}", times(slow), times(typical));
    match (row.spent, descent.end) {
        (Spent::Running, End::MoreOften) => format!("{name}{at} is called {times}"),
        (Spent::Running, End::Several) => format!("several callees of {name}{at} take longer"),
        (Spent::Running, End::Own) if last.path == 0 => {
            format!("{name}'s own code takes {}", per_call(row.sums_ns))
        }
        (Spent::Running, End::Own) => match Explanation::each_ns(last) {
            (Some(slow), Some(typical)) => {
                let (slow, typical) = (mean_duration(slow), mean_duration(typical));
                format!("{name}{at} takes longer itself: {slow} each instead of {typical}")
            }
            _ => format!("{name}{at} takes longer itself"),
        },
        (Spent::Kernel, _) => {
            format!("system calls take {}, most in {name}{at} {times}", per_call(row.sums_ns))
        }
        (Spent::Interrupts, _) => format!("interrupts and faults take {}", per_call(row.sums_ns)),
        (spent, _) => {
            let chain: Vec<String> =
                descent.levels.iter().map(|level| explanation.path_name(level.path)).collect();
            format!("{} for {}, most in {}", spent.name(), per_call(row.sums_ns), chain.join(" > "))
        }
    }
}

fn rows(out: &mut dyn Write, explanation: &Explanation<'_>, width: usize) -> io::Result<()> {
    let comparison = explanation.comparison;
    writeln!(out, "\n{}", "-".repeat(width))?;
    let mut table = Table::new(&[
        ("where", Align::Left),
        ("ns", Align::Right),
        ("share %", Align::Right),
        ("of the difference", Align::Left),
        ("called more often", Align::Right),
        ("each longer", Align::Right),
        ("variance %", Align::Right),
        ("line", Align::Left),
    ]);
    let whole = comparison.difference_ns;
    for row in &comparison.rows {
        let (site, line) = explanation.place(row.path);
        let dash = || "-".to_owned();
        let dearer = row.more_often_ns.map(|more_often| row.difference_ns.saturating_sub(more_often));
        let runs_along = row.difference_ns.signum() == whole.signum();
        let part = if runs_along { row.difference_ns.unsigned_abs() } else { 0 };
        table.row(vec![
            explanation.row_name(row),
            signed(row.difference_ns),
            if whole == 0 { dash() } else { percent(row.difference_ns as f64 / whole as f64) },
            bar(part, whole.unsigned_abs(), BAR),
            row.more_often_ns.map_or_else(dash, signed),
            dearer.map_or_else(dash, signed),
            row.variance_share.map_or_else(dash, percent),
            line.or(site).unwrap_or_default(),
        ]);
    }
    let mut sum = vec!["[difference]".to_owned(), signed(whole), "100.0".to_owned()];
    sum.resize_with(8, String::new);
    table.row(sum);
    table.write(out, width)
}

fn way(
    out: &mut dyn Write,
    explanation: &Explanation<'_>,
    row: &Row,
    descent: &Descent,
    width: usize,
) -> io::Result<()> {
    if descent.levels.len() < 2 {
        return Ok(());
    }
    writeln!(out, "\n{}\nDown the heaviest path of {}", "-".repeat(width), explanation.row_name(row))?;
    let mut table = Table::new(&[
        ("callee", Align::Left),
        ("ns", Align::Right),
        ("called more often", Align::Right),
        ("each longer", Align::Right),
        ("slow: times", Align::Right),
        ("each", Align::Right),
        ("typical: times", Align::Right),
        ("each", Align::Right),
        ("line", Align::Left),
    ]);
    for (depth, level) in descent.levels.iter().enumerate() {
        let Level { path, counts, difference_ns, more_often_ns, .. } = *level;
        let (slow, typical) = explanation.per_call(counts);
        let (slow_each, typical_each) = Explanation::each_ns(level);
        let each = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), mean_duration);
        let (site, line) = explanation.place(path);
        table.row(vec![
            format!("{}{}", "  ".repeat(depth), explanation.path_name(path)),
            signed(difference_ns),
            signed(more_often_ns),
            signed(difference_ns.saturating_sub(more_often_ns)),
            times(slow),
            each(slow_each),
            times(typical),
            each(typical_each),
            line.or(site).unwrap_or_default(),
        ]);
    }
    table.write(out, width)
}

fn parting(
    out: &mut dyn Write,
    explanation: &Explanation<'_>,
    branches: &Branches,
    width: usize,
) -> io::Result<()> {
    let Branches { slow, typical, others, first, loops, is_cut } = branches;
    writeln!(out, "\n{}", "-".repeat(width))?;
    let known = if *is_cut { ", as far as branches were kept" } else { "" };
    let Some(first) = first else {
        return writeln!(
            out,
            "The slow call {} took the same branches as the typical call {}{known}",
            slow.id, typical.id
        );
    };
    let site = explanation.names.site(first.at);
    let line = explanation.names.line(first.at).map(|line| format!("{line} ({site})")).unwrap_or(site);
    writeln!(out, "First divergent branch: {line}, after {} in common", grouped(first.common as u64))?;
    writeln!(out, "  the slow call {} {}", slow.id, explanation.way(first.these))?;
    writeln!(out, "  the typical call {} {}", typical.id, explanation.way(first.base))?;
    if loops.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nLoops with other trip counts than in {}{known}",
        counted(*others as u64, "typical call")
    )?;
    let mut table = Table::new(&[
        ("jump back", Align::Left),
        ("to", Align::Left),
        ("slow", Align::Right),
        ("typical", Align::Right),
    ]);
    for Trips { from, to, these, base } in loops.iter().take(LOOPS) {
        let base = if base.0 == base.1 {
            grouped(base.0)
        } else {
            format!("{} to {}", grouped(base.0), grouped(base.1))
        };
        table.row(vec![
            explanation.line_or_site(*from),
            explanation.line_or_site(*to),
            grouped(*these),
            base,
        ]);
    }
    table.write(out, width)?;
    match loops.len().checked_sub(LOOPS) {
        Some(more) if more > 0 => writeln!(out, "  ... and {}", counted(more as u64, "loop")),
        _ => Ok(()),
    }
}

/// With its sign, but for 0.
fn signed(ns: i64) -> String {
    let sign = match ns.signum() {
        1 => "+",
        -1 => "-",
        _ => "",
    };
    format!("{sign}{}", grouped(ns.unsigned_abs()))
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// How often, on average: `1`, `0.04`, `30`.
fn times(mean: f64) -> String {
    if mean == mean.trunc() { format!("{mean:.0}") } else { format!("{mean:.2}") }
}
