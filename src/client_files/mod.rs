//! The files of other clients: where they are, what stands in them, and how we stand in them.
//!
//! `known_clients` has what is special about each client; the verbs of `cli` that read and change files call this.
//! Nothing here reads the environment or writes a file by itself.

mod draft;
mod entry;
mod fields;
mod ours;
mod places;
mod plan;
mod read;
mod secrets;
mod template;
mod variables;

pub use entry::{Ourselves, Past, connect, disconnect, entry_path};
pub use ours::{Group, read_config, toolman_value, workbench_value};
pub use places::{FileScope, places};
pub use plan::{Addition, Plan, free_name, held, plan, toolbox_for};
pub use read::{Imported, ImportedServer, ImportedTimeouts, Launch, Note, Origin, read};
pub use secrets::{Replaced, Vault, shown};
pub use template::Template;
pub use variables::inputs;

use crate::edit::Value;
use crate::known_clients::{CLIENTS, EntryStyle, KnownClient};

impl KnownClient {
    /// The client that a file is most likely of, by its name, its place and what stands in it.
    pub fn of_file(path: &std::path::Path, value: &Value) -> Option<&'static KnownClient> {
        let path = path.to_string_lossy().replace('\\', "/");
        let by_place = CLIENTS.iter().find(|client| {
            let files = &client.files;
            let known = files.user.iter().copied().flatten().chain(files.borrowed).chain(files.project);
            let mut tails = known.filter_map(|place| tail(place)).filter(|tail| *tail != "mcp.json");
            tails.any(|tail| path == tail || path.ends_with(&format!("/{tail}")))
        });
        let by_content = || match value.at(&["mcpServers"]) {
            // Many clients have this key; the file is read as the best known of them reads it.
            Some(_) => KnownClient::named("claude-code"),
            None => CLIENTS.iter().find(|client| client.root(value).is_some()),
        };
        by_place.filter(|client| client.root(value).is_some()).or_else(by_content)
    }

    /// The path to the servers of a file.
    pub(crate) fn root(&self, value: &Value) -> Option<Vec<String>> {
        let path = |root: &str| root.split('.').map(str::to_owned).collect::<Vec<_>>();
        if self.files.dialect.style == EntryStyle::Opencode {
            let nested = value.at(&["mcp", "servers"]);
            let second = nested.is_some_and(|servers| {
                let keys = ["type", "command", "url"];
                matches!(servers, Value::Object(_)) && !keys.iter().any(|key| servers.get(key).is_some())
            });
            let root = if second { "mcp.servers" } else { "mcp" };
            return value.at(&path(root)).is_some().then(|| path(root));
        }
        self.files.roots.iter().map(|root| path(root)).find(|root| value.at(root).is_some())
    }

    /// The path to where servers go in a file that may have none yet.
    pub(crate) fn root_or_first(&self, value: &Value) -> Vec<String> {
        self.root(value)
            .unwrap_or_else(|| self.files.roots[..1].iter().map(|root| (*root).to_owned()).collect())
    }
}

/// What a file is recognised by: its name, and the directory before it where that says more.
fn tail(place: &str) -> Option<&str> {
    let path = place.rsplit(':').next()?;
    let parts: Vec<&str> = path.split('/').collect();
    let known = [
        "claude_desktop_config.json",
        ".claude.json",
        ".mcp.json",
        "cline_mcp_settings.json",
        "mcp_config.json",
        "mcp-config.json",
    ];
    match parts.as_slice() {
        [.., last] if known.contains(last) || parts.len() == 1 && !last.starts_with('$') => Some(last),
        [.., directory, last] => {
            let start = path.len() - directory.len() - last.len() - 1;
            (!directory.starts_with(['~', '{', '$'])).then(|| &path[start..])
        }
        _ => None,
    }
}
