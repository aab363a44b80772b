// Small helpers: copy commands, mark the selected node of a drawing, select all rows, scroll to the current section.

// Parts that need this module are hidden until it runs.
function revealHelpers(root) {
  for (const button of root.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
  for (const box of root.querySelectorAll("[data-choose-all]")) box.hidden = false;
  nameNumbers(root);
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

// One check box selects all rows of a page.
document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-choose-all]")) return;
  for (const box of document.querySelectorAll("[data-row] input[type=checkbox]")) box.checked = event.target.checked;
});

// On a narrow screen the current section may be outside the visible part of the navigation.
document.querySelector(".top [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

revealHelpers(document);
markChosenNode();
document.addEventListener("page-refreshed", markChosenNode);
document.addEventListener("part-replaced", (event) => {
  revealHelpers(event.target);
  markChosenNode();
});
