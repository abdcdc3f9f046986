//! Why the calls of one group took longer than those of another, to the nanosecond.
//!
//! All time of a call is that of its tree's nodes, each of which spends its own in few ways ([`Spent`]). The
//! ledger has the sums by path of calls, for both groups:
//!
//! ```text
//!   path               these: count, own time           base: count, own time
//!   f                      4   running 4000                 200   running 200,000
//!     g at f+10            4   running  800                 200   running  40,000
//!       [syscall]          8   kernel 900, blocked 90,000     0
//! ```
//! From that come the rows ([`Ledger::compare`]), which add up to the difference of the means, and the way
//! down to the function that differs ([`Ledger::descend`]).

mod clusters;
mod compare;
mod descend;
mod gather;
mod groups;
mod left_out;
mod outlying;
mod shift;
mod spent;
mod split;
mod totals;
mod variance;

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::place::ChildKind;
use crate::tree::{CallTree, Node, Step};
use crate::work::{Work, add_known};

pub use clusters::{Cluster, Clusters};
pub use compare::{Comparison, Difference, Row};
pub use descend::{Descent, End, Level};
pub use gather::{AllCalls, Compared, LedgerOfCalls, OffCpuPart, ledger_of_rows};
pub use groups::{ChoiceError, Groups, Slow};
pub use left_out::LeftOut;
pub use outlying::{Outlying, Typical};
pub use shift::{Shift, Verdict};
pub use spent::{Parts, Spent};
pub use split::{MostOf, Split, SplitErrors};

use variance::Variance;

/// Which of the two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The calls that are asked about.
    These,
    /// Those that they are compared with.
    Base,
}

/// Sums over the calls of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// How often this was called.
    pub count: u64,
    /// Time of its own, without that of what it called.
    pub own: Parts,
    /// The most by which its time with all that it called, on and off the CPU, may differ from the true one:
    /// the sum of [`Node::error_ns`]. A call that is in another one of the same path (recursion) adds none.
    pub error_ns: u64,
    /// What it executed itself; `None`: not known.
    pub work: Option<Work>,
}

impl Default for Sums {
    fn default() -> Self {
        Self { count: 0, own: Parts::default(), error_ns: 0, work: Some(Work::NONE) }
    }
}

/// A callee, called by way of other callees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path<K> {
    /// The callee.
    pub key: K,
    /// The system's part: its time is no code's.
    pub kind: ChildKind,
    /// Index of the path to its caller, which is smaller; `None`: the function itself.
    pub caller: Option<usize>,
    these: Sums,
    base: Sums,
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.own.add(other.own);
        self.error_ns = self.error_ns.saturating_add(other.error_ns);
        add_known(&mut self.work, other.work);
    }
}

impl<K> Path<K> {
    const fn sums_mut(&mut self, side: Side) -> &mut Sums {
        match side {
            Side::These => &mut self.these,
            Side::Base => &mut self.base,
        }
    }

    /// Those of one group.
    #[must_use]
    pub const fn sums(&self, side: Side) -> Sums {
        match side {
            Side::These => self.these,
            Side::Base => self.base,
        }
    }
}

/// What the calls of two groups spent their time on; `K` is what tells callees apart.
#[derive(Clone, Debug)]
pub struct Ledger<K> {
    paths: Vec<Path<K>>,
    places: FxHashMap<(usize, K), usize>,
    variance: Variance,
}

impl<K> Default for Ledger<K> {
    fn default() -> Self {
        Self { paths: Vec::new(), places: FxHashMap::default(), variance: Variance::default() }
    }
}

impl<K: Copy + Eq + Hash> Ledger<K> {
    /// Adds a call: to a group, if it is in one, and to what the variance is of. `spent` says what a node's
    /// own time went for, `key` names its callee.
    pub fn add(
        &mut self,
        side: Option<Side>,
        tree: &CallTree,
        spent: impl Fn(&Step<'_>) -> Parts,
        key: impl FnMut(&Node) -> K,
    ) {
        self.add_each(side, tree, spent, key, |_, _| ());
    }

    /// Adds a call, and tells `each` what each node of a call in a group spent, with its path.
    fn add_each(
        &mut self,
        side: Option<Side>,
        tree: &CallTree,
        spent: impl Fn(&Step<'_>) -> Parts,
        mut key: impl FnMut(&Node) -> K,
        mut each: impl FnMut(usize, Sums),
    ) {
        let mut open: Vec<usize> = Vec::new(); // paths
        let mut child = 0; // the direct callee that the walk is in, or the function itself
        for step in tree.walk() {
            open.truncate(step.depth);
            let own = spent(&step);
            let path = match (open.last(), side) {
                // What a call in neither group did further down is not kept.
                (Some(_), None) if step.depth > 1 => child,
                (caller, _) => self.path(caller.copied(), key(step.node), step.node.kind),
            };
            if step.depth <= 1 {
                child = path;
            }
            self.variance.spent(child, own);
            let is_inside = open.last() == Some(&path);
            if let (Some(side), Some(path_sums)) = (side, self.paths.get_mut(path)) {
                let error_ns = if is_inside { 0 } else { step.node.error_ns };
                let sums = Sums { count: step.node.total.count, own, error_ns, work: step.own_work };
                path_sums.sums_mut(side).add(sums);
                each(path, sums);
            }
            open.push(path);
        }
        self.variance.call_ended();
    }

    /// The path of a callee; recursion goes no deeper.
    fn path(&mut self, caller: Option<usize>, key: K, kind: ChildKind) -> usize {
        let Some(caller) = caller else {
            if self.paths.is_empty() {
                self.paths.push(Path {
                    key,
                    kind,
                    caller: None,
                    these: Sums::default(),
                    base: Sums::default(),
                });
            }
            return 0;
        };
        let is_deeper = |path: &Path<K>| path.key == key && path.kind == kind;
        if kind == ChildKind::Recursion && self.paths.get(caller).is_some_and(is_deeper) {
            return caller;
        }
        let next = self.paths.len();
        let path = *self.places.entry((caller, key)).or_insert(next);
        if path == next {
            let (these, base) = (Sums::default(), Sums::default());
            self.paths.push(Path { key, kind, caller: Some(caller), these, base });
        }
        path
    }

    /// All paths, each after that of its caller.
    #[must_use]
    pub fn paths(&self) -> &[Path<K>] {
        &self.paths
    }

    /// Calls of a group.
    #[must_use]
    pub fn calls(&self, side: Side) -> u64 {
        self.paths.first().map_or(0, |root| root.sums(side).count)
    }
}
