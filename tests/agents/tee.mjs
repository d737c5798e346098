// Stands between an agent and the gateway, hands on every byte, and notes the lines of both in the order in which they
// passed: node tee.mjs NOTES GATEWAY [ARGUMENT…].

import { spawn } from "node:child_process";
import { appendFileSync } from "node:fs";

const [notes, gateway, ...args] = process.argv.slice(2);
const child = spawn(gateway, args, { stdio: ["pipe", "pipe", "inherit"] });
pass(process.stdin, child.stdin, "client");
pass(child.stdout, process.stdout, "gateway");
child.on("exit", (code) => process.exit(code ?? 1));
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) {
  process.on(signal, () => {
    noteEnd("client");
    child.kill(signal);
  });
}

function pass(from, to, who) {
  let rest = "";
  from.setEncoding("utf8").on("data", (text) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    // Noted before it is handed on, so that an answer never stands before its request.
    appendFileSync(notes, lines.map((line) => `{"${who}":${line}}\n`).join(""));
    to.write(text);
  });
  from.on("end", () => {
    noteEnd(who);
    to.end();
  });
  to.on("error", () => {});
}

/** An agent ends the gateway by closing its stdin, or by a signal. */
function noteEnd(who) {
  appendFileSync(notes, `{"ended":"${who}"}\n`);
}
