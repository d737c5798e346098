// A client as small as the figures need: it starts a server, shakes hands and asks for lists.

import { spawn } from "node:child_process";

const PATIENCE = 60_000;

/** A running server that has answered the handshake; `result` is what it answered. */
export async function connect(command, args) {
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"] });
  const waiting = new Map();
  let [buffer, stderr, last] = ["", "", 0];
  child.stderr.on("data", (text) => (stderr = (stderr + text).slice(-2000)));
  child.stdout.setEncoding("utf8").on("data", (text) => {
    const lines = (buffer + text).split("\n");
    buffer = lines.pop();
    for (const line of lines.filter((line) => line.startsWith("{"))) {
      const message = JSON.parse(line);
      waiting.get(message.id)?.(message);
    }
  });
  const send = (message) => child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  const ask = (method, params) =>
    new Promise((resolve, reject) => {
      const id = ++last;
      const late = setTimeout(() => reject(new Error(`${args.join(" ")}: no answer to ${method}\n${stderr}`)), PATIENCE);
      waiting.set(id, ({ result, error }) => {
        clearTimeout(late);
        if (error || result.isError) reject(new Error(`${args.join(" ")}: ${JSON.stringify(error ?? result)}`));
        else resolve(result);
      });
      send({ id, method, params });
    });
  const clientInfo = { name: "example", version: "1" };
  const result = await ask("initialize", { protocolVersion: "2025-11-25", capabilities: {}, clientInfo });
  send({ method: "notifications/initialized" });
  return {
    result,
    call: (name, args) => ask("tools/call", { name, arguments: args }),
    async tools() {
      const tools = [];
      let cursor;
      do {
        const page = await ask("tools/list", cursor ? { cursor } : {});
        tools.push(...page.tools);
        cursor = page.nextCursor;
      } while (cursor);
      return tools;
    },
    async end() {
      const gone = new Promise((resolve) => child.on("close", resolve));
      child.stdin.end();
      const slow = setTimeout(() => child.kill("SIGKILL"), 2000);
      await gone;
      clearTimeout(slow);
    },
  };
}
