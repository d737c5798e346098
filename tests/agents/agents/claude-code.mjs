// Claude Code, in print mode: a version of the modern era, whose model finds opened tools in the answer, and one of the
// legacy era, which takes up a changed list.

const claudeCode = (own) => ({
  title: "Claude Code",
  client: "claude-code",
  prefix: (entry) => `mcp__${entry}__`,
  files: () => ({}),
  command: ({ installed, model, entry, prompt }) => ({
    program: `${installed}/${own.package}/claude`,
    args: ["--print", prompt, "--model", "claude-sonnet-4-5", "--allowedTools", `mcp__${entry}`],
    env: {
      ANTHROPIC_BASE_URL: model,
      ANTHROPIC_API_KEY: "fake",
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
      DISABLE_AUTOUPDATER: "1",
    },
  }),
  ...own,
});

export const modern = claudeCode({
  name: "claude-code",
  package: "@anthropic-ai/claude-code-linux-x64",
  opened: "answer",
  // More than it hands on of other tools' answers: the definitions of our meta-tools ask for it.
  whole: 180_000,
});

export const legacy = claudeCode({
  name: "claude-code-legacy",
  package: "claude-code-legacy",
  opened: "list",
  whole: 42_000,
});
