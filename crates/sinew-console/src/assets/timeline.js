// Ranges of a timeline: dragging across the bars selects a range. If idle time is hidden, the scale is not linear, and only the
// form fields select a range.

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
