// Large drawings on a canvas: the API returns positions of all nodes as numbers, and texts of the visible part.

import { View, addTools, colours, listen, openNode } from "graph-view.js";

const MAX_KEPT_TILES = 60;
const TEXT_SCALE = 0.32; // below, text is not readable
const EDGE_SCALE = 0.2; // below, edges are straight lines
const REACH = 0.75; // fraction of the view that is painted beyond each side, for panning

export class LargeGraph {
  constructor(box) {
    this.box = box;
    this.address = box.dataset.graph;
    this.canvas = box.querySelector("canvas");
    this.paper = document.createElement("canvas"); // last painted area, larger than the view
    this.tiles = new Map();
    this.texts = new Map();
    this.ways = new Map();
    this.found = null; // matches of the search
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
    addTools(this.view, this.tools());
    listen(this.view, (event, px, py) => this.choose(px, py));
    new ResizeObserver(() => {
      this.painted = null;
      if (this.view.isMoved) this.view.request();
      else this.view.home();
    }).observe(this.box);
    if (named >= this.nodes.left.length) await this.readNodes();
    const at = named ?? this.nodeOfInterest();
    const home = () => (at === null ? this.view.begin() : this.view.beginWith(this.frame(at), this.neighbours(at)));
    this.view.home = home;
    this.view.recall();
    await this.readNodes();
    this.edges = await edges;
    while (this.edges.ends.length < 2 * this.edges.total) {
      const more = await this.ask("edges", { from: this.edges.ends.length / 2 });
      this.edges.ends.push(...more.ends);
      this.edges.taken += more.taken;
    }
    // Neighbours are known now.
    if (!this.view.isMoved && this.view.home === home) home();
    this.view.minimap?.paint();
    this.repaint();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.colours = colours();
      this.view.minimap?.paint();
      this.repaint();
    });
  }

  // Reads the positions of the remaining nodes.
  async readNodes() {
    while (this.nodes.left.length < this.total) {
      const more = await this.ask("nodes", { from: this.nodes.left.length });
      for (const side of ["left", "top", "width", "height"]) this.nodes[side].push(...more[side]);
      this.nodes.shapes += more.shapes;
      this.nodes.states += more.states;
      for (const at of more.stacks) this.stacks.add(at);
      for (const at of more.quiet) this.quiet.add(at);
    }
  }

  frame(at) {
    const { left, top, width, height } = this.nodes;
    return [left[at], top[at], width[at], height[at]];
  }

  // Frames of the nodes that share an edge with this one.
  neighbours(at) {
    const ends = this.edges?.ends ?? [];
    const found = [];
    for (let n = 0; n < ends.length; n += 2) {
      if (ends[n] === at) found.push(this.frame(ends[n + 1]));
      else if (ends[n + 1] === at) found.push(this.frame(ends[n]));
    }
    return found;
  }

  tools() {
    return {
      find: async (text) => (await this.ask("find", { text })).at.map((at) => ({ at, frame: this.frame(at) })),
      mark: (found) => {
        this.found = new Set(found.map(({ at }) => at));
        this.repaint();
      },
      frames: () => this.nodes.left.map((_, at) => ({ frame: this.frame(at), colour: (this.colours.states[this.nodes.states[at]] ?? this.colours.states["-"]).line })),
    };
  }

  // Index of the node that the address or the page names; null if it is not drawn.
  async placeOfNamed() {
    const asked = this.box.hasAttribute("data-inspects") ? new URLSearchParams(location.search).get("node") : null;
    const node = asked || this.box.dataset.focus;
    return node ? (await this.ask("place", { node })).at : null;
  }

  // Index of the first failed, waiting or running node among the loaded ones; null if there is none.
  nodeOfInterest() {
    const { states } = this.nodes;
    return ["f", "w", "r"].map((state) => states.indexOf(state)).find((at) => at >= 0) ?? null;
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
    this.view.minimap?.paint();
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
    if (this.box.clientWidth === 0) return; // hidden
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
      if (this.found?.has(at) || (chosen !== null && this.texts.get(at)?.id === chosen)) [context.strokeStyle, context.lineWidth] = [this.colours.focus, 5];
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
