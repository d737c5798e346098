// Lists the odd definitions of odd.json with the official SDKs, each in an otherwise good list: without the gateway, where
// most are refused, and through it, where none may be. Prints a table.
//
//     cargo build --bins --examples && node tests/sdks/run.mjs
//
// installs the SDKs from the committed lock files into target/sdks; that is the one step that needs a network.

import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "../../target");
const place = join(target, "sdks");
const program = (name) => join(target, "debug", name);
const FLAGS = { tool: "--tool", resource: "--resource", resourceTemplate: "--template", prompt: "--prompt" };
const GOOD = ["--tools", "2", "--resources", "1", "--templates", "1", "--prompts", "1"];

/** The command of each SDK that lists what it reads commands for. */
function install() {
  mkdirSync(place, { recursive: true });
  for (const file of ["package.json", "package-lock.json", "list.mjs"]) copyFileSync(join(here, file), join(place, file));
  if (!existsSync(join(place, "node_modules"))) {
    execFileSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: place, stdio: "inherit" });
  }
  const sdks = { "TypeScript 1": ["node", join(place, "list.mjs"), "1"], "TypeScript 2": ["node", join(place, "list.mjs"), "2"] };
  for (const major of ["1", "2"]) {
    const environment = join(place, `python-${major}`);
    const python = join(environment, "bin/python");
    if (!existsSync(python)) {
      execFileSync("python3", ["-m", "venv", environment], { stdio: "inherit" });
      const requirements = join(here, `requirements-${major}.txt`);
      execFileSync(python, ["-m", "pip", "install", "--quiet", "--requirement", requirements], { stdio: "inherit" });
    }
    sdks[`Python ${major}`] = [python, join(here, "list.py")];
  }
  return sdks;
}

/** What an SDK says of each of these servers. */
function ask([command, ...args], servers) {
  const output = execFileSync(command, args, { input: JSON.stringify(servers), stdio: ["pipe", "pipe", "ignore"] });
  return output.toString().trim().split("\n").map((line) => JSON.parse(line));
}

/** The gateway in front of a server, as a command. */
function through(name, [command, ...args]) {
  const file = join(place, `${name}.toml`);
  const words = [command, ...args].map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(" ");
  writeFileSync(file, `active_toolsets = ["*"]\n[[servers]]\nnamespace = ""\nshell = false\ncommand = ${JSON.stringify(words)}\n`);
  return [program("toolman"), "--config", file];
}

const sdks = install();
const rows = JSON.parse(readFileSync(join(here, "odd.json"), "utf8"));
const servers = rows.map(({ kind, item }) => [program("examples/fake-upstream"), ...GOOD, FLAGS[kind], JSON.stringify(item)]);
const gateways = servers.map((server, index) => through(`odd-${index + 1}`, server));
let failed = false;
console.log(`${"SDK".padEnd(14)} refused without the gateway   through it`);
for (const [name, command] of Object.entries(sdks)) {
  const [without, by] = [ask(command, servers), ask(command, gateways)];
  const refused = (answers) => answers.filter((answer) => answer.refused !== undefined).length;
  console.log(`${name.padEnd(14)} ${`${refused(without)} of ${rows.length}`.padEnd(29)} ${refused(by)} of ${rows.length}`);
  by.forEach((answer, index) => {
    if (answer.refused !== undefined) console.log(`  ${rows[index].what}: ${answer.refused}`);
  });
  failed ||= refused(by) > 0;
}
process.exit(failed ? 1 : 0);
