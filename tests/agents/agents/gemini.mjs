// Gemini CLI, headless. It takes up a changed list.

export default {
  name: "gemini",
  client: "gemini",
  title: "Gemini CLI",
  package: "@google/gemini-cli",
  prefix: (entry) => `mcp_${entry}_`,
  opened: "list",
  whole: 8_000,
  files: () => ({
    ".gemini/settings.json": JSON.stringify({
      security: { auth: { selectedType: "gemini-api-key" } },
      privacy: { usageStatisticsEnabled: false },
      telemetry: { enabled: false },
      general: { enableAutoUpdate: false },
    }),
  }),
  command: ({ installed, node, model, prompt }) => ({
    program: node,
    args: [
      `${installed}/@google/gemini-cli/bundle/gemini.js`,
      ...["--prompt", prompt, "--yolo", "--model", "gemini-2.5-flash"],
    ],
    env: {
      GEMINI_API_KEY: "fake",
      GOOGLE_GEMINI_BASE_URL: model,
      GEMINI_CLI_TRUST_WORKSPACE: "true",
      // Else it starts itself once more, and whoever kills it kills the first of the two.
      GEMINI_CLI_NO_RELAUNCH: "true",
    },
  }),
};
