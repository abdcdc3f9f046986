//! The explanation for people.

use std::io::{self, Write};

use analyzer::branch_path::Trips;
use analyzer::ledger::Typical;

use super::{Branches, Explanation};
use crate::render::ledger::text::{Titles, difference};
use crate::render::ledger::{self, LedgerView, mean_within};
use crate::render::names::file_name;
use crate::render::table::{Align, Table};
use crate::render::units::{counted, grouped, mean_duration};

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
    verdict(out, explanation)?;
    let titles = Titles { these: "slow: times", base: "typical: times" };
    ledger::text::write(out, explanation.ledger, titles, width)?;
    match &explanation.parting {
        Some(branches) => parting(out, explanation, branches, width),
        None => Ok(()),
    }
}

fn head(out: &mut dyn Write, explanation: &Explanation<'_>) -> io::Result<()> {
    let Explanation { names, groups, ledger: LedgerView { comparison, .. }, .. } = explanation;
    let name = names.function(explanation.function);
    let object = names.object_of(explanation.function);
    let object = object.map(|path| format!(" ({})", file_name(&path))).unwrap_or_default();
    writeln!(out, "{}: slow calls of [{name}]{object}\n", explanation.input)?;
    let (slow, typical) = comparison.calls;
    let of = match groups.whose {
        Typical::SameCallers => "of the same callers",
        Typical::AllCallers => "of all callers",
    };
    let (sums_ns, errors_ns) = (comparison.sums_ns, comparison.errors_ns);
    let slow_mean = mean_within(sums_ns.0, errors_ns.0, slow);
    let typical_mean = mean_within(sums_ns.1, errors_ns.1, typical);
    let (slow, typical) = (counted(slow, "slow call"), counted(typical, "typical one"));
    writeln!(out, "  {slow} ({}), mean {slow_mean}", explanation.asked)?;
    writeln!(out, "  {typical} ({of}, among the half nearest to their median), mean {typical_mean}")?;
    writeln!(out, "  difference of the means: {} ns", difference(comparison.difference))?;
    let ids: Vec<String> = groups.slow.iter().take(IDS).map(|row| row.id.to_string()).collect();
    let more = if groups.slow.len() > IDS { ", ..." } else { "" };
    writeln!(out, "  slowest: {}{more}", ids.join(", "))?;
    if let Some(left_out) = ledger::text::left_out(&groups.left_out) {
        writeln!(out, "  not compared: {left_out}")?;
    }
    match explanation.no_off_cpu {
        Some(why) => {
            writeln!(
                out,
                "  off-CPU time is not known ({why}): it is inside of the code that went off the CPU"
            )
        }
        None => Ok(()),
    }
}

/// The answer in a sentence or two.
fn verdict(out: &mut dyn Write, explanation: &Explanation<'_>) -> io::Result<()> {
    let outlying = explanation.groups.outlying;
    let reach = format!(
        "{} above their callers' median, where {} spread like the other {} reach {}",
        mean_duration(outlying.above_ns.max(0.0)),
        if explanation.ledger.comparison.calls.0 == 1 { "a call" } else { "calls" },
        grouped(outlying.others),
        mean_duration(outlying.reach_ns)
    );
    if !outlying.is_so() {
        writeln!(out, "\nNo cause: the slow calls are no outliers ({reach}).")?;
        return writeln!(out, "The rows say where they differ from typical ones, which may be chance.");
    }
    let Some((what, of)) = ledger::text::cause(explanation.ledger) else { return Ok(()) };
    writeln!(out, "\nCause: {what}\n  {of}; the slow calls are outliers ({reach})")
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
        table.row(vec![explanation.short_place(*from), explanation.short_place(*to), grouped(*these), base]);
    }
    table.write(out, width)?;
    match loops.len().checked_sub(LOOPS) {
        Some(more) if more > 0 => writeln!(out, "  ... and {}", counted(more as u64, "loop")),
        _ => Ok(()),
    }
}
