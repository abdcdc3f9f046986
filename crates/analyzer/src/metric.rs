//! The counters of calls as figures: what of a call is counted, and how that is spread over many calls.

use crate::counted::Counted;
use crate::durations::SortedDurations;
use crate::histogram::histogram;
use crate::request::CountersAsked;
use crate::stats::{Quantiles, Stats};

/// A number that each call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// Instructions of user code.
    Instructions,
    /// Core cycles of user code.
    Cycles,
    /// Instructions per cycle, in thousandths.
    MilliIpc,
    /// The core's frequency in MHz that CBR packets say, as the mean over the call's cycles of user code.
    Frequency,
    /// Conditional and indirect branches of user code.
    Branches,
    /// Conditional branches of user code.
    ConditionalBranches,
    /// Indirect branches of user code.
    IndirectBranches,
    /// Calls that user code made.
    Calls,
    /// Instructions of kernel code.
    KernelInstructions,
}

impl Metric {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 9] = [
        Self::Instructions,
        Self::Cycles,
        Self::MilliIpc,
        Self::Frequency,
        Self::Branches,
        Self::ConditionalBranches,
        Self::IndirectBranches,
        Self::Calls,
        Self::KernelInstructions,
    ];

    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Cycles => "cycles",
            Self::MilliIpc => "IPC",
            Self::Frequency => "MHz",
            Self::Branches => "branches",
            Self::ConditionalBranches => "conditional",
            Self::IndirectBranches => "indirect",
            Self::Calls => "calls",
            Self::KernelInstructions => "kernel instr.",
        }
    }

    /// Each call's number is exact.
    pub(crate) const fn is_exact(self) -> bool {
        !matches!(self, Self::Cycles | Self::MilliIpc)
    }

    /// The number that a call has, with the most by which it may be too high and too low; `None`: not known.
    pub(crate) fn of(self, call: &Counted, asked: CountersAsked) -> Option<Within> {
        let executed = &call.executed;
        let exactly = |value| Some(Within { value, low: value, high: value });
        let is_known = match self {
            Self::KernelInstructions => asked.kernel && call.is_kernel_known(),
            _ => call.is_known(),
        };
        if !is_known {
            return None;
        }
        match self {
            Self::Instructions => exactly(executed.instructions),
            Self::Branches => {
                exactly(executed.conditional_branches.saturating_add(executed.indirect_branches))
            }
            Self::ConditionalBranches => exactly(executed.conditional_branches),
            Self::IndirectBranches => exactly(executed.indirect_branches),
            Self::Calls => exactly(executed.calls),
            Self::KernelInstructions => exactly(executed.kernel_instructions),
            Self::Cycles => call.cycles.map(|cycles| Within {
                value: cycles.count,
                low: cycles.count.saturating_sub(cycles.error),
                high: cycles.count.saturating_add(cycles.error),
            }),
            Self::MilliIpc => {
                let (ipc, error) = call.ipc()?;
                let milli = |ipc: f64| (ipc * 1000.0).round() as u64;
                Some(Within { value: milli(ipc), low: milli(ipc - error), high: milli(ipc + error) })
            }
            Self::Frequency => exactly(asked.mhz(call)?.round() as u64),
        }
    }
}

/// A number, and the bounds of the true one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Within {
    pub(crate) value: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
}

/// How a number is spread over calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Calls with a known number.
    pub count: u64,
    /// Its sum over them.
    pub sum: u64,
    /// Its figures; `None`: there is no such call.
    pub spread: Option<CountSpread>,
    /// Calls by powers of two.
    pub histogram: Vec<CountBucket>,
}

/// The figures of a number that calls have: percentiles by nearest rank, and the most by which they may be
/// wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountSpread {
    /// Smallest.
    pub min: CountFigure,
    /// Arithmetic mean.
    pub mean: f64,
    /// The most by which the mean may be wrong.
    pub mean_error: f64,
    /// Standard deviation of the population.
    pub stddev: f64,
    /// Median.
    pub p50: CountFigure,
    /// 90th percentile.
    pub p90: CountFigure,
    /// 99th percentile.
    pub p99: CountFigure,
    /// 99.9th percentile.
    pub p999: CountFigure,
    /// Largest.
    pub max: CountFigure,
}

/// A figure, and the most by which it may be wrong; counts are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountFigure {
    /// The figure.
    pub value: u64,
    /// Its error.
    pub error: u64,
}

/// Calls with a number in `[low, high)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountBucket {
    /// 0 or a power of two.
    pub low: u64,
    /// A power of two ([`u64::MAX`] for the last bucket there can be).
    pub high: u64,
    /// The calls.
    pub count: u64,
}

impl Distribution {
    /// Of numbers, of their least and their most unless they are exact, and of the sum of their errors.
    pub(crate) fn of(
        values: &SortedDurations,
        bounds: Option<&(SortedDurations, SortedDurations)>,
        error_sum: u64,
    ) -> Self {
        let Stats { count, sum_ns: sum, spread, .. } = Stats::of(values);
        let bounds = bounds.map(|(low, high)| [low, high].map(|bound| Quantiles::of(bound, 0)));
        let figure = |value: u64, of: fn(&Quantiles) -> Option<u64>| {
            let [low, high] = bounds
                .as_ref()
                .map_or([value; 2], |bounds| bounds.each_ref().map(|bound| of(bound).unwrap_or(value)));
            CountFigure { value, error: value.saturating_sub(low).max(high.saturating_sub(value)) }
        };
        let spread = spread.map(|s| CountSpread {
            min: figure(s.min_ns, |q| q.min_ns),
            mean: s.mean_ns,
            mean_error: error_sum as f64 / count as f64,
            stddev: s.stddev_ns,
            p50: figure(s.p50_ns, |q| q.p50_ns),
            p90: figure(s.p90_ns, |q| q.p90_ns),
            p99: figure(s.p99_ns, |q| q.p99_ns),
            p999: figure(s.p999_ns, |q| q.p999_ns),
            max: figure(s.max_ns, |q| q.max_ns),
        });
        let buckets = histogram(values, None).into_iter();
        let histogram = buckets.map(|b| CountBucket { low: b.low_ns, high: b.high_ns, count: b.count });
        Self { count, sum, spread, histogram: histogram.collect() }
    }
}
