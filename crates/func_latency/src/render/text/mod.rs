//! The report as text, for people.

mod callers;
mod children;
mod code_blocks;
mod counters;
mod counts;
pub(super) mod figures;
mod function;
mod loss;
mod off_cpu;
pub(super) mod open_calls;
mod slices;
mod summary;
mod uncertain;

use std::io::{self, Write};

use super::View;
use super::units::{counted, duration, size};

/// Writes the report into lines of about `width` columns; no name is cut for it.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, view: &View<'_>, width: usize) -> io::Result<()> {
    let width = width.clamp(80, 200);
    let trace = &view.report.trace;
    let seen = match view.is_probed() {
        true => counted(trace.events, "call"),
        false => format!("{} of trace", size(view.aux_bytes)),
    };
    let (span, threads) = (duration(trace.span_ns), counted(trace.threads, "thread"));
    writeln!(out, "{}: {span} of {threads}, {seen}", view.input)?;
    if !view.only.is_empty() {
        let only = view.only.join(", ");
        writeln!(out, "Only calls {only}. CPU percent and losses are of all the time that was recorded")?;
    }
    for (i, function) in view.report.functions.iter().enumerate() {
        let inlined = view.inlined_of(i).unwrap_or(0);
        match trace.no_times {
            Some(why) => counts::write(out, view, function, (inlined, why), width)?,
            None => function::write(out, view, function, inlined, width)?,
        }
    }
    loss::write(out, view, width)
}

/// A line across the page.
fn rule(out: &mut dyn Write, line: char, width: usize) -> io::Result<()> {
    writeln!(out, "\n{}", line.to_string().repeat(width))
}
