//! Loads `workbench-config.json`. The command line calls [`load`].

use super::comments::{Holds, drop_comments};
use super::diagnostic::Problem;
use super::node::{Kind, Node, SyntaxError};
use super::read::{At, Table};
use super::report::{Report, Spelling, decode};
use super::source::Source;
use super::{
    ByteLimit, Common, Inputs, MetaTools, ToolMode, Toolbox, ToolboxName, Workbench, json, server, settings,
};
use std::path::Path;
use std::sync::Arc;

const MINIMAL: &str = r#"{ "toolboxes": { "dev": { "mcpServers": {} } } }"#;

pub(super) const KEYS: &[&str] = &[
    "$schema",
    "toolMode",
    "metaTools",
    "toolboxes",
    "instructionsLimit",
    "openLimit",
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

pub(super) const TOOLBOX_KEYS: [&str; 2] = ["description", "mcpServers"];

const INTO_A_TOOLBOX: &str = "put the servers into a toolbox, \
    `\"toolboxes\": { \"dev\": { \"mcpServers\": { … } } }`, or let `mcp-workbench import` do it";

/// The root keys of other clients' files, and the clients.
pub(super) const FOREIGN_ROOTS: [(&str, &str); 6] = [
    ("mcpServers", "the `mcpServers` of a single client"),
    ("servers", "VS Code's `servers`"),
    ("context_servers", "Zed's `context_servers`"),
    ("mcp_servers", "Codex's `mcp_servers`"),
    ("extensions", "Goose's `extensions`"),
    ("mcp", "opencode's `mcp`"),
];

/// Whether a text that is not JSON is a file of the other face.
fn is_tools_toml(text: &str) -> bool {
    let keys = ["servers", "active_toolsets"];
    super::toml::parse(text).is_ok_and(|root| keys.iter().any(|key| root.member(key).is_some()))
}

/// Reads a `workbench-config.json`: a valid configuration with warnings, or all errors and warnings, each in
/// the order of the file.
///
/// `file` should be absolute, because a relative `cwd` of a server is resolved against its directory. It is
/// not opened.
pub fn load(
    file: &Path,
    bytes: &[u8],
    inputs: &Inputs<'_>,
) -> Result<(Workbench, Vec<Problem>), Vec<Problem>> {
    let report = Report::new(Source::new(file, decode(file, bytes)?), Spelling::Camel);
    let mut root = match json::parse(&report.source.text) {
        Ok(Some(root)) => root,
        Err(_) if is_tools_toml(&report.source.text) => {
            return Err(report.broken(SyntaxError {
                span: 0..0,
                message: "this is TOML, a file of toolman".into(),
                hint: "run `toolman`, or add `--face toolman`".into(),
            }));
        }
        Ok(None) => {
            let end = report.source.text.len();
            return Err(report.broken(SyntaxError {
                span: end..end,
                message: "the file is empty".into(),
                hint: format!("start with `{MINIMAL}`"),
            }));
        }
        Err(error) => return Err(report.broken(error)),
    };
    drop_comments(&mut root, Holds::Workbench);
    let directory = file.parent().unwrap_or(Path::new(""));
    report.prepare_all(&mut root, directory, inputs, &|_| false);
    let workbench = workbench(&report, &root, directory, inputs);
    let (problems, secrets) = report.finish(Some(&root));
    match workbench {
        Some(mut workbench) if !problems.iter().any(Problem::is_error) => {
            workbench.common.secrets = secrets;
            Ok((workbench, problems))
        }
        _ => Err(problems),
    }
}

fn workbench(report: &Report, root: &Node, directory: &Path, inputs: &Inputs<'_>) -> Option<Workbench> {
    let at = At::root(report, root);
    if !matches!(root.kind, Kind::Object(_)) {
        at.expected("an object", format!("the file looks like `{MINIMAL}`"));
        return None;
    }
    let root = at.table()?;
    if !has(&root, "toolboxes", "a workbench", KEYS, INTO_A_TOOLBOX) {
        at.key_error("the file has no `toolboxes`", format!("the smallest file is `{MINIMAL}`"));
    }
    let entries = root.get_or_meant("toolboxes", KEYS).and_then(At::table);
    let entries = entries.as_ref().map(Table::entries).unwrap_or_default();
    let names: Vec<_> = entries.iter().map(|entry| entry.key).collect();
    let modes = [
        ("dynamic", ToolMode::Dynamic),
        ("proxy", ToolMode::Proxy),
        ("auto", ToolMode::Auto),
        ("flat", ToolMode::Flat),
    ];
    let generations = [("current", MetaTools::Current), ("classic", MetaTools::Classic)];
    if let Some(schema) = root.get("$schema") {
        schema.string();
    }
    let skip = settings::skips_missing(&root, inputs);
    let common = settings::common(&root, "toolboxes", &names);
    let toolboxes = entries.iter().filter_map(|entry| toolbox(entry, &common, directory, skip)).collect();
    Some(Workbench {
        tool_mode: root.get("toolMode").and_then(|at| at.one_of(&modes)).unwrap_or(ToolMode::Dynamic),
        meta_tools: root
            .get("metaTools")
            .and_then(|at| at.one_of(&generations))
            .unwrap_or(MetaTools::Current),
        instructions_limit: root.get("instructionsLimit").and_then(|at| at.whole(0)).unwrap_or(2048),
        open_limit: root.get("openLimit").and_then(open_limit).unwrap_or(ByteLimit::Auto),
        search: root.get("search").and_then(At::boolean).unwrap_or(false),
        common,
        toolboxes,
    })
}

/// Reads the most bytes of an answer, which must be enough for what every answer contains.
fn open_limit(at: &At<'_>) -> Option<ByteLimit> {
    settings::byte_limit(at, 1000, "0 means no limit; a smaller limit has no room for tools")
}

/// Reports unknown keys. Returns whether the wanted key is there, or was most likely meant by an unknown one.
fn has(table: &Table<'_>, wanted: &str, owner: &str, known: &[&str], hint: &str) -> bool {
    let mut explained = Vec::new();
    let missing = table.get(wanted).is_none();
    for (key, whose) in FOREIGN_ROOTS.iter().filter(|(key, _)| missing && *key != wanted) {
        if let Some(at) = table.get(key) {
            at.key_error(format!("this looks like {whose}; {owner} has `{wanted}`"), hint);
            explained.push(*key);
        }
    }
    let suggested = table.refuse_unknown(known, &explained);
    !missing || !explained.is_empty() || suggested.iter().any(|key| key == wanted)
}

fn toolbox(entry: &At<'_>, common: &Common, directory: &Path, skip: bool) -> Option<Toolbox> {
    let name = ToolboxName::new(entry.key)
        .map_err(|wrong| entry.key_error(wrong, "give the toolbox another name, such as `dev`"))
        .ok();
    let table = entry.table()?;
    if !has(&table, "mcpServers", "a toolbox", &TOOLBOX_KEYS, "rename it to `mcpServers`") {
        entry.key_error(
            format!("the toolbox `{}` has no `mcpServers`", entry.key),
            "add `\"mcpServers\": { … }`; it may be empty",
        );
    }
    let description = table.get("description").and_then(At::string).unwrap_or_default().to_owned();
    let servers = table.get_or_meant("mcpServers", &TOOLBOX_KEYS).and_then(At::table);
    let servers = servers.as_ref().map(Table::entries).unwrap_or_default();
    let servers = servers.iter().filter_map(|entry| server::server(entry, common, directory, skip));
    Some(Toolbox { name: name?, description, servers: servers.map(Arc::new).collect() })
}

#[cfg(test)]
#[path = "workbench_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "problem_tests.rs"]
mod problems;
