//! The explanation of a function of which no call was seen from entry to end: what the observed part of its
//! open calls was spent in. As text and as JSON, schema `func_latency_explain/1` with null where calls would
//! be compared.

use std::io::{self, Write};

use analyzer::FunctionReport;
use serde::Serialize;

use super::json::SCHEMA;
use crate::render::json::{Open, open_calls};
use crate::render::names::file_name;
use crate::render::{View, text};

/// What there is to say of open calls.
#[derive(Clone, Copy)]
pub struct OpenExplanation<'a> {
    /// The report that they are in.
    pub view: &'a View<'a>,
    /// The function, which has open calls and no other.
    pub function: &'a FunctionReport,
    /// The command that says more.
    pub next: &'a str,
}

/// Writes the explanation into lines of about `width` columns.
///
/// # Errors
/// What `out` says.
pub fn write_text(out: &mut dyn Write, explanation: &OpenExplanation<'_>, width: usize) -> io::Result<()> {
    let OpenExplanation { view, function, next } = *explanation;
    let width = width.clamp(80, 200);
    let name = view.names.function(function.id);
    let object = view.names.object_of(function.id);
    let object = object.map(|path| format!(" ({})", file_name(&path))).unwrap_or_default();
    writeln!(out, "{}: calls of [{name}]{object}\n", view.input)?;
    writeln!(
        out,
        "  No call was seen from entry to end: there are no slow calls to compare with typical ones."
    )?;
    text::open_calls::write(out, view, &function.open, &name, width)?;
    writeln!(out, "\nMore of what was seen: {next}")
}

#[derive(Serialize)]
struct OpenCallsDocument<'a> {
    schema: &'static str,
    function: String,
    object: Option<String>,
    /// Null: no call was seen from entry to end.
    slow: Option<()>,
    typical: Option<()>,
    rows: [(); 0],
    cause: Option<()>,
    branches: Option<()>,
    open: Open,
    next: &'a str,
}

/// Writes the explanation as one JSON document and a newline.
///
/// # Errors
/// What `out` says.
pub fn write_json(out: &mut dyn Write, explanation: &OpenExplanation<'_>) -> io::Result<()> {
    let OpenExplanation { view, function, next } = *explanation;
    let document = OpenCallsDocument {
        schema: SCHEMA,
        function: view.names.function(function.id),
        object: view.names.object_of(function.id),
        slow: None,
        typical: None,
        rows: [],
        cause: None,
        branches: None,
        open: open_calls(view, &function.open),
        next,
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}
