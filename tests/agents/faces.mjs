// The two faces of the gateway: their files, their meta-tools, and how their tools are reached.

/** The servers behind the gateway, as groups: a real one from npm, and fake ones for what honest servers do not do. */
export function servers({ servers, fake }) {
  const tools = MANY.map((name) => ["--tool", JSON.stringify(definition(name))]);
  return {
    everything: ["node", `${servers}/@modelcontextprotocol/server-everything/dist/index.js`],
    odd: [fake, "--with", "large,result,error,never"],
    book: [fake, "--with", "lines"],
    many: [fake, ...tools.flat()],
  };
}

/** The servers whose long results the gateway keeps. */
const KEPT = ["book"];

/** Tools of the real server. */
export const REAL = [
  "echo",
  "get-annotated-message",
  "get-env",
  "get-resource-links",
  "get-resource-reference",
  "get-structured-content",
  "get-sum",
  "get-tiny-image",
  "gzip-file-as-resource",
  "simulate-research-query",
  "toggle-simulated-logging",
  "toggle-subscriber-updates",
  "trigger-long-running-operation",
];

/** Eighty tools of ordinary size. */
export const MANY = Array.from({ length: 80 }, (_, n) => `record_${String(n + 1).padStart(2, "0")}`);

function definition(name) {
  const text = (description) => ({ type: "string", description });
  return {
    name,
    description: `Reads ${name} from the archive. Answers with its fields, and with an error if it was withdrawn.`,
    inputSchema: {
      type: "object",
      properties: {
        id: text("The identifier of the record, as a search answers it"),
        fields: { type: "array", items: { type: "string" }, description: "Which fields to answer with (all)" },
        limit: { type: "integer", minimum: 1, maximum: 100, description: "How many lines of each field" },
      },
      required: ["id"],
    },
  };
}

const workbench = {
  name: "workbench",
  program: "mcp-workbench",
  entry: "workbench",
  file: "workbench-config.json",
  configuration(servers) {
    const entry = (name) => {
      const [command, ...args] = servers[name];
      return { command, args, ...(KEPT.includes(name) ? { offloadOver: "auto" } : {}) };
    };
    const box = (description, names) => ({
      description,
      mcpServers: Object.fromEntries(names.map((name) => [name, entry(name)])),
    });
    const toolboxes = { dev: box("Things to try", ["everything", "odd", "book"]), archive: box("Many records", ["many"]) };
    return JSON.stringify({ toolboxes }, null, 2);
  },
  open: "open_toolbox",
  use: "use_tool",
  read: "read_result",
  opening: (server) => ({ toolbox_name: TOOLBOX[server] }),
  using: (server, tool, input) => ({ tool: { toolbox: TOOLBOX[server], server, tool }, arguments: input }),
  exposed: (server, tool) => `${TOOLBOX[server]}__${server}__${tool}`,
  // As a string of JSON, which some agents put into another one.
  names: (answer, _, server, tool) => new RegExp(`"${tool}\\\\*"`).test(answer),
};

const TOOLBOX = { everything: "dev", odd: "dev", book: "dev", many: "archive" };

const toolman = {
  name: "toolman",
  program: "toolman",
  entry: "toolman",
  file: "tools.toml",
  configuration(servers) {
    const word = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
    const table = ([namespace, command]) =>
      `[[servers]]\nnamespace = "${namespace}"\ncommand = ${JSON.stringify(command.map(word).join(" "))}\n` +
      (KEPT.includes(namespace) ? `offload_over = "auto"\n` : "");
    return Object.entries(servers).map(table).join("\n");
  },
  open: "toolman_activate",
  use: "toolman_call",
  read: "toolman_read_result",
  opening: (server) => ({ tools_on: [`${server}_*`], tools_off: [], resources_on: [], resources_off: [] }),
  using: (server, tool, input) => ({ name: `${server}_${tool}`, arguments: input }),
  exposed: (server, tool) => `${server}_${tool}`,
  // The catalog names all tools from the start.
  names: (answer, catalog, server, tool) => new RegExp(`\\b${server}_${tool}(?![\\w-])`).test(`${answer}\n${catalog}`),
};

export const FACES = { workbench, toolman };
