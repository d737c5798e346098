// Lists what servers offer with the client of an official SDK for TypeScript: `node list.mjs 1 < commands.json`, where the
// argument is the SDK's major version and the file holds a list of commands. Prints a line for each: how many things of each
// kind there are, or why the SDK refuses them.

import { readFileSync } from "node:fs";

const sdk = {
  1: async () => ({
    ...(await import("@modelcontextprotocol/sdk/client/index.js")),
    ...(await import("@modelcontextprotocol/sdk/client/stdio.js")),
  }),
  2: async () => ({
    ...(await import("@modelcontextprotocol/client")),
    ...(await import("@modelcontextprotocol/client/stdio")),
  }),
};
const { Client, StdioClientTransport } = await sdk[process.argv[2]]();

for (const [command, ...args] of JSON.parse(readFileSync(0, "utf8"))) {
  const client = new Client({ name: "listing", version: "1" });
  const listed = {};
  try {
    await client.connect(new StdioClientTransport({ command, args, stderr: "ignore", env: process.env }));
    listed.tools = (await client.listTools()).tools.length;
    listed.resources = (await client.listResources()).resources.length;
    listed.resourceTemplates = (await client.listResourceTemplates()).resourceTemplates.length;
    listed.prompts = (await client.listPrompts()).prompts.length;
  } catch (error) {
    listed.refused = String(error.message).slice(0, 300);
  }
  await client.close();
  console.log(JSON.stringify(listed));
}
