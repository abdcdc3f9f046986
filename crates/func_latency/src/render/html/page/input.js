// What people do: pointer, keys and controls.

const BRUSH_INPUTS = {
  "from-time": "fromTime",
  "to-time": "toTime",
  "from-latency": "fromLatency",
  "to-latency": "toLatency",
};

/** Once for all changes before the next picture. */
function oncePerFrame(change) {
  let waiting = null;
  return (...args) => {
    if (waiting === null) {
      requestAnimationFrame(() => {
        const latest = waiting;
        waiting = null;
        change(...latest);
      });
    }
    waiting = args;
  };
}

function listenToPointer() {
  const area = byId("plots");
  let from = null;
  const place = (event) => {
    const box = byId("base").getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const brushTo = oncePerFrame((from, to) => setBrush(plot.brushBetween(from, to)));
  // Leaving goes the same way as moving: what moved before does not come after it.
  const hover = oncePerFrame((at) => {
    state.hovered = state.told = at && plot.nearest(state.calls, state.visible, ...at);
    drawMarks();
  });
  const isDrag = (to) => Math.hypot(to[0] - from[0], to[1] - from[1]) > DRAG;
  area.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    event.preventDefault(); // no selection of text
    byId("plot").focus({ preventScroll: true, focusVisible: false });
    from = place(event);
    area.setPointerCapture(event.pointerId);
  });
  area.addEventListener("pointermove", (event) => {
    const to = place(event);
    if (from !== null && isDrag(to)) brushTo(from, to);
    else if (from === null) hover(to);
  });
  area.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const to = place(event);
    if (isDrag(to)) brushTo(from, to);
    else pick(plot.nearest(state.calls, state.visible, ...to));
    from = null;
  });
  area.addEventListener("pointercancel", () => (from = null));
  area.addEventListener("pointerleave", () => hover(null));
  addEventListener("scroll", () => hover(null), { passive: true });
  byId("plot").addEventListener("blur", () => hover(null));
}

/** The next visible call in time of those that are drawn one by one, or of all, if there are none. */
function nextInTime(step) {
  const { calls, visible, drawn, cursor } = state;
  const from = cursor ?? (step > 0 ? -1 : calls.count);
  for (let i = from + step; i >= 0 && i < calls.count; i += step) {
    if (visible[i] === OTHERS && (drawn.singles === 0 || calls.isSingle(i))) return i;
  }
  return cursor;
}

/** The next slower or faster of all visible calls; at first, the slowest. */
function nextInLatency(step) {
  const { calls, visible, cursor } = state;
  const from = cursor === null ? calls.count : calls.order.indexOf(cursor);
  const direction = cursor === null ? -1 : step;
  for (let k = from + direction; k >= 0 && k < calls.count; k += direction) {
    if (visible[calls.order[k]] === OTHERS) return calls.order[k];
  }
  return cursor;
}

const PLOT_KEYS = {
  ArrowRight: () => (state.cursor = nextInTime(1)),
  ArrowLeft: () => (state.cursor = nextInTime(-1)),
  ArrowUp: () => (state.cursor = nextInLatency(1)),
  ArrowDown: () => (state.cursor = nextInLatency(-1)),
  Enter: () => {
    pick(state.cursor);
    return null;
  },
};

const PAGE_KEYS = {
  Escape: () => (state.picked === null ? setBrush(null) : pick(null)),
  z: () => zoom(),
  0: () => showWhole(),
  t: () => switchTheme(),
  "/": () => byId("search").focus(),
};

function listenToKeys() {
  byId("plot").addEventListener("keydown", (event) => {
    const act = PLOT_KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    state.told = act() ?? null;
    drawMarks();
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = /^(INPUT|SELECT)$/.test(event.target.tagName);
    if (!PAGE_KEYS[event.key] || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    PAGE_KEYS[event.key]();
  });
}

/** One bound of the brush has been typed in; the others stay as exact as they are. */
function brushFromInput(id) {
  const field = BRUSH_INPUTS[id];
  const typed = parseDuration(byId(id).value);
  const brush = { ...WHOLE, ...state.brush, [field]: Number.isNaN(typed) ? WHOLE[field] : typed };
  setBrush(unlessWhole(brush));
}

function listenToControls() {
  const click = (id, act) => byId(id).addEventListener("click", act);
  click("theme", switchTheme);
  click("slow-1", () => setBrush(slowest(10)));
  click("slow-01", () => setBrush(slowest(1)));
  click("clear", () => setBrush(null));
  click("zoom", zoom);
  click("whole", showWhole);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("function").addEventListener("change", () => showFunction(Number(byId("function").value)));
  byId("by").addEventListener("change", drawBy);
  for (const id of ["filter-thread", "filter-caller", "filter-status"]) byId(id).addEventListener("change", refilter);
  for (const id of Object.keys(BRUSH_INPUTS)) byId(id).addEventListener("change", () => brushFromInput(id));
  byId("search").addEventListener("input", oncePerFrame(searchAndKeep));
  addEventListener("hashchange", openLink);
  addEventListener(
    "resize",
    oncePerFrame(() => {
      redraw();
      OPENED.tree?.fit();
    }),
  );
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  matchMedia("print").addEventListener("change", redraw); // paper is light
}
