// Gateways for the tests: processes with a home of their own, and a client that calls their tools.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const BUILT = process.env.GATEWAY_DIR ?? join(ROOT, "target/debug");
const FAKE = process.env.FAKE_UPSTREAM ?? join(BUILT, "examples/fake-upstream");

/** An entry of `mcpServers` for a server that behaves as the flags say. */
export const fake = (...args) => ({ command: FAKE, args });

/** A home of its own for some processes. */
export class Home {
  folder = mkdtempSync(join(tmpdir(), "console-"));
  processes = [];

  constructor() {
    this.runtime = join(this.folder, "run");
    mkdirSync(this.runtime, { mode: 0o700 });
  }

  write(name, text) {
    const path = join(this.folder, name);
    writeFileSync(path, typeof text === "string" ? text : JSON.stringify(text, null, 2));
    return path;
  }

  /** Starts a program; `line` resolves to the first line that fits, on either output. */
  start(program, args, environment = {}) {
    const env = {
      ...process.env,
      HOME: this.folder,
      XDG_CONFIG_HOME: this.folder,
      XDG_STATE_HOME: join(this.folder, "state"),
      XDG_CACHE_HOME: join(this.folder, "cache"),
      XDG_RUNTIME_DIR: this.runtime,
      ...environment,
    };
    const child = spawn(join(BUILT, program), args, { cwd: this.folder, env, stdio: ["pipe", "pipe", "pipe"] });
    const ended = new Promise((resolve) => child.once("exit", resolve));
    const lines = [];
    const stdout = [];
    const waiting = new Set();
    for (const output of [child.stdout, child.stderr]) {
      createInterface(output).on("line", (line) => {
        lines.push(line);
        if (output === child.stdout) stdout.push(line);
        for (const wake of waiting) wake();
      });
    }
    const line = (pattern) =>
      new Promise((resolve, reject) => {
        const look = () => {
          const found = lines.map((text) => pattern.exec(text)).find(Boolean);
          if (found) waiting.delete(look), resolve(found);
        };
        waiting.add(look);
        ended.then((status) => (look(), reject(new Error(`${program} ended with ${status}: ${lines.join("\n")}`))));
        look();
      });
    const process_ = {
      child,
      lines,
      stdout,
      line,
      ended,
      async stop() {
        child.kill("SIGTERM");
        return ended;
      },
    };
    this.processes.push(process_);
    return process_;
  }

  /** Serves a configuration over HTTP, with the console. */
  async serve(config, { port = 0, args = [], program = "mcp-workbench", file } = {}) {
    const name = program === "toolman" ? "tools.toml" : "workbench-config.json";
    const path = this.write(file ?? name, config);
    const gateway = this.start(program, ["serve", "--http", `127.0.0.1:${port}`, "--console", "--config", path, ...args]);
    const [, mcp] = await gateway.line(/^listening on (\S+)$/);
    const [, url] = await gateway.line(/^console: (\S+)$/);
    return Object.assign(gateway, { mcp, url, origin: new URL(mcp).origin, path });
  }

  async end() {
    for (const process_ of this.processes) process_.child.kill("SIGTERM");
    await Promise.all(this.processes.map(({ ended }) => ended));
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A legacy client over HTTP. */
export class Client {
  static async connect(mcp, { name = "agent", token } = {}) {
    const client = new Client();
    Object.assign(client, { mcp, token, next: 1 });
    const hello = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name, version: "1.2.3" } };
    const answer = await client.post({ method: "initialize", id: 0, params: hello });
    client.session = answer.headers.get("mcp-session-id");
    await answer.text();
    await (await client.post({ method: "notifications/initialized" })).text();
    return client;
  }

  post(message) {
    const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
    if (this.session) headers["mcp-session-id"] = this.session;
    if (this.token) headers.authorization = `Bearer ${this.token}`;
    return fetch(this.mcp, { method: "POST", headers, body: JSON.stringify({ jsonrpc: "2.0", ...message }) });
  }

  /** The methods of the notifications that come from now on, as they come. */
  async listen() {
    const headers = { accept: "text/event-stream", "mcp-session-id": this.session };
    const stream = await fetch(this.mcp, { headers });
    assert.equal(stream.status, 200);
    const heard = [];
    const read = async () => {
      let text = "";
      for await (const chunk of stream.body.pipeThrough(new TextDecoderStream())) {
        const lines = (text + chunk).split("\n");
        text = lines.pop();
        for (const line of lines) if (line.startsWith("data: {")) heard.push(JSON.parse(line.slice(6)).method);
      }
    };
    // The gateway ends before the test does.
    read().catch(() => {});
    return heard;
  }

  /** The result of a request. */
  async ask(method, params) {
    const answer = await this.post({ method, id: this.next++, params });
    const text = await answer.text();
    const body = text.startsWith("{") ? text : /^data: (\{.*"id".*)$/m.exec(text)?.[1];
    assert.ok(body, `${method}: ${answer.status} ${text}`);
    return JSON.parse(body);
  }

  call(name, args = {}) {
    return this.ask("tools/call", { name, arguments: args });
  }
}
