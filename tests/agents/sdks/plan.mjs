// What the programs of both TypeScript SDKs do with a client that is connected; index.mjs has the story.

/** The arguments of this program: the plan, and the gateway's command as transports want it. */
export function read() {
  const { command: [command, ...args], ...plan } = JSON.parse(process.argv[2]);
  return { server: { command, args }, plan };
}

/** Carries out the plan, and prints what came of it. */
export async function carryOut(client, { open, direct, use }) {
  const list = async () => (await client.listTools()).tools.map(({ name }) => name);
  const call = async (what) => (await client.callTool(what)).content.map(({ text }) => text).join("\n");
  const before = await list();
  const opened = await call(open);
  const after = await list();
  const called = await call(after.includes(direct.name) ? direct : use);
  console.log(JSON.stringify({ before, opened, after, called }));
}
