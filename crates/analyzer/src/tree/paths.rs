//! Where time went, by paths of calls: what flame graphs and profiles are made of.

use std::collections::BTreeSet;

use model::{FunctionId, Tid};

use super::merge::Merged;
use super::{CallTree, Node, TreeSink, Trees};
use crate::call_row::CallRow;

/// The trees of all calls in one another.
#[derive(Debug)]
pub struct Paths {
    wanted: Trees,
    merged: Merged,
    /// Of calls that were not seen from entry to end.
    open: Merged,
}

/// The paths that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundPaths {
    /// The paths, in the order in which they were first taken.
    pub tree: CallTree,
    /// Functions without a call that was seen from entry to end: their paths are of the observed part of
    /// open calls.
    pub open: Vec<FunctionId>,
}

impl Paths {
    /// Below the wanted functions: of their counted calls, those that are in no other call of the same
    /// function. The roots of a function add up to
    /// [`FunctionReport::outermost`](crate::FunctionReport::outermost).
    ///
    /// A function without counted calls has the observed part of its open calls instead, and its roots add up
    /// to [`OpenCalls::observed`](crate::OpenCalls::observed).
    #[must_use]
    pub fn of_calls() -> Self {
        Self { wanted: Trees::Merged, merged: Merged::default(), open: Merged::default() }
    }

    /// Of all that every thread was seen to do.
    #[must_use]
    pub fn of_threads() -> Self {
        Self { wanted: Trees::Threads, ..Self::of_calls() }
    }

    /// The paths.
    #[must_use]
    pub fn finish(self) -> FoundPaths {
        let counted = CallTree::new(self.merged.by_entry());
        let with_counted: BTreeSet<FunctionId> = counted.roots().map(|root| root.function).collect();
        let open_calls = CallTree::new(self.open.by_entry());
        let mut nodes: Vec<Node> = counted.nodes;
        let mut open = BTreeSet::new();
        for tree in super::trees(open_calls.nodes()) {
            let [root, ..] = tree else { continue };
            if !with_counted.contains(&root.function) {
                open.insert(root.function);
                nodes.extend(tree);
            }
        }
        FoundPaths { tree: CallTree::new(nodes), open: open.into_iter().collect() }
    }
}

impl TreeSink for Paths {
    fn wanted(&self) -> Trees {
        self.wanted.clone()
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        if call.end.status.counted() {
            self.merged.add(&tree.nodes);
        } else {
            self.open.add(&tree.nodes);
        }
    }

    fn resumed(&mut self, _: &CallRow, tree: &CallTree) {
        self.open.add(&tree.nodes);
    }

    fn thread(&mut self, _: Tid, trees: &CallTree) {
        self.merged.add(&trees.nodes);
    }
}
