//! A function's calls as a page has them: tables of threads, callers, children and causes, and columns of
//! their numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use analyzer::{CallRow, CalledFrom, FunctionReport, RowChild, SliceKind, Status};
use serde::Serialize;

use super::columns::{ByteColumns, zigzag};
use crate::inside::TypicalCalls;
use crate::render::names::{callee_name, caller_name, slice_name};
use crate::render::{Names, View};

/// More children than these make a page too large: then only some of the calls have theirs.
pub(super) const CHILDREN_MAX: usize = 3_000_000;

/// A function, and what the numbers in its columns mean.
#[derive(Serialize)]
pub(super) struct Function {
    name: String,
    object: Option<String>,
    /// How many values each column of calls has.
    calls: usize,
    /// Calls above are drawn one by one; `None`: no call was seen from entry to end.
    p999_ns: Option<u64>,
    threads: Vec<String>,
    callers: Vec<Caller>,
    children: Vec<Child>,
    /// What cut calls; the first stands for nothing.
    causes: Vec<&'static str>,
    /// Of this number of calls up to `p99_ns` one has its children in the page; all slower ones have, and all
    /// that did not end.
    children_of_one_in: usize,
    /// Of the calls that were seen from entry to end; 0: none was.
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    total_ns: u64,
    /// Which calls enter the figures, where children were probed in parts of the window: those that began so.
    figures_of: Option<&'static str>,
}

#[derive(Serialize)]
struct Caller {
    /// The index of its typical call; `None`: none was seen from entry to end.
    typical: Option<usize>,
    name: String,
    /// Jumped, not called.
    tail: bool,
    site: Option<String>,
    line: Option<String>,
}

/// A callee at a place in the code.
#[derive(Serialize)]
pub(super) struct Child {
    name: String,
    kind: &'static str,
    site: Option<String>,
    line: Option<String>,
}

impl Child {
    pub(super) fn of(names: &dyn Names, key: &analyzer::ChildKey) -> Self {
        Self {
            name: callee_name(names, key.kind, key.function),
            kind: key.kind.name(),
            site: key.site.map(|site| names.site(site)),
            line: key.site.and_then(|site| names.line(site)),
        }
    }
}

/// A table of what occurs, in order, and each one's number in it.
pub(super) struct NumberTable<K>(BTreeMap<K, u64>);

impl<K: Ord> NumberTable<K> {
    pub(super) fn of(all: impl Iterator<Item = K>) -> Self {
        let mut numbers: BTreeMap<K, u64> = all.map(|key| (key, 0)).collect();
        numbers.values_mut().zip(0..).for_each(|(number, i)| *number = i);
        Self(numbers)
    }

    pub(super) fn number(&self, key: &K) -> u64 {
        self.0.get(key).copied().unwrap_or(0)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }
}

/// The tables and the columns of a function.
pub(super) fn pack(
    view: &View<'_>,
    function: &FunctionReport,
    typical: &TypicalCalls,
    with_children: &WithChildren,
) -> io::Result<(Function, String)> {
    let rows = &function.rows;
    let threads = NumberTable::of(rows.iter().map(|row| row.id.tid));
    let callers = NumberTable::of(rows.iter().map(|row| row.from));
    let causes = NumberTable::of(std::iter::once("").chain(rows.iter().map(cause)));
    let begin = view.report.trace.window.0;

    let mut columns = ByteColumns::new();
    let starts = || rows.iter().map(|row| row.start_ns.0.saturating_sub(begin.0));
    let before = std::iter::once(0).chain(starts());
    columns.put(starts().zip(before).map(|(start, before)| start.saturating_sub(before)))?;
    columns.put(rows.iter().map(|row| row.latency_ns))?;
    columns.put(rows.iter().map(|row| row.error_ns))?;
    columns.put_known(rows.iter().map(|row| row.off_cpu_ns))?;
    columns.put(rows.iter().map(|row| threads.number(&row.id.tid)))?;
    columns.put(id_steps(rows))?;
    columns.put(rows.iter().map(|row| row.cpu.map_or(0, |cpu| u64::from(cpu.0) + 1)))?;
    columns.put(rows.iter().map(flags))?;
    columns.put(rows.iter().map(|row| callers.number(&row.from)))?;
    columns.put(rows.iter().map(|row| causes.number(&cause(row))))?;
    put_children(&mut columns, function, with_children)?;

    let names = view.names;
    let packed = Function {
        name: names.function(function.id),
        object: names.object_of(function.id),
        calls: rows.len(),
        p999_ns: function.figures.latency.spread.map(|spread| spread.p999_ns),
        threads: threads.keys().map(|tid| tid.0.to_string()).collect(),
        callers: callers.keys().map(|key| Caller::of(names, *key, typical)).collect(),
        children: function.row_details.children.keys.iter().map(|key| Child::of(names, key)).collect(),
        causes: causes.0.into_keys().collect(),
        children_of_one_in: with_children.one_in,
        p50_ns: function.figures.latency.spread.map_or(0, |spread| spread.p50_ns),
        p99_ns: p99_ns(function),
        max_ns: function.figures.latency.spread.map_or(0, |spread| spread.max_ns),
        total_ns: function.figures.latency.sum_ns,
        figures_of: function.sliced.map(|sliced| slice_name(sliced.figures_of)),
    };
    Ok((packed, columns.finish()?))
}

fn cause(row: &CallRow) -> &'static str {
    row.end.cut_by.map_or("", |cut| cut.cause.name())
}

/// How far each call's number is from the one after the thread's last: 0 nearly always.
fn id_steps(rows: &[CallRow]) -> impl Iterator<Item = u64> {
    let mut next: BTreeMap<_, u64> = BTreeMap::new();
    rows.iter().map(move |row| {
        let next = next.entry(row.id.tid).or_default();
        let step = row.id.number.wrapping_sub(*next) as i64;
        *next = row.id.number.wrapping_add(1);
        zigzag(step)
    })
}

/// Its status (three bits), what is uncertain about its end (two bits), and where it began (two bits).
fn flags(row: &CallRow) -> u64 {
    let began = row.probed().map_or(0, |probed| slice_number(probed.began));
    status_number(row.end.status)
        | u64::from(row.end.undecided) << 3
        | u64::from(row.end.by_jump) << 4
        | began << 5
}

/// 0: it was traced.
const fn slice_number(kind: SliceKind) -> u64 {
    match kind {
        SliceKind::Alone => 1,
        SliceKind::WithChildren => 2,
        SliceKind::Between => 3,
    }
}

/// Those that ended first.
pub(super) const fn status_number(status: Status) -> u64 {
    match status {
        Status::Complete => 0,
        Status::Unwound => 1,
        Status::OpenStart => 2,
        Status::OpenEnd => 3,
        Status::Cut => 4,
    }
}

/// Picks one call in `one_in`, without a rhythm: calls may have one, too.
const fn is_sampled(number: u64, one_in: u64) -> bool {
    const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    (number.wrapping_mul(GOLDEN_RATIO) >> 32).is_multiple_of(one_in)
}

/// 0 if no call was seen from entry to end.
fn p99_ns(function: &FunctionReport) -> u64 {
    function.figures.latency.spread.map_or(0, |spread| spread.p99_ns)
}

/// The calls that have their children in the page.
pub(super) struct WithChildren {
    /// One in this number of ordinary calls has them.
    one_in: usize,
    /// By row.
    is_in: Vec<bool>,
}

impl WithChildren {
    /// Of a function with the children of rows in its report; at most about `children_max` of ordinary calls.
    pub(super) fn of(function: &FunctionReport, typical: &TypicalCalls, children_max: usize) -> Self {
        let rows = &function.rows;
        let all: usize = (0..rows.len()).map(|number| function.row_details.children.of(number).len()).sum();
        let one_in = all.div_ceil(children_max.max(1)).max(1);
        let slow_ns = p99_ns(function);
        let typical: BTreeSet<usize> = typical.values().copied().collect();
        let is_in = |(number, row): (usize, &CallRow)| {
            is_sampled(number as u64, one_in as u64)
                || !row.end.status.counted()
                || row.latency_ns > slow_ns
                || typical.contains(&number)
        };
        Self { one_in, is_in: rows.iter().enumerate().map(is_in).collect() }
    }

    /// The children that are in the page, in the order of their columns.
    pub(super) fn children<'f>(
        &'f self,
        function: &'f FunctionReport,
    ) -> impl Iterator<Item = &'f RowChild> + Clone {
        let rows = self.is_in.iter().enumerate().filter(|(_, is_in)| **is_in);
        rows.flat_map(|(number, _)| function.row_details.children.of(number))
    }
}

/// Four columns of children behind one of how many each call has (and one more; 0: they are not in the page).
fn put_children(
    columns: &mut ByteColumns,
    function: &FunctionReport,
    with_children: &WithChildren,
) -> io::Result<()> {
    let counts = with_children.is_in.iter().enumerate().map(|(number, is_in)| match is_in {
        true => function.row_details.children.of(number).len() as u64 + 1,
        false => 0,
    });
    columns.put(counts)?;
    let children = || with_children.children(function);
    columns.put(children().map(|child| u64::from(child.key)))?;
    columns.put(children().map(|child| child.total.count))?;
    columns.put(children().map(|child| child.total.sum_ns))?;
    columns.put_known(children().map(|child| child.total.off_cpu_ns))
}

impl Caller {
    fn of(names: &dyn Names, from: CalledFrom, typical: &TypicalCalls) -> Self {
        let CalledFrom { caller, site } = from;
        Self {
            typical: typical.get(&from).copied(),
            name: caller_name(names, caller),
            tail: matches!(caller, analyzer::Caller::Function { tail: true, .. }),
            site: site.map(|site| names.site(site)),
            line: site.and_then(|site| names.line(site)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the rhythm, about the same number of each beat is taken.
    #[test]
    fn samples_have_no_rhythm() {
        for one_in in [2, 3, 8] {
            for beats in [2, 3, 4, 8] {
                let of_beat =
                    |beat| (0..80_000).filter(|n| n % beats == beat && is_sampled(*n, one_in)).count() as u64;
                let expected = 80_000 / beats / one_in;
                let all: Vec<u64> = (0..beats).map(of_beat).collect();
                assert!(
                    all.iter().all(|n| n.abs_diff(expected) < expected / 10),
                    "{one_in}, {beats}: {all:?}"
                );
            }
        }
        assert!((0..100).all(|number| is_sampled(number, 1)));
    }
}
