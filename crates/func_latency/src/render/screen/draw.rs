//! The view's state, as cells of a screen.
//!
//! ```text
//! row_search_mvcc  14.2 s  the interval                 heading
//! calls/s  mean  p50 ...                                figures
//!   heat map                            | histogram
//! children                   | callers
//! slow calls
//! message
//! keys
//! ```

use std::ops::Range;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::figures::{FunctionFigures, ListedCall, TimeRow};
use super::heat;
use super::state::{CallText, ShownSpan, SideTable, State, WatchPhase};
use crate::render::interval::SeenBy;
use crate::render::units::{duration, grouped, mean_duration, percent, share, size};

/// Less than this cannot be read.
const LEAST: (u16, u16) = (60, 16);

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, state: &State, has_colours: bool) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("{} x {} at least; q ends the watch", LEAST.0, LEAST.1);
        frame.render_widget(Line::raw(text), area);
        return;
    }
    match &state.opened {
        Some(opened) => draw_opened(frame, area, opened, state),
        None => draw_watch(frame, area, state, has_colours),
    }
}

/// The map needs no more rows: latencies differ by less than so many powers of two.
const MAP_MAX: u16 = 24;
/// Children and callers beyond these are of no weight.
const SIDES_MAX: u16 = 13;

fn strong() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

fn draw_watch(frame: &mut Frame<'_>, area: Rect, state: &State, has_colours: bool) {
    // Of what the fixed lines leave the map has a half, the tables a quarter each, if they need that much.
    let rest = area.height - 5;
    let map = (rest / 2).min(MAP_MAX);
    let sides = ((rest - map) / 2).min(SIDES_MAX);
    let heights = [1, 2, map, sides, rest - map - sides, 1, 1].map(Constraint::Length);
    let [head, figures, map, sides, slow, message, keys] = Layout::vertical(heights).areas(area);
    draw_head(frame, head, state);
    draw_figures(frame, figures, state);
    heat::draw(frame, map, state, has_colours);
    draw_sides(frame, sides, state);
    draw_slow(frame, slow, state);
    frame.render_widget(Line::raw(fitting(&state.message, message.width)), message);
    let next = if state.latest.functions.len() > 1 { "  tab function" } else { "" };
    let text = format!("q end  space pause  a all{next}  c waits  up/down  enter tree  w page");
    frame.render_widget(Line::styled(fitting(&text, area.width), reversed()), keys);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let name = state.latest.functions.get(state.function).map_or("", |function| &function.name);
    let of = match state.latest.functions.len() {
        0 | 1 => String::new(),
        all => format!(" ({} of {all})", state.function + 1),
    };
    let span = match state.span {
        ShownSpan::Interval => format!("the last {}", duration(state.latest.interval_ns)),
        ShownSpan::All => "all calls so far".to_owned(),
    };
    let phase = match state.phase {
        WatchPhase::Ended => "ended".to_owned(),
        WatchPhase::Running if state.is_paused() => {
            format!("paused, {} intervals wait", state.held_intervals())
        }
        WatchPhase::Running => String::new(),
    };
    let right = format!("{span}, watched for {}  {phase}", duration(state.watched_ns()));
    draw_two(frame, area, &format!("{name}{of}"), right.trim_end());
}

/// A line with text at both ends: the left one is cut where there is no room for both.
fn draw_two(frame: &mut Frame<'_>, area: Rect, left: &str, right: &str) {
    let right_width = u16::try_from(Line::raw(right).width()).unwrap_or(area.width).min(area.width);
    let left = fitting(left, area.width.saturating_sub(right_width + 2));
    frame.render_widget(Line::styled(left, strong()), area);
    frame.render_widget(Line::raw(right).right_aligned(), area);
}

fn draw_figures(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let latest = &state.latest;
    let seconds = match state.span {
        ShownSpan::Interval => latest.interval_ns,
        ShownSpan::All => state.watched_ns(),
    } as f64
        / 1e9;
    let none = || "-".to_owned();
    let shown = state.shown();
    let latency = shown.and_then(|function| function.latency.as_ref());
    let spread = latency.and_then(|latency| latency.spread.as_ref());
    let of = |pick: fn(&analyzer::Spread) -> u64| spread.map_or_else(none, |spread| duration(pick(spread)));
    let calls = shown.map_or(0, |function| function.calls);
    let text = format!(
        "{} calls/s  mean {}  p50 {}  p90 {}  p99 {}  max {}",
        grouped((calls as f64 / seconds.max(1e-9)) as u64),
        spread.map_or_else(none, |spread| mean_duration(spread.mean_ns)),
        of(|spread| spread.p50_ns),
        of(|spread| spread.p90_ns),
        of(|spread| spread.p99_ns),
        of(|spread| spread.max_ns),
    );
    frame.render_widget(Line::raw(fitting(&text, area.width)), Rect { height: 1, ..area });
    let off_cpu = shown.and_then(|function| function.off_cpu);
    let off_cpu = off_cpu.map_or_else(none, |share| format!("{} %", percent(share)));
    let lost = duration(latest.lost_ns);
    let text = match latest.seen_by {
        SeenBy::Trace(trace) => format!(
            "off-CPU {off_cpu}  trace {}/s  lost {lost}  behind {}{}",
            size(trace.rate(latest.interval_ns)),
            duration(trace.behind_ns),
            trace.left_undecoded().unwrap_or_default()
        ),
        SeenBy::Probes { cost_percent } => format!(
            "off-CPU {off_cpu}  p50 +- {}  lost {lost}  probes cost {} % CPU time",
            shown.and_then(|function| function.error_ns).map_or_else(none, duration),
            percent(cost_percent)
        ),
    };
    let second = Rect { y: area.y + 1, height: 1, ..area };
    frame.render_widget(Line::raw(fitting(&text, area.width)), second);
}

/// The least columns of a table beside two others.
const TABLE_MIN: u16 = 44;

/// Children, callers, waits and wakers, side by side as far as there is room.
fn draw_sides(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let none = FunctionFigures::default();
    let shown = state.shown().unwrap_or(&none);
    let inside = ("inside", &shown.children);
    let (callers, waits, wakers) =
        (("called from", &shown.callers), ("waited for", &shown.waits), ("woken by", &shown.wakers));
    let tables = match (area.width / TABLE_MIN, state.side) {
        (4.., _) => vec![inside, callers, waits, wakers],
        (3, SideTable::Wakers) => vec![inside, waits, wakers],
        (3, _) => vec![inside, callers, waits],
        (_, SideTable::Callers) => vec![inside, callers],
        (_, SideTable::Waits) => vec![inside, waits],
        (_, SideTable::Wakers) => vec![inside, wakers],
    };
    let places = Layout::horizontal(tables.iter().map(|_| Constraint::Fill(1))).spacing(2).split(area);
    for ((title, rows), place) in tables.into_iter().zip(places.iter()) {
        draw_rows(frame, *place, title, rows);
    }
}

/// Columns of a row's numbers: share, mean, count.
const NUMBERS: u16 = 6 + 9 + 11;

fn draw_rows(frame: &mut Frame<'_>, area: Rect, title: &str, rows: &[TimeRow]) {
    let names = area.width.saturating_sub(NUMBERS);
    let line = |name: &str, [share, mean, count]: [String; 3]| {
        let name = fitting(name, names);
        let padding = usize::from(names).saturating_sub(Line::raw(&*name).width());
        format!("{name}{:padding$}{share:>6}{mean:>9}{count:>11}", "")
    };
    let titles = ["%", "average", "count"].map(str::to_owned);
    frame.render_widget(Line::styled(line(title, titles), strong()), Rect { height: 1, ..area });
    let whole = rows.iter().map(|row| row.sum_ns).fold(0, u64::saturating_add);
    for (row, place) in rows.iter().zip(below_title(area)) {
        let mean = mean_duration(row.sum_ns as f64 / row.count.max(1) as f64);
        let numbers = [percent(share(row.sum_ns, whole)), mean, grouped(row.count)];
        frame.render_widget(Line::raw(line(&row.name, numbers)), place);
    }
}

/// The slowest calls of the last minutes: those around the selected one.
fn draw_slow(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let title = "slowest of 5 minutes   thread       ago   captured";
    frame.render_widget(Line::styled(fitting(title, area.width), strong()), Rect { height: 1, ..area });
    let calls: Vec<&ListedCall> = state.slow_calls().collect();
    let visible = visible(state.selected(), calls.len(), usize::from(area.height.saturating_sub(1)));
    for (at, place) in visible.zip(below_title(area)) {
        let Some(call) = calls.get(at) else { continue };
        let ago = duration(state.latest.time_ns.saturating_sub(call.end_ns()));
        let capture = state.capture_of(call);
        let why =
            capture.map_or_else(String::new, |capture| format!("{}: {}", capture.trigger, capture.cause));
        let text = format!("{:>20} {:>8} {ago:>9}   {why}", duration(call.latency_ns), call.tid);
        let style = if at == state.selected() { reversed() } else { Style::new() };
        frame.render_widget(Line::styled(fitting(&text, area.width), style), place);
    }
}

/// Which of `all` rows are seen where `room` are, with the selected one among them.
fn visible(selected: usize, all: usize, room: usize) -> Range<usize> {
    let first = (selected + 1).saturating_sub(room);
    first..all.min(first + room)
}

/// The lines below the first one.
fn below_title(area: Rect) -> impl Iterator<Item = Rect> {
    (1..area.height).map(move |row| Rect { y: area.y + row, height: 1, ..area })
}

fn draw_opened(frame: &mut Frame<'_>, area: Rect, opened: &CallText, state: &State) {
    let heights = [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1), Constraint::Length(1)];
    let [head, text, message, keys] = Layout::vertical(heights).areas(area);
    let last = opened.lines.len().min(opened.top + usize::from(text.height));
    let seen = format!("lines {} to {last} of {}", opened.top + 1, opened.lines.len());
    draw_two(frame, head, &opened.path, &seen);
    for (line, row) in opened.lines.iter().skip(opened.top).zip(0..text.height) {
        let place = Rect { y: text.y + row, height: 1, ..text };
        frame.render_widget(Line::raw(fitting(line, text.width)), place);
    }
    frame.render_widget(Line::raw(fitting(&state.message, message.width)), message);
    let text = "escape back  up/down scroll  w page  q end";
    frame.render_widget(Line::styled(fitting(text, area.width), reversed()), keys);
}

/// Cuts a text to the part that fits, and ends it with `..` where some does not.
fn fitting(text: &str, width: u16) -> String {
    let width = usize::from(width);
    if Line::raw(text).width() <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    for character in text.chars() {
        cut.push(character);
        if Line::raw(&*cut).width() + 2 > width {
            cut.pop();
            break;
        }
    }
    format!("{cut}..")
}
