// Claude Code, in print mode. It speaks the modern era, so opened tools are in the answer.

export default {
  name: "claude-code",
  title: "Claude Code",
  package: "@anthropic-ai/claude-code-linux-x64",
  prefix: (entry) => `mcp__${entry}__`,
  opened: "answer",
  whole: 180_000,
  files: () => ({}),
  command: ({ installed, model, entry, prompt }) => ({
    program: `${installed}/@anthropic-ai/claude-code-linux-x64/claude`,
    args: ["--print", prompt, "--model", "claude-sonnet-4-5", "--allowedTools", `mcp__${entry}`],
    env: {
      ANTHROPIC_BASE_URL: model,
      ANTHROPIC_API_KEY: "fake",
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
      DISABLE_AUTOUPDATER: "1",
    },
  }),
};
