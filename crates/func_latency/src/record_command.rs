//! Without a subcommand: record and report.  This version can only do the second half.

use anyhow::Result;

use crate::args::RecordArgs;
use crate::config::ReportConfig;
use crate::exit::{Exit, failure};
use crate::filter::TidRange;
use crate::{messages, report_command};

/// `--history=2`: report what was recorded before.
const HISTORY_REPORT: u8 = 2;

pub(crate) fn run(args: RecordArgs) -> Result<Exit> {
    if args.history == Some(HISTORY_REPORT) {
        for option in not_yet(&args) {
            messages::note(format!("{option} is not in this version and is left out"));
        }
        return report_command::run(&ReportConfig::of_history(args)?);
    }
    Err(failure(Exit::NotPossible, refusal(&args)))
}

/// Options that `report` does not have yet.
fn not_yet(args: &RecordArgs) -> Vec<&'static str> {
    let options = [
        (args.timeline, "-l"),
        (args.tu.is_some(), "--tu"),
        (args.code_block, "-c"),
        (args.flamegraph.is_some(), "--flamegraph"),
    ];
    options.into_iter().filter(|(given, _)| *given).map(|(_, name)| name).collect()
}

/// Says what to do instead, with the values that were given.
fn refusal(args: &RecordArgs) -> String {
    let mut record = "perf record -e intel_pt/cyc/u --switch-events".to_owned();
    if args.per_thread {
        record.push_str(" --per-thread");
    }
    if let Some(cpus) = &args.cpus {
        record = format!("{record} -C {cpus}");
    }
    let data = args.directory.clone().unwrap_or_default().join("perf.data");
    let data = data.display();
    if args.directory.is_some() {
        record = format!("{record} -o {data}");
    }
    let tids = perf_tids(&args.query.tids);
    if !args.program.is_empty() {
        record = format!("{record} -- {}", args.program.join(" "));
    } else if !tids.is_empty() {
        record = format!("{record} -t {tids} -- sleep {}", args.duration.unwrap_or(1.0));
    } else {
        // CPUs can be traced without naming a process.
        match (args.query.pid, &args.cpus) {
            (Some(pid), _) => record = format!("{record} -p {pid}"),
            (None, Some(_)) => (),
            (None, None) => record.push_str(" -p PID"),
        }
        record = format!("{record} -- sleep {}", args.duration.unwrap_or(1.0));
    }
    let functions: String = args.query.functions.iter().map(|f| format!(" -f '{f}'")).collect();
    let functions = if functions.is_empty() { " -f FUNC".to_owned() } else { functions };
    format!(
        "live recording is not in this version.  Record with perf, then report:\n  {record}\n  \
         func_latency report -i {data}{functions}"
    )
}

/// The threads as perf takes them: it knows no ranges.
fn perf_tids(ranges: &[TidRange]) -> String {
    // A range that names more is not one that somebody counted out.
    const MOST: usize = 100;
    let ids = ranges.iter().flat_map(TidRange::ids).take(MOST);
    ids.map(|tid| tid.to_string()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::CommandLine;
    use clap::Parser;

    #[test]
    fn refusal_names_the_two_commands() {
        let check = |line: &str, record: &str, report: &str| {
            let words = std::iter::once("func_latency").chain(line.split(' '));
            let args = CommandLine::try_parse_from(words).unwrap().record;
            let text = refusal(&args);
            assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), [record, report], "{line}");
        };
        check(
            "-f do_command -d 2 -p 7 -i",
            "  perf record -e intel_pt/cyc/u --switch-events -p 7 -- sleep 2",
            "  func_latency report -i perf.data -f 'do_command'",
        );
        check(
            "-T 4,6-7",
            "  perf record -e intel_pt/cyc/u --switch-events -t 4,6,7 -- sleep 1",
            "  func_latency report -i perf.data -f FUNC",
        );
        check(
            "-f f -- ./a b",
            "  perf record -e intel_pt/cyc/u --switch-events -- ./a b",
            "  func_latency report -i perf.data -f 'f'",
        );
        // --per-thread alone leaves context switches out, and with them off-CPU time.
        check(
            "-p 7 -t -D trace1",
            "  perf record -e intel_pt/cyc/u --switch-events --per-thread -o trace1/perf.data -p 7 -- sleep 1",
            "  func_latency report -i trace1/perf.data -f FUNC",
        );
        check(
            "-C 0-47 -f f",
            "  perf record -e intel_pt/cyc/u --switch-events -C 0-47 -- sleep 1",
            "  func_latency report -i perf.data -f 'f'",
        );
    }
}
