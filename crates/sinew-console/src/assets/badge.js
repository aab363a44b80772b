// The number of open questions: next to the section in the menu, and in front of the title of every page.

const link = document.querySelector("nav a[data-count]");
const SECONDS = 15;
let open = 0;

function show() {
  const title = document.title.replace(/^\(\d+\) /, "");
  document.title = open > 0 ? `(${open}) ${title}` : title;
  link.querySelector(".badge")?.remove();
  if (open === 0) return;
  const badge = Object.assign(document.createElement("span"), { className: "badge", textContent: open });
  link.append(" ", badge);
}

// Without a response the last number remains.
async function look() {
  if (document.hidden) return;
  try {
    const answer = await fetch(link.dataset.count, { cache: "no-store" });
    if (!answer.ok) return;
    open = (await answer.json()).open;
    show();
  } catch {
    // The line of the page shows that the mesh does not respond.
  }
}

if (link) {
  look();
  setInterval(look, SECONDS * 1000);
  document.addEventListener("visibilitychange", look);
  // A reload of the page replaces its title. The list of questions changes together with their number.
  document.addEventListener("page-refreshed", () => (link.hasAttribute("aria-current") ? look() : show()));
}
