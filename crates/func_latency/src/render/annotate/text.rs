//! The listing as text, for people.

use std::io::{self, Write};

use super::rows::{AnnotateRow, rows};
use super::{AnnotateView, Groups};
use crate::listing::{Spent, Whole};
use crate::render::names::{callee_name, file_name};
use crate::render::table::{Align, Table, write_sentence};
use crate::render::units::{counted, duration, grouped, mean_duration, percent, share};

/// Columns of sentences.
const TEXT_COLUMNS: usize = 100;

/// Characters of a source line that are shown.
const TEXT_MAX: usize = 60;

/// Writes the listing into lines of about `width` columns.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, view: &AnnotateView<'_>, width: usize) -> io::Result<()> {
    let width = width.clamp(80, 200);
    let name = view.names.function(view.function);
    let object = view.names.object_of(view.function);
    let object = object.map(|path| format!(" ({})", file_name(&path))).unwrap_or_default();
    writeln!(out, "{}: where calls of [{name}]{object} spend their time\n", view.input)?;
    for (group, whole) in view.groups.names().iter().zip(&view.listing.groups) {
        write_whole(out, view.groups, group, whole)?;
    }
    writeln!(out)?;
    let mut table = Table::new(&titles(view));
    rows(view).iter().for_each(|row| add_row(&mut table, view, row));
    table.write(out, width)?;
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
    write_sentence(out, &text, (2, 4), TEXT_COLUMNS)
}

fn titles(view: &AnnotateView<'_>) -> Vec<(&'static str, Align)> {
    let first = view.row_kind();
    let figures: &[&'static str] = match view.groups {
        Groups::All => &["executions", "self", "in calls", "share %"],
        Groups::SlowAndTypical(_) => {
            &["executions: slow", "typical", "self: slow", "typical", "in calls: slow", "typical", "more"]
        }
    };
    let figures = figures.iter().map(|title| (*title, Align::Right));
    [(first, Align::Left)].into_iter().chain(figures).collect()
}

fn add_row(table: &mut Table, view: &AnnotateView<'_>, row: &AnnotateRow<'_>) {
    let blank = titles(view).len() - 1;
    match row {
        AnnotateRow::Heading(name) => table.row([vec![name.clone()], vec![String::new(); blank]].concat()),
        AnnotateRow::LeftOut(rows) => {
            let name = format!("  ({})", view.left_out(*rows));
            table.row([vec![name], vec![String::new(); blank]].concat());
        }
        AnnotateRow::Code(code) => {
            let indent = "  ".repeat(code.depth);
            let text: Option<String> = code
                .text
                .as_ref()
                .map(|text| format!("  {}", text.chars().take(TEXT_MAX).collect::<String>()));
            let name = format!("{indent}{}{}", code.name, text.unwrap_or_default());
            let is_said = code.calls.is_empty() || name.ends_with(&code.calls);
            let note = (!is_said).then(|| format!("{indent}calls {}", code.calls));
            let mut cells = vec![name];
            match (code.spent, &view.listing.groups[..]) {
                ([slow, typical], [of_slow, of_typical]) => {
                    cells.extend(beside((slow, of_slow), (typical, of_typical), code.is_own));
                }
                ([spent], [whole]) => cells.extend(figures(spent, whole, code.is_own)),
                _ => (),
            }
            table.row_with_notes(cells, note.as_slice());
        }
    }
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

fn write_notes(out: &mut dyn Write, view: &AnnotateView<'_>) -> io::Result<()> {
    let listing = view.listing;
    if listing.nowhere.iter().any(|spent| spent.inside_ns > 0) {
        let sums: Vec<String> = listing.nowhere.iter().map(|spent| duration(spent.inside_ns)).collect();
        let names = listing.nowhere_callees.keys();
        let names: Vec<String> =
            names.map(|(kind, function)| callee_name(view.names, *kind, *function)).collect();
        writeln!(out, "\n  At no known place: {} in {}", sums.join(" and "), names.join(", "))?;
    }
    writeln!(out)?;
    write_sentence(out, &view.exactness(), (2, 2), TEXT_COLUMNS)
}
