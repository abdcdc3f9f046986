//! `--html`: one file that has all calls in it and shows them in a browser, from disk and without a network.
//!
//! ```text
//! report -> calls     tables of names, numbers by column
//!        -> columns   packed: LEB128, zlib, base64
//!        -> page/     page.html with style, data and script in their places
//! ```
//! All that came from the traced program is in the JSON, which cannot end its element, and the script puts it into the page
//! as text only.  The page's own policy (CSP) forbids it to load anything.

mod calls;
mod columns;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::View;

/// The page, with a comment in the place of each of [`STYLE`], the data and [`SCRIPT`].
const PAGE: &str = include_str!("page/page.html");

const STYLE: &str = include_str!("page/style.css");

/// One script in the order in which its parts need each other.
const SCRIPT: [&str; 9] = [
    include_str!("page/units.js"),
    include_str!("page/calls.js"),
    include_str!("page/compare.js"),
    include_str!("page/axes.js"),
    include_str!("page/plot.js"),
    include_str!("page/tables.js"),
    include_str!("page/details.js"),
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
    off_cpu_known: bool,
    coverage: f64,
    only: &'a [String],
    problems: &'a [String],
    functions: Vec<calls::Function>,
}

/// Writes the page of a report that has rows with their children.
///
/// # Errors
/// The file could not be created or written.
pub fn write_file(path: &Path, view: &View<'_>) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).with_context(context)?);
    write(&mut out, view).with_context(context)?;
    out.flush().with_context(context)
}

/// Writes the page.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let mut packed = Vec::new();
    let mut functions = Vec::new();
    for function in &view.report.functions {
        let (function, columns) = calls::pack(view, function, calls::CHILDREN_MAX)?;
        functions.push(function);
        packed.push(columns);
    }
    let trace = &view.report.trace;
    let meta = Meta {
        input: view.input,
        begin_ns: trace.window.0.0.to_string(),
        span_ns: trace.span_ns,
        off_cpu_known: trace.off_cpu_known,
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

fn write_data(out: &mut dyn Write, meta: &Meta<'_>, packed: &[String]) -> io::Result<()> {
    // In JSON `<` stands in strings only; written so, no name can end the element.
    let json = serde_json::to_string(meta)?.replace('<', "\\u003c");
    writeln!(out, "<script type=\"application/json\" id=\"meta\">{json}</script>")?;
    for (number, columns) in packed.iter().enumerate() {
        writeln!(out, "<script type=\"text/plain\" id=\"calls-{number}\">{columns}</script>")?;
    }
    Ok(())
}
