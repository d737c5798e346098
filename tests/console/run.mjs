// The console in a real browser; README.md tells what is shown. `--pictures FOLDER` makes the pictures of the docs instead.
// Ends with status 77 and a sentence where there is no browser.

import { parseArgs } from "node:util";
import { install, launch } from "./browser.mjs";

// Far longer than anything takes.
const PATIENCE = 120_000;
// Suites wait for processes and for the browser most of the time.
const AT_ONCE = 2;

const { values } = parseArgs({ options: { pictures: { type: "string" }, only: { type: "string" } } });
const missing = install();
const { browser, why } = missing ? { why: missing } : await launch();
if (!browser) {
  console.log(`skipped: ${why}`);
  process.exit(77);
}
if (values.pictures) {
  const { pictures } = await import("./pictures.mjs");
  await pictures(browser, values.pictures);
} else {
  const { suites } = await import("./suites.mjs");
  const waiting = suites.filter(([title]) => !values.only || title.includes(values.only));
  let failures = 0;
  const work = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) failures += await run(...next);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  process.exitCode = failures === 0 ? 0 : 1;
}
await browser.close();

/** Runs the checks of a suite one after the other, and says which failed. */
async function run(title, suite) {
  const begun = performance.now();
  const failed = [];
  const check = async (what, action) => {
    const late = new Promise((_, reject) => setTimeout(() => reject(new Error("nothing came of it in time")), PATIENCE).unref());
    try {
      await Promise.race([action(), late]);
    } catch (error) {
      failed.push(`${what}: ${error.stack ?? error}`);
    }
  };
  await check("the suite", () => suite(browser, check));
  console.log(`${failed.length === 0 ? "ok    " : "FAILED"} ${title} (${((performance.now() - begun) / 1000).toFixed(1)} s)`);
  for (const failure of failed) console.log(`       ${failure.replaceAll("\n", "\n         ")}`);
  return failed.length;
}
