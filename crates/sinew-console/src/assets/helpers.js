// Small helpers: copy commands, mark the selected node of a drawing, select all rows, scroll to the current section.

import { CHOICES, chooseTimes, formatTimes, timesChoice } from "times.js";

// Parts that need this module are hidden until it runs.
function revealHelpers(root) {
  for (const button of root.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
  for (const box of root.querySelectorAll("[data-choose-all]")) box.hidden = false;
  nameNumbers(root);
  formatTimes(root);
}

// The switch of times in the header: the next choice on each click.
const times = document.getElementById("times");
if (times) {
  const show = () => {
    const [, word] = CHOICES.find(([name]) => name === timesChoice());
    times.textContent = `Times: ${word}`;
  };
  times.hidden = false;
  times.addEventListener("click", () => {
    const at = CHOICES.findIndex(([name]) => name === timesChoice());
    chooseTimes(CHOICES[(at + 1) % CHOICES.length][0]);
    show();
  });
  show();
}

// On a phone a table has no headings: label each number with its column.
function nameNumbers(root) {
  for (const table of root.querySelectorAll("table.rows")) {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    for (const cell of table.querySelectorAll("tbody td.number")) cell.dataset.label = heads[cell.cellIndex] ?? "";
  }
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

// On a phone, forms with many fields are folded behind a button, because rows would start below the screen.
const MANY_FIELDS = 3;

function foldForms() {
  for (const form of document.querySelectorAll("main form.filter:not(.bulk)")) {
    if (form.querySelectorAll("input:not([type=hidden]), select").length < MANY_FIELDS) continue;
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Filters" });
    button.setAttribute("aria-expanded", "false");
    form.hidden = true;
    button.addEventListener("click", () => {
      form.hidden = !form.hidden;
      button.setAttribute("aria-expanded", String(!form.hidden));
    });
    form.before(button);
  }
}

if (matchMedia("(max-width: 40rem)").matches) foldForms();

// One check box selects all rows of a page.
document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-choose-all]")) return;
  for (const box of document.querySelectorAll("[data-row] input[type=checkbox]")) box.checked = event.target.checked;
});

// On a narrow screen the current section or tab may be outside the visible part of its list.
for (const current of document.querySelectorAll(":is(.top, .tabs) [aria-current]")) {
  const list = current.closest("nav");
  list.scrollLeft = current.offsetLeft - (list.clientWidth - current.offsetWidth) / 2;
}

revealHelpers(document);
markChosenNode();
document.addEventListener("page-refreshed", markChosenNode);
document.addEventListener("part-replaced", (event) => {
  revealHelpers(event.target);
  markChosenNode();
});
