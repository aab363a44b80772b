// Keys: `/` filter, `g` and a letter, `j` `k`, Enter, `.` actions, `?` help. They can be turned off, for users of speech
// input and other assistive technology.

const OFF = "sinew-keys-off";
const HELP = [
  ["/", "focus the filter"],
  ["g then p e a w n c r t h", "go to a section"],
  ["j k", "next and previous row"],
  ["Enter", "open the row"],
  [".", "focus the actions"],
  ["?", "show these keys"],
];

let waitsForSection = false;
let waitTimer = 0;
let chosenLink = null; // address of the selected row: reloading a list replaces its elements

const rows = () => [...document.querySelectorAll("[data-row]")];

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function choose(step) {
  const all = rows();
  if (all.length === 0) return;
  const at = all.findIndex((row) => row.classList.contains("chosen"));
  const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? 0 : at + step))];
  all[at]?.classList.remove("chosen");
  next.classList.add("chosen");
  chosenLink = next.querySelector("a")?.getAttribute("href") ?? null;
  next.querySelector("a")?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function showHelp() {
  const open = document.querySelector("dialog");
  if (open) return open.close();
  const list = element("dl", { className: "keys" });
  for (const [key, effect] of HELP) {
    list.append(element("div", {}, element("dt", {}, element("kbd", { textContent: key })), element("dd", { textContent: effect })));
  }
  const box = element("input", { type: "checkbox", checked: localStorage.getItem(OFF) === null });
  box.addEventListener("change", () => (box.checked ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "1")));
  const dialog = element(
    "dialog",
    {},
    element("h2", { textContent: "Keys", id: "keys-title" }),
    list,
    element("label", {}, box, " Keys are on; to turn them back on, use the help page"),
    element("form", { method: "dialog" }, element("button", { textContent: "Close", autofocus: true })),
  );
  dialog.setAttribute("aria-labelledby", "keys-title");
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function goTo(letter) {
  const link = document.querySelector(`[data-go="${CSS.escape(letter)}"]`);
  if (link) location.href = link.href;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // The editor is in a shadow root: events that leave it target its host.
  const [target] = event.composedPath();
  const typing = target.closest?.("input, textarea, select, [contenteditable], dialog");
  if (typing) {
    if (event.key === "Escape") target.blur();
    return;
  }
  if (localStorage.getItem(OFF) !== null && event.key !== "Escape") return;
  if (waitsForSection) {
    waitsForSection = false;
    clearTimeout(waitTimer);
    goTo(event.key);
    return;
  }
  const action = {
    "/": () => document.querySelector("[data-filter]")?.focus(),
    g: () => {
      waitsForSection = true;
      waitTimer = setTimeout(() => (waitsForSection = false), 1500);
    },
    j: () => choose(1),
    k: () => choose(-1),
    ".": () => document.querySelector("[data-action]")?.focus(),
    "?": showHelp,
    Escape: () => document.querySelector(".inspector .close")?.click(),
  }[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
});

// Keeps the row selected after its list was reloaded, at any position and without moving the focus.
document.addEventListener("part-replaced", ({ target }) => {
  if (chosenLink === null) return;
  const row = [...target.querySelectorAll("[data-row]")].find((one) => one.querySelector("a")?.getAttribute("href") === chosenLink);
  row?.classList.add("chosen");
});

const button = document.getElementById("keys");
if (button) {
  button.hidden = false;
  button.addEventListener("click", showHelp);
}

// Tells tests that key presses are handled now.
document.documentElement.dataset.keys = "ready";
