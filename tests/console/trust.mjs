// Who may look, and what servers and clients can do to those who look.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { violations } from "./browser.mjs";
import { Client, fake, Home } from "./gateway.mjs";
import { ask, button, calm, files, keyOf, open, PAGES, region, RESULT, row, tool, until } from "./visit.mjs";

// What servers and clients could try. Nothing of it may run, load or turn the page around.
const MARKUP = '<img src=x onerror="window.harm=1"><script>window.harm=1</script>';
const EVIL = `${MARKUP}\u202egpj.exe\u001b[31m`;

export async function hostile(browser, check) {
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
      for (const width of [1280, 320]) {
        await page.setViewportSize({ width, height: 800 });
        const sideways = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.equal(sideways, 0, `${width} px`);
      }
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

export async function secrets(browser, check) {
  const home = new Home();
  home.write("secrets.env", "API_KEY=hunter22-secret\n");
  const said = "the key is hunter22-secret";
  const chatty = { ...fake("--tool", tool("speak", said, { text: { type: "string" } }), "--stderr", said), env: { API_KEY: "${API_KEY}" } };
  const config = { envFile: "secrets.env", journal: true, journalArguments: "full", toolboxes: { dev: { mcpServers: { chatty } } } };
  const gateway = await home.serve(config);
  const client = await Client.connect(gateway.mcp, { name: `agent hunter22-secret` });
  await client.call("open_toolbox", { toolbox_name: "dev" });
  await client.call("dev__chatty__speak", { text: said });
  await check("secrets are shown by their names, on every page", async () => {
    const looks = {
      Overview: (page) => row(page, "Clients", "agent ${API_KEY}").waitFor(),
      Servers: async (page) => {
        await button(page, "chatty").click();
        await region(page, "chatty").getByText("the key is ${API_KEY}").waitFor();
      },
      Tools: async (page) => {
        await row(page, "Tools", "the key is ${API_KEY}").getByRole("button").click();
        await page.getByLabel("text", { exact: true }).fill("hunter22-secret");
        await button(page, "Call").click();
        await region(page, "Result").getByText("${API_KEY}").waitFor();
        await page.getByLabel("text", { exact: true }).fill("");
      },
      Calls: async (page) => {
        await row(page, "Calls", "agent ${API_KEY}").getByRole("button").click();
        await region(page, "Call").getByText('"text": "the key is ${API_KEY}"').waitFor();
      },
    };
    for (const [path, title] of PAGES) {
      const page = await open(browser, gateway, path.replace("/console", ""));
      const heard = [];
      page.on("response", (answer) => !answer.url().endsWith("/events") && heard.push(answer.text().catch(() => "")));
      await looks[title](page);
      const all = (await page.content()) + (await Promise.all(heard)).join("");
      assert.ok(!all.includes("hunter22"), title);
      await page.context().close();
    }
    const stream = await fetch(`${gateway.origin}/console/api/events`, { headers: { authorization: `Bearer ${keyOf(gateway)}` } });
    const { value } = await stream.body.getReader().read();
    const told = new TextDecoder().decode(value);
    assert.ok(told.includes("agent ${API_KEY}") && !told.includes("hunter22"), told);
    assert.equal(JSON.parse(/^event: clients\ndata: (.*)$/m.exec(told)[1])[0].calls, 1);
  });
  await home.end();
}

export async function trust(browser, check) {
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
    assert.ok(!gateway.stdout.join().includes(key), "the address stands on stderr");
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
    const json = { ...bearer, "content-type": "application/json" };
    for (const [status, path, request] of [
      [200, "/console", {}],
      [200, "/console/base.js", {}],
      [404, "/console/nothing", {}],
      [403, "/console", { headers: { host: "rebound.example" } }],
      [405, "/console", { method: "POST" }],
      [401, "/console/api/tools", {}],
      [200, "/console/api/tools", { headers: bearer }],
      [403, "/console/api/tools", { headers: { ...bearer, origin: "null" } }],
      [404, "/console/api/nothing", { headers: bearer }],
      [405, "/console/api/stop", { headers: bearer }],
      [415, "/console/api/stop", { method: "POST", headers: bearer, body: "{}" }],
      [400, "/console/api/stop", { method: "POST", headers: json, body: "{" }],
      [404, "/console/api/stop", { method: "POST", headers: json, body: '{"id":"x"}' }],
    ]) {
      const { status: answered, headers: found } = await ask(gateway.origin, path, request);
      assert.equal(answered, status, `${path} ${JSON.stringify(request)}`);
      const policy = found["content-security-policy"];
      for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data: blob:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"]) {
        assert.ok(policy.split("; ").includes(part), `${path}: ${policy}`);
      }
      assert.ok(!policy.includes("unsafe"));
      assert.equal(found["x-content-type-options"], "nosniff");
      assert.equal(found["referrer-policy"], "no-referrer");
      assert.equal(found["cross-origin-resource-policy"], "same-origin");
      if (path.includes("/api/")) assert.equal(found["cache-control"], "no-store");
      assert.ok(!Object.keys(found).some((name) => name.startsWith("access-control") || name === "set-cookie"), JSON.stringify(found));
    }
    // A stream has no end to wait for.
    const stream = await fetch(`${gateway.origin}/console/api/events`, { headers: bearer });
    const names = ["content-security-policy", "x-content-type-options", "referrer-policy", "cross-origin-resource-policy", "cache-control"];
    assert.ok(names.every((name) => stream.headers.has(name)), JSON.stringify([...stream.headers]));
    await stream.body.cancel();
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

export async function tokens(browser, check) {
  const home = new Home();
  const auth = { tokens: [{ name: "all", token: "all-secret-token" }, { name: "some", token: "dev-secret-token", toolboxes: ["dev"] }] };
  const gateway = await home.serve({
    auth,
    toolboxes: { dev: { mcpServers: { files: files() } }, secret: { mcpServers: { vault: fake("--tool", tool("hidden_tool", "Hidden")), cellar: fake("--stderr", "dark", "--exit", "3") } } },
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
      assert.ok(!/vault|cellar|dark|secret|hidden_tool|boss/.test(await text()), await text());
      await page.context().close();
    }
  });
  await check("its stream tells of nothing else, in counts and plots either", async () => {
    const told = async (token, holds) => {
      const stream = await fetch(`${gateway.origin}/console/api/events`, { headers: { authorization: `Bearer ${token}` } });
      const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
      const parts = new Map();
      let text = "";
      while (!holds(parts)) {
        const { value, done } = await reader.read();
        assert.ok(!done, "the stream goes on");
        text += value;
        for (const [, name, data] of text.matchAll(/^event: (\w+)\ndata: (.*)\n\n/gm)) parts.set(name, data);
      }
      await reader.cancel();
      return { text, parts };
    };
    const sum = (numbers = []) => numbers.reduce((sum, number) => sum + number, 0);
    // Plots are drawn once a second.
    const calls = (count) => (parts) => {
      const { ok, failed } = JSON.parse(parts.get("plot") ?? "{}");
      return JSON.parse(parts.get("totals") ?? "{}").calls >= count && sum(ok) + sum(failed) >= count && parts.has("calls");
    };
    await everything.call("secret__vault__hidden_tool");
    // Whoever may see everything has been told of it, so those who may not would have been, too.
    await told("all-secret-token", calls(3));
    await some.call("dev__files__read_file", { path: "b" });
    const { text, parts } = await told("dev-secret-token", calls(2));
    assert.ok(!/vault|cellar|dark|hidden_tool|boss|"secret"/.test(text), text);
    const { calls: counted, errors, busy, slow } = JSON.parse(parts.get("totals"));
    assert.deepEqual([counted, errors, busy.length, slow.length], [2, 0, 1, 1], parts.get("totals"));
    const plot = JSON.parse(parts.get("plot"));
    assert.deepEqual([sum(plot.ok), sum(plot.failed)], [2, 0]);
    assert.deepEqual(JSON.parse(parts.get("clients")).map(({ name, calls }) => [name, calls]), [["junior", 2]]);
    assert.equal(parts.get("problems"), "[]");
    assert.deepEqual(JSON.parse(parts.get("servers")).map(({ server, calls }) => [server, calls]), [["files", 2]]);
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
