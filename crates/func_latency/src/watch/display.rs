//! Where the figures and the captures of a watch are told: lines, JSON objects, or the view on a terminal.

use std::io::{Write as _, stdout};
use std::sync::Arc;
use std::time::{Duration, Instant};

use analyzer::FunctionReport;
use anyhow::{Context as _, Result};
use image::Image;
use recorder::Interrupts;

use super::lines::LineWriter;
use super::screen::{Screen, Update};
use super::triggers::Hit;
use crate::args::Format;
use crate::bundle_dir::Capture;
use crate::messages;
use crate::printable::printable;
use crate::render::image_names::ImageNames;
use crate::render::interval::{self, Interval, json};
use crate::render::names::file_name;
use crate::render::screen::figures::{FunctionFigures, IntervalFigures, ListedCall};
use crate::render::screen::state::{KnownCapture, Wish};
use crate::render::units::duration;
use crate::target::Wanted;

/// Figures of all calls so far are made anew no more often: of many calls they take longer than a part.
const TOTAL_EACH: Duration = Duration::from_millis(250);
/// They take no more than one part in this number of the time.
const TOTAL_SHARE: u32 = 20;

/// The calls that a watch has seen.
pub(super) trait SeenCalls {
    /// The code that runs; `None`: it is not known yet.
    fn image(&self) -> Option<&Image>;

    /// The functions that are watched, as far as they are found.
    fn wanted(&self) -> &[Wanted];

    /// The figures of all calls so far, by watched function.
    fn total_figures(&self) -> Vec<FunctionReport>;
}

/// Where a watch tells what it sees.
pub(super) enum Display {
    /// A line for each interval.
    Lines { lines: LineWriter, has_head: bool },
    /// An object for each interval.
    Json(LineWriter),
    /// A view that is drawn anew; figures of all calls so far not before `total_at`.
    Screen { screen: Screen, total_at: Option<Instant> },
    /// A view that was left: only the report is to come.
    Closed,
}

impl Display {
    /// `on_screen`: the terminal is to be taken.
    ///
    /// # Errors
    /// It cannot be.
    pub(super) fn new(format: Format, on_screen: bool) -> Result<Self> {
        Ok(match format {
            Format::Text if on_screen => Self::Screen { screen: Screen::open()?, total_at: None },
            Format::Text => Self::Lines { lines: LineWriter::new(), has_head: false },
            Format::Json => Self::Json(LineWriter::new()),
        })
    }

    /// When its view was left, signals end this process: what the watch still does may take long.
    pub(super) fn let_go_when_left(&self, interrupts: &Arc<Interrupts>) {
        if let Self::Screen { screen, .. } = self {
            screen.show(Update::LetGoWhenLeft(Arc::clone(interrupts)));
        }
    }

    /// Tells the figures of an interval.
    ///
    /// # Errors
    /// Stdout takes no more.
    pub(super) fn interval(
        &mut self,
        interval: &Interval<'_>,
        slowest: &[Hit],
        seen: &dyn SeenCalls,
    ) -> Result<()> {
        let mut text = Vec::new();
        let (lines, written) = match self {
            Self::Screen { screen, total_at } => {
                let now = Instant::now();
                let wants_total = total_at.is_none_or(|at| at <= now);
                let figures = figures(interval, slowest, seen, wants_total);
                if wants_total {
                    *total_at = Some(now + TOTAL_EACH.max(now.elapsed() * TOTAL_SHARE));
                }
                screen.show(Update::Interval(Box::new(figures)));
                return Ok(());
            }
            Self::Closed => return Ok(()),
            Self::Json(lines) => (lines, json::write(&mut text, interval)),
            Self::Lines { lines, has_head } => {
                let head =
                    if *has_head { Ok(()) } else { interval::write_head(&mut text, &interval.seen_by) };
                *has_head = true;
                (lines, head.and_then(|()| interval::write(&mut text, interval)))
            }
        };
        written.and_then(|()| lines.take(text)).context("cannot write to stdout")
    }

    /// Says that a capture is there.
    pub(super) fn captured(&mut self, capture: &Capture) {
        let Capture { path, trigger, function, tid, latency_ns, cause, .. } = capture;
        let took = latency_ns.map_or_else(String::new, |ns| format!(" {}", duration(ns)));
        let thread = tid.map_or_else(String::new, |tid| format!(", thread {tid}"));
        let line = printable(&format!("capture {path}: {function}{took} ({trigger}){thread}: {cause}"));
        let written = match self {
            Self::Screen { screen, .. } => {
                let name = file_name(path).to_owned();
                let (path, trigger, cause) = (path.clone(), trigger.clone(), cause.clone());
                screen.show(Update::Captured { name, capture: KnownCapture { path, trigger, cause } });
                return;
            }
            Self::Json(lines) => {
                let object = serde_json::to_string(capture).unwrap_or_default();
                lines.take(format!("{object}\n").into_bytes())
            }
            Self::Lines { lines, .. } => lines.take(format!("{line}\n").into_bytes()),
            Self::Closed => writeln!(stdout(), "{line}"),
        };
        if let Err(error) = written {
            messages::warn(format!("cannot write to stdout: {error}"));
        }
    }

    /// What was asked for by keys since.
    pub(super) fn wishes(&self) -> Vec<Wish> {
        match self {
            Self::Screen { screen, .. } => screen.wishes().collect(),
            Self::Lines { .. } | Self::Json(_) | Self::Closed => Vec::new(),
        }
    }

    /// Whether keys can ask for something, or could.
    pub(super) const fn is_view(&self) -> bool {
        matches!(self, Self::Screen { .. } | Self::Closed)
    }

    /// Gives the terminal back, if a view has it; figures are not told any more.
    pub(super) fn close(&mut self) -> bool {
        let is_open = matches!(self, Self::Screen { .. });
        if is_open {
            *self = Self::Closed;
        }
        is_open
    }

    /// Nothing more will be recorded. Returns whether there is a view, which stays until it is left.
    pub(super) fn end(&self, seen: &dyn SeenCalls) -> bool {
        let Self::Screen { screen, .. } = self else { return false };
        screen.show(Update::Ended(total(seen)));
        true
    }
}

/// What the view keeps of an interval.
fn figures(
    interval: &Interval<'_>,
    slowest: &[Hit],
    seen: &dyn SeenCalls,
    wants_total: bool,
) -> IntervalFigures {
    let position = |hit: &Hit| seen.wanted().iter().position(|it| Some(it.function.id) == hit.function);
    let slow_call = |hit: &Hit| {
        Some(ListedCall {
            function: position(hit)?,
            id: hit.name.clone(),
            tid: hit.tid?.0,
            start_ns: hit.span.0.0,
            latency_ns: hit.latency_ns?,
        })
    };
    IntervalFigures {
        time_ns: interval.time_ns,
        interval_ns: interval.interval_ns,
        functions: named(interval.figures, seen),
        total: wants_total.then(|| total(seen)),
        slowest: slowest.iter().filter_map(slow_call).collect(),
        lost_ns: interval.lost_ns,
        seen_by: interval.seen_by,
    }
}

/// All calls so far.
fn total(seen: &dyn SeenCalls) -> Vec<FunctionFigures> {
    named(&seen.total_figures(), seen)
}

/// These figures, with names.
fn named(functions: &[FunctionReport], seen: &dyn SeenCalls) -> Vec<FunctionFigures> {
    let Some(image) = seen.image() else { return Vec::new() };
    let names = ImageNames::new(image, false);
    let of_wanted = functions.iter().zip(seen.wanted());
    of_wanted.map(|(function, wanted)| FunctionFigures::of(function, &wanted.function.name, &names)).collect()
}
