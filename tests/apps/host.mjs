// The host, in the browser: the official client and the official bridge, and nothing that knows of a gateway.
// `run.mjs` calls what stands in `window.host`.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  AppBridge,
  getToolUiResourceUri,
  isToolVisibilityAppOnly,
  PostMessageTransport,
  RESOURCE_MIME_TYPE,
} from "@modelcontextprotocol/ext-apps/app-bridge";

const INFO = { name: "apps-host", version: "1.0.0" };
const EXTENSION = "io.modelcontextprotocol/ui";

let client;

async function connect(url, era) {
  client = new Client(INFO, {
    capabilities: { extensions: { [EXTENSION]: { mimeTypes: [RESOURCE_MIME_TYPE] } } },
    versionNegotiation: { mode: era === "modern" ? { pin: "2026-07-28" } : "legacy" },
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return client.getServerCapabilities()?.extensions?.[EXTENSION];
}

async function call(name, args = {}) {
  return client.callTool({ name, arguments: args });
}

/** What the model is offered: the tools that are not for apps alone. */
async function offered() {
  const { tools } = await client.listTools();
  return { model: names(tools, (tool) => !isToolVisibilityAppOnly(tool)), apps: names(tools, isToolVisibilityAppOnly) };
}

const names = (tools, wanted) => tools.filter(wanted).map((tool) => tool.name);

/** Calls a tool and renders its app in a frame of this title, as the specification wants it of a host. */
async function render(name, title) {
  const { tools } = await client.listTools();
  const tool = tools.find((tool) => tool.name === name);
  if (!tool) throw new Error(`no tool ${name} among ${tools.map((tool) => tool.name)}`);
  const uri = getToolUiResourceUri(tool);
  if (!uri) throw new Error(`${name} has no app`);
  const { contents } = await client.readResource({ uri });
  if (contents.length !== 1) throw new Error(`${contents.length} contents for ${uri}`);
  const [page] = contents;
  if (page.uri !== uri) throw new Error(`asked for ${uri}, got ${page.uri}`);
  if (page.mimeType !== RESOURCE_MIME_TYPE) throw new Error(`${uri} is ${page.mimeType}`);

  const frame = document.createElement("iframe");
  frame.title = title;
  frame.setAttribute("sandbox", "allow-scripts");
  document.body.append(frame);
  const capabilities = { serverTools: {}, serverResources: {}, logging: {} };
  const bridge = new AppBridge(client, INFO, capabilities, { hostContext: { toolInfo: { tool } } });
  const initialized = new Promise((resolve) => bridge.addEventListener("initialized", resolve));
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  frame.srcdoc = page.text;
  await initialized;
  await bridge.sendToolInput({ arguments: {} });
  const result = await call(name);
  await bridge.sendToolResult(result);
  return { uri, html: page.text, app: bridge.getAppVersion()?.name, isError: result.isError ?? false };
}

window.host = { connect, call, offered, render };
