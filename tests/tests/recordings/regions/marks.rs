//! Each passing of an instruction at which a region begins or ends is an event, and no more than that:
//! against all branches, between two of which control runs straight on.

use std::collections::{BTreeMap, BTreeSet};

use decoder::DecodeOptions;
use model::{
    Avma, BranchKind, EndKind, EventSink, FunctionLookup, Mark, Pid, SpaceId, Tid, TraceEvent, Transfer,
};
use truth_tests::{Opened, fixture, pipeline};

/// How often control came to each of these instructions, but for where tracing started.
#[derive(Default)]
struct Passed {
    counts: BTreeMap<Mark, u64>,
}

/// Counts passings from straight runs: what there is without marks.
struct ByRuns<'a> {
    image: &'a image::Image,
    marks: BTreeSet<Mark>,
    /// Where each thread runs straight on from.
    at: BTreeMap<Tid, (SpaceId, Avma)>,
    passed: Passed,
}

impl ByRuns<'_> {
    /// Control ran straight on to `to`.
    fn run(&mut self, tid: Tid, space: SpaceId, to: Avma) {
        let Some((of, from)) = self.at.remove(&tid).filter(|(of, _)| *of == space) else { return };
        let places = self.image.place(of, from).zip(self.image.place(of, to));
        let Some((from, to)) = places.filter(|(from, to)| from.0 == to.0 && from.1 < to.1) else { return };
        for mark in self.marks.range(from..=to).filter(|mark| **mark != from) {
            *self.passed.counts.entry(*mark).or_default() += 1;
        }
    }

    fn come_to(&mut self, space: SpaceId, ip: Avma) {
        let place = self.image.place(space, ip);
        if let Some(mark) = place.filter(|place| self.marks.contains(place)) {
            *self.passed.counts.entry(mark).or_default() += 1;
        }
    }
}

impl EventSink for ByRuns<'_> {
    fn events(&mut self, _: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        for event in events {
            let TraceEvent::Branch(branch) = event else {
                self.at.remove(&tid);
                continue;
            };
            match branch.transfer {
                Transfer::Branch { from, to, .. } => {
                    self.run(tid, space, from.ip);
                    self.come_to(space, to.ip);
                    self.at.insert(tid, (space, to.ip));
                }
                Transfer::Start { to, .. } => {
                    self.at.insert(tid, (space, to.ip));
                }
                Transfer::End { kind, from, to } => {
                    let last = if kind == EndKind::FallThrough { to.unwrap_or(from.ip) } else { from.ip };
                    self.run(tid, space, last);
                }
            }
        }
    }
}

/// Counts passings from events.
struct ByEvents<'a> {
    image: &'a image::Image,
    marks: BTreeSet<Mark>,
    passed: Passed,
    runs_on: u64,
}

impl EventSink for ByEvents<'_> {
    fn events(&mut self, _: Pid, _: Tid, space: SpaceId, events: &[TraceEvent]) {
        for event in events {
            let TraceEvent::Branch(branch) = event else { continue };
            let Transfer::Branch { kind, to, .. } = branch.transfer else { continue };
            let mark = self.image.place(space, to.ip).filter(|place| self.marks.contains(place));
            assert!(mark.is_some() || kind != BranchKind::RunsOn, "{:?}", branch.transfer);
            self.runs_on += u64::from(kind == BranchKind::RunsOn);
            if let Some(mark) = mark {
                *self.passed.counts.entry(mark).or_default() += 1;
            }
        }
    }
}

/// Branches and the instructions after them.
#[derive(Default)]
struct Instructions {
    found: BTreeSet<(SpaceId, Avma)>,
}

impl EventSink for Instructions {
    fn events(&mut self, _: Pid, _: Tid, space: SpaceId, events: &[TraceEvent]) {
        for event in events {
            let TraceEvent::Branch(branch) = event else { continue };
            if let Transfer::Branch { from, to, .. } = branch.transfer {
                self.found.extend([from.ip, from.next_ip(), to.ip].map(|ip| (space, ip)));
            }
        }
    }
}

#[test]
fn marks_are_passed_as_straight_runs_say() {
    let recordings = ["demo", "demo-defer", "demo-ovf", "demo-filter2", "demo-cpu2", "calls-kernel", "sq1"];
    for name in recordings {
        let Some(recording) = fixture(name) else { continue };
        let file = pipeline::open(&recording.data).unwrap();
        let mut opened = Opened::new(&file).unwrap();
        let all = DecodeOptions { all_branches: true, ..DecodeOptions::default() };
        let mut instructions = Instructions::default();
        opened.decode(&all, &mut instructions);
        let user = instructions.found.iter().filter(|(_, ip)| !ip.is_kernel());
        // Some of each kind, in no order that the code has; few functions are in an IP filter.
        let is_filtered = recording.options.contains("--filter");
        let step = if is_filtered { 1 } else { 7 };
        let marks: BTreeSet<Mark> =
            user.step_by(step).filter_map(|(space, ip)| opened.image.place(*space, *ip)).collect();
        assert!(marks.len() > if is_filtered { 20 } else { 100 }, "{name}: {} marks", marks.len());

        let (at, passed) = (BTreeMap::new(), Passed::default());
        let mut by_runs = ByRuns { image: &opened.image, marks: marks.clone(), at, passed };
        opened.decode(&all, &mut by_runs);
        let by_runs = by_runs.passed.counts;

        opened.image.add_region("all", marks.iter().copied().collect(), vec![]);
        // With marks, all branches are what they are without, and the passings.
        let ways = if name == "demo" { &[false, true][..] } else { &[false] };
        for &all_branches in ways {
            let options = DecodeOptions { all_branches, workers: 2, ..DecodeOptions::default() };
            let (marks, passed) = (marks.clone(), Passed::default());
            let mut by_events = ByEvents { image: &opened.image, marks, passed, runs_on: 0 };
            opened.decode(&options, &mut by_events);
            assert!(by_events.runs_on > 100, "{name}");
            let counts = by_events.passed.counts;
            for mark in &marks_of(&by_runs, &counts) {
                let place = opened.image.site_name_at(mark.0, mark.1);
                let [seen, run] = [&counts, &by_runs].map(|of| of.get(mark).copied().unwrap_or(0));
                // Of what was passed before a gap no branch tells.
                let fits = seen == run || recording.is_lossy() && seen > run;
                assert!(fits, "{name}: {place}, {seen} of {run}, all_branches {all_branches}");
            }
        }
    }
}

fn marks_of(one: &BTreeMap<Mark, u64>, other: &BTreeMap<Mark, u64>) -> Vec<Mark> {
    let all: BTreeSet<Mark> = one.keys().chain(other.keys()).copied().collect();
    all.into_iter().collect()
}
