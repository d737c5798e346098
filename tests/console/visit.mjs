// How the tests look at a console: a page in the browser, its parts by role and name, and plain requests.

import assert from "node:assert/strict";
import { request } from "node:http";
import { violations } from "./browser.mjs";
import { fake } from "./gateway.mjs";

export const PAGES = [
  ["/console", "Overview"],
  ["/console/servers", "Servers"],
  ["/console/tools", "Tools"],
  ["/console/calls", "Calls"],
];
export const tool = (name, description, properties = {}, required = []) =>
  JSON.stringify({ name, description, inputSchema: { type: "object", properties, required } });

/** A page that is signed in and live. Whatever it logs as an error fails the check at `calm`. */
export async function open(browser, gateway, path = "", { width = 1280, url = gateway.url, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width, height: 800 }, ...options });
  // A busy machine is slow, which proves nothing.
  context.setDefaultTimeout(100_000);
  const page = await context.newPage();
  page.errors = [];
  page.on("console", (message) => message.type() === "error" && page.errors.push(message.text()));
  page.on("pageerror", (error) => page.errors.push(error.message));
  page.on("dialog", (dialog) => (page.errors.push(`a dialog: ${dialog.message()}`), dialog.dismiss()));
  await page.goto(url.replace("/console", `/console${path}`));
  await page.getByRole("status").filter({ hasText: /^Live$/ }).waitFor();
  return page;
}

export const calm = (page) => assert.deepEqual(page.errors, []);
export const region = (page, name) => page.getByRole("region", { name, exact: true });
export const button = (page, name) => page.getByRole("button", { name, exact: true });
export const row = (page, table, text) => page.getByRole("table", { name: table, exact: true }).getByRole("row").filter({ hasText: text });
export const headers = (page, table) => page.getByRole("table", { name: table, exact: true }).getByRole("columnheader").allTextContents();

/** Checks that axe finds nothing at either width, and that the page itself never scrolls sideways. */
export async function accessible(page) {
  for (const width of [320, 1280]) {
    await page.setViewportSize({ width, height: 800 });
    assert.deepEqual(await violations(page), [], `${width} px`);
    const sideways = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.equal(sideways, 0, `${width} px`);
  }
}

/** The answer to a request with exactly these headers. */
export function ask(origin, path, { method = "GET", headers = {}, body } = {}) {
  const { hostname, port } = new URL(origin);
  return new Promise((resolve, reject) => {
    const sent = request({ hostname, port, path, method, headers }, (answer) => {
      let text = "";
      answer.on("data", (chunk) => (text += chunk)).on("end", () => resolve({ status: answer.statusCode, headers: answer.headers, text }));
    });
    sent.on("error", reject).end(body);
  });
}

export const keyOf = (gateway) => new URL(gateway.url).hash.replace("#key=", "");

/** Waits until something holds, as the event loop goes round. */
export async function until(holds, what) {
  const end = Date.now() + 20_000;
  while (!(await holds())) {
    assert.ok(Date.now() < end, what);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

// Answers with the result that it is given.
export const RESULT = tool("result", "Answers as it is told.", { json: { type: "string" } });
export const files = () =>
  fake(
    "--tool", tool("read_file", "Reads a file of the project.", {
      path: { type: "string", description: "Where it is" },
      limit: { type: "integer" },
      tags: { type: "array" },
      deep: { type: "boolean" },
    }, ["path"]),
    "--tool", tool("write_file", "Writes a text to a file."),
    "--tool", RESULT,
    "--with", "slow,started,crash,large,report",
    "--stderr", "files: ready",
  );
