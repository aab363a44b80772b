// The author's desk: checks the file as it is typed, goes to the place of a finding, opens and saves files. Without this
// module the buttons of the form do the work.

const form = document.getElementById("desk");
const PAUSE_MS = 350; // after the last key
let timer = 0;
let number = 0;

async function check() {
  const mine = ++number;
  const body = new URLSearchParams(new FormData(form));
  body.set("work", "check");
  try {
    const answer = await fetch(location.href, { method: "POST", body, headers: { accept: "text/html" } });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    // A later check knows better.
    if (mine !== number) return;
    for (const part of document.querySelectorAll(".desk [data-part]")) {
      const same = fresh.querySelector(`[data-part="${CSS.escape(part.dataset.part)}"]`);
      if (same && same.innerHTML !== part.innerHTML) part.replaceChildren(...document.importNode(same, true).childNodes);
    }
  } catch {
    // The gateway is away: the next key tries again.
  }
}

function goTo(line, column) {
  const field = form.elements.text;
  const before = field.value.split("\n").slice(0, line - 1);
  const at = before.reduce((sum, text) => sum + text.length + 1, 0) + column - 1;
  field.focus();
  field.setSelectionRange(at, at + 1);
  const height = parseFloat(getComputedStyle(field).lineHeight) || 18;
  field.scrollTop = Math.max(0, (line - 5) * height);
}

function save() {
  const address = URL.createObjectURL(new Blob([form.elements.text.value], { type: "text/plain" }));
  const link = Object.assign(document.createElement("a"), { href: address, download: form.elements.name.value });
  link.click();
  URL.revokeObjectURL(address);
}

if (form) {
  form.elements.text.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(check, PAUSE_MS);
  });
  document.addEventListener("click", (event) => {
    const place = event.target.closest("[data-line]");
    if (place) goTo(Number(place.dataset.line), Number(place.dataset.column));
  });
  const open = document.getElementById("open");
  open.hidden = false;
  open.querySelector("input").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    form.elements.name.value = file.name;
    form.elements.text.value = await file.text();
    check();
  });
  const button = document.getElementById("save");
  button.hidden = false;
  button.addEventListener("click", save);
}
