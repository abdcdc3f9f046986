//! Sums of the calls of a part of a window, which add up to those of the window.

use std::sync::Arc;

use model::Ns;

use super::slices::Slices;
use crate::aggregate::Aggregate;
use crate::call_row::{CallRow, SliceKind};
use crate::children::ChildKey;
use crate::off_cpu_causes::{CauseSums, ToldBy};
use crate::report::FunctionReport;
use crate::request::Request;
use crate::total::{OffCpuKnown, RunningTotal, percent_of_a_core};

/// The sums of calls, and why they were off the CPU.
#[derive(Clone)]
pub(super) struct ProbedSums {
    calls: Aggregate<ChildKey>,
    /// By wanted function, of calls that began alone and of those with children.
    causes: Vec<[CauseSums; 2]>,
    off_cpu: OffCpuKnown,
}

impl ProbedSums {
    pub(super) fn new(request: Arc<Request>, off_cpu: OffCpuKnown) -> Self {
        let causes = request.functions.iter().map(|_| Default::default()).collect();
        Self { calls: Aggregate::new(request, off_cpu), causes, off_cpu }
    }

    /// Whether time off the CPU is known.
    pub(super) fn off_cpu(&self) -> OffCpuKnown {
        self.off_cpu
    }

    /// Adds a call that has ended. True if it is one of those that were asked for.
    pub(super) fn add(
        &mut self,
        function: usize,
        row: &CallRow,
        children: &[(ChildKey, RunningTotal)],
    ) -> bool {
        self.calls.add(function as u32, row, children, &[], |key| key)
    }

    /// Why calls of a function were off the CPU that began in such a slice; `None`: they enter no figures.
    pub(super) fn causes(&mut self, function: usize, began: SliceKind) -> Option<&mut CauseSums> {
        let [alone, with_children] = self.causes.get_mut(function)?;
        match began {
            SliceKind::Alone => Some(alone),
            SliceKind::WithChildren => Some(with_children),
            SliceKind::Between => None,
        }
    }

    /// What was added so far, which is then forgotten.
    pub(super) fn take(&mut self) -> Self {
        let anew = Self::new(Arc::clone(self.calls.request()), self.off_cpu);
        std::mem::replace(self, anew)
    }

    /// Adds those of another part; rows are not kept.
    pub(super) fn merge(&mut self, other: &Self) {
        self.calls.merge(&other.calls);
        for (sums, others) in self.causes.iter_mut().flatten().zip(other.causes.iter().flatten()) {
            sums.merge(others);
        }
    }

    /// The figures of each function, in a span of which a share was seen (`coverage`).
    pub(super) fn finish(self, slices: &Slices, span: (Ns, Ns), coverage: f64) -> Vec<FunctionReport> {
        let scale = percent_of_a_core(span.1.since(span.0), coverage);
        let percent = |on_cpu_ns| on_cpu_ns as f64 * scale;
        let mut functions = self.calls.finish(|key| key, percent, slices.spans(span));
        for (function, [alone, with_children]) in functions.iter_mut().zip(self.causes) {
            let figures_of = function.sliced.map_or(slices.first_kind(), |sliced| sliced.figures_of);
            let causes = if figures_of == SliceKind::Alone { alone } else { with_children };
            function.off_cpu_causes = self.off_cpu.0.then(|| causes.finish(ToldBy::Scheduler));
        }
        functions
    }
}

/// The sums of one interval after the other.
pub(super) struct IntervalSums {
    /// Of the calls that have ended since the last interval.
    pub(super) now: ProbedSums,
    /// Of those of the intervals before; `None`: there was none.
    earlier: Option<ProbedSums>,
}

impl IntervalSums {
    /// `now` is empty.
    pub(super) fn new(now: ProbedSums) -> Self {
        Self { now, earlier: None }
    }

    /// Those of the interval that ends now.
    pub(super) fn take(&mut self) -> ProbedSums {
        let sums = self.now.take();
        match &mut self.earlier {
            Some(earlier) => earlier.merge(&sums),
            None => self.earlier = Some(sums.clone()),
        }
        sums
    }

    /// Those of all intervals that were taken.
    pub(super) fn earlier(&self) -> Option<&ProbedSums> {
        self.earlier.as_ref()
    }

    /// Those of all calls.
    pub(super) fn whole(self) -> ProbedSums {
        let mut sums = self.now;
        self.earlier.iter().for_each(|earlier| sums.merge(earlier));
        sums
    }
}
