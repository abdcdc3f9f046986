//! What was lost, as JSON.

use analyzer::{CauseLoss, CpuLoss, ThreadLoss};
use serde::Serialize;

use super::View;

#[derive(Serialize)]
pub(super) struct Loss<'a> {
    overflows: u64,
    truncated: u64,
    errors: u64,
    /// Null, as all times here and below: no time is known.
    lost_ns: Option<u64>,
    coverage: Option<f64>,
    by_cause: Vec<LossCause>,
    threads: Vec<LossThread>,
    problems: &'a [String],
    capped_tail_calls: u64,
    capped_stacks: u64,
    undecided_landings: u64,
    undecided_calls: u64,
    stack_switches: u64,
    cpus: Vec<OnCpu>,
    /// Gaps with an unknown thread: they are in `by_cause`, and in no thread.
    unowned: Vec<LossCause>,
}

#[derive(Serialize)]
struct LossCause {
    cause: &'static str,
    object: Option<String>,
    count: u64,
    bytes: u64,
    lost_ns: Option<u64>,
    /// Calls of the functions that such a gap cut.
    calls: u64,
    first: GapPlace,
}

/// The first gap.
#[derive(Serialize)]
struct GapPlace {
    /// Null: of no thread that is known.
    tid: Option<i32>,
    time_ns: Option<u64>,
    /// Null: probes have no trace.
    aux_offset: Option<String>,
}

#[derive(Serialize)]
struct LossThread {
    tid: i32,
    window_ns: Option<u64>,
    observed_ns: Option<u64>,
    lost_ns: Option<u64>,
    /// Part of the observed time; null without an IP filter.
    outside_filter_ns: Option<u64>,
    by_cause: Vec<LossCause>,
}

#[derive(Serialize)]
struct OnCpu {
    /// Null: the recording does not say.
    cpu: Option<u32>,
    by_cause: Vec<LossCause>,
}

impl<'a> Loss<'a> {
    /// Of all threads and CPUs.
    pub(super) fn new(view: &View<'a>) -> Self {
        let (loss, limits) = (&view.report.loss, &view.report.limits);
        let thread = |t: &ThreadLoss| LossThread {
            tid: t.tid.0,
            window_ns: view.timed(t.window_ns),
            observed_ns: view.timed(t.observed_ns),
            lost_ns: view.timed(t.lost_ns),
            outside_filter_ns: view.timed(t.outside_ns).flatten(),
            by_cause: causes(view, &t.by_cause),
        };
        let on_cpu = |c: &CpuLoss| OnCpu { cpu: c.cpu.map(|cpu| cpu.0), by_cause: causes(view, &c.by_cause) };
        Self {
            overflows: loss.overflows,
            truncated: loss.truncated,
            errors: loss.errors,
            lost_ns: view.timed(loss.lost_ns),
            coverage: view.timed(loss.coverage),
            by_cause: causes(view, &loss.by_cause),
            threads: loss.threads.iter().map(thread).collect(),
            problems: view.problems,
            capped_tail_calls: limits.capped_tail_calls,
            capped_stacks: limits.capped_stacks,
            undecided_landings: limits.undecided_landings,
            undecided_calls: limits.undecided_calls,
            stack_switches: limits.stack_switches,
            cpus: loss.cpus.iter().map(on_cpu).collect(),
            unowned: causes(view, &loss.unowned),
        }
    }
}

fn causes(view: &View<'_>, table: &[CauseLoss]) -> Vec<LossCause> {
    let cause = |c: &CauseLoss| LossCause {
        cause: c.cause.name(),
        object: c.object().map(|id| view.names.object(id)),
        count: c.count,
        bytes: c.bytes,
        lost_ns: view.timed(c.lost_ns),
        calls: c.calls,
        first: GapPlace {
            tid: Some(c.first.tid.0).filter(|tid| *tid > 0),
            time_ns: view.timed(c.first.time.0),
            aux_offset: (!view.is_probed()).then(|| c.first.at.to_string()),
        },
    };
    table.iter().map(cause).collect()
}
