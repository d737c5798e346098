// TypeScript SDK 2.x, in the modern era.

import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { carryOut, read } from "./plan.mjs";

const { server, plan } = read();
const client = new Client({ name: "typescript-2", version: "1" }, { versionNegotiation: { mode: "auto" } });
await client.connect(new StdioClientTransport(server));
await carryOut(client, plan);
await client.close();
