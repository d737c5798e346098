// What can this tool do? Search, look at a definition, and try it.

import { ask, count, duration, follow, foreign, h, places, Split, Table, visible } from "./base.js";
import { assemble, fields, pretty } from "./form.js";

// Only pictures that an <img> shows.
const PICTURE = /^image\/[a-z0-9.+-]+$/i;

const split = new Split();
const box = h("input", { id: "search", type: "search", autocomplete: "off", spellcheck: "false", oninput: () => find() });
const tally = h("p", { class: "quiet" });
const more = h("button", { type: "button", class: "more", hidden: true, onclick: () => extend() }, "Show more");
document.getElementById("page").append(
  h("div", { class: "controls" }, h("div", { class: "field wide" }, h("label", { for: "search" }, "Search tools"), box), tally),
  split.element,
  more,
);

let table, asking, total = 0, version;
const NOTHING = "No tool is known. Servers that never ran are not known yet.";

function begin(about) {
  table = new Table(
    "Tools",
    [
      { title: "Tool", text: (row) => row.tool, foreign: true, name: true, button: open },
      ...places(about.face),
      { title: "Tokens", text: (row) => count(row.tokens), numeric: true },
      { title: "Description", text: (row) => row.description, foreign: true, long: true },
    ],
    NOTHING,
  );
  split.hold(table);
}

/** Shows what fits the words in the box; an answer that comes after a later question does not count. */
async function find() {
  asking?.abort();
  const { signal } = (asking = new AbortController());
  const words = box.value.trim();
  try {
    const found = await ask(`tools?from=0&query=${encodeURIComponent(words)}`, { signal });
    ({ total, version } = found);
    table.empty.textContent = words ? "Nothing fits these words." : NOTHING;
    table.show(found.tools.map(keyed));
    table.mark(split.key);
    tell(words);
  } catch (error) {
    if (!signal.aborted) tally.textContent = error.message;
  }
}

const keyed = (row) => ({ ...row, key: row.id });

function tell(words) {
  tally.textContent = words ? `${count(total)} found, best first` : `${count(total)} tools`;
  more.hidden = words !== "" || table.rows.size >= total;
}

/** Adds the next rows of the whole list. */
async function extend() {
  const { signal } = asking;
  const from = table.rows.size;
  const found = await ask(`tools?from=${from}&query=`, { signal }).catch(() => undefined);
  if (!found || table.rows.size !== from) return;
  table.add(found.tools.map(keyed));
  tell("");
}

new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && !more.hidden && extend(), {
  rootMargin: "300px",
}).observe(more);

async function open(row, button) {
  const about = foreign(row.description, "p");
  split.open(row.tool, row.key, button, about);
  let definition;
  try {
    ({ definition } = await ask(`tool?id=${encodeURIComponent(row.key)}`));
  } catch (error) {
    split.panel.append(h("p", { class: "wrong", role: "alert" }, foreign(error.message)));
    return;
  }
  if (split.key !== row.key) return;
  const parsed = JSON.parse(definition);
  if (typeof parsed.description === "string") {
    about.textContent = visible(parsed.description);
    about.classList.add("about");
    about.tabIndex = 0;
  }
  const result = h("section", { class: "result", "aria-label": "Result", tabindex: "-1", hidden: true });
  split.panel.append(form(row, fields(parsed.inputSchema), result), result, h("h3", {}, "Definition"), foreign(pretty(definition), "pre"));
}

function form(row, all, result) {
  const controls = new Map();
  const parts = all.map((field, at) => {
    const id = `field-${at}`;
    const attributes = { id, autocomplete: "off", spellcheck: "false", "aria-describedby": `${id}-about`, "aria-required": field.required ? "true" : null };
    const control = field.tall ? h("textarea", { ...attributes, rows: "1" }) : h("input", { ...attributes, type: "text" });
    const wrong = h("span", { class: "wrong" });
    const words = [field.types.join(" or ") || "any JSON, else a text", field.required ? "required" : "", ...field.choices.map((choice) => JSON.stringify(choice))];
    const hint = h("span", { id: `${id}-about`, class: "quiet" }, visible(words.filter(Boolean).join(", ")), ...(field.about ? [" · ", foreign(field.about)] : []), wrong);
    controls.set(field.name, { control, wrong });
    return h("div", { class: "field" }, h("label", { for: id, dir: "auto", class: "foreign" }, visible(field.name)), control, hint);
  });
  const button = h("button", { class: "primary" }, "Call");
  const submit = async (event) => {
    event.preventDefault();
    const { text, wrong } = assemble(all, (field) => controls.get(field.name).control.value);
    for (const [name, { control, wrong: place }] of controls) {
      const why = wrong.get(name);
      place.textContent = why ? ` ${why}` : "";
      control.toggleAttribute("aria-invalid", false);
      if (why) control.setAttribute("aria-invalid", "true");
    }
    const [first] = wrong.keys();
    if (first !== undefined) return controls.get(first).control.focus();
    button.disabled = true;
    const begun = performance.now();
    try {
      show(result, await ask("call", { body: `{"id":${JSON.stringify(row.key)},"arguments":${text}}` }), performance.now() - begun);
    } catch (error) {
      result.replaceChildren(h("h3", {}, "Result"), h("p", { class: "wrong" }, foreign(error.message)));
    }
    button.disabled = false;
    result.hidden = false;
    result.focus();
  };
  return h("form", { onsubmit: submit, novalidate: true }, ...parts, h("div", {}, button));
}

/** Shows a result: texts and JSON as they came, and pictures. */
function show(region, { outcome, blocks, note }, ms) {
  const line = h("p", { class: outcome === "ok" ? "quiet" : "wrong" }, `${outcome}, ${duration(ms)}`);
  const parts = blocks.map((block, at) => {
    if (block.kind === "image" && PICTURE.test(block.mime)) {
      return h("img", { src: `data:${block.mime};base64,${block.data}`, alt: `Image ${at + 1} of the result` });
    }
    return foreign(block.kind === "json" ? pretty(block.text) : (block.text ?? ""), "pre");
  });
  region.replaceChildren(h("h3", {}, "Result"), line, ...parts, ...(note ? [h("p", { class: "quiet" }, note)] : []));
}

follow({
  about(now) {
    begin(now);
    find();
  },
  again: () => find(),
  // A server has come, gone, or offers something else.
  catalog(now) {
    if (version !== undefined && version !== now) find();
  },
});
