// Interactive graphs: SVG drawings of the server and, if they have too many elements, a canvas that requests the visible part
// from the API. A click opens a node next to the graph; the address stores the open nodes and the viewport.

import { LargeGraph } from "large-graph.js";
import { STATES, View, addTools, colours, listen, openNode } from "graph-view.js";

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

// Finds nodes by id or text, marks them, and lists all nodes for the minimap.
function pictureTools(svg, [left, top]) {
  const nodes = [...svg.querySelectorAll("[data-node]")].map((node) => {
    const { x, y, width, height } = node.getBBox();
    return { node, frame: [x - left, y - top, width, height] };
  });
  const { states } = colours();
  const letterOf = (node) => Object.keys(STATES).find((letter) => node.classList.contains(STATES[letter])) ?? "-";
  return {
    find: async (text) => nodes.filter(({ node }) => `${node.dataset.node} ${node.textContent}`.toLowerCase().includes(text.toLowerCase())),
    mark: (found) => nodes.forEach(({ node }) => node.classList.toggle("found", found.some((one) => one.node === node))),
    frames: () => nodes.map(({ node, frame }) => ({ frame, colour: states[letterOf(node)].line })),
  };
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
  addTools(view, pictureTools(svg, origin));
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

// ---- Pages ----

const followed = new WeakMap();

function followAll() {
  for (const box of document.querySelectorAll(".drawing")) {
    // On a phone a large graph is hidden: the list below has the same content.
    if (followed.has(box) || box.offsetParent === null) continue;
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

document.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-show-graph]");
  if (!button) return;
  button.parentElement.classList.add("shown");
  followAll();
  button.parentElement.querySelector(".drawing").focus();
});
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
