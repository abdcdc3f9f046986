//! Names for the sums, and JSON.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

use model::Avma;
use serde::Serialize;

use super::code::{Code, FunctionIndex};
use super::rows::{Children, Entered, Row, Sum, Tally};
use super::{Calls, Status};

/// A direct callee at one call site, a system call, or `*self`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Function, `[syscall]`, `[interrupt]` or `*self`.
    pub name: String,
    /// Kind in the product's report: `call`, `tail`, `recursion`, `syscall`, `signal`, `interrupt`, `self`.
    pub kind: &'static str,
    /// The call instruction; 0: none.
    pub site: Avma,
    /// Over all counted calls.
    pub sum: Sum,
}

/// Where the function was entered from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Function, `[signal]` or `[unknown]`.
    pub name: String,
    /// `call`, `tail` or `signal`.
    pub kind: &'static str,
    /// The instruction that entered it; 0: not known.
    pub site: Avma,
    /// Over all counted calls.
    pub sum: Sum,
}

/// Names the functions of a tally.
pub(super) fn calls(code: &mut Code, wanted: FunctionIndex, tally: Tally) -> Calls {
    let mut total = Sum::default();
    whole(&tally.rows).for_each(|row| total.add(sum_of(row)));
    let open_children = children(code, wanted, &tally.open_children, tally.open);
    let children = children(code, wanted, &tally.children, total);
    let callers = callers(code, &tally.rows);
    let function = code.get(wanted);
    Calls {
        function: function.name.clone(),
        object: code.object_path(wanted).to_owned(),
        entry: function.entry,
        rows: tally.rows,
        hidden: tally.hidden,
        odd_flow: tally.odd_flow,
        children,
        callers,
        open_children,
    }
}

fn whole(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|r| r.status.is_whole())
}

fn sum_of(row: &Row) -> Sum {
    Sum { count: 1, ns: row.latency_ns, off_cpu_ns: row.off_cpu_ns, ran: row.ran }
}

/// The children of calls that took `total`, and `*self`.
fn children(code: &Code, wanted: FunctionIndex, sums: &Children, total: Sum) -> Vec<Child> {
    let mut children: Vec<Child> = sums
        .0
        .iter()
        .map(|(&(function, site, entered), &sum)| {
            let (name, kind) = match entered {
                Entered::Syscall => ("[syscall]", "syscall"),
                Entered::Interrupt => ("[interrupt]", "interrupt"),
                _ => (code.get(function).name.as_str(), child_kind(function == wanted, entered)),
            };
            Child { name: name.to_owned(), kind, site, sum }
        })
        .collect();
    children.sort_by(|a, b| (Reverse(a.sum.ns), &a.name, a.site).cmp(&(Reverse(b.sum.ns), &b.name, b.site)));
    let inside = sums.total();
    let own = Sum {
        count: total.count,
        ns: total.ns.saturating_sub(inside.ns),
        off_cpu_ns: total.off_cpu_ns.saturating_sub(inside.off_cpu_ns),
        ran: total.ran.since(inside.ran),
    };
    children.push(Child { name: "*self".into(), kind: "self", site: Avma(0), sum: own });
    children
}

fn child_kind(is_wanted: bool, entered: Entered) -> &'static str {
    match entered {
        Entered::Signal => "signal",
        Entered::Call | Entered::Filter if is_wanted => "recursion",
        Entered::Tail => "tail",
        _ => "call",
    }
}

fn callers(code: &mut Code, rows: &[Row]) -> Vec<Caller> {
    let mut sums: BTreeMap<(Avma, Entered), Sum> = BTreeMap::new();
    for row in whole(rows) {
        sums.entry((row.caller_ip, row.entered)).or_default().add(sum_of(row));
    }
    let mut callers: Vec<Caller> = sums
        .into_iter()
        .map(|((site, entered), sum)| {
            let name = match (site, entered) {
                (Avma(0), Entered::Signal) => "[signal]".to_owned(),
                (Avma(0), _) => "[unknown]".to_owned(),
                _ => {
                    let caller = code.function(site);
                    code.get(caller).name.clone()
                }
            };
            Caller { name, kind: child_kind(false, entered), site, sum }
        })
        .collect();
    callers.sort_by_key(|c| (Reverse(c.sum.ns), c.site));
    callers
}

/// [`Calls`] without its rows, for JSON.
#[derive(Debug, Serialize)]
pub struct Report {
    function: String,
    object: String,
    entry: Option<String>,
    calls: BTreeMap<&'static str, usize>,
    cut_entry_lost: usize,
    hidden: u64,
    ended_by_jump: usize,
    odd_flow: u64,
    outermost: SumJson,
    latency_ns: Figures,
    off_cpu_ns: Figures,
    children: Vec<PartJson>,
    callers: Vec<PartJson>,
}

#[derive(Debug, Serialize)]
struct SumJson {
    count: u64,
    sum: u64,
    off_cpu_sum: u64,
}

impl From<Sum> for SumJson {
    fn from(sum: Sum) -> Self {
        Self { count: sum.count, sum: sum.ns, off_cpu_sum: sum.off_cpu_ns }
    }
}

#[derive(Debug, Serialize)]
struct PartJson {
    name: String,
    kind: &'static str,
    site: String,
    #[serde(flatten)]
    sum: SumJson,
}

/// Percentiles by nearest rank; all but `count` and `sum` are null if there is nothing.
#[derive(Debug, Serialize)]
struct Figures {
    count: usize,
    sum: u64,
    min: Option<u64>,
    mean: Option<f64>,
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    p999: Option<u64>,
    max: Option<u64>,
}

impl Figures {
    fn new(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let count = values.len();
        let sum = values.iter().sum();
        let rank = |per_mille: usize| {
            let rank = (per_mille * count).div_ceil(1000);
            rank.checked_sub(1).and_then(|i| values.get(i)).copied()
        };
        Self {
            count,
            sum,
            min: values.first().copied(),
            mean: (count > 0).then(|| sum as f64 / count as f64),
            p50: rank(500),
            p90: rank(900),
            p99: rank(990),
            p999: rank(999),
            max: values.last().copied(),
        }
    }
}

impl Report {
    /// Sums up.
    #[must_use]
    pub fn new(calls: &Calls) -> Self {
        let rows = || whole(&calls.rows);
        let mut outermost = Sum::default();
        rows().filter(|r| r.depth == 0).for_each(|r| outermost.add(sum_of(r)));
        let part = |name: &str, kind, site: Avma, sum: Sum| PartJson {
            name: name.to_owned(),
            kind,
            site: site.to_string(),
            sum: sum.into(),
        };
        let cut_entry_lost = calls.rows.iter().filter(|r| r.status == Status::Cut && r.entry_lost).count();
        Self {
            function: calls.function.clone(),
            object: calls.object.clone(),
            entry: calls.entry.map(|ip| ip.to_string()),
            calls: Status::ALL.iter().map(|&s| (s.name(), calls.count(s))).collect(),
            cut_entry_lost,
            hidden: calls.hidden,
            ended_by_jump: rows().filter(|r| r.by_jump).count(),
            odd_flow: calls.odd_flow,
            outermost: outermost.into(),
            latency_ns: Figures::new(rows().map(|r| r.latency_ns).collect()),
            off_cpu_ns: Figures::new(rows().map(|r| r.off_cpu_ns).collect()),
            children: calls.children.iter().map(|c| part(&c.name, c.kind, c.site, c.sum)).collect(),
            callers: calls.callers.iter().map(|c| part(&c.name, c.kind, c.site, c.sum)).collect(),
        }
    }
}

impl Calls {
    /// One line for each call: `TID START_NS LATENCY_NS STATUS CALLER_IP OFF_CPU_NS DEPTH [jump]`.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn write_rows(&self, out: &mut impl io::Write) -> io::Result<()> {
        for r in &self.rows {
            let (tid, start, status) = (r.tid.0, r.start.0, r.status.name());
            let jump = if r.by_jump { " jump" } else { "" };
            writeln!(
                out,
                "{tid} {start} {} {status} {} {} {}{jump}",
                r.latency_ns, r.caller_ip, r.off_cpu_ns, r.depth
            )?;
        }
        Ok(())
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn write_json(&self, out: &mut impl io::Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, &Report::new(self))?;
        writeln!(out)
    }
}
