// The browser of the tests: the one that npm brings, or one that is installed. `undefined` with a sentence where there is none.

import { spawnSync } from "node:child_process";
import { createReadStream, existsSync, mkdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { fileURLToPath } from "node:url";
import { createBrotliDecompress } from "node:zlib";

const HERE = fileURLToPath(new URL(".", import.meta.url));

/** Installs what the lock file names, unless that was done before. Returns why it cannot be done. */
export function install() {
  if (existsSync(join(HERE, "node_modules/playwright-core"))) return undefined;
  const npm = spawnSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: HERE, encoding: "utf8" });
  if (npm.error) return `npm cannot be run: ${npm.error.message}`;
  return npm.status === 0 ? undefined : `npm ci failed: ${npm.stderr.trim().split("\n").slice(-2).join(" ")}`;
}

/** Launches the browser, or says why there is none. */
export async function launch() {
  const { chromium } = await import("playwright-core");
  const candidates = [process.env.BROWSER, ...installed(), packaged].filter(Boolean);
  const problems = [];
  for (const candidate of candidates) {
    try {
      const { executablePath, env } = typeof candidate === "function" ? await candidate() : { executablePath: candidate };
      return { browser: await chromium.launch({ executablePath, env: { ...process.env, ...env }, args: ["--no-sandbox"] }) };
    } catch (error) {
      problems.push(error.message.split("\n")[0]);
    }
  }
  return { why: `no browser starts: ${problems.join("; ")}` };
}

function installed() {
  const folders = (process.env.PATH ?? "").split(delimiter);
  const names = ["chromium", "chromium-browser", "google-chrome"];
  return names.flatMap((name) => folders.map((folder) => join(folder, name))).filter((path) => existsSync(path));
}

/** The browser inside the package, with the libraries that it brings where the system lacks them. */
async function packaged() {
  if (process.platform !== "linux" || process.arch !== "x64") throw new Error(`the package has none for ${process.platform} ${process.arch}`);
  const { default: chromium } = await import("@sparticuz/chromium");
  const executablePath = await chromium.executablePath();
  const missing = spawnSync("ldd", [executablePath], { encoding: "utf8" }).stdout?.includes("not found");
  if (!missing) return { executablePath };
  const folder = join(tmpdir(), "mcp-workbench-chromium-libraries");
  if (!existsSync(join(folder, "lib"))) {
    mkdirSync(folder, { recursive: true });
    const { extract } = await import("tar-fs");
    const archive = join(HERE, "node_modules/@sparticuz/chromium/bin/al2023.tar.br");
    await pipeline(createReadStream(archive), createBrotliDecompress(), extract(folder));
  }
  return { executablePath, env: { LD_LIBRARY_PATH: join(folder, "lib") } };
}

/** What axe-core finds wrong with a page, in words. The policy refuses script tags, so the source is evaluated. */
export async function violations(page) {
  const source = readFileSync(join(HERE, "node_modules/axe-core/axe.min.js"), "utf8");
  await page.evaluate(source);
  const { violations: found } = await page.evaluate(() => window.axe.run(document));
  return found.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.slice(0, 3).map((node) => node.html).join(" ")}`);
}
