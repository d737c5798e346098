// Gemini: generateContent and streamGenerateContent.

import { json, stream } from "./events.mjs";

export const matches = (path) => /:(generateContent|streamGenerateContent|countTokens)$/.test(path);

export function decode(body, path) {
  const parts = (body.contents ?? []).flatMap(({ parts }) => parts ?? []);
  return {
    model: path.replace(/.*\/models\/(.*):.*/, "$1"),
    streams: path.endsWith(":streamGenerateContent"),
    tools: (body.tools ?? []).flatMap(({ functionDeclarations }) => functionDeclarations ?? []),
    results: parts.filter((part) => part.functionResponse).map(({ functionResponse: { response } }) => ({
      text: response.output ?? response.error ?? JSON.stringify(response),
      failed: response.error !== undefined,
    })),
    // Asked what it thinks as JSON, it has no opinion.
    wantsJson: body.generationConfig?.responseMimeType === "application/json",
  };
}

export function encode(outgoing, request, decision) {
  const part = decision.call
    ? { functionCall: { name: decision.call, args: decision.arguments } }
    : { text: request.wantsJson ? "{}" : decision.say };
  const answer = {
    candidates: [{ index: 0, content: { role: "model", parts: [part] }, finishReason: "STOP" }],
    usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 10, totalTokenCount: 20 },
    modelVersion: request.model,
    totalTokens: 10,
  };
  if (!request.streams) return json(outgoing, answer);
  stream(outgoing)(answer);
  outgoing.end();
}
