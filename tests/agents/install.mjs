// Installs what committed files pin into a cache, so that runs in any work tree share it.
//
// A tree is made aside and moved into place in one step: whoever finds it finds all of it.

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

/** Where installed trees are kept, unless the command line names another place. */
export const CACHE = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "mcp-workbench", "tests");

/** Installs what a folder's lock file names, and gives its `node_modules`. */
export function installNode(cache, folder) {
  const place = install(cache, join(folder, "package-lock.json"), (aside) => {
    for (const file of ["package.json", "package-lock.json"]) copyFileSync(join(folder, file), join(aside, file));
    run(aside, "npm", ["ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund"]);
  });
  return join(place, "node_modules");
}

/** Installs a file of pinned requirements, and gives the Python that has them. */
export function installPython(cache, requirements) {
  const place = install(cache, requirements, (aside) => {
    run(aside, "python3", ["-m", "venv", aside]);
    run(aside, join(aside, "bin/python"), ["-m", "pip", "install", "--quiet", "--requirement", requirements]);
  });
  return join(place, "bin/python");
}

function install(cache, pins, make) {
  const place = join(cache, createHash("sha256").update(readFileSync(pins)).digest("hex").slice(0, 16));
  if (existsSync(place)) return place;
  mkdirSync(cache, { recursive: true });
  const aside = mkdtempSync(join(cache, "aside-"));
  try {
    make(aside);
    renameSync(aside, place);
  } catch (problem) {
    rmSync(aside, { recursive: true, force: true });
    // Another run may have been faster.
    if (!existsSync(place)) throw problem;
  }
  return place;
}

function run(directory, program, args) {
  const { status, stderr, error } = spawnSync(program, args, { cwd: directory, encoding: "utf8" });
  if (status !== 0) throw new Error(`${program} ${args.join(" ")}: ${error?.message ?? stderr}`);
}
