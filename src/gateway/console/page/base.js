// What all pages share: elements, foreign text, the key, requests, the event stream, tables.
//
// Invariant: whatever comes from a server or a client becomes a text node by `foreign`, and nothing else.

const API = "/console/api/";
const KEY = "mcp-workbench.key";
// A name that is longer than this is broken into lines.
const LONG_NAME = 40;
// The gateway says something at least every five seconds.
const SILENCE = 15_000;

/** An element with these attributes and children; strings become text. Handlers are named like `onclick`. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// Control characters but white space, and what nobody sees or what turns the direction of text.
const HIDDEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** A text in which everything that could deceive stands as an escape, such as `\u202e`. */
export function visible(text) {
  return String(text).replace(HIDDEN, (found) =>
    Array.from({ length: found.length }, (_, at) => `\\u${found.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""),
  );
}

/** A text that is not ours, in an element of its own. */
export function foreign(text, tag = "span") {
  const attributes = { class: "foreign", dir: "auto" };
  // A box that scrolls must be reachable by keyboard.
  if (tag === "pre") attributes.tabindex = "0";
  return h(tag, attributes, visible(text));
}

// --- Figures

const counted = new Intl.NumberFormat("en-GB");
export const count = (number) => counted.format(number);

export function duration(ms) {
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1e6) return `${(bytes / 1e3).toFixed(1)} kB`;
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

const two = (number) => String(number).padStart(2, "0");

/** The time of day, with the day before it if that is not today. */
export function moment(ms, precise = false) {
  const at = new Date(ms);
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const time = precise ? `${clock}.${String(at.getMilliseconds()).padStart(3, "0")}` : clock;
  const today = at.toDateString() === new Date().toDateString();
  return today ? time : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

// --- Requests

/** Takes the key out of the address, so that it stays in no history. */
function takeKey() {
  const given = /^#key=(.+)$/.exec(location.hash);
  if (given) {
    sessionStorage.setItem(KEY, decodeURIComponent(given[1]));
    history.replaceState(null, "", location.pathname + location.search);
  }
  return given !== null;
}

/** Asks the gateway. `body` makes it a POST. Throws an error with the gateway's words where it refuses. */
export async function ask(path, { body, signal } = {}) {
  const response = await send(path, { body, signal });
  const text = await response.text();
  if (response.status === 401) {
    signIn();
    throw new Error("Sign in first.");
  }
  const answer = JSON.parse(text);
  if (!response.ok) throw new Error(answer.error?.message ?? answer.error ?? response.statusText);
  return answer;
}

function send(path, { body, signal }) {
  const headers = { authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  if (body !== undefined) headers["content-type"] = "application/json";
  const method = body === undefined ? "GET" : "POST";
  return fetch(API + path, { method, headers, body, signal, cache: "no-store", credentials: "omit", redirect: "error" });
}

// --- The stream

/**
 * Shows the page, and keeps it up to date: each event goes to the handler of its name. `about` is called once, and again if
 * another gateway is at the address; `again` when the stream has begun anew.
 */
export async function follow(handlers) {
  let known;
  takeKey();
  addEventListener("hashchange", () => takeKey() && location.reload());
  for (let failures = 0; ; failures += 1) {
    const silence = new AbortController();
    let alarm;
    const alive = () => {
      clearTimeout(alarm);
      alarm = setTimeout(() => silence.abort(), SILENCE);
    };
    try {
      alive();
      const response = await send("events", { signal: silence.signal });
      if (response.status === 401) {
        await response.body?.cancel();
        await signIn();
        failures = -1;
        continue;
      }
      if (!response.ok) throw new Error(response.statusText);
      for await (const { name, data } of events(response.body, alive)) {
        failures = 0;
        show("Live");
        const handler = name === "about" && data === known ? "again" : name;
        if (name === "about") known = data;
        handlers[handler]?.(JSON.parse(data));
      }
    } catch {
      // Whatever broke, the next attempt begins with the present state.
    } finally {
      clearTimeout(alarm);
    }
    if (!document.getElementById("page").hidden) show("Reconnecting");
    await new Promise((resolve) => setTimeout(resolve, Math.min(200 * 2 ** failures, 2000)));
  }
}

/** The events of a stream, one after the other. */
async function* events(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const found = /^event: (\w+)\ndata: (.*)$/s.exec(part);
      if (found) yield { name: found[1], data: found[2] };
    }
  }
}

function show(status) {
  const line = document.getElementById("status");
  if (line.textContent !== status) line.textContent = status;
  line.classList.toggle("live", status === "Live");
  for (const id of ["top", "page"]) document.getElementById(id).hidden = false;
}

let signingIn;

/** Asks for a key in place of everything else, until one is given. */
function signIn() {
  signingIn ??= new Promise((resolve) => {
    const wrong = sessionStorage.getItem(KEY) !== null;
    sessionStorage.removeItem(KEY);
    const title = document.title;
    document.title = "Sign in · mcp-workbench";
    for (const id of ["top", "page"]) document.getElementById(id).hidden = true;
    const input = h("input", { id: "key", type: "text", autocomplete: "off", spellcheck: "false", required: true });
    const done = (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, input.value.trim());
      signingIn = undefined;
      page.remove();
      document.title = title;
      resolve();
    };
    const page = h(
      "main",
      { class: "signin" },
      h("h1", {}, "Sign in"),
      h(
        "form",
        { onsubmit: done },
        ...(wrong ? [h("p", { class: "wrong", role: "alert" }, "This key or token is not valid here.")] : []),
        h("div", { class: "field" }, h("label", { for: "key" }, "Key or token"), input),
        h("button", { class: "primary" }, "Sign in"),
      ),
    );
    document.body.append(page);
    input.focus();
  });
  return signingIn;
}

// --- Tables

/**
 * A table in a box of its own that scrolls sideways. A column is `{ title, text }`, where `text` makes a row's text, and may
 * be `numeric`, `foreign` (the text is not ours), `long`, a `name`, `button` (what the button with that text does), or have a
 * `mark` (classes of the text). Rows have a `key` by which they stay the same rows.
 */
export class Table {
  rows = new Map();

  constructor(name, columns, empty) {
    this.columns = columns;
    this.body = h("tbody");
    const titles = columns.map(({ title, numeric }) => h("th", { scope: "col", class: numeric ? "numeric" : null }, title));
    this.table = h("table", { "aria-label": name }, h("thead", {}, h("tr", {}, ...titles)), this.body);
    this.empty = h("p", { class: "empty" }, empty);
    this.element = h("div", { class: "scroll", role: "group", "aria-label": `${name}, a table`, tabindex: "0" }, this.table, this.empty);
  }

  /** Shows exactly these rows, in this order. The row that has the focus keeps it. */
  show(rows) {
    const kept = new Map();
    const focused = document.activeElement;
    let next = this.body.firstElementChild;
    for (const row of rows) {
      const known = this.rows.get(row.key) ?? this.make(row);
      this.update(known, row);
      kept.set(row.key, known);
      if (known.element === next) next = next.nextElementSibling;
      else this.body.insertBefore(known.element, next);
    }
    while (next) {
      const gone = next;
      next = next.nextElementSibling;
      gone.remove();
    }
    this.rows = kept;
    if (focused !== document.activeElement && this.body.contains(focused)) focused.focus({ preventScroll: true });
    this.empty.hidden = rows.length > 0;
  }

  /** Adds rows at the end. */
  add(rows) {
    for (const row of rows) {
      const known = this.make(row);
      this.update(known, row);
      this.rows.set(row.key, known);
      this.body.append(known.element);
    }
    this.empty.hidden = this.rows.size > 0;
  }

  make(row) {
    const known = { row, shown: [] };
    known.cells = this.columns.map((column) => {
      const text = h(column.button ? "button" : "span", column.foreign ? { class: "foreign", dir: "auto" } : {});
      if (column.button) {
        text.type = "button";
        text.setAttribute("aria-expanded", "false");
        text.addEventListener("click", () => column.button(known.row, text));
      }
      const classes = ["numeric", "long"].filter((name) => column[name]).join(" ");
      return { text, cell: h("td", classes ? { class: classes } : {}, text) };
    });
    known.element = h("tr", {}, ...known.cells.map(({ cell }) => cell));
    return known;
  }

  update(known, row) {
    known.row = row;
    this.columns.forEach((column, at) => {
      const text = column.text(row);
      if (known.shown[at] === text) return;
      known.shown[at] = text;
      known.cells[at].text.textContent = column.foreign ? visible(text) : text;
      if (column.mark) known.cells[at].text.className = column.mark(row);
      if (column.name) known.cells[at].cell.classList.toggle("long-name", text.length > LONG_NAME);
    });
  }

  /** Marks the row that is open, and no other. */
  mark(key) {
    for (const [other, { element }] of this.rows) {
      element.classList.toggle("open", other === key);
      element.querySelector("button")?.setAttribute("aria-expanded", String(other === key));
    }
  }
}

/** The columns that say whose something is: a toolbox and a server or, for toolman, a namespace. */
export function places(face) {
  const group = { text: (row) => row.group, foreign: true };
  if (face === "toolman") return [{ ...group, title: "Namespace" }];
  return [
    { ...group, title: "Toolbox" },
    { title: "Server", text: (row) => row.server, foreign: true },
  ];
}

/** A table, and a region beside it for the row that was opened. */
export class Split {
  constructor() {
    this.panel = h("section", { class: "panel", tabindex: "-1", hidden: true, id: "panel" });
    this.element = h("div", { class: "split" }, this.panel);
  }

  /** Puts the table in its place. */
  hold(table) {
    this.table = table;
    this.element.replaceChildren(this.panel, table.element);
  }

  /** Opens the region for a row; `button` gets the focus back when the region is closed. */
  open(name, key, button, ...content) {
    this.key = key;
    const close = h("button", { type: "button", onclick: () => this.close(button) }, "Close");
    const title = foreign(name, "h2");
    this.panel.setAttribute("aria-label", visible(name));
    this.panel.replaceChildren(h("div", { class: "head" }, title, close), ...content);
    this.panel.hidden = false;
    this.element.classList.add("opened");
    this.table.mark(key);
    this.panel.focus();
  }

  close(button) {
    this.key = undefined;
    this.panel.hidden = true;
    this.panel.replaceChildren();
    this.element.classList.remove("opened");
    this.table.mark(undefined);
    button?.focus();
  }
}
