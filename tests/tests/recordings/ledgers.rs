//! The rows of a ledger against the oracle: what the function and each of its callees ran, what they spent in
//! the kernel and off the CPU, is no farther from the truth than the row says, and so is what it makes of the
//! difference of the means.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use analyzer::ledger::{Comparison, Parts, Path, Row, Side, Spent};
use analyzer::{CallRow, CallTree, ChildKey, ChildKind, Ledger, Place, Step, TreeSink, Trees};
use decoder::DecodeOptions;
use model::{Ns, Schedule, Tid};
use tracegen::truth::calls::{self, Oracle};
use tracegen::truth::{File, Kind};
use truth_tests::rows::site;
use truth_tests::{Opened, fixture, pipeline};

/// All calls of a function, none of which is inside of another.
struct All(Vec<(CallRow, CallTree)>);

impl TreeSink for All {
    fn wanted(&self) -> Trees {
        Trees::Every
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        assert!(call.end.status.counted() && call.depth == 0, "{call:?}");
        self.0.push((*call, tree.clone()));
    }
}

/// The calls against one another, those with an even number on one side.
fn ledger(schedule: &Schedule, calls: &[(CallRow, CallTree)]) -> Ledger<ChildKey> {
    let mut ledger = Ledger::default();
    for (call, tree) in calls {
        let spent = |step: &Step<'_>| Parts::of(step, call.id.tid, schedule);
        ledger.add(Some(side(call.id.number)), tree, spent, |node| node.key());
    }
    ledger
}

fn side(number: u64) -> Side {
    if number.is_multiple_of(2) { Side::These } else { Side::Base }
}

/// A stay of a thread in the kernel.
struct Stay {
    tid: Tid,
    from: Ns,
    spent: Spent,
    on_cpu_ns: u64,
}

/// All stays in the kernel of a recording without losses.
fn stays(truth: &File) -> Vec<Stay> {
    let mut stays = Vec::new();
    for thread in truth.threads() {
        let mut open: Option<Stay> = None;
        let mut off_since = None;
        let mut off_ns = 0;
        for event in truth.events(thread) {
            let now = truth.ns(event.tsc);
            match event.kind {
                Kind::SwitchOut => off_since = Some(now),
                Kind::SwitchIn => off_ns += off_since.take().map_or(0, |since| now.since(since)),
                Kind::Syscall | Kind::Async => {
                    let is_call = event.kind == Kind::Syscall;
                    let spent = if is_call { Spent::Kernel } else { Spent::Interrupts };
                    (off_ns, open) = (0, Some(Stay { tid: thread.tid, from: now, spent, on_cpu_ns: 0 }));
                }
                _ => {
                    let ended =
                        open.take().map(|stay| Stay { on_cpu_ns: now.since(stay.from) - off_ns, ..stay });
                    stays.extend(ended);
                }
            }
        }
    }
    stays
}

/// What the true calls on one side spent.
#[derive(Default)]
struct Truth {
    calls: u64,
    /// Stays in the kernel, time off the CPU, and what the function ran itself.
    spent: BTreeMap<Spent, u64>,
    /// What callees ran, by site.
    callees: BTreeMap<Place, u64>,
}

/// What is known of a function's calls without a trace.
struct Known<'a> {
    opened: &'a Opened<'a>,
    stays: Vec<Stay>,
    roots: Vec<calls::Row>,
    /// What they called.
    callees: Vec<calls::Row>,
}

impl Known<'_> {
    /// The truth on a side, of the calls with these numbers.
    fn of(&self, side_of: Side, numbers: &RangeInclusive<u64>) -> Truth {
        let mut truth = Truth::default();
        let is_it = |root: &&calls::Row| side(root.number) == side_of && numbers.contains(&root.number);
        for root in self.roots.iter().filter(is_it) {
            truth.calls += 1;
            let mut add = |spent, ns| *truth.spent.entry(spent).or_default() += ns;
            add(Spent::OffCpu, root.off_cpu_ns);
            let stays = self.stays.iter().filter(|stay| is_in(root, stay.tid, stay.from));
            stays.for_each(|stay| add(stay.spent, stay.on_cpu_ns));
            let mut own_ns = self.running_ns(root);
            for callee in self.callees.iter().filter(|callee| is_in(root, callee.tid, callee.start)) {
                let running_ns = self.running_ns(callee);
                own_ns -= running_ns;
                let place = site(self.opened, callee.caller_ip, callee.start).unwrap();
                *truth.callees.entry(place).or_default() += running_ns;
            }
            add(Spent::Running, own_ns);
        }
        truth
    }

    /// What a call ran, with all that it called.
    fn running_ns(&self, call: &calls::Row) -> u64 {
        let stays = self.stays.iter().filter(|stay| is_in(call, stay.tid, stay.from));
        call.latency_ns - call.off_cpu_ns - stays.map(|stay| stay.on_cpu_ns).sum::<u64>()
    }

    /// Compares the rows with the truth; how many there are.
    fn check(&self, ledger: &Ledger<ChildKey>, numbers: &RangeInclusive<u64>) -> usize {
        let Comparison { rows, calls, .. } = ledger.compare().unwrap();
        let (these, base) = (self.of(Side::These, numbers), self.of(Side::Base, numbers));
        assert_eq!((these.calls, base.calls), calls);
        let is_off_cpu = |spent| !matches!(spent, Spent::Running | Spent::Kernel | Spent::Interrupts);
        assert!(rows.iter().filter(|row| is_off_cpu(row.spent)).count() <= 1, "{rows:#?}");
        for row in &rows {
            let spent = if is_off_cpu(row.spent) { Spent::OffCpu } else { row.spent };
            let place = ledger.paths()[row.path].key.site;
            let of = |truth: &Truth| match row.path {
                0 => truth.spent.get(&spent).copied(),
                _ => truth.callees.get(&place?).copied(),
            };
            let truth = (of(&these).unwrap_or(0), of(&base).unwrap_or(0));
            assert_eq!(wrong(row, truth, calls), None, "{numbers:?}");
        }
        rows.len()
    }
}

fn is_in(call: &calls::Row, tid: Tid, at: Ns) -> bool {
    call.tid == tid && call.start <= at && at.0 < call.start.0 + call.latency_ns
}

/// Where a row is not what it says, in words.
fn wrong(row: &Row, truth: (u64, u64), calls: (u64, u64)) -> Option<String> {
    let off = (row.sums_ns.0.abs_diff(truth.0), row.sums_ns.1.abs_diff(truth.1));
    let mean = |sum: u64, calls: u64| sum as f64 / calls as f64;
    let difference = mean(truth.0, calls.0) - mean(truth.1, calls.1);
    // Rows are rounded up or down, so that they add up.
    let may_differ = row.difference.error_ns as f64 + 1.0;
    let is_right = off.0 <= row.errors_ns.0
        && off.1 <= row.errors_ns.1
        && (row.difference.ns as f64 - difference).abs() <= may_differ;
    (!is_right).then(|| format!("{row:?} is {truth:?}, {difference}"))
}

/// All calls of a function, and each two that follow one another; how many rows there are of all. `callees`:
/// all functions that the function calls.
fn check(name: &str, root: &str, callees: &[&str]) -> usize {
    let Some(fixture) = fixture(name) else { return 0 };
    let file = pipeline::open(&fixture.data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let mut all = All(Vec::new());
    let _ = opened.analyse_trees(&[opened.function(root).unwrap()], &DecodeOptions::default(), &mut all);
    let mut calls = all.0;
    calls.sort_by_key(|(call, _)| call.id);
    let whole = ledger(&opened.schedule, &calls);

    let truth = File::load(&fixture.truth).unwrap();
    let mut oracle = Oracle::new(&truth, &fixture.data).unwrap().with_scheduler(opened.scheduler());
    let roots = oracle.calls(root).unwrap().rows;
    let is_called = |place| {
        let key = |path: &Path<ChildKey>| (path.caller, path.key.kind, path.key.site);
        whole.paths().iter().any(|path| key(path) == (Some(0), ChildKind::Call, Some(place)))
    };
    let is_direct = |row: &calls::Row| site(&opened, row.caller_ip, row.start).is_some_and(is_called);
    let callees = oracle.calls_of_each(callees).unwrap();
    let mut callees: Vec<calls::Row> = callees.into_iter().flat_map(|callee| callee.rows).collect();
    callees.retain(is_direct);
    let known = Known { opened: &opened, stays: stays(&truth), roots, callees };
    for pair in calls.windows(2) {
        let [(first, _), (last, _)] = pair else { unreachable!("windows of two") };
        known.check(&ledger(&opened.schedule, pair), &(first.id.number..=last.id.number));
    }
    known.check(&whole, &(0..=u64::MAX))
}

#[test]
fn planted_causes() {
    if fixture("causes").is_none() {
        return;
    }
    for (root, callees, rows) in [
        ("one_more_trip", &[][..], 1),
        ("dear_child", &["deep_1"], 2),
        ("more_calls", &["piece"], 2),
        ("deeper", &["descends"], 2),
        ("system_calls", &["libc.so.6:syscall"], 3),
        ("faults", &["touch"], 3),
    ] {
        assert_eq!(check("causes", root, callees), rows, "{root}");
    }
    assert_eq!(check("causes-ticks", "disturbed", &[]), 2);
    assert_eq!(check("causes-cpu1", "disturbed", &[]), 3);
}
