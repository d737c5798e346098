// opencode, with `run`. It takes up a changed list.

export default {
  name: "opencode",
  client: "opencode",
  title: "opencode",
  package: "opencode-linux-x64",
  prefix: (entry) => `${entry}_`,
  opened: "list",
  whole: 40_000,
  files: ({ model }) => ({
    ".config/opencode/opencode.json": JSON.stringify({
      autoupdate: false,
      share: "disabled",
      provider: {
        scripted: {
          npm: "@ai-sdk/openai-compatible",
          name: "scripted",
          options: { baseURL: `${model}/v1`, apiKey: "fake" },
          models: { model: { name: "model", tool_call: true, limit: { context: 1_000_000, output: 8_000 } } },
        },
      },
    }),
  }),
  command: ({ installed, prompt }) => ({
    program: `${installed}/opencode-linux-x64/bin/opencode`,
    args: ["run", "--model", "scripted/model", prompt],
    env: { OPENCODE_DISABLE_MODELS_FETCH: "1", OPENCODE_DISABLE_AUTOUPDATE: "1" },
  }),
};
