//! What was lost: how much of the time the report speaks for.

use std::io::{self, Write};

use analyzer::Limits;

use super::rule;
use crate::render::View;
use crate::render::table::{Align, Table};
use crate::render::units::{counted, duration, grouped, size};

pub(super) fn write(out: &mut dyn Write, view: &View<'_>, width: usize) -> io::Result<()> {
    let loss = &view.report.loss;
    rule(out, '=', width)?;
    let window = loss.threads.iter().map(|t| t.window_ns).fold(0, u64::saturating_add);
    writeln!(
        out,
        "Lost: {} of {} of thread time (coverage {}); {}, {}, {}",
        duration(loss.lost_ns),
        duration(window),
        coverage(loss.coverage),
        counted(loss.overflows, "overflow"),
        counted(loss.truncated, "full buffer"),
        counted(loss.errors, "decoding error"),
    )?;
    if !loss.by_cause.is_empty() {
        let mut table = Table::new(&[
            ("cause", Align::Left),
            ("count", Align::Right),
            ("trace", Align::Right),
            ("time", Align::Right),
            ("in ns", Align::Right),
            ("object", Align::Left),
        ]);
        for cause in &loss.by_cause {
            table.row(vec![
                cause.cause.to_owned(),
                grouped(cause.count),
                size(cause.bytes),
                duration(cause.lost_ns),
                grouped(cause.lost_ns),
                cause.object.map(|id| view.names.object(id)).unwrap_or_default(),
            ]);
        }
        table.write(out, width)?;
    }
    for problem in view.problems {
        writeln!(out, "  {problem}")?;
    }
    limits(out, &view.report.limits)
}

/// Never rounded up to a whole that it is not.
fn coverage(share: f64) -> String {
    let percent = 100.0 * share;
    if share < 1.0 && percent > 99.99 { "> 99.99 %".to_owned() } else { format!("{percent:.2} %") }
}

fn limits(out: &mut dyn Write, limits: &Limits) -> io::Result<()> {
    let reached = [
        (limits.capped_tail_calls, "tail calls in chains so long that their oldest links were ended early"),
        (limits.capped_stacks, "times that a stack was deeper than is followed: its calls are cut"),
        (
            limits.undecided_landings,
            "landings of an exception or longjmp in one of several activations: a guess",
        ),
        (
            limits.stack_switches,
            "times that control landed where no open call explains it (fibers, goroutines): open calls are cut",
        ),
    ];
    for (count, what) in reached.into_iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "  {}: {what}", grouped(count))?;
    }
    Ok(())
}
