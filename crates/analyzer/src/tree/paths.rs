//! Where time went, by paths of calls: what flame graphs and profiles are made of.

use model::Tid;

use super::merge::Merged;
use super::{CallTree, TreeSink, Trees};
use crate::report::CallRow;

/// The trees of all calls in one another.
#[derive(Debug)]
pub struct Paths {
    wanted: Trees,
    merged: Merged,
}

impl Paths {
    /// Below the wanted functions: of their counted calls, those that are in no other call of the same function.  The
    /// roots of a function add up to [`FunctionReport::outermost`](crate::FunctionReport::outermost).
    #[must_use]
    pub fn of_calls() -> Self {
        Self { wanted: Trees::Merged, merged: Merged::default() }
    }

    /// Of all that every thread was seen to do.
    #[must_use]
    pub fn of_threads() -> Self {
        Self { wanted: Trees::Threads, merged: Merged::default() }
    }

    /// The paths, in the order in which they were first taken.
    #[must_use]
    pub fn finish(self) -> CallTree {
        CallTree::new(self.merged.by_entry())
    }
}

impl TreeSink for Paths {
    fn wanted(&self) -> Trees {
        self.wanted.clone()
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        if call.status.counted() {
            self.merged.add(&tree.nodes);
        }
    }

    fn thread(&mut self, _: Tid, trees: &CallTree) {
        self.merged.add(&trees.nodes);
    }
}
