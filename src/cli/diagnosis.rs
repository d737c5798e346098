//! Common faults of servers, recognised by what they write to stderr, and the remedies.
//!
//! `doctor` and the verbs that need a server ask this module before they fall back on general advice. It is
//! pure: text in, text out.

use crate::config::read::nearest;

/// The fault of a server and its remedy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Diagnosis {
    /// The problem, if it is known more exactly than from how the server ended.
    pub(super) problem: Option<String>,
    /// The remedy.
    pub(super) hint: String,
}

impl Diagnosis {
    pub(super) fn cure(hint: String) -> Self {
        Self { problem: None, hint }
    }
}

/// Recognises a fault by how a server ended and by what it wrote to stderr.
pub(super) fn diagnose(problem: &str, stderr: &str) -> Option<Diagnosis> {
    let lines: Vec<_> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    broken_cache(&lines)
        .or_else(|| unknown_package(&lines))
        .or_else(|| missing_interpreter(problem, &lines))
        .or_else(|| taken_port(&lines))
        .or_else(|| traceback(problem, stderr))
}

/// An install by `npx` that was interrupted.
fn broken_cache(lines: &[&str]) -> Option<Diagnosis> {
    lines.iter().find(|line| line.contains("ERR_MODULE_NOT_FOUND"))?;
    let directory = lines.iter().find_map(|line| {
        let marker = ["/_npx/", "\\_npx\\"].iter().find_map(|marker| line.find(marker))?;
        let hash = marker + "/_npx/".len();
        let end = hash + line[hash..].find(|c: char| !c.is_ascii_alphanumeric())?;
        // A path in quotes may hold spaces.
        let quoted = line[..marker].matches('\'').count() % 2 == 1;
        let before = |c: char| if quoted { c == '\'' } else { c.is_whitespace() || "(\"`".contains(c) };
        let start = line[..marker].rfind(before).map_or(0, |at| at + 1);
        Some(line[start..end].trim_start_matches("file://"))
    })?;
    let quoted = if directory.contains(' ') { format!("'{directory}'") } else { directory.to_owned() };
    Some(Diagnosis::cure(format!(
        "npx has left a broken install behind; run `rm -rf {quoted}` and try again"
    )))
}

/// A package that does not exist on npm.
fn unknown_package(lines: &[&str]) -> Option<Diagnosis> {
    lines.iter().find(|line| line.contains("E404"))?;
    let named = lines.iter().find_map(|line| {
        let (_, rest) = line.split_once("404")?;
        let (name, rest) = rest.trim().strip_prefix('\'')?.split_once('\'')?;
        rest.contains("not").then_some(name)
    })?;
    // The requested version follows the name.
    let package = named.char_indices().skip(1).find(|(_, c)| *c == '@').map_or(named, |(at, _)| &named[..at]);
    let near = nearest(package, &PACKAGES).or_else(|| {
        let bare: Vec<_> = PACKAGES.iter().map(|package| bare(package)).collect();
        let found = nearest(&self::bare(package), &bare)?;
        PACKAGES.iter().copied().find(|package| self::bare(package) == found)
    });
    let meant = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    Some(Diagnosis::cure(format!("npm has no package `{package}`{meant}")))
}

/// A package's name without the parts that most names share.
fn bare(package: &str) -> String {
    let name = package.rsplit('/').next().unwrap_or_default();
    name.split('-')
        .filter(|word| !["mcp", "server", "developer"].contains(word))
        .collect::<Vec<_>>()
        .join("-")
}

/// Official and popular servers on npm.
const PACKAGES: [&str; 27] = [
    "@modelcontextprotocol/server-everything",
    "@modelcontextprotocol/server-filesystem",
    "@modelcontextprotocol/server-memory",
    "@modelcontextprotocol/server-sequential-thinking",
    "@modelcontextprotocol/server-github",
    "@modelcontextprotocol/server-gitlab",
    "@modelcontextprotocol/server-google-maps",
    "@modelcontextprotocol/server-postgres",
    "@modelcontextprotocol/server-puppeteer",
    "@modelcontextprotocol/server-slack",
    "@brave/brave-search-mcp-server",
    "@cloudflare/mcp-server-cloudflare",
    "@elastic/mcp-server-elasticsearch",
    "@notionhq/notion-mcp-server",
    "@playwright/mcp",
    "@sentry/mcp-server",
    "@stripe/mcp",
    "@supabase/mcp-server-supabase",
    "@upstash/context7-mcp",
    "chrome-devtools-mcp",
    "exa-mcp-server",
    "figma-developer-mcp",
    "firecrawl-mcp",
    "kubernetes-mcp-server",
    "mcp-remote",
    "mongodb-mcp-server",
    "tavily-mcp",
];

/// A script whose interpreter is missing, or a shell command whose program is missing.
fn missing_interpreter(problem: &str, lines: &[&str]) -> Option<Diagnosis> {
    let program = lines.iter().find_map(|line| {
        let by_env = line.strip_prefix("env: ").or_else(|| line.strip_prefix("/usr/bin/env: "));
        let by_shell = problem.contains("status 127").then(|| {
            let rest =
                line.strip_suffix(": command not found").or_else(|| line.strip_suffix(": not found"))?;
            rest.rsplit(": ").next()
        });
        let by_env = by_env.and_then(|rest| rest.split(": No such file").next().filter(|name| *name != rest));
        let name = by_env.or(by_shell.flatten())?;
        let name = name.trim_start_matches("can't execute ");
        Some(name.trim_matches(|c: char| "‘’'\"`".contains(c) || c.is_whitespace()))
    })?;
    Some(Diagnosis::cure(format!(
        "`{program}` is not installed, or not on PATH; install it, or set PATH in `env`"
    )))
}

/// A port that another process listens on.
fn taken_port(lines: &[&str]) -> Option<Diagnosis> {
    let told = |line: &&&str| {
        let line = line.to_ascii_lowercase();
        line.contains("eaddrinuse") || line.contains("address already in use")
    };
    let line = lines.iter().find(told)?;
    let digits = |text: &str| -> Option<u16> {
        let text = text.trim_start_matches([' ', ':', '\'']);
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse().ok()
    };
    let labelled = lines.iter().find_map(|line| digits(line.to_ascii_lowercase().split_once("port")?.1));
    // An address ends in its port: `:::3000`, `127.0.0.1:3000`, `('127.0.0.1', 3000)`.
    let addressed = || {
        let parts = line.match_indices([':', ',']).map(|(at, _)| &line[at + 1..]);
        parts.filter(|rest| !rest.starts_with("  ")).find_map(|rest| digits(rest).filter(|port| *port > 0))
    };
    let port = labelled.or_else(addressed).map_or("its port".to_owned(), |port| format!("port {port}"));
    Some(Diagnosis::cure(format!(
        "another process has {port}; end that process, or give this server another port"
    )))
}

/// A Python exception; its last line says what happened.
fn traceback(problem: &str, stderr: &str) -> Option<Diagnosis> {
    let (_, trace) = stderr.rsplit_once("Traceback (most recent call last):")?;
    let exception = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default();
        let plain = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        name.starts_with(char::is_alphabetic) && name.chars().all(plain)
    };
    let last = trace.lines().map(str::trim).rfind(exception)?;
    let problem = Some(format!("{problem}: {last}"));
    Some(Diagnosis { problem, hint: format!("it is a Python program and failed with `{last}`") })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hint, and the problem if it differs from the one given.
    fn found(problem: &str, stderr: &str) -> (Option<String>, Option<String>) {
        let found = diagnose(problem, stderr);
        let problem = found.as_ref().and_then(|found| found.problem.clone());
        (found.map(|found| found.hint), problem)
    }

    #[test]
    fn the_usual_diseases_have_their_cures() {
        for (problem, stderr, expected) in [
            (
                "the server exited with status 1",
                "node:internal/modules/esm/resolve:275\n    throw new ERR_MODULE_NOT_FOUND(\n          ^\n\n\
                 Error [ERR_MODULE_NOT_FOUND]: Cannot find package '/home/u/.npm/_npx/a3241bba59c344f5/node_modules/zod/index.js' \
                 imported from /home/u/.npm/_npx/a3241bba59c344f5/node_modules/x/y.js\n    at legacyMainResolve",
                "npx has left a broken install behind; run `rm -rf /home/u/.npm/_npx/a3241bba59c344f5` and try again",
            ),
            (
                "the server exited with status 1",
                "  code: 'ERR_MODULE_NOT_FOUND',\n  url: 'file:///Users/u/my npm/_npx/0f/node_modules/x'",
                "npx has left a broken install behind; run `rm -rf '/Users/u/my npm/_npx/0f'` and try again",
            ),
            (
                "the server exited with status 1",
                "npm error code E404\nnpm error 404 Not Found - GET https://example.org/@x%2fy - Not found\nnpm error 404\n\
                 npm error 404  '@modelcontextprotocol/server-filesytem@*' is not in this registry.\nnpm error 404",
                "npm has no package `@modelcontextprotocol/server-filesytem`; did you mean `@modelcontextprotocol/server-filesystem`?",
            ),
            (
                "the server exited with status 1",
                "npm ERR! code E404\nnpm ERR! 404  'playwright-mcp@latest' is not in the npm registry.",
                "npm has no package `playwright-mcp`; did you mean `@playwright/mcp`?",
            ),
            (
                "the server exited with status 1",
                "npm ERR! code E404\nnpm ERR! 404  'mcp-server-memory' could not be found or you do not have permission",
                "npm has no package `mcp-server-memory`; did you mean `@modelcontextprotocol/server-memory`?",
            ),
            (
                "the server exited with status 1",
                "npm ERR! code E404\nnpm ERR! 404  'nothing-like-it@1.2.3' is not in this registry.",
                "npm has no package `nothing-like-it`",
            ),
            (
                "the server exited with status 127",
                "env: ‘node’: No such file or directory",
                "`node` is not installed, or not on PATH; install it, or set PATH in `env`",
            ),
            (
                "the server exited with status 127",
                "/usr/bin/env: 'python3': No such file or directory",
                "`python3` is not installed, or not on PATH; install it, or set PATH in `env`",
            ),
            (
                "the server exited with status 127",
                "env: can't execute 'deno': No such file or directory",
                "`deno` is not installed, or not on PATH; install it, or set PATH in `env`",
            ),
            (
                "the server exited with status 127",
                "sh: 1: uvx: not found",
                "`uvx` is not installed, or not on PATH; install it, or set PATH in `env`",
            ),
            (
                "the server exited with status 127",
                "bash: line 1: bun: command not found",
                "`bun` is not installed, or not on PATH; install it, or set PATH in `env`",
            ),
            (
                "the server exited with status 1",
                "Error: listen EADDRINUSE: address already in use :::3000\n    at Server.setupListenHandle",
                "another process has port 3000; end that process, or give this server another port",
            ),
            (
                "the server exited with status 1",
                "Error: listen EADDRINUSE\n  address: '127.0.0.1',\n  port: 8931\n}",
                "another process has port 8931; end that process, or give this server another port",
            ),
            (
                "the server exited with status 1",
                "ERROR: [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use",
                "another process has port 8000; end that process, or give this server another port",
            ),
            (
                "the server exited with status 1",
                "Error: Address already in use (os error 98)",
                "another process has its port; end that process, or give this server another port",
            ),
        ] {
            assert_eq!(found(problem, stderr), (Some(expected.to_owned()), None), "{stderr}");
        }
    }

    #[test]
    fn the_last_line_of_a_traceback_is_the_problem() {
        let stderr = "INFO: starting\nTraceback (most recent call last):\n  File \"/x/server.py\", line 3, in <module>\n\
                      \u{20}   import mcp\nModuleNotFoundError: No module named 'mcp'\n";
        let last = "ModuleNotFoundError: No module named 'mcp'";
        assert_eq!(
            found("the server exited with status 1", stderr),
            (
                Some(format!("it is a Python program and failed with `{last}`")),
                Some(format!("the server exited with status 1: {last}"))
            )
        );
    }

    #[test]
    fn what_is_no_disease_is_left_to_general_advice() {
        for stderr in [
            "",
            "the key is missing",
            "listening on port 3000",
            "sh: 1: uvx: not found",
            "Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/srv/app/x.js'",
            "GET /thing 404",
        ] {
            assert_eq!(diagnose("the server exited with status 1", stderr), None, "{stderr}");
        }
    }
}
