// Is all well? Problems first, then what runs, what is called, how fast, and what the gateway saves.

import { count, duration, follow, foreign, h, moment, places, Table } from "./base.js";
import { Plot, sample } from "./plot.js";

const STATES = ["running", "idle", "starting", "failed"];

const card = (title, ...content) => h("section", { class: "card" }, h("h2", {}, title), ...content);
const legend = (...entries) =>
  h("ul", { class: "legend" }, ...entries.map(([kind, classes, words]) => h("li", {}, sample(kind, classes), words)));

const states = h("ul", { class: "counts" });
const problems = h("ul", { class: "problems" });
const totals = h("p", {}, "No calls yet.");
const rates = h("p", { class: "number", id: "rates" });
const times = h("p", { class: "number", id: "times" });
const busy = h("div");
const slow = h("div");
const context = h("dl", { class: "bars" });
const saving = h("p", { class: "number" });
const uncounted = h("p", { class: "number" });
const callPlot = new Plot("Calls per second", "rates", (value) => String(+value.toPrecision(2)));
const latencyPlot = new Plot("Latency", "times", (value) => duration(value).replace(".0 ", " "));
const problemCard = card("Problems", problems);
problemCard.classList.add("bad", "wide");
problemCard.hidden = true;
const clientCard = card("Clients");
clientCard.classList.add("wide");

document.getElementById("page").append(
  h(
    "div",
    { class: "cards" },
    problemCard,
    card("Servers", states),
    card("Context", context, saving, uncounted),
    card("Calls", totals, callPlot.svg, rates, legend(["bar", "ok", "ok"], ["bar", "failed", "failed"]), busy),
    card("Latency", latencyPlot.svg, times, legend(["line", "p50", "p50"], ["line", "p95", "p95"]), slow),
    clientCard,
  ),
);

let clients, busiest, slowest;

function begin(about) {
  const optional = (title, key) => (about.live ? [{ title, text: (row) => row[key] ?? "", foreign: true }] : []);
  clients = new Table(
    "Clients",
    [
      { title: "Name", text: (row) => row.name, foreign: true, name: true },
      ...optional("Version", "version"),
      ...optional("Era", "era"),
      { title: "Since", text: (row) => moment(row.since) },
      { title: "Calls", text: (row) => count(row.calls), numeric: true },
    ],
    about.live ? "No client is connected." : "The journal knows of no client.",
  );
  clientCard.replaceChildren(clientCard.firstChild, clients.element);
  const tool = [{ title: "Tool", text: (row) => row.tool, foreign: true, name: true }, ...places(about.face)];
  const number = (title, text) => ({ title, text, numeric: true });
  const tools = (title, ...figures) => new Table(title, [...tool, ...figures], "No tool was called yet.");
  busiest = tools("Busiest tools", number("Calls", (row) => count(row.calls)), number("Errors", (row) => count(row.errors)));
  slowest = tools("Slowest tools", number("p50", (row) => duration(row.p50)), number("p95", (row) => duration(row.p95)));
  busy.replaceChildren(h("h3", {}, "Busiest tools"), busiest.element);
  slow.replaceChildren(h("h3", {}, "Slowest tools"), slowest.element);
}

function showServers(servers) {
  const of = (state) => servers.filter((server) => server.state === state).length;
  states.replaceChildren(
    ...STATES.map((state) =>
      h("li", {}, h("strong", {}, count(of(state))), h("span", { class: `state ${state}` }, state)),
    ),
  );
  // A server that never ran has told nobody what it offers.
  const unknown = servers.filter(({ tools }) => tools == null).length;
  uncounted.hidden = unknown === 0;
  uncounted.textContent = unknown === 1 ? "One server never ran, so its definitions are not counted." : `${count(unknown)} servers never ran, so their definitions are not counted.`;
}

function showProblems(list) {
  problemCard.hidden = list.length === 0;
  problems.replaceChildren(...list.map(({ title, text }) => h("li", {}, h("strong", {}, foreign(title)), foreign(text, "pre"))));
}

function showPlot({ slots, seconds, ok, failed, p50, p95, latest }) {
  const rate = (calls) => calls.map((calls) => calls / seconds);
  callPlot.show(slots, [
    { kind: "bar", classes: "ok", values: rate(ok) },
    { kind: "bar", classes: "failed", values: rate(failed) },
  ]);
  latencyPlot.show(slots, [
    { kind: "line", classes: "p50", values: p50 },
    { kind: "line", classes: "p95", values: p95 },
  ]);
  const span = `in the last ${latest.seconds} seconds`;
  const each = (calls) => (calls / latest.seconds).toFixed(1);
  rates.textContent = `Latest: ${each(latest.ok)} ok and ${each(latest.failed)} failed per second, ${span}.`;
  times.textContent =
    latest.p50 === null ? `Latest: no call ended ${span}.` : `Latest: p50 ${duration(latest.p50)}, p95 ${duration(latest.p95)}, ${span}.`;
}

function showTotals({ calls, errors, since, ...tools }) {
  const failed = errors === 0 ? "none failed" : `${count(errors)} failed`;
  totals.textContent = calls === 0 ? "No calls yet." : `${count(calls)} ${calls === 1 ? "call" : "calls"} since ${moment(since)}, ${failed}.`;
  const keyed = (row) => ({ ...row, key: `${row.group}\n${row.server}\n${row.tool}` });
  busiest.show(tools.busy.map(keyed));
  slowest.show(tools.slow.map(keyed));
}

function showContext({ all, seen }) {
  const most = Math.max(all, seen, 1);
  const bar = (title, tokens, classes) => {
    const fill = h("span", { class: `bar ${classes}` });
    fill.style.width = `${(60 * tokens) / most}%`;
    return [h("dt", {}, title), h("dd", {}, fill, h("span", { class: "value" }, `${count(tokens)} tokens`))];
  };
  context.replaceChildren(...bar("All definitions", all, "all"), ...bar("What clients see", seen, "seen"));
  const part = Math.round((100 * (all - seen)) / (all || 1));
  saving.textContent = all > seen ? `The gateway saves ${part} % of the context that all definitions would take.` : "With so few tools it saves nothing.";
}

follow({
  about: begin,
  servers: showServers,
  problems: showProblems,
  plot: showPlot,
  totals: showTotals,
  context: showContext,
  clients: (list) => clients.show(list),
});
