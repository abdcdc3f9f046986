//! Latencies over time: a column for each interval, a row for each power of two; and beside it the histogram
//! of what is shown, in the same rows.
//!
//! ```text
//!    512 us .                  |            3
//!    256 us :  .  .            | *         41
//!    128 us #::#::#::::        | ********* 900
//!           older        newer
//! ```

use analyzer::Bucket;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use super::state::State;
use crate::render::table::bar;
use crate::render::units::{duration, grouped};

/// Columns of the latencies on the left.
const AXIS: u16 = 8;
/// Columns of the histogram on the right: a bar and a number.
const HISTOGRAM: u16 = 28;
/// Columns of a bar's number.
const NUMBER: usize = 12;

/// From few calls to many, without colours.
const SHADES: [char; 4] = ['.', ':', '*', '#'];
/// From few calls to many, of the 256 colours of xterm: dark blue, green, yellow, red.
const COLOURS: [u8; 8] = [18, 25, 31, 36, 71, 142, 214, 202];

/// Powers of two that one row has: as few as the rows allow.
struct LatencyRows {
    /// The exponent just above the topmost row.
    top: u32,
    /// Powers of two in a row.
    step: u32,
    number: u16,
}

impl LatencyRows {
    /// `None`: there was no call.
    fn of<'a>(buckets: impl Iterator<Item = &'a Bucket>, rows: u16) -> Option<Self> {
        let exponents = buckets.filter(|bucket| bucket.count > 0).map(exponent);
        let (low, high) = exponents.fold((u32::MAX, 0), |(low, high), at| (low.min(at), high.max(at)));
        let powers = (high + 1).checked_sub(low)?;
        let step = powers.div_ceil(u32::from(rows.max(1))).max(1);
        let number = u16::try_from(powers.div_ceil(step)).unwrap_or(rows).min(rows);
        Some(Self { top: low + step * u32::from(number), step, number })
    }

    /// The row of a bucket, from the top.
    fn of_bucket(&self, bucket: &Bucket) -> usize {
        ((self.top - 1).saturating_sub(exponent(bucket)) / self.step) as usize
    }

    /// The calls in each row.
    fn counts(&self, buckets: &[Bucket]) -> Vec<u64> {
        let mut counts = vec![0; usize::from(self.number)];
        for bucket in buckets {
            if let Some(count) = counts.get_mut(self.of_bucket(bucket)) {
                *count += bucket.count;
            }
        }
        counts
    }

    /// The smallest latency of a row.
    fn low_ns(&self, row: u16) -> u64 {
        let exponent = self.top.saturating_sub(self.step * (u32::from(row) + 1));
        if exponent == 0 { 0 } else { 1 << (exponent - 1).min(u64::BITS - 1) }
    }
}

/// 0 for 0 ns, n + 1 for 2^n ns.
fn exponent(bucket: &Bucket) -> u32 {
    u64::BITS - bucket.low_ns.leading_zeros()
}

/// Draws both.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, has_colours: bool) {
    let width = usize::from(area.width.saturating_sub(AXIS + 1 + HISTOGRAM));
    let newest = state.columns.iter().skip(state.columns.len().saturating_sub(width));
    let columns: Vec<&[Bucket]> =
        newest.map(|column| column.get(state.function).map_or(&[][..], Vec::as_slice)).collect();
    let shown = state.shown().map_or(&[][..], |function| &function.histogram);
    let Some(rows) = LatencyRows::of(columns.iter().copied().flatten().chain(shown), area.height) else {
        frame.render_widget(Line::raw("no call has ended yet"), area);
        return;
    };
    let counts: Vec<Vec<u64>> = columns.iter().map(|buckets| rows.counts(buckets)).collect();
    let most = counts.iter().flatten().copied().max().unwrap_or_default();
    let of_shown = rows.counts(shown);
    let most_shown = of_shown.iter().copied().max().unwrap_or_default();
    // The newest column is always at the right.
    let indent = width - columns.len();
    for row in 0..rows.number {
        let mut spans =
            vec![Span::raw(format!("{:>width$} ", duration(rows.low_ns(row)), width = usize::from(AXIS)))];
        spans.push(Span::raw(" ".repeat(indent)));
        let cell = |column: &Vec<u64>| {
            cell(column.get(usize::from(row)).copied().unwrap_or_default(), most, has_colours)
        };
        spans.extend(counts.iter().map(cell));
        let count = of_shown.get(usize::from(row)).copied().unwrap_or_default();
        let bar = bar(count, most_shown, usize::from(HISTOGRAM) - NUMBER - 3);
        let number = if count == 0 { String::new() } else { grouped(count) };
        spans.push(Span::raw(format!("{bar} {number:>NUMBER$}")));
        let line = Rect { y: area.y + row, height: 1, ..area };
        frame.render_widget(Line::from(spans), line);
    }
}

/// One cell: by the logarithm of its calls, as one slow call is to be seen beside a million.
fn cell(count: u64, most: u64, has_colours: bool) -> Span<'static> {
    if count == 0 {
        return Span::raw(" ");
    }
    let share = f64::from(count.ilog2() + 1) / f64::from(most.max(1).ilog2() + 1);
    let level = |levels: usize| ((share * levels as f64).ceil() as usize).clamp(1, levels) - 1;
    if has_colours {
        let colour = COLOURS.get(level(COLOURS.len())).copied().unwrap_or_default();
        return Span::styled(" ", Style::new().bg(Color::Indexed(colour)));
    }
    Span::raw(SHADES.get(level(SHADES.len())).copied().unwrap_or(' ').to_string())
}
