//! Whatever the events say, nothing panics and the sums hold.

use std::fmt::Write as _;

use model::AuxOffset;

use super::script::{analyse, analyse_trees, id};
use crate::children::{ChildKey, ChildSums};
use crate::total::{OffCpuKnown, RunningTotal};
use crate::{Ancestor, CallRow, CallTree, ChildRow, LatencyRange, Paths, Request, Total, TreeSink, Trees};

/// A small generator of random numbers (xorshift64*): the same events on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }

    fn address(&mut self) -> String {
        let function = self.pick(&["main", "f", "g", "h", "plt", "loader", "handler", "lib", "unnamed"]);
        // Few addresses, so that returns meet the calls.
        let offset = self.pick(&["", "+10", "+15", "+20", "+25"]);
        format!("{function}{offset}")
    }
}

pub(super) fn random_script(seed: u64, with_filter: bool) -> String {
    let mut random = Random(seed);
    let mut script = String::from(if with_filter { "filter\noff 100 140\noff 300\n" } else { "off 50 60\n" });
    let (mut now, mut earliest) = (0, 0);
    for _ in 0..400 {
        now += random.below(4);
        let lo = earliest.max(now - random.below(3).min(now));
        let (from, to) = (random.address(), random.address());
        let word = random.pick(&[
            "call", "call", "call", "icall", "ret", "ret", "ret", "jmp", "ijmp", "jcc", "syscall", "async",
            "start", "start", "resume", "gap", "out.call", "out.ret", "out.jmp", "out.fall",
        ]);
        let line = match word {
            "gap" if random.below(8) != 0 => continue,
            "gap" => {
                let why = if now % 2 == 0 { "missing" } else { "overflow" };
                format!("{now} gap {} {why}", now + random.below(3))
            }
            "start" | "resume" => format!("{lo}/{now}/{now} {word} {to}"),
            "syscall" | "async" => format!("{now} {word} {from}"),
            _ => format!("{lo}/{now}/{} {word} {from} {to}", now + 1),
        };
        earliest = if matches!(word, "gap" | "syscall" | "async") { now } else { lo };
        writeln!(script, "{line}").unwrap();
    }
    script
}

/// User and kernel code by turns, in any order.
fn random_kernel_script(seed: u64) -> String {
    const USER: [&str; 3] = ["main", "f", "g"];
    const KERNEL: [&str; 4] = ["entry", "sys", "read", "irq"];
    let mut random = Random(seed);
    let mut script =
        String::from(["off 50 60\noff 300\n", "filter\noff 50 60\n"][usize::from(seed.is_multiple_of(4))]);
    script += if seed.is_multiple_of(5) { "whole_cpus\n" } else { "" };
    let (mut now, mut in_kernel) = (0, false);
    for _ in 0..400 {
        now += random.below(4);
        let mut address = |in_kernel: bool| {
            let function = random.pick(if in_kernel { &KERNEL } else { &USER });
            format!("{function}{}", random.pick(&["", "+10", "+15", "+20", "+25"]))
        };
        let (from, to, other) = (address(in_kernel), address(in_kernel), address(!in_kernel));
        let user = address(false);
        let word = random.pick(&[
            "call", "call", "ret", "ret", "jmp", "ijmp", "enter", "enter", "leave", "leave", "off", "gap",
            "nest", "missing",
        ]);
        match word {
            "gap" if random.below(8) == 0 => writeln!(script, "{now} gap {}", now + random.below(3)),
            "gap" => Ok(()),
            "missing" => {
                let how =
                    if in_kernel { "syscall" } else { random.pick(&["out.call", "out.ijmp", "out.ret"]) };
                in_kernel = !in_kernel && random.below(2) == 0;
                let (at, left) = (if in_kernel { &other } else { &user }, now);
                now += random.below(3);
                writeln!(script, "{left} {how} {from} lib+8\n{left} gap {now} missing\n{now} resume {at}")
            }
            "enter" | "leave" => {
                in_kernel = !in_kernel;
                let how = if word == "enter" { "async" } else { "syscall" };
                writeln!(script, "{now} {how} {from} {other}\n{now} start {other}")
            }
            "nest" if in_kernel => {
                let how = random.pick(&["async", "syscall"]);
                writeln!(script, "{now} {how} {from} {to}\n{now} start {to}")
            }
            "off" => {
                now += 1;
                writeln!(script, "{} async {from}\n{now} start {to}", now - 1)
            }
            "nest" => Ok(()),
            _ => writeln!(script, "{now} {word} {from} {to}"),
        }
        .unwrap();
    }
    script
}

#[test]
fn sums_hold_for_any_events_of_kernel_code() {
    for seed in 1..=400 {
        let script = random_kernel_script(seed);
        let request = Request { functions: vec![id("f"), id("read")], ..Request::default() };
        let both = analyse(&script, request); // which checks it
        let user = analyse(&script, Request::default());
        let figures = |report: &crate::Report| {
            let f = &report.functions[0];
            (f.calls, f.figures.latency.sum_ns, f.outermost.total.off_cpu_ns, f.figures.children.clone())
        };
        assert_eq!(figures(&both), figures(&user), "seed {seed}: f is what it is without the kernel");
    }
}

#[test]
fn sums_hold_for_any_sequence_of_events() {
    for seed in 1..=400 {
        let script = random_script(seed, seed % 2 == 0);
        let mut request = Request { functions: vec![id("f"), id("g")], ..Request::default() };
        if seed % 3 == 0 {
            let latency = LatencyRange { min_ns: 3, max_ns: 100 };
            request.ancestor = Some(Ancestor { function: id("h"), latency });
        }
        let report = analyse(&script, request); // which checks it
        for f in &report.functions {
            let mut ids: Vec<_> = f.rows.iter().map(|r| r.id).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), f.rows.len(), "seed {seed}: ids are unique");
        }
    }
}

/// Sums what the roots of trees called.
struct Children {
    entries: Vec<AuxOffset>,
    sums: ChildSums<ChildKey>,
    /// Random scripts tell of switches, or they do not.
    off_cpu: OffCpuKnown,
    total: Total,
}

impl TreeSink for Children {
    fn wanted(&self) -> Trees {
        Trees::EnteredAt(self.entries.clone())
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        let sizes: usize = tree.roots().map(|root| root.size).sum();
        assert_eq!(sizes, tree.nodes().len());
        let own: u64 = tree.walk().map(|step| step.own.sum_ns).sum();
        assert_eq!(own, call.latency_ns, "each part of the time is of one node");
        if call.end.status.counted() {
            for step in tree.walk().filter(|step| step.depth == 1) {
                let (Total { count, sum_ns, off_cpu_ns }, error_ns) = (step.node.total, step.node.error_ns);
                assert_eq!(off_cpu_ns.is_some(), self.off_cpu.0);
                let off_cpu_ns = off_cpu_ns.unwrap_or_default();
                self.sums.add(step.node.key(), RunningTotal { count, sum_ns, off_cpu_ns, error_ns });
            }
            self.total.add(tree.nodes()[0].total);
        }
    }
}

#[test]
fn the_first_level_of_all_trees_is_the_children() {
    for seed in 1..=200 {
        let script = random_script(seed, seed % 2 == 0);
        let report = analyse(&script, Request::default());
        let entries = report.functions[0].rows.iter().filter_map(|row| row.aux_offset()).collect();
        let off_cpu = OffCpuKnown(report.trace.no_off_cpu.is_none());
        let mut children = Children { entries, sums: ChildSums::default(), off_cpu, total: Total::default() };
        let with_trees = analyse_trees(&script, Request::default(), &mut children);
        assert!(with_trees == report, "seed {seed}: trees change nothing");
        let without_percent = |row: &ChildRow| ChildRow { cpu_percent: None, ..*row };
        let error_ns = report.functions[0].figures.error.sum_ns;
        let rows = children.sums.rows(children.total, error_ns, |_| 0.0);
        let rows: Vec<_> = rows.iter().map(without_percent).collect();
        let expect: Vec<_> = report.functions[0].figures.children.iter().map(without_percent).collect();
        assert_eq!(rows, expect, "seed {seed}");
    }
}

/// Merges the trees of all calls itself.
struct OneByOne(Paths);

impl TreeSink for OneByOne {
    fn wanted(&self) -> Trees {
        Trees::Outermost
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        self.0.call(call, tree);
    }

    fn resumed(&mut self, call: &CallRow, tree: &CallTree) {
        self.0.resumed(call, tree);
    }
}

#[test]
fn it_does_not_matter_when_calls_that_are_alike_become_one() {
    let mut merged = 0;
    for seed in 1..=200 {
        let script = random_script(seed, seed % 2 == 0);
        let request = || Request { functions: vec![id("f"), id("main")], ..Request::default() };
        let mut early = Paths::of_calls();
        analyse_trees(&script, request(), &mut early);
        let mut late = OneByOne(Paths::of_calls());
        analyse_trees(&script, request(), &mut late);
        let (early, late) = (early.finish(), late.0.finish());
        merged += early.tree.nodes().iter().filter(|node| node.total.count > 1).count();
        assert_eq!(early, late, "seed {seed}");
    }
    assert!(merged > 100, "{merged}");
}
