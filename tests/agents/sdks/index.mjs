// SDKs as clients: list, open, list again, call, each in the smallest program of its kind.
//
// A program gets one JSON argument: `command` of the gateway, `open`, `direct` and `use`, each a `name` with its
// `arguments`. It calls `direct` if that is listed after opening, else `use`, and prints one JSON object: the names
// `before` and `after` opening, and the texts `opened` and `called`.

import { spawnSync } from "node:child_process";
import { cpSync, readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { MANY } from "../faces.mjs";
import { Home } from "../home.mjs";
import { endOf, killAll } from "../processes.mjs";

export const SDKS = [
  { name: "typescript-1", title: "TypeScript SDK", opened: "list", package: "@modelcontextprotocol/sdk" },
  { name: "typescript-2", title: "TypeScript SDK", opened: "answer", package: "@modelcontextprotocol/client" },
  { name: "python-1", title: "Python SDK", opened: "list", requirement: "mcp" },
  { name: "python-2", title: "Python SDK", opened: "answer", requirement: "mcp" },
  { name: "fastmcp-4", title: "FastMCP", opened: "answer", requirement: "fastmcp" },
];

/** The file that pins a Python SDK. */
export const requirements = ({ name }) => join(import.meta.dirname, `${name}.txt`);

/** The version that is pinned for a Python SDK. */
export function pinned(sdk) {
  return readFileSync(requirements(sdk), "utf8").match(new RegExp(`^${sdk.requirement}==(.*)$`, "m"))[1];
}

/** Runs an SDK's program against a face, and gives the outcome of its checks. */
export async function trySdk(places, sdk, face) {
  const home = new Home(places);
  try {
    const { status, stdout, stderr } = spawnSync(...program(home, sdk, plan(home, face)), {
      cwd: home.project,
      env: home.environment({}),
      encoding: "utf8",
      timeout: 60_000,
    });
    const left = await endOf([places.gateway, places.servers], 10_000);
    const checks = status === 0 ? judge(sdk, face, JSON.parse(stdout)) : failed(stderr.trim().slice(-300));
    return { checks: { ...checks, end: left && `still running: ${left}` } };
  } finally {
    killAll();
    home.remove();
  }
}

const failed = (why) => ({ connect: why, open: why, call: why });

function plan(home, face) {
  const [server, tool, input] = ["many", MANY[0], { id: "7" }];
  return {
    command: home.configure(face),
    open: { name: face.open, arguments: face.opening(server) },
    direct: { name: face.exposed(server, tool), arguments: input },
    use: { name: face.use, arguments: face.using(server, tool, input) },
  };
}

/** The programs run from a copy, beside which Node finds the packages and Python may write. */
function program(home, sdk, plan) {
  const { node, installed, pythons } = home.places;
  const copy = join(home.project, "sdks");
  cpSync(import.meta.dirname, copy, { recursive: true });
  symlinkSync(installed, join(home.project, "node_modules"));
  const [runs, ending] = sdk.requirement ? [pythons[sdk.name], "py"] : [node, "mjs"];
  return [runs, [join(copy, `${sdk.name}.${ending}`), JSON.stringify(plan)]];
}

function judge({ opened: where }, face, { before, opened, after, called }) {
  const listed = (tool) => after.includes(face.exposed("many", tool));
  const named = (tool) => face.names(opened, "", "many", tool);
  const unseen = MANY.filter((tool) => !(where === "list" ? listed : named)(tool));
  return {
    connect: before.includes(face.open) ? undefined : `${face.open} is not among ${before.join(", ")}`,
    open: unseen.length > 0 ? `${unseen.length} of ${MANY.length} tools are not in the ${where}` : undefined,
    call: called.includes('"id":"7"') ? undefined : `the call was answered with ${called.slice(0, 200)}`,
  };
}
