//! A watch by probes: calls are timed as they end, and nothing is recorded.
//!
//! ```text
//!   uprobe  --calls-->  analysis      --figures, each interval-->  console
//!                          \ noticed  --hits-->                    captures
//! ```

use std::io::{Write as _, stdout};
use std::path::PathBuf;
use std::time::Duration;

use analyzer::{FunctionReport, ProbedAnalysis};
use anyhow::{Context as _, Result};
use image::Image;
use model::{Ns, ProbedCall};
use recorder::{Interrupts, Proc};

use super::console::{Console, IntervalSeen};
use super::display::{Display, SeenCalls};
use super::noticed::Noticed;
use super::outside::Outside;
use super::probed_capture::ProbedCapturer;
use super::{Capturing, ns};
use crate::args::Format;
use crate::exit::{Exit, failure};
use crate::messages;
use crate::record_config::RecordConfig;
use crate::render::image_names::ImageNames;
use crate::render::interval::SeenBy;
use crate::target::Wanted;
use crate::uprobe::{self, Follower, GuardCost, Passed, Rounds, TimedFor};

/// What is asked of a watch.
pub(super) struct WatchAsked {
    pub(super) interval: Duration,
    pub(super) format: Format,
    /// There is a view.
    pub(super) on_screen: bool,
    pub(super) openmetrics: Option<PathBuf>,
    /// Calls are captured, and not only by keys.
    pub(super) has_triggers: bool,
}

/// Times calls, and watches them.
///
/// # Errors
/// Nothing can be probed here, or it would cost too much.
pub(super) fn run(record: &RecordConfig, asked: WatchAsked, capturing: Option<Capturing>) -> Result<Exit> {
    if let Some(option) = capturing.as_ref().and_then(|capturing| capturing.triggers.needs_trace()) {
        let message = format!(
            "{option} needs Intel PT: probes see the calls of -f only; --over, --until and SIGUSR2 capture without it"
        );
        let exit = if record.backend.is_some() { Exit::Usage } else { Exit::NotPossible };
        return Err(failure(exit, message));
    }
    if record.request.per_thread || record.request.pt_config.is_some() {
        messages::note("-t and --pt_config are of Intel PT: probes need no buffers of trace");
    }
    let interrupts = Interrupts::hold().context("cannot hold signals back")?;
    // What was inside a slow call is known only if its children were probed when it began.
    let rounds = if asked.has_triggers { Rounds::Always } else { Rounds::Seldom };
    let plan = WatchPlan { interrupts: &interrupts, stays: record.window.is_none(), asked, capturing };
    let is_over = || interrupts.take();
    let purpose = TimedFor::figures(rounds, &is_over);
    uprobe::follow(record, &interrupts, purpose, Box::new(|passed| Ok(Box::new(plan.begin(passed)?))))
}

/// A watch that has not begun.
struct WatchPlan<'r> {
    interrupts: &'r Interrupts,
    stays: bool,
    asked: WatchAsked,
    capturing: Option<Capturing>,
}

impl<'r> WatchPlan<'r> {
    /// Takes the terminal, if there is to be a view, and starts the command of `--until`.
    fn begin(self, passed: &Passed<'_>) -> Result<ProbedWatch<'r>> {
        let Self { interrupts, stays, asked, mut capturing } = self;
        capturing.as_mut().map_or(Ok(()), Capturing::begin)?;
        let (triggers, hits) = capturing.map(|capturing| capturing.split(Outside::Polled)).unzip();
        let after_ns = hits.as_ref().map_or(0, |hits| hits.limits.after_ns);
        let noticed = triggers.map(|mut triggers| {
            triggers.begin(passed.wanted.len(), passed.from);
            Noticed::new(triggers, after_ns)
        });
        let WatchAsked { interval, format, on_screen, openmetrics, .. } = asked;
        if on_screen {
            // A signal must not leave the terminal as the view has it.
            interrupts.keep();
        }
        Ok(ProbedWatch {
            interrupts,
            interval_ns: ns(interval),
            stays,
            has_text: format == Format::Text,
            console: Console::new(Display::new(format, on_screen)?, openmetrics, hits),
            noticed,
            last: passed.from,
            cost: GuardCost::default(),
        })
    }
}

/// A watch that goes on.
struct ProbedWatch<'r> {
    interrupts: &'r Interrupts,
    interval_ns: u64,
    /// A view stays when the target has ended.
    stays: bool,
    /// The report is a text below lines.
    has_text: bool,
    console: Console,
    /// `None`: nothing is captured.
    noticed: Option<Noticed>,
    /// The end of the last interval, and the probes' cost up to it.
    last: Ns,
    cost: GuardCost,
}

/// The calls so far.
struct ProbedCalls<'s, 'a> {
    analysis: &'s ProbedAnalysis<'a>,
    passed: &'s Passed<'s>,
}

impl SeenCalls for ProbedCalls<'_, '_> {
    fn image(&self) -> Option<&Image> {
        Some(&self.passed.code.image)
    }

    fn wanted(&self) -> &[Wanted] {
        self.passed.wanted
    }

    fn total_figures(&self) -> Vec<FunctionReport> {
        self.analysis.so_far((self.passed.from, self.passed.now))
    }
}

impl ProbedWatch<'_> {
    /// Tells an interval, which ends now.
    fn tell(&mut self, analysis: &mut ProbedAnalysis<'_>, passed: &Passed<'_>) -> Result<()> {
        let from = std::mem::replace(&mut self.last, passed.now);
        let figures = analysis.take_interval((from, passed.now));
        let lost_ns = analysis.take_lost_ns();
        if lost_ns > 0 {
            self.noticed.iter_mut().for_each(|noticed| noticed.lose(passed.now));
        }
        let cost = passed.cost.since(std::mem::replace(&mut self.cost, passed.cost));
        let triggers = self.noticed.as_mut().map(|noticed| &mut noticed.triggers);
        let slowest = triggers.map_or_else(Vec::new, |triggers| {
            triggers.begin(passed.wanted.len(), passed.now);
            triggers.take_slowest()
        });
        let of_interval = IntervalSeen {
            time: passed.now,
            interval_ns: passed.now.since(from).max(1),
            figures: &figures,
            slowest: &slowest,
            lost_ns,
            seen_by: SeenBy::Probes { cost_percent: cost.percent() },
        };
        let so_far = SeenBy::Probes { cost_percent: passed.cost.percent() };
        self.console.tell(&of_interval, so_far, &ProbedCalls { analysis, passed })
    }

    /// Makes captures; `until`: everything up to then was seen. Returns whether the watch has come to its
    /// end.
    fn capture(&mut self, passed: &Passed<'_>, until: Option<Ns>) -> bool {
        let Some(noticed) = &mut self.noticed else { return false };
        let console = &mut self.console;
        let (hits, left_out) = (noticed.triggers.take_hits(Vec::new()), noticed.triggers.take_left_out());
        console.take(hits, left_out);
        // Names of threads are read for each capture.
        match console.has_due(until) {
            true => with_capturer(noticed, passed, |capturer| console.capture(capturer, until)),
            false => console.is_over(until),
        }
    }

    /// Takes what was asked for from outside.
    fn heed(&mut self, analysis: &ProbedAnalysis<'_>, passed: &Passed<'_>) {
        self.console.attend(&ProbedCalls { analysis, passed });
        self.console.hear(passed.now, false);
    }
}

fn with_capturer<T>(
    noticed: &Noticed,
    passed: &Passed<'_>,
    capture: impl FnOnce(&ProbedCapturer<'_>) -> T,
) -> T {
    let Passed { code, wanted, realtime_offset_ns, .. } = *passed;
    let names = ImageNames::new(&code.image, false).with_threads(code.thread_names(&Proc::host()));
    capture(&ProbedCapturer { noticed, image: &code.image, names: &names, wanted, realtime_offset_ns })
}

impl Follower for ProbedWatch<'_> {
    fn call(&mut self, analysis: &mut ProbedAnalysis<'_>, call: &ProbedCall) {
        match &mut self.noticed {
            Some(noticed) => analysis.call_giving(call, Some(noticed)),
            None => analysis.call_giving(call, None),
        }
    }

    fn passed(&mut self, analysis: &mut ProbedAnalysis<'_>, passed: &Passed<'_>) -> Result<bool> {
        self.heed(analysis, passed);
        let is_over = self.capture(passed, Some(passed.now));
        // What ended the watch was asked for: nothing is left to look at.
        self.stays &= !is_over;
        if passed.now.since(self.last) >= self.interval_ns {
            self.tell(analysis, passed)?;
        }
        Ok(is_over || self.console.is_left())
    }

    fn ended(mut self: Box<Self>, analysis: &mut ProbedAnalysis<'_>, passed: &Passed<'_>) -> Result<()> {
        self.tell(analysis, passed)?;
        self.heed(analysis, passed);
        if self.console.is_left() {
            // What is captured now is told in lines.
            self.console.leave();
        }
        self.capture(passed, None);
        let Self { interrupts, mut console, noticed, stays, has_text, .. } = *self;
        if let Some(noticed) = noticed.filter(|_| stays && !interrupts.was_taken()) {
            let seen = ProbedCalls { analysis, passed };
            with_capturer(&noticed, passed, |capturer| {
                console.stay(passed.now, &seen, capturer, || interrupts.take());
            });
        }
        console.end();
        if has_text {
            writeln!(stdout()).context("cannot write to stdout")?;
        }
        // The next signal ends this process.
        interrupts.let_go();
        Ok(())
    }
}
