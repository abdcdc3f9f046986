// A call's tree as a flame graph: as wide as the time, callees below their callers.

/** A frame that is narrower than this share of the whole is left out, and nothing is drawn below it. */
const FRAME_MIN = 1 / 600;

/** Levels that are drawn. */
const LEVELS_MAX = 60;

/** Pixels of a level. */
const LEVEL = 19;

/** One of some colours, the same for each name. */
function hueOf(name) {
  let hash = 7;
  for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) % 997;
  return 15 + (hash % 45);
}

/** The frames below `top`, as `{ node, level, from, share }`: where they begin, and how wide they are. */
function framesOf(view, top) {
  const whole = top.sides[0].ns || 1;
  const frames = [];
  const place = (node, level, from) => {
    const share = node.sides[0].ns / whole;
    if (share < FRAME_MIN || level > LEVELS_MAX) return;
    frames.push({ node, level, from, share });
    let at = from;
    for (const callee of flameOrder(node)) {
      place(callee, level + 1, at);
      at += callee.sides[0].ns / whole;
    }
  };
  const callers = [];
  for (let at = top.caller; at !== null; at = at.caller) callers.unshift(at);
  callers.forEach((node, level) => frames.push({ node, level, from: 0, share: 1 }));
  place(top, callers.length, 0);
  return frames;
}

/** The callees that the call has, in the order of the tree. */
function flameOrder(node) {
  const callees = node.callees.filter(({ sides }) => sides[0] !== null);
  return TREE.sort === "time" ? callees.sort((a, b) => b.sides[0].ns - a.sides[0].ns) : callees;
}

/** A call's flame graph; `chosen` is told which node was clicked. */
class Flame {
  constructor(view, chosen) {
    Object.assign(this, { view, chosen, top: view.root });
    this.graph = element("div", { className: "flame" });
    this.draw();
  }

  draw() {
    const { view, top } = this;
    const frames = framesOf(view, top);
    const depth = frames.reduce((most, { level }) => Math.max(most, level), 0) + 1;
    this.graph.style.height = `${depth * LEVEL}px`;
    this.graph.replaceChildren(...frames.map((frame) => this.frame(frame)));
  }

  frame({ node, level, from, share }) {
    const [side] = node.sides;
    const isMore = node.callee === MORE;
    const name = isMore ? `${grouped(side.count)} more` : this.view.nameOf(node);
    const whole = this.view.root.sides[0].ns || 1;
    const off = side.offCpu > 0 ? `, off-CPU ${duration(side.offCpu)}` : "";
    const work = areCounted() ? `, ${countText(side.instructions)} instructions, IPC ${ipcText(side)}` : "";
    const made = element(
      "span",
      {
        className: ["frame", isMore && "more", this.view.found.has(node) && "found", side.offCpu * 2 > side.ns && "waits"]
          .filter(Boolean)
          .join(" "),
        title: `${name}: ${duration(side.ns)} (${percent(side.ns / whole)})${isMore ? "" : `, ${grouped(side.count)} ×`}${off}${work}`,
        onclick: () => this.choose(node),
      },
      share > 0.02 ? name : "",
    );
    made.style.left = `${100 * from}%`;
    made.style.width = `${100 * share}%`;
    made.style.top = `${level * LEVEL}px`;
    if (!isMore) made.style.setProperty("--hue", hueOf(name));
    return made;
  }

  /** The frame becomes as wide as the graph; that of the call brings all back. */
  choose(node) {
    if (node.callee !== MORE) this.top = node;
    this.draw();
    this.chosen(node);
  }
}
