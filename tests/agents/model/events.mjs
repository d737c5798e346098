// Server-sent events, as all streaming APIs write them.

let last = 0;

/** An id that no other thing of this conversation has. */
export const id = (prefix) => `${prefix}_${++last}`;

/** Begins to count anew, so that a conversation does not depend on those before it. */
export const restartIds = () => (last = 0);

/** Begins a stream of events, and gives what sends one. */
export function stream(outgoing) {
  outgoing.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
  return (data, name) => outgoing.write(`${name ? `event: ${name}\n` : ""}data: ${JSON.stringify(data)}\n\n`);
}

/** Answers with one JSON value. */
export function json(outgoing, value) {
  outgoing.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value));
}

/** The text of content that is a string or a list of parts with text. */
export function textOf(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => part.text ?? "").join("\n");
}
