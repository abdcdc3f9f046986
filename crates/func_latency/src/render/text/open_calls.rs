//! Calls that were not seen from entry to end: what their observed part was spent in, and their callers.

use std::collections::BTreeMap;
use std::io::{self, Write};

use analyzer::{CalledFrom, Caller, OpenCalls, Total};

use super::{children, rule};
use crate::render::View;
use crate::render::names::caller_name;
use crate::render::table::{Align, Table, bar};
use crate::render::units::{counted, duration, grouped, percent, share};

const BAR: usize = 20;

/// Writes the tables of a function's open calls, if there are any.
pub(crate) fn write(
    out: &mut dyn Write,
    view: &View<'_>,
    open: &OpenCalls,
    name: &str,
    width: usize,
) -> io::Result<()> {
    let OpenCalls { observed, resumed, .. } = open;
    if observed.count == 0 {
        return Ok(());
    }
    rule(out, '-', width)?;
    let calls = counted(observed.count, "call");
    let verb = if observed.count == 1 { "was" } else { "were" };
    write!(
        out,
        "Children of [{name}] in {calls} that {verb} open: the observed part, {}",
        duration(observed.sum_ns)
    )?;
    match resumed.count {
        0 => writeln!(out)?,
        _ => writeln!(out, " ({} of it after a gap)", duration(resumed.sum_ns))?,
    }
    children::write(out, view, &open.children, None, width)?;
    callers(out, view, open, name, width)
}

/// The callers of calls that were seen to be entered, if any was.
fn callers(
    out: &mut dyn Write,
    view: &View<'_>,
    open: &OpenCalls,
    name: &str,
    width: usize,
) -> io::Result<()> {
    let mut by_caller: BTreeMap<CalledFrom, Total> = BTreeMap::new();
    for caller in &open.callers {
        let from = CalledFrom { site: caller.from.site.filter(|_| view.unfold), ..caller.from };
        by_caller.entry(from).or_default().add(caller.observed);
    }
    if by_caller.keys().all(|from| from.caller == Caller::Unknown) {
        return Ok(());
    }
    writeln!(out, "\nCallers of [{name}] where it was open")?;
    let mut titles = vec![("called from", Align::Left)];
    if view.unfold {
        titles.push(("site", Align::Left));
    }
    titles.extend([
        ("calls", Align::Right),
        ("observed", Align::Right),
        ("share %", Align::Right),
        ("of the observed part", Align::Bar),
    ]);
    let mut rows: Vec<_> = by_caller.into_iter().collect();
    rows.sort_by_key(|(_, observed)| std::cmp::Reverse(observed.sum_ns)); // stable: ties by caller and site
    let most = rows.first().map_or(0, |(_, observed)| observed.sum_ns);
    let mut table = Table::new(&titles);
    let (rows, left_out) =
        view.table_rows.split(&rows, |(_, observed)| observed.sum_ns, open.observed.sum_ns);
    for &(from, observed) in rows {
        let mut cells = vec![caller_name(view.names, from.caller)];
        if view.unfold {
            cells.push(from.site.map(|site| view.names.site(site)).unwrap_or_default());
        }
        cells.extend([
            grouped(observed.count),
            duration(observed.sum_ns),
            percent(share(observed.sum_ns, open.observed.sum_ns)),
            bar(observed.sum_ns, most, BAR),
        ]);
        table.row(cells);
    }
    table.write(out, width)?;
    left_out.write(out, "the observed part")
}
