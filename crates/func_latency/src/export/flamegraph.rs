//! Flame graphs: SVG that opens in a browser, drawn by `inferno`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use analyzer::FoundPaths;
use anyhow::Result;
use inferno::flamegraph::{Options, from_lines};

use super::{folded, observed_part};
use crate::args::Weight;
use crate::exit::{Exit, failure};
use crate::output;
use crate::render::Names;

/// Draws the paths into a file.
///
/// # Errors
/// There is no time in them, or the file could not be written.
pub fn write_file(path: &Path, found: &FoundPaths, weight: Weight, names: &dyn Names) -> Result<()> {
    let stacks = folded::stacks(&found.tree, names, weight);
    if stacks.is_empty() {
        let message = format!("{}: no call was seen that took any time", path.display());
        return Err(failure(Exit::Nothing, message));
    }
    let note = observed_part(found, names);
    output::write_file(path, |out| write(out, &stacks, weight, note.as_deref()))
}

/// Draws folded stacks; `note`: what else there is to say.
///
/// # Errors
/// There are none, or what `out` says.
pub fn write(
    out: &mut dyn Write,
    stacks: &BTreeMap<String, u64>,
    weight: Weight,
    note: Option<&str>,
) -> io::Result<()> {
    let lines: Vec<String> = stacks.iter().map(|(stack, ns)| format!("{stack} {ns}")).collect();
    let mut options = Options::default();
    options.title = match weight {
        Weight::Latency => "Latency, exact, off-CPU time included".to_owned(),
        Weight::Cpu => "CPU time, exact".to_owned(),
    };
    options.subtitle = note.map(str::to_owned);
    options.count_name = "ns".to_owned();
    options.deterministic = true; // the same picture on every run
    from_lines(&mut options, lines.iter().map(String::as_str), out)
}
