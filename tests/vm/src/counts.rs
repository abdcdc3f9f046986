//! How often functions were called: what the report says, what the target has printed, what the log says.

use std::path::Path;

use analyzer::off_cpu_spans;
use anyhow::{Context as _, Result, ensure};
use decoder::DecodeOptions;
use model::Ns;
use serde_json::Value;
use tracegen::truth::File;
use tracegen::truth::calls::{Oracle, Status};
use truth_tests::Opened;
use truth_tests::rows::{Compare, differences};

/// Calls of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    complete: u64,
    unwound: u64,
    open_start: u64,
    open_end: u64,
    cut: u64,
}

/// The report has the counts that the target has printed: all calls, from begin to end.
pub(crate) fn same_as_printed(report: &Value, functions: &[&str], printed: &str) -> Result<()> {
    for function in functions {
        let (entered, returned) = printed_counts(printed, function)
            .with_context(|| format!("the target has printed no count of {function}: {printed}"))?;
        let all = Counts {
            complete: returned,
            unwound: entered.saturating_sub(returned),
            open_start: 0,
            open_end: 0,
            cut: 0,
        };
        let found = reported(report, function)?;
        ensure!(
            found == all,
            "{function} was entered {entered} and left {returned} times, reported: {found:?}"
        );
    }
    Ok(())
}

/// The report has no call of these functions.
pub(crate) fn none(report: &Value, functions: &[&str]) -> Result<()> {
    for function in functions {
        let found = reported(report, function)?;
        ensure!(found == Counts::default(), "{function} is outside of the IP filter, reported: {found:?}");
    }
    Ok(())
}

/// The report has the calls that follow from the log by the oracle's rules.
pub(crate) fn same_as_logged(report: &Value, functions: &[&str], truth: &File, data: &Path) -> Result<()> {
    let mut oracle = Oracle::new(truth, data)?;
    for function in functions {
        let calls = oracle.calls(function)?;
        let count = |status| calls.count(status) as u64;
        let logged = Counts {
            complete: count(Status::Complete),
            unwound: count(Status::Unwound),
            open_start: count(Status::OpenStart),
            open_end: count(Status::OpenEnd),
            cut: count(Status::Cut),
        };
        let found = reported(report, function)?;
        ensure!(found == logged, "{function}: logged {logged:?}, reported {found:?}");
        ensure!(logged.complete > 0, "{function} was not called");
    }
    Ok(())
}

/// Every call whose entry no loss hides is the log's: latency, status, caller. Its off-CPU time is that of
/// the recording's switches, which [`crate::switches`] holds against the scheduler's: the log's are those of
/// the trace unit.
pub(crate) fn same_but_for_losses(
    opened: &Opened<'_>,
    functions: &[&str],
    truth: &File,
    data: &Path,
) -> Result<()> {
    let mut oracle = Oracle::new(truth, data)?;
    let ids = functions.iter().map(|function| opened.function(function)).collect::<Result<Vec<_>, _>>()?;
    let report = opened.analyse(&ids, &DecodeOptions::default());
    for (function, found) in functions.iter().zip(&report.functions) {
        let mut calls = oracle.calls(function)?;
        ensure!(!calls.rows.is_empty(), "{function}: no calls");
        for row in &mut calls.rows {
            let end = Ns(row.start.0 + row.latency_ns);
            let spans = off_cpu_spans(&opened.schedule, row.tid, row.start, end);
            row.off_cpu_ns = spans.filter_map(|span| Some(span.to?.since(span.from))).sum();
        }
        let wrong = differences(opened, found, &calls, Compare::Entered);
        ensure!(wrong.is_empty(), "{wrong}");
    }
    Ok(())
}

/// How often a function was entered and left, as a target prints it: `count NAME entered returned`.
pub(crate) fn printed_counts(printed: &str, function: &str) -> Option<(u64, u64)> {
    printed.lines().find_map(|line| {
        let mut words = line.strip_prefix("count ")?.split(' ');
        let is_it = words.next() == Some(function);
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?)).filter(|_| is_it)
    })
}

/// What a report says of a function.
pub(crate) fn function<'a>(report: &'a Value, name: &str) -> Result<&'a Value> {
    let functions = report["functions"].as_array().map_or(&[][..], Vec::as_slice);
    let found = functions.iter().find(|found| found["name"] == name);
    found.with_context(|| format!("the report has no {name}"))
}

fn reported(report: &Value, function: &str) -> Result<Counts> {
    let calls = &self::function(report, function)?["calls"];
    let count =
        |kind: &str| calls[kind].as_u64().with_context(|| format!("{function}: {calls} has no {kind}"));
    Ok(Counts {
        complete: count("complete")?,
        unwound: count("unwound")?,
        open_start: count("open_start")?,
        open_end: count("open_end")?,
        cut: count("cut")?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn counts_are_read_by_name() {
        let printed = "hello\ncount leaf 12 11\ncount le 3 3\n";
        assert_eq!(printed_counts(printed, "leaf"), Some((12, 11)));
        assert_eq!(printed_counts(printed, "le"), Some((3, 3)));
        assert_eq!(printed_counts(printed, "lea"), None);
    }

    #[test]
    fn a_call_outside_of_the_filter_is_refused() {
        let check = |complete: u64| {
            let calls =
                format!(r#"{{"complete":{complete},"unwound":0,"open_start":0,"open_end":0,"cut":0}}"#);
            let text = format!(r#"{{"functions":[{{"name":"f","calls":{calls}}}]}}"#);
            none(&serde_json::from_str(&text).unwrap(), &["f"])
        };
        assert!(check(0).is_ok());
        assert!(check(1).is_err());
    }

    #[test]
    fn a_report_with_other_counts_is_refused() {
        let check = |complete: u64, cut: u64, printed: &str| {
            let calls =
                format!(r#"{{"complete":{complete},"unwound":1,"open_start":0,"open_end":0,"cut":{cut}}}"#);
            let text = format!(r#"{{"functions":[{{"name":"f","calls":{calls}}}]}}"#);
            same_as_printed(&serde_json::from_str(&text).unwrap(), &["f"], printed)
        };
        assert!(check(2, 0, "count f 3 2").is_ok());
        assert!(check(2, 0, "count f 4 2").is_err());
        assert!(check(3, 0, "count f 3 2").is_err());
        assert!(check(2, 1, "count f 3 2").is_err());
        assert!(check(2, 0, "count g 3 2").is_err());
    }
}
