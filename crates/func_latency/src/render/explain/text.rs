//! The explanation for people.

use std::io::{self, Write};

use analyzer::CallRow;
use analyzer::branch_path::Trips;
use analyzer::ledger::Typical;

use super::{Branches, CLUSTERS, ExplainedGroup, Explanation};
use crate::render::ledger::text::Titles;
use crate::render::ledger::{self, LedgerView, difference, mean_within, split};
use crate::render::names::file_name;
use crate::render::table::{Align, Table, write_sentence};
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
    verdict(out, explanation, width)?;
    let [first, rest @ ..] = explanation.listed() else {
        return part(out, explanation, explanation.whole, width);
    };
    if rest.is_empty() && explanation.others.is_empty() {
        return part(out, explanation, first, width);
    }
    for (number, cluster) in (1..).zip(explanation.listed()) {
        writeln!(out, "\n{}\n{number}. {}", "=".repeat(width), of_all(explanation, cluster))?;
        writeln!(out, "   slowest: {}", slowest(&cluster.calls))?;
        part(out, explanation, cluster, width)?;
    }
    Ok(())
}

/// The ledger of some slow calls, and the branches of one of them.
fn part(
    out: &mut dyn Write,
    explanation: &Explanation<'_>,
    part: &ExplainedGroup,
    width: usize,
) -> io::Result<()> {
    let titles = Titles { these: "slow: times", base: "typical: times" };
    ledger::text::write(out, &part.ledger, titles, width)?;
    match &part.branches {
        Some(branches) => parting(out, explanation, branches, width),
        None => Ok(()),
    }
}

/// `10 of 21 slow calls, mean 340 us`
fn of_all(explanation: &Explanation<'_>, part: &ExplainedGroup) -> String {
    let comparison = &part.ledger.comparison;
    let mean = mean_within(comparison.sums_ns.0, comparison.errors_ns.0, comparison.calls.0);
    let all = counted(explanation.whole.calls.len() as u64, "slow call");
    format!("{} of {all}, mean {mean}", grouped(comparison.calls.0))
}

fn slowest(calls: &[CallRow]) -> String {
    let ids: Vec<String> = calls.iter().take(IDS).map(|row| row.id.to_string()).collect();
    let more = if calls.len() > IDS { ", ..." } else { "" };
    format!("{}{more}", ids.join(", "))
}

fn head(out: &mut dyn Write, explanation: &Explanation<'_>) -> io::Result<()> {
    let Explanation {
        names,
        groups,
        whole: ExplainedGroup { ledger: LedgerView { comparison, .. }, .. },
        ..
    } = explanation;
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
    writeln!(out, "  slowest: {}", slowest(&groups.slow))?;
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

/// The answer in a sentence or two for each reason.
fn verdict(out: &mut dyn Write, explanation: &Explanation<'_>, width: usize) -> io::Result<()> {
    let Explanation { whole, clusters, others, .. } = *explanation;
    if clusters.is_empty() && !whole.outlying.is_so() {
        writeln!(out, "\nNo cause: the slow calls are no outliers ({}).", reach(whole))?;
        return writeln!(out, "The rows say where they differ from typical ones, which may be chance.");
    }
    if clusters.len() <= 1 && (others.is_empty() || clusters.is_empty()) {
        return cause(out, "Cause", clusters.first().unwrap_or(whole), width);
    }
    for (number, cluster) in (1..).zip(explanation.listed()) {
        cause(out, &format!("{number}. {}", of_all(explanation, cluster)), cluster, width)?;
    }
    let unlisted = clusters.get(CLUSTERS..).unwrap_or_default();
    if !unlisted.is_empty() {
        let calls: usize = unlisted.iter().map(|cluster| cluster.calls.len()).sum();
        let causes = counted(unlisted.len() as u64, "more cause");
        writeln!(out, "\n{} of {causes}; --format json has all", counted(calls as u64, "slow call"))?;
    }
    if !others.is_empty() {
        let (are, outliers) = if others.len() == 1 { ("is", "no outlier") } else { ("are", "no outliers") };
        writeln!(out, "\n{} {are} {outliers}: {}", counted(others.len() as u64, "other"), slowest(others))?;
    }
    Ok(())
}

/// What made these calls slow.
fn cause(out: &mut dyn Write, title: &str, part: &ExplainedGroup, width: usize) -> io::Result<()> {
    let Some((what, of)) = ledger::text::cause(&part.ledger) else { return Ok(()) };
    writeln!(out, "\n{title}: {what}\n  {of}")?;
    write_sentence(out, &format!("the slow calls are outliers: {}", reach(part)), (2, 4), width)?;
    let nature = part.ledger.cause.as_ref().and_then(|cause| cause.nature);
    if let Some(nature) = nature {
        return writeln!(out, "  {}", split::sentence(&nature, part.is_only_slower()));
    }
    if part.is_only_slower() {
        writeln!(
            out,
            "  the same path, only slower: no branch of a slow call differs from a typical call's"
        )?;
    }
    Ok(())
}

/// How far above the others they are.
fn reach(part: &ExplainedGroup) -> String {
    let outlying = part.outlying;
    format!(
        "{} above their callers' median; chance, by the spread of the other {} calls, explains up to {}",
        mean_duration(outlying.above_ns.max(0.0)),
        grouped(outlying.others),
        mean_duration(outlying.reach_ns)
    )
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
        Some(more) if more > 0 => writeln!(out, "  ... {}", counted(more as u64, "more loop")),
        _ => Ok(()),
    }
}
