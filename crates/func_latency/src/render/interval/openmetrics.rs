//! The figures so far, for a collector of metrics: <https://openmetrics.io>.

use std::fmt::Write as _;
use std::path::Path;

use analyzer::FunctionReport;
use anyhow::Result;

use crate::output;

/// What is counted since the watch began.
pub(crate) struct Totals<'a> {
    pub(crate) figures: &'a [FunctionReport],
    pub(crate) names: &'a [(String, String)],
    pub(crate) trace_bytes: u64,
    pub(crate) not_decoded_bytes: u64,
    pub(crate) lost_ns: u64,
    pub(crate) behind_ns: u64,
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
    histograms(&mut text, totals);
    let counters = [
        ("func_latency_trace_bytes", "bytes", "Trace that was recorded.", totals.trace_bytes as f64),
        (
            "func_latency_not_decoded_bytes",
            "bytes",
            "Trace that was recorded and left undecoded.",
            totals.not_decoded_bytes as f64,
        ),
        (
            "func_latency_lost_seconds",
            "seconds",
            "Time of threads of which nothing is known.",
            totals.lost_ns as f64 / 1e9,
        ),
    ];
    for (name, unit, help, value) in counters {
        let _ = write!(
            text,
            "# TYPE {name} counter\n# UNIT {name} {unit}\n# HELP {name} {help}\n{name}_total {value}\n"
        );
    }
    let name = "func_latency_behind_seconds";
    let behind_s = totals.behind_ns as f64 / 1e9;
    let _ = write!(
        text,
        "# TYPE {name} gauge\n# UNIT {name} seconds\n# HELP {name} How far decoding is behind recording.\n{name} {behind_s}\n# EOF\n"
    );
    text
}

/// Latencies by powers of two.
fn histograms(text: &mut String, totals: &Totals<'_>) {
    let name = "func_latency_call_seconds";
    let _ = write!(text, "# TYPE {name} histogram\n# UNIT {name} seconds\n# HELP {name} Latency of calls.\n");
    for (function, (of, object)) in totals.figures.iter().zip(totals.names) {
        let labels = format!("function=\"{}\",object=\"{}\"", escaped(of), escaped(object));
        let mut count = 0;
        for bucket in &function.histogram {
            count += bucket.count;
            // The bucket has latencies below `high`, in whole ns.
            let most_s = bucket.high_ns.saturating_sub(1) as f64 / 1e9;
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{most_s:?}\"}} {count}");
        }
        let (count, sum_s) = (function.latency.count, function.latency.sum_ns as f64 / 1e9);
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

    #[test]
    fn a_file_without_calls_is_whole() {
        let totals = Totals {
            figures: &[],
            names: &[],
            trace_bytes: 7,
            not_decoded_bytes: 0,
            lost_ns: 1_500_000_000,
            behind_ns: 0,
        };
        let text = text(&totals);
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        assert_eq!(value("func_latency_trace_bytes_total"), Some("7"));
        assert_eq!(value("func_latency_lost_seconds_total"), Some("1.5"));
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn a_name_cannot_end_its_label() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
