// What did the agent just call?

import { ask, duration, follow, foreign, h, moment, places, size, Split, Table } from "./base.js";
import { pretty } from "./form.js";

const MOST = 500;
const OUTCOMES = ["ok", "tool_error", "error", "cancelled", "lost"];

const split = new Split();
const outcome = h("select", { id: "outcome", onchange: () => show() }, ...["All", ...OUTCOMES].map((name) => h("option", {}, name)));
const filter = h("input", { id: "filter", type: "text", autocomplete: "off", spellcheck: "false", oninput: () => show() });
const pause = h("button", { type: "button", onclick: () => toggle() }, "Pause");
const held = h("p", { class: "number" });
document.getElementById("page").append(
  h(
    "div",
    { class: "controls" },
    h("div", { class: "field" }, h("label", { for: "outcome" }, "Outcome"), outcome),
    h("div", { class: "field wide" }, h("label", { for: "filter" }, "Filter"), filter),
    pause,
    held,
  ),
  split.element,
);

let about, table, paused = false;
// Newest first.
let calls = [];
let shown = [];

function begin(now) {
  about = now;
  table = new Table(
    "Calls",
    [
      { title: "Time", text: (row) => moment(row.time, true), button: open },
      { title: "Client", text: (row) => row.client, foreign: true },
      ...places(about.face),
      { title: "Tool", text: (row) => row.what, foreign: true, name: true },
      { title: "Outcome", text: (row) => row.outcome, mark: ({ outcome }) => `outcome ${outcome === "ok" || outcome === "cancelled" ? "" : "bad"}` },
      { title: "Duration", text: (row) => duration(row.ms), numeric: true },
      { title: "Size", text: (row) => size(row.size), numeric: true },
    ],
    "No call fits.",
  );
  split.hold(table);
}

function toggle() {
  paused = !paused;
  pause.textContent = paused ? "Resume" : "Pause";
  show();
}

/** How many calls wait for `Resume`. */
function waiting() {
  const known = calls.findIndex((row) => row.key <= (shown[0]?.key ?? -1));
  const newer = known < 0 ? calls.length : known;
  if (newer === 0) return "Nothing new yet.";
  return `${newer === MOST ? `${MOST} or more` : newer} new ${newer === 1 ? "call" : "calls"}.`;
}

function show() {
  if (!table) return;
  if (!paused) shown = calls;
  held.textContent = paused ? waiting() : "";
  const words = filter.value.trim().toLowerCase();
  const fits = (row) =>
    (outcome.value === "All" || row.outcome === outcome.value) &&
    (!words || [row.client, row.group, row.server, row.what].some((text) => text.toLowerCase().includes(words)));
  table.empty.textContent = calls.length ? "No call fits." : "No calls yet.";
  table.show(shown.filter(fits));
  table.mark(split.key);
}

async function open(row, button) {
  const pairs = [
    ["Time", new Date(row.time).toISOString()],
    ["Client", foreign(row.client)],
    ...places(about.face).map(({ title, text }) => [title, foreign(text(row))]),
    [row.kind === "call" ? "Tool" : row.kind === "read" ? "Resource" : "Prompt", foreign(row.what)],
    ["Outcome", row.error && row.error !== row.outcome ? `${row.outcome} (${row.error})` : row.outcome],
    ["Duration", duration(row.ms)],
    ["Size", `${size(row.sent)} sent, ${size(row.size)} received`],
  ];
  const list = h("dl", { class: "pairs" }, ...pairs.flatMap(([title, value]) => [h("dt", {}, title), h("dd", {}, value)]));
  split.open("Call", row.key, button, list);
  const kept = await ask(`kept?call=${row.key}`).catch(() => ({}));
  if (split.key !== row.key) return;
  const part = (title, text) => (text == null ? [] : [h("h3", {}, title), foreign(pretty(text), "pre")]);
  const parts = [...part("Arguments", kept.arguments), ...part("Result", kept.result)];
  const sentence = h("p", { class: "quiet" }, "Arguments and results are not kept. ", h("code", {}, '"journalArguments": "full"'), " in the configuration keeps them.");
  split.panel.append(...(parts.length ? parts : [sentence]));
}

follow({
  about: begin,
  calls({ anew, calls: more }) {
    const news = more.map((row) => ({ ...row, key: row.n })).reverse();
    calls = (anew ? news : [...news, ...calls]).slice(0, MOST);
    show();
  },
});
