//! Functions that were not called while the recording was made.

use analyzer::{CallCounts, Report};
use model::Recording;

use crate::config::CallsConfig;
use crate::filter::{NsRange, TidSet};
use crate::messages;
use crate::render::units::{counted, duration};
use crate::target::Wanted;

/// A call of any status.
pub(crate) fn seen(calls: &CallCounts) -> bool {
    let CallCounts { complete, unwound, open_start, open_end, cut, .. } = *calls;
    [complete, unwound, open_start, open_end, cut].iter().any(|n| *n > 0)
}

/// Leaves out what a pattern matched and nothing called, unless nothing else is there.
pub(crate) fn leave_out_uncalled(report: &mut Report, wanted: Vec<Wanted>) -> Vec<Wanted> {
    if !report.functions.iter().any(|f| seen(&f.calls)) {
        return wanted;
    }
    let all = wanted.len();
    let functions = std::mem::take(&mut report.functions);
    let pairs = functions.into_iter().zip(wanted);
    let (functions, wanted): (Vec<_>, Vec<_>) =
        pairs.filter(|(function, wanted)| seen(&function.calls) || !wanted.by_pattern()).unzip();
    report.functions = functions;
    if wanted.len() < all {
        messages::note(format!("{} of the {all} functions were not called", all - wanted.len()));
    }
    wanted
}

/// The functions of which no call of any status was seen.
pub(crate) fn uncalled(report: &Report, wanted: &[Wanted]) -> Vec<String> {
    (report.functions.iter().zip(wanted))
        .filter(|(function, _)| !seen(&function.calls))
        .map(|(_, wanted)| format!("{} ({})", wanted.function.name, wanted.function.object_name))
        .collect()
}

/// What was seen instead of calls.
pub(crate) fn no_calls(
    config: &CallsConfig,
    recording: &Recording<'_>,
    report: &Report,
    names: &[String],
) -> String {
    let mut text = format!(
        "no call of {} was seen: the trace has {} of {} with {} of control flow",
        messages::list(names),
        duration(report.trace.span_ns),
        counted(report.trace.threads, "thread"),
        counted(report.trace.events, "event"),
    );
    if recording.pt.has_ip_filter {
        text = format!("{text}, all inside its IP filter ({})", recording.ip_filter.trim());
    }
    if restricted(config) {
        text.push_str(", and -a, --li, --ti, -p or -T leave some out");
    }
    text
}

fn restricted(config: &CallsConfig) -> bool {
    config.ancestor.is_some()
        || config.latency_ns != NsRange::ALL
        || config.window.is_some()
        || !config.pids.is_empty()
        || config.tids != TidSet::default()
}
