//! What calls executed, for programs: the numbers of a row, of a child, and the figures of a set of calls.

use analyzer::{
    CallRow, CountFigure, CountSpread, Counted, CounterReport, CountersAsked, CycleCount, Distribution,
    Metric,
};
use serde::Serialize;

/// The numbers of one call, or the sums of several: the columns in their order. What is not known is null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Instructions of user code.
    pub instructions: Option<u64>,
    /// Conditional branches.
    pub conditional_branches: Option<u64>,
    /// Indirect branches; returns are none.
    pub indirect_branches: Option<u64>,
    /// Calls that it made.
    pub calls: Option<u64>,
    /// Instructions of kernel code, if that was traced.
    pub kernel_instructions: Option<u64>,
    /// Core cycles of user code, if there are CYC packets.
    pub cycles: Option<u64>,
    /// The true number of cycles differs by at most this.
    pub cycles_error: Option<u64>,
    /// The core's frequency in MHz that CBR packets say, as the mean over the cycles.
    pub frequency_mhz: Option<u64>,
}

impl Numbers {
    /// Those of a call; all null unless it was seen whole.
    #[must_use]
    pub fn of_call(call: &CallRow, asked: CountersAsked) -> Self {
        call.counted()
            .as_ref()
            .map_or_else(Self::default, |counted| Self::of(counted, asked, counted.is_of_kernel()))
    }

    /// The known numbers of what was executed; `of_kernel`: in a function of the kernel, which runs no user
    /// code.
    #[must_use]
    pub fn of(counted: &Counted, asked: CountersAsked, of_kernel: bool) -> Self {
        let Counted { executed, cycles, .. } = counted;
        let is_known = counted.is_known() && !of_kernel;
        let user = |value: u64| is_known.then_some(value);
        let cycles = cycles.filter(|_| is_known).map(|CycleCount { count, error }| (count, error)).unzip();
        let is_kernel_known = asked.kernel && counted.is_kernel_known();
        Self {
            instructions: user(executed.instructions),
            conditional_branches: user(executed.conditional_branches),
            indirect_branches: user(executed.indirect_branches),
            calls: user(executed.calls),
            kernel_instructions: is_kernel_known.then_some(executed.kernel_instructions),
            cycles: cycles.0,
            cycles_error: cycles.1,
            frequency_mhz: asked.mhz(counted).filter(|_| is_known).map(|mhz| mhz.round() as u64),
        }
    }
}

/// The counters of a set of calls.
#[derive(Serialize)]
pub(super) struct CountersJson {
    instructions: Option<CounterFigures>,
    conditional_branches: Option<CounterFigures>,
    indirect_branches: Option<CounterFigures>,
    branches: Option<CounterFigures>,
    calls: Option<CounterFigures>,
    /// Null: the kernel was not traced, or its code is not there.
    kernel_instructions: Option<CounterFigures>,
    /// Null: the recording has no CYC packets.
    cycles: Option<CounterFigures>,
    /// In thousandths; of calls whose cycles are known to more than their error.
    milli_ipc: Option<CounterFigures>,
    /// Null: no CBR packet says it, or cycles or the bus clock are not known.
    frequency_mhz: Option<CounterFigures>,
    /// Of all calls together.
    ipc: Option<f64>,
    ipc_error: Option<f64>,
    /// Calls in which code is missing: they are in no figure here.
    calls_with_gaps: u64,
}

/// The figures of one number; those of counts are exact, and have errors of 0.
#[derive(Serialize)]
struct CounterFigures {
    count: u64,
    sum: Option<u64>,
    min: Option<u64>,
    mean: Option<f64>,
    stddev: Option<f64>,
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    p999: Option<u64>,
    max: Option<u64>,
    mean_error: Option<f64>,
    p50_error: Option<u64>,
    p90_error: Option<u64>,
    p99_error: Option<u64>,
    p999_error: Option<u64>,
    histogram: Vec<CountBucketJson>,
}

#[derive(Serialize)]
struct CountBucketJson {
    low: u64,
    high: u64,
    count: u64,
}

impl CountersJson {
    pub(super) fn of(report: &CounterReport) -> Self {
        let figures = |metric| report.get(metric).map(CounterFigures::of);
        let all = Some(&report.known.1).filter(|all| !all.is_of_kernel());
        let (ipc, ipc_error) = all.and_then(Counted::ipc).unzip();
        Self {
            instructions: figures(Metric::Instructions),
            conditional_branches: figures(Metric::ConditionalBranches),
            indirect_branches: figures(Metric::IndirectBranches),
            branches: figures(Metric::Branches),
            calls: figures(Metric::Calls),
            kernel_instructions: figures(Metric::KernelInstructions),
            cycles: figures(Metric::Cycles),
            milli_ipc: figures(Metric::MilliIpc),
            frequency_mhz: figures(Metric::Frequency),
            ipc,
            ipc_error,
            calls_with_gaps: report.with_gaps,
        }
    }
}

impl CounterFigures {
    fn of(distribution: &Distribution) -> Self {
        let spread = distribution.spread.as_ref();
        let value = |of: fn(&CountSpread) -> CountFigure| spread.map(|spread| of(spread).value);
        let error = |of: fn(&CountSpread) -> CountFigure| spread.map(|spread| of(spread).error);
        let slots = distribution.histogram.iter();
        Self {
            count: distribution.count,
            sum: spread.map(|_| distribution.sum),
            min: value(|s| s.min),
            mean: spread.map(|s| s.mean),
            stddev: spread.map(|s| s.stddev),
            p50: value(|s| s.p50),
            p90: value(|s| s.p90),
            p99: value(|s| s.p99),
            p999: value(|s| s.p999),
            max: value(|s| s.max),
            mean_error: spread.map(|s| s.mean_error),
            p50_error: error(|s| s.p50),
            p90_error: error(|s| s.p90),
            p99_error: error(|s| s.p99),
            p999_error: error(|s| s.p999),
            histogram: slots.map(|b| CountBucketJson { low: b.low, high: b.high, count: b.count }).collect(),
        }
    }
}
