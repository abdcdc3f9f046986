//! The figures of a set of calls: average, extremes, percentiles.

use std::io::{self, Write};

use analyzer::{CallFigures, OutermostCalls, Quantiles, Spread, Stats, Tails};

use crate::render::table::{Align, Table};
use crate::render::units::{
    counted, duration, duration_within, grouped, mean_duration, mean_duration_within, percent, share,
};

/// The figures of a set of calls: average, extremes, percentiles.
pub(super) struct Figures<'r> {
    pub(super) of: &'r CallFigures,
    /// What they may be with the calls that were not seen to end, if there are some.
    pub(super) tails: Option<&'r Tails>,
    /// The calls that are inside of no other one, where some are.
    pub(super) outermost: Option<OutermostCalls>,
}

/// Off-CPU time of a set of calls.
#[derive(Clone, Copy)]
pub(super) struct OffCpuFigures<'r> {
    stats: &'r Stats,
    /// Calls that were off the CPU at all.
    pub(super) calls: u64,
}

impl<'r> OffCpuFigures<'r> {
    pub(super) fn of(figures: &'r CallFigures) -> Option<Self> {
        let calls = figures.histogram.iter().filter_map(|bucket| bucket.off_cpu_count).sum();
        figures.off_cpu.as_ref().map(|stats| Self { stats, calls })
    }
}

/// One of the figures, in each of the places that have it.
pub(in crate::render) struct Figure {
    name: &'static str,
    /// With fewer calls it is the same as another one.
    pub(in crate::render) least_calls: u64,
    of_spread: fn(&Spread) -> u64,
    of: fn(&Quantiles) -> Option<u64>,
}

const MIN: Figure = Figure { name: "min", least_calls: 1, of_spread: |s| s.min_ns, of: |q| q.min_ns };
pub(super) const P50: Figure =
    Figure { name: "p50", least_calls: 1, of_spread: |s| s.p50_ns, of: |q| q.p50_ns };
pub(in crate::render) const P90: Figure =
    Figure { name: "p90", least_calls: 10, of_spread: |s| s.p90_ns, of: |q| q.p90_ns };
pub(in crate::render) const P99: Figure =
    Figure { name: "p99", least_calls: 100, of_spread: |s| s.p99_ns, of: |q| q.p99_ns };
const P999: Figure = Figure { name: "p99.9", least_calls: 1000, of_spread: |s| s.p999_ns, of: |q| q.p999_ns };
pub(super) const MAX: Figure =
    Figure { name: "max", least_calls: 1, of_spread: |s| s.max_ns, of: |q| q.max_ns };

const FIGURES: [Figure; 6] = [MIN, P50, P90, P99, P999, MAX];

impl Figures<'_> {
    /// Writes them rounded to what is known, and as they were measured, with how far off they may be; nothing
    /// where no call has ended.
    pub(super) fn write(&self, out: &mut dyn Write, width: usize) -> io::Result<()> {
        let Some(spread) = &self.of.latency.spread else {
            return Ok(());
        };
        let right = |title| (title, Align::Right);
        let mut titles = vec![("", Align::Left), right("latency"), right("in ns"), right("+- ns")];
        let tails = self.tails.filter(|_| self.tails_change_figures(spread));
        if tails.is_some() {
            titles.push(right("with open calls"));
        }
        let off_spread = self.of.off_cpu.as_ref().and_then(|off_cpu| off_cpu.spread.as_ref());
        if off_spread.is_some() {
            titles.extend([right("off-CPU"), right("in ns")]);
        }
        let mut table = Table::new(&titles);
        let mut average = self.average(spread);
        average.extend(tails.map(|_| String::new()));
        if let Some(off_cpu) = off_spread {
            average.extend([mean_duration(off_cpu.mean_ns), exact_mean(off_cpu.mean_ns)]);
        }
        table.row(average);
        for figure in self.figures() {
            let (ns, error_ns) = self.within(spread, figure);
            let mut cells = vec![figure.name.to_owned(), duration_within(ns, error_ns)];
            cells.extend(exactly(grouped(ns), grouped(error_ns), error_ns < ns || error_ns == 0));
            cells.extend(tails.map(|tails| with_open_calls(figure, tails)));
            if let Some(off_cpu) = off_spread {
                let ns = (figure.of_spread)(off_cpu);
                cells.extend([duration(ns), grouped(ns)]);
            }
            table.row(cells);
        }
        table.write(out, width)?;
        self.totals(out)?;
        self.tails.map_or(Ok(()), |all| tails_note(out, all, tails.is_some()))
    }

    /// The figures that there are enough calls for.
    fn figures(&self) -> impl Iterator<Item = &'static Figure> + '_ {
        FIGURES.iter().filter(|figure| figure.least_calls <= self.of.latency.count)
    }

    /// A figure, and how far off it may be.
    fn within(&self, spread: &Spread, figure: &Figure) -> (u64, u64) {
        let ns = (figure.of_spread)(spread);
        (ns, self.of.error.of(ns, figure.of))
    }

    /// A figure for a sentence: between its bounds, where these are not close.
    pub(super) fn brief(&self, figure: &Figure) -> Option<String> {
        let spread = self.of.latency.spread.as_ref()?;
        if let Some(tails) = self.tails.filter(|_| self.is_changed(spread, figure)) {
            return Some(with_open_calls(figure, tails));
        }
        let (ns, error_ns) = self.within(spread, figure);
        if error_ns <= ns / 10 || error_ns >= ns {
            return Some(duration_within(ns, error_ns));
        }
        let bound = |of: &Quantiles| (figure.of)(of).unwrap_or(ns);
        Some(format!("{} to {}", duration(bound(&self.of.error.low)), duration(bound(&self.of.error.high))))
    }

    /// Open calls may move a figure by more than its error. The longest of all calls they always may.
    fn tails_change_figures(&self, spread: &Spread) -> bool {
        self.figures().filter(|figure| figure.name != MAX.name).any(|figure| self.is_changed(spread, figure))
    }

    fn is_changed(&self, spread: &Spread, figure: &Figure) -> bool {
        let (ns, error_ns) = self.within(spread, figure);
        self.tails.is_some_and(|tails| {
            let is_below = (figure.of)(&tails.at_least).is_some_and(|low| low < ns.saturating_sub(error_ns));
            let is_above = (figure.of)(&tails.at_most).is_none_or(|high| high > ns.saturating_add(error_ns));
            is_below || is_above
        })
    }

    fn average(&self, spread: &Spread) -> Vec<String> {
        let error_ns = self.of.error.sum_ns as f64 / self.of.latency.count as f64;
        let rounded = mean_duration_within(spread.mean_ns, error_ns);
        let mut cells = vec!["average".to_owned(), rounded];
        let is_number = error_ns.round() < spread.mean_ns.round() || error_ns < 1.0;
        cells.extend(exactly(exact_mean(spread.mean_ns), exact_mean(error_ns), is_number));
        cells
    }

    fn totals(&self, out: &mut dyn Write) -> io::Result<()> {
        let latency = &self.of.latency;
        let (sum_ns, error_ns) = match self.outermost {
            Some(outermost) => (outermost.total.sum_ns, outermost.error_ns),
            None => (latency.sum_ns, self.of.error.sum_ns),
        };
        let total = duration_within(sum_ns, error_ns);
        write!(out, "  count: {}, total: {total}", grouped(latency.count))?;
        match OffCpuFigures::of(self.of) {
            Some(OffCpuFigures { stats, calls }) => writeln!(
                out,
                ", off-CPU: {} ({} % of calls), total {}",
                grouped(calls),
                percent(share(calls, latency.count)),
                duration(
                    self.outermost.and_then(|outermost| outermost.total.off_cpu_ns).unwrap_or(stats.sum_ns)
                )
            ),
            None => writeln!(out),
        }
    }
}

/// A figure and its error; where it is less than that, nothing is known of it but that it is below what
/// stands before these.
fn exactly(figure: String, error: String, is_number: bool) -> [String; 2] {
    if is_number { [figure, error] } else { [String::new(), String::new()] }
}

/// Between what a figure is if calls of unknown length are counted, too.
fn with_open_calls(figure: &Figure, tails: &Tails) -> String {
    let [low, high] = [&tails.at_least, &tails.at_most].map(|tail| (figure.of)(tail).map(duration));
    match (low, high) {
        (Some(low), Some(high)) if low == high => low,
        (Some(low), Some(high)) => format!("{low} to {high}"),
        (Some(low), None) => format!("{low} or more"),
        (None, _) => String::new(),
    }
}

/// `1,234.5`.
fn exact_mean(mean_ns: f64) -> String {
    let tenths = (mean_ns * 10.0).round() as u64; // saturates
    format!("{}.{}", grouped(tenths / 10), tenths % 10)
}

/// What the column says, or that there is no need of one.
fn tails_note(out: &mut dyn Write, tails: &Tails, has_column: bool) -> io::Result<()> {
    let calls = counted(tails.calls, "call");
    if !has_column {
        let max = with_open_calls(&MAX, tails);
        return writeln!(
            out,
            "  with the {calls} not seen to end: max {max}, the other figures within their errors"
        );
    }
    writeln!(
        out,
        "  with open calls: the figure with the {calls} not seen to end, if each took its \"at least\" up to if each was\n  \
         the longest of all; \"or more\": unknown, above the longest that was seen to end"
    )
}
