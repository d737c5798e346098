// The scripted model: an HTTP server on loopback that answers as the APIs of model vendors do.
//
// What it answers is decided by a script (script.mjs). Each API is a codec (anthropic.mjs, responses.mjs, chat.mjs,
// gemini.mjs): `matches` knows its path, `decode` makes a request of the one form that scripts read, `encode` writes
// what the script decided. Every request of the conversation is kept, so that scenarios can assert what stood in it.

import { createServer } from "node:http";
import * as anthropic from "./anthropic.mjs";
import * as chat from "./chat.mjs";
import { restartIds } from "./events.mjs";
import * as gemini from "./gemini.mjs";
import * as responses from "./responses.mjs";

const CODECS = [anthropic, responses, chat, gemini];

/**
 * Starts a model that follows a script.
 *
 * Requests without tools are an agent's own business, such as a title for the conversation: they get one word.
 */
export async function startModel(script) {
  restartIds();
  const requests = [];
  const server = createServer(async (incoming, outgoing) => {
    const path = new URL(incoming.url, "http://model").pathname;
    const text = await bodyOf(incoming);
    const codec = CODECS.find((codec) => incoming.method === "POST" && codec.matches(path));
    if (!codec) {
      outgoing.writeHead(404, { "content-type": "application/json" }).end('{"error":{"message":"not here"}}');
      return;
    }
    const body = JSON.parse(text);
    const request = { ...codec.decode(body, path), body };
    if (request.tools.length === 0) {
      codec.encode(outgoing, request, { say: "Fine." });
      return;
    }
    requests.push(request);
    const decision = script.next(request);
    if (decision.after) outgoing.on("finish", decision.after);
    codec.encode(outgoing, request, decision);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    requests,
    stop: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

async function bodyOf(incoming) {
  const parts = [];
  for await (const part of incoming) parts.push(part);
  return Buffer.concat(parts).toString("utf8");
}
