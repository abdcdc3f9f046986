//! Flame graphs: SVG that opens in a browser, drawn by `inferno`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use analyzer::FoundPaths;
use anyhow::Result;
use inferno::flamegraph::{Options, from_lines};

use super::weight::Weight;
use super::{folded, observed_part};
use crate::exit::{Exit, failure};
use crate::messages::list;
use crate::output;
use crate::printable::printable;
use crate::render::Names;
use crate::render::units::grouped;

/// What a flame graph shows.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The functions with calls in the graph; none: it has all that every thread did.
    pub functions: &'a [String],
    /// Which time.
    pub weight: Weight,
    /// What else there is to say.
    pub note: Option<&'a str>,
}

impl Subject<'_> {
    /// Functions, unit and total.
    fn title(&self, total_ns: u64) -> String {
        let of = if self.functions.is_empty() { "all threads".to_owned() } else { list(self.functions) };
        let time = match self.weight {
            Weight::Latency => "latency, off-CPU time included",
            Weight::Cpu => "CPU time",
        };
        format!("{of}: {} ns of {time}", grouped(total_ns))
    }
}

/// Draws the paths of `functions`, or of all threads, into a file.
///
/// # Errors
/// There is no time in them, or the file could not be written.
pub fn write_file(
    path: &Path,
    found: &FoundPaths,
    functions: &[String],
    weight: Weight,
    names: &dyn Names,
) -> Result<()> {
    let stacks = folded::stacks(&found.tree, names, weight);
    if stacks.is_empty() {
        let message = format!("{}: no call was seen that took any time", path.display());
        return Err(failure(Exit::Nothing, message));
    }
    let note = observed_part(found, names);
    let subject = Subject { functions, weight, note: note.as_deref() };
    output::write_file(path, |out| write(out, &stacks, &subject))
}

/// Draws folded stacks.
///
/// # Errors
/// There are none, or what `out` says.
pub fn write(out: &mut dyn Write, stacks: &BTreeMap<String, u64>, subject: &Subject<'_>) -> io::Result<()> {
    let lines: Vec<String> = stacks.iter().map(|(stack, ns)| format!("{stack} {ns}")).collect();
    let mut options = Options::default();
    options.title = printable(&subject.title(stacks.values().sum()));
    options.subtitle = subject.note.map(str::to_owned);
    options.count_name = "ns".to_owned();
    options.deterministic = true; // the same picture on every run
    from_lines(&mut options, lines.iter().map(String::as_str), out)
}
