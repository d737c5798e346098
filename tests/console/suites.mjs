// Every sentence that docs/observability.md has about the console, as checks in a browser.

import assert from "node:assert/strict";
import { createServer, request } from "node:http";
import { readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { violations } from "./browser.mjs";
import { Client, fake, Home } from "./gateway.mjs";

const PAGES = [
  ["/console", "Overview"],
  ["/console/servers", "Servers"],
  ["/console/tools", "Tools"],
  ["/console/calls", "Calls"],
];
const tool = (name, description, properties = {}, required = []) =>
  JSON.stringify({ name, description, inputSchema: { type: "object", properties, required } });

/** A page that is signed in and live. Whatever it logs as an error fails the check at `calm`. */
async function open(browser, gateway, path = "", { width = 1280, url = gateway.url, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width, height: 800 }, ...options });
  // A busy machine is slow, which proves nothing.
  context.setDefaultTimeout(100_000);
  const page = await context.newPage();
  page.errors = [];
  page.on("console", (message) => message.type() === "error" && page.errors.push(message.text()));
  page.on("pageerror", (error) => page.errors.push(error.message));
  page.on("dialog", (dialog) => (page.errors.push(`a dialog: ${dialog.message()}`), dialog.dismiss()));
  await page.goto(url.replace("/console", `/console${path}`));
  await page.getByRole("status").filter({ hasText: /^Live$/ }).waitFor();
  return page;
}

const calm = (page) => assert.deepEqual(page.errors, []);
const region = (page, name) => page.getByRole("region", { name, exact: true });
const button = (page, name) => page.getByRole("button", { name, exact: true });
const row = (page, table, text) => page.getByRole("table", { name: table, exact: true }).getByRole("row").filter({ hasText: text });
const headers = (page, table) => page.getByRole("table", { name: table, exact: true }).getByRole("columnheader").allTextContents();

/** The answer to a request with exactly these headers. */
function ask(origin, path, { method = "GET", headers = {}, body } = {}) {
  const { hostname, port } = new URL(origin);
  return new Promise((resolve, reject) => {
    const sent = request({ hostname, port, path, method, headers }, (answer) => {
      let text = "";
      answer.on("data", (chunk) => (text += chunk)).on("end", () => resolve({ status: answer.statusCode, headers: answer.headers, text }));
    });
    sent.on("error", reject).end(body);
  });
}

const keyOf = (gateway) => new URL(gateway.url).hash.replace("#key=", "");

/** Waits until something holds, as the event loop goes round. */
async function until(holds, what) {
  const end = Date.now() + 20_000;
  while (!(await holds())) {
    assert.ok(Date.now() < end, what);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

// Answers with the result that it is given.
const RESULT = tool("result", "Answers as it is told.", { json: { type: "string" } });
const files = () =>
  fake(
    "--tool", tool("read_file", "Reads a file of the project.", {
      path: { type: "string", description: "Where it is" },
      limit: { type: "integer" },
      tags: { type: "array" },
      deep: { type: "boolean" },
    }, ["path"]),
    "--tool", tool("write_file", "Writes a text to a file."),
    "--tool", RESULT,
    "--with", "slow,started,crash,large,report",
    "--stderr", "files: ready",
  );

async function pages(browser, check) {
  const home = new Home();
  const gateway = await home.serve({ toolboxes: { dev: { mcpServers: { files: files(), broken: fake("--stderr", "no database", "--exit", "3") } } } });
  const client = await Client.connect(gateway.mcp, { name: "agent" });
  await client.call("open_toolbox", { toolbox_name: "dev" });
  await client.call("dev__files__read_file", { path: "a" });
  for (const [path, title] of PAGES) {
    await check(`${title}: names, links, accessibility at 320 and 1280 px`, async () => {
      const page = await open(browser, gateway, path.replace("/console", ""));
      assert.equal(await page.title(), `${title} · mcp-workbench`);
      await page.getByRole("heading", { level: 1, name: title, exact: true }).waitFor();
      const nav = page.getByRole("navigation", { name: "Pages", exact: true });
      assert.deepEqual(await nav.getByRole("link").allTextContents(), PAGES.map(([, name]) => name));
      assert.deepEqual(await nav.locator("[aria-current=page]").allTextContents(), [title]);
      for (const width of [1280, 320]) {
        await page.setViewportSize({ width, height: 800 });
        assert.deepEqual(await violations(page), [], `${width} px`);
        const sideways = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.equal(sideways, 0, `${width} px`);
      }
      calm(page);
      await page.context().close();
    });
  }
  await check("the key leaves the address and stays in the tab", async () => {
    const asked = [];
    const page = await open(browser, gateway);
    page.on("request", (request) => asked.push(request.url()));
    assert.equal(page.url(), `${gateway.origin}/console`);
    assert.deepEqual(await page.evaluate(() => [Object.values(sessionStorage).length, localStorage.length, document.cookie]), [1, 0, ""]);
    await page.getByRole("link", { name: "Servers" }).click();
    await page.getByRole("table", { name: "Servers" }).waitFor();
    assert.equal(await page.evaluate(() => history.length <= 3), true);
    assert.ok(asked.every((url) => url.startsWith(gateway.origin) && !url.includes(keyOf(gateway))), asked.join(" "));
    assert.deepEqual(await page.context().cookies(), []);
    await page.context().close();
  });
  await check("all of it weighs little, and the first view comes soon", async () => {
    const page = await open(browser, gateway);
    const sizes = new Map();
    page.on("response", async (response) => {
      if (!response.url().includes("/api/")) sizes.set(response.url(), (await response.body()).length);
    });
    for (const [path, title] of PAGES) {
      await page.goto(gateway.origin + path);
      await page.getByRole("heading", { level: 1, name: title }).waitFor();
    }
    const bytes = [...sizes.values()].reduce((sum, size) => sum + size, 0);
    assert.ok(sizes.size >= 12 && bytes <= 150_000, `${sizes.size} files, ${bytes} bytes`);
    const view = await page.evaluate(
      () =>
        new Promise((resolve) => {
          const look = (list) => list.getEntriesByName("first-contentful-paint").forEach(({ startTime }) => resolve(startTime));
          new PerformanceObserver(look).observe({ type: "paint", buffered: true });
        }),
    );
    console.log(`       ${bytes} bytes in ${sizes.size} files, the first view after ${Math.round(view)} ms`);
    assert.ok(view < 1000, `the first view after ${view} ms`);
    await page.context().close();
  });
  await check("without script it names what a terminal has", async () => {
    const context = await browser.newContext({ javaScriptEnabled: false });
    const page = await context.newPage();
    await page.goto(gateway.url);
    const text = await page.locator("body").innerText();
    for (const verb of ["log", "stats", "doctor"]) assert.ok(text.includes(verb), text);
    await context.close();
  });
  await check("light and dark, and still for those who want it still", async () => {
    const page = await open(browser, gateway, "", { reducedMotion: "reduce" });
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await ground();
    await page.emulateMedia({ colorScheme: "dark", reducedMotion: "reduce" });
    assert.notEqual(await ground(), light);
    assert.deepEqual(await violations(page), []);
    const moving = await page.evaluate(() => [...document.querySelectorAll("*")].filter((element) => parseFloat(getComputedStyle(element).transitionDuration) > 0).length);
    assert.equal(moving, 0);
    await page.context().close();
  });
  await home.end();
}

async function overview(browser, check) {
  const home = new Home();
  const config = { toolboxes: { dev: { mcpServers: { files: files(), broken: fake("--stderr", "no database", "--exit", "3") } } } };
  const gateway = await home.serve(config);
  const page = await open(browser, gateway);
  const client = await Client.connect(gateway.mcp, { name: "agent" });
  await client.call("open_toolbox", { toolbox_name: "dev" });
  for (let n = 0; n < 10; n += 1) await client.call("dev__files__read_file", { path: "a" });
  await client.call("dev__files__result", { json: '{"isError":true,"content":[]}' });
  await check("it says how things are, as they happen", async () => {
    await page.getByText("11 calls").waitFor();
    assert.deepEqual(await page.getByRole("heading", { level: 2 }).allTextContents(), ["Problems", "Servers", "Context", "Calls", "Latency", "Clients"]);
    const servers = page.locator(".counts li");
    assert.deepEqual(await servers.allTextContents(), ["1running", "0idle", "0starting", "1failed"]);
    await page.getByText("broken failed").waitFor();
    await page.getByText("no database").waitFor();
  });
  await check("plots are images that state the latest values", async () => {
    for (const [name, words] of [["Calls per second", /Latest: \d+\.\d ok and \d+\.\d failed per second/], ["Latency", /Latest: p50 [\d.]+ ms, p95 [\d.]+ ms/]]) {
      const image = page.getByRole("img", { name, exact: true });
      await image.waitFor();
      await until(async () => {
        const described = await image.evaluate((svg) => document.getElementById(svg.getAttribute("aria-describedby")).textContent);
        return words.test(described);
      }, name);
      assert.ok(await image.locator("path").count() > 0);
    }
  });
  await check("two bars compare all definitions with what clients see", async () => {
    await page.getByText("All definitions", { exact: true }).waitFor();
    await until(async () => {
      const [all, seen] = (await page.locator(".bars .value").allTextContents()).map((text) => Number(text.replace(/\D/g, "")));
      return all > 100 && seen > 100;
    }, "both have tokens");
    assert.equal(await page.locator(".bars .bar").count(), 2);
  });
  await check("clients are there with name, version, era, since and calls", async () => {
    assert.deepEqual(await headers(page, "Clients"), ["Name", "Version", "Era", "Since", "Calls"]);
    const cells = await row(page, "Clients", "agent").getByRole("cell").allTextContents();
    assert.deepEqual([cells[0], cells[1], cells[2], cells[4]], ["agent", "1.2.3", "legacy", "11"]);
  });
  await check("a file that was refused is shown with line and column until it is mended", async () => {
    const text = JSON.stringify(config, null, 2);
    writeFileSync(gateway.path, text.replace('"toolboxes"', '"toolboxs"'));
    const title = page.getByText(/workbench-config\.json:2:3 was refused/);
    await title.first().waitFor();
    writeFileSync(gateway.path, text);
    await title.first().waitFor({ state: "detached" });
  });
  calm(page);
  await page.context().close();
  await home.end();
}

async function servers(browser, check) {
  const home = new Home();
  const obstacle = home.write("obstacle", "");
  const mcpServers = { files: files(), late: fake("--fail-while", obstacle, "--tools", "1", "--stderr", "late: the obstacle is there") };
  const gateway = await home.serve({ toolboxes: { dev: { mcpServers }, ops: { mcpServers: { rest: fake("--tools", "2") } } } });
  const client = await Client.connect(gateway.mcp);
  await client.call("open_toolbox", { toolbox_name: "dev" });
  const page = await open(browser, gateway, "/servers");
  const state = (server, word) => row(page, "Servers", server).getByRole("cell", { name: word, exact: true }).waitFor();
  await check("the table has all servers and their states", async () => {
    assert.deepEqual(await headers(page, "Servers"), ["Toolbox", "Server", "State", "Tools", "Calls", "Errors", "Memory", "Since"]);
    await state("files", "running");
    await state("late", "failed");
    await state("rest", "idle");
    await row(page, "Servers", "files").getByText(/^\d+\.\d MB$/).waitFor();
  });
  await check("a crash shows within a second, and the region says why", async () => {
    // The answer that never comes is the last thing that the server says.
    const crashed = client.call("dev__files__crash", { code: 7, stderr: ["the disk is \u202e full"] });
    const begun = Date.now();
    await state("files", "failed");
    const took = Date.now() - begun;
    await crashed;
    assert.ok(took <= 1000, `${took} ms`);
    await button(page, "files").click();
    await region(page, "files").getByText(/exited with status 7/).waitFor();
    await region(page, "files").getByText("the disk is \\u202e full").first().waitFor();
    assert.equal(await button(page, "files").getAttribute("aria-expanded"), "true");
  });
  await check("Restart starts it at once, whatever the back-off says", async () => {
    await button(page, "late").click();
    const late = region(page, "late");
    for (let n = 0; n < 4; n += 1) await late.getByRole("button", { name: "Restart" }).click();
    await state("late", "failed");
    rmSync(obstacle);
    await late.getByRole("button", { name: "Restart" }).click();
    await state("late", "running");
    await late.getByText("late: the obstacle is there").waitFor();
  });
  await check("Stop ends it without a word, its tools stay, and the next call starts it", async () => {
    const before = await client.ask("tools/list");
    await region(page, "late").getByRole("button", { name: "Stop" }).click();
    await state("late", "idle");
    const after = await client.ask("tools/list");
    assert.deepEqual(after.result.tools.map(({ name }) => name), before.result.tools.map(({ name }) => name));
    const answer = await client.call("dev__late__tool-1");
    assert.ok(!answer.error && !answer.result.isError, JSON.stringify(answer));
    await state("late", "running");
  });
  await check("calls in flight fail as after a crash, and the reason is told", async () => {
    await client.call("dev__files__slow", { ms: 1 });
    const inFlight = client.call("dev__files__slow", { key: "held" });
    await client.call("dev__files__started", { key: "held" });
    await button(page, "files").click();
    await region(page, "files").getByRole("button", { name: "Stop" }).click();
    const answer = await inFlight;
    assert.ok(answer.error ?? answer.result.isError, JSON.stringify(answer));
    await state("files", "idle");
  });
  await check("live updates leave the focus where it is", async () => {
    await button(page, "rest").focus();
    await client.call("dev__late__tool-1");
    await row(page, "Servers", "late").getByRole("cell", { name: "2", exact: true }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "rest");
    assert.equal(await page.locator("[aria-live]:not([role=status])").count(), 0);
  });
  calm(page);
  await page.context().close();
  await home.end();
}

async function tools(browser, check) {
  const home = new Home();
  const gateway = await home.serve({ toolboxes: { dev: { mcpServers: { files: files() } }, ops: { mcpServers: { cluster: fake("--tool", tool("restart_pod", "Restarts a pod of the cluster.")) } } } });
  const client = await Client.connect(gateway.mcp);
  await client.call("open_toolbox", { toolbox_name: "dev" });
  await client.call("open_toolbox", { toolbox_name: "ops" });
  const page = await open(browser, gateway, "/tools");
  await check("the table has all tools, and the search ranks them", async () => {
    assert.deepEqual(await headers(page, "Tools"), ["Tool", "Toolbox", "Server", "Tokens", "Description"]);
    await button(page, "restart_pod").waitFor();
    await page.getByRole("searchbox", { name: "Search tools", exact: true }).fill("pod of a cluster");
    await button(page, "read_file").waitFor({ state: "detached" });
    assert.equal(await page.getByRole("table", { name: "Tools" }).getByRole("button").first().textContent(), "restart_pod");
    await page.getByRole("searchbox").fill("");
    await button(page, "read_file").waitFor();
  });
  const panel = region(page, "read_file");
  const result = panel.getByRole("region", { name: "Result", exact: true });
  const call = () => panel.getByRole("button", { name: "Call", exact: true }).click();
  await check("fields are named like properties, and texts are sent as they were typed", async () => {
    await button(page, "read_file").click();
    for (const name of ["path", "limit", "tags", "deep"]) await panel.getByRole("textbox", { name, exact: true }).waitFor();
    await panel.getByText('"inputSchema"').waitFor();
    await panel.getByLabel("path", { exact: true }).fill("9007199254740993");
    await panel.getByLabel("limit", { exact: true }).fill("9007199254740993");
    await panel.getByLabel("tags", { exact: true }).fill('["a", 1.10]');
    await call();
    const echoed = result.getByText('"limit":9007199254740993');
    await echoed.waitFor();
    const text = await echoed.textContent();
    assert.ok(text.includes('"path":"9007199254740993"') && text.includes('"tags":["a", 1.10]') && !text.includes("deep"), text);
  });
  await check("what does not fit is said at its field, and nothing is sent", async () => {
    const before = await page.getByRole("region", { name: "Result" }).textContent();
    await panel.getByLabel("limit", { exact: true }).fill("many");
    await call();
    await panel.getByText("must be a whole number").waitFor();
    assert.equal(await panel.getByLabel("limit", { exact: true }).getAttribute("aria-invalid"), "true");
    assert.equal(await page.evaluate(() => document.activeElement.id), await panel.getByLabel("limit", { exact: true }).getAttribute("id"));
    assert.equal(await page.getByRole("region", { name: "Result" }).textContent(), before);
  });
  await check("results are shown as text, JSON and images, with numbers as they came", async () => {
    await button(page, "result").click();
    const other = region(page, "result");
    const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    const json = `{"content":[{"type":"text","text":"hello"},{"type":"image","mimeType":"image/png","data":"${dot}"}],"structuredContent":{"n":9007199254740993}}`;
    await other.getByLabel("json", { exact: true }).fill(json);
    await other.getByRole("button", { name: "Call", exact: true }).click();
    const shown = other.getByRole("region", { name: "Result", exact: true });
    await shown.getByText("hello", { exact: true }).waitFor();
    await shown.getByText("9007199254740993").waitFor();
    await until(() => shown.getByRole("img").evaluate((image) => image.naturalWidth === 1 && image.naturalHeight === 1), "the image is drawn");
    await other.getByRole("button", { name: "Close" }).click();
  });
  await check("everything can be done by keyboard alone, with a focus that can be seen", async () => {
    await page.reload();
    await button(page, "read_file").waitFor();
    const focused = () => page.evaluate(() => document.activeElement.textContent || document.activeElement.id);
    const tabTo = async (wanted) => {
      for (let n = 0; n < 60 && (await focused()) !== wanted; n += 1) await page.keyboard.press("Tab");
      assert.equal(await focused(), wanted);
      const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
      assert.notEqual(outline, "none", wanted);
    };
    await tabTo("Overview");
    await tabTo("search");
    await page.keyboard.type("read file");
    await page.getByText("best first").waitFor();
    await tabTo("read_file");
    await page.keyboard.press("Enter");
    await region(page, "read_file").getByRole("button", { name: "Call" }).waitFor();
    for (let n = 0; n < 10 && (await page.evaluate(() => document.activeElement.id)) !== "field-0"; n += 1) await page.keyboard.press("Tab");
    await page.keyboard.type("by hand");
    await tabTo("Call");
    await page.keyboard.press("Enter");
    await page.getByText('"path":"by hand"').waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Result");
    await page.keyboard.press("Shift+Tab");
    for (let n = 0; n < 20 && (await focused()) !== "Close"; n += 1) await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Enter");
    assert.equal(await focused(), "read_file");
  });
  calm(page);
  await page.context().close();
  await home.end();
}

async function calls(browser, check) {
  const home = new Home();
  const gateway = await home.serve({ toolboxes: { dev: { mcpServers: { files: files() } } } });
  const client = await Client.connect(gateway.mcp, { name: "agent" });
  await client.call("open_toolbox", { toolbox_name: "dev" });
  await client.call("dev__files__read_file", { path: "a" });
  const page = await open(browser, gateway, "/calls");
  const rows = () => page.getByRole("table", { name: "Calls" }).getByRole("row").count();
  await check("calls appear as they are answered, newest first", async () => {
    assert.deepEqual(await headers(page, "Calls"), ["Time", "Client", "Toolbox", "Server", "Tool", "Outcome", "Duration", "Size"]);
    await client.call("dev__files__result", { json: '{"isError":true,"content":[]}' });
    await row(page, "Calls", "tool_error").waitFor();
    const cells = await page.getByRole("table", { name: "Calls" }).getByRole("row").nth(1).getByRole("cell").allTextContents();
    assert.match(cells[0], /^\d\d:\d\d:\d\d\.\d{3}$/);
    assert.deepEqual(cells.slice(1, 6), ["agent", "dev", "files", "result", "tool_error"]);
  });
  await check("the outcome, a filter and a pause choose what is shown", async () => {
    const outcome = page.getByRole("combobox", { name: "Outcome", exact: true });
    assert.deepEqual(await outcome.getByRole("option").allTextContents(), ["All", "ok", "tool_error", "error", "cancelled", "lost"]);
    await outcome.selectOption("tool_error");
    assert.equal(await rows(), 2);
    await outcome.selectOption("All");
    await page.getByRole("textbox", { name: "Filter", exact: true }).fill("READ");
    assert.equal(await rows(), 2);
    await page.getByRole("textbox", { name: "Filter" }).fill("");
    await button(page, "Pause").click();
    await client.call("dev__files__write_file");
    await page.getByRole("link", { name: "Calls" }).waitFor();
    await until(async () => (await page.evaluate(() => performance.now())) > 0, "the page lives");
    assert.equal(await row(page, "Calls", "write_file").count(), 0);
    await button(page, "Resume").click();
    await row(page, "Calls", "write_file").waitFor();
  });
  await check("a call opens, and says how its arguments would be kept", async () => {
    await row(page, "Calls", "write_file").getByRole("button").click();
    const opened = region(page, "Call");
    await opened.getByText("journalArguments").waitFor();
    const told = await opened.locator("dt, dd").allTextContents();
    assert.deepEqual(told.slice(2, 10), ["Client", "agent", "Toolbox", "dev", "Server", "files", "Tool", "write_file"]);
  });
  await check("500 calls are kept", async () => {
    await Promise.all(Array.from({ length: 10 }, async () => {
      for (let n = 0; n < 60; n += 1) await client.call("dev__files__write_file");
    }));
    await until(async () => (await rows()) === 501, "500 rows and a heading");
  });
  calm(page);
  await page.context().close();
  await home.end();
}

// What servers and clients could try. Nothing of it may run, load or turn the page around.
const MARKUP = '<img src=x onerror="window.harm=1"><script>window.harm=1</script>';
const EVIL = `${MARKUP}\u202egpj.exe\u001b[31m`;

async function hostile(browser, check) {
  const home = new Home();
  const evil = tool(`evil\u202e${"x".repeat(80)}`, `${EVIL} ${"long ".repeat(200_000)}`, { [`p${MARKUP}`]: { type: "string", description: EVIL } });
  home.write("evil.jsonl", evil);
  const gateway = await home.serve({
    toolboxes: { dev: { mcpServers: { evil: fake("--tools-of", join(home.folder, "evil.jsonl"), "--tool", RESULT, "--with", "large", "--stderr", EVIL), dead: fake("--stderr", EVIL, "--exit", "1") } } },
  });
  const client = await Client.connect(gateway.mcp, { name: `agent ${EVIL}` });
  await client.call("open_toolbox", { toolbox_name: "dev" });
  await client.call("dev__evil__result", { json: JSON.stringify({ content: [{ type: "text", text: EVIL }] }) });
  for (const [path, title] of PAGES) {
    await check(`${title} shows everything as text`, async () => {
      const page = await open(browser, gateway, path.replace("/console", ""));
      const asked = [];
      page.on("request", (request) => asked.push(request.url()));
      if (title === "Servers") {
        await button(page, "evil").click();
        await region(page, "evil").getByText("\\u202egpj.exe\\u001b[31m").waitFor();
      }
      if (title === "Tools") {
        await page.getByRole("button", { name: /^evil/ }).click();
        await page.getByLabel(`p${MARKUP}`, { exact: true }).fill("x");
        await button(page, "Call").click();
        await page.getByRole("region", { name: "Result" }).waitFor();
        await button(page, "result").click();
        const link = { type: "resource_link", name: EVIL, uri: "javascript:window.harm=1" };
        await page.getByLabel("json", { exact: true }).fill(JSON.stringify({ content: [{ type: "text", text: EVIL }, link], structuredContent: { [MARKUP]: EVIL } }));
        await button(page, "Call").click();
        await region(page, "Result").getByText("\\u202egpj.exe").first().waitFor();
        assert.equal(await page.locator("main a").count(), 0);
      }
      if (title === "Calls") await page.getByText("\\u202egpj.exe").first().waitFor();
      if (title === "Overview") await page.getByText(MARKUP).first().waitFor();
      const found = await page.evaluate(() => {
        const text = document.body.innerText;
        const inside = [...document.querySelectorAll("[dir=auto]")].some((element) => element.textContent.includes("<img"));
        return { harm: window.harm, images: document.querySelectorAll("main img").length, raw: /[\u202e\u001b]/.test(text), inside };
      });
      assert.deepEqual(found, { harm: undefined, images: 0, raw: false, inside: true });
      assert.ok(asked.every((url) => url.startsWith(`${gateway.origin}/console`)), asked.join(" "));
      const sideways = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.equal(sideways, 0);
      calm(page);
      await page.context().close();
    });
  }
  await check("megabytes are cut, and said to be", async () => {
    const page = await open(browser, gateway, "/tools");
    const answer = await page.evaluate(async (key) => {
      const id = JSON.stringify([0, "dev", "evil", "large"]);
      const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
      return (await fetch("/console/api/call", { method: "POST", headers, body: JSON.stringify({ id, arguments: { bytes: 3_000_000 } }) })).json();
    }, keyOf(gateway));
    assert.equal(answer.blocks[0].text.length, 262144);
    assert.match(answer.note, /cut/);
    await page.context().close();
  });
  await home.end();
}

async function trust(browser, check) {
  const home = new Home();
  const gateway = await home.serve({ toolboxes: { dev: { mcpServers: { files: files() } } } }, { args: ["--allow-origin", "http://127.0.0.1:1"] });
  const key = keyOf(gateway);
  const { host } = new URL(gateway.origin);
  const bearer = { authorization: `Bearer ${key}` };
  await check("the key is 128 bits in a file of its own, and lasts over restarts", async () => {
    const path = join(home.folder, "state/mcp-workbench/console.key");
    assert.match(key, /^[0-9a-f]{32}$/);
    assert.equal(readFileSync(path, "utf8").trim(), key);
    assert.equal(statSync(path).mode & 0o777, 0o600);
  });
  await check("pages need no key, everything else does", async () => {
    for (const [path] of PAGES) assert.equal((await ask(gateway.origin, path)).status, 200);
    for (const path of ["events", "server?id=x", "tools", "tool?id=x", "kept?call=0", "nothing"]) {
      const { status } = await ask(gateway.origin, `/console/api/${path}`);
      assert.equal(status, 401, path);
    }
    const misplaced = [{ authorization: key }, { authorization: `Basic ${btoa(`key:${key}`)}` }, { cookie: `key=${key}` }, { "x-key": key }];
    for (const headers of misplaced) assert.equal((await ask(gateway.origin, "/console/api/tools", { headers })).status, 401, JSON.stringify(headers));
    for (const query of [`key=${key}`, `token=${key}`, `access_token=${key}`]) assert.equal((await ask(gateway.origin, `/console/api/tools?${query}`)).status, 401, query);
    assert.equal((await ask(gateway.origin, "/console/api/tools", { headers: bearer })).status, 200);
    assert.equal((await ask(gateway.origin, "/console/api/nothing", { headers: bearer })).status, 404);
  });
  await check("other origins, sites, ports and names are refused", async () => {
    const body = JSON.stringify({ id: "x" });
    for (const [headers, status] of [
      [{ origin: `http://${host}` }, 200],
      [{ origin: `https://${host}` }, 403],
      [{ origin: "http://127.0.0.1:1" }, 403],
      [{ origin: "http://localhost" }, 403],
      [{ origin: "null" }, 403],
      [{ "sec-fetch-site": "same-origin" }, 200],
      [{ "sec-fetch-site": "same-site" }, 403],
      [{ "sec-fetch-site": "cross-site" }, 403],
      [{ host: "rebound.example" }, 403],
      [{ host: "localhost" }, 200],
    ]) {
      const answer = await ask(gateway.origin, "/console/api/tools", { headers: { ...bearer, ...headers } });
      assert.equal(answer.status, status, JSON.stringify(headers));
      assert.equal(answer.headers["access-control-allow-origin"], undefined);
      if (status === 403) {
        const post = await ask(gateway.origin, "/console/api/stop", { method: "POST", headers: { ...bearer, ...headers, "content-type": "application/json" }, body });
        assert.equal(post.status, 403, JSON.stringify(headers));
      }
    }
    const preflight = await ask(gateway.origin, "/console/api/tools", { method: "OPTIONS", headers: { origin: "http://127.0.0.1:1", "access-control-request-method": "GET" } });
    assert.equal(preflight.status, 403);
    assert.equal(preflight.headers["access-control-allow-origin"], undefined);
  });
  await check("what changes something is a POST of JSON", async () => {
    for (const path of ["restart", "stop", "call"]) {
      assert.equal((await ask(gateway.origin, `/console/api/${path}`, { headers: bearer })).status, 405, path);
      const form = { ...bearer, "content-type": "text/plain" };
      assert.equal((await ask(gateway.origin, `/console/api/${path}`, { method: "POST", headers: form, body: "{}" })).status, 415, path);
      const bad = { ...bearer, "content-type": "application/json" };
      assert.equal((await ask(gateway.origin, `/console/api/${path}`, { method: "POST", headers: bad, body: "{" })).status, 400, path);
    }
    assert.equal((await ask(gateway.origin, "/console/api/tools", { method: "POST", headers: bearer, body: "{}" })).status, 405);
  });
  await check("every reply has the headers", async () => {
    for (const [path, headers] of [["/console", {}], ["/console/base.js", {}], ["/console/nothing", {}], ["/console/api/tools", {}], ["/console/api/tools", bearer], ["/console", { host: "rebound.example" }]]) {
      const { headers: found } = await ask(gateway.origin, path, { headers });
      const policy = found["content-security-policy"];
      for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data: blob:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"]) {
        assert.ok(policy.split("; ").includes(part), `${path}: ${policy}`);
      }
      assert.ok(!policy.includes("unsafe"));
      assert.equal(found["x-content-type-options"], "nosniff");
      assert.equal(found["referrer-policy"], "no-referrer");
      assert.equal(found["cross-origin-resource-policy"], "same-origin");
      if (path.includes("/api/")) assert.equal(found["cache-control"], "no-store");
    }
  });
  await check("a page on another port of this machine gets nothing", async () => {
    const other = createServer((_, response) => response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><title>Other</title>"));
    await new Promise((resolve) => other.listen(0, "127.0.0.1", resolve));
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(`http://127.0.0.1:${other.address().port}/`);
    const outcome = await page.evaluate(
      async ([url, key]) => {
        const read = (mode, headers) => fetch(`${url}/console/api/tools`, { mode, headers }).then((answer) => answer.text(), (error) => error.name);
        const frame = document.createElement("iframe");
        frame.src = `${url}/console#key=${key}`;
        document.body.append(frame);
        await new Promise((resolve) => frame.addEventListener("load", resolve));
        let inside;
        try {
          inside = frame.contentDocument?.body.innerText ?? "nothing";
        } catch (error) {
          inside = "nothing";
        }
        return [await read("cors", { authorization: `Bearer ${key}` }), await read("no-cors", {}), inside];
      },
      [gateway.origin, key],
    );
    assert.deepEqual(outcome, ["TypeError", "TypeError", "nothing"]);
    await context.close();
    other.close();
  });
  await check("a page without a key shows how to sign in, and nothing else", async () => {
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(`${gateway.origin}/console/servers`);
    await page.getByRole("heading", { name: "Sign in", exact: true }).waitFor();
    assert.equal((await page.locator("body").innerText()).replace(/\s+/g, " ").trim(), "Sign in Key or token Sign in");
    assert.deepEqual(await violations(page), []);
    const box = page.getByRole("textbox", { name: "Key or token", exact: true });
    await box.fill("wrong");
    await button(page, "Sign in").click();
    await page.getByText("not valid").waitFor();
    await page.getByRole("textbox", { name: "Key or token" }).fill(key);
    await page.keyboard.press("Enter");
    await page.getByRole("table", { name: "Servers" }).waitFor();
    assert.equal(await page.getByRole("heading", { name: "Sign in" }).count(), 0);
    await context.close();
  });
  await check("a deleted key lets nobody in", async () => {
    const page = await open(browser, gateway);
    rmSync(join(home.folder, "state/mcp-workbench/console.key"));
    await page.getByRole("heading", { name: "Sign in", exact: true }).waitFor();
    await page.context().close();
  });
  await gateway.stop();
  await check("without --console there is none", async () => {
    const plain = home.start("mcp-workbench", ["serve", "--http", "127.0.0.1:0", "--config", gateway.path]);
    const [, mcp] = await plain.line(/^listening on (\S+)$/);
    assert.equal((await ask(new URL(mcp).origin, "/console")).status, 404);
    await plain.stop();
  });
  await home.end();
}

async function tokens(browser, check) {
  const home = new Home();
  const auth = { tokens: [{ name: "all", token: "all-secret-token" }, { name: "some", token: "dev-secret-token", toolboxes: ["dev"] }] };
  const gateway = await home.serve({
    auth,
    toolboxes: { dev: { mcpServers: { files: files() } }, secret: { mcpServers: { vault: fake("--tool", tool("hidden_tool", "Hidden"), "--exit-after-handshake") } } },
  });
  await check("with tokens there is no key", () => assert.equal(gateway.url, `${gateway.origin}/console`));
  const everything = await Client.connect(gateway.mcp, { name: "boss", token: "all-secret-token" });
  await everything.call("open_toolbox", { toolbox_name: "secret" });
  const some = await Client.connect(gateway.mcp, { name: "junior", token: "dev-secret-token" });
  await some.call("open_toolbox", { toolbox_name: "dev" });
  await some.call("dev__files__read_file", { path: "a" });
  await everything.call("secret__vault__hidden_tool");
  await check("a token with toolboxes sees what is in them and nothing else", async () => {
    for (const [path] of PAGES) {
      const page = await open(browser, gateway, path.replace("/console", ""), { url: `${gateway.url}#key=dev-secret-token` });
      const text = async () => (await page.locator("main").allInnerTexts()).join(" ");
      await until(async () => /dev|1 call/.test(await text()), "it shows what it may");
      assert.ok(!/vault|secret|hidden_tool|boss/.test(await text()), await text());
      await page.context().close();
    }
    const stream = await fetch(`${gateway.origin}/console/api/events`, { headers: { authorization: "Bearer dev-secret-token" } });
    const { value } = await stream.body.getReader().read();
    assert.ok(!/vault|hidden_tool|boss/.test(new TextDecoder().decode(value)));
  });
  await check("it cannot start or stop servers, and has no buttons for that", async () => {
    const page = await open(browser, gateway, "/servers", { url: `${gateway.url}#key=dev-secret-token` });
    await button(page, "files").click();
    await region(page, "files").getByText("running").first().waitFor();
    assert.equal(await page.getByRole("button", { name: /Restart|Stop/ }).count(), 0);
    const headers = { authorization: "Bearer dev-secret-token", "content-type": "application/json" };
    for (const verb of ["restart", "stop"]) {
      const id = JSON.stringify([0, "dev", "files", 0]);
      assert.equal((await ask(gateway.origin, `/console/api/${verb}`, { method: "POST", headers, body: JSON.stringify({ id }) })).status, 403);
    }
    const id = JSON.stringify([0, "secret", "vault", "hidden_tool"]);
    const call = await ask(gateway.origin, "/console/api/call", { method: "POST", headers, body: JSON.stringify({ id, arguments: {} }) });
    assert.equal(call.status, 404, call.text);
    await page.context().close();
  });
  await check("behind a proxy with TLS, pages are of the same origin", async () => {
    const { host } = new URL(gateway.origin);
    const headers = { authorization: "Bearer all-secret-token", origin: `https://${host}` };
    assert.equal((await ask(gateway.origin, "/console/api/tools", { headers })).status, 200);
  });
  await home.end();
}

async function endurance(browser, check) {
  const home = new Home();
  const config = { toolboxes: { dev: { mcpServers: { files: files() } } } };
  let gateway = await home.serve(config);
  await check("a tab that reads nothing gets the state anew, and slows nobody down", async () => {
    const client = await Client.connect(gateway.mcp);
    await client.call("open_toolbox", { toolbox_name: "dev" });
    const { hostname, port } = new URL(gateway.origin);
    const socket = connect(Number(port), hostname);
    await new Promise((resolve) => socket.once("connect", resolve));
    socket.write(`GET /console/api/events HTTP/1.1\r\nHost: ${hostname}:${port}\r\nAuthorization: Bearer ${keyOf(gateway)}\r\n\r\n`);
    await new Promise((resolve) => socket.once("readable", resolve));
    // Nothing is read from here on. Names this long fill every buffer of the system with a few hundred calls.
    const crowd = await Promise.all(Array.from({ length: 4 }, (_, n) => Client.connect(gateway.mcp, { name: `agent ${n} ${"n".repeat(20_000)}` })));
    for (const one of crowd) await one.call("open_toolbox", { toolbox_name: "dev" });
    const work = (one, times) => Array.from({ length: times }).reduce((before) => before.then(async () => assert.ok((await one.call("dev__files__write_file")).result)), Promise.resolve());
    for (let round = 0; round < 3; round += 1) await Promise.all(crowd.map((one) => work(one, 100)));
    await client.call("dev__files__read_file", { path: "the last" });
    const told = [];
    let rest = "";
    socket.setEncoding("utf8");
    await new Promise((resolve) => {
      socket.on("data", (chunk) => {
        const parts = (rest + chunk).split("event: ");
        rest = parts.pop();
        for (const part of parts.filter((part) => part.startsWith("calls"))) {
          told.push({ anew: part.includes('"anew":true'), rows: part.split('"outcome":').length - 1 });
          if (part.includes('"read_file"')) resolve();
        }
      });
    });
    assert.ok(told.filter(({ anew }) => anew).length >= 2, JSON.stringify(told));
    assert.ok(told.every(({ rows }) => rows <= 500), JSON.stringify(told));
    socket.destroy();
  });
  await check("after a restart on the same address tabs come back by themselves", async () => {
    const page = await open(browser, gateway, "/servers");
    const port = Number(new URL(gateway.origin).port);
    assert.equal(await gateway.stop(), 0);
    await page.getByRole("status").filter({ hasText: /^Reconnecting$/ }).waitFor();
    gateway = await home.serve(config, { port });
    await page.getByRole("status").filter({ hasText: /^Live$/ }).waitFor();
    await row(page, "Servers", "files").waitFor();
    assert.equal(await page.getByRole("table", { name: "Servers" }).count(), 1);
    await page.context().close();
  });
  await check("a tab takes little memory", async () => {
    if (process.platform !== "linux") return;
    const resident = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${gateway.child.pid}/status`, "utf8"))[1]);
    // Whatever is made once is made before.
    await (await open(browser, gateway)).context().close();
    const before = resident();
    const page = await open(browser, gateway);
    await page.getByText("All definitions", { exact: true }).waitFor();
    const grown = resident() - before;
    console.log(`       a tab takes ${grown} kB`);
    assert.ok(grown <= 2048, `${grown} kB`);
    await page.context().close();
  });
  await check("it ends at once, whoever looks", async () => {
    const page = await open(browser, gateway);
    const begun = Date.now();
    assert.equal(await gateway.stop(), 0);
    assert.ok(Date.now() - begun < 5000);
    await page.context().close();
  });
  await home.end();
}

async function catalogue(browser, check) {
  const home = new Home();
  const verbs = ["read", "write", "list", "create", "delete", "search", "update", "merge", "send", "copy"];
  const things = ["file", "issue", "branch", "message", "table", "row", "user", "image", "event", "note"];
  const mcpServers = {};
  for (let server = 0; server < 20; server += 1) {
    const lines = Array.from({ length: 500 }, (_, n) => {
      const [verb, thing] = [verbs[n % 10], things[Math.floor(n / 10) % 10]];
      return tool(`${verb}_${thing}_${server}_${n}`, `Can ${verb} a ${thing} of area ${server}, number ${n}.`, { id: { type: "string" } });
    });
    home.write(`tools-${server}.jsonl`, lines.join("\n"));
    mcpServers[`s${server}`] = fake("--tools-of", join(home.folder, `tools-${server}.jsonl`));
  }
  const gateway = await home.serve({ toolboxes: { all: { mcpServers } } });
  const client = await Client.connect(gateway.mcp);
  await client.call("open_toolbox", { toolbox_name: "all" });
  await check("ten thousand tools are listed, and found while somebody types", async () => {
    const page = await open(browser, gateway, "/tools");
    await page.getByText("10,000 tools").waitFor();
    const box = page.getByRole("searchbox");
    await box.fill("delete an image");
    await page.getByText("best first").waitFor();
    const times = [];
    for (const words of ["merge branch", "send message area 3", "create user", "list rows", "copy note 7"]) {
      const took = await page.evaluate(async (words) => {
        const box = document.getElementById("search");
        const body = document.querySelector("tbody");
        const before = body.firstElementChild;
        const begun = performance.now();
        box.value = words;
        box.dispatchEvent(new Event("input"));
        await new Promise((resolve) => new MutationObserver((_, observer) => body.firstElementChild !== before && (observer.disconnect(), resolve())).observe(body, { childList: true }));
        await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
        return performance.now() - begun;
      }, words);
      times.push(Math.round(took));
    }
    console.log(`       search over 10,000 tools: ${times.join(", ")} ms to the screen`);
    // A build without optimisation searches some twenty times slower than the one that people use.
    assert.ok(Math.min(...times) <= (process.env.OPTIMISED ? 50 : 1500), times.join(" "));
    await box.fill("");
    await page.getByText("10,000 tools").waitFor();
    const rows = () => page.getByRole("table", { name: "Tools" }).getByRole("row").count();
    const first = await rows();
    await page.getByRole("button", { name: "Show more" }).click();
    await until(async () => (await rows()) > first, "more rows");
    await page.context().close();
  });
  await home.end();
}

async function toolman(browser, check) {
  const home = new Home();
  const { command, args } = fake("--tools", "2");
  const config = `[[servers]]\nnamespace = "web"\ncommand = ${JSON.stringify([command, ...args].join(" "))}\n`;
  const gateway = await home.serve(config, { program: "toolman" });
  await check("for toolman, a namespace stands in the place of toolbox and server", async () => {
    const page = await open(browser, gateway, "/servers");
    await row(page, "Servers", "web").getByText("running").waitFor();
    assert.deepEqual(await headers(page, "Servers"), ["Namespace", "State", "Tools", "Calls", "Errors", "Memory", "Since"]);
    await button(page, "web").click();
    await region(page, "web").getByRole("button", { name: "Stop" }).waitFor();
    await page.goto(`${gateway.origin}/console/tools`);
    await button(page, "tool-1").click();
    await button(page, "Call").click();
    await page.getByRole("region", { name: "Result" }).waitFor();
    assert.deepEqual(await headers(page, "Tools"), ["Tool", "Namespace", "Tokens", "Description"]);
    await page.goto(`${gateway.origin}/console/calls`);
    await row(page, "Calls", "tool-1").waitFor();
    assert.deepEqual(await headers(page, "Calls"), ["Time", "Client", "Namespace", "Tool", "Outcome", "Duration", "Size"]);
    calm(page);
    await page.context().close();
  });
  await home.end();
}

/** Opens the address that the verb `console` prints. */
async function verb(home, file) {
  const running = home.start("mcp-workbench", ["console", "--no-open", "--config", file]);
  const [url] = await running.line(/^http:\/\/127\.0\.0\.1:\d+\/console#key=[0-9a-f]{32}$/);
  return Object.assign(running, { url, origin: new URL(url).origin });
}

async function alone(browser, check) {
  const home = new Home();
  const config = { journal: true, journalArguments: "full", toolboxes: { dev: { mcpServers: { files: files(), dead: fake("--stderr", "no database", "--exit", "3") } }, ops: { mcpServers: { rest: fake("--tools", "2") } } } };
  const gateway = await home.serve(config);
  const client = await Client.connect(gateway.mcp, { name: "agent" });
  await client.call("open_toolbox", { toolbox_name: "dev" });
  await client.call("dev__files__read_file", { path: "kept" });
  const console_ = await verb(home, gateway.path);
  await check("the file, what is remembered, and the journal make a console", async () => {
    const page = await open(browser, console_, "/servers");
    assert.deepEqual(await headers(page, "Servers"), ["Toolbox", "Server", "State", "Tools", "Calls", "Errors", "Since"]);
    await row(page, "Servers", "files").getByText("running").waitFor();
    await row(page, "Servers", "dead").getByText("failed").waitFor();
    await row(page, "Servers", "rest").getByText("idle").waitFor();
    await button(page, "dead").click();
    await region(page, "dead").getByText(/exited with status 3/).first().waitFor();
    assert.equal(await page.getByRole("button", { name: /Restart|Stop/ }).count(), 0);
    await page.goto(`${console_.origin}/console/calls`);
    await row(page, "Calls", "read_file").getByRole("button").click();
    await region(page, "Call").getByText('"path": "kept"').waitFor();
    await client.call("dev__files__write_file");
    await row(page, "Calls", "write_file").waitFor();
    await page.goto(`${console_.origin}/console`);
    await page.getByText("2 calls").waitFor();
    assert.deepEqual(await headers(page, "Clients"), ["Name", "Since", "Calls"]);
    calm(page);
    await page.context().close();
  });
  await gateway.stop();
  await check("looking starts nothing, a call does", async () => {
    const page = await open(browser, console_, "/tools");
    await button(page, "read_file").click();
    await page.getByLabel("path", { exact: true }).fill("from the console");
    await button(page, "Call").click();
    await page.getByRole("region", { name: "Result" }).getByText("from the console").waitFor();
    await page.goto(`${console_.origin}/console/servers`);
    await row(page, "Servers", "files").getByText("running").waitFor();
    await page.context().close();
  });
  await check("it runs until Ctrl-C", async () => {
    console_.child.kill("SIGINT");
    assert.equal(await console_.ended, 0);
  });
  await home.end();
}

async function daemon(browser, check) {
  const home = new Home();
  const file = home.write("workbench-config.json", { daemon: true, toolboxes: { dev: { mcpServers: { files: files() } } } });
  const session = home.start("mcp-workbench", ["--config", file]);
  const send = (message) => session.child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  send({ id: 1, method: "initialize", params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "agent", version: "3" } } });
  await session.line(/"id":1/);
  send({ method: "notifications/initialized" });
  send({ id: 2, method: "tools/call", params: { name: "open_toolbox", arguments: { toolbox_name: "dev" } } });
  await session.line(/"id":2/);
  const console_ = await verb(home, file);
  await check("if a daemon runs, it is the console of that daemon", async () => {
    const page = await open(browser, console_, "/servers");
    await row(page, "Servers", "files").getByText("running").waitFor();
    assert.ok((await headers(page, "Servers")).includes("Memory"));
    send({ id: 3, method: "tools/call", params: { name: "dev__files__write_file", arguments: {} } });
    await session.line(/"id":3/);
    await page.goto(`${console_.origin}/console/calls`);
    await row(page, "Calls", "write_file").waitFor();
    await page.goto(`${console_.origin}/console`);
    await row(page, "Clients", "agent").waitFor();
    await page.goto(`${console_.origin}/console/servers`);
    await button(page, "files").click();
    await region(page, "files").getByRole("button", { name: "Restart" }).click();
    await row(page, "Servers", "files").getByText("running").waitFor();
    await page.goto(`${console_.origin}/console/tools`);
    await button(page, "read_file").click();
    await page.getByLabel("path", { exact: true }).fill("in the daemon");
    await button(page, "Call").click();
    await page.getByRole("region", { name: "Result" }).getByText("in the daemon").waitFor();
    calm(page);
    await page.context().close();
  });
  session.child.stdin.end();
  await session.ended;
  const stop = home.start("mcp-workbench", ["stop"]);
  await stop.ended;
  await home.end();
}

export const suites = [
  ["pages", pages],
  ["overview", overview],
  ["servers", servers],
  ["tools", tools],
  ["calls", calls],
  ["hostile content", hostile],
  ["trust", trust],
  ["tokens", tokens],
  ["endurance", endurance],
  ["a large catalogue", catalogue],
  ["toolman", toolman],
  ["the journal alone", alone],
  ["the daemon", daemon],
];
