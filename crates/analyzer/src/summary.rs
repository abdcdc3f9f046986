//! What a report is made of: sums that add up over recordings, exactly.
//!
//! ```text
//!   analysis of a recording -> Summary -----------------------> Report
//!                              Summary + Summary + ... = Summary -> Report
//! ```
//! What is added up are numbers and how often each was met, so it does not matter in which order, or how they
//! are bracketed. What belongs to one recording (window, threads, losses, limits) stays apart, by its name.

use std::collections::BTreeMap;

use model::{FunctionId, NoOffCpu};
use serde::{Deserialize, Serialize};

use crate::aggregate::{FunctionSums, count};
use crate::children::ChildKey;
use crate::durations::{Durations, SortedDurations};
use crate::loss::{self, LossLedger};
use crate::off_cpu_causes::{CauseSums, ToldBy};
use crate::report::{Limits, Loss, Report, ThreadLoss, TraceSummary};
use crate::request::CountersAsked;
use crate::row_reasons::RowReasons;
use crate::total::{OffCpuKnown, percent_of_a_core};
use crate::traced_causes::ReasonsOfCalls;

/// The sums that a report is made of.
#[derive(Clone, Serialize, Deserialize)]
pub struct Summary {
    /// By function.
    pub(crate) functions: BTreeMap<FunctionId, SummedFunction>,
    /// By the name of the recording, which is empty until [`Self::named`].
    recordings: BTreeMap<String, SummedRecording>,
    /// `None`: the records of some recording do not tell why calls were off the CPU.
    told_by: Option<ToldBy>,
    /// Counters have no sums that are kept.
    #[serde(skip)]
    counters: Option<CountersAsked>,
}

/// The sums of one function.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SummedFunction {
    /// Place among the functions of the report.
    pub(crate) position: u32,
    pub(crate) calls: FunctionSums<ChildKey>,
    pub(crate) causes: CauseSums,
    /// What single calls waited for, if they are kept as rows.
    #[serde(skip)]
    pub(crate) reasons: ReasonsOfCalls,
}

/// What is known of one recording as a whole.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SummedRecording {
    pub(crate) trace: TraceSummary,
    pub(crate) ledger: LossLedger,
    pub(crate) threads: Vec<ThreadLoss>,
    pub(crate) limits: Limits,
}

impl Summary {
    /// Of one recording that has no name yet.
    pub(crate) fn new(
        functions: BTreeMap<FunctionId, SummedFunction>,
        recording: SummedRecording,
        told_by: Option<ToldBy>,
        counters: Option<CountersAsked>,
    ) -> Self {
        let recordings = BTreeMap::from([(String::new(), recording)]);
        Self { functions, recordings, told_by, counters }
    }

    /// The summary of the recording with this name.
    #[must_use]
    pub fn named(self, recording: &str) -> Self {
        let recordings = self.recordings.into_values().map(|of| (recording.to_owned(), of)).collect();
        Self { recordings, ..self }
    }

    /// The names of its recordings, in their order.
    pub fn recordings(&self) -> impl Iterator<Item = &str> {
        self.recordings.keys().map(String::as_str)
    }

    /// Its functions.
    pub fn functions(&self) -> impl Iterator<Item = FunctionId> {
        self.functions.keys().copied()
    }

    /// Latencies of a function's calls that count.
    #[must_use]
    pub fn latencies(&self, function: FunctionId) -> SortedDurations {
        let mut all = Durations::default();
        if let Some(SummedFunction { calls, .. }) = self.functions.get(&function) {
            let figures = [&calls.alone, &calls.with_children].into_iter();
            figures.flat_map(|figures| figures.callers.values()).for_each(|sums| all.merge(&sums.latency_ns));
        }
        all.sorted()
    }

    /// Leaves out the functions that are not wanted.
    pub fn keep_functions(&mut self, is_wanted: impl Fn(FunctionId) -> bool) {
        self.functions.retain(|id, _| is_wanted(*id));
    }

    /// Adds another summary, of other recordings; its functions and objects must have the same numbers.
    ///
    /// # Errors
    /// The name of a recording that is in both.
    pub fn merge(&mut self, other: Self) -> Result<(), String> {
        if let Some(twice) = other.recordings.keys().find(|name| self.recordings.contains_key(*name)) {
            return Err(twice.clone());
        }
        self.recordings.extend(other.recordings);
        self.told_by = self.told_by.zip(other.told_by).map(|(one, other)| one.max(other));
        for (id, function) in other.functions {
            match self.functions.entry(id) {
                std::collections::btree_map::Entry::Vacant(vacant) => {
                    vacant.insert(function);
                }
                std::collections::btree_map::Entry::Occupied(mut known) => known.get_mut().merge(&function),
            }
        }
        Ok(())
    }

    /// With each function and each recording as these make them.
    pub(crate) fn map(
        self,
        function: impl FnMut((FunctionId, SummedFunction)) -> (FunctionId, SummedFunction),
        recording: impl Fn(SummedRecording) -> SummedRecording,
    ) -> Self {
        let recordings = self.recordings.into_iter().map(|(name, of)| (name, recording(of))).collect();
        Self { functions: self.functions.into_iter().map(function).collect(), recordings, ..self }
    }

    /// Counts of calls are such as a recording can have: no sum of them overflows.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        self.functions.values().all(|function| function.calls.is_plausible())
    }

    /// Does the sums.
    #[must_use]
    pub fn into_report(self) -> Report {
        let Self { functions, recordings, told_by, counters } = self;
        let (trace, limits, loss) = of_recordings(recordings);
        let scale = percent_of_a_core(trace.span_ns, loss.coverage);
        let off_cpu = OffCpuKnown(trace.no_off_cpu.is_none());
        let mut in_order: Vec<(FunctionId, SummedFunction)> = functions.into_iter().collect();
        in_order.sort_by_key(|(id, function)| (function.position, *id));
        let report = |(id, function): (FunctionId, SummedFunction)| {
            let SummedFunction { mut calls, causes, reasons, .. } = function;
            let counted = std::mem::take(&mut calls.counted);
            let percent = |on_cpu_ns| on_cpu_ns as f64 * scale;
            let mut report = calls.finish(id, off_cpu, &mut |key| key, &percent, None);
            if let Some(asked) = counters {
                count(&mut report, &counted, asked, &mut |key| key);
            }
            let Some(told_by) = told_by else { return report };
            report.row_details.reasons = RowReasons::of_rows(&report.rows, &reasons);
            report.off_cpu_causes = Some(causes.finish(told_by));
            report
        };
        Report { trace, limits, loss, functions: in_order.into_iter().map(report).collect() }
    }
}

impl SummedFunction {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.position = self.position.min(other.position);
        self.calls.merge(&other.calls);
        self.causes.merge(&other.causes);
    }
}

/// What is known of all recordings together: windows and losses one beside the other.
fn of_recordings(recordings: BTreeMap<String, SummedRecording>) -> (TraceSummary, Limits, Loss) {
    let mut sum: Option<(TraceSummary, Limits)> = None;
    let mut losses = Vec::with_capacity(recordings.len());
    for SummedRecording { trace, ledger, threads, limits } in recordings.into_values() {
        losses.push(ledger.finish(threads));
        sum = Some(match sum {
            None => (trace, limits),
            Some((traces, all)) => (traces.and(trace), all.and(limits)),
        });
    }
    let (trace, limits) = sum.unwrap_or_default();
    (trace, limits, loss::of_all(losses))
}

impl TraceSummary {
    /// Of two recordings: spans add up, also where both are of the same time.
    fn and(self, other: Self) -> Self {
        let no_off_cpu: Option<NoOffCpu> = self.no_off_cpu.into_iter().chain(other.no_off_cpu).min();
        Self {
            window: (self.window.0.min(other.window.0), self.window.1.max(other.window.1)),
            span_ns: self.span_ns.saturating_add(other.span_ns),
            threads: self.threads.saturating_add(other.threads),
            events: self.events.saturating_add(other.events),
            no_times: self.no_times.or(other.no_times),
            no_off_cpu,
        }
    }
}

impl Limits {
    /// Of two recordings.
    fn and(self, other: Self) -> Self {
        Self {
            capped_tail_calls: self.capped_tail_calls.saturating_add(other.capped_tail_calls),
            capped_stacks: self.capped_stacks.saturating_add(other.capped_stacks),
            undecided_landings: self.undecided_landings.saturating_add(other.undecided_landings),
            undecided_calls: self.undecided_calls.saturating_add(other.undecided_calls),
            stack_switches: self.stack_switches.saturating_add(other.stack_switches),
        }
    }
}
