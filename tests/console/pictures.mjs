// The pictures of the docs: a working day of somebody with a dozen servers, on Overview and on Tools, in light.

import { join } from "node:path";
import { Client, fake, Home } from "./gateway.mjs";

const tool = (name, description, properties = {}, required = []) =>
  JSON.stringify({ name, description, inputSchema: { type: "object", properties, required } });
const text = (description) => ({ type: "string", description });

const FILES = [
  tool("read_file", "Reads a file of the project and returns its text.", { path: text("The path, relative to the project"), limit: { type: "integer", description: "The most lines" } }, ["path"]),
  tool("write_file", "Writes a text to a file, which is made if there is none.", { path: text("The path"), text: text("The text") }, ["path", "text"]),
  tool("search_files", "Finds files by name or by what stands in them.", { words: text("What to look for") }),
];
const GITHUB = [
  tool("create_issue", "Creates an issue in a repository.", { repository: text("Owner and name"), title: text("The title"), labels: { type: "array" } }),
  tool("search_issues", "Searches issues and pull requests by words, labels and people.", { query: text("The words") }),
  tool("merge_pull_request", "Merges a pull request once its checks are green.", { number: { type: "integer" } }),
];
const args = (tools) => tools.flatMap((definition) => ["--tool", definition]);

export async function pictures(browser, folder) {
  const home = new Home();
  const gateway = await home.serve({
    toolboxes: {
      dev: {
        description: "Files and issues of this project",
        mcpServers: {
          files: fake(...args(FILES), "--with", "slow", "--stderr", "serving the project"),
          github: fake(...args(GITHUB), "--with", "result,slow"),
          database: fake("--stderr", "FATAL: connection to 127.0.0.1:5432 refused", "--exit", "3"),
        },
      },
      ops: { description: "The cluster", mcpServers: { kubernetes: fake("--tools", "40"), metrics: fake("--tools", "20") } },
    },
  });
  const client = await Client.connect(gateway.mcp, { name: "claude-code" });
  await client.call("open_toolbox", { toolbox_name: "dev" });
  await client.call("open_toolbox", { toolbox_name: "ops" });
  const page = await browser.newPage({ viewport: { width: 1160, height: 880 }, colorScheme: "light" });
  await page.goto(gateway.url);
  for (let round = 0; round < 40; round += 1) {
    await client.call("dev__files__read_file", { path: "README.md" });
    if (round % 2 === 0) await client.call("dev__files__slow", { ms: 30 + 5 * (round % 7) });
    if (round % 3 === 0) await client.call("dev__github__slow", { ms: 120 + 20 * (round % 5) });
    if (round % 8 === 0) await client.call("dev__github__result", { json: '{"isError":true,"content":[]}' });
    if (round % 4 === 0) await client.call("ops__kubernetes__tool-1");
    await new Promise((resolve) => setTimeout(resolve, 700));
  }
  await page.getByText(/Latest: p50/).waitFor();
  await page.screenshot({ path: join(folder, "console-overview.png") });
  await page.getByRole("link", { name: "Tools" }).click();
  await page.getByRole("searchbox").fill("file of the project");
  await page.getByText("best first").waitFor();
  await page.getByRole("button", { name: "read_file", exact: true }).click();
  await page.getByLabel("path", { exact: true }).fill("README.md");
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await page.getByRole("region", { name: "Result" }).waitFor();
  await page.screenshot({ path: join(folder, "console-tools.png") });
  await page.close();
  await home.end();
}
