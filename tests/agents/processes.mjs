// Which processes of the gateway are there. Everything runs in a namespace of process ids of its own, so that these
// are the conversation's.

import { readFileSync, readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/** Waits until no process has one of these places in its command line, and names those that stay. */
export async function endOf(places, within) {
  const ours = () => running().filter(({ command }) => places.some((place) => command.includes(place)));
  for (const end = Date.now() + within; ours().length > 0 && Date.now() < end; ) await sleep(20);
  const left = ours().map(({ command }) => command);
  return left.length > 0 ? left.join("; ").slice(0, 300) : undefined;
}

/** Kills all that an agent may have left of its own. */
export function killAll() {
  for (const { id } of running()) process.kill(id, "SIGKILL");
}

/** Every process but this one: its id and its command line. */
export function running() {
  const ids = readdirSync("/proc").filter((id) => /^\d+$/.test(id)).map(Number).filter((id) => id !== process.pid);
  // A zombie has no command line.
  return ids.map((id) => ({ id, command: commandOf(id) })).filter(({ command }) => command !== "");
}

/** Empty for a process that has ended meanwhile. */
function commandOf(id) {
  try {
    return readFileSync(`/proc/${id}/cmdline`, "utf8").replaceAll("\0", " ").trim();
  } catch {
    return "";
  }
}
