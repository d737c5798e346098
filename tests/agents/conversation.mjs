// One conversation: a fresh home, an agent set up by `connect`, a scripted model, and what came of it.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { Home } from "./home.mjs";
import { startModel } from "./model/server.mjs";
import { endOf, killAll } from "./processes.mjs";
import { Recorder } from "./recorder.mjs";
import { SCENARIOS, Stage } from "./scenarios.mjs";
import { Reader, follow } from "./script.mjs";

const PATIENCE = 90_000;

/**
 * Plays a scenario, and gives the outcome of each of its checks (`undefined` is success, a text is what was wrong),
 * what was measured, and a recording if one was asked for.
 */
export async function converse(places, agent, face, scenario, { record = false } = {}) {
  const { play, checks, end, kills } = SCENARIOS[scenario];
  const home = new Home(places);
  const outcome = { checks: {}, measures: {} };
  let problem;
  let child;
  const stage = new Stage({
    agent,
    face,
    reader: new Reader(agent, face),
    check: (name, wrong) => (outcome.checks[name] = wrong),
    measure: (name, value) => (outcome.measures[name] = value),
    killAgent: () => child.kill("SIGKILL"),
  });
  const model = await startModel(follow(play(stage), (error) => (problem ??= error.message)));
  try {
    for (const [file, text] of Object.entries(agent.files({ model: model.url }))) home.write(file, text);
    const entry = home.connect(face, agent);
    home.remember(face);
    const recorder = record ? new Recorder(home, entry) : undefined;
    const settings = { ...places, model: model.url, entry: face.entry, prompt: "Please do what has to be done." };
    child = start(home, agent.command(settings));
    const ended = await ending(child);
    const left = await endOf([places.gateway, places.servers], 10_000);
    const asPlanned = !ended.late && ended.signal === (kills ? "SIGKILL" : null);
    if (asPlanned) stage.check(end, left && `still running: ${left}`);
    problem ??= ended.late ? "the agent did not come to an end" : `the agent ended, and said ${ended.said}`;
    outcome.recording = recorder?.finish();
    outcome.requests = model.requests;
  } catch (error) {
    problem = error.message;
  } finally {
    killAll();
    await model.stop();
    home.remove();
  }
  const found = outcome.checks;
  outcome.checks = Object.fromEntries([...checks, end].map((name) => [name, name in found ? found[name] : problem]));
  return outcome;
}

function start(home, { program, args, env }) {
  return spawn(program, args, { cwd: home.project, env: home.environment(env), stdio: ["ignore", "pipe", "pipe"] });
}

/** Waits for the end of an agent, with the last of what it said. */
async function ending(child) {
  let said = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text) => (said = (said + text).slice(-600)));
  }
  let late = false;
  const deadline = setTimeout(() => {
    late = true;
    child.kill("SIGKILL");
  }, PATIENCE);
  const [, signal] = await once(child, "exit");
  clearTimeout(deadline);
  return { said: JSON.stringify(said.trim()), signal, late };
}
