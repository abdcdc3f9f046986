//! The nodes of one thread's trees, gathered as its frames end.
//!
//! Only at its end is known what a frame was (a hidden callee is named by where it returns to, a PLT stub
//! makes room for what it jumps to), so nodes are kept in the order of their *ends*, each after its subtree:
//!
//! ```text
//!   stack     main   f        g                 first: where its subtree begins
//!   nodes            [ h a b ][ k l             h, a, b: ended in f;  k, l: in g
//! ```
//! What is no node leaves its subtree to its caller, or takes it along.

use std::ops::Range;

use model::FunctionId;

use crate::stack::Frame;
use crate::thread_clock::ThreadTime;
use crate::tree::{CALLERS_MAX, CallTree, Merged, Node, ShortCalls, Trees};

/// Nodes that are kept before those that are alike become one, where that is all that is asked for.
const MERGED_MAX: usize = if cfg!(test) { 8 } else { 1 << 16 };

/// Nodes that are kept where each call is asked for. Beyond this, memory counts for more: some 370 MB.
const SINGLE_MAX: usize = 1 << 22;

/// One thread's nodes.
#[derive(Debug, Default)]
pub(crate) struct Gatherer {
    /// By end; a node's subtree is in front of it.
    nodes: Vec<Node>,
    /// The open trees, the innermost last, each with the calls that are too short to be nodes of it and are
    /// in no tree above. While there is none, nothing is kept.
    open: Vec<ShortCalls>,
    /// What took less is no node.
    min_ns: u64,
    /// All of the thread is one.
    is_whole: bool,
    /// The number of nodes that are kept before they are merged.
    limit: usize,
    base: Option<Base>,
    scratch: CallTree,
}

/// The begin of the frame at the bottom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    /// Where the nodes begin.
    first: usize,
    begun: ThreadTime,
}

/// What becomes of the nodes inside a frame that ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part<N = Node> {
    /// It is a node, and they are below it.
    Node(N),
    /// It is part of its caller, and so they are the caller's.
    OfCaller,
    /// They are part of it, and it is part of its caller's own time.
    Own,
}

impl Gatherer {
    pub(crate) fn new(wanted: Option<&Trees>, min_ns: u64) -> Self {
        let is_whole = wanted == Some(&Trees::Threads);
        let limit = match wanted {
            Some(Trees::Merged | Trees::Threads) => MERGED_MAX,
            _ => SINGLE_MAX,
        };
        let open = if is_whole { vec![ShortCalls::default()] } else { Vec::new() };
        Self { open, min_ns, is_whole, limit, ..Self::default() }
    }

    /// What a frame found running does is shown, too: the children of no call have to add up.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// A frame is entered.  Where its subtree begins.
    #[inline]
    pub(crate) fn enter(&mut self, frame: &Frame, is_bottom: bool) -> usize {
        if is_bottom {
            self.base = Some(Base { first: self.nodes.len(), begun: frame.begun });
        }
        self.nodes.len()
    }

    /// The frame at the bottom has returned to its caller, which was found so, and is the new bottom. The
    /// caller gets the nodes since `base`, that of the frame before.
    pub(crate) fn enter_caller(&mut self, base: Option<Base>, caller: &mut Frame) {
        if let Some(Base { first, .. }) = base {
            caller.first = first;
            self.base = base;
        }
    }

    pub(crate) fn base(&self) -> Option<Base> {
        self.base
    }

    /// What was below is not known to go on.
    pub(crate) fn forget_base(&mut self) {
        self.base = None;
    }

    /// The frame at the bottom with the time since when it is there, by what it has called, where all of the
    /// thread is one tree.
    pub(crate) fn since_base(&self, bottom: Frame) -> Frame {
        match self.base {
            Some(Base { begun, .. }) if self.is_whole => Frame { begun, ..bottom },
            _ => bottom,
        }
    }

    /// A call with a wanted tree is entered.
    pub(crate) fn open(&mut self) {
        self.open.push(ShortCalls::default());
    }

    /// It has ended; call this after [`Self::leave`]. `later`: the number of trees that were opened after it
    /// and are open still, as those of regions that overlap it.
    pub(crate) fn close(&mut self, later: usize) {
        let Some(at) = self.open.len().checked_sub(later + 1) else { return };
        let left_out = self.open.remove(at);
        if let Some(around) = at.checked_sub(1).and_then(|around| self.open.get_mut(around)) {
            around.add_all(&left_out);
        } else if self.open.is_empty() {
            self.nodes.clear();
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// How many nodes there are.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// What begins at `first` has ended. True if the nodes are many: it is time to [merge](Self::merge) them.
    #[must_use]
    pub(crate) fn leave(&mut self, first: usize, part: Part) -> bool {
        match part {
            Part::Node(node) if node.total.sum_ns < self.min_ns => {
                if let Some(left_out) = self.open.last_mut() {
                    left_out.add(node.total.sum_ns);
                }
            }
            Part::Node(node) => {
                let size = self.nodes.len().saturating_sub(first) + 1;
                self.nodes.push(Node { size, ..node });
            }
            Part::OfCaller => (),
            Part::Own => self.nodes.truncate(first),
        }
        self.nodes.len() >= self.limit
    }

    /// The tree of a call that has ended now, with `root` as its node, below the functions that are open;
    /// `later`: see [`Self::close`].
    pub(crate) fn tree(
        &mut self,
        first: usize,
        root: Node,
        later: usize,
        callers: impl Iterator<Item = FunctionId>,
    ) -> &CallTree {
        self.scratch.callers.clear();
        self.scratch.callers.extend(callers.take(CALLERS_MAX));
        let own = self.open.len().saturating_sub(later + 1);
        self.scratch.left_out = ShortCalls::default();
        for left_out in self.open.get(own..).unwrap_or_default() {
            self.scratch.left_out.add_all(left_out);
        }
        let inside = self.nodes.get(first..).unwrap_or_default();
        let nodes = &mut self.scratch.nodes;
        nodes.clear();
        nodes.push(Node { size: inside.len() + 1, ..root });
        by_entry(inside, nodes);
        &self.scratch
    }

    /// All that was gathered.
    pub(crate) fn finish(&mut self) -> &CallTree {
        self.scratch.nodes.clear();
        by_entry(&self.nodes, &mut self.scratch.nodes);
        self.nodes.clear();
        &self.scratch
    }

    /// Makes one of those that are alike, below each frame and in each region that is open; `firsts`: where
    /// their nodes begin, outermost first.
    pub(crate) fn merge(&mut self, firsts: Vec<&mut usize>) {
        let mut nodes = Vec::new();
        let mut done = 0;
        let mut base = self.base;
        let of_base = base.iter_mut().map(|base| &mut base.first);
        for first in of_base.chain(firsts) {
            self.merge_part(done, *first, &mut nodes);
            done = done.max(*first);
            *first = nodes.len();
        }
        self.base = base;
        self.merge_part(done, self.nodes.len(), &mut nodes);
        self.nodes = nodes;
        self.limit = self.limit.max(2 * self.nodes.len());
    }

    fn merge_part(&mut self, from: usize, to: usize, into: &mut Vec<Node>) {
        let part = self.nodes.get(from..to).unwrap_or_default();
        self.scratch.nodes.clear();
        by_entry(part, &mut self.scratch.nodes);
        let mut merged = Merged::default();
        merged.add(&self.scratch.nodes);
        merged.by_end(into);
    }
}

/// Appends trees to `into`: their nodes, in the order of their ends, are put in that of their entries.
fn by_entry(nodes: &[Node], into: &mut Vec<Node>) {
    let base = into.len();
    into.extend_from_slice(nodes);
    let places = into.get_mut(base..).unwrap_or_default();
    // Backwards a node comes before its subtree, and that one's last node first: room is filled from its end.
    let mut rooms: Vec<Range<usize>> = std::iter::once(0..nodes.len()).collect();
    for node in nodes.iter().rev() {
        while rooms.len() > 1 && rooms.last().is_some_and(Range::is_empty) {
            rooms.pop();
        }
        let Some(room) = rooms.last_mut() else { return };
        let (at, end) = (room.end.saturating_sub(node.size), room.end);
        room.end = at;
        rooms.push(at + 1..end);
        if let Some(place) = places.get_mut(at) {
            *place = *node;
        }
    }
}
