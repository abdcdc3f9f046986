//! What the analysis found out.  Functions are ids and sites are places; names are asked of `image`.

use model::{AuxOffset, Cpu, FunctionId, GapCause, NoOffCpu, NoTimes, Ns, ObjectId, Tid};
use serde::{Deserialize, Serialize};

use crate::call_row::{CallRow, SliceKind};
use crate::children::ChildRow;
use crate::counted_sums::CounterReport;
use crate::histogram::Bucket;
use crate::off_cpu_causes::OffCpuCauses;
use crate::open_calls::OpenCalls;
use crate::place::{CalledFrom, ChildKind};
use crate::row_children::RowChildren;
use crate::row_reasons::RowReasons;
use crate::stats::{Quantiles, Stats};
use crate::total::Total;

/// The report on one recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The recording as a whole.
    pub trace: TraceSummary,
    /// What was lost.
    pub loss: Loss,
    /// One for each wanted function, in the order of the request.
    pub functions: Vec<FunctionReport>,
    /// Limits of the analysis that were reached.
    pub limits: Limits,
}

/// The recording as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSummary {
    /// First and last instant of the recording.
    pub window: (Ns, Ns),
    /// Length of the recording.
    pub span_ns: u64,
    /// Threads that were traced.
    pub threads: u64,
    /// Events that were analysed (control transfers and gaps).
    pub events: u64,
    /// Why no time in the trace is known; then calls are counted, and every time in this report means
    /// nothing.
    pub no_times: Option<NoTimes>,
    /// Why off-CPU time is not known, which then is `None` everywhere.
    pub no_off_cpu: Option<NoOffCpu>,
}

/// What was lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loss {
    /// Internal overflows (OVF packets, wherever they stand).
    pub overflows: u64,
    /// Times that a buffer was full.
    pub truncated: u64,
    /// Places where packets or code could not be followed.
    pub errors: u64,
    /// Sum over the threads.
    pub lost_ns: u64,
    /// Sum over the threads of their observed time / sum of their windows; without a thread 0 if there are
    /// gaps, else 1.
    pub coverage: f64,
    /// By cause, in order of causes: the sums over `threads` and `unowned`, and over `cpus`.
    pub by_cause: Vec<CauseLoss>,
    /// By thread.
    pub threads: Vec<ThreadLoss>,
    /// Gaps of no known thread: they have bytes, and no thread's time.
    pub unowned: Vec<CauseLoss>,
    /// By the CPU that the thread was on when the gap began.
    pub cpus: Vec<CpuLoss>,
    /// Gaps that `lost_ns` and `coverage` do not have.
    pub untimed: Untimed,
}

/// Gaps of unknown length: those of no known thread, and those that end when they begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untimed {
    /// How many.
    pub count: u64,
    /// AUX bytes that were skipped.
    pub bytes: u64,
}

impl Loss {
    /// Lost time as a share of the threads' windows, in percent: not by way of `coverage`, which rounds, so
    /// that 1 % is not more than 1 %. All, if there are gaps and no thread.
    #[must_use]
    pub fn percent(&self) -> f64 {
        let window_ns: u128 = self.threads.iter().map(|thread| u128::from(thread.window_ns)).sum();
        match (window_ns, self.by_cause.is_empty()) {
            (0, true) => 0.0,
            (0, false) => 100.0,
            _ => 100.0 * self.lost_ns as f64 / window_ns as f64,
        }
    }
}

/// Gaps of one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseLoss {
    /// Why; that of the first gap, from which the others differ at most in the address.
    pub cause: GapCause,
    /// How many gaps.
    pub count: u64,
    /// AUX bytes that were skipped.
    pub bytes: u64,
    /// Time of threads that was lost; an instant that two gaps cover belongs to the first.
    pub lost_ns: u64,
    /// Calls in the report that such a gap cut.
    pub calls: u64,
    /// The first of them.
    pub first: GapPlace,
}

impl CauseLoss {
    /// The object with the missing code, if that is the cause.
    #[must_use]
    pub const fn object(&self) -> Option<ObjectId> {
        if let GapCause::MissingCode { object } = self.cause { Some(object) } else { None }
    }

    /// The one that took most: time, or where none did, trace.
    #[must_use]
    pub fn largest(table: &[Self]) -> Option<&Self> {
        let size = |c: &&Self| (c.lost_ns, c.bytes, c.count);
        table.iter().rev().max_by_key(size) // the first of equals
    }
}

/// Where a gap began: by time, then by thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GapPlace {
    /// Time.
    pub time: Ns,
    /// The gap's thread; not positive: not known.
    pub tid: Tid,
    /// In the AUX stream.
    pub at: AuxOffset,
}

/// What was lost of threads that ran on one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuLoss {
    /// The CPU; `None`: the recording does not say.
    pub cpu: Option<Cpu>,
    /// By cause, in order of causes.
    pub by_cause: Vec<CauseLoss>,
}

/// How much of a thread's life was seen.  `window_ns == observed_ns + lost_ns`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLoss {
    /// Thread.
    pub tid: Tid,
    /// From its trace start to its exit or the end of the recording.
    pub window_ns: u64,
    /// Seen, on or off the CPU.
    pub observed_ns: u64,
    /// In gaps.
    pub lost_ns: u64,
    /// Of the observed time, from leaving the IP filter's ranges (by a branch, or before the first entry
    /// into them) until entering them again, asleep or not: not lost, but not visible. `None` without an IP
    /// filter.
    pub outside_ns: Option<u64>,
    /// The gaps, in order of causes; their time adds up to `lost_ns`.
    pub by_cause: Vec<CauseLoss>,
}

/// Limits of the analysis that were reached.  All 0 in a sane recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Tail calls in chains so long that the oldest links were ended early.
    pub capped_tail_calls: u64,
    /// Times that a stack was deeper than the analysis follows; all its frames were cut.
    pub capped_stacks: u64,
    /// Landings in one of several frames that what followed did not tell apart.  One was taken.
    pub undecided_landings: u64,
    /// Calls that these may have left earlier, or not at all: [`crate::CallEnd::undecided`].
    pub undecided_calls: u64,
    /// Times that control landed where no open frame explains it (stack switches).
    pub stack_switches: u64,
}

/// One wanted function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionReport {
    /// The function.
    pub id: FunctionId,
    /// The number of its calls.
    pub calls: CallCounts,
    /// Figures of the counted (complete and unwound) calls.
    pub figures: CallFigures,
    /// What the figures may be if all calls are counted.
    pub tails: Tails,
    /// Calls inside of no other call of the function: no time counts twice.
    pub outermost: OutermostCalls,
    /// The calls by caller: longest first.
    pub callers: Vec<CallerReport>,
    /// Why they were off the CPU; `None`: it was not looked for.
    pub off_cpu_causes: Option<OffCpuCauses>,
    /// The calls that had not ended.
    pub open: OpenCalls,
    /// Every call by start, if rows were asked for.
    pub rows: Vec<CallRow>,
    /// What each row did.
    pub row_details: RowDetails,
    /// A call with children that took longer than itself.  There is none: [`crate::check`].
    pub overfull: Option<CallRow>,
    /// Which calls figures, callers and children are of; `None`: all calls.
    pub sliced: Option<Sliced>,
}

/// The figures of a set of calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallFigures {
    /// Latency of the calls, off-CPU time included.
    pub latency: Stats,
    /// Off-CPU time of the calls, zeros too; `None`: [`TraceSummary::no_off_cpu`].
    pub off_cpu: Option<Stats>,
    /// How far the latencies of the calls may be from the truth.
    pub error: ErrorBound,
    /// Latency by powers of two.
    pub histogram: Vec<Bucket>,
    /// Where the time went: longest first.  With `*self`, the rows add up to `latency.sum_ns` exactly.
    pub children: Vec<ChildRow>,
    /// What the calls executed; `None`: not asked for.
    pub counters: Option<CounterReport>,
}

/// The calls of a function that are inside of no other call of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OutermostCalls {
    /// Their number and time.
    pub total: Total,
    /// The true sum of their latencies differs by at most this.
    pub error_ns: u64,
    /// 100 is one core; `None`: off-CPU time is not known.
    pub cpu_percent: Option<f64>,
}

/// What each row of a function did, in the order of the rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowDetails {
    /// Its children, if they were asked for.
    pub children: RowChildren,
    /// What it waited for off the CPU, if that was looked for: with children of rows, and of calls that
    /// probes have timed.
    pub reasons: RowReasons,
}

impl FunctionReport {
    /// Calls that were seen from entry to end. With slices, some of them do not enter the figures.
    #[must_use]
    pub const fn counted_calls(&self) -> u64 {
        self.calls.complete.saturating_add(self.calls.unwound)
    }

    /// Counted calls that ran inside of another call of the function: their time is part of that one's.
    #[must_use]
    pub fn nested_calls(&self) -> u64 {
        // With slices, figures and outermost calls are of different parts of the window.
        let is_of_all = self.sliced.is_none();
        if is_of_all { self.figures.latency.count.saturating_sub(self.outermost.total.count) } else { 0 }
    }

    /// The sum of the children if no time counted twice: the outermost calls, of a function that calls
    /// itself directly only; `None`: no call is nested, or some are by way of other functions, with rows
    /// that have their time again.
    #[must_use]
    pub fn time_once(&self) -> Option<u64> {
        let other = self.figures.children.iter().filter(|child| child.kind != ChildKind::Recursion);
        let other_ns = other.map(|child| child.total.sum_ns).fold(0, u64::saturating_add);
        let is_once = self.nested_calls() > 0 && other_ns == self.outermost.total.sum_ns;
        is_once.then_some(self.outermost.total.sum_ns)
    }

    /// A call enters the figures, if it is counted.
    #[must_use]
    pub fn is_in_figures(&self, row: &CallRow) -> bool {
        match self.sliced {
            Some(sliced) => row.began() == sliced.figures_of,
            None => row.began() != SliceKind::Between,
        }
    }

    /// It is known what a call called.
    #[must_use]
    pub fn has_children_of(&self, row: &CallRow) -> bool {
        self.sliced.is_none() || row.began() == SliceKind::WithChildren
    }
}

/// Number of calls by status, and of those among the counted (complete and unwound) ones that are unlike the
/// rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCounts {
    /// Seen from entry to return.
    pub complete: u64,
    /// Left by an exception or `longjmp`.
    pub unwound: u64,
    /// Running when it was first seen.
    pub open_start: u64,
    /// Running when tracing ended.
    pub open_end: u64,
    /// A gap fell inside.
    pub cut: u64,
    /// Counted calls that ended at a jump out of the IP filter, or to missing code.
    pub ended_by_jump: u64,
    /// Counted calls that ran outside of the IP filter: [`crate::TracedRow::hidden`].
    pub hidden: u64,
    /// Counted calls with an end that is a guess: [`crate::CallEnd::undecided`].
    pub undecided: u64,
}

/// How far latencies may be from the truth: [`CallRow::error_ns`] of all counted calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorBound {
    /// Of all calls together; the mean is this / their number.
    pub sum_ns: u64,
    /// Of the least certain call.
    pub max_ns: u64,
    /// Calls with a latency below its own error.
    pub shorter: u64,
    /// The figures if every call took as little as its error allows.
    pub low: Quantiles,
    /// The figures if every call took as long as its error allows.
    pub high: Quantiles,
}

impl ErrorBound {
    /// Of calls with these latencies and errors.
    pub(crate) fn of_calls(calls: &[(u64, u64)]) -> Self {
        let with = |of: fn(u64, u64) -> u64| calls.iter().map(|(ns, error_ns)| of(*ns, *error_ns)).collect();
        Self {
            sum_ns: calls.iter().fold(0, |sum, (_, error_ns)| sum.saturating_add(*error_ns)),
            max_ns: calls.iter().map(|(_, error_ns)| *error_ns).max().unwrap_or(0),
            shorter: calls.iter().filter(|(ns, error_ns)| ns < error_ns).count() as u64,
            low: Quantiles::of(&with(u64::saturating_sub), 0),
            high: Quantiles::of(&with(u64::saturating_add), 0),
        }
    }

    /// How far off a figure may be: the larger of its distances from its bounds.
    #[must_use]
    pub fn of(&self, figure_ns: u64, bound: impl Fn(&Quantiles) -> Option<u64>) -> u64 {
        let (low, high) = (bound(&self.low), bound(&self.high));
        let (low_ns, high_ns) = (low.unwrap_or(figure_ns), high.unwrap_or(figure_ns));
        figure_ns.saturating_sub(low_ns).max(high_ns.saturating_sub(figure_ns))
    }
}

/// Bounds of the figures of *all* calls that were seen: the counted ones, each of which may be off by its
/// error, and those that were open or cut, with a latency that is known as "at least" only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tails {
    /// Calls that were not seen from entry to end.
    pub calls: u64,
    /// Each of them ended at its "at least", or as soon as it was long enough to be asked for
    /// ([`crate::LatencyRange`]).
    pub at_least: Quantiles,
    /// Each of them was longer than every call that was seen to end.
    pub at_most: Quantiles,
}

/// The counted calls from one site.
#[derive(Clone, Debug, PartialEq)]
pub struct CallerReport {
    /// The caller, and the calling (or jumping) instruction.
    pub from: CalledFrom,
    /// Figures of the calls.
    pub figures: CallFigures,
}

/// Which calls the figures and the children of a function are of, where its window had slices of both kinds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sliced {
    /// The figures: of calls that began in slices of this kind.
    pub figures_of: SliceKind,
    /// Time of these slices.
    pub figures_span_ns: u64,
    /// The children: of this many calls, which began in slices with children.
    pub children_calls: u64,
    /// The mean of the seen parts of these calls, without the time that probes added.
    pub children_mean_ns: Option<f64>,
    /// Time of those slices.
    pub children_span_ns: u64,
}
