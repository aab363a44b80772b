// The workflow editor: underlines findings while typing, jumps to findings, opens and saves files,
// and runs trials without leaving the page. Without this module the form works with plain fields and buttons.

const form = document.getElementById("desk");
const PAUSE_MS = 350; // after the last key
let timer = 0;
let number = 0;
let editor = null;
let kept = null; // the texts when they were last opened, saved or deployed
const sign = document.getElementById("live");

function show(fresh) {
  for (const part of document.querySelectorAll(".desk [data-part]")) {
    const same = fresh.querySelector(`[data-part="${CSS.escape(part.dataset.part)}"]`);
    if (!same || same.innerHTML === part.innerHTML) continue;
    // The fields may be newer than the submitted values.
    const written = [...part.querySelectorAll("input, textarea")].map((field) => [field.name, field.value]);
    const isOpen = part.querySelector("details")?.open;
    part.replaceChildren(...document.importNode(same, true).childNodes);
    for (const [name, value] of written) {
      const field = part.querySelector(`[name="${CSS.escape(name)}"]`);
      if (field) field.value = value;
    }
    if (isOpen) part.querySelector("details").open = true;
    part.dispatchEvent(new CustomEvent("part-replaced", { bubbles: true }));
  }
  underline();
}

function underline() {
  if (!editor) return;
  const found = [...document.querySelectorAll(".findings [data-from]")].map(({ dataset }) => ({
    line: Number(dataset.from),
    column: Number(dataset.fromColumn ?? 1),
    endLine: Number(dataset.to ?? 0),
    endColumn: Number(dataset.toColumn ?? 0),
    severity: dataset.severity === "error" ? "error" : "warning",
    message: dataset.message,
  }));
  editor.underline(found);
}

async function send(work) {
  const mine = ++number;
  const body = new URLSearchParams(new FormData(form));
  body.set("work", work);
  try {
    const answer = await fetch(location.pathname, { method: "POST", body, headers: { accept: "text/html" } });
    if (answer.redirected) throw new Error("not checked: signed out; sign in again in another window");
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    // Ignore the response if a later check was sent.
    if (mine === number) show(fresh);
    tell("");
  } catch (error) {
    // The next key press retries; until then the findings are those of an older text.
    tell(error instanceof TypeError ? "not checked: the gateway is unreachable" : error.message);
  }
}

function tell(problem) {
  sign.className = problem ? "off" : "";
  if (sign.textContent !== problem) sign.textContent = problem;
}

const written = () => JSON.stringify([form.elements.text.value, form.elements.cases.value]);

// Ask before leaving the page with unsaved text.
addEventListener("beforeunload", (event) => {
  if (form && kept !== null && written() !== kept) event.preventDefault();
});

function checkSoon() {
  clearTimeout(timer);
  timer = setTimeout(() => send("check"), PAUSE_MS);
}

function goTo(line, column) {
  if (editor) return editor.goTo(line, column);
  const field = form.elements.text;
  const before = field.value.split("\n").slice(0, line - 1);
  const at = before.reduce((sum, text) => sum + text.length + 1, 0) + column - 1;
  field.focus();
  field.setSelectionRange(at, at + 1);
}

function save() {
  const address = URL.createObjectURL(new Blob([form.elements.text.value], { type: "text/plain" }));
  const link = Object.assign(document.createElement("a"), { href: address, download: form.elements.name.value });
  link.click();
  URL.revokeObjectURL(address);
  kept = written();
}

async function openEditor() {
  const field = form.elements.text;
  const module = await import(field.dataset.editor);
  editor = module.openEditor(field, "Workflow");
  document.documentElement.dataset.editor = "ready";
  underline();
}

if (form) {
  kept = written();
  form.addEventListener("submit", () => (kept = written()));
  form.elements.text.addEventListener("input", checkSoon);
  document.addEventListener("click", (event) => {
    const place = event.target.closest("[data-line]");
    if (place) return goTo(Number(place.dataset.line), Number(place.dataset.column));
    const button = event.target.closest("button[name=work]");
    if (!button || !["check", "try", "test", "dry"].includes(button.value)) return;
    event.preventDefault();
    clearTimeout(timer);
    send(button.value);
  });
  const open = document.getElementById("open");
  open.hidden = false;
  open.querySelector("input").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    const text = await file.text();
    form.elements.name.value = file.name;
    if (editor) editor.text = text;
    else form.elements.text.value = text;
    kept = written();
    send("check");
  });
  const button = document.getElementById("save");
  button.hidden = false;
  button.addEventListener("click", save);
  openEditor().catch(() => {}); // The plain field remains.
}
