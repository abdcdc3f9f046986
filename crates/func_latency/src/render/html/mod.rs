//! `--html`: one file that has all calls in it and shows them in a browser, from disk and without a network.
//!
//! ```text
//! report -> calls     tables of names, numbers by column
//! inside -> ways      callers, which way calls went, what they waited for
//!        -> trees     trees of the calls that matter
//!        -> columns   packed: LEB128, zlib, base64
//!        -> page/     page.html with style, data and script in their places
//! ```
//! All that came from the traced program is in the JSON, which cannot end its element, and the script puts it
//! into the page as text only. The page's own policy (CSP) forbids it to load anything.

mod calls;
pub mod closer;
mod columns;
mod counters;
mod trees;
mod ways;

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use closer::Closer;

use super::View;
use crate::inside::{Inside, typical};
use crate::output;
use crate::render::printable_names::with_printable;

/// The page, with a comment in the place of each of [`STYLE`], the data and [`SCRIPT`].
const PAGE: &str = include_str!("page/page.html");

const STYLE: &str = include_str!("page/style.css");

/// One script in the order in which its parts need each other.
const SCRIPT: [&str; 19] = [
    include_str!("page/units.js"),
    include_str!("page/calls.js"),
    include_str!("page/counters.js"),
    include_str!("page/trees.js"),
    include_str!("page/compare.js"),
    include_str!("page/axes.js"),
    include_str!("page/plot.js"),
    include_str!("page/tables.js"),
    include_str!("page/counter_tables.js"),
    include_str!("page/closer.js"),
    include_str!("page/tree_view.js"),
    include_str!("page/tree_table.js"),
    include_str!("page/flame.js"),
    include_str!("page/waits.js"),
    include_str!("page/details.js"),
    include_str!("page/functions.js"),
    include_str!("page/link.js"),
    include_str!("page/input.js"),
    include_str!("page/main.js"),
];

/// The recording, and the functions with the names of all that their numbers stand for.
#[derive(Serialize)]
struct Meta<'a> {
    input: &'a str,
    /// Time 0 of the page in ns of perf's clock: a string, because a script's numbers are not exact up there.
    begin_ns: String,
    span_ns: u64,
    /// Without it there is no column of it.
    off_cpu_known: bool,
    coverage: f64,
    only: &'a [String],
    problems: &'a [String],
    functions: Vec<PageFunction>,
}

#[derive(Serialize)]
struct PageFunction {
    #[serde(flatten)]
    calls: calls::Function,
    ways: ways::Ways,
    /// `None`: calls were not seen from inside.
    trees: Option<trees::Trees>,
    /// Not there: counters were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    counters: Option<counters::Counters>,
    /// Why slow calls were slow; not there: counters were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    ledger: Option<closer::Ledger>,
    /// The function's lines; not there: counters were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<closer::Lines>,
}

/// Names of the columns of each function, in their order in its [`PageFunction`]; the last ones are not there
/// where counters were not asked for.
const COLUMNS: [&str; 4] = ["calls", "ways", "trees", "counters"];

/// Writes the page of a report that has rows with their children; `inside`: what the calls of each of its
/// functions are like inside, or nothing, where only they themselves were seen; `closer`: what a closer look
/// at slow calls found, or nothing, where there was none.
///
/// # Errors
/// The file could not be created or written.
pub fn write_file(path: &Path, view: &View<'_>, inside: &[Inside], closer: &[Closer]) -> Result<()> {
    output::write_file(path, |out| write(out, view, inside, closer))
}

/// Writes the page.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, view: &View<'_>, inside: &[Inside], closer: &[Closer]) -> io::Result<()> {
    with_printable(view, |view| write_printable(out, view, inside, closer))
}

fn write_printable(
    out: &mut dyn Write,
    view: &View<'_>,
    inside: &[Inside],
    closer: &[Closer],
) -> io::Result<()> {
    let mut packed = Vec::new();
    let mut functions = Vec::new();
    for (number, function) in view.report.functions.iter().enumerate() {
        let inside = inside.get(number);
        let typical =
            inside.map_or_else(|| typical(&function.rows, &|_| true), |inside| inside.typical.clone());
        let (ways, of_ways) = ways::pack(view, function, inside)?;
        let (trees, of_trees) = trees::pack(view, inside)?;
        let with_children = calls::WithChildren::of(function, &typical, calls::CHILDREN_MAX);
        let (counters, of_counters) = counters::pack(view, function, &with_children, inside)?.unzip();
        let (ledger, lines) = closer.get(number).map(|closer| closer.pack(view, function.id)).unzip();
        let (function, of_calls) = calls::pack(view, function, &typical, &with_children)?;
        functions.push(PageFunction { calls: function, ways, trees, counters, ledger, lines });
        packed.push([Some(of_calls), Some(of_ways), Some(of_trees), of_counters]);
    }
    let trace = &view.report.trace;
    let meta = Meta {
        input: view.input,
        begin_ns: trace.window.0.0.to_string(),
        span_ns: trace.span_ns,
        off_cpu_known: trace.no_off_cpu.is_none(),
        coverage: view.report.loss.coverage,
        only: view.only,
        problems: view.problems,
        functions,
    };
    for part in PAGE.split_inclusive("-->") {
        match part.split_once("<!--") {
            Some((before, " style -->")) => write!(out, "{before}<style>\n{STYLE}</style>")?,
            Some((before, " data -->")) => {
                out.write_all(before.as_bytes())?;
                write_data(out, &meta, &packed)?;
            }
            Some((before, " script -->")) => {
                write!(out, "{before}<script type=\"module\">\n{}</script>", SCRIPT.join("\n"))?;
            }
            _ => out.write_all(part.as_bytes())?,
        }
    }
    Ok(())
}

fn write_data(out: &mut dyn Write, meta: &Meta<'_>, packed: &[[Option<String>; 4]]) -> io::Result<()> {
    // In JSON `<` stands in strings only; written so, no name can end the element.
    let json = serde_json::to_string(meta)?.replace('<', "\\u003c");
    writeln!(out, "<script type=\"application/json\" id=\"meta\">{json}</script>")?;
    for (number, of_function) in packed.iter().enumerate() {
        for (name, columns) in COLUMNS.iter().zip(of_function) {
            let Some(columns) = columns else { continue };
            writeln!(out, "<script type=\"text/plain\" id=\"{name}-{number}\">{columns}</script>")?;
        }
    }
    Ok(())
}
