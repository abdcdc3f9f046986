//! Sums of the calls that were traced, and why they were off the CPU.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::FunctionId;

use crate::aggregate::Aggregate;
use crate::children::Child;
use crate::code_map::CodeMap;
use crate::request::Surroundings;
use crate::running::EndedCall;
use crate::summary::SummedFunction;
use crate::taken::{RunSums, TakenCalls};
use crate::traced_causes::TracedCauses;

/// The sums of all wanted functions so far.
pub(crate) struct TracedSums<'a> {
    pub(crate) calls: Aggregate<Child>,
    pub(crate) causes: TracedCauses<'a>,
    /// Where the workers add up what is taken of runs; `None`: a worker takes them itself, for a longer run.
    pub(crate) taken: Option<TakenCalls>,
}

impl TracedSums<'_> {
    /// Goes on with a recording that has grown.
    pub(crate) fn grown(self, around: Surroundings<'_>) -> TracedSums<'_> {
        TracedSums { calls: self.calls, causes: self.causes.grown(around), taken: self.taken }
    }

    /// A call of the wanted function number `wanted` has ended, or will not be seen to end. True if it is one
    /// of those that were asked for.
    pub(crate) fn add(&mut self, wanted: u32, call: &EndedCall<'_>, map: &mut CodeMap<'_>) -> bool {
        let &EndedCall { row, children, counted, off_cpu_ns, .. } = call;
        let is_asked_for = self.calls.add(wanted, row, children, counted, |child| map.name(child));
        if is_asked_for {
            self.calls.count(wanted, row, children, counted);
            self.causes.add(wanted, row, off_cpu_ns);
        }
        is_asked_for
    }

    /// Adds the calls of a run. `is_open`: all calls of the function are within another one.
    pub(crate) fn take_run(&mut self, calls: &Arc<RunSums>, is_open: impl Fn(u32) -> bool) {
        self.calls.merge_whole_calls(calls, is_open);
        match &self.taken {
            Some(taken) => taken.add(calls),
            None => self.calls.merge_callers(calls),
        }
    }

    /// The sums of each wanted function, which are then forgotten.
    pub(crate) fn take(&mut self, map: &mut CodeMap<'_>) -> BTreeMap<FunctionId, SummedFunction> {
        let request = Arc::clone(self.calls.request());
        self.taken.iter().for_each(|taken| self.calls.add_callers(taken.take()));
        let calls = self.calls.take().named(|child| map.name(child));
        let sums = calls.into_iter().zip(self.causes.take(request.functions.len()));
        let functions = (0..).zip(&request.functions).zip(sums);
        functions
            .map(|((position, id), (calls, (causes, reasons)))| {
                (*id, SummedFunction { position, calls, causes, reasons })
            })
            .collect()
    }
}
