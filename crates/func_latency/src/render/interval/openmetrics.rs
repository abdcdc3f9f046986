//! The figures so far, for a collector of metrics: <https://openmetrics.io>.

use std::fmt::Write as _;
use std::path::Path;

use analyzer::FunctionReport;
use anyhow::Result;

use super::SeenBy;
use crate::output;

/// What is counted since the watch began.
pub(crate) struct Totals<'a> {
    pub(crate) figures: &'a [FunctionReport],
    pub(crate) names: &'a [(String, String)],
    pub(crate) lost_ns: u64,
    pub(crate) seen_by: SeenBy,
}

/// Replaces the file.
///
/// # Errors
/// It cannot be written.
pub(crate) fn replace(path: &Path, totals: &Totals<'_>) -> Result<()> {
    let text = text(totals);
    output::write_file(path, |out| out.write_all(text.as_bytes()))
}

fn text(totals: &Totals<'_>) -> String {
    let mut text = String::new();
    calls(&mut text, totals);
    histograms(&mut text, totals);
    let lost_s = totals.lost_ns as f64 / NS_PER_S;
    match totals.seen_by {
        SeenBy::Trace(trace) => {
            let (recorded, not_decoded) = (trace.recorded_bytes as f64, trace.not_decoded_bytes as f64);
            counter(&mut text, "trace", "bytes", "Trace that was recorded.", recorded);
            counter(
                &mut text,
                "not_decoded",
                "bytes",
                "Trace that was recorded and left undecoded.",
                not_decoded,
            );
            let behind_s = trace.behind_ns as f64 / NS_PER_S;
            gauge(&mut text, "behind", "seconds", "How far decoding is behind recording.", behind_s);
        }
        SeenBy::Probes { cost_percent } => {
            let help = "CPU time of the probes, of that which the processes take without.";
            gauge(&mut text, "probe_cost", "ratio", help, cost_percent / 100.0);
        }
    }
    counter(&mut text, "lost", "seconds", "Time of threads of which nothing is known.", lost_s);
    text.push_str("# EOF\n");
    text
}

const NS_PER_S: f64 = 1e9;

fn counter(text: &mut String, name: &str, unit: &str, help: &str, value: f64) {
    family(text, name, unit, "counter", help);
    let _ = writeln!(text, "func_latency_{name}_{unit}_total {value}");
}

fn gauge(text: &mut String, name: &str, unit: &str, help: &str, value: f64) {
    family(text, name, unit, "gauge", help);
    let _ = writeln!(text, "func_latency_{name}_{unit} {value}");
}

fn family(text: &mut String, name: &str, unit: &str, kind: &str, help: &str) {
    let name = format!("func_latency_{name}_{unit}");
    let _ = write!(text, "# TYPE {name} {kind}\n# UNIT {name} {unit}\n# HELP {name} {help}\n");
}

fn labels((function, object): &(String, String)) -> String {
    format!("function=\"{}\",object=\"{}\"", escaped(function), escaped(object))
}

/// All counted calls; of those that probes time, the figures are of some.
fn calls(text: &mut String, totals: &Totals<'_>) {
    let name = "func_latency_calls";
    let _ = write!(text, "# TYPE {name} counter\n# HELP {name} Calls that were seen from entry to end.\n");
    for (function, names) in totals.figures.iter().zip(totals.names) {
        let _ = writeln!(text, "{name}_total{{{}}} {}", labels(names), function.counted_calls());
    }
}

/// Latencies by powers of two.
fn histograms(text: &mut String, totals: &Totals<'_>) {
    let name = "func_latency_call_seconds";
    let _ = write!(text, "# TYPE {name} histogram\n# UNIT {name} seconds\n# HELP {name} Latency of calls.\n");
    for (function, names) in totals.figures.iter().zip(totals.names) {
        let labels = labels(names);
        let mut count = 0;
        for bucket in &function.figures.histogram {
            count += bucket.count;
            // The bucket has latencies below `high`, in whole ns.
            let most_s = bucket.high_ns.saturating_sub(1) as f64 / 1e9;
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{most_s:?}\"}} {count}");
        }
        let (count, sum_s) = (function.figures.latency.count, function.figures.latency.sum_ns as f64 / 1e9);
        let _ = write!(
            text,
            "{name}_bucket{{{labels},le=\"+Inf\"}} {count}\n{name}_count{{{labels}}} {count}\n{name}_sum{{{labels}}} {sum_s}\n"
        );
    }
}

/// A label's value.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::interval::TraceSeen;

    #[test]
    fn a_file_without_calls_is_whole() {
        let totals = Totals {
            figures: &[],
            names: &[],
            lost_ns: 1_500_000_000,
            seen_by: SeenBy::Trace(TraceSeen { recorded_bytes: 7, ..TraceSeen::default() }),
        };
        let text = text(&totals);
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        assert_eq!(value("func_latency_trace_bytes_total"), Some("7"));
        assert_eq!(value("func_latency_lost_seconds_total"), Some("1.5"));
        assert!(text.ends_with("# EOF\n"), "{text}");
        assert_eq!(text.matches("# TYPE").count(), 6, "{text}");
    }

    #[test]
    fn probes_have_a_cost_and_no_trace() {
        let seen_by = SeenBy::Probes { cost_percent: 2.5 };
        let text = text(&Totals { figures: &[], names: &[], lost_ns: 0, seen_by });
        assert!(
            text.contains("\nfunc_latency_probe_cost_ratio 0.025\n") && !text.contains("trace"),
            "{text}"
        );
    }

    #[test]
    fn a_name_cannot_end_its_label() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
