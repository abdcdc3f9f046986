//! `watch --snapshot --over TIME --on FUNC`: probes at the functions look for hits, as nothing is decoded.
//!
//! ```text
//!   probes are placed, and what they cost is said, or refused        (uprobe)
//!   the recording begins
//!   --over   calls of -f are timed; those above the threshold are hits
//!   --on     each entry of the function is a hit
//!   a hit    rings are copied                                        (probed_hits)
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};

use analyzer::ProbedAnalysis;
use anyhow::{Result, anyhow};
use model::{Ns, ProbedCall, Tid};
use recorder::{Interrupts, RingCopies, Target};

use super::console::ATTENDED_EACH;
use super::probed_hits::{Gate, ProbedHit, ProbedHits};
use super::triggers::{Hit, Triggers};
use crate::args::BackendChoice;
use crate::config::{CallsConfig, ReportConfig};
use crate::exit::{Exit, failure};
use crate::messages;
use crate::record_config::{ProbeLimits, RecordConfig};
use crate::target::Wanted;
use crate::trigger_words::Rate;
use crate::uprobe::{self, Follower, Passed, ProbedTriggers, TimedFor};

/// What is looked for while a recording goes on.
pub(super) struct TriggersAsked<'a> {
    pub(super) record: &'a RecordConfig,
    pub(super) triggers: Triggers,
    pub(super) rate: Rate,
    pub(super) copies: Arc<RingCopies>,
}

/// Time between two takings of thresholds that are percentiles: as with lines of a second each.
const THRESHOLDS_EACH_NS: u64 = 1_000_000_000;

/// Places probes, runs `recording` while they look for hits, and removes them.
///
/// # Errors
/// Nothing can be probed here, or it would cost too much; or the recording fails.
pub(super) fn during(
    asked: TriggersAsked<'_>,
    interrupts: &Interrupts,
    recording: impl FnOnce(ProbedHits) -> Result<Exit>,
) -> Result<Exit> {
    check(asked.record)?;
    let (told, hits) = ProbedHits::looked_for(asked.rate);
    let gate = Arc::clone(&hits.gate);
    let (ready, is_ready) = mpsc::channel();
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let probes = scope.spawn(move || probe(asked, interrupts, is_over, Tell { ready, told, gate }));
        let ended = match wait(&is_ready, interrupts) {
            Waited::Ready => Some(recording(hits)),
            Waited::Interrupted => Some(Ok(Exit::Nothing)),
            Waited::Refused => None,
        };
        is_over.store(true, Ordering::Relaxed);
        let probed = probes.join().map_err(|_| anyhow!("the thread of the probes failed"))?;
        // What ends the probes later is said when it does.
        ended.unwrap_or(probed)
    })
}

/// How the placing of the probes ended.
enum Waited {
    Ready,
    Interrupted,
    /// Their thread says why.
    Refused,
}

fn wait(is_ready: &Receiver<()>, interrupts: &Interrupts) -> Waited {
    loop {
        match is_ready.recv_timeout(ATTENDED_EACH) {
            Ok(()) => return Waited::Ready,
            Err(RecvTimeoutError::Disconnected) => return Waited::Refused,
            Err(RecvTimeoutError::Timeout) if interrupts.take() => return Waited::Interrupted,
            Err(RecvTimeoutError::Timeout) => (),
        }
    }
}

/// What probes do not see is refused.
fn check(record: &RecordConfig) -> Result<()> {
    if matches!(record.request.target, Target::Program(_)) {
        let message = "--over and --on need probes with --snapshot, which are placed in what runs already: start the program, and \
                       name it with -p PID";
        return Err(failure(Exit::Usage, message));
    }
    if record.report.as_ref().is_some_and(|report| report.calls.ancestor.is_some()) {
        let message = "-a: the probes of --over see only the function itself: leave -a out, and give it to `report` of the captures";
        return Err(failure(Exit::Usage, message));
    }
    Ok(())
}

/// How a thread of probes tells of itself.
struct Tell {
    /// The probes are placed.
    ready: Sender<()>,
    told: Sender<ProbedHit>,
    gate: Arc<Gate>,
}

/// Probes until `is_over`, or until that is not possible any more.
fn probe(
    asked: TriggersAsked<'_>,
    interrupts: &Interrupts,
    is_over: &AtomicBool,
    tell: Tell,
) -> Result<Exit> {
    let TriggersAsked { record, mut triggers, copies, .. } = asked;
    let has_over = triggers.has_over();
    let on = triggers.names_on().to_vec();
    let config = of_probes(record, has_over);
    let Tell { ready, told, gate } = tell;
    let has_begun = AtomicBool::new(false);
    let begun = &has_begun;
    let tids = match &record.request.target {
        Target::Threads(tids) => tids.clone(),
        _ => Vec::new(),
    };
    let begin = move |passed: &Passed<'_>| -> Result<Box<dyn Follower>> {
        let (wanted, timed) = (passed.wanted.to_vec(), passed.timed);
        triggers.begin(timed, passed.now);
        let (entered, began) = (Vec::new(), passed.now);
        let looking = LookingForHits { triggers, wanted, timed, entered, began, tids, copies, told, gate };
        begun.store(true, Ordering::Relaxed);
        // The recording begins, if it is still to.
        let _ = ready.send(());
        Ok(Box::new(looking))
    };
    let is_over = || is_over.load(Ordering::Relaxed);
    let purpose = TimedFor::triggers(ProbedTriggers { on: &on }, &is_over);
    let probed = uprobe::follow(&config, interrupts, purpose, Box::new(begin));
    if has_begun.load(Ordering::Relaxed) {
        probed.as_ref().err().into_iter().for_each(|why| {
            messages::warn(format!("--over and --on see no more calls: {why:#}; the watch goes on"));
        });
    }
    probed
}

/// What the probes are of, as a command line of their own would have it.
fn of_probes(record: &RecordConfig, has_over: bool) -> RecordConfig {
    let report = record.report.as_ref().map(|report| {
        // Without --over the calls of -f are not timed.
        let functions = if has_over { report.calls.functions.clone() } else { Vec::new() };
        let candidate = report.calls.candidate.filter(|_| has_over);
        ReportConfig { calls: CallsConfig { functions, candidate, ..report.calls.clone() }, ..report.clone() }
    });
    // -m and -i are of the trace; what calls wait for is recorded with it.
    let request = recorder::Request { trace_bytes: None, overwrites: false, ..record.request.clone() };
    let probing = ProbeLimits { most_probes: 0, ..record.probing };
    let backend = Some(BackendChoice::Uprobe);
    let (window, ip_filter, sched) = (None, false, false);
    RecordConfig { request, report, probing, backend, window, ip_filter, sched, ..record.clone() }
}

/// Looks for hits among the calls that probes see, and has the rings copied for them.
struct LookingForHits {
    triggers: Triggers,
    /// The functions that are probed.
    wanted: Vec<Wanted>,
    /// Calls of the first ones are timed; of the others entries are told.
    timed: usize,
    /// Entries of functions of --on since it was looked at last.
    entered: Vec<Hit>,
    /// When thresholds were taken last.
    began: Ns,
    /// Only these threads; empty: all.
    tids: Vec<Tid>,
    copies: Arc<RingCopies>,
    told: Sender<ProbedHit>,
    gate: Arc<Gate>,
}

/// Entries that are kept between two looks, as far as the rate may allow them.
const ENTERED_MAX: usize = 1 << 14;

impl Follower for LookingForHits {
    fn call(&mut self, analysis: &mut ProbedAnalysis<'_>, call: &ProbedCall) {
        if call.function < self.timed {
            return analysis.call_giving(call, Some(&mut self.triggers));
        }
        let is_of_thread = self.tids.is_empty() || self.tids.contains(&call.tid);
        let Some(wanted) = self.wanted.get(call.function).filter(|_| is_of_thread) else { return };
        if self.entered.len() >= ENTERED_MAX {
            return self.gate.leave_out(1);
        }
        self.entered.push(Hit::entered(call.start, call.tid, &wanted.function.name));
    }

    fn passed(&mut self, analysis: &mut ProbedAnalysis<'_>, passed: &Passed<'_>) -> Result<bool> {
        self.look();
        if passed.now.since(self.began) >= THRESHOLDS_EACH_NS {
            // What is not told takes no memory.
            let _ = analysis.take_interval((self.began, passed.now));
            self.triggers.begin(self.timed, passed.now);
            self.began = passed.now;
        }
        Ok(false)
    }

    fn ended(mut self: Box<Self>, _: &mut ProbedAnalysis<'_>, _: &Passed<'_>) -> Result<()> {
        self.look();
        Ok(())
    }
}

impl LookingForHits {
    /// Has the rings copied for the hits since the last look that may have a capture.
    fn look(&mut self) {
        let hits = self.triggers.take_hits(std::mem::take(&mut self.entered));
        self.gate.leave_out(self.triggers.take_left_out());
        for hit in hits {
            if !self.gate.admits(&hit) {
                continue;
            }
            let number = self.copies.ask();
            // The image of the probes knows functions by other numbers than that of the captures.
            let is_called = |wanted: &&Wanted| Some(wanted.function.id) == hit.function;
            let function = self.wanted.iter().find(is_called).map(|Wanted { function }| function);
            let function = function.map(|of| (of.name.clone(), of.object_name.clone()));
            // A watch that has ended takes no more.
            let _ = self.told.send(ProbedHit { number, hit: Hit { function: None, ..hit }, function });
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::CommandLine;
    use crate::record_config::Then;

    fn record(line: &str) -> RecordConfig {
        let words = std::iter::once("func_latency").chain(line.split(' '));
        let args = CommandLine::try_parse_from(words).unwrap().record;
        RecordConfig::new(args, Then::Report).unwrap()
    }

    #[test]
    fn what_probes_do_not_see_is_refused_with_what_to_do() {
        let why = |line| check(&record(line)).map_err(|error| error.to_string());
        assert_eq!(why("-f f -p 7"), Ok(()));
        assert!(why("-f f -- cmd").unwrap_err().ends_with("start the program, and name it with -p PID"));
        assert!(why("-f f -p 7 -a g").unwrap_err().contains("give it to `report` of the captures"));
    }

    #[test]
    fn without_a_threshold_no_call_is_timed() {
        let record = record("-f f -p 7 -m 4M -i --max-overhead 7 -d 5");
        let functions = |has_over| of_probes(&record, has_over).report.unwrap().calls.functions;
        assert_eq!((functions(true), functions(false)), (vec!["f".to_owned()], vec![]));
        let probes = of_probes(&record, true);
        assert_eq!((probes.request.trace_bytes, probes.window, probes.probing.most_probes), (None, None, 0));
        assert!(!probes.ip_filter && !probes.sched, "these are of the trace");
        assert_eq!(probes.probing.most_percent, Some(7.0));
    }
}
