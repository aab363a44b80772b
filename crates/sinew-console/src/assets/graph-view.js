// The viewport of a graph: pan and zoom by mouse, touch and keys, a search field and a minimap. The address stores the viewport.

const MIN_SCALE = 0.002;
const MAX_SCALE = 4;
const STEP = 1.25;
const MINIMAP_PX = [180, 120]; // maximum size of the minimap
const CLICK_PX = 4; // a pointer that moves less is a click
const READ_SCALE = 0.62; // below, names of nodes are hard to read
const LEAST_READ_SCALE = 0.4; // below, they are not readable
const isStill = matchMedia("(prefers-reduced-motion: reduce)");

export const clamp = (value, least, most) => Math.min(most, Math.max(least, value));

// ---- Viewport: its centre in px of the drawing, and its scale in px of the screen per px of the drawing ----

export class View {
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
    if (of) return this.centre(of[0], of[1], READ_SCALE);
    const place = [this.size[0] / 2, 0];
    // Do not show the area outside the drawing if the drawing exceeds the view.
    const [x, y] = [this.box.clientWidth, this.box.clientHeight].map((length, axis) => {
      const half = length / 2 / READ_SCALE;
      const middle = this.size[axis] / 2;
      return clamp(place[axis], Math.min(half, middle), Math.max(this.size[axis] - half, middle));
    });
    this.set(x, y, READ_SCALE);
  }

  // A node with its neighbours: frames with left, top, width and height. The node is in the centre; neighbours that are too
  // far away are outside.
  beginWith([left, top, width, height], neighbours) {
    if (this.fitScale >= READ_SCALE) return this.fit();
    const [x, y] = [left + width / 2, top + height / 2];
    const reach = (near, far, middle) => Math.max(...neighbours.map((frame) => Math.max(middle - frame[near], frame[near] + frame[far] - middle)), 0) + 30;
    const [wide, high] = [reach(0, 2, x), reach(1, 3, y)];
    const scale = Math.min(this.box.clientWidth / 2 / wide, this.box.clientHeight / 2 / high);
    this.centre(x, y, scale < LEAST_READ_SCALE ? READ_SCALE : clamp(scale, LEAST_READ_SCALE, 1));
  }

  // Shows a point in the centre, but at most a quarter of the view below the drawing.
  centre(x, y, scale) {
    const high = this.box.clientHeight / scale;
    this.set(x, Math.max(Math.min(y, this.size[1] - high / 4), Math.min(y, this.size[1] / 2)), scale);
  }

  get isReadable() {
    return this.fitScale >= READ_SCALE;
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
      this.minimap?.draw();
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

const TOOLS = "button, a, input, .minimap"; // they handle their own events

export function listen(view, choose) {
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
    if (event.button !== 0 || event.target.closest(TOOLS)) return;
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
    if (event.target.closest(TOOLS) || box.classList.contains("dragged")) return;
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

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// Zoom buttons, a search field and a minimap. `find` returns the frames of the nodes that contain a text, and `mark` shows them;
// `frames` returns the frames of all nodes with their colours.
export function addTools(view, { find, mark, frames }) {
  if (view.box.querySelector(".zoom")) return;
  const buttons = [
    ["+", "Zoom in", () => view.zoom(STEP)],
    ["−", "Zoom out", () => view.zoom(1 / STEP)],
    ["⤢", "Show all", () => view.showAll()],
  ].map(([text, label, action]) => {
    const button = element("button", { type: "button", textContent: text, title: label, ariaLabel: label });
    button.addEventListener("click", action);
    return button;
  });
  view.box.append(element("div", { className: "zoom" }, ...buttons));
  if (view.isReadable) return;
  view.box.append(searchField(view, find, mark));
  view.minimap = new Minimap(view, frames);
}

// Enter goes to the next match, with Shift to the previous one.
function searchField(view, find, mark) {
  const field = element("input", { type: "search", placeholder: "Find in graph", ariaLabel: "Find in graph" });
  const result = element("span", { className: "quiet", role: "status" });
  let [text, matches, at] = ["", [], -1];
  const show = async (step) => {
    const wanted = field.value.trim();
    if (wanted !== text) {
      [text, matches, at] = [wanted, wanted ? await find(wanted) : [], step > 0 ? -1 : 0];
      mark(matches);
    }
    result.textContent = wanted && matches.length === 0 ? "no match" : "";
    if (matches.length === 0) return;
    at = (at + step + matches.length) % matches.length;
    result.textContent = `${at + 1} of ${matches.length}`;
    const [left, top, width, height] = matches[at].frame;
    view.moveTo(left + width / 2, top + height / 2, Math.max(view.scale, READ_SCALE));
  };
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    show(event.shiftKey ? -1 : 1).catch(() => (result.textContent = "the search failed"));
  });
  // The button of the field clears it.
  field.addEventListener("input", () => field.value === "" && show(1));
  return element("div", { className: "graph-search" }, field, result);
}

// The whole graph as dots, with the visible part. A click or a drag moves it.
class Minimap {
  constructor(view, frames) {
    const scale = Math.min(MINIMAP_PX[0] / view.size[0], MINIMAP_PX[1] / view.size[1]);
    const [width, height] = view.size.map((side) => Math.max(8, Math.round(side * scale)));
    this.paper = element("canvas", { width, height });
    this.canvas = element("canvas", { className: "minimap", width, height });
    this.canvas.setAttribute("aria-hidden", "true"); // the keys of the graph do the same
    Object.assign(this, { view, scale, frames });
    const move = (event) => {
      const box = this.canvas.getBoundingClientRect();
      view.isMoved = true;
      view.set((event.clientX - box.left) / scale, (event.clientY - box.top) / scale, view.scale);
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      move(event);
    });
    this.canvas.addEventListener("pointermove", (event) => event.buttons === 1 && move(event));
    view.box.append(this.canvas);
    this.paint();
  }

  // Paints the nodes: again whenever their states change.
  paint() {
    const context = this.paper.getContext("2d");
    context.clearRect(0, 0, this.paper.width, this.paper.height);
    for (const { frame, colour } of this.frames()) {
      context.fillStyle = colour;
      const [left, top, width, height] = frame.map((side) => side * this.scale);
      context.fillRect(left, top, Math.max(1, width), Math.max(1, height));
    }
    this.draw();
  }

  draw() {
    const { left, top, right, bottom } = this.view.window;
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.paper, 0, 0);
    context.strokeStyle = getComputedStyle(this.canvas).color;
    context.lineWidth = 1.5;
    context.strokeRect(left * this.scale, top * this.scale, (right - left) * this.scale, (bottom - top) * this.scale);
  }
}

// Opens a node next to the graph without navigation; the live update module reads the new address.
export function openNode(name) {
  const address = new URL(location.href);
  address.searchParams.set("node", name);
  history.pushState(null, "", address);
  document.dispatchEvent(new CustomEvent("address-changed"));
}

// ---- Colours of statuses, which depend on the colour scheme ----

export const STATES = { p: "planned", r: "running", s: "succeeded", f: "failed", k: "skipped", c: "cancelled", w: "waiting" };

export function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const states = { "-": { fill: of("--panel"), line: of("--planned-line"), text: of("--text") } };
  for (const [letter, name] of Object.entries(STATES)) {
    states[letter] = { fill: of(`--${name}-fill`), line: of(`--${name}-line`), text: of(`--${name}-text`) };
  }
  return { ground: of("--ground"), edge: of("--planned-line"), taken: of("--text"), quiet: of("--quiet"), panel: of("--panel"), focus: of("--focus"), states };
}
