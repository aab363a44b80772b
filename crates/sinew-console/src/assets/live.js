// Live updates of an open page: reloads it when something changed, and replaces the parts that differ.
// Executions stream their events (SSE), and a lost stream resumes after the last event. Lists receive change notifications
// and are also polled every few seconds. A hidden page has no stream, because browsers limit connections per host.

// "live" means that the mesh responded within seconds. An open stream does not prove that, so a page with a stream also
// probes the mesh. The time of the last response is always shown.

import { clock, moment } from "times.js";

const sign = document.getElementById("live");
const age = document.getElementById("as-of");
const GATHER_MS = 250;
const LONGEST_BREAK_MS = 15_000;
// Timeout of a request.
const ANSWER_MS = 8_000;
// Grace period after a missed poll before a page is shown as outdated.
const GRACE_MS = 3_000;

function tell(state, text) {
  sign.className = state;
  document.body.classList.toggle("old", state === "off");
  if (sign.textContent !== text) sign.textContent = text;
}

let confirmedAt = Date.now();

function showAge() {
  // Static pages, such as those of ended executions, have no age.
  if (!age) return;
  const at = new Date(confirmedAt);
  age.dateTime = at.toISOString();
  age.title = moment(at);
  age.textContent = `as of ${clock(at)}`;
}

// Records that the page is up to date.
function confirm() {
  confirmedAt = Date.now();
  showAge();
}

// Shows why the page is outdated. An error response has the title of its code, for instance that the NATS server did not respond.
function tellOld(error) {
  if (error.isTold || sign.querySelector("a")) return;
  const why = error.title ?? (error.name === "TimeoutError" ? "no response from the mesh" : "connection lost");
  tell("off", `${why}, retrying`);
}

// Shows that a page is outdated if no response arrived for longer than usual.
function watchAge(seconds) {
  setInterval(() => {
    const limit = seconds * 1000 + GRACE_MS + 2 * readingMs;
    if (!document.hidden && sign.className === "on" && Date.now() - confirmedAt > limit) {
      tell("off", "no response from the mesh, retrying");
    }
  }, 1000);
}

// A redirect to the sign-in page means that the session ended. After signing in, here or in another window, the user returns.
function tellSignedOut(address) {
  sign.className = "off";
  if (sign.querySelector("a")) return;
  const link = Object.assign(document.createElement("a"), { href: address, textContent: "sign in again" });
  sign.replaceChildren("signed out, data is outdated: ", link);
}

const isSignIn = (address) => new URL(address).pathname.endsWith("/sign-in") && !location.pathname.endsWith("/sign-in");

// Does not replace a part while the user types, selects, or has opened or checked something in it; a later change updates it.
function isInUse(part) {
  const focus = document.activeElement;
  const types = focus && part.contains(focus) && focus.matches("input, textarea, select");
  const selection = document.getSelection();
  const selects = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  const isFilled = [...part.querySelectorAll("textarea, input[type=text]")].some((field) => field.value !== field.defaultValue);
  return types || selects || isFilled || part.querySelector("details[open], input:checked") !== null;
}

// Restores the focus after a replacement: by address for links, by label for scrollable regions.
function restoreFocus(part, href, label) {
  if (href) part.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus({ preventScroll: true });
  else if (label) part.querySelector(`[aria-label="${CSS.escape(label)}"]`)?.focus({ preventScroll: true });
}

// Parts as last received: compared instead of the DOM, because modules reveal buttons and label cells.
const given = new WeakMap([...document.querySelectorAll("[data-part]")].map((part) => [part, part.innerHTML]));

// ---- Rows do not move under the pointer ----

let isMouse = false; // a touch does not rest on a row
addEventListener("pointermove", (event) => (isMouse = event.pointerType === "mouse"));
const keyOf = (row) => row.querySelector("a[href]")?.getAttribute("href") ?? "";
const rowsOf = (root) => new Map([...root.querySelectorAll("[data-row]")].map((row) => [keyOf(row), row]));

// Keeps the order of a list on which the pointer rests: its rows are updated in place, and a button shows how many rows are new.
// Returns false if the list may be replaced.
function holds(old, fresh) {
  if (!isMouse || !old.matches(":hover")) return false;
  const [shown, next] = [rowsOf(old), rowsOf(fresh)];
  if (shown.size === 0 || [...shown.keys()].join() === [...next.keys()].join()) return false;
  for (const [key, row] of shown) {
    const same = next.get(key);
    if (!same || same.innerHTML === row.innerHTML || row.querySelector("input:checked")) continue;
    row.replaceChildren(...document.importNode(same, true).childNodes);
  }
  given.delete(old);
  const added = [...next.keys()].filter((key) => !shown.has(key)).length;
  showHeld(old, added > 0 ? `${added} new` : "order changed");
  old.dispatchEvent(new CustomEvent("part-replaced", { bubbles: true }));
  return true;
}

function showHeld(part, text) {
  const known = part.previousElementSibling?.matches(".held") && part.previousElementSibling;
  const box = known || Object.assign(document.createElement("div"), { className: "held" });
  if (!known) {
    const button = Object.assign(document.createElement("button"), { type: "button" });
    // The list continues when the pointer leaves it, or on a click.
    const release = () => {
      box.remove();
      part.removeEventListener("mouseleave", release);
      refresh().catch(() => {});
    };
    button.addEventListener("click", release);
    part.addEventListener("mouseleave", release);
    box.append(button);
    part.before(box);
  }
  box.firstChild.textContent = text;
}

function replace(old, fresh, isWanted) {
  if ((given.get(old) ?? old.innerHTML) === fresh.innerHTML || (!isWanted && isInUse(old))) return;
  if (!isWanted && holds(old, fresh)) return;
  given.set(old, fresh.innerHTML);
  const focus = old.contains(document.activeElement) ? document.activeElement : null;
  const href = focus?.getAttribute("href");
  const label = focus?.getAttribute("aria-label");
  const scrolled = [...old.querySelectorAll(".scroll, .drawing, .value")].map((box) => [box.scrollTop, box.scrollLeft]);
  old.replaceChildren(...document.importNode(fresh, true).childNodes);
  [...old.querySelectorAll(".scroll, .drawing, .value")].forEach((box, place) => {
    if (scrolled[place]) [box.scrollTop, box.scrollLeft] = scrolled[place];
  });
  if (focus) restoreFocus(old, href, label);
  old.dispatchEvent(new CustomEvent("part-replaced", { bubbles: true }));
}

let readingMs = 0; // of the last reload: slow pages are reloaded less often
let reading = null;
let isStale = false;

// Reloads the page. A change during a reload causes another one.
async function refresh(isWanted = false) {
  if (reading) {
    isStale = true;
    return reading;
  }
  reading = (async () => {
    const begin = performance.now();
    const signal = AbortSignal.timeout(ANSWER_MS + 2 * readingMs);
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store", signal });
    if (isSignIn(answer.url)) {
      tellSignedOut(answer.url);
      throw Object.assign(new Error("signed out"), { isTold: true });
    }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!answer.ok) {
      const title = fresh.querySelector(".problem strong")?.textContent ?? `the gateway returned status ${answer.status}`;
      throw Object.assign(new Error(title), { title });
    }
    for (const part of document.querySelectorAll("[data-part]")) {
      const same = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
      if (same) replace(part, same, isWanted);
    }
    document.title = fresh.title;
    readingMs = performance.now() - begin;
    confirm();
    document.dispatchEvent(new CustomEvent("page-refreshed"));
    return fresh;
  })();
  try {
    return await reading;
  } finally {
    reading = null;
    if (isStale) {
      isStale = false;
      refresh().catch(() => {});
    }
  }
}

// Keeps a stream of this address open while the page is visible; `begin` adds listeners to a new stream. The browser reconnects
// after a network error, but not after an error response, so that case is retried here.
function keepStream(address, begin) {
  let stream = null;
  let attempt = 0;
  let isOver = false;
  const open = () => {
    if (isOver || document.hidden || (stream && stream.readyState !== EventSource.CLOSED)) return;
    stream = new EventSource(address());
    stream.addEventListener("open", () => (attempt = 0));
    stream.addEventListener("error", () => {
      if (stream.readyState !== EventSource.CLOSED) return;
      attempt += 1;
      setTimeout(open, Math.min(LONGEST_BREAK_MS, 500 * 2 ** attempt));
    });
    begin(stream);
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? stream?.close() : open()));
  open();
  return () => {
    isOver = true;
    stream.close();
  };
}

let soon = 0;

// Batches changes into one reload, which continuous changes do not delay. A hidden page is reloaded when
// its stream opens again.
function refreshSoon() {
  soon ||= setTimeout(() => {
    soon = 0;
    if (!document.hidden) refresh().catch(() => {});
  }, Math.max(GATHER_MS, 2 * readingMs));
}

// Probes the mesh every few seconds. An open stream and a response together prove that no event was missed.
function probe(address, seconds, stream) {
  const look = async () => {
    if (stream.isOver) return;
    if (!document.hidden) {
      try {
        const answer = await fetch(address, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
        if (!answer.ok) {
          const problem = await answer.json().catch(() => ({}));
          throw Object.assign(new Error("refused"), { title: problem.title || `the gateway returned status ${answer.status}` });
        }
        if (stream.isOpen && !stream.isOver) {
          confirm();
          tell("on", "live");
        }
      } catch (error) {
        if (!stream.isOver) tellOld(error);
      }
    }
    setTimeout(look, seconds * 1000);
  };
  setTimeout(look, seconds * 1000);
}

function followEvents(address, probed, seconds) {
  let last = "";
  // Opening a stream reloads the page, which contains missed events, so the stream starts after the last received event.
  const here = () => (last ? `${address}?after=${encodeURIComponent(last)}` : address);
  const state = { isOpen: false, isOver: false };
  probe(probed, seconds, state);
  watchAge(seconds);
  const end = keepStream(here, (stream) => {
    stream.onopen = () => {
      state.isOpen = true;
      tell("on", "live");
      refreshSoon();
    };
    stream.onmessage = (event) => {
      last = event.lastEventId || last;
      refreshSoon();
    };
    stream.addEventListener("end", () => {
      state.isOver = true;
      end();
      clearTimeout(soon);
      refresh().then(() => tell("", "ended"), () => tell("off", "reload to see the result"));
    });
    stream.onerror = () => {
      state.isOpen = false;
      if (!sign.querySelector("a")) tell("off", "connection lost, retrying");
      // If the gateway rejects the stream, the page contains the reason.
      if (stream.readyState === EventSource.CLOSED) refresh().catch(() => {});
    };
  });
}

// Reloads a list when its kind changes.
function followChanges(address, kind) {
  keepStream(() => address, (stream) => {
    stream.onopen = refreshSoon;
    stream.addEventListener("changed", (event) => {
      if (JSON.parse(event.data).includes(kind)) refreshSoon();
    });
  });
}

function poll(seconds) {
  const look = async () => {
    if (!document.hidden) {
      try {
        await refresh();
        tell("on", "live");
      } catch (error) {
        tellOld(error);
      }
    }
    setTimeout(look, seconds * 1000);
  };
  tell("on", "live");
  watchAge(seconds);
  setTimeout(look, seconds * 1000);
}

// The address changed without navigation: reload the page in place, or completely if that fails.
const follow = () => (reading ?? Promise.resolve()).catch(() => {}).then(() => refresh(true)).catch(() => location.reload());
document.addEventListener("address-changed", follow);
addEventListener("popstate", follow);

if (sign?.dataset.poll) showAge();
if (sign?.dataset.events) followEvents(sign.dataset.events, sign.dataset.probe, Number(sign.dataset.poll));
else if (sign?.dataset.poll) {
  poll(Number(sign.dataset.poll));
  followChanges(sign.dataset.changes, sign.dataset.list);
}
