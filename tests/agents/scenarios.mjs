// What every agent has to manage, on either face. A scenario is a conversation and checks what stood in each request
// that the model received: "offered" means that a tool is in the request's tools.
//
// An agent's `opened` says where the model looks for opened tools: in the `list` of the next request, or in the
// `answer` to opening, from which they are called through the face's `use`.

import { MANY, REAL } from "./faces.mjs";
import { call, last } from "./script.mjs";

/** Connect, open, call a real server's tool, be told of errors. */
function* tools(stage) {
  const { face, reader, agent, check } = stage;
  const metas = agent.opened === "list" ? [face.open] : [face.open, face.use];
  let request = yield* stage.first();
  check("connect", missing("not offered", reader.notOffered(request, metas)));

  request = yield* stage.open(request, "everything");
  check("open", stage.unseen(request, "everything", REAL));
  request = yield* stage.untilOffered(request, "everything", "echo");
  request = yield* stage.use(request, "everything", "echo", { message: "hello" });
  check("call", wanted(request, "Echo: hello"));

  if (face.name === "toolman") request = yield* stage.open(request, "odd");
  request = yield* stage.untilOffered(request, "odd", "result");
  const refused = { content: [{ type: "text", text: "the record was withdrawn" }], isError: true };
  request = yield* stage.use(request, "odd", "result", { json: JSON.stringify(refused) });
  const first = wanted(request, "the record was withdrawn");
  request = yield* stage.use(request, "odd", "error", { json: '{"code":-32000,"message":"the disk is full"}' });
  check("error", first ?? wanted(request, "the disk is full"));
}

/** Eighty tools of ordinary size: all are offered, or named. */
function* eighty(stage) {
  const request = yield* stage.open(yield* stage.first(), "many");
  stage.check("80 tools", stage.unseen(request, "many", MANY));
}

/** Answers as long as we presume that the agent hands on, and one that is far longer. */
function* long(stage) {
  const { agent, check, measure } = stage;
  let request = yield* stage.open(yield* stage.first(), "odd");
  request = yield* stage.untilOffered(request, "odd", "large");
  request = yield* stage.use(request, "odd", "large", { bytes: agent.whole });
  const got = received(request);
  check("long answer", got < agent.whole ? `${got} of ${agent.whole} characters reached the model` : undefined);
  request = yield* stage.use(request, "odd", "large", { bytes: 300_000 });
  measure("of 300,000 characters", received(request));
}

/** A result that every agent would cut: it is read in parts to its end, and the answer stands in its middle. */
function* result(stage) {
  const { face, reader, check } = stage;
  let request = yield* stage.open(yield* stage.first(), "book");
  request = yield* stage.untilOffered(request, "book", "lines");
  request = yield* stage.use(request, "book", "lines", { n: LINES });
  const tool = reader.offered(request, face.read);
  if (!tool) throw new Error(`${face.read} is not offered`);
  const seen = new Map();
  let next = nextCall(request);
  if (!next) throw new Error(`the notice names no call: ${last(request).text.slice(0, 200)}`);
  for (next.bytes = "0-"; next; next = nextCall(request)) {
    request = yield call(tool, next);
    for (const [, line, number] of last(request).text.matchAll(/line (\d+) holds (\d+)/g)) seen.set(+line, +number);
  }
  const unread = Array.from({ length: LINES }, (_, n) => n + 1).filter((line) => seen.get(line) !== held(line));
  check("long result", missing("not read", unread.map((line) => `line ${line}`)));
  yield { say: `Line ${LINES / 2} holds ${seen.get(LINES / 2)}.` };
}

/** As many lines as make about 80 KB. */
const LINES = 4000;

/** The number that a line of the fake server holds. */
const held = (line) => (line * 7919) % 10007;

/** The arguments of the call by which an answer says that reading goes on. Some agents put answers into JSON. */
function nextCall(request) {
  const quoted = (text) => `\\\\*"${text}\\\\*"`;
  const next = new RegExp(`Next: \\w+ \\{${quoted("id")}:${quoted("(r[a-z0-9]+)")},${quoted("bytes")}:${quoted("(\\d+-)")}\\}`);
  const found = next.exec(last(request).text);
  return found ? { id: found[1], bytes: found[2] } : undefined;
}

/** The agent is killed while it calls a tool. */
function* kill(stage) {
  let request = yield* stage.open(yield* stage.first(), "odd");
  request = yield* stage.untilOffered(request, "odd", "never");
  yield* stage.use(request, "odd", "never", {}, stage.killAgent);
}

/**
 * Every scenario with its checks; `end` is the one that the driver makes: nothing is left when the agent is gone.
 * `recorded` is what the name of a recording ends with.
 */
export const SCENARIOS = {
  tools: { play: tools, checks: ["connect", "open", "call", "error"], end: "end", recorded: "" },
  eighty: { play: eighty, checks: ["80 tools"], end: "end" },
  long: { play: long, checks: ["long answer"], end: "end" },
  result: { play: result, checks: ["long result"], end: "end", recorded: "-result" },
  kill: { play: kill, checks: [], end: "kill -9", kills: true },
};

/** The steps that scenarios are made of. */
export class Stage {
  constructor({ agent, face, reader, check, measure, killAgent }) {
    Object.assign(this, { agent, face, reader, check, measure, killAgent });
  }

  /** The first request of the conversation. */
  *first() {
    return yield;
  }

  /** Opens what this server stands in. */
  *open(request, server) {
    const tool = this.reader.offered(request, this.face.open);
    if (!tool) throw new Error(`${this.face.open} is not offered`);
    return yield call(tool, this.face.opening(server));
  }

  /** What is wrong if the model does not see these tools where it looks. */
  unseen(request, server, tools) {
    const { agent, face, reader } = this;
    return agent.opened === "list"
      ? missing("not offered", reader.notOffered(request, tools.map((tool) => face.exposed(server, tool))))
      : missing("not named", reader.notNamed(request, server, tools));
  }

  /** Opens again until the tool can be called: some agents are late. */
  *untilOffered(request, server, tool) {
    const ways = [this.face.exposed(server, tool), this.face.use];
    for (let tries = 0; tries < 2 && this.reader.notOffered(request, ways).length === ways.length; tries += 1) {
      request = yield* this.open(request, server);
    }
    return request;
  }

  /** Calls a tool, directly where it is offered. */
  *use(request, server, tool, input, after) {
    const { face, reader } = this;
    const direct = reader.offered(request, face.exposed(server, tool));
    if (direct) return yield call(direct, input, after);
    const through = reader.offered(request, face.use);
    if (!through) throw new Error(`neither ${face.exposed(server, tool)} nor ${face.use} is offered`);
    return yield call(through, face.using(server, tool, input), after);
  }
}

function missing(what, names) {
  if (names.length === 0) return undefined;
  return `${what}: ${names.slice(0, 3).join(", ")}${names.length > 3 ? ` and ${names.length - 3} more` : ""}`;
}

function wanted(request, text) {
  if (last(request).text.includes(text)) return undefined;
  return `the model was told ${JSON.stringify(last(request).text.slice(0, 200))}, without ${JSON.stringify(text)}`;
}

/** How much of the fake server's long text has reached the model. */
const received = (request) => (last(request).text.match(/x{50,}/g) ?? []).join("").length;
