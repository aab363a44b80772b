// Chats: Enter sends, files are attached, and answers of agents are streamed. Stored messages are part of the page, which is
// reloaded; this module only appends streamed pieces, as text.

document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || !event.target.matches?.("[data-send]")) return;
  event.preventDefault();
  event.target.form.requestSubmit();
});

// ---- Attached files ----

const MAX_TEXT_BYTES = 64 << 10; // maximum size of a text that is inlined in the message
const attach = document.querySelector("[data-attach]");

function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  // Avoid characters that a form encodes as three characters.
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

// Short texts are inlined, so every agent can read them. Other files are stored, and the agent receives their address.
async function read(files) {
  const [texts, stored] = [[], []];
  for (const file of files) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    let text = null;
    if (bytes.length <= MAX_TEXT_BYTES && !/\.(csv|tsv|json)$/i.test(file.name)) {
      try {
        text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
      } catch {
        text = null;
      }
    }
    if (text !== null && !text.includes("\0")) texts.push({ name: file.name, text });
    else stored.push({ name: file.name, media_type: file.type || null, base64: base64(bytes) });
  }
  return { texts, stored };
}

if (attach) {
  const { elements } = attach.form;
  const told = document.getElementById("attached");
  document.getElementById("attach").hidden = false;
  attach.addEventListener("change", async () => {
    const send = attach.form.querySelector("button[type=submit]");
    send.disabled = true;
    const { texts, stored } = await read(attach.files);
    elements.file_name.value = texts.map((one) => one.name).join(", ");
    elements.file_text.value = texts.map((one) => (texts.length > 1 ? `--- ${one.name}\n${one.text}` : one.text)).join("\n");
    elements.files.value = stored.length > 0 ? JSON.stringify(stored) : "";
    told.textContent = `${texts.length} as text, ${stored.length} as files`;
    send.disabled = false;
  });
}

// ---- Streamed answers ----

const MAX_SHOWN = 20_000; // characters of an answer that is being streamed

function follow(place) {
  const lines = new Map();
  const visible = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`);
  const lineOf = (task, node) => {
    if (lines.has(task)) return lines.get(task);
    const line = document.createElement("p");
    line.className = "coming";
    if (node && node !== "call") line.append(Object.assign(document.createElement("b"), { textContent: visible(node) }), " ");
    const text = document.createElement("span");
    line.append(text);
    place.append(line);
    const made = { line, text, turn: null, said: "" };
    lines.set(task, made);
    return made;
  };
  const stream = new EventSource(place.dataset.progress);
  stream.onopen = () => (place.dataset.state = "open");
  stream.onmessage = (message) => {
    const { task, node, values } = JSON.parse(message.data);
    for (const value of values) {
      if (value?.type === "text" && typeof value.delta === "string") {
        const one = lineOf(task, node);
        // Each turn is a separate answer.
        if (one.turn !== value.turn) [one.turn, one.said] = [value.turn, ""];
        one.said = (one.said + visible(value.delta)).slice(-MAX_SHOWN);
        one.text.textContent = one.said;
        place.dataset.pieces = Number(place.dataset.pieces ?? 0) + 1;
      } else if (value?.type === "reset") {
        const one = lineOf(task, node);
        [one.turn, one.said] = [null, ""];
        one.text.textContent = "";
      }
    }
  };
  stream.addEventListener("end", () => {
    stream.close();
    place.replaceChildren();
    place.dataset.state = "ended";
  });
}

for (const place of document.querySelectorAll("[data-progress]")) follow(place);
