// Interactive graphs: pan and zoom by mouse, touch and keys, for SVG drawings of the server and, if they have too many elements,
// on a canvas that requests the visible part from the API. A click opens a node next to the graph; the address stores the open
// nodes and the viewport.

const MIN_SCALE = 0.002;
const MAX_SCALE = 4;
const STEP = 1.25;
const CLICK_PX = 4; // a pointer that moves less is a click
const READ_SCALE = 0.62; // below, names of nodes are hard to read
const isStill = matchMedia("(prefers-reduced-motion: reduce)");

const clamp = (value, least, most) => Math.min(most, Math.max(least, value));

// ---- Viewport: its centre in px of the drawing, and its scale in px of the screen per px of the drawing ----

class View {
  constructor(box, size, draw) {
    // `isMoved`: the user changed the viewport. Until then it is reset when the box changes its size.
    Object.assign(this, { box, size, draw, x: 0, y: 0, scale: 1, isMoved: false, frame: 0, home: () => this.fit() });
  }

  get fitScale() {
    const { clientWidth, clientHeight } = this.box;
    return clamp(Math.min(clientWidth / this.size[0], clientHeight / this.size[1], 1), MIN_SCALE, 1);
  }

  fit() {
    this.moveTo(this.size[0] / 2, this.size[1] / 2, this.fitScale);
    this.isMoved = false;
  }

  // The entire drawing if its names are then readable, otherwise the point of interest, or the top.
  begin(of) {
    if (this.fitScale >= READ_SCALE) return this.fit();
    const place = of ?? [this.size[0] / 2, 0];
    // Do not show the area outside the drawing if the drawing exceeds the view.
    const [x, y] = [this.box.clientWidth, this.box.clientHeight].map((length, axis) => {
      const half = length / 2 / READ_SCALE;
      const middle = this.size[axis] / 2;
      return clamp(place[axis], Math.min(half, middle), Math.max(this.size[axis] - half, middle));
    });
    this.set(x, y, READ_SCALE);
  }

  showAll() {
    this.home = () => this.fit();
    this.home();
  }

  // Moves immediately, or animated unless the user prefers reduced motion.
  moveTo(x, y, scale) {
    scale = clamp(scale, MIN_SCALE, MAX_SCALE);
    cancelAnimationFrame(this.glide);
    this.isMoved = true;
    if (isStill.matches || !this.isShown) return this.set(x, y, scale);
    const from = { x: this.x, y: this.y, scale: this.scale };
    const begin = performance.now();
    const step = (now) => {
      const part = clamp((now - begin) / 160, 0, 1);
      const soft = part * (2 - part);
      const at = (name, to) => from[name] + (to - from[name]) * soft;
      this.set(at("x", x), at("y", y), at("scale", scale));
      if (part < 1) this.glide = requestAnimationFrame(step);
    };
    this.glide = requestAnimationFrame(step);
  }

  set(x, y, scale) {
    this.x = clamp(x, 0, this.size[0]);
    this.y = clamp(y, 0, this.size[1]);
    this.scale = clamp(scale, MIN_SCALE, MAX_SCALE);
    this.request();
  }

  request() {
    this.isShown = true;
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
      this.remember();
    });
  }

  pan(dx, dy) {
    this.isMoved = true;
    this.set(this.x - dx / this.scale, this.y - dy / this.scale, this.scale);
  }

  // Zooms around a point of the box.
  zoom(factor, px = this.box.clientWidth / 2, py = this.box.clientHeight / 2) {
    const scale = clamp(this.scale * factor, MIN_SCALE, MAX_SCALE);
    const [x, y] = this.inside(px, py);
    this.isMoved = true;
    this.set(x - (px - this.box.clientWidth / 2) / scale, y - (py - this.box.clientHeight / 2) / scale, scale);
  }

  // Converts a point of the box to px of the drawing.
  inside(px, py) {
    return [this.x + (px - this.box.clientWidth / 2) / this.scale, this.y + (py - this.box.clientHeight / 2) / this.scale];
  }

  get window() {
    const [left, top] = this.inside(0, 0);
    const [right, bottom] = this.inside(this.box.clientWidth, this.box.clientHeight);
    return { left, top, right, bottom };
  }

  // Stores the viewport in the address, so that it can be shared.
  remember() {
    clearTimeout(this.later);
    if (!this.box.hasAttribute("data-place")) return;
    this.later = setTimeout(() => {
      const hash = !this.isMoved ? "" : `#at=${Math.round(this.x)},${Math.round(this.y)},${this.scale.toFixed(3)}`;
      if (location.hash !== hash) history.replaceState(history.state, "", location.pathname + location.search + hash);
    }, 400);
  }

  recall() {
    const found = this.box.hasAttribute("data-place") && /^#at=(-?\d+),(-?\d+),([\d.]+)$/.exec(location.hash);
    if (!found) return this.home();
    this.isMoved = true;
    this.set(Number(found[1]), Number(found[2]), Number(found[3]));
  }
}

// ---- Mouse, touch and keys ----

function listen(view, choose) {
  const { box } = view;
  const fingers = new Map();
  let moved = 0;
  let spread = 0;
  const place = (event) => {
    const frame = box.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  };
  const distance = () => {
    const [one, other] = [...fingers.values()];
    return other ? Math.hypot(one[0] - other[0], one[1] - other[1]) : 0;
  };
  box.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("button, a, input")) return;
    fingers.set(event.pointerId, place(event));
    spread = distance();
    if (fingers.size === 1) moved = 0;
  });
  box.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const now = place(event);
    fingers.set(event.pointerId, now);
    moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
    if (moved < CLICK_PX) return;
    // From here on it is a drag, whose end is not a click.
    if (!box.hasPointerCapture(event.pointerId)) box.setPointerCapture(event.pointerId);
    box.classList.add("dragged");
    view.pan((now[0] - before[0]) / fingers.size, (now[1] - before[1]) / fingers.size);
    const wide = distance();
    if (spread > 0 && wide > 0) {
      const [one, other] = [...fingers.values()];
      view.zoom(wide / spread, (one[0] + other[0]) / 2, (one[1] + other[1]) / 2);
    }
    spread = wide;
  });
  const up = (event) => {
    fingers.delete(event.pointerId);
    spread = distance();
    if (fingers.size === 0) setTimeout(() => box.classList.remove("dragged"));
  };
  box.addEventListener("pointerup", up);
  box.addEventListener("pointercancel", up);
  box.addEventListener("click", (event) => {
    if (event.target.closest("button, a, input") || box.classList.contains("dragged")) return;
    choose(event, ...place(event));
  });
  // The wheel scrolls the page unless the graph is focused or Ctrl is pressed.
  box.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey && !box.contains(document.activeElement)) return;
      event.preventDefault();
      view.zoom(Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.002)), ...place(event));
    },
    { passive: false },
  );
  box.addEventListener("keydown", (event) => {
    if (event.target !== box || event.ctrlKey || event.metaKey || event.altKey) return;
    const stride = Math.min(box.clientWidth, box.clientHeight) / 5;
    const action = {
      ArrowLeft: () => view.pan(stride, 0),
      ArrowRight: () => view.pan(-stride, 0),
      ArrowUp: () => view.pan(0, stride),
      ArrowDown: () => view.pan(0, -stride),
      "+": () => view.zoom(STEP),
      "=": () => view.zoom(STEP),
      "-": () => view.zoom(1 / STEP),
      0: () => view.showAll(),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  });
}

function addButtons(view) {
  if (view.box.querySelector(".zoom")) return;
  const bar = document.createElement("div");
  bar.className = "zoom";
  for (const [text, label, action] of [
    ["+", "Zoom in", () => view.zoom(STEP)],
    ["−", "Zoom out", () => view.zoom(1 / STEP)],
    ["⤢", "Show all", () => view.showAll()],
  ]) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: text, title: label });
    button.setAttribute("aria-label", label);
    button.addEventListener("click", action);
    bar.append(button);
  }
  view.box.append(bar);
}

// Opens a node next to the graph without navigation; the live update module reads the new address.
function openNode(name) {
  const address = new URL(location.href);
  address.searchParams.set("node", name);
  history.pushState(null, "", address);
  document.dispatchEvent(new CustomEvent("address-changed"));
}

// ---- SVG drawings of the server ----

// A newer drawing keeps the viewport of the one that it replaces.
let lastPicture = null;

// Centre of the node that the address names, otherwise of the first failed, waiting or running node; undefined if none.
function placeOfInterest(svg, [left, top]) {
  const name = new URLSearchParams(location.search).get("node");
  const named = name && svg.querySelector(`[data-node="${CSS.escape(name)}"]`);
  const wanted = [".failed", ".waiting", ".running"].map((state) => svg.querySelector(`.node[data-node]${state}`));
  const node = named || wanted.find(Boolean);
  if (!node) return null;
  const { x, y, width, height } = node.getBBox();
  return [x + width / 2 - left, y + height / 2 - top];
}

function followPicture(box) {
  const svg = box.querySelector("svg");
  const [left, top, width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const origin = [left, top];
  const draw = () => {
    const shown = box.querySelector("svg");
    const wide = box.clientWidth / view.scale;
    const high = box.clientHeight / view.scale;
    shown.setAttribute("viewBox", `${origin[0] + view.x - wide / 2} ${origin[1] + view.y - high / 2} ${wide} ${high}`);
  };
  const view = new View(box, [width, height], draw);
  view.home = () => view.begin(placeOfInterest(svg, origin));
  const last = box.hasAttribute("data-place") ? lastPicture : null;
  // Reset the viewport when the drawing has grown, unless the user changed it.
  const before = last && (last.isMoved || String(last.size) === String(view.size)) ? last : null;
  if (before) Object.assign(view, { x: before.x, y: before.y, scale: before.scale, isMoved: before.isMoved });
  // The box is as high as the drawing, up to the limit of the style sheet.
  box.style.height = `${Math.ceil(height) + 2}px`;
  box.classList.add("moves");
  addButtons(view);
  listen(view, (event) => {
    const node = event.target.closest("[data-node]");
    if (node && box.hasAttribute("data-inspects")) openNode(node.dataset.node);
  });
  new ResizeObserver(() => (view.isMoved ? view.request() : view.home())).observe(box);
  if (before) view.request();
  else view.recall();
  if (box.hasAttribute("data-place")) lastPicture = view;
  return view;
}

// ---- Large drawings on a canvas ----

const STATES = { p: "planned", r: "running", s: "succeeded", f: "failed", k: "skipped", c: "cancelled", w: "waiting" };
const MAX_KEPT_TILES = 60;
const TEXT_SCALE = 0.32; // below, text is not readable
const EDGE_SCALE = 0.2; // below, edges are straight lines
const REACH = 0.75; // fraction of the view that is painted beyond each side, for panning

function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const states = { "-": { fill: of("--panel"), line: of("--planned-line"), text: of("--text") } };
  for (const [letter, name] of Object.entries(STATES)) {
    states[letter] = { fill: of(`--${name}-fill`), line: of(`--${name}-line`), text: of(`--${name}-text`) };
  }
  return { ground: of("--ground"), edge: of("--planned-line"), taken: of("--text"), quiet: of("--quiet"), panel: of("--panel"), focus: of("--focus"), states };
}

class LargeGraph {
  constructor(box) {
    this.box = box;
    this.address = box.dataset.graph;
    this.canvas = box.querySelector("canvas");
    this.paper = document.createElement("canvas"); // last painted area, larger than the view
    this.tiles = new Map();
    this.texts = new Map();
    this.ways = new Map();
    this.colours = colours();
  }

  async ask(part, parameters = {}) {
    const address = new URL(this.address, location.origin);
    for (const [name, value] of Object.entries({ part, ...parameters })) address.searchParams.set(name, value);
    for (let attempt = 0; ; attempt += 1) {
      try {
        const answer = await fetch(address, { headers: { accept: "application/json" } });
        if (answer.ok) return await answer.json();
        throw new Error(`status ${answer.status}`);
      } catch (error) {
        // A gateway may be restarting.
        if (attempt === 2) throw error;
        await new Promise((later) => setTimeout(later, 500 * (attempt + 1)));
      }
    }
  }

  async begin() {
    const edges = this.ask("edges");
    const [first, named] = await Promise.all([this.ask("nodes"), this.placeOfNamed()]);
    this.size = first.size;
    this.total = first.total;
    this.groups = first.groups;
    this.stacks = new Set(first.stacks);
    this.quiet = new Set(first.quiet);
    this.nodes = first;
    this.view = new View(this.box, this.size, () => this.draw());
    this.box.classList.add("moves");
    addButtons(this.view);
    listen(this.view, (event, px, py) => this.choose(px, py));
    new ResizeObserver(() => {
      this.painted = null;
      if (this.view.isMoved) this.view.request();
      else this.view.home();
    }).observe(this.box);
    const place = named ?? this.placeOfInterest();
    if (place) this.view.home = () => this.view.begin(place);
    this.view.recall();
    while (this.nodes.left.length < this.total) {
      const more = await this.ask("nodes", { from: this.nodes.left.length });
      for (const side of ["left", "top", "width", "height"]) this.nodes[side].push(...more[side]);
      this.nodes.shapes += more.shapes;
      this.nodes.states += more.states;
      for (const at of more.stacks) this.stacks.add(at);
      for (const at of more.quiet) this.quiet.add(at);
    }
    this.edges = await edges;
    while (this.edges.ends.length < 2 * this.edges.total) {
      const more = await this.ask("edges", { from: this.edges.ends.length / 2 });
      this.edges.ends.push(...more.ends);
      this.edges.taken += more.taken;
    }
    this.repaint();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.colours = colours();
      this.repaint();
    });
  }

  // Centre of the node that the address names; undefined if it is not drawn.
  async placeOfNamed() {
    const node = new URLSearchParams(location.search).get("node");
    if (!node || !this.box.hasAttribute("data-inspects")) return null;
    const { frame } = await this.ask("place", { node });
    return frame && [frame[0] + frame[2] / 2, frame[1] + frame[3] / 2];
  }

  // Centre of the first failed, waiting or running node among the loaded ones.
  placeOfInterest() {
    const { left, top, width, height, states } = this.nodes;
    const at = ["f", "w", "r"].map((state) => states.indexOf(state)).find((at) => at >= 0 && at < left.length);
    return at === undefined ? null : [left[at] + width[at] / 2, top[at] + height[at] / 2];
  }

  repaint() {
    this.painted = null;
    this.view.request();
  }

  // Loads everything that changes while an execution is running.
  async refresh() {
    const found = await this.ask("states");
    if (found.states.length !== this.total) return location.reload();
    const isSame = this.nodes.states === found.states && this.edges?.taken === found.taken;
    if (isSame) return;
    this.nodes.states = found.states;
    if (this.edges) this.edges.taken = found.taken;
    this.tiles.clear();
    this.repaint();
  }

  choose(px, py) {
    const [x, y] = this.view.inside(px, py);
    const { left, top, width, height } = this.nodes;
    for (let at = 0; at < left.length; at += 1) {
      if (x < left[at] || y < top[at] || x > left[at] + width[at] || y > top[at] + height[at]) continue;
      if (this.view.scale < TEXT_SCALE) return this.view.moveTo(left[at] + width[at] / 2, top[at] + height[at] / 2, 0.8);
      const known = this.texts.get(at);
      if (known && this.box.hasAttribute("data-inspects")) openNode(known.id);
      return;
    }
  }

  // Draws a frame: the painted area, moved and scaled to the viewport. A new area is painted when the old one no longer covers
  // the view or is too coarse, at most a few times per second of dragging.
  draw() {
    const { canvas, view } = this;
    const ratio = devicePixelRatio || 1;
    const [wide, high] = [Math.round(this.box.clientWidth * ratio), Math.round(this.box.clientHeight * ratio)];
    if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
    const { left, top, right, bottom } = view.window;
    const paper = this.painted;
    // The area outside the drawing is empty.
    const isWithin =
      paper &&
      Math.max(left, 0) >= paper.left &&
      Math.max(top, 0) >= paper.top &&
      Math.min(right, this.size[0]) <= paper.right &&
      Math.min(bottom, this.size[1]) <= paper.bottom;
    const isCoarse = paper && (view.scale / paper.scale > 4 || view.scale / paper.scale < 0.25);
    if (!isWithin || isCoarse) this.paint(ratio);
    else if (view.scale !== paper.scale) this.sharpen(ratio);
    const shown = this.painted;
    const context = canvas.getContext("2d", { alpha: false });
    context.fillStyle = this.colours.ground;
    context.fillRect(0, 0, wide, high);
    const stretch = view.scale / shown.scale;
    context.drawImage(this.paper, (shown.left - left) * view.scale * ratio, (shown.top - top) * view.scale * ratio, this.paper.width * stretch, this.paper.height * stretch);
    this.frames = (this.frames ?? 0) + 1;
  }

  sharpen(ratio) {
    clearTimeout(this.soon);
    this.soon = setTimeout(() => {
      this.paint(ratio);
      this.view.request();
    }, 120);
  }

  paint(ratio) {
    clearTimeout(this.soon);
    const { view, paper } = this;
    const seen = view.window;
    const [dx, dy] = [(seen.right - seen.left) * REACH, (seen.bottom - seen.top) * REACH];
    // At most the drawing and a margin.
    const edge = 40 / view.scale;
    const reach = {
      left: Math.max(seen.left - dx, Math.min(seen.left, -edge)),
      top: Math.max(seen.top - dy, Math.min(seen.top, -edge)),
      right: Math.min(seen.right + dx, Math.max(seen.right, this.size[0] + edge)),
      bottom: Math.min(seen.bottom + dy, Math.max(seen.bottom, this.size[1] + edge)),
      scale: view.scale,
    };
    paper.width = Math.ceil((reach.right - reach.left) * view.scale * ratio);
    paper.height = Math.ceil((reach.bottom - reach.top) * view.scale * ratio);
    const context = paper.getContext("2d", { alpha: false });
    context.fillStyle = this.colours.ground;
    context.fillRect(0, 0, paper.width, paper.height);
    context.setTransform(view.scale * ratio, 0, 0, view.scale * ratio, -reach.left * view.scale * ratio, -reach.top * view.scale * ratio);
    this.painted = reach;
    const hasText = view.scale >= TEXT_SCALE;
    this.paintGroups(context);
    this.paintEdges(context, reach, view.scale >= EDGE_SCALE);
    this.paintNodes(context, reach, hasText);
    if (view.scale >= EDGE_SCALE) this.fetchTiles(seen);
  }

  paintGroups(context) {
    context.font = "bold 12px sans-serif";
    for (const { title, frame } of this.groups) {
      context.fillStyle = this.colours.panel;
      context.fillRect(...frame);
      context.fillStyle = this.colours.quiet;
      context.fillText(title, frame[0] + 9, frame[1] + 17);
    }
  }

  paintEdges(context, reach, hasWays) {
    if (!this.edges) return;
    const { left, top, width, height } = this.nodes;
    const { ends, taken } = this.edges;
    // When zoomed out, a sample of thousands of overlapping hairlines is sufficient.
    const every = this.view.scale < 0.06 ? Math.max(1, Math.ceil(taken.length / 3000)) : 1;
    const drawn = [];
    for (const isTaken of [false, true]) {
      context.strokeStyle = isTaken ? this.colours.taken : this.colours.edge;
      context.lineWidth = Math.max(isTaken ? 2 : 1.2, 0.6 / this.view.scale);
      for (let at = 0; at < taken.length; at += every) {
        if ((taken[at] === "1") !== isTaken) continue;
        const [from, to] = [ends[2 * at], ends[2 * at + 1]];
        const [x, y] = [left[from] + width[from] / 2, top[from] + height[from]];
        const [u, v] = [left[to] + width[to] / 2, top[to]];
        if (Math.max(x, u) < reach.left || Math.min(x, u) > reach.right || Math.max(y, v) < reach.top || Math.min(y, v) > reach.bottom) continue;
        const way = hasWays ? this.ways.get(at) : undefined;
        context.beginPath();
        if (way) {
          context.setLineDash(way.kind === "flow" ? [] : way.kind === "back" ? [7, 4] : [2, 4]);
          const points = way.points;
          context.moveTo(points[0], points[1]);
          for (let n = 2; n < points.length; n += 2) context.lineTo(points[n], points[n + 1]);
          drawn.push(way);
        } else {
          context.moveTo(x, y);
          context.lineTo(u, v);
        }
        context.stroke();
        context.setLineDash([]);
      }
    }
    for (const way of drawn) this.paintEnd(context, way);
  }

  paintEnd(context, { points, label }) {
    const [x, y] = points.slice(-2);
    const [u, v] = points.slice(-4, -2);
    const turn = Math.atan2(y - v, x - u);
    context.fillStyle = this.colours.edge;
    context.beginPath();
    context.moveTo(x, y);
    for (const side of [0.4, -0.4]) context.lineTo(x - 9 * Math.cos(turn + side), y - 9 * Math.sin(turn + side));
    context.fill();
    if (!label) return;
    context.font = "bold 11.5px sans-serif";
    context.textAlign = "center";
    context.fillStyle = this.colours.quiet;
    label.lines.forEach((line, n) => context.fillText(line, label.at[0], label.at[1] + 4 + 15 * (n - (label.lines.length - 1) / 2)));
    context.textAlign = "left";
  }

  paintNodes(context, reach, hasText) {
    const { left, top, width, height, shapes, states } = this.nodes;
    const isTiny = this.view.scale < 0.06;
    let last = "";
    const chosen = new URLSearchParams(location.search).get("node");
    for (let at = 0; at < left.length; at += 1) {
      const [x, y, w, h] = [left[at], top[at], width[at], height[at]];
      if (x + w < reach.left || x > reach.right || y + h < reach.top || y > reach.bottom) continue;
      const colour = this.colours.states[states[at]] ?? this.colours.states["-"];
      if (isTiny) {
        if (last !== states[at]) context.fillStyle = colour.line;
        last = states[at];
        context.fillRect(x, y, w, h);
        continue;
      }
      context.fillStyle = colour.fill;
      context.strokeStyle = colour.line;
      context.lineWidth = 1.6;
      if (this.stacks.has(at)) for (const shift of [8, 4]) this.outline(context, "b", x + shift, y + shift, w, h);
      if (chosen !== null && this.texts.get(at)?.id === chosen) [context.strokeStyle, context.lineWidth] = [this.colours.focus, 5];
      this.outline(context, shapes[at], x, y, w, h);
      if (hasText) this.paintText(context, at, colour.text, x + w / 2, y + h / 2);
    }
  }

  outline(context, shape, x, y, w, h) {
    context.beginPath();
    const lean = Math.min(16, w / 4);
    const corners = {
      d: [[w / 2, 0], [w, h / 2], [w / 2, h], [0, h / 2]],
      f: [[h / 4, 0], [w - h / 4, 0], [w, h / 2], [w - h / 4, h], [h / 4, h], [0, h / 2]],
      l: [[lean, 0], [w, 0], [w - lean, h], [0, h]],
      h: [[lean, 0], [w - lean, 0], [w, h], [0, h]],
    }[shape];
    if (corners) {
      corners.forEach(([dx, dy], n) => (n ? context.lineTo(x + dx, y + dy) : context.moveTo(x + dx, y + dy)));
      context.closePath();
    } else if (shape === "j") {
      context.ellipse(x + w / 2, y + h / 2, w / 2, h / 2, 0, 0, 2 * Math.PI);
    } else {
      context.roundRect(x, y, w, h, shape === "t" || shape === "w" ? h / 2 : shape === "a" ? 8 : 2);
      if (shape === "s") context.rect(x + 4, y + 4, w - 8, h - 8);
    }
    context.fill();
    context.stroke();
  }

  paintText(context, at, colour, x, y) {
    const known = this.texts.get(at);
    if (!known) return;
    context.fillStyle = colour;
    context.textAlign = "center";
    if (this.quiet.has(at)) {
      // One small line: status icon and name.
      context.font = "10.5px DejaVu Sans, Verdana, sans-serif";
      context.fillText([known.state?.split(" ")[0], ...known.lines].filter(Boolean).join(" "), x, y + 3.8);
      context.textAlign = "left";
      return;
    }
    const lines = known.state ? [...known.lines, known.state] : known.lines;
    lines.forEach((line, n) => {
      context.font = n === 0 ? "bold 13px DejaVu Sans, Verdana, sans-serif" : "13px DejaVu Sans, Verdana, sans-serif";
      context.fillText(line, x, y + 18 * (n - (lines.length - 1) / 2) + 4.7);
    });
    context.textAlign = "left";
  }

  // Texts and edge paths are loaded in tiles, so that areas are not requested twice.
  fetchTiles({ left, top, right, bottom }) {
    const [wide, high] = [1600, 1200];
    for (let column = Math.floor(left / wide); column <= right / wide; column += 1) {
      for (let row = Math.floor(top / high); row <= bottom / high; row += 1) {
        const key = `${column},${row}`;
        if (this.tiles.has(key)) continue;
        this.tiles.set(key, true);
        if (this.tiles.size > MAX_KEPT_TILES) this.forget();
        const sides = { left: column * wide, top: row * high, right: (column + 1) * wide, bottom: (row + 1) * high };
        this.ask("window", sides).then(
          ({ nodes, edges }) => {
            for (const node of nodes) this.texts.set(node.at, node);
            for (const way of edges) this.ways.set(way.at, way);
            this.repaint();
          },
          () => this.tiles.delete(key),
        );
      }
    }
  }

  forget() {
    this.tiles.clear();
    this.texts.clear();
    this.ways.clear();
  }
}

// ---- Pages ----

const followed = new WeakMap();

function followAll() {
  for (const box of document.querySelectorAll(".drawing")) {
    if (followed.has(box)) continue;
    if (box.dataset.graph) {
      const graph = new LargeGraph(box);
      followed.set(box, graph);
      graph.begin().then(
        () => (box.dataset.ready = "true"),
        (error) => box.append(Object.assign(document.createElement("p"), { className: "notice", textContent: `The graph could not be loaded (${error.message}). See the table below.` })),
      );
    } else if (box.querySelector("svg")) {
      followed.set(box, followPicture(box));
    }
  }
}

document.addEventListener("part-replaced", followAll);
document.addEventListener("page-refreshed", () => {
  for (const box of document.querySelectorAll(".drawing[data-graph]")) {
    const graph = followed.get(box);
    graph?.refresh().catch(() => {});
    if (graph?.view) graph.repaint();
  }
});
// Without the live update module, links navigate normally.
document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-node-link], .inspector .close, [data-stay]");
  if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  if (!document.querySelector(".drawing")) return;
  event.preventDefault();
  history.pushState(null, "", link.href + location.hash);
  document.dispatchEvent(new CustomEvent("address-changed"));
});
followAll();
