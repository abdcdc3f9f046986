//! What the calls of a page are like inside: the way that each went, the functions around it, and the trees
//! of those that matter.
//!
//! ```text
//!   all calls -> modes    which way each went
//!             -> chains   callers, and the callers of those
//!             -> kept     the trees that may matter, the shortest nodes left out
//!   rows      -> picks    which calls have a tree in the page, and which is typical of its caller
//! ```
//! Which calls matter only the rows say, at the end. So more trees are kept than the page has, and the
//! recording is decoded once.

mod chains;
mod kept;
mod picks;
mod trees;

use std::collections::{BTreeMap, BTreeSet};

use analyzer::modes::{Modes, ModesOfCalls, Ways};
use analyzer::{CallId, CallRow, CallTree, FunctionReport, Paths, Report, TreeSink, Trees, Waits};
use model::{FunctionId, Ns, Schedule, Tid};

use kept::KeptTrees;

pub use chains::{Chain, Chains};
pub use picks::{Picks, TypicalCalls, typical};
pub use trees::{LongestWaits, PrunedNode, PrunedTree, What};

/// What one function's calls are like inside.
#[derive(Clone, Debug)]
pub struct Inside {
    /// The ways that calls went.
    pub modes: Modes,
    /// Chains of callers.
    pub chains: Chains,
    /// By row: the call's ways (`None`: not known), and the number of its chain (0: not known).
    by_row: Vec<(Option<Ways>, usize)>,
    /// By row, of those that have one.
    pub trees: BTreeMap<usize, PrunedTree>,
    /// The typical call of each caller; it has a tree.
    pub typical: TypicalCalls,
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
        match self.by_row.get(row).and_then(|(ways, _)| *ways) {
            None => Way::NotKnown,
            Some(ways) => self.modes.of(&ways).map_or(Way::Other, Way::Mode),
        }
    }

    /// The number of the chain of callers of the call in this row; 0: nothing is known.
    #[must_use]
    pub fn chain(&self, row: usize) -> usize {
        self.by_row.get(row).map_or(0, |(_, chain)| *chain)
    }
}

/// Takes the trees of all calls of some functions while their report is made.
#[derive(Debug, Default)]
pub struct InsideOfCalls {
    functions: Vec<OfFunction>,
    /// A flame graph that is made of the same trees.
    paths: Option<Paths>,
}

/// What is gathered of one function's calls.
#[derive(Debug)]
struct OfFunction {
    id: FunctionId,
    modes: ModesOfCalls,
    chains: Chains,
    /// Each call with its ways and its chain.
    calls: Vec<(CallId, (Option<Ways>, usize))>,
    kept: KeptTrees,
}

impl InsideOfCalls {
    /// Of the calls of these functions.
    #[must_use]
    pub fn new(functions: &[FunctionId]) -> Self {
        let of = |id: &FunctionId| OfFunction {
            id: *id,
            modes: ModesOfCalls::default(),
            chains: Chains::default(),
            calls: Vec::new(),
            kept: KeptTrees::default(),
        };
        Self { functions: functions.iter().map(of).collect(), paths: None }
    }

    /// Gives the trees of outermost calls to `paths`, too.
    #[must_use]
    pub fn with_paths(self, paths: Option<Paths>) -> Self {
        Self { paths, ..self }
    }

    /// The paths of [`Self::with_paths`], with all that was seen.
    pub fn take_paths(&mut self) -> Option<Paths> {
        self.paths.take()
    }

    /// What was found, in the order of the report's functions. The report has rows.
    #[must_use]
    pub fn finish(mut self, report: &Report, waits: &mut Waits<'_>) -> Vec<Inside> {
        let mut finish = |function: &FunctionReport| {
            let at = self.functions.iter().position(|of| of.id == function.id)?;
            Some(self.functions.swap_remove(at).finish(function, waits))
        };
        report.functions.iter().filter_map(&mut finish).collect()
    }

    fn of(&mut self, function: FunctionId) -> Option<&mut OfFunction> {
        self.functions.iter_mut().find(|of| of.id == function)
    }
}

impl OfFunction {
    fn finish(mut self, function: &FunctionReport, waits: &mut Waits<'_>) -> Inside {
        let rows = &function.rows;
        self.calls.sort_unstable_by_key(|(id, _)| *id);
        let known = |row: &CallRow| {
            let at = self.calls.binary_search_by_key(&row.id, |(id, _)| *id).ok()?;
            self.calls.get(at).map(|(_, known)| *known)
        };
        let by_row = rows.iter().map(|row| known(row).unwrap_or_default()).collect();
        let picks = Picks::of(function, |at| rows.get(at).is_some_and(|row| self.kept.has(row.id)));
        let mut tree = |at: &usize| {
            let row = rows.get(*at)?;
            let tree = self.kept.take(row.id)?.pruned(picks.nodes_max());
            Some((*at, PrunedTree { waits: waits_of(row, waits), ..tree }))
        };
        Inside {
            modes: self.modes.finish(),
            chains: self.chains,
            by_row,
            trees: picks.rows().iter().filter_map(&mut tree).collect(),
            typical: picks.typical().clone(),
            thread_names: thread_names(waits.schedule(), rows),
        }
    }
}

fn waits_of(call: &CallRow, waits: &mut Waits<'_>) -> LongestWaits {
    if call.off_cpu_ns.is_none_or(|ns| ns == 0) {
        return LongestWaits::default();
    }
    let end = Ns(call.start_ns.0.saturating_add(call.latency_ns));
    LongestWaits::of(waits.between(call.id.tid, call.start_ns, end))
}

fn thread_names(schedule: &Schedule, rows: &[CallRow]) -> BTreeMap<Tid, String> {
    let tids: BTreeSet<Tid> = rows.iter().map(|row| row.id.tid).collect();
    let name = |tid| Some((tid, schedule.thread(tid)?.name.clone()));
    tids.into_iter().filter_map(name).filter(|(_, name)| !name.is_empty()).collect()
}

impl TreeSink for InsideOfCalls {
    fn wanted(&self) -> Trees {
        Trees::Every
    }

    fn wants_callers(&self) -> bool {
        true
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        if let Some(paths) = self.paths.as_mut().filter(|_| call.depth == 0) {
            paths.call(call, tree);
        }
        let Some(of) = self.of(call.function) else { return };
        let ways = of.modes.add(call, tree);
        let chain = of.chains.add(tree.callers());
        of.calls.push((call.id, (ways, chain)));
        of.kept.add(call, tree);
    }

    fn resumed(&mut self, call: &CallRow, tree: &CallTree) {
        if let Some(paths) = &mut self.paths {
            paths.resumed(call, tree);
        }
    }
}
