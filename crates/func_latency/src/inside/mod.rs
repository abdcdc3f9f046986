//! What the calls of a page are like inside: the way that each went, who was around it, and the trees of
//! those that matter.
//!
//! ```text
//!   rows      -> picks    which calls have a tree in the page, and which is typical of its caller
//!   all calls -> chains   who called, and who called those
//!             -> trees    merged, the shortest left out, with the times off the CPU
//! ```
//! Which calls matter only the rows say, so this is a second pass over the recording, with nothing left out.
//! It goes over all of it: the way that a call went is wanted of each.

mod chains;
mod picks;
mod trees;

use std::collections::{BTreeMap, BTreeSet};

use analyzer::modes::{Modes, ModesOfCalls, Ways};
use analyzer::{CallId, CallRow, CallTree, FunctionReport, Report, TreeSink, Trees, off_cpu_spans};
use model::{FunctionId, Ns, Schedule, Tid};

pub use chains::{Chain, Chains};
pub use picks::{CallerKey, Picks};
pub use trees::{PrunedNode, PrunedTree, Spans, What};

/// What one function's calls are like inside.
#[derive(Clone, Debug)]
pub struct Inside {
    /// The ways that calls went.
    pub modes: Modes,
    /// By row: the way of the call; `None`: it is not known.
    ways: Vec<Option<Ways>>,
    /// Who called.
    pub chains: Chains,
    /// By row, of those that have one.
    pub trees: BTreeMap<usize, PrunedTree>,
    /// What the threads of the rows are called, as far as that is known.
    pub thread_names: BTreeMap<Tid, String>,
}

/// The way that a call went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It was not seen from entry to end, or is inside of too many others.
    NotKnown,
    /// One of those that are not told apart.
    Other,
    /// Index in [`Modes::modes`].
    Mode(usize),
}

impl Inside {
    /// The way of the call in this row.
    #[must_use]
    pub fn way(&self, row: usize) -> Way {
        match self.ways.get(row).copied().flatten() {
            None => Way::NotKnown,
            Some(ways) => self.modes.of(&ways).map_or(Way::Other, Way::Mode),
        }
    }
}

/// Takes the trees of all calls of a report that has rows.
pub struct InsideOfCalls<'a> {
    schedule: &'a Schedule,
    functions: Vec<OfFunction<'a>>,
}

/// What is gathered of one function's calls.
struct OfFunction<'a> {
    report: &'a FunctionReport,
    /// Where the row of each call is, by id.
    rows: Vec<(CallId, usize)>,
    picks: Picks,
    modes: ModesOfCalls,
    ways: Vec<Option<Ways>>,
    chains: Chains,
    trees: BTreeMap<usize, PrunedTree>,
}

impl<'a> InsideOfCalls<'a> {
    /// Of the calls in the rows of `report`; `schedule` says when their threads were off the CPU.
    #[must_use]
    pub fn new(report: &'a Report, schedule: &'a Schedule) -> Self {
        Self { schedule, functions: report.functions.iter().map(OfFunction::new).collect() }
    }

    /// What was found, in the order of the report's functions.
    #[must_use]
    pub fn finish(self) -> Vec<Inside> {
        let inside = |of: OfFunction<'_>| Inside {
            thread_names: thread_names(self.schedule, &of.report.rows),
            modes: of.modes.finish(),
            ways: of.ways,
            chains: of.chains,
            trees: of.trees,
        };
        self.functions.into_iter().map(inside).collect()
    }

    fn of(&mut self, function: FunctionId) -> Option<&mut OfFunction<'a>> {
        self.functions.iter_mut().find(|of| of.report.id == function)
    }
}

fn thread_names(schedule: &Schedule, rows: &[CallRow]) -> BTreeMap<Tid, String> {
    let tids: BTreeSet<Tid> = rows.iter().map(|row| row.tid).collect();
    let name = |tid| Some((tid, schedule.thread(tid)?.name.clone()));
    tids.into_iter().filter_map(name).filter(|(_, name)| !name.is_empty()).collect()
}

impl<'a> OfFunction<'a> {
    fn new(report: &'a FunctionReport) -> Self {
        let mut rows: Vec<(CallId, usize)> = report.rows.iter().map(|row| row.id).zip(0..).collect();
        rows.sort_unstable();
        Self {
            report,
            picks: Picks::of(report),
            modes: ModesOfCalls::default(),
            ways: vec![None; rows.len()],
            chains: Chains::of_rows(rows.len()),
            trees: BTreeMap::new(),
            rows,
        }
    }

    fn row_of(&self, id: CallId) -> Option<usize> {
        let at = self.rows.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.rows.get(at).map(|(_, row)| *row)
    }
}

impl TreeSink for InsideOfCalls<'_> {
    fn wanted(&self) -> Trees {
        Trees::Every
    }

    fn wants_callers(&self) -> bool {
        true
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        let schedule = self.schedule;
        let Some(of) = self.of(call.function) else { return };
        let Some(row) = of.row_of(call.id) else { return };
        let ways = of.modes.add(call, tree);
        if let Some(place) = of.ways.get_mut(row) {
            *place = ways;
        }
        of.chains.add(row, tree.callers());
        if of.picks.has(row) {
            let end = Ns(call.start_ns.0.saturating_add(call.latency_ns));
            let off = off_cpu_spans(schedule, call.tid, call.start_ns, end)
                .filter(|_| call.off_cpu_ns.is_some_and(|ns| ns > 0));
            let spans = Spans::of(call.start_ns, off);
            of.trees.insert(row, PrunedTree::of(tree, of.picks.nodes_max(), spans));
        }
    }
}
