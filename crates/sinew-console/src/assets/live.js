// Keeps an open page true: reads the page again when something changed, and replaces the parts that differ.
// Executions tell changes by server-sent events, and a lost stream goes on behind the last event. Lists are told that something
// changed, and are read every few seconds besides. A page that nobody sees has no stream: browsers open few connections to one host.

// "live" means that the mesh has answered within seconds: an open stream alone proves nothing, so a page that follows one asks
// besides whether the mesh still answers. The time of the last answer is always shown.

const sign = document.getElementById("live");
const age = document.getElementById("as-of");
const GATHER_MS = 250;
const LONGEST_BREAK_MS = 15_000;
// An answer that takes longer counts as none.
const ANSWER_MS = 8_000;
// Seconds after the last answer from which a page is old, beside the time between two looks.
const GRACE_MS = 3_000;

function tell(state, text) {
  sign.className = state;
  document.body.classList.toggle("old", state === "off");
  if (sign.textContent !== text) sign.textContent = text;
}

let confirmedAt = Date.now();

function showAge() {
  // Pages that do not change, like that of an ended execution, have no age.
  if (!age) return;
  const at = new Date(confirmedAt);
  const parts = [at.getHours(), at.getMinutes(), at.getSeconds()].map((part) => String(part).padStart(2, "0"));
  age.dateTime = at.toISOString();
  age.textContent = `as of ${parts.join(":")}`;
}

// Notes that what the page shows is what the mesh has now.
function confirm() {
  confirmedAt = Date.now();
  showAge();
}

// Says why the page is old. A refusal has the title of its code, such as that the NATS server did not answer.
function tellOld(error) {
  if (error.isTold || sign.querySelector("a")) return;
  const why = error.title ?? (error.name === "TimeoutError" ? "no answer from the mesh" : "connection lost");
  tell("off", `${why}, trying again`);
}

// Says that a page is old as soon as no answer has come for longer than usual.
function watchAge(seconds) {
  setInterval(() => {
    const limit = seconds * 1000 + GRACE_MS + 2 * readingMs;
    if (!document.hidden && sign.className === "on" && Date.now() - confirmedAt > limit) {
      tell("off", "no answer from the mesh, trying again");
    }
  }, 1000);
}

// A page that is answered by the sign-in says no more of the mesh. Whoever signs in, here or in another window, comes back to it.
function tellSignedOut(address) {
  sign.className = "off";
  if (sign.querySelector("a")) return;
  const link = Object.assign(document.createElement("a"), { href: address, textContent: "sign in again" });
  sign.replaceChildren("signed out, this is old: ", link);
}

const isSignIn = (address) => new URL(address).pathname.endsWith("/sign-in") && !location.pathname.endsWith("/sign-in");

// A part is left alone while its reader types or selects in it, or has opened or ticked something: the next change brings it up to date.
function isInUse(part) {
  const focus = document.activeElement;
  const types = focus && part.contains(focus) && focus.matches("input, textarea, select");
  const selection = document.getSelection();
  const selects = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  return types || selects || part.querySelector("details[open], input:checked") !== null;
}

// Focus survives the replacement of what has it: by address, for links; by label, for regions that scroll.
function restoreFocus(part, href, label) {
  if (href) part.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus({ preventScroll: true });
  else if (label) part.querySelector(`[aria-label="${CSS.escape(label)}"]`)?.focus({ preventScroll: true });
}

// Parts as the server gave them last: modules reveal buttons and name cells, which is no news.
const given = new WeakMap([...document.querySelectorAll("[data-part]")].map((part) => [part, part.innerHTML]));

function replace(old, fresh, isWanted) {
  if ((given.get(old) ?? old.innerHTML) === fresh.innerHTML || (!isWanted && isInUse(old))) return;
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

let readingMs = 0; // of the last reading: a page that takes long is read less often
let reading = null;
let isStale = false;

// Reads the page again; what changes meanwhile is read afterwards.
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
      const title = fresh.querySelector(".problem strong")?.textContent ?? `the gateway answers with status ${answer.status}`;
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

// Keeps a stream of this address open while somebody sees the page: `begin` gives a new stream its listeners. The browser comes back by
// itself after a broken line, and gives up when a gateway refuses: then the wait is ours.
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

// Changes of one moment are one reading. Changes that never cease do not put it off. A hidden page is read when
// its stream opens again.
function refreshSoon() {
  soon ||= setTimeout(() => {
    soon = 0;
    if (!document.hidden) refresh().catch(() => {});
  }, Math.max(GATHER_MS, 2 * readingMs));
}

// Asks every few seconds whether the mesh answers. An open stream and an answer together prove that nothing was missed.
function probe(address, seconds, stream) {
  const look = async () => {
    if (stream.isOver) return;
    if (!document.hidden) {
      try {
        const answer = await fetch(address, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
        if (!answer.ok) {
          const problem = await answer.json().catch(() => ({}));
          throw Object.assign(new Error("refused"), { title: problem.title || `the gateway answers with status ${answer.status}` });
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
  // The page is read on opening and has what was missed, so the stream begins behind the last event that was seen.
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
      refresh().then(() => tell("", "ended"), () => tell("off", "reload to see the end"));
    });
    stream.onerror = () => {
      state.isOpen = false;
      if (!sign.querySelector("a")) tell("off", "connection lost, trying again");
      // A gateway that refuses the stream says with the page why.
      if (stream.readyState === EventSource.CLOSED) refresh().catch(() => {});
    };
  });
}

// Tells a list that things of its kind changed.
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

// A part of the address that changes without leaving the page: what it chooses is read now, or the page is loaded as a whole.
const follow = () => (reading ?? Promise.resolve()).catch(() => {}).then(() => refresh(true)).catch(() => location.reload());
document.addEventListener("address-changed", follow);
addEventListener("popstate", follow);

if (sign?.dataset.poll) showAge();
if (sign?.dataset.events) followEvents(sign.dataset.events, sign.dataset.probe, Number(sign.dataset.poll));
else if (sign?.dataset.poll) {
  poll(Number(sign.dataset.poll));
  followChanges(sign.dataset.changes, sign.dataset.list);
}
