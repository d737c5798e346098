// A fresh home for one conversation: the agent's settings, the gateway's file, and the entry that `connect` writes.

import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { servers } from "./faces.mjs";

export class Home {
  constructor(places) {
    this.places = places;
    this.path = realpathSync(mkdtempSync(join(tmpdir(), "agent-")));
    this.project = join(this.path, "project");
    mkdirSync(this.project);
  }

  /** The environment of everything that runs here: nothing of the user's but the way to programs. */
  environment(own) {
    const path = `${dirname(this.places.node)}:${process.env.PATH}`;
    const quiet = { DO_NOT_TRACK: "1", DISABLE_TELEMETRY: "1" };
    return { HOME: this.path, PATH: path, LANG: "C.UTF-8", TERM: "dumb", ...quiet, ...own };
  }

  write(file, text) {
    const path = join(this.path, file);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
    return path;
  }

  /** Writes the face's file, and gives the command line of a gateway that serves it. */
  configure(face) {
    this.file = this.write(`project/${face.file}`, face.configuration(servers(this.places)));
    return [join(this.places.gateway, face.program), "--config", this.file];
  }

  /** Registers the gateway with the agent, as a user would, and gives what `connect` says of it. */
  connect(face, agent) {
    const [program] = this.configure(face);
    const args = ["connect", agent.client, "--yes", "--json", "--config", this.file];
    return this.run(program, args);
  }

  /** Has every server asked once, so that what they offer is remembered, as it is after a user's first hour. */
  remember(face) {
    const [program, ...args] = this.configure(face);
    this.run(program, ["list", "tools", "--json", ...args]);
  }

  run(program, args) {
    const options = { cwd: this.project, env: this.environment({}), encoding: "utf8" };
    const { status, stdout, stderr } = spawnSync(program, args, options);
    if (status !== 0) throw new Error(`${args[0]}: ${stdout}${stderr}`);
    return JSON.parse(stdout);
  }

  /** Puts a program between the agent and the gateway that `connect` has registered. */
  interpose({ file, command }, program) {
    const text = readFileSync(file, "utf8");
    if (!text.includes(command)) throw new Error(`connect wrote no ${command} into ${file}`);
    writeFileSync(file, text.replace(command, program));
  }

  remove() {
    rmSync(this.path, { recursive: true, force: true, maxRetries: 5 });
  }
}
