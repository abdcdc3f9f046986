//! What the screen shows now, and what a key does.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use analyzer::Bucket;

use super::figures::{FunctionFigures, IntervalFigures, ListedCall};
use crate::printable::printable;

/// Columns of the heat map that are kept: more than terminals have.
const COLUMNS_MAX: usize = 1 << 10;
/// Slow calls of a function are listed for so long after they ended.
const SLOW_FOR_NS: u64 = 5 * 60 * 1_000_000_000;
/// Slow calls of a function that are kept.
const SLOW_MAX: usize = 1 << 6;
/// Lines that a page of the opened call's text is moved by.
const PAGE: usize = 10;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenKey {
    /// Up by one.
    Up,
    /// Down by one.
    Down,
    /// Up by many.
    PageUp,
    /// Down by many.
    PageDown,
    /// The selected call's tree.
    Open,
    /// The selected call's page.
    WritePage,
    /// The view stands still, or goes on.
    Pause,
    /// The next of the watched functions.
    NextFunction,
    /// Figures of the interval, or of everything so far.
    ToggleSpan,
    /// The next of callers, waits and wakers, where there is no room for all.
    NextSide,
    /// Back from an opened call.
    Back,
    /// The end of the watch.
    Leave,
}

/// What the watch, or another process, is to do for the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Capture this call.
    Capture(ListedCall),
    /// Print the tree of the call in this capture.
    Show(String),
    /// Write the page of this capture.
    WritePage(String),
    /// End the watch.
    Leave,
}

/// What a capture was asked for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Show,
    WritePage,
}

impl Purpose {
    fn wish(self, path: String) -> Wish {
        match self {
            Self::Show => Wish::Show(path),
            Self::WritePage => Wish::WritePage(path),
        }
    }
}

/// A capture that is there.
#[derive(Clone, Debug)]
pub struct KnownCapture {
    /// Its directory.
    pub path: String,
    /// Why it was made.
    pub trigger: String,
    /// Why the call was slow, in a sentence.
    pub cause: String,
}

/// A call that was opened: text that scrolls.
#[derive(Clone, Debug)]
pub(super) struct CallText {
    pub(super) path: String,
    pub(super) lines: Vec<String>,
    /// The first line that is seen.
    pub(super) top: usize,
}

/// Figures of which time are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ShownSpan {
    #[default]
    Interval,
    All,
}

/// The table beside the children, where there is room for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SideTable {
    #[default]
    Callers,
    Waits,
    Wakers,
}

impl SideTable {
    const fn next(self) -> Self {
        match self {
            Self::Callers => Self::Waits,
            Self::Waits => Self::Wakers,
            Self::Wakers => Self::Callers,
        }
    }
}

/// What the watch does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WatchPhase {
    #[default]
    Running,
    Ended,
}

/// The view.
#[derive(Debug, Default)]
pub struct State {
    /// Histograms by interval, the newest last; in each, by function.
    pub(super) columns: VecDeque<Vec<Vec<Bucket>>>,
    pub(super) latest: IntervalFigures,
    pub(super) total: Vec<FunctionFigures>,
    /// When the watch began, in ns of perf's clock.
    began_ns: Option<u64>,
    /// The slowest calls of the last minutes, the slowest first.
    slowest: Vec<ListedCall>,
    /// By name.
    captures: BTreeMap<String, KnownCapture>,
    /// Intervals that came while the view stood still; `None`: it does not.
    held: Option<VecDeque<IntervalFigures>>,
    pub(super) function: usize,
    /// The call that was chosen with the keys; `None`, or gone: the slowest is.
    chosen: Option<ListedCall>,
    pub(super) span: ShownSpan,
    pub(super) side: SideTable,
    pub(super) phase: WatchPhase,
    pub(super) opened: Option<CallText>,
    /// The capture that was asked for by a key, and what is done with it as soon as it is there.
    pending: Option<(String, Purpose)>,
    pub(super) message: String,
}

impl State {
    /// An interval was decoded.
    pub fn add(&mut self, figures: IntervalFigures) {
        if let Some(held) = &mut self.held {
            held.push_back(figures);
            if held.len() > COLUMNS_MAX {
                held.pop_front();
            }
            return;
        }
        self.began_ns.get_or_insert(figures.time_ns.saturating_sub(figures.interval_ns));
        let histograms = figures.functions.iter().map(|function| function.histogram.clone());
        self.columns.push_back(histograms.collect());
        if self.columns.len() > COLUMNS_MAX {
            self.columns.pop_front();
        }
        let now_ns = figures.time_ns;
        self.slowest.extend(figures.slowest.iter().cloned());
        self.slowest.retain(|call| call.end_ns().saturating_add(SLOW_FOR_NS) >= now_ns);
        self.slowest.sort_by_key(|call| (Reverse(call.latency_ns), call.start_ns, call.tid));
        let mut kept: BTreeMap<usize, usize> = BTreeMap::new();
        self.slowest.retain(|call| {
            let before = kept.entry(call.function).or_default();
            *before += 1;
            *before <= SLOW_MAX
        });
        if let Some(total) = &figures.total {
            self.total.clone_from(total);
        }
        self.latest = figures;
    }

    /// A capture is there. Returns what is to be done with it.
    pub fn captured(&mut self, name: &str, capture: KnownCapture) -> Option<Wish> {
        self.say(&format!("capture {}: {}", capture.path, capture.cause));
        let path = capture.path.clone();
        self.captures.insert(name.to_owned(), capture);
        let (_, purpose) = self.pending.take_if(|(pending, _)| pending == name)?;
        Some(purpose.wish(path))
    }

    /// The capture of this path is gone.
    pub fn forget(&mut self, path: &str) {
        self.captures.retain(|_, capture| capture.path != path);
    }

    /// Nothing more will come; these are all calls.
    pub fn end(&mut self, total: Vec<FunctionFigures>) {
        self.phase = WatchPhase::Ended;
        self.resume();
        self.total = total;
        self.say("the watch has ended: q prints its report");
    }

    /// Shows a message, until the next one.
    pub fn say(&mut self, message: &str) {
        self.message = printable(message);
    }

    /// Shows the text of an opened call.
    pub fn show(&mut self, path: String, text: &str) {
        let lines = text.lines().map(printable).collect();
        self.opened = Some(CallText { path, lines, top: 0 });
    }

    /// A key was pressed. Returns what is to be done.
    pub fn press(&mut self, key: ScreenKey) -> Option<Wish> {
        if key == ScreenKey::Leave {
            return Some(Wish::Leave);
        }
        if let Some(opened) = &mut self.opened {
            let last = opened.lines.len().saturating_sub(1);
            match key {
                ScreenKey::Up => opened.top = opened.top.saturating_sub(1),
                ScreenKey::Down => opened.top = (opened.top + 1).min(last),
                ScreenKey::PageUp => opened.top = opened.top.saturating_sub(PAGE),
                ScreenKey::PageDown => opened.top = (opened.top + PAGE).min(last),
                ScreenKey::WritePage => return Some(Wish::WritePage(opened.path.clone())),
                ScreenKey::Back | ScreenKey::Open => self.opened = None,
                _ => (),
            }
            return None;
        }
        match key {
            ScreenKey::Up => self.choose(self.selected().saturating_sub(1)),
            ScreenKey::Down => self.choose(self.selected() + 1),
            ScreenKey::PageUp => self.choose(0),
            ScreenKey::PageDown => self.choose(usize::MAX),
            ScreenKey::Open => return self.with_capture(Purpose::Show),
            ScreenKey::WritePage => return self.with_capture(Purpose::WritePage),
            ScreenKey::Pause if self.is_paused() => self.resume(),
            ScreenKey::Pause if self.phase == WatchPhase::Running => self.held = Some(VecDeque::new()),
            ScreenKey::NextFunction => {
                self.function = (self.function + 1) % self.latest.functions.len().max(1);
                self.chosen = None;
            }
            ScreenKey::NextSide => self.side = self.side.next(),
            ScreenKey::ToggleSpan => {
                self.span = match self.span {
                    ShownSpan::Interval => ShownSpan::All,
                    ShownSpan::All => ShownSpan::Interval,
                };
            }
            _ => (),
        }
        None
    }

    /// Asks for something that needs the selected call's capture: now, or when it was made.
    fn with_capture(&mut self, purpose: Purpose) -> Option<Wish> {
        let Some(call) = self.selected_call() else {
            self.say("no slow call is selected");
            return None;
        };
        if let Some(capture) = self.captures.get(&call.capture()) {
            return Some(purpose.wish(capture.path.clone()));
        }
        self.say("this call is being captured");
        self.pending = Some((call.capture(), purpose));
        Some(Wish::Capture(call))
    }

    fn resume(&mut self) {
        for figures in self.held.take().into_iter().flatten() {
            self.add(figures);
        }
    }

    /// How long the watch has lasted.
    pub(super) fn watched_ns(&self) -> u64 {
        self.began_ns.map_or(0, |began_ns| self.latest.time_ns.saturating_sub(began_ns))
    }

    /// The view stands still.
    pub(super) fn is_paused(&self) -> bool {
        self.held.is_some()
    }

    /// Intervals that wait to be shown.
    pub(super) fn held_intervals(&self) -> usize {
        self.held.as_ref().map_or(0, VecDeque::len)
    }

    /// The function that is shown.
    pub(super) fn shown(&self) -> Option<&FunctionFigures> {
        let functions = match self.span {
            ShownSpan::Interval => &self.latest.functions,
            ShownSpan::All => &self.total,
        };
        functions.get(self.function)
    }

    /// The slow calls of the shown function, the slowest first.
    pub(super) fn slow_calls(&self) -> impl Iterator<Item = &ListedCall> {
        self.slowest.iter().filter(|call| call.function == self.function)
    }

    /// Chooses the n-th of the slow calls, or the last one.
    fn choose(&mut self, at: usize) {
        let last = self.slow_calls().count().saturating_sub(1);
        let call = self.slow_calls().nth(at.min(last)).cloned();
        self.chosen = call;
    }

    /// Which of the slow calls is selected: the one that was chosen, wherever it stands now.
    pub(super) fn selected(&self) -> usize {
        let place = self.slow_calls().position(|call| Some(call) == self.chosen.as_ref());
        place.unwrap_or_default()
    }

    fn selected_call(&self) -> Option<ListedCall> {
        self.slow_calls().nth(self.selected()).cloned()
    }

    /// The capture that has a call.
    pub(super) fn capture_of(&self, call: &ListedCall) -> Option<&KnownCapture> {
        self.captures.get(&call.capture())
    }
}
