// OpenAI Chat Completions, streaming and not.

import { id, json, stream, textOf } from "./events.mjs";

export const matches = (path) => path.endsWith("/chat/completions");

export function decode(body) {
  return {
    model: body.model,
    streams: body.stream === true,
    tools: (body.tools ?? []).map((tool) => tool.function),
    results: body.messages.filter(({ role }) => role === "tool").map(({ content }) => ({
      text: textOf(content),
      failed: false,
    })),
  };
}

export function encode(outgoing, request, decision) {
  const call = decision.call && {
    index: 0,
    id: id("call"),
    type: "function",
    function: { name: decision.call, arguments: JSON.stringify(decision.arguments) },
  };
  const message = { role: "assistant", content: decision.say ?? null, ...(call && { tool_calls: [call] }) };
  const finish_reason = call ? "tool_calls" : "stop";
  const usage = { prompt_tokens: 10, completion_tokens: 10, total_tokens: 20 };
  const head = { id: id("chatcmpl"), created: 0, model: request.model };
  if (!request.streams) {
    const choices = [{ index: 0, message, finish_reason }];
    return json(outgoing, { ...head, object: "chat.completion", choices, usage });
  }
  const send = stream(outgoing);
  const chunk = (choices, members) => send({ ...head, object: "chat.completion.chunk", choices, ...members });
  chunk([{ index: 0, delta: message, finish_reason: null }]);
  chunk([{ index: 0, delta: {}, finish_reason }]);
  chunk([], { usage });
  outgoing.end("data: [DONE]\n\n");
}
