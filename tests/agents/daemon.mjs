// Claude Code, Codex and the TypeScript SDK at once over one daemon, with real servers from npm. Started by
// `run.mjs --daemon`.
//
// Each opens the toolbox, has one server echo and another one read its graph, and then waits for a call of several
// seconds. While all of them wait, there must be one tree of processes for each server that can be shared, and one for
// each session of the server that cannot; after `stop` there must be none.

import { execFileSync, spawn } from "node:child_process";
import { cpSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { modern as claudeCode } from "./agents/claude-code.mjs";
import codex from "./agents/codex.mjs";
import { FACES } from "./faces.mjs";
import { Home } from "./home.mjs";
import { startModel } from "./model/server.mjs";
import { endOf, killAll, running } from "./processes.mjs";
import { Stage } from "./scenarios.mjs";
import { Reader, follow, last } from "./script.mjs";

const { places } = JSON.parse(process.argv[2]);
execFileSync("ip", ["link", "set", "lo", "up"]);
// Clients hand on different variables, so that the daemon's place is the directory for temporary files: an empty one.
execFileSync("mount", ["-t", "tmpfs", "tmpfs", "/tmp"]);

/** Long enough for the slowest to begin its call while the first one's lasts. */
const SECONDS = 40;
const LONG = { duration: SECONDS, steps: 4 };
const PATIENCE = 120_000;

const SERVERS = ["everything", "memory", "filesystem"];
const face = {
  ...FACES.workbench,
  configuration: () => {
    const entry = (name, args, more) => {
      const main = `${places.servers}/@modelcontextprotocol/server-${name}/dist/index.js`;
      return { command: places.node, args: [main, ...args], ...more };
    };
    const mcpServers = {
      everything: entry("everything", [], { isolation: "shared" }),
      memory: entry("memory", [], { isolation: "shared" }),
      filesystem: entry("filesystem", ["/tmp"], { isolation: "session" }),
    };
    return JSON.stringify({ daemon: true, toolboxes: { dev: { description: "Things to try", mcpServers } } }, null, 2);
  },
  using: (server, tool, input) => ({ tool: { toolbox: "dev", server, tool }, arguments: input }),
  exposed: (server, tool) => `dev__${server}__${tool}`,
};

const home = new Home(places);
const problems = [];
const check = (what, holds, found) => {
  console.log(`${holds ? "ok   " : "FAILS"} ${what}${holds ? "" : `: ${found}`}`);
  if (!holds) problems.push(what);
};

try {
  const clients = [await agent(claudeCode), await agent(codex), sdk("typescript-1")];
  const status = await whileAllWait();
  const names = status.sessions.map(({ client }) => client).sort();
  check(`one daemon has a session of each: ${names.join(", ")}`, names.length === clients.length, names);
  const trees = (name) => status.servers.filter(({ server, state }) => server === name && state === "running").length;
  const processes = (name) => running().filter(({ command }) => command.includes(`server-${name}/dist`) && !command.includes("daemon-process")).length;
  for (const name of SERVERS) {
    const wanted = name === "filesystem" ? clients.length : 1;
    check(`${name}: ${wanted} tree(s) of processes`, trees(name) === wanted, `${trees(name)} in the status`);
    check(`${name}: ${wanted} process(es) of the system`, processes(name) === wanted, `${processes(name)}`);
  }
  for (const client of clients) check(`${client.name} is answered`, ...(await client.outcome));
  const stopped = execFileSync(join(places.gateway, face.program), ["stop"], { env: home.environment({}), encoding: "utf8" });
  check(`stop says: ${stopped.trim()}`, stopped.includes("have ended"), stopped);
  const left = await endOf([places.gateway, places.servers], 0);
  check("no process is left after stop", left === undefined, left);
} finally {
  killAll();
  home.remove();
}
process.exit(problems.length > 0 ? 1 : 0);

/** Starts an agent with a model of its own, and says what came of it. */
async function agent(agent) {
  const answers = {};
  const stage = new Stage({ agent, face, reader: new Reader(agent, face), check() {}, measure() {}, killAgent() {} });
  function* play() {
    let request = yield* stage.open(yield* stage.first(), "everything");
    request = yield* stage.untilOffered(request, "everything", "echo");
    request = yield* stage.use(request, "everything", "echo", { message: agent.name });
    answers.echo = last(request).text;
    request = yield* stage.use(request, "memory", "read_graph", {});
    answers.graph = last(request).text;
    request = yield* stage.use(request, "everything", "trigger-long-running-operation", LONG);
    answers.long = last(request).text;
  }
  const model = await startModel(follow(play(), (problem) => (answers.problem = problem.message)));
  for (const [file, text] of Object.entries(agent.files({ model: model.url }))) home.write(file, text);
  home.connect(face, agent);
  const settings = { ...places, model: model.url, entry: face.entry, prompt: "Please do what has to be done." };
  const { program, args, env } = agent.command(settings);
  const ended = run(program, args, env);
  const outcome = ended.then(async ({ said }) => {
    await model.stop();
    const well = answers.echo?.includes(`Echo: ${agent.name}`) && answers.graph?.includes("entities") && answers.long?.includes("completed");
    return [Boolean(well), JSON.stringify({ ...answers, said })];
  });
  return { name: agent.title, outcome };
}

/** Starts the program of an SDK. */
function sdk(name) {
  const copy = join(home.project, "sdks");
  cpSync(join(import.meta.dirname, "sdks"), copy, { recursive: true });
  symlinkSync(places.installed, join(home.project, "node_modules"));
  const plan = {
    command: home.configure(face),
    open: { name: face.open, arguments: face.opening("everything") },
    direct: { name: face.exposed("everything", "trigger-long-running-operation"), arguments: LONG },
    use: { name: face.use, arguments: face.using("everything", "trigger-long-running-operation", LONG) },
  };
  const ended = run(places.node, [join(copy, `${name}.mjs`), JSON.stringify(plan)], {});
  return { name: "TypeScript SDK", outcome: ended.then(({ said }) => [said.includes("completed"), said]) };
}

function run(program, args, env) {
  const child = spawn(program, args, { cwd: home.project, env: home.environment(env), stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text) => (said = (said + text).slice(-2000)));
  }
  setTimeout(() => child.kill("SIGKILL"), PATIENCE).unref();
  return new Promise((resolve) => child.on("close", () => resolve({ said })));
}

/** The status at a moment at which every session has its calls behind it and waits for the long one. */
async function whileAllWait() {
  for (const end = Date.now() + PATIENCE; ; await sleep(200)) {
    const status = home.run(join(places.gateway, face.program), ["status", "--json"]);
    const calls = status.sessions.reduce((sum, { calls }) => sum + calls, 0);
    // Three of each agent, one of the SDK.
    if ((status.sessions.length === 3 && calls >= 7) || Date.now() > end) return status;
  }
}
