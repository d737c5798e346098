// MCP Apps behind the gateway, in a real browser; README.md tells what is shown. Needs `cargo build` first.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const ROOT = join(HERE, "../..");
const WAIT = 20_000;

if (!existsSync(join(HERE, "node_modules"))) {
  const npm = spawnSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: HERE, stdio: "inherit" });
  if (npm.status !== 0) process.exit(1);
}
const { build } = await import("esbuild");
const { chromium } = await import("playwright-core");

const official = (name) => createRequire(import.meta.url).resolve(`@modelcontextprotocol/server-${name}`);
const example = (name) => ["node", join(official(name), "../index.js"), "--stdio"];
const SERVERS = {
  vanilla: example("basic-vanillajs"),
  react: example("basic-react"),
  monitor: example("system-monitor"),
  left: ["node", join(HERE, "notes.mjs"), "left"],
  right: ["node", join(HERE, "notes.mjs"), "right"],
};
const TOOLS = { vanilla: "get-time", react: "get-time", monitor: "get-system-info", left: "show-left", right: "show-right" };

const workbench = {
  toolboxes: {
    apps: {
      description: "Five servers with apps",
      mcpServers: Object.fromEntries(
        Object.entries(SERVERS).map(([name, [command, ...args]]) => [name, { command, args }]),
      ),
    },
  },
};
const toolman = Object.entries(SERVERS).reduce(
  (file, [name, words]) => `${file}\n[[servers]]\nnamespace = "${name}"\ncommand = ${JSON.stringify(words.join(" "))}\n`,
  `active_toolsets = [${Object.entries(TOOLS).map(([server, tool]) => `"${server}_${tool}"`)}]\nstartup_wait = 20\n`,
);

// Where hosts meet apps. The modern era has no dynamic mode; flat mode shows what dynamic mode has left in memory.
const SETUPS = [
  {
    title: "workbench, dynamic mode",
    program: "mcp-workbench",
    file: ["workbench-config.json", JSON.stringify(workbench)],
    path: "",
    eras: ["legacy"],
    open: { name: "open_toolbox", args: { toolbox_name: "apps" } },
    exposed: (server) => `apps__${server}__${TOOLS[server]}`,
  },
  {
    title: "workbench, flat mode",
    program: "mcp-workbench",
    file: ["workbench-config.json", JSON.stringify({ ...workbench, toolMode: "flat" })],
    path: "",
    eras: ["legacy", "modern"],
    exposed: (server) => `apps__${server}__${TOOLS[server]}`,
  },
  {
    title: "toolman",
    program: "toolman",
    file: ["tools.toml", toolman],
    path: "",
    eras: ["legacy", "modern"],
    exposed: (server) => `${server}_${TOOLS[server]}`,
  },
  {
    title: "/mcp/{toolbox}",
    program: "mcp-workbench",
    file: ["workbench-config.json", JSON.stringify(workbench)],
    path: "/apps",
    eras: ["legacy", "modern"],
    exposed: (server) => (server === "react" ? "react__get-time" : TOOLS[server]),
  },
];

const CHECKS = {
  "the list has app-only tools, told apart": async (tab) => {
    const offered = await tab.evaluate(() => window.host.offered());
    for (const tool of ["poll-system-stats", "left-secret", "right-secret"]) {
      assert.ok(offered.apps.some((name) => name.endsWith(tool)), `${tool} is not among ${offered.apps}`);
    }
    for (const tool of Object.values(TOOLS)) {
      assert.ok(offered.model.some((name) => name.endsWith(tool)), `${tool} is not among ${offered.model}`);
    }
  },
  "two servers with equal URIs each show their own page": async (tab, setup) => {
    const pages = {};
    for (const [server, name] of [["vanilla", "basic-vanillajs"], ["react", "basic-react"]]) {
      pages[server] = await render(tab, setup, server);
      const own = readFileSync(join(official(name), "../mcp-app.html"), "utf8");
      assert.ok(pages[server].html === own, `${server} got another server's page from ${pages[server].uri}`);
      await tab.frameLocator(`iframe[title=${server}]`).getByText(/^\d{4}-\d\d-\d\dT/).waitFor();
    }
    assert.notEqual(pages.vanilla.uri, pages.react.uri);
  },
  "an official app polls its app-only tool": async (tab, setup) => {
    await render(tab, setup, "monitor");
    const frame = tab.frameLocator("iframe[title=monitor]");
    await frame.locator("#info-hostname").filter({ hasNotText: "--" }).waitFor();
    await frame.locator("#memory-percent").filter({ hasText: /\d+%/ }).waitFor();
  },
  "apps call their own tools and read their own resources": async (tab, setup) => {
    for (const server of ["left", "right"]) {
      const { app } = await render(tab, setup, server);
      assert.equal(app, `Notes of ${server}`);
      const frame = tab.frameLocator(`iframe[title=${server}]`);
      await frame.locator("[data-what=done]").waitFor();
      const said = (what) => frame.locator(`[data-what="${what}"]`).textContent();
      assert.equal(await said("result"), `shown by ${server}`);
      assert.equal(await said("app-only tool"), `secret of ${server}`);
      assert.equal(await said("resource"), `note of ${server}`);
      assert.equal(await said("own page"), `Notes of ${server}`);
      // On /mcp/{toolbox} the first server keeps the URI; elsewhere it would be a guess.
      if (setup.path === "") assert.match(await said("shared URI"), /^error: .*ui:\/\/.*left.*ui:\/\/.*right/s);
      else assert.equal(await said("shared URI"), "Notes of left");
    }
  },
};

/** Runs every check in one set-up, and says which failed. */
async function trySetup(setup, era) {
  const gateway = await startGateway(setup);
  const tab = await browser.newPage();
  tab.setDefaultTimeout(WAIT);
  const failed = [];
  const check = async (what, action) => {
    try {
      await within(action());
    } catch (error) {
      failed.push(`${what}: ${error.message.split("\n    at ")[0].replaceAll("\n", "\n         ")}`);
    }
  };
  await tab.goto(page.url);
  await check("the gateway announces the extension", async () => {
    const announced = await tab.evaluate(([url, era]) => window.host.connect(url, era), [gateway.url + setup.path, era]);
    assert.deepEqual(announced, {});
  });
  if (setup.open) await tab.evaluate(({ name, args }) => window.host.call(name, args), setup.open);
  for (const [what, action] of Object.entries(CHECKS)) {
    await check(what, () => action(tab, setup));
  }
  await tab.close();
  await gateway.stop();
  return failed;
}

async function render(tab, setup, server) {
  const made = await tab.evaluate(([name, title]) => window.host.render(name, title), [setup.exposed(server), server]);
  assert.equal(made.isError, false);
  assert.match(made.uri, /^ui:\/\//);
  return made;
}

/** Starts the gateway over HTTP on a free port; it is ready when it names its address. */
async function startGateway({ program, file: [name, text] }) {
  writeFileSync(join(place, name), text);
  const built = join(process.env.GATEWAY_DIR ?? join(ROOT, "target/debug"), program);
  const environment = { ...process.env, HOME: place, XDG_STATE_HOME: place, XDG_CACHE_HOME: place };
  const child = spawn(built, ["serve", "--http", "127.0.0.1:0", "--config", join(place, name)], {
    cwd: place,
    env: environment,
    stdio: ["ignore", "pipe", "inherit"],
  });
  process.once("exit", () => child.kill("SIGKILL"));
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.once("error", (error) => assert.fail(`${built}: ${error.message}; run \`cargo build\` first`));
  const line = await Promise.race([
    new Promise((resolve) => createInterface(child.stdout).once("line", resolve)),
    ended.then((status) => assert.fail(`the gateway ended with status ${status}`)),
  ]);
  return {
    url: line.replace("listening on ", ""),
    stop: async () => {
      child.kill("SIGTERM");
      assert.equal(await ended, 0, "the gateway's exit status");
    },
  };
}

/** Serves the host's page, bundled from `host.mjs`, from a loopback origin, which the gateway lets in. */
async function servePage() {
  const bundle = await build({ entryPoints: [join(HERE, "host.mjs")], bundle: true, format: "iife", write: false });
  const script = bundle.outputFiles[0].text;
  const server = createServer((request, response) => {
    const [type, body] = request.url === "/host.js"
      ? ["text/javascript", script]
      : ["text/html", '<!doctype html><meta charset="utf-8"><title>Host</title><body><script src="/host.js"></script>'];
    response.writeHead(200, { "content-type": `${type}; charset=utf-8` }).end(body);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, url: `http://127.0.0.1:${server.address().port}/` };
}

function findBrowser() {
  const names = ["chromium", "chromium-browser", "google-chrome"];
  const folders = process.env.PATH.split(delimiter);
  const found = [process.env.BROWSER, ...names.flatMap((name) => folders.map((folder) => join(folder, name)))]
    .find((path) => path && existsSync(path));
  assert.ok(found, `no ${names.join(", ")} in PATH; BROWSER names another`);
  return found;
}

function within(promise) {
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error(`nothing after ${WAIT / 1000} s`)), WAIT).unref());
  return Promise.race([promise, late]);
}

const place = mkdtempSync(join(tmpdir(), "apps-"));
const browser = await chromium.launch({ executablePath: findBrowser(), args: ["--no-sandbox"] });
const page = await servePage();
let failures = 0;
for (const setup of SETUPS) {
  for (const era of setup.eras) {
    const failed = await trySetup(setup, era);
    failures += failed.length;
    console.log(`${failed.length === 0 ? "ok    " : "FAILED"} ${setup.title}, ${era} era`);
    for (const failure of failed) console.log(`       ${failure}`);
  }
}
await browser.close();
page.server.close();
rmSync(place, { recursive: true, force: true });
process.exitCode = failures === 0 ? 0 : 1;
