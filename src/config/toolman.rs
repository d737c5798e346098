//! Loads `tools.toml`. The command line calls [`load_toolman`].

use super::command_line::{Broken, CommandLine, Word, split};
use super::comments::{Holds, drop_comments};
use super::diagnostic::Problem;
use super::expand::Environment;
use super::node::{Node, SyntaxError};
use super::oauth::oauth;
use super::read::{At, Table};
use super::report::{Report, Spelling, decode};
use super::server;
use super::source::Source;
use super::workbench::FOREIGN_ROOTS;
use super::{
    Command, Common, Inputs, Isolation, NamespacedServer, OAuth, Secret, Toolman, Transport, settings, toml,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(super) const KEYS: &[&str] = &[
    "activeToolsets",
    "servers",
    "resourceSeparator",
    "remember",
    "startupWait",
    "offloadOver",
    "names",
    "maxNameLength",
    "maxMessageBytes",
    "questionTimeout",
    "sessionIdleTimeout",
    "maxBodyBytes",
    "stateKey",
    "store",
    "storePrefix",
    "auth",
    "search",
    "envFile",
    "onMissingVariable",
    "start",
    "idleTimeout",
    "lock",
    "journal",
    "journalArguments",
    "journalLimit",
    "daemon",
    "linger",
    "daemonLinger",
];

pub(super) const SERVER_KEYS: &[&str] = &[
    "namespace",
    "command",
    "url",
    "env",
    "cwd",
    "restart",
    "shell",
    "headers",
    "oauth",
    "transport",
    "type",
    "disabled",
    "connectTimeout",
    "startTimeout",
    "callTimeout",
    "maxCallTime",
    "inheritEnv",
    "isolation",
    "start",
    "idleTimeout",
    "offloadOver",
];

/// Reads a `tools.toml`: a valid configuration with warnings, or all errors and warnings, each in the order
/// of the file.
///
/// `file` should be absolute, because a relative `cwd` of a server is resolved against its directory. It is
/// not opened.
pub fn load_toolman(
    file: &Path,
    bytes: &[u8],
    inputs: &Inputs<'_>,
) -> Result<(Toolman, Vec<Problem>), Vec<Problem>> {
    let report = Report::new(Source::new(file, decode(file, bytes)?), Spelling::Snake);
    let mut root = match toml::parse(&report.source.text) {
        Ok(root) => root,
        Err(_)
            if super::json::parse(&report.source.text)
                .is_ok_and(|root| root.is_some_and(|root| root.member("toolboxes").is_some())) =>
        {
            return Err(report.broken(SyntaxError {
                span: 0..0,
                message: "this is JSON, a file of mcp-workbench".into(),
                hint: "run `mcp-workbench`, or add `--face workbench`".into(),
            }));
        }
        Err(error) => return Err(report.broken(error)),
    };
    drop_comments(&mut root, Holds::Toolman);
    // `command` splits a command string before its variables are replaced.
    let is_command = |path: &str| path.starts_with("servers[") && path.ends_with("].command");
    let directory = file.parent().unwrap_or(Path::new(""));
    let values = report.prepare_all(&mut root, directory, inputs, &is_command);
    let environment = |name: &str| (inputs.environment)(name).or_else(|| values.get(name).cloned());
    let toolman = ToolmanReader { directory, environment: &environment }.toolman(&report, &root, inputs);
    let (problems, secrets) = report.finish(Some(&root));
    match toolman {
        Some(mut toolman) if !problems.iter().any(Problem::is_error) => {
            toolman.common.secrets = secrets;
            Ok((toolman, problems))
        }
        _ => Err(problems),
    }
}

/// Pairs of name and value.
type Assignments = Vec<(String, String)>;

struct ToolmanReader<'a> {
    directory: &'a Path,
    environment: &'a Environment<'a>,
}

impl ToolmanReader<'_> {
    fn toolman(&self, report: &Report, root: &Node, inputs: &Inputs<'_>) -> Option<Toolman> {
        let root = At::root(report, root).table()?;
        let mut explained = Vec::new();
        for entry in root.unknown(KEYS) {
            if let Some((key, whose)) = FOREIGN_ROOTS.iter().find(|(key, _)| *key == entry.key) {
                let hint =
                    "write `[[servers]]` with a `namespace` for each, or let `toolman import FILE` do it";
                entry.key_error(format!("this looks like {whose}; toolman has `[[servers]]`"), hint);
                explained.push(*key);
            }
        }
        root.refuse_unknown(KEYS, &explained);
        let servers = root.get_or_meant("servers", KEYS).and_then(At::list).unwrap_or_default();
        let skip = settings::skips_missing(&root, inputs);
        // The names of all servers count, so that a problem of a server does not become a problem of a token.
        let namespaces: Vec<_> = servers.iter().filter_map(|at| at.member("namespace")).collect();
        let common = settings::common(&root, "namespaces", &namespaces);
        let servers = servers.iter().filter_map(|at| self.server(at, &common, skip)).map(Arc::new).collect();
        let flag = |key| root.get(key).and_then(At::boolean).unwrap_or(false);
        Some(Toolman {
            active_toolsets: root.get("activeToolsets").and_then(At::strings).unwrap_or_default(),
            resource_separator: root.get("resourceSeparator").and_then(separator),
            remember: flag("remember"),
            startup_wait: root
                .get("startupWait")
                .and_then(At::seconds_or_none)
                .unwrap_or(Duration::from_secs(5)),
            search: flag("search"),
            common,
            servers,
        })
    }

    fn server(&self, at: &At<'_>, common: &Common, skip: bool) -> Option<NamespacedServer> {
        let table = at.table()?;
        table.refuse_unknown(SERVER_KEYS, &[]);
        let namespace = match table.get("namespace") {
            Some(namespace) => namespace.string().filter(|name| {
                let sound = !name.chars().any(char::is_control);
                if !sound {
                    namespace
                        .error("a namespace may not contain control characters", "give it a readable name");
                }
                sound
            }),
            None => {
                at.error("the server has no `namespace`", "add `namespace = \"…\"`; it may be empty");
                None
            }
        };
        let transport = self.transport(at, &table);
        let flag = |key| table.get(key).and_then(At::boolean).unwrap_or(false);
        let isolation = table.get("isolation").and_then(|at| at.one_of(&Isolation::NAMES));
        let (restart, disabled) = (flag("restart"), flag("disabled"));
        let timeouts = server::timeouts(&table, transport.as_ref());
        let unset = server::unset(at, &table, disabled, skip);
        let running = server::running(&table).or(common.running);
        let offload_over = settings::offload_over(&table).unwrap_or(common.offload_over);
        if disabled {
            return None;
        }
        Some(NamespacedServer {
            namespace: namespace?.to_owned(),
            transport: unset.or(transport)?,
            restart,
            timeouts,
            isolation,
            running,
            offload_over,
        })
    }

    fn transport(&self, at: &At<'_>, table: &Table<'_>) -> Option<Transport> {
        let kind = server::declared_kind(table);
        let url = table.get("url").map(server::url);
        let headers = table.get("headers").map_or(Some(Vec::new()), server::headers);
        let oauth = table.get("oauth").map_or(Some(Some(OAuth::default())), oauth);
        let command = table.get("command").map(|command| self.command(command, table));
        match (table.get("command"), table.get("url")) {
            (None, None) => {
                at.error(
                    "the server has neither `command` nor `url`",
                    "add `command` for a program to start, or `url` for a server that runs already",
                );
                None
            }
            (Some(_), Some(url)) => {
                let hint = "keep `command` for a program to start, or `url` for a server that runs already";
                url.key_error("the server has both `command` and `url`", hint);
                None
            }
            (Some(_), None) => {
                server::fits(table, kind, "command")?;
                server::warn_of_useless(table, ["headers", "oauth"], "command");
                Some(Transport::Stdio(command??))
            }
            (None, Some(_)) => {
                server::fits(table, kind, "url")?;
                server::warn_of_useless(
                    table,
                    ["env", "cwd", "inheritEnv", "shell", "restart", "startTimeout"],
                    "url",
                );
                Some(Transport::Http(server::http(table, url??, headers?, kind, oauth?)))
            }
        }
    }

    fn command(&self, at: &At<'_>, table: &Table<'_>) -> Option<Command> {
        let shell = table.get("shell").and_then(At::boolean);
        let env = table.get("env").map_or(Some(Vec::new()), server::environment);
        let cwd = table.get("cwd").map(|at| server::working_directory(at, self.directory));
        let inherit_env = table.get("inheritEnv").map_or(Some(Vec::new()), server::inherited);
        let text = server::argument(at)?;
        let (assigned, program, args) = match split(&text, shell) {
            Ok(CommandLine::Words { assignments, words }) => self.plain(at, &assignments, &words)?,
            Ok(CommandLine::Shell { variables }) => {
                // Only the shell knows the real words; these are good enough to find secrets.
                let quoting = |c: char| c.is_whitespace() || "'\";|&()<>".contains(c);
                at.report.secrets_of_words(text.split(quoting).filter(|word| !word.is_empty()));
                let declared = env.clone().unwrap_or_default();
                let missing =
                    variables.into_iter().filter(|name| !declared.iter().any(|(key, _)| key == name));
                let ours =
                    missing.filter_map(|name| (self.environment)(&name).map(|value| (name, value))).collect();
                let (program, flag) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
                (ours, program.to_owned(), vec![flag.to_owned(), text.clone()])
            }
            Err(Broken::Quote(start)) => {
                at.part_error(
                    start..start + 1,
                    "this quote is not closed",
                    "close it, or write a backslash before it",
                );
                return None;
            }
            Err(Broken::Variable(fault)) => {
                at.unexpanded(&fault);
                return None;
            }
        };
        if program.trim().is_empty() {
            // The error points at the key, because an assignment in the value may hold a secret.
            at.key_error("`command` names no program", "name the program to start, such as `npx`");
            return None;
        }
        let mut env = env?;
        for (name, value) in assigned {
            at.report.secret(&value, &name);
            env.retain(|(key, _)| *key != name);
            env.push((name, Secret::new(value)));
        }
        let cwd = match cwd {
            Some(cwd) => Some(cwd?),
            None => None,
        };
        Some(Command { program, args, env, cwd, inherit_env: inherit_env? })
    }

    /// The environment, program and arguments of words, with variables replaced.
    fn plain(
        &self,
        at: &At<'_>,
        assignments: &[(String, Word)],
        words: &[Word],
    ) -> Option<(Assignments, String, Vec<String>)> {
        let mut used = Vec::new();
        let mut fill = |word: &Word| match word.fill(self.environment, &mut used) {
            Ok(text) => Some(text),
            Err(faults) => {
                faults.iter().for_each(|fault| at.unexpanded(fault));
                None
            }
        };
        let assigned: Vec<_> =
            assignments.iter().map(|(name, word)| Some((name.clone(), fill(word)?))).collect();
        let words: Vec<_> = words.iter().map(fill).collect();
        for (name, value) in used {
            at.report.secret(&value, &name);
        }
        let assigned: Option<Vec<_>> = assigned.into_iter().collect();
        let words: Option<Vec<_>> = words.into_iter().collect();
        let words = words?;
        at.report.secrets_of_words(words.iter().map(String::as_str));
        let mut words = words.into_iter();
        Some((assigned?, words.next().unwrap_or_default(), words.collect()))
    }
}

fn separator(at: &At<'_>) -> Option<String> {
    let separator = at.string()?;
    let sound = !separator.is_empty()
        && separator.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '.'));
    if !sound {
        at.expected("`_`, `+` or other characters that a URI scheme may have", "use `+` for strict clients");
        return None;
    }
    Some(separator.to_owned())
}

#[cfg(test)]
#[path = "toolman_tests.rs"]
mod tests;
