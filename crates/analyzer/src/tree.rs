//! The tree of a call: every call inside of it, and the kernel's part, with their times.
//!
//! A tree is flat: nodes in the order of their entry, each with the number of nodes of its subtree.
//!
//! ```text
//!   f  size 5                 0..5
//!     g  size 3               1..4
//!       h  size 1             2
//!       [syscall]  size 1     3
//!     h  size 1               4
//! ```
//! What is a child is what the report's children are, one level after the other: a PLT stub is no child, a
//! handler's time begins with the interruption, and what a function found running in the middle does is its
//! caller's own time.

mod merge;
mod paths;
mod short_calls;

use model::schedule::OffCpu;
use model::{AuxOffset, FunctionId, Ns, Schedule, Tid};

use crate::call_row::CallRow;
use crate::children::ChildKey;
use crate::place::{ChildKind, Place};
use crate::status::Status;
use crate::total::{Total, error_of_part};
use crate::work::{Work, add_known};
pub(crate) use merge::Merged;

pub use paths::{FoundPaths, Paths};
pub use short_calls::ShortCalls;

/// Takes trees of calls as they end, from an [`Analysis`](crate::Analysis) that is made for it.
pub trait TreeSink {
    /// Which trees; the answer is always the same.
    fn wanted(&self) -> Trees;

    /// A call that was asked for has ended, or will not be seen to end. `call` is its row, and the tree's
    /// first node.
    fn call(&mut self, call: &CallRow, tree: &CallTree);

    /// A call that was given as cut was found running after a gap. `call` is the part seen since: a row
    /// that the report does not have. Only of outermost calls.
    fn resumed(&mut self, call: &CallRow, tree: &CallTree) {
        let _ = (call, tree);
    }

    /// Each tree comes with the functions that were open around its call ([`CallTree::callers`]).
    fn wants_callers(&self) -> bool {
        false
    }

    /// Calls inside of a call that took less are no nodes of its tree: it counts them
    /// ([`CallTree::left_out`]), and their time is their caller's own. The answer is always the same.
    fn min_ns(&self) -> u64 {
        0
    }

    /// A call without a tree, as it is inside of [`NESTED_MAX`] others or more ([`Trees::Every`]).
    fn too_deep(&mut self, call: &CallRow) {
        let _ = call;
    }

    /// All that was seen of a thread ([`Trees::Threads`]): a tree for each function that was not seen to be
    /// called.
    fn thread(&mut self, _tid: Tid, _trees: &CallTree) {}
}

/// Calls inside of this many others of their function have no tree of their own where there is one of every
/// call: it would cost the square of the depth.
pub const NESTED_MAX: u32 = 256;

/// The number of functions around a call that are known with its tree.
pub const CALLERS_MAX: usize = 64;

/// Which trees a [`TreeSink`] wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trees {
    /// Of the calls of wanted functions that were entered at these packets, of any buffer.
    EnteredAt(Vec<AuxOffset>),
    /// Of each call of a wanted function, but see [`NESTED_MAX`]; if it calls itself, the tree has those of
    /// the calls inside.
    Every,
    /// Of each outermost call of a wanted function.
    Outermost,
    /// Of each outermost call of a wanted function, with calls that are alike (callee, site, callers) in one
    /// node.
    Merged,
    /// Of all that each thread did, merged.
    Threads,
}

impl Trees {
    /// A tree is wanted of a call of a wanted function that is inside of `depth` others of it.
    pub(crate) fn has(&self, depth: u32, entry: AuxOffset) -> bool {
        match self {
            Self::EnteredAt(packets) => packets.contains(&entry),
            Self::Every => depth < NESTED_MAX,
            Self::Outermost | Self::Merged => depth == 0,
            Self::Threads => false,
        }
    }

    /// A tree is wanted of the part of a call seen after a gap ([`TreeSink::resumed`]), if the call is
    /// inside of `depth` others of its function.
    pub(crate) fn has_resumed(&self, depth: u32) -> bool {
        matches!(self, Self::Every | Self::Outermost | Self::Merged) && depth == 0
    }
}

/// A call in a tree, or several that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is; [`ChildKind::Own`] is none.
    pub kind: ChildKind,
    /// How much of it was seen; of several, of the first.
    pub status: Status,
    /// The function; `UNKNOWN` for system calls and interrupts.
    pub function: FunctionId,
    /// The instruction that entered it.
    pub site: Option<Place>,
    /// When it was entered; of several, the first.
    pub start: Ns,
    /// Time, that of its callees included.
    pub total: Total,
    /// The most by which the time, on or off the CPU, may differ from the true one: the bounds of its entry
    /// and its exit; of several, the sum of theirs.
    pub error_ns: u64,
    /// What it executed, with its callees; `None`: counters were not asked for.
    pub work: Option<Work>,
    /// Nodes of its subtree, itself included.
    pub size: usize,
}

impl Node {
    /// What it has in common with others that are alike.
    #[must_use]
    pub fn key(&self) -> ChildKey {
        ChildKey { kind: self.kind, function: self.function, site: self.site }
    }

    /// When it ended, if it is one call.
    #[must_use]
    pub fn end(&self) -> Ns {
        Ns(self.start.0.saturating_add(self.total.sum_ns))
    }
}

/// A tree, or several: nodes in the order of their entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTree {
    pub(crate) nodes: Vec<Node>,
    pub(crate) callers: Vec<FunctionId>,
    pub(crate) left_out: ShortCalls,
}

/// A node where a walk meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'t> {
    /// The node.
    pub node: &'t Node,
    /// Nodes above it.
    pub depth: usize,
    /// What it took itself: its total without its callees'.
    pub own: Total,
    /// The most by which that may differ from the true time: the errors of its total and of its callees',
    /// added up, but not below nothing or above what the node took.
    pub own_error_ns: u64,
    /// What it executed itself, if that is known.
    pub own_work: Option<Work>,
}

impl CallTree {
    /// Of nodes in the order of their entry.
    #[must_use]
    pub fn new(nodes: Vec<Node>) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// Sets the functions that were open around the call to `callers`, the nearest first.
    #[must_use]
    pub fn called_by(self, callers: Vec<FunctionId>) -> Self {
        Self { callers, ..self }
    }

    /// The functions that were open around the call, the nearest first, at most [`CALLERS_MAX`]; `UNKNOWN`:
    /// the kernel's part below a signal handler. Only where they were asked for
    /// ([`TreeSink::wants_callers`]).
    #[must_use]
    pub fn callers(&self) -> &[FunctionId] {
        &self.callers
    }

    /// The calls inside that were too short to be nodes ([`TreeSink::min_ns`]).
    #[must_use]
    pub fn left_out(&self) -> &ShortCalls {
        &self.left_out
    }

    /// With calls that are alike (callee, site, callers) in one node, in the order of first entry.
    #[must_use]
    pub fn merged(&self) -> Self {
        let mut merged = Merged::default();
        merged.add(&self.nodes);
        Self { nodes: merged.by_entry(), callers: self.callers.clone(), left_out: self.left_out.clone() }
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The roots.
    pub fn roots(&self) -> impl Iterator<Item = &Node> {
        siblings(&self.nodes)
    }

    /// Every node, in the order of entry.
    pub fn walk(&self) -> impl Iterator<Item = Step<'_>> {
        let mut ends: Vec<usize> = Vec::new();
        self.nodes.iter().enumerate().map(move |(at, node)| {
            while ends.last().is_some_and(|end| *end <= at) {
                ends.pop();
            }
            let depth = ends.len();
            ends.push(at + node.size);
            let below = self.nodes.get(at + 1..at + node.size).unwrap_or_default();
            let (own, own_error_ns) = own(node, below);
            Step { node, depth, own, own_error_ns, own_work: own_work(node, below) }
        })
    }
}

/// The root of each tree of `nodes`.
fn siblings(nodes: &[Node]) -> impl Iterator<Item = &Node> {
    trees(nodes).filter_map(<[Node]>::first)
}

/// The nodes of each tree of `nodes`.
fn trees(nodes: &[Node]) -> impl Iterator<Item = &[Node]> {
    let mut rest = nodes;
    std::iter::from_fn(move || {
        let size = rest.first()?.size.clamp(1, rest.len());
        let (tree, others) = rest.split_at(size);
        rest = others;
        Some(tree)
    })
}

/// What is left of a node's total, and its error; `below`: the rest of its subtree.
fn own(node: &Node, below: &[Node]) -> (Total, u64) {
    let (mut inside, mut error_ns) = (Total::default(), node.error_ns);
    for child in siblings(below) {
        inside.add(child.total);
        error_ns = error_ns.saturating_add(child.error_ns);
    }
    let own = node.total.without(&inside);
    let longest_ns = node.total.sum_ns.saturating_add(node.error_ns);
    (own, error_of_part(error_ns, own.sum_ns, longest_ns))
}

/// What is left of a node's work; `below`: the rest of its subtree.
fn own_work(node: &Node, below: &[Node]) -> Option<Work> {
    let all = node.work?;
    let mut inside = Some(Work::NONE);
    siblings(below).for_each(|child| add_known(&mut inside, child.work));
    Some(all.without(inside?))
}

/// When a thread was off its CPU between two times, by its switch records; clipped to these times.
pub fn off_cpu_spans(schedule: &Schedule, tid: Tid, from: Ns, to: Ns) -> impl Iterator<Item = OffCpu> + '_ {
    let all = schedule.thread(tid).map_or(&[][..], |life| &life.off_cpu);
    let first = all.partition_point(|span| span.to.is_some_and(|end| end <= from));
    let spans = all.get(first..).unwrap_or_default().iter().take_while(move |span| span.from < to);
    spans.map(move |span| OffCpu {
        from: span.from.max(from),
        to: Some(span.to.map_or(to, |end| end.min(to))),
        preempted: span.preempted,
        woken: span.woken.map(|woken| woken.max(from).min(to)),
    })
}
