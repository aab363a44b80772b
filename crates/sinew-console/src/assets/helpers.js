// Small helpers: copying commands, the chosen node of a drawing, and ranges of a timeline.

// Buttons that need this module are hidden until it runs.
function revealCopyButtons(root) {
  for (const button of root.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }
});

function markChosenNode() {
  const name = new URLSearchParams(location.search).get("node");
  for (const node of document.querySelectorAll(".drawing [data-node]")) {
    node.classList.toggle("chosen", name !== null && node.dataset.node === name);
  }
}

// Dragging across the bars of a timeline shows that part of the time. Where idle time is cut out, the scale is not even, and the
// fields of the range are the way.
document.addEventListener("pointerdown", (down) => {
  const chart = down.target.closest(".bars[data-range]");
  if (!chart || chart.dataset.cut || down.button !== 0) return;
  const box = chart.getBoundingClientRect();
  const [from, to] = chart.dataset.range.split(",").map(Number);
  const part = (event) => Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  const brush = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ class: "bar brush", y: 0, height: chart.viewBox.baseVal.height, width: 0 })) brush.setAttribute(name, value);
  chart.append(brush);
  const begin = part(down);
  const draw = (event) => {
    const ends = [begin, part(event)].sort((a, b) => a - b);
    brush.setAttribute("x", ends[0] * chart.viewBox.baseVal.width);
    brush.setAttribute("width", (ends[1] - ends[0]) * chart.viewBox.baseVal.width);
    return ends;
  };
  const up = (event) => {
    removeEventListener("pointermove", draw);
    const ends = draw(event);
    brush.remove();
    if (ends[1] - ends[0] < 0.01) return;
    const form = document.getElementById("range");
    [form.elements.from.value, form.elements.to.value] = ends.map((end) => Math.round(from + end * (to - from)));
    form.requestSubmit();
  };
  addEventListener("pointermove", draw);
  addEventListener("pointerup", up, { once: true });
});

// An exported file is sent as its text.
for (const field of document.querySelectorAll("[data-import]")) {
  field.addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    event.target.form.elements[field.dataset.import].value = await file.text();
    // The first file is the one that is opened.
    if (event.target.form.elements.text.value) event.target.form.requestSubmit();
  });
}

revealCopyButtons(document);
markChosenNode();
document.addEventListener("page-refreshed", markChosenNode);
document.addEventListener("part-replaced", (event) => {
  revealCopyButtons(event.target);
  markChosenNode();
});
