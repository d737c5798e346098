// Plots of the last ten minutes, as images that a screen reader can name and describe.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 150;
const EDGE = { left: 46, right: 8, top: 10, bottom: 20 };

function s(tag, attributes = {}, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}

/** A sample of how a series is drawn, for the legend. */
export function sample(kind, classes) {
  const picture = s("svg", { class: "plot-sample plot", viewBox: "0 0 18 10", "aria-hidden": "true" });
  picture.classList.remove("plot-sample");
  picture.append(
    kind === "bar"
      ? s("rect", { x: 0, y: 1, width: 18, height: 8, class: classes })
      : s("line", { x1: 0, x2: 18, y1: 5, y2: 5, class: `line ${classes}` }),
  );
  return picture;
}

/** The least round number that is not below this one. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

/** An image with this accessible name, described by the element with the id `describedBy`. */
export class Plot {
  constructor(name, describedBy, unit) {
    this.unit = unit;
    this.svg = s("svg", { class: "plot", role: "img", "aria-label": name, "aria-describedby": describedBy });
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  /**
   * Shows series over `slots` equal spans of time, the latest last. A series is `{ kind, classes, values }`: bars stand upon
   * each other, lines have gaps where there is no value (null).
   */
  show(slots, series) {
    Object.assign(this, { slots, series });
    this.draw();
  }

  draw() {
    const width = this.svg.clientWidth;
    if (!width || !this.series) return;
    const inner = { width: width - EDGE.left - EDGE.right, height: HEIGHT - EDGE.top - EDGE.bottom };
    const bars = this.series.filter(({ kind }) => kind === "bar");
    const stacked = Array.from({ length: this.slots }, (_, slot) => bars.reduce((sum, { values }) => sum + values[slot], 0));
    const lines = this.series.filter(({ kind }) => kind === "line");
    const top = ceiling(Math.max(...stacked, ...lines.flatMap(({ values }) => values), 0));
    const x = (slot) => EDGE.left + (slot * inner.width) / this.slots;
    const y = (value) => EDGE.top + inner.height * (1 - value / top);
    const parts = [];
    for (const part of [0, 0.5, 1]) {
      const at = y(top * part);
      parts.push(s("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: at, y2: at }));
      parts.push(s("text", { x: EDGE.left - 6, y: at + 4, "text-anchor": "end" }, this.unit(top * part)));
    }
    parts.push(s("text", { x: EDGE.left, y: HEIGHT - 4 }, "10 min ago"));
    parts.push(s("text", { x: width - EDGE.right, y: HEIGHT - 4, "text-anchor": "end" }, "now"));
    const base = new Array(this.slots).fill(0);
    for (const { classes, values } of bars) {
      const path = values.map((value, slot) => {
        if (value === 0) return "";
        const [from, to] = [y(base[slot]), y((base[slot] += value))];
        const wide = Math.max(inner.width / this.slots - 0.6, 0.8);
        return `M${x(slot)} ${from}h${wide}V${Math.min(to, from - 1)}h${-wide}z`;
      });
      parts.push(s("path", { class: classes, d: path.join("") }));
    }
    for (const { classes, values } of lines) {
      let pen = "M";
      const path = values.map((value, slot) => {
        if (value === null) return (pen = "M"), "";
        const alone = pen === "M" && (values[slot + 1] ?? null) === null;
        const point = `${pen}${x(slot + 0.5)} ${y(value)}${alone ? "h0.01" : ""}`;
        pen = "L";
        return point;
      });
      parts.push(s("path", { class: `line ${classes}`, d: path.join("") }));
    }
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...parts);
  }
}
