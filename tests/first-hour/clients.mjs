// The home of a new user: what the files of four clients say, and the two servers on loopback that they rely on.

import { execFileSync, spawn } from "node:child_process";
import { createServer } from "node:http";

/** How long the slow server's registry takes to answer first: longer than an opening waits (`connectTimeout`, 30 s). */
const SLOW = 40_000;

/** Servers by what is expected of them; the toolbox of each is named after it. */
export const WORKING = ["filesystem", "memory", "everything", "github", "playwright", "thinking", "notion"];
export const FAILING = "brave";
export const UNSET = "maps";
export const SLOW_SERVER = "notion";

/** A token in clear text, which Claude Code's file has at first, and no client's file later. */
export const SECRET = `ghp_${"0".repeat(36)}`;

const npx = (name, ...args) => ({ command: "npx", args: ["-y", name, ...args] });
const official = (name, ...args) => npx(`@modelcontextprotocol/server-${name}`, ...args);

/** The clients' files, by their path in the home. */
export function clientFiles({ project, everything, registry }) {
  const claude = {
    numStartups: 3,
    hasCompletedOnboarding: true,
    mcpServers: {
      filesystem: official("filesystem", project),
      memory: official("memory"),
      everything: { type: "http", url: everything },
      github: { ...official("github"), env: { GITHUB_PERSONAL_ACCESS_TOKEN: SECRET } },
      brave: official("brave-search"),
      maps: { ...official("google-maps"), env: { GOOGLE_MAPS_API_KEY: "${GOOGLE_MAPS_API_KEY}" } },
    },
  };
  const cursor = { mcpServers: { memory: official("memory"), playwright: npx("@playwright/mcp") } };
  const notion = { ...npx("@notionhq/notion-mcp-server"), env: { npm_config_registry: registry } };
  return {
    ".claude.json": JSON.stringify(claude, null, 2),
    ".cursor/mcp.json": `${JSON.stringify(cursor, null, "\t")}\n`,
    ".config/Code/User/mcp.json": `{
  // What I use for notes.
  "servers": {
    "notion": ${JSON.stringify(notion)},
  }
}
`,
    ".codex/config.toml": `model = "gpt-5" # the default

[mcp_servers.thinking]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-sequential-thinking"]
`,
  };
}

/** Starts the server that is behind a URL, and gives the URL once it listens. */
export async function startEverything(script) {
  const port = await freePort();
  const env = { ...process.env, PORT: port };
  const child = spawn(process.execPath, [script, "streamableHttp"], { env, stdio: "ignore" });
  const url = `http://127.0.0.1:${port}/mcp`;
  for (let up = false; !up; ) {
    if (child.exitCode !== null) throw new Error(`${script} ended with status ${child.exitCode}`);
    up = await fetch(url).then(() => true, () => false);
  }
  return { url, stop: () => child.kill() };
}

/** Starts a registry that keeps its clients waiting at first, then sends them to the real one. */
export async function startSlowRegistry() {
  const real = execFileSync("npm", ["config", "get", "registry"], { encoding: "utf8" }).trim().replace(/\/$/, "");
  let awake;
  const server = createServer(async (incoming, outgoing) => {
    await (awake ??= new Promise((resolve) => setTimeout(resolve, SLOW)));
    outgoing.writeHead(307, { location: real + incoming.url }).end();
  });
  await listen(server);
  return { url: `http://127.0.0.1:${server.address().port}`, stop: () => server.close() };
}

async function freePort() {
  const server = createServer();
  await listen(server);
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const listen = (server) => new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
