// Measures what the tool definitions of eight popular servers cost a model, without the gateway and through it, counted by
// the real tokenizer; and holds the estimate of `mcp-workbench tokens` to it.
//
//     cargo build && node benches/tokens/run.mjs           measures, and prints how far the estimate is off
//     cargo build && node benches/tokens/run.mjs --update  also writes results.json, the picture and the table in docs/
//     node benches/tokens/run.mjs --draw                   writes the picture and the table anew from results.json
//     node benches/tokens/run.mjs --check                  fails if they are not those of results.json
//     node benches/tokens/run.mjs --record                 writes tests/fixtures/definitions.json
//
// The servers and the tokenizer are installed from the committed lock file into target/tokens; that is the one step that
// needs a network. No server needs a key to list its tools.

import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { connect } from "./client.mjs";
import { draw, table } from "./draw.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const place = join(root, "target/tokens");
const results = join(here, "results.json");
const gateway = join(root, "target/debug/mcp-workbench");
// What the gateway remembers of servers is kept apart from the user's own.
process.env.XDG_CACHE_HOME = join(place, "cache");

/** The servers by the names of their toolboxes. */
const SERVERS = {
  filesystem: ["@modelcontextprotocol/server-filesystem", place],
  memory: ["@modelcontextprotocol/server-memory"],
  thinking: ["@modelcontextprotocol/server-sequential-thinking"],
  github: ["@modelcontextprotocol/server-github"],
  playwright: ["@playwright/mcp"],
  chrome: ["chrome-devtools-mcp"],
  context7: ["@upstash/context7-mcp"],
  notion: ["@notionhq/notion-mcp-server"],
};
/** Whose definitions are kept in this repository: official servers under the MIT licence. */
const RECORDED = ["brave-search", "github", "gitlab", "google-maps", "slack"].map((name) => `@modelcontextprotocol/server-${name}`);
/** Some of them insist on keys before they list their tools; none is used. */
const KEYS = ["BRAVE_API_KEY", "GITLAB_PERSONAL_ACCESS_TOKEN", "GOOGLE_MAPS_API_KEY", "SLACK_BOT_TOKEN", "SLACK_TEAM_ID"];

function install() {
  mkdirSync(place, { recursive: true });
  for (const file of ["package.json", "package-lock.json"]) copyFileSync(join(here, file), join(place, file));
  if (!existsSync(join(place, "node_modules"))) {
    execFileSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: place, stdio: "inherit" });
  }
}

const manifest = (name) => JSON.parse(readFileSync(join(place, "node_modules", name, "package.json"), "utf8"));

/** The entry of `mcpServers` that runs a package. */
function entry([name, ...args]) {
  const { bin } = manifest(name);
  const script = typeof bin === "string" ? bin : (bin[name.split("/").pop()] ?? Object.values(bin)[0]);
  return { command: "node", args: [join(place, "node_modules", name, script), ...args] };
}

/** What clients hand to a model of a tool. */
const asSent = ({ name, description, inputSchema }) => JSON.stringify({ name, description, inputSchema });
const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);

async function toolsOf(server) {
  const { command, args } = entry(server);
  const client = await connect(command, args);
  const tools = await client.tools();
  await client.end();
  return tools;
}

/** What the gateway shows a client before anything is open, or once one toolbox is. */
async function surface(config, toolbox, count) {
  const client = await connect(gateway, ["--config", config, "--tool-mode", "dynamic"]);
  if (toolbox) await client.call("open_toolbox", { toolbox_name: toolbox });
  const tokens = sum((await client.tools()).map((tool) => count(asSent(tool)))) + count(client.result.instructions);
  await client.end();
  return tokens;
}

async function measure(count) {
  const toolboxes = [];
  for (const [name, server] of Object.entries(SERVERS)) {
    const tools = await toolsOf(server);
    const tokens = sum(tools.map((tool) => count(asSent(tool))));
    toolboxes.push({ name, package: server[0], version: manifest(server[0]).version, tools: tools.length, tokens });
  }
  const config = join(place, "workbench-config.json");
  const servers = Object.entries(SERVERS).map(([name, server]) => [name, { mcpServers: { [name]: entry(server) } }]);
  writeFileSync(config, JSON.stringify({ toolboxes: Object.fromEntries(servers) }, null, 2));
  const asked = execFileSync(gateway, ["tokens", "--json", "--config", config], { encoding: "utf8" });
  const estimated = JSON.parse(asked);
  for (const toolbox of toolboxes) {
    toolbox.open = await surface(config, toolbox.name, count);
    toolbox.estimate = estimated.toolboxes.find(({ toolbox: name }) => name === toolbox.name).tokens;
  }
  return {
    date: new Date().toISOString().slice(0, 10),
    tokenizer: "o200k_base",
    counted_with: `gpt-tokenizer ${manifest("gpt-tokenizer").version}`,
    tools: sum(toolboxes.map(({ tools }) => tools)),
    total: sum(toolboxes.map(({ tokens }) => tokens)),
    gateway: await surface(config, undefined, count),
    estimate: { total: estimated.total, gateway: estimated.gateway },
    toolboxes,
  };
}

/** Prints how far the estimate is off, and whether that is too far. */
function judge({ toolboxes, total, gateway, estimate }) {
  const rows = toolboxes.map(({ name, tokens, estimate }) => [name, tokens, estimate, 10]);
  rows.push(["in all", total, estimate.total, 5], ["the gateway itself", gateway, estimate.gateway, 10]);
  const far = rows.filter(([name, real, ours, allowed]) => {
    const off = (ours / real - 1) * 100;
    console.log(`${name.padEnd(20)} ${String(real).padStart(6)} ${String(ours).padStart(6)} ${off.toFixed(1).padStart(6)} %`);
    return Math.abs(off) > allowed;
  });
  if (far.length > 0) throw new Error(`the estimate is too far off: ${far.map(([name]) => name).join(", ")}`);
}

/** A page with this text between the marks of its generated part. */
function inserted(file, text) {
  const [begin, end] = ["<!-- token figures -->\n", "<!-- /token figures -->"];
  const page = readFileSync(file, "utf8");
  const [from, to] = [page.indexOf(begin) + begin.length, page.indexOf(end)];
  if (from < begin.length || to < from) throw new Error(`${file} has no place for the figures`);
  return page.slice(0, from) + text + page.slice(to);
}

/** Writes what is made of the results, or only checks that it is there. */
function publish(write) {
  const measured = JSON.parse(readFileSync(results, "utf8"));
  const page = join(root, "docs/performance.md");
  const made = { [join(root, "docs/tokens.svg")]: draw(measured), [page]: inserted(page, table(measured)) };
  for (const [file, text] of Object.entries(made)) {
    if (write) writeFileSync(file, text);
    else if (readFileSync(file, "utf8") !== text) throw new Error(`${file} is not that of results.json; --draw writes it anew`);
  }
}

const wish = process.argv[2];
if (wish === "--draw" || wish === "--check") {
  publish(wish === "--draw");
} else {
  install();
  const { encode } = createRequire(join(place, "package.json"))("gpt-tokenizer/encoding/o200k_base");
  const count = (text) => encode(text).length;
  if (wish === "--record") {
    for (const key of KEYS) process.env[key] = "none";
    const recorded = [];
    for (const name of RECORDED) {
      const tools = (await toolsOf([name])).map((tool) => JSON.parse(asSent(tool)));
      const tokens = sum(tools.map((tool) => count(asSent(tool))));
      recorded.push({ package: name, version: manifest(name).version, tokens, tools });
    }
    const text = `[\n${recorded.map((server) => JSON.stringify(server)).join(",\n")}\n]\n`;
    writeFileSync(join(root, "tests/fixtures/definitions.json"), text);
  } else {
    const measured = await measure(count);
    judge(measured);
    if (wish === "--update") {
      writeFileSync(results, `${JSON.stringify(measured, null, 2)}\n`);
      publish(true);
    }
  }
}
