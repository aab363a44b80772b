// Saved views of the list of executions: named addresses in the local storage of the browser. The address contains the entire
// view, so it can be shared as a link.

const KEY = "sinew-views";
const MAX_VIEWS = 30;
const form = document.getElementById("views");

// Stored data may be from another version, or invalid.
function read() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(kept) ? kept.filter((one) => typeof one?.name === "string" && typeof one?.query === "string") : [];
  } catch {
    return [];
  }
}

function write(views) {
  localStorage.setItem(KEY, JSON.stringify(views.slice(-MAX_VIEWS)));
  show();
}

function show() {
  const items = read().map(({ name, query }) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = `${location.pathname}?${query.replace(/^[?]+/, "")}`;
    link.textContent = name.slice(0, 40);
    if (link.search === location.search) link.setAttribute("aria-current", "true");
    const forget = document.createElement("button");
    forget.type = "button";
    forget.textContent = "×";
    forget.setAttribute("aria-label", `Delete view ${name.slice(0, 40)}`);
    forget.addEventListener("click", () => write(read().filter((one) => one.name !== name)));
    item.append(link, forget);
    return item;
  });
  form.querySelector("ul").replaceChildren(...items);
}

if (form) {
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = form.elements.name.value.trim();
    if (!name) return;
    const query = new URLSearchParams(location.search);
    query.delete("cursor");
    write([...read().filter((one) => one.name !== name), { name, query: query.toString() }]);
    form.reset();
  });
  show();
}
