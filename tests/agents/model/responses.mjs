// OpenAI Responses, streaming and not.

import { id, json, stream, textOf } from "./events.mjs";

export const matches = (path) => path.endsWith("/responses");

export function decode(body) {
  return {
    model: body.model,
    streams: body.stream === true,
    tools: (body.tools ?? []).flatMap(toolsOf),
    results: body.input.filter?.(({ type }) => type === "function_call_output").map(({ output }) => ({
      text: textOf(output),
      failed: false,
    })) ?? [],
  };
}

// A namespace holds tools; a call names both.
function toolsOf(tool) {
  if (tool.type === "namespace") {
    const inside = ({ name, description }) => ({ name: `${tool.name}__${name}`, description, namespace: tool.name });
    return tool.tools.map(inside);
  }
  return [{ name: tool.name ?? tool.type, description: tool.description }];
}

export function encode(outgoing, request, decision) {
  const item = decision.call ? callOf(request, decision) : messageOf(decision.say);
  const response = { id: id("resp"), object: "response", created_at: 0, model: request.model };
  const usage = {
    input_tokens: 10,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: 10,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: 20,
  };
  const completed = { ...response, status: "completed", output: [item], usage };
  if (!request.streams) return json(outgoing, completed);
  const send = stream(outgoing);
  let sequence_number = 0;
  const event = (type, members) => send({ type, sequence_number: sequence_number++, ...members }, type);
  event("response.created", { response: { ...response, status: "in_progress", output: [] } });
  event("response.output_item.added", { output_index: 0, item: { ...item, status: "in_progress" } });
  event("response.output_item.done", { output_index: 0, item });
  event("response.completed", { response: completed });
  outgoing.end();
}

function callOf(request, { call, arguments: input }) {
  const { namespace } = request.tools.find(({ name }) => name === call) ?? {};
  const name = namespace ? { name: call.slice(namespace.length + 2), namespace } : { name: call };
  return {
    type: "function_call",
    id: id("fc"),
    call_id: id("call"),
    ...name,
    arguments: JSON.stringify(input),
    status: "completed",
  };
}

const messageOf = (text) => ({
  type: "message",
  id: id("msg"),
  role: "assistant",
  status: "completed",
  content: [{ type: "output_text", text, annotations: [] }],
});
