// An app server of our own, made with the official library, for what the official examples do not do: `node notes.mjs NAME`
// has an app that calls its own app-only tool and reads its own resource. Every one of them has its page under the same URI.

import { registerAppResource, registerAppTool, RESOURCE_MIME_TYPE } from "@modelcontextprotocol/ext-apps/server";
import { McpServer } from "@modelcontextprotocol/server";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { buildSync } from "esbuild";
import { fileURLToPath } from "node:url";

const NAME = process.argv[2];
const PAGE = "ui://notes/page.html";
const NOTE = `ui://notes/${NAME}.json`;

const script = buildSync({
  entryPoints: [fileURLToPath(new URL("notes-page.mjs", import.meta.url))],
  bundle: true,
  define: { SERVER: JSON.stringify(NAME), PAGE: JSON.stringify(PAGE), NOTE: JSON.stringify(NOTE) },
  format: "esm",
  write: false,
}).outputFiles[0].text.replaceAll("</script", "<\\/script");

const html = `<!doctype html><meta charset="utf-8"><title>Notes of ${NAME}</title><ul id="notes"></ul><script type="module">${script}</script>`;

const server = new McpServer({ name: `notes-${NAME}`, version: "1.0.0" });

registerAppTool(
  server,
  `show-${NAME}`,
  { description: `Shows the notes of ${NAME}`, _meta: { ui: { resourceUri: PAGE } } },
  async () => ({ content: [{ type: "text", text: `shown by ${NAME}` }] }),
);
registerAppTool(
  server,
  `${NAME}-secret`,
  { description: `The secret of ${NAME}`, _meta: { ui: { resourceUri: PAGE, visibility: ["app"] } } },
  async () => ({ content: [{ type: "text", text: `secret of ${NAME}` }] }),
);
registerAppResource(server, "Page", PAGE, {}, async () => ({
  contents: [{ uri: PAGE, mimeType: RESOURCE_MIME_TYPE, text: html }],
}));
server.registerResource("Note", NOTE, { mimeType: "text/plain" }, async () => ({
  contents: [{ uri: NOTE, mimeType: "text/plain", text: `note of ${NAME}` }],
}));

await server.connect(new StdioServerTransport());
