// Codex, with `exec`. It never asks for a changed list, so opened tools are in the answer.

export default {
  name: "codex",
  client: "codex",
  title: "Codex",
  package: "@openai/codex",
  prefix: (entry) => `mcp__${entry}__`,
  opened: "answer",
  whole: 9_000,
  files: ({ model }) => ({
    ".codex/config.toml": `
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "${model}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"

[analytics]
enabled = false

[otel]
exporter = "none"
`,
  }),
  command: ({ installed, prompt }) => ({
    program: `${installed}/@openai/codex/vendor/x86_64-unknown-linux-musl/bin/codex`,
    args: ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt],
    env: { SCRIPTED_KEY: "fake" },
  }),
};
