//! The ways that calls of a function go, and the humps of the histogram that they make.

use std::io::{self, Write};

use analyzer::branch_path::{OwnBranches, Times};
use analyzer::modes::{Mode, Modes};
use analyzer::{CallId, CallRow, ChildKey, Place, Stats, histogram::histogram};
use model::FunctionId;
use serde::Serialize;

use super::Names;
use super::ledger::json::NotCompared;
use super::ledger::text::left_out;
use super::names::{callee_name, file_name};
use super::table::{Align, Table};
use super::text::figures::P99;
use super::units::{counted, duration, grouped, percent, share};

/// Name and version of the contract.
pub const SCHEMA: &str = "func_latency_modes/1";

/// Ways that are listed, and have a letter in the histogram.
const LISTED: usize = 8;
const LETTERS: [char; LISTED] = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
/// Callees that a way is named after.
const NAMED: usize = 3;
/// Kinds of calls that are listed below a way.
const KINDS: usize = 4;
/// Jumps that a kind is named after.
const JUMPS: usize = 2;
const BAR: usize = 60;

/// The ways that calls of a function go.
#[derive(Clone, Copy)]
pub struct ModesView<'a> {
    /// What ids are called.
    pub names: &'a dyn Names,
    /// The recording's file, as it was named.
    pub input: &'a str,
    /// The function of the calls.
    pub function: FunctionId,
    /// Their ways.
    pub modes: &'a Modes,
}

/// Calls that went the same way and took the same branches in the function's own code.
#[derive(Clone, Debug, PartialEq)]
pub struct AlikeCalls {
    /// The first of them.
    pub first: CallId,
    /// In ascending order.
    pub latencies_ns: Vec<u64>,
    /// Jumps that the first took more or less often than the first of the way's largest kind.
    pub other: Vec<Times>,
}

impl AlikeCalls {
    /// Of the calls of one way, the largest first.
    #[must_use]
    pub fn of_calls(calls: &[(CallRow, &OwnBranches)]) -> Vec<Self> {
        let branches: Vec<&OwnBranches> = calls.iter().map(|(_, branches)| *branches).collect();
        let kinds = OwnBranches::kinds(&branches);
        let usual = kinds.first().and_then(|kind| branches.get(*kind.first()?));
        let kind = |kind: &Vec<usize>| {
            let (row, branches) = calls.get(*kind.first()?)?;
            let mut latencies_ns: Vec<u64> =
                kind.iter().filter_map(|at| Some(calls.get(*at)?.0.latency_ns)).collect();
            latencies_ns.sort_unstable();
            Some(Self { first: row.id, latencies_ns, other: branches.other_than(usual?) })
        };
        kinds.iter().filter_map(kind).collect()
    }

    fn latency(&self) -> Stats {
        Stats::of(&self.latencies_ns.iter().copied().collect())
    }

    /// What its calls do in the function's own code, in words.
    fn label(&self, names: &dyn Names) -> String {
        let line = |place: Place| {
            let line = names.line(place).unwrap_or_else(|| names.site(place));
            line.split_once(" inlined at ").map_or(line.clone(), |(line, _)| line.to_owned())
        };
        let text = |times: &Times| {
            let Times { from, is_loop, these, base, .. } = *times;
            match (is_loop, these) {
                (true, _) => {
                    format!("goes back at {} {} instead of {base}", line(from), counted(these, "time"))
                }
                (false, 0) => format!("does not jump at {}", line(from)),
                (false, _) => format!("jumps at {}", line(from)),
            }
        };
        let more = if self.other.len() > JUMPS { ", ..." } else { "" };
        let texts: Vec<String> = self.other.iter().take(JUMPS).map(text).collect();
        if texts.is_empty() { "the usual branches".to_owned() } else { format!("{}{more}", texts.join(", ")) }
    }
}

impl ModesView<'_> {
    /// Callees of a way that the most frequent one has not, and the other way round.
    fn differs(&self, mode: &Mode) -> (Vec<String>, Vec<String>) {
        let Some(main) = self.modes.modes.first() else { return (Vec::new(), Vec::new()) };
        let name = |key: ChildKey| callee_name(self.names, key.kind, key.function);
        (mode.not_in(main).map(name).collect(), main.not_in(mode).map(name).collect())
    }

    fn depth(&self) -> Option<usize> {
        (self.modes.depth != usize::MAX).then_some(self.modes.depth)
    }

    /// What makes a way another one than the most frequent, in words.
    pub(super) fn label(&self, index: usize, mode: &Mode) -> String {
        if index == 0 {
            return "the usual way".to_owned();
        }
        let (with, without) = self.differs(mode);
        let list = |word: &str, names: Vec<String>| {
            let more = if names.len() > NAMED { ", ..." } else { "" };
            let mut names: Vec<String> = names.into_iter().take(NAMED).collect();
            names.dedup();
            (!names.is_empty()).then(|| format!("{word} {}{more}", names.join(", ")))
        };
        let parts: Vec<String> =
            [list("with", with), list("without", without)].into_iter().flatten().collect();
        if parts.is_empty() { "the same callees in another order".to_owned() } else { parts.join(", ") }
    }
}

/// Writes the ways into lines of about `width` columns; `kinds`: of each way, by branches.
///
/// # Errors
/// What `out` says.
pub fn write_text(
    out: &mut dyn Write,
    view: &ModesView<'_>,
    kinds: &[Vec<AlikeCalls>],
    width: usize,
) -> io::Result<()> {
    let width = width.clamp(80, 200);
    let name = view.names.function(view.function);
    let object = view.names.object_of(view.function);
    let object = object.map(|path| format!(" ({})", file_name(&path))).unwrap_or_default();
    let all = view.modes.calls() as u64;
    writeln!(out, "{}: ways of {} of [{name}]{object}\n", view.input, counted(all, "call"))?;
    let levels = view.depth().map_or("of all levels".to_owned(), |depth| match depth {
        1 => "of the first level".to_owned(),
        depth => format!("of the first {depth} levels"),
    });
    if let Some(left_out) = left_out(&view.modes.left_out) {
        writeln!(out, "  not counted: {left_out}")?;
    }
    writeln!(out, "  calls go the same way if they make the same calls, {levels}, in the same order\n")?;
    let mut table = Table::new(&[
        ("way", Align::Left),
        ("%", Align::Right),
        ("calls", Align::Right),
        ("min", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("max", Align::Right),
        ("first call", Align::Right),
    ]);
    for ((index, mode), letter) in view.modes.modes.iter().enumerate().zip(LETTERS) {
        let way = format!("{letter}: {}", view.label(index, mode));
        table.row(row(way, &mode.latency(), all, mode.first.to_string()));
        let of_mode = kinds.get(index).filter(|kinds| kinds.len() > 1);
        for kind in of_mode.into_iter().flatten().take(KINDS) {
            let label = format!("   {}", kind.label(view.names));
            table.row(row(label, &kind.latency(), all, kind.first.to_string()));
        }
    }
    let rest = rest(view.modes);
    if !rest.is_empty() {
        let others = view.modes.modes.len().saturating_sub(LISTED) as u64;
        let more = if view.modes.others_ns.is_empty() { "" } else { " and more" };
        let way = format!(".: {}{more}", counted(others, "other way"));
        table.row(row(way, &Stats::of(&rest.iter().copied().collect()), all, String::new()));
    }
    table.write(out, width)?;
    writeln!(out)?;
    humps(out, view, &rest)
}

fn row(way: String, latency: &Stats, all: u64, first: String) -> Vec<String> {
    let figures = latency.spread.map_or([0; 4], |s| [s.min_ns, s.p50_ns, s.p99_ns, s.max_ns]);
    let [min, p50, p99, max] = figures.map(duration);
    let p99 = if latency.count < P99.least_calls { "-".to_owned() } else { p99 };
    let counts = [percent(share(latency.count, all)), grouped(latency.count)];
    [vec![way], counts.to_vec(), vec![min, p50, p99, max, first]].concat()
}

/// Latencies of the calls with ways that are not listed.
fn rest(modes: &Modes) -> Vec<u64> {
    let unlisted = modes.modes.iter().skip(LISTED).flat_map(|mode| &mode.latencies_ns);
    let mut rest: Vec<u64> = unlisted.chain(&modes.others_ns).copied().collect();
    rest.sort_unstable();
    rest
}

/// The histogram of all calls, each bar made of the letters of its ways.
fn humps(out: &mut dyn Write, view: &ModesView<'_>, rest: &[u64]) -> io::Result<()> {
    let listed = view.modes.modes.iter().zip(LETTERS).map(|(mode, letter)| (letter, &mode.latencies_ns[..]));
    let ways: Vec<(char, &[u64])> = listed.chain([('.', rest)]).collect();
    let all = ways.iter().flat_map(|(_, latencies)| latencies.iter().copied()).collect();
    let buckets = histogram(&all, None);
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1);
    writeln!(out, "  {:>12}    {:<12} : {:<11} ways", "ns", "", "count")?;
    for bucket in buckets {
        let mut bar = String::new();
        for (letter, latencies) in &ways {
            let below = |ns| latencies.partition_point(|latency| *latency < ns);
            let count = (below(bucket.high_ns) - below(bucket.low_ns)) as u128;
            // Something that is not nothing has a letter.
            let letters = (count * BAR as u128 / u128::from(most)).max(u128::from(count > 0));
            bar.extend(std::iter::repeat_n(*letter, letters as usize));
        }
        let last = bucket.high_ns.saturating_sub(1);
        writeln!(
            out,
            "{}",
            format!("  {:>12} -> {last:<12} : {:<11} {bar}", bucket.low_ns, bucket.count).trim_end()
        )?;
    }
    Ok(())
}

#[derive(Serialize)]
struct ModesDocument {
    schema: &'static str,
    function: String,
    object: Option<String>,
    calls: usize,
    /// Levels of calls that make a way; null: all.
    depth: Option<usize>,
    /// The one that most calls go first.
    modes: Vec<ModeJson>,
    /// Calls of ways that were too many to be told apart.
    others: usize,
    not_counted: NotCompared,
}

#[derive(Serialize)]
struct ModeJson {
    calls: u64,
    share: f64,
    first: String,
    /// Callees that the most frequent way has not, the longest first.
    with: Vec<String>,
    /// Callees of the most frequent way that this one has not.
    without: Vec<String>,
    sum_ns: u64,
    min_ns: Option<u64>,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: Option<u64>,
    /// Calls that took the same branches in the function's own code; that of most calls first.
    kinds: Vec<KindEntry>,
}

#[derive(Serialize)]
struct KindEntry {
    calls: u64,
    first: String,
    sum_ns: u64,
    min_ns: Option<u64>,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: Option<u64>,
    /// Jumps that the first call took more or less often than the first one of the first kind.
    other: Vec<Jump>,
}

#[derive(Serialize)]
struct Jump {
    site: String,
    line: Option<String>,
    to: String,
    is_loop: bool,
    times: u64,
    usual_times: u64,
}

fn kind(names: &dyn Names, kind: &AlikeCalls) -> KindEntry {
    let latency = kind.latency();
    let jump = |times: &Times| Jump {
        site: names.site(times.from),
        line: names.line(times.from),
        to: names.site(times.to),
        is_loop: times.is_loop,
        times: times.these,
        usual_times: times.base,
    };
    KindEntry {
        calls: latency.count,
        first: kind.first.to_string(),
        sum_ns: latency.sum_ns,
        min_ns: latency.spread.map(|spread| spread.min_ns),
        p50_ns: latency.spread.map(|spread| spread.p50_ns),
        p99_ns: latency.spread.map(|spread| spread.p99_ns),
        max_ns: latency.spread.map(|spread| spread.max_ns),
        other: kind.other.iter().map(jump).collect(),
    }
}

/// Writes the ways as one JSON document and a newline; `kinds`: of each way, by branches.
///
/// # Errors
/// What `out` says.
pub fn write_json(out: &mut dyn Write, view: &ModesView<'_>, kinds: &[Vec<AlikeCalls>]) -> io::Result<()> {
    let calls = view.modes.calls();
    let entry = |(index, mode): (usize, &Mode)| {
        let latency = mode.latency();
        let (with, without) = view.differs(mode);
        ModeJson {
            calls: latency.count,
            share: latency.count as f64 / calls as f64,
            first: mode.first.to_string(),
            with,
            without,
            sum_ns: latency.sum_ns,
            min_ns: latency.spread.map(|spread| spread.min_ns),
            p50_ns: latency.spread.map(|spread| spread.p50_ns),
            p99_ns: latency.spread.map(|spread| spread.p99_ns),
            max_ns: latency.spread.map(|spread| spread.max_ns),
            kinds: kinds.get(index).into_iter().flatten().map(|of_mode| kind(view.names, of_mode)).collect(),
        }
    };
    let document = ModesDocument {
        schema: SCHEMA,
        function: view.names.function(view.function),
        object: view.names.object_of(view.function),
        calls,
        depth: view.depth(),
        modes: view.modes.modes.iter().enumerate().map(entry).collect(),
        others: view.modes.others_ns.len(),
        not_counted: view.modes.left_out.into(),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}
