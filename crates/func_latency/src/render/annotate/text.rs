//! The listing as text, for people.

use std::cmp::Reverse;
use std::io::{self, Write};

use super::{Groups, View};
use crate::listing::lines::Line;
use crate::listing::{Callees, Spent, Whole};
use crate::render::names::{callee_name, file_name};
use crate::render::table::{Align, Table, wrapped};
use crate::render::units::{counted, duration, grouped, mean_duration, percent, share};

/// Callees that a row names.
const NAMED: usize = 2;

/// Columns of sentences.
const TEXT_COLUMNS: usize = 100;

/// Characters of a source line that are shown.
const TEXT_MAX: usize = 60;

/// Writes the listing into lines of about `width` columns.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, view: &View<'_>, width: usize) -> io::Result<()> {
    let width = width.clamp(80, 200);
    let name = view.names.function(view.function);
    let object = view.names.object_of(view.function);
    let object = object.map(|path| format!(" ({})", file_name(&path))).unwrap_or_default();
    writeln!(out, "{}: where calls of [{name}]{object} spend their time\n", view.input)?;
    for (group, whole) in view.groups.names().iter().zip(&view.listing.groups) {
        write_whole(out, view.groups, group, whole)?;
    }
    writeln!(out)?;
    let mut table = Listed { view, table: Table::new(&titles(view)), left_out: 0 };
    match view.lines {
        Some(lines) => lines.iter().for_each(|line| table.line(line, 0)),
        None => table.instructions(),
    }
    table.rest();
    table.table.write(out, width)?;
    write_notes(out, view)
}

fn write_whole(out: &mut dyn Write, groups: Groups<'_>, name: &str, whole: &Whole) -> io::Result<()> {
    let Whole { calls, latency_ns, own_ns, own_error_ns, inside_ns, elsewhere_ns, .. } = *whole;
    let which = match groups {
        Groups::All => String::new(),
        Groups::SlowAndTypical(asked) if name == "slow" => format!("slow ({asked}): "),
        Groups::SlowAndTypical(_) => format!("{name}: "),
    };
    let elsewhere = match elsewhere_ns {
        0 => String::new(),
        ns => format!(", {} in code that was not traced or is not known", duration(ns)),
    };
    let text = format!(
        "{which}{}, {}: {} in its own code (of each call +- {} at most), {} in what it calls{elsewhere}",
        counted(calls, "call"),
        duration(latency_ns),
        duration(own_ns),
        mean_duration(own_error_ns as f64 / calls.max(1) as f64),
        duration(inside_ns),
    );
    write_wrapped(out, &text, "    ")
}

/// Writes a sentence, indented by two, into lines of at most [`TEXT_COLUMNS`]; those after the first begin
/// with `indent`.
fn write_wrapped(out: &mut dyn Write, text: &str, indent: &str) -> io::Result<()> {
    let mut begin = "  ";
    for line in wrapped(text, TEXT_COLUMNS - indent.len()) {
        writeln!(out, "{begin}{line}")?;
        begin = indent;
    }
    Ok(())
}

fn titles(view: &View<'_>) -> Vec<(&'static str, Align)> {
    let first = if view.lines.is_some() { "line" } else { "instruction" };
    let figures: &[&'static str] = match view.groups {
        Groups::All => &["executions", "self", "in calls", "share %"],
        Groups::SlowAndTypical(_) => {
            &["executions: slow", "typical", "self: slow", "typical", "in calls: slow", "typical", "more"]
        }
    };
    let figures = figures.iter().map(|title| (*title, Align::Right));
    [(first, Align::Left)].into_iter().chain(figures).collect()
}

/// A table with the rows so far.
struct Listed<'a> {
    view: &'a View<'a>,
    table: Table,
    /// Rows that were never executed, since the last one that was.
    left_out: u64,
}

impl Listed<'_> {
    fn line(&mut self, line: &Line, depth: usize) {
        let name = match (&*line.key.file, line.key.line) {
            ("", _) => "(no line)".to_owned(),
            (file, 0) => format!("{}:?", file_name(file)),
            (file, number) => format!("{}:{number}", file_name(file)),
        };
        let mark = if depth > 0 { " (inlined)" } else { "" };
        let of_inlined = |callee: &_| line.inlined.iter().any(|inlined| inlined.callees.contains_key(callee));
        let callees = line.callees.iter().filter(|(callee, _)| !of_inlined(callee));
        let callees = callees.map(|(callee, times)| (*callee, times.clone())).collect();
        let text: Option<String> =
            self.view.text_of(&line.key).map(|text| text.chars().take(TEXT_MAX).collect());
        let text = text.map(|text| format!("  {text}")).unwrap_or_default();
        self.row(format!("{}{name}{mark}{text}", "  ".repeat(depth)), &line.spent, line.is_own, &callees);
        if line.spent.iter().any(is_met) {
            line.inlined.iter().for_each(|inlined| self.line(inlined, depth + 1));
            self.rest();
        }
    }

    fn instructions(&mut self) {
        let view = self.view;
        let mut last_line = None;
        for instruction in &view.listing.instructions {
            let line = view.names.line(instruction.place);
            if line != last_line && instruction.spent.iter().any(is_met) {
                self.rest();
                let blank = titles(view).len() - 1;
                let name = line.clone().unwrap_or_else(|| "(no line)".to_owned());
                self.table.row([vec![name], vec![String::new(); blank]].concat());
                last_line = line;
            }
            let text = instruction.text.as_deref().unwrap_or("(outside of the function)");
            let name = format!("  {}  {text}", view.names.site(instruction.place));
            self.row(name, &instruction.spent, instruction.is_own(), &instruction.callees);
        }
    }

    /// Adds a row, unless nothing was done there.
    fn row(&mut self, name: String, spent: &[Spent], is_own: bool, callees: &Callees) {
        if !spent.iter().any(is_met) {
            self.left_out += 1;
            return;
        }
        self.rest();
        let named = self.named(callees);
        let is_said = named.is_empty() || name.ends_with(&named);
        let depth = name.len() - name.trim_start().len();
        let note = (!is_said).then(|| format!("{}calls {named}", " ".repeat(depth)));
        let mut cells = vec![name];
        match (spent, &self.view.listing.groups[..]) {
            ([slow, typical], [of_slow, of_typical]) => {
                cells.extend(beside((slow, of_slow), (typical, of_typical), is_own));
            }
            ([spent], [whole]) => cells.extend(figures(spent, whole, is_own)),
            _ => (),
        }
        self.table.row_with_notes(cells, note.as_slice());
    }

    /// The callees with most time.
    fn named(&self, callees: &Callees) -> String {
        let sum_ns = |times: &[(u64, u64)]| times.iter().map(|(_, ns)| *ns).fold(0, u64::saturating_add);
        let mut by_time: Vec<_> = callees.iter().map(|(callee, times)| (sum_ns(times), *callee)).collect();
        by_time.sort_by_key(|(ns, callee)| (Reverse(*ns), *callee));
        let names =
            by_time.iter().map(|(_, (kind, function))| callee_name(self.view.names, *kind, *function));
        let mut names: Vec<String> = names.collect();
        names.dedup();
        let more = if names.len() > NAMED { ", ..." } else { "" };
        names.truncate(NAMED);
        format!("{}{more}", names.join(", "))
    }

    /// Says what was left out.
    fn rest(&mut self) {
        let what = if self.view.lines.is_some() { "line" } else { "instruction" };
        if self.left_out > 0 {
            let is_unseen = self.view.listing.groups.iter().any(|whole| whole.elsewhere_ns > 0);
            let not = if is_unseen { "not seen" } else { "not executed" };
            let name = format!("  ({} {not})", counted(self.left_out, what));
            let blank = titles(self.view).len() - 1;
            self.table.row([vec![name], vec![String::new(); blank]].concat());
            self.left_out = 0;
        }
    }
}

/// Something was done there.
fn is_met(spent: &Spent) -> bool {
    spent.executions > 0 || spent.total_ns() > 0
}

fn figures(spent: &Spent, whole: &Whole, is_own: bool) -> [String; 4] {
    let time = |ns: u64| if ns == 0 { "-".to_owned() } else { duration(ns) };
    [
        if is_own { grouped(spent.executions) } else { "?".to_owned() },
        time(spent.own_ns),
        time(spent.inside_ns),
        percent(share(spent.total_ns(), whole.latency_ns)),
    ]
}

/// Of slow and typical calls: each by call.
fn beside(
    (slow, of_slow): (&Spent, &Whole),
    (typical, of_typical): (&Spent, &Whole),
    is_own: bool,
) -> [String; 7] {
    let by_call = |sum: u64, whole: &Whole| sum as f64 / whole.calls.max(1) as f64;
    let executions = |spent: &Spent, whole: &Whole| match is_own {
        true => format!("{:.1}", by_call(spent.executions, whole)),
        false => "?".to_owned(),
    };
    let time =
        |ns: u64, whole: &Whole| if ns == 0 { "-".to_owned() } else { mean_duration(by_call(ns, whole)) };
    let more_ns = by_call(slow.total_ns(), of_slow) - by_call(typical.total_ns(), of_typical);
    let sign = if more_ns < 0.0 { "-" } else { "+" };
    [
        executions(slow, of_slow),
        executions(typical, of_typical),
        time(slow.own_ns, of_slow),
        time(typical.own_ns, of_typical),
        time(slow.inside_ns, of_slow),
        time(typical.inside_ns, of_typical),
        format!("{sign}{}", mean_duration(more_ns.abs())),
    ]
}

fn write_notes(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let listing = view.listing;
    if listing.nowhere.iter().any(|spent| spent.inside_ns > 0) {
        let sums: Vec<String> = listing.nowhere.iter().map(|spent| duration(spent.inside_ns)).collect();
        let names = listing.nowhere_callees.keys();
        let names: Vec<String> =
            names.map(|(kind, function)| callee_name(view.names, *kind, *function)).collect();
        writeln!(out, "\n  At no known place: {} in {}", sums.join(" and "), names.join(", "))?;
    }
    let spent: Vec<_> = match view.lines {
        Some(lines) => lines.iter().flat_map(|line| &line.spent).collect(),
        None => listing.instructions.iter().flat_map(|one| &one.spent).collect(),
    };
    let sum = |times: &mut dyn Iterator<Item = u64>| times.fold(0, u64::saturating_add);
    let estimated_ns = sum(&mut spent.iter().map(|spent| spent.estimated_ns));
    let own_ns = sum(&mut listing.groups.iter().map(|whole| whole.own_ns));
    let what = if view.lines.is_some() { "lines" } else { "instructions" };
    let text = format!(
        "Executions are exact. Of straight code between two branches only the time as a whole is known: {what} \
         in it have an even share by instructions. {} % of self is such a share, an estimate.",
        percent(share(estimated_ns, own_ns)),
    );
    writeln!(out)?;
    write_wrapped(out, &text, "  ")
}
