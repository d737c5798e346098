//! Programs that may have to download a server before they can start it.

use super::Transport;
use std::time::Duration;

/// The time for a download and the start after it. Ending a package runner in the middle of an install can
/// break its cache for good.
const DOWNLOAD: Duration = Duration::from_secs(300);

const RUNNERS: [&str; 7] = ["npx", "bunx", "pnpx", "uvx", "pipx", "docker", "podman"];

/// Programs that are package runners when one of these words follows.
const SUBCOMMANDS: [(&str, &[&str]); 7] = [
    ("npm", &["exec"]),
    ("npm", &["x"]),
    ("pnpm", &["dlx"]),
    ("yarn", &["dlx"]),
    ("bun", &["x"]),
    ("uv", &["tool", "run"]),
    ("uv", &["run"]),
];

/// When a server that is not ready is ended, if its entry does not say so.
pub(super) fn start_timeout(transport: Option<&Transport>, connect: Duration) -> Duration {
    match transport {
        Some(Transport::Stdio(command)) if may_download(&command.program, &command.args) => {
            DOWNLOAD.max(connect)
        }
        _ => connect,
    }
}

fn may_download(program: &str, args: &[String]) -> bool {
    let name = program.rsplit(['/', '\\']).next().unwrap_or_default().to_ascii_lowercase();
    let name = [".exe", ".cmd", ".bat"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
    // Windows starts scripts such as `npx` through its shell.
    if name == "cmd"
        && let [flag, program, args @ ..] = args
        && flag.eq_ignore_ascii_case("/c")
    {
        return may_download(program, args);
    }
    // Options may stand before and between the words.
    let words: Vec<_> = args.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    RUNNERS.contains(&name)
        || SUBCOMMANDS.iter().any(|(program, expected)| name == *program && words.starts_with(expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_runners_may_download() {
        for (command, expected) in [
            ("npx -y @modelcontextprotocol/server-memory", true),
            ("/usr/local/bin/npx x", true),
            (r"C:\nodejs\npx.cmd x", true),
            ("NPX.CMD x", true),
            ("cmd /c npx -y x", true),
            ("cmd /C node server.js", false),
            ("bunx x", true),
            ("pnpx x", true),
            ("uvx mcp-server-time", true),
            ("pipx run x", true),
            ("docker run -i --rm x", true),
            ("podman run x", true),
            ("npm exec x", true),
            ("npm x y", true),
            ("npm --silent exec x", true),
            ("npm start", false),
            ("pnpm dlx x", true),
            ("pnpm exec x", false),
            ("yarn dlx x", true),
            ("bun x y", true),
            ("bun run x", false),
            ("uv tool run x", true),
            ("uv tool install x", false),
            ("uv run server.py", true),
            ("uv pip install x", false),
            ("node server.js npx", false),
            ("npx-like x", false),
            ("python -m x", false),
        ] {
            let mut words = command.split(' ').map(str::to_owned);
            let program = words.next().expect("a program");
            assert_eq!(may_download(&program, &words.collect::<Vec<_>>()), expected, "{command}");
        }
    }
}
