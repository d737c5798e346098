// Runs every scenario with every agent, without a network. Started by run.mjs.

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AGENTS } from "./agents/index.mjs";
import { converse } from "./conversation.mjs";
import { FACES } from "./faces.mjs";
import { Report } from "./report.mjs";
import { SCENARIOS } from "./scenarios.mjs";
import { SDKS, pinned, trySdk } from "./sdks/index.mjs";

const { options, places } = JSON.parse(process.argv[2]);
execFileSync("ip", ["link", "set", "lo", "up"]);

const clients = [...AGENTS, ...SDKS].filter(({ name }) => options.agent?.includes(name) ?? true);
const faces = Object.values(FACES).filter(({ name }) => options.face === undefined || options.face === name);
const scenarios = Object.keys(SCENARIOS).filter((name) => options.scenario?.includes(name) ?? true);
if (clients.length === 0 || faces.length === 0 || scenarios.length === 0) throw new Error("nothing to do");

const report = new Report();
for (const client of clients) {
  report.begin(client, versionOf(client));
  for (const face of faces) {
    if (SDKS.includes(client)) {
      report.add(client, face, await trySdk(places, client, face));
      continue;
    }
    for (const scenario of scenarios) {
      const { recorded } = SCENARIOS[scenario];
      const record = options.update && recorded !== undefined;
      const outcome = await converse(places, client, face, scenario, { record });
      report.add(client, face, outcome);
      if (options.show) show(outcome, client.prefix(face.entry));
      const well = Object.values(outcome.checks).every((wrong) => wrong === undefined);
      if (record && well) keep(client, face, scenario, outcome.recording);
    }
  }
}
report.print();
if (options.update) report.save(join(import.meta.dirname, "results.json"));
process.exit(report.failed ? 1 : 0);

function versionOf(client) {
  if (client.requirement) return pinned(client);
  const { version } = JSON.parse(readFileSync(join(places.installed, client.package, "package.json"), "utf8"));
  return version.replace(/-linux-x64$/, "");
}

function keep(client, face, scenario, [head, ...lines]) {
  const first = { agent: client.name, face: face.name, scenario, opened: client.opened, ...JSON.parse(head) };
  const name = `${client.name}-${face.name}${SCENARIOS[scenario].recorded}.jsonl`;
  const file = join(import.meta.dirname, "recordings", name);
  writeFileSync(file, `${[JSON.stringify(first), ...lines].join("\n")}\n`);
}

function show({ requests = [] }, prefix) {
  for (const [index, { tools, results }] of requests.entries()) {
    const ours = tools.map(({ name }) => name).filter((name) => name.startsWith(prefix));
    const answer = results.at(-1)?.text ?? "";
    console.log(`    request ${index + 1}: ${tools.length} tools; ours: ${ours.join(" ")}`);
    if (answer) console.log(`    ${answer.length} characters: ${JSON.stringify(answer.slice(0, 600))}`);
  }
}
