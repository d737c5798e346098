// A session of the SDK for TypeScript with a gateway over HTTP: `node session.mjs URL RESOURCE`. Opens the toolbox `dev`, calls,
// subscribes, answers a question and ends the session. Prints one line if everything was as it should be.

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  ElicitRequestSchema,
  ResourceUpdatedNotificationSchema,
  ToolListChangedNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";

const [url, uri] = process.argv.slice(2);
const client = new Client({ name: "typescript", version: "1" }, { capabilities: { elicitation: {} } });
const next = (schema) => new Promise((resolve) => client.setNotificationHandler(schema, resolve));
client.setRequestHandler(ElicitRequestSchema, async () => ({ action: "accept", content: { name: "Ann" } }));
const [changed, updated] = [next(ToolListChangedNotificationSchema), next(ResourceUpdatedNotificationSchema)];
const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);

const call = async (name, args) => {
  const result = await client.callTool({ name, arguments: args });
  assert.notEqual(result.isError, true, JSON.stringify(result));
  return result.content[0].text;
};
await call("open_toolbox", { toolbox_name: "dev" });
await changed;
assert.deepEqual((await client.listTools()).tools.map(({ name }) => name).slice(1),
  ["dev__a__echo", "dev__a__update", "dev__a__ask"]);
for (let n = 0; n < 6; n++) assert.equal(JSON.parse(await call("dev__a__echo", { n })).arguments.n, n);
const params = JSON.stringify({
  message: "Who?",
  requestedSchema: { type: "object", properties: { name: { type: "string" } } },
});
assert.match(await call("dev__a__ask", { method: "elicitation/create", params }), /Ann/);
await client.subscribeResource({ uri });
await call("dev__a__update", { uri: uri.slice(uri.indexOf("fake://")) });
assert.equal((await updated).params.uri, uri);
await transport.terminateSession();
await client.close();
console.log("all is well");
