// TypeScript SDK 1.x.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { carryOut, read } from "./plan.mjs";

const { server, plan } = read();
const client = new Client({ name: "typescript-1", version: "1" });
await client.connect(new StdioClientTransport(server));
await carryOut(client, plan);
await client.close();
