// The tree of a call as a table that folds.

/** What a node is, indented; deep down the number of the level has to do. */
function calleeCell(view, node, depth, change) {
  const INDENTED_MAX = 24;
  const cell = element("span", { className: "callee" });
  cell.style.setProperty("--depth", Math.min(depth, INDENTED_MAX));
  const { callee, sides } = node;
  if (callee === MORE) {
    const counts = sides.map((side) => (side === null ? null : `${grouped(side.count)} more`));
    cell.append(element("em", {}, [...new Set(counts.filter(Boolean))].join(" / ")));
    if (node.canBeShown) {
      const show = () => change(() => view.complete.add(node.caller));
      cell.append(" ", element("button", { type: "button", className: "link", tabIndex: -1, onclick: show }, "show"));
    }
    return cell;
  }
  if (node.callees.length) {
    const fold = () => change(() => view.toggle(node));
    const isOpen = view.unfolded.has(node);
    cell.append(
      element("button", {
        type: "button",
        className: isOpen ? "fold open" : "fold",
        tabIndex: -1,
        ariaLabel: isOpen ? "fold" : "unfold",
        onclick: fold,
      }),
    );
  }
  if (depth > INDENTED_MAX) cell.append(`(${depth}) `);
  const { name, line, site } = view.trees.callees[callee - 1];
  cell.title = name;
  const statuses = sides.map((side) => (side?.status ? STATUSES[side.status] : null)).filter(Boolean);
  cell.append(name);
  if (depth > 0 && (line ?? site)) cell.append(element("small", {}, line ?? site));
  if (statuses.length) cell.append(element("small", {}, [...new Set(statuses)].join(" / ")));
  return cell;
}

/** Times, total, self, off-CPU if that is known, and instructions and IPC if they were asked for. */
function timesOf(side, isMore) {
  if (side === null) return ["–", "–", "–", ...ofOffCpu("–"), ...ofCounters(() => ["–", "–"])];
  const { count, ns, ownNs, error, ownError, offCpu } = side;
  const off = ofOffCpu(offCpu ? grouped(offCpu) : "");
  // Not less than nothing, and not more than the node took.
  const own = nsWithin(ownNs, Math.min(ownError, Math.max(ownNs, ns + error - ownNs)));
  const work = ofCounters(() => [countText(side.instructions), ipcText(side)]);
  return [isMore ? "" : grouped(count), nsWithin(ns, error), isMore ? "" : own, ...off, ...work];
}

/** In words, so that it can be read without colours. */
function markOf(node, differs) {
  const { callee, caller, sides } = node;
  const isBelowMark = caller !== null && caller.sides.includes(null);
  if (callee !== MORE && !isBelowMark) {
    if (sides[1] === null) return "only here";
    if (sides[0] === null) return "not here";
  }
  return differs ? "differs" : "";
}

/** The columns: `extra` ones are left out where there is too little room. */
function treeColumns(hasTwin) {
  const sides = ["times", "total", "self", ...ofOffCpu("off-CPU"), ...ofCounters(() => ["instr.", "IPC"])];
  const typical = sides.map((title, k) => [title, `${NUMBER} twin extra${k ? "" : " first"}`]);
  return [
    ["call (times in ns)", NAME],
    ["since start", `${NUMBER} extra`],
    ...sides.map((title, k) => [title, `${NUMBER} ${k === 0 ? "extra" : k === 1 ? "share" : ""}`.trim()]),
    ...(hasTwin ? [...typical, ["difference", `${NUMBER} first`], ["", "mark"]] : []),
  ];
}

function treeRow(view, { node, depth }, change) {
  const [a, b] = node.sides;
  const isMore = node.callee === MORE;
  const differs = view.differs(node);
  const since = isMore || a === null ? "" : `+${grouped(a.since)}`;
  const cells = [calleeCell(view, node, depth, change), since, ...timesOf(a, isMore)];
  if (view.other !== null) {
    cells.push(...timesOf(b, isMore), differenceWithin(node.more, node.moreError), markOf(node, differs));
  }
  const classes = [differs ? "differs" : "", view.found.has(node) ? "found" : ""];
  const row = { cells, className: classes.join(" ").trim(), role: "row", ariaLevel: depth + 1, tabIndex: -1 };
  if (node.callees.length) row.ariaExpanded = view.unfolded.has(node);
  return { ...row, dataset: isMore ? {} : { name: view.nameOf(node) } };
}

/** The table for the rows that are shown now. */
function treeTable(view, change) {
  const rows = [...view.rows()];
  const made = table(treeColumns(view.other !== null), rows.map((row) => treeRow(view, row, change)));
  made.classList.add("tree");
  made.setAttribute("role", "treegrid");
  made.ariaLabel = "call tree";
  [...made.tBodies[0].rows].forEach((row, k) => {
    const ns = rows[k].node.sides[0]?.ns ?? 0;
    row.style.setProperty("--share", `${(100 * ns) / (view.root.sides[0]?.ns || 1)}%`);
    row.node = rows[k].node;
  });
  if (view.other !== null) {
    const sides = ofOffCpu("").length + (areCounted() ? 2 : 0) + 3;
    const group = (text, colSpan, className) => element("th", { colSpan, className, scope: "colgroup" }, text);
    const heads = [
      group("", 1, ""),
      group("", 1, "extra"),
      group("", 1, "extra"),
      group("this call", sides - 1, NUMBER),
      group("typical call", sides, `${NUMBER} twin first extra`),
      group("", 2, "first"),
    ];
    made.tHead.prepend(element("tr", {}, ...heads));
  }
  return made;
}

/** Steps in which the style sheet shrinks a tree that has too little room: each adds to those before. */
const SHRUNK = ["tight", "few", "short"];

/** The least width of a name with its indentation, pixels. */
const NAME_MIN = 60;

/** Shrinks the tree in `scroll` until its columns have room; it has to be in the page. */
function fitTree(scroll) {
  const tree = scroll.querySelector(".tree");
  const lacking = () => tree.scrollWidth - scroll.clientWidth;
  tree.classList.remove(...SHRUNK);
  for (const step of SHRUNK) {
    const lacks = lacking();
    if (lacks <= 0) return;
    // Widths are rounded: a pixel less.
    const name = Math.max(tree.querySelector(".callee").offsetWidth - lacks - 1, NAME_MIN);
    tree.style.setProperty("--name", `${name}px`);
    tree.classList.add(step);
  }
}

/** The tree with its controls; `redrawn` is called after each change. */
function treeSection(view, redrawn) {
  const scroll = element("div", { className: "scroll" });
  const focusOn = (node) => {
    const row = [...scroll.querySelectorAll("tbody tr")].find((row) => row.node === node);
    if (!row) return;
    scroll.querySelectorAll("tbody tr").forEach((other) => (other.tabIndex = other === row ? 0 : -1));
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  };
  const draw = () => {
    scroll.replaceChildren(treeTable(view, change));
    scroll.querySelector("tbody tr").tabIndex = 0;
  };
  const change = (act, focused = null) => {
    const { scrollTop } = scroll;
    act();
    draw();
    fitTree(scroll);
    scroll.scrollTop = scrollTop;
    if (focused !== null) focusOn(focused);
    redrawn();
  };
  scroll.addEventListener("keydown", (event) => moveInTree(event, view, change, focusOn));
  draw();
  const section = element("div", { className: "tree-part" }, treeControls(change), scroll);
  return { section, change, focusOn, fit: () => fitTree(scroll) };
}

/** By time or in order, and from which share of the call's time on. */
function treeControls(change) {
  const select = (name, choices) => {
    const made = element("select", {}, ...choices.map(([value, text]) => element("option", { value }, text)));
    made.value = String(TREE[name]);
    made.dataset.tree = name;
    const set = () => change(() => (TREE[name] = name === "least" ? Number(made.value) : made.value));
    made.addEventListener("change", set);
    return made;
  };
  const sort = select("sort", [["time", "by time"], ["order", "in order of entry"]]);
  const least = select("least", LEAST.map((share) => [share, share === 0 ? "all" : `from ${share} %`]));
  return element(
    "p",
    { className: "tree-controls" },
    element("label", {}, "Callees ", sort),
    element("label", {}, "with a share of the call ", least),
    element("span", { className: "note" }, "Arrows move and fold."),
  );
}

/** Shares of the call's time, percent. */
const LEAST = [0, 0.1, 1, 5, 10];

/** Up and down: the next row; right: unfold, or the first callee; left: fold, or the caller. */
function moveInTree(event, view, change, focusOn) {
  const row = event.target.closest("tbody tr");
  if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
  const { node } = row;
  const isOpen = view.unfolded.has(node);
  const keys = {
    ArrowDown: () => row.nextElementSibling && focusOn(row.nextElementSibling.node),
    ArrowUp: () => row.previousElementSibling && focusOn(row.previousElementSibling.node),
    ArrowRight: () => {
      if (node.canBeShown) change(() => view.complete.add(node.caller), node.caller);
      else if (isOpen) keys.ArrowDown();
      else if (node.callees.length) change(() => view.toggle(node), node);
    },
    ArrowLeft: () => {
      if (isOpen && node.callees.length) change(() => view.toggle(node), node);
      else if (node.caller !== null) focusOn(node.caller);
    },
    Home: () => focusOn(view.root),
    End: () => focusOn(row.parentElement.lastElementChild.node),
  };
  if (!keys[event.key]) return;
  event.preventDefault();
  event.stopPropagation();
  keys[event.key]();
}
