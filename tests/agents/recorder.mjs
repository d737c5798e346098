// Records what an agent writes to the gateway, in the form that `cargo test --test it agents::` replays.
//
// The first line of a recording says whose it is and how the gateway was started. After it, `{"client": MESSAGE}` is
// what the agent wrote, `{"answered": ID}` and `{"notified": METHOD}` what it had been sent by then, and
// `{"ended": "client"}` that it ended us. All that differs from run to run is made alike: ids and tokens are numbered,
// times are 0, unique ids all noughts, the home is `{home}`, and the id of a kept result is `{result}`.

import { chmodSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const UNIQUE = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;
const TIME = /\b1[0-9]{12}\b/g;
const RESULT = /\br[a-z0-9]{20}\b/g;

/** Notifications that agents act upon. */
const HEARD = ["notifications/tools/list_changed", "notifications/subscriptions/acknowledged"];

export class Recorder {
  /** Puts the tee between the agent and what `connect` has registered. */
  constructor(home, entry) {
    this.home = home;
    this.args = entry.args;
    this.notes = join(home.path, "notes.jsonl");
    const words = [home.places.node, join(import.meta.dirname, "tee.mjs"), this.notes, entry.command];
    const script = home.write("tee", `#!/bin/sh\nexec ${words.map((word) => `'${word}'`).join(" ")} "$@"\n`);
    chmodSync(script, 0o755);
    home.interpose(entry, script);
  }

  /** The lines of the recording. */
  finish() {
    if (!existsSync(this.notes)) return undefined;
    const lines = readFileSync(this.notes, "utf8").trim().split("\n").map((line) => JSON.parse(line));
    const numbers = new Numbers();
    const kept = lines.flatMap(({ client, gateway, ended }) => {
      if (client) return fromClient(client, numbers);
      if (gateway) return fromGateway(gateway, numbers);
      return ended === "client" ? [{ ended }] : [];
    });
    return [{ arguments: this.args }, ...kept].map((line) => this.alike(JSON.stringify(line)));
  }

  alike(line) {
    const place = JSON.stringify(this.home.path).slice(1, -1);
    const alike = line.replaceAll(place, "{home}").replace(RESULT, "{result}");
    return alike.replace(UNIQUE, (id) => id.replace(/[0-9a-f]/g, "0")).replace(TIME, "0");
  }
}

/** A request or a notification. What the agent answers to us depends on the servers, which replays do not have. */
function fromClient(message, numbers) {
  if (message.method === undefined) return [];
  const token = message.params?._meta?.progressToken;
  if (token !== undefined) message.params._meta.progressToken = numbers.of("token", token);
  const about = message.params?.requestId;
  if (about !== undefined) message.params.requestId = numbers.of("id", about);
  if (message.id !== undefined) message.id = numbers.of("id", message.id);
  return [{ client: message }];
}

function fromGateway(message, numbers) {
  if (message.method === undefined) return [{ answered: numbers.of("id", message.id) }];
  return HEARD.includes(message.method) ? [{ notified: message.method }] : [];
}

/** Numbers ids in the order in which they appear. */
class Numbers {
  #known = new Map();
  #counts = {};

  of(kind, id) {
    const key = `${kind} ${JSON.stringify(id)}`;
    if (!this.#known.has(key)) this.#known.set(key, (this.#counts[kind] = (this.#counts[kind] ?? 0) + 1));
    return this.#known.get(key);
  }
}
