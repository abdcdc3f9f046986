//! One plot: the calls of a thread, or of several together.

use std::io::{self, Write};

use analyzer::CallRow;

use super::TimelineStyle;
use super::axis::{LatencyAxis, TimeAxis};
use super::canvas::{Canvas, Ink};
use super::outliers::is_outlier;

/// Lines of a plot.
pub(super) const LINES: usize = 11;

/// Columns of the text beside the axis, with the axis.
const MARGIN: usize = 10;

/// Columns from one time to the next.
const TICKS_APART: usize = 16;

/// What all plots of a function have in common, so that they can be compared.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    columns: usize,
    latency: LatencyAxis,
    time: TimeAxis,
    /// Calls from this latency on are among the slowest.
    outlier_ns: u64,
    /// Calls that are drawn as one: the least, the median and the most of them.
    bin_calls: usize,
}

impl Frame {
    /// For these calls, from and to these instants.
    pub(super) fn new(rows: &[CallRow], span: (u64, u64), outlier_ns: u64, style: &TimelineStyle) -> Self {
        let columns = style.width.saturating_sub(MARGIN).max(1);
        let (across, down) = Canvas::dots(columns, LINES);
        Self {
            columns,
            latency: LatencyAxis::around(rows.iter().map(|row| row.latency_ns), down),
            time: TimeAxis::new(span.0, span.1, across),
            outlier_ns,
            bin_calls: style.bin_calls,
        }
    }

    /// Draws calls: those of a thread together, in the order of their start.
    pub(super) fn write(&self, out: &mut dyn Write, rows: &[&CallRow], colour: bool) -> io::Result<()> {
        let mut canvas = Canvas::new(self.columns, LINES);
        let counted: Vec<&CallRow> = rows.iter().copied().filter(|row| row.end.status.counted()).collect();
        if self.bin_calls > 1 {
            let by_thread = counted.chunk_by(|a, b| a.id.tid == b.id.tid);
            by_thread
                .flat_map(|calls| calls.chunks(self.bin_calls))
                .for_each(|bin| self.draw_bin(&mut canvas, bin));
        } else {
            let ink = |row| if is_outlier(row, self.outlier_ns) { Ink::Outlier } else { Ink::Call };
            counted.iter().for_each(|row| self.draw(&mut canvas, row, row.latency_ns, ink(row)));
        }
        for row in rows.iter().filter(|row| !row.end.status.counted()) {
            self.draw(&mut canvas, row, row.latency_ns, Ink::Open);
        }
        let mut labels = vec![String::new(); LINES];
        for (y, text) in self.latency.ticks() {
            if let Some(label) = labels.get_mut(Canvas::line_of(y)) {
                *label = text;
            }
        }
        for (label, line) in labels.iter().zip(canvas.lines(colour)) {
            let axis = if label.is_empty() { '│' } else { '┤' };
            writeln!(out, "{label:>width$} {axis}{line}", width = MARGIN - 2)?;
        }
        self.write_times(out)
    }

    /// Its least, its median and its most, where its first call began.
    fn draw_bin(&self, canvas: &mut Canvas, bin: &[&CallRow]) {
        let Some(first) = bin.first() else { return };
        let mut latencies: Vec<u64> = bin.iter().map(|row| row.latency_ns).collect();
        latencies.sort_unstable();
        // The smallest that half of the calls do not exceed, as everywhere in the report.
        let median = latencies.get((latencies.len() - 1) / 2);
        let ends = [latencies.first(), latencies.last()].into_iter().flatten();
        ends.for_each(|ns| self.draw(canvas, first, *ns, Ink::Call));
        median.iter().for_each(|ns| self.draw(canvas, first, **ns, Ink::Median));
    }

    fn draw(&self, canvas: &mut Canvas, row: &CallRow, latency_ns: u64, ink: Ink) {
        // A call that began before the axis does is drawn at its begin.
        let start = row.start_ns.0.clamp(self.time.from_ns, self.time.to_ns);
        if let Some(x) = self.time.x(start) {
            canvas.draw(x, self.latency.y(latency_ns), ink);
        }
    }

    fn write_times(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut axis = vec!['─'; self.columns];
        let mut texts = String::new();
        for (x, text) in self.time.ticks(2 * TICKS_APART) {
            let column = x / 2;
            // The last one may be too near to the edge.
            if column + text.len() > self.columns {
                continue;
            }
            axis.iter_mut().skip(column).take(1).for_each(|c| *c = '┬');
            texts = format!("{texts:<column$}{text}");
        }
        let axis: String = axis.into_iter().collect();
        writeln!(out, "{:>width$}└{axis}", "", width = MARGIN - 1)?;
        writeln!(out, "{:>MARGIN$}{texts}", "")
    }
}
