//! `diff --by`: recordings with one value of a label against those with another, from their summaries.
//!
//! ```text
//!   --by build      a.json v1 h1, b.json v1 h2 | c.json v2 h1, d.json v2 h2
//!                   A: build=v1                | B: build=v2
//! ```
//! A run is a recording; where both sides have several hosts it is a host with all its recordings, as those
//! of one host have in common what the host is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use analyzer::ledger::{Compared, LeftOut};
use anyhow::Result;

use crate::exit::{Exit, failure, wrong_choice};
use crate::filter::LabelValues;
use crate::render::Names as _;
use crate::render::compare::Side;
use crate::render::runs::{FunctionRuns, Run};
use crate::render::units::counted;
use crate::summary::SummaryFile;
use crate::summary::names::SummaryNames;

/// Latencies of a run that are compared: they are in memory one by one.
const CALLS_MAX: u64 = 1 << 28;

/// A summary of recordings of one host that have one value of the label.
struct GroupSummary {
    name: String,
    host: String,
    value: String,
    file: SummaryFile,
}

/// Both sides of a comparison: A, B.
///
/// # Errors
/// A summary cannot be read, the label has not two values, or there are too few runs.
pub(crate) fn sides(paths: &[PathBuf], by: &LabelValues, functions: &[String]) -> Result<[Side; 2]> {
    let mut parts = Vec::new();
    for path in paths {
        let name = path.display().to_string();
        let of_file = parts_of(&name, SummaryFile::read(path)?, by);
        parts.extend(of_file.map_err(|why| failure(Exit::Usage, format!("{name}: {why}")))?);
    }
    check_once(&parts)?;
    let values = two_values(&parts, by)?;
    let [of_base, of_these] = &values;
    let (base, others): (Vec<GroupSummary>, Vec<GroupSummary>) =
        parts.into_iter().partition(|part| part.value == *of_base);
    let these: Vec<GroupSummary> = others.into_iter().filter(|part| part.value == *of_these).collect();
    let hosts = |parts: &[GroupSummary]| parts.iter().map(|part| &part.host).collect::<BTreeSet<_>>().len();
    let are_hosts = hosts(&base) > 1 && hosts(&these) > 1;
    let function = one_function(base.iter().chain(&these), functions)?;
    let runs_of = |parts| if are_hosts { by_host(parts) } else { Ok(parts) };
    let side = |value: &String, parts: Vec<GroupSummary>| {
        let runs = parts.iter().filter_map(|part| run(part, &function)).collect::<Result<Vec<Run>>>()?;
        let what = if are_hosts { "host" } else { "recording" };
        let name = format!("{}={value} ({})", by.key, counted(runs.len() as u64, what));
        Ok::<_, anyhow::Error>(Side { name, runs: FunctionRuns { function: function.clone(), runs } })
    };
    let sides = [side(of_base, runs_of(base)?)?, side(of_these, runs_of(these)?)?];
    match sides.iter().find(|side| side.runs.runs.len() < 2) {
        None => Ok(sides),
        Some(side) => {
            let name = &side.name;
            let message = format!("{name}: a comparison takes two recordings with calls at least, of each");
            Err(failure(Exit::Nothing, message))
        }
    }
}

/// The hosts of a file, each with the value of its recordings.
fn parts_of(name: &str, file: SummaryFile, by: &LabelValues) -> Result<Vec<GroupSummary>, String> {
    let column = format!("label_{}", by.key);
    let several = file.hosts.len() > 1;
    let part = |(host, file): (String, SummaryFile)| {
        let values: BTreeSet<Option<String>> =
            file.recordings.values().map(|facts| facts.labels.get(&column).cloned()).collect();
        let mut values = values.into_iter();
        let value = match (values.next().flatten(), values.next()) {
            (Some(value), None) => value,
            (None, _) => return Err(format!("no label {0}: write it with report --label {0}=VALUE", by.key)),
            (Some(_), Some(_)) => {
                return Err(format!(
                    "recordings of one host differ in {} and are one sum: name the summaries that it was merged from",
                    by.key
                ));
            }
        };
        let name = if several { format!("{name}: {host}") } else { name.to_owned() };
        Ok(GroupSummary { name, host, value, file })
    };
    file.by_host().into_iter().map(part).collect()
}

fn check_once(parts: &[GroupSummary]) -> Result<()> {
    let mut known = BTreeMap::new();
    for part in parts {
        for recording in part.file.recordings.keys() {
            if let Some(other) = known.insert(recording, &part.name) {
                let message =
                    format!("recording {recording} is in {other} and in {}: name it once", part.name);
                return Err(failure(Exit::Usage, message));
            }
        }
    }
    Ok(())
}

/// The values of A and B.
fn two_values(parts: &[GroupSummary], by: &LabelValues) -> Result<[String; 2]> {
    let there: BTreeSet<&String> = parts.iter().map(|part| &part.value).collect();
    if let Some(values) = &by.values {
        return match values.iter().find(|value| !there.contains(value)) {
            None => Ok(values.clone()),
            Some(missing) => {
                let message = format!("no summary has {}={missing}. There are:", by.key);
                Err(wrong_choice(message, there.into_iter().cloned().collect()))
            }
        };
    }
    match there.iter().copied().collect::<Vec<_>>().as_slice() {
        [base, these] => Ok([(*base).clone(), (*these).clone()]),
        all => {
            let message = format!(
                "the summaries have {} of {}: choose A and B with --by {}=A,B",
                counted(all.len() as u64, "value"),
                by.key,
                by.key
            );
            Err(wrong_choice(message, there.into_iter().cloned().collect()))
        }
    }
}

/// The function that is compared: the one that was named, or the only one.
fn one_function<'p>(parts: impl Iterator<Item = &'p GroupSummary>, asked: &[String]) -> Result<String> {
    let mut known: BTreeSet<String> = BTreeSet::new();
    for part in parts {
        let names = SummaryNames::new(&part.file.names, false);
        known.extend(part.file.hosts.values().flat_map(|sums| sums.functions()).map(|id| names.function(id)));
    }
    let chosen: Vec<&String> = known.iter().filter(|name| asked.is_empty() || asked.contains(name)).collect();
    match chosen.as_slice() {
        [one] => Ok((*one).clone()),
        _ => {
            let message = "diff takes one function: name it with -f. The summaries have:".to_owned();
            Err(wrong_choice(message, known.into_iter().collect()))
        }
    }
}

/// Adds up the parts of each host.
fn by_host(parts: Vec<GroupSummary>) -> Result<Vec<GroupSummary>> {
    let mut hosts: BTreeMap<String, GroupSummary> = BTreeMap::new();
    for GroupSummary { name, host, value, file } in parts {
        let file = match hosts.remove(&host) {
            None => file,
            Some(known) => {
                let merged = known.file.merge(file);
                merged.map_err(|why| failure(Exit::Usage, format!("{name}: {why}")))?
            }
        };
        hosts.insert(host.clone(), GroupSummary { name: host.clone(), host, value, file });
    }
    Ok(hosts.into_values().collect())
}

/// The calls of a part; `None`: none of them counts.
fn run(part: &GroupSummary, function: &str) -> Option<Result<Run>> {
    let names = SummaryNames::new(&part.file.names, false);
    let sums = part.file.sums()?;
    let id = sums.functions().find(|id| names.function(*id) == function)?;
    let latencies = sums.latencies(id);
    let count = latencies.count();
    if count > CALLS_MAX {
        let message =
            format!("{}: {count} calls, and {CALLS_MAX} are compared at most: use fewer", part.name);
        return Some(Err(failure(Exit::Usage, message)));
    }
    let report = sums.into_report().functions.into_iter().find(|report| report.id == id)?;
    let latencies_ns: Vec<u64> =
        latencies.iter().flat_map(|(ns, times)| std::iter::repeat_n(ns, times as usize)).collect();
    let calls = report.calls;
    let left_out =
        LeftOut { open_start: calls.open_start, open_end: calls.open_end, cut: calls.cut, nested: 0 };
    let run = Run {
        name: part.name.clone(),
        calls: Compared { latencies_ns, error: report.figures.error, left_out },
        off_cpu_sum_ns: report.figures.off_cpu.map(|off_cpu| off_cpu.sum_ns),
    };
    (count > 0).then_some(Ok(run))
}
