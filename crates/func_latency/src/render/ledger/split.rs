//! More work, slower work, or a slower clock: the parts of the rows of running time, as text and as JSON.

use std::io::{self, Write};

use analyzer::ledger::{Difference, MostOf, Row, Split, SplitErrors};
use analyzer::{CycleCount, Work};
use serde::Serialize;

use super::{LedgerView, Nature, ROWS, difference};
use crate::render::table::{Align, Table};

/// Writes the parts of each row that has some; nothing where there is none.
pub(super) fn write(out: &mut dyn Write, view: &LedgerView, width: usize) -> io::Result<()> {
    let rows = view.comparison.rows.iter().zip(&view.callees);
    let mut rows: Vec<_> = rows.filter_map(|(row, callee)| Some((row, row.split?, callee))).collect();
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_by_key(|(row, ..)| std::cmp::Reverse(row.difference.ns.unsigned_abs()));
    writeln!(
        out,
        "\n{}\nMore work or slower work: what running time became more by, in ns",
        "-".repeat(width)
    )?;
    let right = |title| (title, Align::Right);
    let mut table = Table::new(&[
        ("where", Align::Left),
        right("ns"),
        right("more instructions"),
        right("slower instructions"),
        right("lower frequency"),
        right("instructions"),
        right("cycles each"),
    ]);
    for (row, split, callee) in rows.iter().take(ROWS) {
        let mut cells_of_row = vec![callee.name.clone(), difference(row.difference)];
        cells_of_row.extend(cells(split, view.comparison.calls));
        table.row(cells_of_row);
    }
    table.write(out, width)?;
    if rows.iter().any(|(_, split, _)| split.lower_frequency_ns.is_none()) {
        writeln!(out, "  without CYC packets a lower frequency is among the slower instructions")?;
    }
    Ok(())
}

/// The parts of a row: more instructions, slower ones, a lower frequency; then how many times the
/// instructions and the cycles of each; `calls`: of both sides.
pub(crate) fn cells(split: &Split, calls: (u64, u64)) -> [String; 5] {
    let Split { errors_ns, lower_frequency_ns, .. } = split;
    let part = |ns, error_ns| difference(Difference { ns, error_ns });
    let (instructions, cycles) = ratios(split, calls);
    [
        part(split.more_instructions_ns, errors_ns.more_instructions_ns),
        part(split.slower_instructions_ns, errors_ns.slower_instructions_ns),
        lower_frequency_ns
            .zip(errors_ns.lower_frequency_ns)
            .map_or("unknown".to_owned(), |(ns, error_ns)| part(ns, error_ns)),
        times(instructions),
        cycles.map_or("unknown".to_owned(), times),
    ]
}

/// Instructions of a call, and cycles of an instruction, as multiples of those in the base.
fn ratios(split: &Split, calls: (u64, u64)) -> (f64, Option<f64>) {
    let (these, base) = split.work;
    let per = |sum: u64, of: u64| sum as f64 / of.max(1) as f64;
    let instructions = per(these.instructions, calls.0) / per(base.instructions, calls.1);
    let each = |work: Work| work.cycles.map(|cycles| per(cycles.count, work.instructions));
    (instructions, each(these).zip(each(base)).map(|(these, base)| these / base))
}

/// `2.2 x`.
fn times(ratio: f64) -> String {
    format!("{ratio:.2} x")
}

/// Says what most of the cause is; `same_path`: no branch of a slow call differs from a typical call's.
pub(crate) fn sentence(nature: &Nature, same_path: bool) -> String {
    let path = match (same_path, nature.as_many_instructions) {
        (true, _) => "the same path",
        (false, true) => "as many instructions",
        (false, false) => "for each instruction",
    };
    match nature.most {
        MostOf::MoreInstructions(times) => format!("more work: {times:.1} times the instructions"),
        MostOf::SlowerInstructions { times, is_cycles: true } => {
            format!("{path}, {times:.1} times the cycles: caches, memory, a neighbour on the core")
        }
        MostOf::SlowerInstructions { times, is_cycles: false } => format!(
            "{path}, {times:.1} times the time: caches, memory, a neighbour on the core, a lower frequency \
             (no CYC packets tell which)"
        ),
        MostOf::LowerFrequency(times) => format!(
            "each cycle took {times:.1} times as long: a lower frequency, or a core that was taken away \
             (hypervisor, SMI)"
        ),
    }
}

/// Name of a part in JSON.
pub(super) const fn name(most: MostOf) -> &'static str {
    match most {
        MostOf::MoreInstructions(_) => "more_instructions",
        MostOf::SlowerInstructions { .. } => "slower_instructions",
        MostOf::LowerFrequency(_) => "lower_frequency",
    }
}

/// The parts of a row of running time, which add up to it.
#[derive(Serialize)]
pub(super) struct Parts {
    more_instructions_ns: i64,
    more_instructions_error_ns: u64,
    slower_instructions_ns: i64,
    slower_instructions_error_ns: u64,
    /// Null: there are no CYC packets, and it is among the slower instructions.
    lower_frequency_ns: Option<i64>,
    lower_frequency_error_ns: Option<u64>,
    these_instructions: u64,
    base_instructions: u64,
    these_cycles: Option<u64>,
    these_cycles_error: Option<u64>,
    base_cycles: Option<u64>,
    base_cycles_error: Option<u64>,
}

impl From<&Split> for Parts {
    fn from(split: &Split) -> Self {
        let SplitErrors { more_instructions_ns, slower_instructions_ns, lower_frequency_ns } =
            split.errors_ns;
        let (these, base) = split.work;
        let cycles = |work: Work| work.cycles.map(|CycleCount { count, error }| (count, error)).unzip();
        let ((these_cycles, these_cycles_error), (base_cycles, base_cycles_error)) =
            (cycles(these), cycles(base));
        Self {
            more_instructions_ns: split.more_instructions_ns,
            more_instructions_error_ns: more_instructions_ns,
            slower_instructions_ns: split.slower_instructions_ns,
            slower_instructions_error_ns: slower_instructions_ns,
            lower_frequency_ns: split.lower_frequency_ns,
            lower_frequency_error_ns: lower_frequency_ns,
            these_instructions: these.instructions,
            base_instructions: base.instructions,
            these_cycles,
            these_cycles_error,
            base_cycles,
            base_cycles_error,
        }
    }
}

/// What most of a row is.
pub(super) fn nature(split: &Split, ns: i64, calls: (u64, u64), sums_ns: (u64, u64)) -> Option<Nature> {
    let most = split.most(ns, calls, sums_ns)?;
    Some(Nature { most, as_many_instructions: split.is_as_many_instructions(calls) })
}

/// That of a row.
pub(super) fn nature_of(row: &Row, calls: (u64, u64)) -> Option<Nature> {
    nature(row.split.as_ref()?, row.difference.ns, calls, row.sums_ns)
}
