//! Servers that keep something for the one client that they expect, such as a browser's current page. In the
//! daemon they are not shared unless the file says so; `doctor` names those that are shared over HTTP.

use super::{Command, Transport};

/// The programs that are known to keep such a state, as their packages are called.
const STATEFUL: [&str; 16] = [
    "@playwright/mcp",
    "playwright-mcp",
    "@executeautomation/playwright-mcp-server",
    "chrome-devtools-mcp",
    "@modelcontextprotocol/server-puppeteer",
    "puppeteer-mcp-server",
    "@browsermcp/mcp",
    "@browserbasehq/mcp-server-browserbase",
    "browser-use",
    "browser-use-mcp-server",
    "@angiejones/mcp-selenium",
    "mcp-selenium",
    "@mobilenext/mobile-mcp",
    "@wonderwhy-er/desktop-commander",
    "desktop-commander",
    "mcp-server-commands",
];

/// Whether a server is one of these programs, however its package is started.
pub fn keeps_state(transport: &Transport) -> bool {
    let Transport::Stdio(Command { program, args, .. }) = transport else { return false };
    std::iter::once(program).chain(args).any(|word| is_stateful(word))
}

/// Whether a word of a command names one of the programs: as a package, with or without a version, or as a
/// path to its executable or into its package.
fn is_stateful(word: &str) -> bool {
    let word = word.replace('\\', "/");
    // The `@` of a scope stands first; a later one begins a version.
    let unversioned = match word.char_indices().rfind(|(at, c)| *c == '@' && *at > 0) {
        Some((at, _)) if !word[at..].contains('/') => &word[..at],
        _ => &word,
    };
    let file = unversioned.rsplit('/').next().unwrap_or_default();
    let executable = file.split('.').next().unwrap_or_default();
    let is_in = |rest: &str, name: &str| {
        rest.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut packages = word.split("node_modules/").skip(1);
    STATEFUL.contains(&unversioned)
        || STATEFUL.contains(&executable)
        || word.contains('/') && packages.any(|rest| STATEFUL.iter().any(|name| is_in(rest, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_keep_state_are_known_however_they_are_started() {
        for (line, expected) in [
            ("npx -y @playwright/mcp@latest", true),
            ("npx @playwright/mcp --headless", true),
            ("npx chrome-devtools-mcp@0.6.0", true),
            ("node /opt/node_modules/@playwright/mcp/cli.js", true),
            ("node C:\\x\\node_modules\\chrome-devtools-mcp\\build\\index.js", true),
            ("/usr/local/bin/playwright-mcp", true),
            ("playwright-mcp.cmd", true),
            ("uvx browser-use --mcp", true),
            ("npx -y @modelcontextprotocol/server-filesystem .", false),
            ("node my-playwright-mcp-notes.js", false),
            ("npx @playwright/mcp-tools", false),
            ("node /opt/node_modules/@playwright/mcp-tools/cli.js", false),
            ("server --email me@chrome.example", false),
        ] {
            let mut words = line.split(' ').map(str::to_owned);
            let program = words.next().expect("a program");
            let (args, env, inherit_env) = (words.collect(), Vec::new(), Vec::new());
            let transport = Transport::Stdio(Command { program, args, env, cwd: None, inherit_env });
            assert_eq!(keeps_state(&transport), expected, "{line}");
        }
    }

    /// The documentation shows the list beside the key.
    #[test]
    fn the_documentation_has_the_whole_list() {
        let page = include_str!("../../docs/daemon.md");
        let listed: Vec<_> =
            page.lines().filter_map(|line| line.strip_prefix("- `")?.strip_suffix('`')).collect();
        assert_eq!(listed, STATEFUL);
    }
}
