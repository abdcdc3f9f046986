//! What a program printed of its own calls, held against a report.
//!
//! ```text
//! FUNC STATUS COUNT                     leaf complete 300
//! FUNC from CALLER [tail|signal] COUNT  leaf from outer tail 300   counted calls, by caller
//! FUNC child NAME KIND COUNT            outer child leaf tail 300  what counted calls did; kinds as in JSON
//! FUNC childless                                                   they did nothing
//! FUNC child [loader] call 1                                       ... the lazy binder
//! FUNC by_jump COUNT                                               counted; ended at a jump out of sight
//! FUNC outermost COUNT                                             counted calls that are in no other
//! FUNC ends LETTERS                     walk ends cuuc             each call in order: how its status
//!                                                                  begins, or `?` if it is undecided
//! FUNC calls COUNT                      asks calls 20              calls of any status, if that is unknown
//! @RECORDING FUNC ...                                              of one recording alone
//! ```
//!
//! What is not printed is zero, except that a program may say nothing of children, or of outermost calls, and
//! says nothing of `*self` and interrupts. The numbers are those of the whole run. A recording that has an IP
//! filter, losses or a part of the run only is held to the lines that are for it alone, if there are any.

use std::collections::{BTreeMap, BTreeSet};

use analyzer::{CallRow, Caller, ChildKind, FunctionReport};
use model::{FunctionKind, FunctionLookup as _};
use truth_tests::{Fixture, Opened};

/// How the report on one function differs from what was printed in `output`; empty if it does not.
pub(crate) fn differences(
    output: &str,
    fixture: &Fixture,
    name: &str,
    opened: &Opened<'_>,
    report: &FunctionReport,
) -> String {
    let says_anything = output.lines().any(|line| words(line).next() == Some(name));
    assert!(says_anything, "{} prints nothing of {name}", fixture.log);
    let of_run = lines_of(output, name);
    let of_recording = lines_of_recording(output, &fixture.name, name);
    let printed = match of_recording.is_empty() {
        false => of_recording,
        true if fixture.is_whole() => of_run,
        true => return String::new(),
    };
    let says =
        |what: &str| printed.iter().any(|line| words(line).nth(1).is_some_and(|word| word.starts_with(what)));
    if says("calls") {
        let calls = BTreeSet::from([format!("{name} calls {}", report.rows.len())]);
        return only("printed ", &printed, &calls) + &only("reported", &calls, &printed);
    }
    let mut found = counts(name, report);
    found.extend(callers(name, opened, report));
    if says("child") {
        found.extend(children(name, opened, report));
    }
    if says("outermost") {
        found.insert(format!("{name} outermost {}", report.outermost.total.count));
    }
    if says("ends") {
        found.insert(format!("{name} ends {}", ends(report)));
    }
    only("printed ", &printed, &found) + &only("reported", &found, &printed)
}

fn only(sign: &str, of: &BTreeSet<String>, not: &BTreeSet<String>) -> String {
    of.difference(not).map(|line| format!("  {sign} {line}\n")).collect()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split_ascii_whitespace()
}

/// The lines about a function, without those that say that there is none of something.
fn lines_of<'o>(output: &'o str, name: &str) -> BTreeSet<String> {
    let says_none = |line: &&'o str| words(line).last() == Some("0");
    let lines = output.lines().filter(|line| words(line).next() == Some(name));
    lines
        .inspect(|line| assert!(is_well_formed(line), "a line that says nothing: `{line}`"))
        .filter(|line| !says_none(line))
        .map(str::to_owned)
        .collect()
}

fn lines_of_recording(output: &str, recording: &str, name: &str) -> BTreeSet<String> {
    let own = |line: &str| {
        let (of, line) = line.strip_prefix('@')?.split_once(' ')?;
        (of == recording).then(|| format!("{line}\n"))
    };
    lines_of(&output.lines().filter_map(own).collect::<String>(), name)
}

/// It ends with a count, or says that there are no children, or how calls ended.
fn is_well_formed(line: &str) -> bool {
    let mut words = words(line).skip(1);
    let Some(what) = words.next() else { return false };
    let is_told = |last: &str| match what {
        "ends" => last.chars().all(|letter| letter.is_ascii_lowercase()),
        _ => last.parse::<u64>().is_ok(),
    };
    what == "childless" || words.last().is_some_and(is_told)
}

fn ends(report: &FunctionReport) -> String {
    let mut rows: Vec<_> = report.rows.iter().collect();
    rows.sort_by_key(|row| row.id);
    let end =
        |row: &&CallRow| if row.end.undecided { "?" } else { row.end.status.name().get(..1).unwrap_or("?") };
    rows.iter().map(end).collect()
}

fn counts(name: &str, report: &FunctionReport) -> BTreeSet<String> {
    let calls = report.calls;
    let counts = [
        ("complete", calls.complete),
        ("unwound", calls.unwound),
        ("open_start", calls.open_start),
        ("open_end", calls.open_end),
        ("cut", calls.cut),
        ("by_jump", report.calls.ended_by_jump),
    ];
    let line = |(what, count)| format!("{name} {what} {count}");
    counts.into_iter().filter(|&(_, count)| count > 0).map(line).collect()
}

fn callers(name: &str, opened: &Opened<'_>, report: &FunctionReport) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for caller in &report.callers {
        let who = match caller.from.caller {
            Caller::Function { function, tail } => {
                opened.image.function_name(function) + if tail { " tail" } else { "" }
            }
            Caller::Signal => "[signal] signal".to_owned(),
            Caller::Interrupt => "[interrupt] interrupt".to_owned(),
            Caller::Unknown => "[unknown]".to_owned(),
        };
        *counts.entry(who).or_default() += caller.figures.latency.count;
    }
    counts.into_iter().map(|(who, count)| format!("{name} from {who} {count}")).collect()
}

fn children(name: &str, opened: &Opened<'_>, report: &FunctionReport) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for child in &report.figures.children {
        let who = match child.kind {
            ChildKind::Own | ChildKind::Interrupt => continue,
            ChildKind::Syscall => "[syscall]".to_owned(),
            _ if opened.image.kind(child.function) == FunctionKind::Loader => "[loader]".to_owned(),
            _ => opened.image.function_name(child.function),
        };
        *counts.entry(format!("{who} {}", child.kind.name())).or_default() += child.total.count;
    }
    if counts.is_empty() {
        return BTreeSet::from([format!("{name} childless")]);
    }
    counts.into_iter().map(|(who, count)| format!("{name} child {who} {count}")).collect()
}

#[test]
fn lines_of_a_run_and_of_one_recording() {
    let output =
        "f complete 30\nf unwound 0\nf childless\nfg complete 1\n@a-filter f by_jump 2\n@b f cut 3\n";
    let lines = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>();
    assert_eq!(lines(lines_of(output, "f")), ["f childless", "f complete 30"]);
    assert_eq!(lines(lines_of_recording(output, "a-filter", "f")), ["f by_jump 2"]);
    assert!(lines_of_recording(output, "a", "f").is_empty());
    assert!(is_well_formed("f from main tail 3") && is_well_formed("f childless"));
    assert!(is_well_formed("f ends cuc") && !is_well_formed("f ends 3"));
    assert!(!is_well_formed("f") && !is_well_formed("f from main") && !is_well_formed("f complete -1"));
}
