// A call's tree, beside that of the typical call: which of its nodes are shown, and in which order.

/** What the tree opens with: by time, with what has a hundredth of the call's time. */
const TREE_DEFAULTS = { sort: "time", least: 1 };

/** A node with less than this share of the call's time is folded at first, unless it makes the difference. */
const HOT = 0.1;

/** Two trees in one: each node with its two sides, of which one may be `null`. */
function united(one, other, caller = null) {
  const callees = one?.callees.slice() ?? [];
  const order = callees.map((node) => node.callee);
  let at = 0; // what only the other has goes after what both have
  for (const node of other?.callees ?? []) {
    const known = order.indexOf(node.callee);
    if (known < 0) order.splice(at++, 0, node.callee);
    else at = known + 1;
  }
  const of = (node, callee) => node?.callees.find((c) => c.callee === callee) ?? null;
  const made = {
    callee: (one ?? other).callee,
    caller,
    sides: [one, other],
    more: (one?.ns ?? 0) - (other?.ns ?? 0),
    moreError: (one?.error ?? 0) + (other?.error ?? 0),
  };
  made.callees = order.map((callee) => united(of(one, callee), of(other, callee), made));
  // Nodes of each side's subtree.
  const size = (side, s) =>
    side === null ? 0 : made.callees.reduce((sum, { sizes }) => sum + sizes[s], made.callee === MORE ? side.count : 1);
  made.sizes = made.sides.map(size);
  return made;
}

/** Every node, the callers first. */
function* walked(node) {
  yield node;
  for (const callee of node.callees) yield* walked(callee);
}

/** What the nodes have in common: they are left out, so they are one node that nothing is below. */
function leftOut(nodes, caller) {
  const sum = (s) => {
    const sides = nodes.map(({ sides, sizes }) => ({ ...sides[s], count: sizes[s] })).filter(({ count }) => count > 0);
    const add = (what) => sides.reduce((sum, side) => sum + side[what], 0);
    const sums = ["count", "ns", "error", "offCpu", "instructions", "cycles", "cyclesError"];
    return sides.length ? { ...Object.fromEntries(sums.map((what) => [what, add(what)])), status: 0 } : null;
  };
  const sides = [sum(0), sum(1)];
  const [one, other] = sides;
  return {
    callee: MORE,
    caller,
    sides,
    more: (one?.ns ?? 0) - (other?.ns ?? 0),
    moreError: (one?.error ?? 0) + (other?.error ?? 0),
    callees: [],
    sizes: sides.map((side) => side?.count ?? 0),
    canBeShown: nodes.some(({ callee }) => callee !== MORE),
  };
}

/** The nodes of one call's tree as they are shown. */
class TreeView {
  constructor(trees, i, twin) {
    const one = trees.of(i);
    this.trees = trees;
    this.other = twin === null ? null : trees.of(twin);
    this.root = united(one, this.other);
    this.longest = Math.max(...this.root.sides.map((side) => side?.ns ?? 0), 1);
    this.most = 0;
    for (const { more } of walked(this.root)) this.most = Math.max(this.most, Math.abs(more));
    this.unfolded = new Set();
    /** Nodes all of whose callees are shown. */
    this.complete = new Set();
    this.found = new Set();
    for (const node of walked(this.root)) {
      if (node === this.root || this.timeOf(node) >= HOT * this.longest || this.differs(node)) this.unfolded.add(node);
    }
  }

  /** What a node took in the call; in the typical one, if it is not in the call. */
  timeOf({ sides: [one, other] }) {
    return (one ?? other).ns;
  }

  /** It makes a tenth of the largest difference. */
  differs({ more }) {
    return this.other !== null && more !== 0 && Math.abs(more) >= this.most / 10;
  }

  nameOf({ callee }) {
    return callee === MORE ? "" : this.trees.callees[callee - 1].name;
  }

  /** Unfolds the way to what has a name with `text` in it; returns how many nodes that are. */
  search(text) {
    this.found = new Set();
    let count = 0;
    for (const node of text === "" ? [] : walked(this.root)) {
      if (!isFound(this.nameOf(node), text)) continue;
      count++;
      this.found.add(node);
      this.reveal(node);
    }
    return count;
  }

  /** Unfolds the way to a node. */
  reveal(node) {
    for (let at = node; at !== null && at.caller !== null; at = at.caller) {
      this.unfolded.add(at.caller);
      if (!this.isLarge(at)) this.complete.add(at.caller);
    }
  }

  isLarge(node) {
    return node.sides.some((side) => side !== null && side.ns * 100 >= TREE.least * this.longest);
  }

  /** The callees of a node that are shown, in their order, and what stands for the others. */
  calleesOf(node) {
    const isShown = (callee) => callee.callee !== MORE && (this.complete.has(node) || this.isLarge(callee));
    const shown = node.callees.filter(isShown);
    const others = node.callees.filter((callee) => !isShown(callee));
    if (TREE.sort === "time") {
      const ns = (side) => side?.ns ?? -1;
      shown.sort(({ sides: [a, c] }, { sides: [b, d] }) => ns(b) - ns(a) || ns(d) - ns(c));
    }
    return others.length ? [...shown, leftOut(others, node)] : shown;
  }

  /** The rows from the first to the last, with their depth. */
  *rows(node = this.root, depth = 0) {
    yield { node, depth };
    if (!this.unfolded.has(node)) return;
    for (const callee of this.calleesOf(node)) yield* this.rows(callee, depth + 1);
  }

  /** Folds a node, or unfolds it with the way to where most of its time went. */
  toggle(node) {
    if (this.unfolded.delete(node)) return;
    for (let at = node; at?.callees.length; at = hottest(at)) this.unfolded.add(at);
  }
}

/** The callee that has at least half of what the node has. */
function hottest(node) {
  const ns = (node) => node.sides[0]?.ns ?? 0;
  return node.callees.find((callee) => callee.callee !== MORE && ns(callee) * 2 >= ns(node) && ns(callee) > 0) ?? null;
}

/** A name has the text in it, in any case of letters. */
function isFound(name, text) {
  return text !== "" && name.toLowerCase().includes(text.toLowerCase());
}

/** How trees are shown: the same for all calls. */
const TREE = { ...TREE_DEFAULTS };
