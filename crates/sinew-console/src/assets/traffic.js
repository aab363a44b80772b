// Live events of the mesh: newest first, bounded in number, inserted as text.

import { formatTimes } from "times.js";

const body = document.getElementById("traffic");
const MAX_ROWS = 200;
const MAX_WAITING = 400; // while the page is paused or the browser is busy

function cell(text, name = "") {
  const made = document.createElement("td");
  made.className = name;
  made.textContent = text;
  return made;
}

// Characters that hide or reorder text become visible.
const visible = (text) => String(text ?? "").replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`);

function timeCell(at) {
  const time = Object.assign(document.createElement("time"), { dateTime: at, textContent: visible(at).slice(11, 23) });
  time.dataset.time = "clock";
  const cell = document.createElement("td");
  cell.append(time);
  formatTimes(cell);
  return cell;
}

function rowOf(event) {
  const row = document.createElement("tr");
  const link = document.createElement("a");
  link.href = `${body.dataset.execution}/${encodeURIComponent(event.execution)}/events`;
  link.className = "id";
  link.textContent = visible(event.execution).slice(0, 16);
  const execution = cell("");
  execution.append(link);
  row.append(
    timeCell(event.at),
    cell(visible(event.workflow).slice(0, 60)),
    execution,
    cell(visible(event.type).slice(0, 60)),
    cell(String(event.bytes), "number"),
    cell(visible(event.body).slice(0, 400), "wide"),
  );
  return row;
}

function follow() {
  const rate = document.getElementById("rate");
  const pause = document.getElementById("pause");
  let waiting = [];
  let isPaused = false;
  let dropped = 0;
  let heard = 0;
  let frame = 0;
  const empty = document.getElementById("no-traffic");
  empty.hidden = false;
  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Resume" : "Pause";
    paint();
  });
  const paint = () => {
    frame = 0;
    if (isPaused || waiting.length === 0) return;
    const fresh = document.createDocumentFragment();
    for (const event of waiting.slice(-MAX_ROWS).reverse()) fresh.append(rowOf(event));
    waiting = [];
    empty.hidden = true;
    body.prepend(fresh);
    while (body.rows.length > MAX_ROWS) body.lastElementChild.remove();
  };
  const take = (message) => {
    heard += 1;
    waiting.push(JSON.parse(message.data));
    if (waiting.length > MAX_WAITING) {
      dropped += waiting.length - MAX_WAITING;
      waiting = waiting.slice(-MAX_WAITING);
    }
    frame ||= requestAnimationFrame(paint);
  };
  // A hidden page has no stream. A rejected stream is retried.
  let stream = null;
  const open = () => {
    if (document.hidden || (stream && stream.readyState !== EventSource.CLOSED)) return;
    stream = new EventSource(body.dataset.stream);
    stream.onmessage = take;
    stream.onopen = () => (document.documentElement.dataset.traffic = "open");
    stream.onerror = () => stream.readyState === EventSource.CLOSED && setTimeout(open, 3000);
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? stream?.close() : open()));
  open();
  setInterval(() => {
    rate.textContent = `${heard} per second${dropped ? `, ${dropped} dropped` : ""}${isPaused ? ", paused" : ""}`;
    heard = 0;
  }, 1000);
}

if (body) follow();
