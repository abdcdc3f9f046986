//! Calls that are alike, with alike callers, become one node.

use rustc_hash::FxHashMap;

use super::Node;
use crate::children::ChildKey;
use crate::work::add_known;

/// Trees in one another.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// Callers before their callees; with the caller's index.
    nodes: Vec<(Node, Option<u32>)>,
    places: FxHashMap<(Option<u32>, ChildKey), u32>,
}

impl Merged {
    /// Adds trees, in the order of entry.
    pub(crate) fn add(&mut self, trees: &[Node]) {
        let mut callers: Vec<(usize, u32)> = Vec::new(); // where their subtrees end, and their indices
        for (at, node) in trees.iter().enumerate() {
            while callers.last().is_some_and(|(end, _)| *end <= at) {
                callers.pop();
            }
            let caller = callers.last().map(|(_, index)| *index);
            let index = self.add_node(caller, node);
            callers.push((at + node.size, index));
        }
    }

    fn add_node(&mut self, caller: Option<u32>, node: &Node) -> u32 {
        let next = self.nodes.len() as u32;
        let index = *self.places.entry((caller, node.key())).or_insert(next);
        match self.nodes.get_mut(index as usize) {
            Some((known, _)) => {
                known.total.add(node.total);
                known.error_ns = known.error_ns.saturating_add(node.error_ns);
                add_known(&mut known.work, node.work);
            }
            None => self.nodes.push((*node, caller)),
        }
        index
    }

    /// The trees, with the nodes in the order of first entry.
    pub(crate) fn by_entry(self) -> Vec<Node> {
        let mut nodes = Vec::new();
        self.lay_out(&mut nodes, |room, size| {
            let at = *room;
            *room += size;
            (at, at + 1)
        });
        nodes
    }

    /// Appends the trees, each node after its subtree.
    pub(crate) fn by_end(self, into: &mut Vec<Node>) {
        self.lay_out(into, |room, size| {
            let at = *room;
            *room += size;
            (at + size - 1, at)
        });
    }

    /// `place`: of a subtree's size and the room where it goes, the place of its node and the room for the
    /// rest.
    fn lay_out(mut self, into: &mut Vec<Node>, place: impl Fn(&mut usize, usize) -> (usize, usize)) {
        self.count_subtrees();
        let base = into.len();
        into.extend(self.nodes.iter().map(|(node, _)| *node));
        let mut top = base;
        let mut rooms: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for (node, caller) in &self.nodes {
            let room = caller.and_then(|caller| rooms.get_mut(caller as usize)).unwrap_or(&mut top);
            let (at, rest) = place(room, node.size);
            rooms.push(rest);
            if let Some(place) = into.get_mut(at) {
                *place = *node;
            }
        }
    }

    fn count_subtrees(&mut self) {
        self.nodes.iter_mut().for_each(|(node, _)| node.size = 1);
        for at in (0..self.nodes.len()).rev() {
            let Some(&(Node { size, .. }, Some(caller))) = self.nodes.get(at) else { continue };
            if let Some((caller, _)) = self.nodes.get_mut(caller as usize) {
                caller.size += size;
            }
        }
    }
}
