// What is wrong with this server?

import { ask, count, follow, foreign, h, moment, places, size, Split, Table } from "./base.js";

// How often an open server is looked at again, for its stderr.
const AGAIN = 2000;

const split = new Split();
let about, table, servers = [];
document.getElementById("page").append(split.element);

function begin(now) {
  about = now;
  const [group, server] = places(about.face);
  const name = { ...(server ?? group), button: open, name: true };
  table = new Table(
    "Servers",
    [
      ...(server ? [group] : []),
      name,
      { title: "State", text: (row) => row.state, mark: (row) => `state ${row.state}` },
      { title: "Tools", text: (row) => (row.tools === null ? "" : count(row.tools)), numeric: true },
      { title: "Calls", text: (row) => count(row.calls), numeric: true },
      { title: "Errors", text: (row) => count(row.errors), numeric: true },
      ...(about.live ? [{ title: "Memory", text: (row) => (row.memory ? size(row.memory) : ""), numeric: true }] : []),
      { title: "Since", text: (row) => (row.since ? moment(row.since) : "") },
    ],
    "The configuration has no servers.",
  );
  split.hold(table);
}

function open(row, button) {
  const state = h("dl", { class: "pairs" });
  const why = h("div");
  const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
  const lines = h("div");
  const order = (verb) => async () => {
    wrong.hidden = true;
    try {
      await ask(verb, { body: JSON.stringify({ id: row.key }) });
    } catch (error) {
      wrong.replaceChildren(foreign(error.message));
      wrong.hidden = false;
    }
    look();
  };
  const act = (name, verb) => h("button", { type: "button", onclick: order(verb) }, name);
  const actions = about.orders ? [h("div", { class: "actions" }, act("Restart", "restart"), act("Stop", "stop"))] : [];
  split.open(row.server || row.group, row.key, button, state, ...actions, wrong, why, lines);
  let shown;
  const look = async () => {
    const answer = await ask(`server?id=${encodeURIComponent(row.key)}`).catch(() => undefined);
    if (!answer || split.key !== row.key || JSON.stringify(answer) === shown) return;
    shown = JSON.stringify(answer);
    const pairs = [["State", h("span", { class: `state ${answer.state}` }, answer.state)], ["Server", foreign(answer.label)]];
    if (answer.pid) pairs.push(["Process", String(answer.pid)]);
    state.replaceChildren(...pairs.flatMap(([title, value]) => [h("dt", {}, title), h("dd", {}, value)]));
    why.replaceChildren(...(answer.why ? [h("h3", {}, "Why it failed"), foreign(answer.why, "pre")] : []));
    if (!about.live) return;
    const quiet = h("p", { class: "quiet" }, "It has written nothing to stderr.");
    lines.replaceChildren(h("h3", {}, "Last lines of stderr"), answer.stderr.length ? foreign(answer.stderr.join("\n"), "pre") : quiet);
  };
  split.look = look;
  look();
}

setInterval(() => split.key !== undefined && split.look(), AGAIN);

follow({
  about: begin,
  servers(list) {
    servers = list.map((row) => ({ ...row, key: row.id }));
    table.show(servers);
    table.mark(split.key);
    if (split.key !== undefined) split.look();
  },
});
