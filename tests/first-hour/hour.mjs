// The story, step by step; each `check` is a line of the report. Started by run.mjs.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { modern } from "../agents/agents/claude-code.mjs";
import { FACES } from "../agents/faces.mjs";
import { startModel } from "../agents/model/server.mjs";
import { endOf } from "../agents/processes.mjs";
import { Reader, call, follow, last } from "../agents/script.mjs";
import { FAILING, SECRET, SLOW_SERVER, UNSET, WORKING, clientFiles } from "./clients.mjs";
import { startEverything, startSlowRegistry } from "./clients.mjs";

const { places, keep } = JSON.parse(process.argv[2]);
const { countTokens } = await import(places.tokenizer);
const reader = new Reader(modern, FACES.workbench);
const home = realpathSync(mkdtempSync(join(tmpdir(), "first-hour-")));
const project = join(home, "project");
const path = (file) => join(home, file);
const read = (file) => readFileSync(path(file), "utf8");
const STARTING = "it is still starting, and its tools will appear when it is ready";
let failed = false;

/** Notes whether something holds; `found` is shown where it does not. */
function check(what, holds, found = "") {
  failed ||= !holds;
  console.log(`${holds ? "ok   " : "FAILS"} ${what}`);
  if (!holds && found) console.log(found.replace(/^/gm, "      "));
}

/** Runs a program as the user would, in the project, and gives what it said. */
async function run(program, ...args) {
  const child = spawn(program, args, { cwd: project, env: environment(), stdio: ["ignore", "pipe", "pipe"] });
  const [stdout, stderr, [status]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "close")]);
  console.log(`\n$ ${program.split("/").at(-1)} ${args.join(" ")}\n${stderr}${stdout.startsWith("{") ? "" : stdout}`);
  return { status, stdout, stderr };
}

/** Nothing of the maintainer's but the way to programs. */
function environment(own = {}) {
  const quiet = { DO_NOT_TRACK: "1", DISABLE_TELEMETRY: "1", DISABLE_AUTOUPDATER: "1" };
  const certificates = process.env.NODE_EXTRA_CA_CERTS ? { NODE_EXTRA_CA_CERTS: process.env.NODE_EXTRA_CA_CERTS } : {};
  return { HOME: home, PATH: process.env.PATH, LANG: "C.UTF-8", TERM: "dumb", ...quiet, ...certificates, ...own };
}

const workbench = (...args) => run(places.program, ...args);

/** What Claude Code says of each of its servers: connected or not. */
async function claudeList() {
  const { stdout } = await run(places.claude, "mcp", "list");
  const rows = [...stdout.matchAll(/^([\w-]+): .* - (.*)$/gm)];
  return Object.fromEntries(rows.map(([, name, state]) => [name, /connected/i.test(state) && !/fail/i.test(state)]));
}

/**
 * Has Claude Code do something with a model that follows this script, and gives the requests that the model got.
 *
 * It waits for its servers before the first request, and its own tool search is off: both would hide definitions that
 * other clients put into every request.
 */
async function converse(script) {
  let problem;
  const model = await startModel(follow(script(), (error) => (problem ??= error)));
  const settings = { ...places, model: model.url, entry: "workbench", prompt: "What do I have to do today?" };
  const { program, args, env } = modern.command(settings);
  const whole = { ENABLE_TOOL_SEARCH: "false", MCP_CONNECTION_NONBLOCKING: "false", MCP_CONNECT_TIMEOUT_MS: "60000" };
  const options = { cwd: project, env: environment({ ...env, ...whole }) };
  const child = spawn(program, args, { ...options, stdio: ["ignore", "pipe", "inherit"] });
  const [said] = await Promise.all([text(child.stdout), once(child, "close")]);
  await model.stop();
  if (problem) throw problem;
  return { requests: model.requests, said };
}

/** The tokens of the definitions of servers' tools in a request. */
function definitions({ tools }) {
  const ofServers = tools.filter(({ name }) => name.startsWith("mcp__"));
  return ofServers.reduce((sum, tool) => sum + countTokens(JSON.stringify(tool)), 0);
}

const opening = (request, toolbox) => call(reader.offered(request, "open_toolbox"), { toolbox_name: toolbox });

/** Opens a toolbox, again while its server is still starting, and gives the request after it. */
function* open(request, toolbox) {
  for (let tries = 0; tries < 6; tries += 1) {
    request = yield opening(request, toolbox);
    if (!last(request).text.includes(STARTING)) return request;
  }
  throw new Error(`${toolbox} is still starting: ${last(request).text}`);
}

const use = (request, toolbox, tool, input) =>
  call(reader.offered(request, "use_tool"), { tool: { toolbox, server: toolbox, tool }, arguments: input });

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

mkdirSync(project);
writeFileSync(join(project, "today.txt"), "Water the plants\n");
const everything = await startEverything(places.everything);
const registry = await startSlowRegistry();
const files = clientFiles({ project, everything: everything.url, registry: registry.url });
for (const [file, content] of Object.entries(files)) {
  mkdirSync(dirname(path(file)), { recursive: true });
  writeFileSync(path(file), content);
}

// Without the gateway: what Claude Code has, and what its requests cost.
const had = await claudeList();
const direct = await converse(function* () {
  yield;
});
const everythingAtOnce = definitions(direct.requests[0]);
const before = Object.fromEntries(Object.keys(files).map((file) => [file, read(file)]));

// init, and every client there and back.
const init = await workbench("init", "--yes");
const taken = init.stderr.match(/^\+ .*/gm) ?? [];
check("init takes over nine servers of four clients", init.status === 0 && taken.length === 9, init.stderr);
for (const client of ["cursor", "vscode", "codex", "claude-code"]) {
  const there = await workbench("connect", client, "--yes");
  const back = await workbench("disconnect", client, "--yes");
  check(`connect and disconnect ${client}`, there.status === 0 && back.status === 0);
}
const changed = Object.keys(files).filter((file) => read(file) !== before[file]);
check("disconnect restores all four files byte for byte", changed.length === 0, changed.join(", "));

// Claude Code with the gateway.
const { stderr: told } = await workbench("connect", "claude-code", "--yes");
const stays = `Left in Claude Code: ${UNSET} (GOOGLE_MAPS_API_KEY is not set)`;
check("connect leaves the server that would lack a variable", told.includes(stays), told);
check("connect writes no secret", !read(".claude.json").includes(SECRET));
const { workbench: gateway, ...others } = await claudeList();
check("Claude Code lists the gateway as connected", gateway === true);
check("of its own servers it still has that one", same(Object.keys(others), [UNSET]), JSON.stringify(others));

let late;
await converse(function* () {
  late = last(yield opening(yield, SLOW_SERVER)).text;
});
check("a slow install is not a failure", late.includes(STARTING), late);

const task = await converse(function* () {
  const request = yield* open(yield, "filesystem");
  const input = { path: join(project, "today.txt") };
  yield { say: last(yield use(request, "filesystem", "read_text_file", input)).text };
});
check("the model solves the task", task.said.includes("Water the plants"), task.said);

const answers = {};
await converse(function* () {
  let request = yield;
  for (const server of WORKING) {
    request = yield* open(request, server);
    answers[server] = last(request).text;
  }
});
for (const server of WORKING) {
  const answer = answers[server] ?? "its toolbox was not opened";
  const works = /"servers_connected": ?1\b/.test(answer) && !answer.includes('"_errors"');
  check(`${server} works`, works, answer.slice(0, 400));
}
const reached = [...WORKING, ...Object.keys(others).filter((name) => others[name])];
const lost = Object.keys(had).filter((name) => had[name] && !reached.includes(name));
check("no server that worked before was lost", lost.length === 0, lost.join(", "));

// What the task cost, beside what it would have cost.
const nothingOpen = definitions(task.requests[0]);
const toolboxOpen = nothingOpen + countTokens(task.requests[1].results[0].text);
console.log(`
tokens of definitions in a request of Claude Code
${everythingAtOnce}  with its own servers
${nothingOpen}  with the gateway, nothing open
${toolboxOpen}  with the gateway, the toolbox of the task open
`);
check("the task costs what its toolbox costs, not everything", toolboxOpen < everythingAtOnce / 2);

const doctor = await workbench("doctor", "--json");
const sick = JSON.parse(doctor.stdout).servers.filter(({ ok }) => !ok).map(({ server }) => server);
const found = doctor.status === 4 && same(sick.sort(), [FAILING, UNSET].sort());
check("doctor finds the one that fails and the one without its variable", found, doctor.stdout.slice(0, 2000));

// And back. Claude Code has written to its file meanwhile, so only the part with the servers can be compared there.
const servers = (file) => /"mcpServers": \{[^]*?\n  \}/.exec(file)?.[0];
await workbench("disconnect", "claude-code", "--yes");
const restored = servers(read(".claude.json"));
const wanted = servers(before[".claude.json"]);
check("disconnect restores Claude Code's servers byte for byte", restored === wanted, restored);
const has = await claudeList();
const missed = Object.keys(had).filter((name) => !(name in has) || (had[name] && !has[name]));
check("Claude Code has its servers back", missed.length === 0 && !("workbench" in has), missed.join(", "));

const running = await endOf([places.program], 10_000);
check("no process is left", running === undefined, running);
everything.stop();
registry.stop();
if (keep) console.log(home);
else rmSync(home, { recursive: true, force: true, maxRetries: 5 });
process.exit(failed ? 1 : 0);
