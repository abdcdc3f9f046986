//! The report broken down by callers.

use std::collections::BTreeMap;
use std::io::{self, Write};

use analyzer::{CalledFrom, Caller, CallerReport, ChildRow, Counted, FunctionReport};

use super::figures::Figures;
use super::{children, counters, rule, uncertain};
use crate::printable::printable;
use crate::render::names::caller_name;
use crate::render::table::{Align, Table, bar, write_sentence};
use crate::render::units::{
    counted, duration, duration_within, grouped, mean_duration, mean_duration_within, percent, share,
};
use crate::render::{View, histogram};

/// Callers that get their own histogram and children, if not all do.
const DETAILED: usize = 3;
const BAR: usize = 20;

/// The calls from one caller: from one site, or from all sites of a function.
pub(super) struct CallerGroup<'a> {
    caller: Caller,
    sites: Vec<&'a CallerReport>,
}

impl CallerGroup<'_> {
    pub(super) fn calls(&self) -> u64 {
        self.sites.iter().map(|s| s.figures.latency.count).sum()
    }

    fn sum_ns(&self) -> u64 {
        self.sites.iter().map(|s| s.figures.latency.sum_ns).fold(0, u64::saturating_add)
    }

    /// Mean off-CPU time, if known.
    fn off_cpu_average(&self) -> Option<String> {
        let of_sites = self.sites.iter().map(|s| s.figures.off_cpu.as_ref().map(|off_cpu| off_cpu.sum_ns));
        let sum_ns = of_sites.sum::<Option<u64>>()?;
        Some(mean_duration(sum_ns as f64 / self.calls().max(1) as f64))
    }

    fn error_ns(&self) -> u64 {
        self.sites.iter().map(|s| s.figures.error.sum_ns).fold(0, u64::saturating_add)
    }

    /// Mean latency, without digits below its error.
    fn average(&self) -> String {
        let mean = |sum_ns: u64| sum_ns as f64 / self.calls().max(1) as f64;
        mean_duration_within(mean(self.sum_ns()), mean(self.error_ns()))
    }

    fn cpu_percent(&self) -> Option<f64> {
        if self.sites.iter().any(|site| site.figures.off_cpu.is_none()) {
            return None;
        }
        // Not `sum`: that of nothing is -0.0.
        let mut children = self.sites.iter().flat_map(|s| &s.figures.children);
        children.try_fold(0.0, |sum, child| Some(sum + child.cpu_percent?))
    }

    /// What its calls executed, if they were counted.
    fn executed(&self) -> Option<Counted> {
        let mut sum = Counted::default();
        self.sites.iter().try_for_each(|site| {
            sum.add(&site.figures.counters.as_ref()?.sum);
            Some(())
        })?;
        Some(sum)
    }

    /// The title in brackets, which names such as `[signal]` have already.
    fn bracketed(&self, view: &View<'_>) -> String {
        let title = self.title(view);
        if title.starts_with('[') { title } else { format!("[{title}]") }
    }

    /// Name, with the site if there is one.
    pub(super) fn title(&self, view: &View<'_>) -> String {
        let name = caller_name(view.names, self.caller);
        let jumped =
            if matches!(self.caller, Caller::Function { tail: true, .. }) { " (tail call)" } else { "" };
        match self.sites.as_slice() {
            [CallerReport { from: CalledFrom { site: Some(site), .. }, .. }] if view.unfold => {
                format!("{name}{jumped} at {}", view.names.site(*site))
            }
            [_] => format!("{name}{jumped}"),
            sites => format!("{name}{jumped} ({} sites)", sites.len()),
        }
    }

    /// The source line of its site, if there is one site; stands below its row.
    pub(super) fn notes(&self, view: &View<'_>) -> Vec<String> {
        let site = match self.sites.as_slice() {
            [caller] if view.srcline => caller.from.site,
            _ => None,
        };
        site.and_then(|site| children::line(view, site, 0)).into_iter().collect()
    }
}

pub(super) fn write(
    out: &mut dyn Write,
    view: &View<'_>,
    function: &FunctionReport,
    name: &str,
    width: usize,
) -> io::Result<()> {
    let groups = groups(&function.callers, view.unfold);
    if groups.is_empty() {
        return Ok(());
    }
    rule(out, '-', width)?;
    writeln!(out, "Callers of [{name}]")?;
    let is_nested = function.nested_calls() > 0;
    nested(out, is_nested, width)?;
    let listed = table(out, view, &groups, width)?;
    if groups.len() == 1 {
        return Ok(()); // it would only repeat the whole
    }
    let detailed = view.table_rows.details(DETAILED).min(listed);
    for group in groups.iter().take(detailed) {
        section(out, view, group, name, is_nested, width)?;
    }
    if let Some(rest) = groups.get(detailed..).filter(|rest| !rest.is_empty()) {
        let count = counted(rest.len() as u64, "more caller");
        writeln!(out, "\n  {count} without a section here; --all prints them")?;
    }
    Ok(())
}

/// Says that times count twice: which calls of a caller are inside of others is not known.
fn nested(out: &mut dyn Write, is_nested: bool, width: usize) -> io::Result<()> {
    if !is_nested {
        return Ok(());
    }
    let sentence = "calls inside another one count here, too: totals, CPU % and shares have their time again";
    write_sentence(out, sentence, (2, 4), width)
}

/// By function, or each site for itself; longest first.
pub(super) fn groups(callers: &[CallerReport], unfold: bool) -> Vec<CallerGroup<'_>> {
    let mut groups: Vec<CallerGroup<'_>> = if unfold {
        callers.iter().map(|c| CallerGroup { caller: c.from.caller, sites: vec![c] }).collect()
    } else {
        let mut by_caller: BTreeMap<Caller, Vec<&CallerReport>> = BTreeMap::new();
        for caller in callers {
            by_caller.entry(caller.from.caller).or_default().push(caller);
        }
        by_caller.into_iter().map(|(caller, sites)| CallerGroup { caller, sites }).collect()
    };
    groups.sort_by_key(|g| std::cmp::Reverse(g.sum_ns()));
    groups
}

/// Writes the table and returns the number of its rows.
fn table(
    out: &mut dyn Write,
    view: &View<'_>,
    groups: &[CallerGroup<'_>],
    width: usize,
) -> io::Result<usize> {
    let off_cpu = view.report.trace.no_off_cpu.is_none();
    let whole = groups.iter().map(CallerGroup::sum_ns).fold(0, u64::saturating_add);
    let most = groups.iter().map(CallerGroup::sum_ns).max().unwrap_or(0);
    let mut titles = vec![("called from", Align::Left), ("average", Align::Right), ("count", Align::Right)];
    if off_cpu {
        titles.extend([("off-CPU avg", Align::Right), ("CPU %", Align::Right)]);
    }
    let of_kernel = groups.iter().any(|group| group.executed().is_some_and(|of| of.is_of_kernel()));
    if groups.iter().any(|group| group.executed().is_some()) {
        titles.extend(counters::titles(of_kernel));
    }
    titles.extend([("total", Align::Right), ("share %", Align::Right), ("of the total", Align::Bar)]);
    let mut table = Table::new(&titles);
    let (groups, left_out) = view.table_rows.split(groups, CallerGroup::sum_ns, whole);
    for group in groups {
        let mut cells = vec![group.title(view), group.average(), grouped(group.calls())];
        cells.extend(group.off_cpu_average());
        cells.extend(group.cpu_percent().map(percent));
        cells.extend(group.executed().iter().flat_map(|sum| counters::cells(sum, group.calls(), of_kernel)));
        cells.extend([
            duration(group.sum_ns()),
            percent(share(group.sum_ns(), whole)),
            bar(group.sum_ns(), most, BAR),
        ]);
        table.row_with_notes(cells, &group.notes(view));
    }
    table.write(out, width)?;
    left_out.write(out, "the time")?;
    Ok(groups.len())
}

fn section(
    out: &mut dyn Write,
    view: &View<'_>,
    group: &CallerGroup<'_>,
    name: &str,
    is_nested: bool,
    width: usize,
) -> io::Result<()> {
    rule(out, '=', width)?;
    writeln!(out, "Latency of [{name}]\n  called from {}", group.bracketed(view))?;
    for note in group.notes(view) {
        writeln!(out, "      {}", printable(&note))?;
    }
    let buckets = histogram::merged(group.sites.iter().map(|s| s.figures.histogram.as_slice()));
    let shorter = group.sites.iter().map(|s| s.figures.error.shorter).fold(0, u64::saturating_add);
    uncertain::histogram(out, shorter, group.calls())?;
    match view.by {
        Some(metric) => {
            counters::histogram(out, group.sites.iter().map(|site| site.figures.counters.as_ref()), metric)?;
        }
        None => histogram::write(out, &buckets)?,
    }
    writeln!(out)?;
    match group.sites.as_slice() {
        [site] => Figures { of: &site.figures, tails: None, outermost: None }.write(out, width)?,
        sites => several_sites(out, sites, group)?,
    }
    if let Some(cpu_percent) = group.cpu_percent() {
        writeln!(out, "  CPU percent: {} %", percent(cpu_percent))?;
    }
    nested(out, is_nested, width)?;
    let rows: Vec<ChildRow> = group.sites.iter().flat_map(|s| &s.figures.children).copied().collect();
    if rows.is_empty() {
        return Ok(());
    }
    rule(out, '-', width)?;
    writeln!(out, "Children of [{name}]\n  called from {}", group.bracketed(view))?;
    children::write(out, view, &rows, None, width)
}

/// Percentiles of several sets cannot be had from the percentiles of each: these figures can.
fn several_sites(out: &mut dyn Write, sites: &[&CallerReport], group: &CallerGroup<'_>) -> io::Result<()> {
    // The least (most) of all is that of one of the sites, and so are its bounds.
    let least = |of: fn(&CallerReport) -> Option<u64>| sites.iter().filter_map(|s| of(s)).min().unwrap_or(0);
    let most = |of: fn(&CallerReport) -> Option<u64>| sites.iter().filter_map(|s| of(s)).max().unwrap_or(0);
    let within = |ns: u64, low: u64, high: u64| {
        duration_within(ns, ns.saturating_sub(low).max(high.saturating_sub(ns)))
    };
    let min = least(|s| s.figures.latency.spread.as_ref().map(|spread| spread.min_ns));
    let max = most(|s| s.figures.latency.spread.as_ref().map(|spread| spread.max_ns));
    let off_cpu = group.off_cpu_average().map(|average| format!(", off-CPU average: {average}"));
    writeln!(
        out,
        "  count: {}, average: {}, min: {}, max: {}{} (percentiles of each site: -U)",
        grouped(group.calls()),
        group.average(),
        within(min, least(|s| s.figures.error.low.min_ns), least(|s| s.figures.error.high.min_ns)),
        within(max, most(|s| s.figures.error.low.max_ns), most(|s| s.figures.error.high.max_ns)),
        off_cpu.unwrap_or_default()
    )
}
