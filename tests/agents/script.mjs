// What the scripted model "decides": a scenario is a generator that is given requests and yields decisions.
//
//     const request = yield call(tool, { toolbox_name: "dev" });
//
// sends the model's answer, and goes on with the agent's next request. When the generator returns, the model says that
// it is done, which ends the agent's turn.

/** A decision: call this tool, by the name that the request offers. `after` runs when the agent was told. */
export const call = (tool, input, after) => ({ call: tool.name, arguments: input, after });

/** Runs a scenario as the script of a model. A problem in it ends the conversation and is told to `failed`. */
export function follow(scenario, failed) {
  const done = { say: "All done." };
  let begun = false;
  return {
    next(request) {
      try {
        if (!begun) {
          begun = true;
          scenario.next();
        }
        return scenario.next(request).value ?? done;
      } catch (problem) {
        failed(problem);
        return done;
      }
    },
  };
}

/** Finds the gateway's tools in requests, by the names that they have without the prefix that the agent adds. */
export class Reader {
  constructor(agent, face) {
    this.face = face;
    this.prefix = agent.prefix(face.entry);
  }

  /** The tool of this name in the request's tools, if the model was offered it. */
  offered(request, name) {
    return request.tools.find((tool) => tool.name === this.prefix + name);
  }

  /** Which of these names are not among the request's tools. */
  notOffered(request, names) {
    return names.filter((name) => !this.offered(request, name));
  }

  /** Which of a server's tools the model was not told of. */
  notNamed(request, server, tools) {
    const catalog = this.offered(request, this.face.open)?.description ?? "";
    return tools.filter((tool) => !this.face.names(last(request).text, catalog, server, tool));
  }
}

/** The last answer of a tool that the model was given. */
export const last = (request) => request.results.at(-1) ?? { text: "" };
