// What people see of the figures: the picture of the README, and the table in docs/performance.md.

const WIDTH = 760;
const LEFT = 150;
const ROW = 30;
const TOP = 58;
/** The longest bar, which leaves room for its number. */
const LONGEST = WIDTH - LEFT - 90;

const number = (value) => value.toLocaleString("en");

/** Bars: everything at once, the gateway with nothing open, and with each toolbox open. */
export function draw({ date, tokenizer, tools, total, gateway, toolboxes }) {
  const opened = [...toolboxes].sort((a, b) => a.open - b.open);
  const bars = [
    ["everything at once", total, "all"],
    ["nothing open", gateway, "none"],
    ...opened.map(({ name, open }) => [`${name} open`, open, "one"]),
  ];
  const rows = bars.map(([label, tokens, kind], n) => {
    const y = TOP + n * ROW;
    const width = Math.max(2, Math.round((tokens / total) * LONGEST));
    return `  <text class="label" x="${LEFT - 10}" y="${y + 15}">${label}</text>
  <rect class="${kind}" x="${LEFT}" y="${y}" width="${width}" height="20" rx="3"/>
  <text x="${LEFT + width + 8}" y="${y + 15}">${number(tokens)}</text>`;
  });
  const height = TOP + bars.length * ROW + 34;
  const title = `What a model reads before the first question: tokens of ${toolboxes.length} servers with ${tools} tools`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="${title}">
  <style>
    text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
    .label { text-anchor: end; }
    .title { font-size: 15px; font-weight: 600; }
    .foot { font-size: 11px; fill: #59636e; }
    .all { fill: #cf222e; } .none { fill: #1a7f37; } .one { fill: #0969da; }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc; } .foot { fill: #9198a1; }
      .all { fill: #f85149; } .none { fill: #3fb950; } .one { fill: #4493f8; }
    }
  </style>
  <text class="title" x="16" y="28">${title}</text>
${rows.join("\n")}
  <text class="foot" x="16" y="${height - 12}">Measured on ${date} with ${tokenizer} by benches/tokens/run.mjs. Each blue bar includes the gateway itself.</text>
</svg>
`;
}

/** The same as a table, with the estimate of `mcp-workbench tokens` beside it. */
export function table({ date, tokenizer, counted_with, tools, total, gateway, estimate, toolboxes }) {
  const off = (ours, real) => `${ours >= real ? "+" : "−"}${Math.abs((ours / real - 1) * 100).toFixed(1)} %`;
  const rows = toolboxes.map(
    (it) =>
      `| \`${it.package}\` ${it.version} | ${it.tools} | ${number(it.tokens)} | ${number(it.open)} | ${off(it.estimate, it.tokens)} |`,
  );
  return `Measured on ${date}: ${tokenizer}, counted with ${counted_with}.

| server | tools | definitions | its toolbox open | estimate |
|---|--:|--:|--:|--:|
${rows.join("\n")}
| everything at once | ${tools} | ${number(total)} | | ${off(estimate.total, total)} |
| the gateway, nothing open | 1 | ${number(gateway)} | | ${off(estimate.gateway, gateway)} |
`;
}
