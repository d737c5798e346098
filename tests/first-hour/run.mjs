#!/usr/bin/env node
// What a new user does in the first hour, in a fresh home with real clients' files and real servers. README.md has the
// whole story; this file installs what is pinned and starts hour.mjs where all processes are its own.

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { modern } from "../agents/agents/claude-code.mjs";
import { CACHE, installNode } from "../agents/install.mjs";

const here = import.meta.dirname;
const { values: options } = parseArgs({
  options: {
    gateway: { type: "string", default: join(here, "../../target/release") },
    keep: { type: "boolean", default: false },
  },
});
const program = join(resolve(options.gateway), "mcp-workbench");
if (!existsSync(program)) throw new Error(`${program} is not there; run: cargo build --release`);
const installed = installNode(CACHE, join(here, "../agents"));
const places = {
  program,
  installed,
  claude: join(installed, modern.package, "claude"),
  everything: join(installNode(CACHE, join(here, "../npm")), "@modelcontextprotocol/server-everything/dist/index.js"),
  tokenizer: join(installNode(CACHE, here), "gpt-tokenizer/esm/encoding/o200k_base.js"),
};

const apart = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];
const inside = [process.execPath, join(here, "hour.mjs"), JSON.stringify({ places, keep: options.keep })];
const { status, error } = spawnSync("unshare", [...apart, ...inside], { stdio: "inherit" });
if (error) throw error;
process.exit(status ?? 1);
