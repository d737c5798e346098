// Anthropic Messages, streaming and not.

import { id, json, stream, textOf } from "./events.mjs";

export const matches = (path) => path.endsWith("/v1/messages");

export function decode(body) {
  const blocks = body.messages.flatMap(({ content }) => (Array.isArray(content) ? content : []));
  return {
    model: body.model,
    streams: body.stream === true,
    // A deferred tool is not offered: the model sees its name at most.
    tools: (body.tools ?? []).filter((tool) => !tool.defer_loading),
    results: blocks.filter(({ type }) => type === "tool_result").map(({ content, is_error }) => ({
      text: textOf(content),
      failed: is_error === true,
    })),
  };
}

export function encode(outgoing, request, decision) {
  const [block, empty, delta, reason] = decision.call
    ? [
        { type: "tool_use", id: id("toolu"), name: decision.call, input: decision.arguments },
        { input: {} },
        { type: "input_json_delta", partial_json: JSON.stringify(decision.arguments) },
        "tool_use",
      ]
    : [{ type: "text", text: decision.say }, { text: "" }, { type: "text_delta", text: decision.say }, "end_turn"];
  const usage = { input_tokens: 10, output_tokens: 10 };
  const message = { id: id("msg"), type: "message", role: "assistant", model: request.model, usage };
  if (!request.streams) {
    return json(outgoing, { ...message, content: [block], stop_reason: reason, stop_sequence: null });
  }
  const send = stream(outgoing);
  const event = (type, members) => send({ type, ...members }, type);
  event("message_start", { message: { ...message, content: [], stop_reason: null, stop_sequence: null } });
  event("content_block_start", { index: 0, content_block: { ...block, ...empty } });
  event("content_block_delta", { index: 0, delta });
  event("content_block_stop", { index: 0 });
  event("message_delta", { delta: { stop_reason: reason, stop_sequence: null }, usage });
  event("message_stop", {});
  outgoing.end();
}
