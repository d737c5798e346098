// Cline CLI. It never asks for a changed list, so opened tools are in the answer.

export default {
  name: "cline",
  client: "cline",
  title: "Cline CLI",
  package: "@cline/cli-linux-x64",
  prefix: (entry) => `${entry}__`,
  opened: "answer",
  whole: 7_000,
  files: ({ model }) => ({
    ".cline/data/settings/providers.json": JSON.stringify({
      version: 1,
      lastUsedProvider: "openai-compatible",
      modes: {},
      providers: {
        "openai-compatible": {
          settings: { provider: "openai-compatible", apiKey: "fake", model: "scripted", baseUrl: `${model}/v1` },
          updatedAt: "2026-01-01T00:00:00.000Z",
          tokenSource: "manual",
        },
      },
    }),
  }),
  command: ({ installed, prompt }) => ({
    program: `${installed}/@cline/cli-linux-x64/bin/cline`,
    args: [prompt],
    env: { CLINE_NO_AUTO_UPDATE: "1" },
  }),
};
