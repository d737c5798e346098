//! What is known of the programs that call us: one table for everything that depends on the client.
//!
//! A row has two halves. [`Behaviour`] says how the program behaves while it talks to us; the faces look it up by
//! `clientInfo.name`. [`ClientFiles`] says where the program keeps its servers and how it writes them down;
//! `client_files` reads and changes these files. What is special about a client is a value here, not a branch elsewhere.
//!
//! Invariant: this module is pure data. It reads no environment and no file, and needs nothing but the names of file
//! formats from `config`, so that faces and the code that edits files can both use it.

mod files;
mod page;
mod table;

pub use files::{ClientFiles, Deadline, Dialect, EntryStyle, TimeUnit, VariableSyntax};
pub use page::page;
pub use table::CLIENTS;

use std::time::Duration;

use table::{OTHERS, PYTHON_SDK};

/// A program that people use with us.
#[derive(Debug)]
pub struct KnownClient {
    /// What the command line calls it.
    pub id: &'static str,
    /// What its makers call it.
    pub title: &'static str,
    /// How it behaves.
    pub behaviour: Behaviour,
    /// Where it keeps its servers, and how.
    pub files: ClientFiles,
}

/// How a client behaves while it talks to us.
#[derive(Debug)]
pub struct Behaviour {
    /// What it calls itself in `clientInfo.name`. Case does not matter, and `*` at the end stands for anything.
    pub names: &'static [&'static str],
    /// What becomes of a list that changed.
    pub changed_lists: ChangedLists,
    /// How much it takes of an answer with many definitions.
    pub open_limit: OpenLimit,
    /// The names that it can show to a model.
    pub tool_names: ToolNames,
    /// Whether it refuses all resources over one URI whose scheme has `_`.
    pub strict_uri_schemes: bool,
    /// Whether it renders the apps of tools that stand in its list.
    pub renders_apps: bool,
}

/// What a client does about a list that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangedLists {
    /// It reads the list again, and its next request has the new tools if it is left alone for a moment after that.
    TakenUp {
        /// The moment.
        settling: Duration,
    },
    /// It is known to go on with the old list, always or at times: what is new must be called through what it has.
    Unreliable,
    /// Nobody has tried.
    Unknown,
}

/// The longest answer of an opening that a client hands to its model, in bytes of text; `None` where it has no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenLimit {
    /// To a legacy client.
    pub legacy: Option<usize>,
    /// To a modern one.
    pub modern: Option<usize>,
    /// Whether `structuredContent` may stand beside the text. Where it counts against the limit too, it is left out.
    pub structured_content: bool,
}

impl OpenLimit {
    /// The limit in an era.
    pub fn bytes(&self, modern: bool) -> Option<usize> {
        if modern { self.modern } else { self.legacy }
    }
}

/// What a client does to the names of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolNames {
    /// The longest name that reaches the model, in characters, prefix and all.
    pub longest: usize,
    /// What it puts before each name, with `{entry}` for what its file calls us.
    pub prefix: &'static str,
}

impl ToolNames {
    /// How long a name of ours may be where the client's file calls us `entry`. At least 10, which is what a name needs
    /// to be told from others.
    pub fn room(&self, entry: &str) -> usize {
        let prefix = self.prefix.replace("{entry}", entry);
        self.longest.saturating_sub(prefix.chars().count()).max(10)
    }
}

impl KnownClient {
    /// The one with this name on the command line.
    pub fn named(id: &str) -> Option<&'static KnownClient> {
        CLIENTS.iter().find(|client| client.id == id)
    }

    /// A name that it calls itself by; nothing where none is known.
    pub fn called(&self) -> &'static str {
        self.behaviour.names.first().map_or("", |name| name.trim_end_matches('*'))
    }
}

/// The most bytes of a result that a client gets whose limit we know, however high that is.
const LONGEST_RESULT: usize = 40_000;

impl Behaviour {
    /// That of the client with this `clientInfo.name`; who is not known behaves as all others do.
    pub fn of(name: &str) -> &'static Behaviour {
        let known = CLIENTS.iter().map(|client| &client.behaviour).chain([&PYTHON_SDK]);
        known.into_iter().find(|behaviour| behaviour.is_called(name)).unwrap_or(&OTHERS)
    }

    fn is_called(&self, name: &str) -> bool {
        self.names.iter().any(|known| match known.strip_suffix('*') {
            Some(start) => name.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start)),
            None => known.eq_ignore_ascii_case(name),
        })
    }

    /// How many bytes of a tool's result it is known to take; nothing where it has no limit, or nobody knows.
    pub fn longest_result(&self, modern: bool) -> Option<usize> {
        self.open_limit.bytes(modern).map(|bytes| bytes.min(LONGEST_RESULT))
    }

    /// Whether tools may appear in its list when a toolbox is opened, which is what `auto` asks.
    pub fn takes_up_changes(&self) -> bool {
        matches!(self.changed_lists, ChangedLists::TakenUp { .. })
    }

    /// Whether what is new must be called through what it has from the start.
    pub fn keeps_its_list(&self) -> bool {
        self.changed_lists == ChangedLists::Unreliable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_known_by_what_they_call_themselves() {
        for (name, known) in [
            ("claude-code", Some("claude-code")),
            ("Claude-Code", Some("claude-code")),
            ("gemini-cli-mcp-client", Some("gemini")),
            ("opencode", Some("opencode")),
            ("zed", Some("zed")),
            ("Zed", Some("zed")),
            ("goose", Some("goose")),
            ("Goose-Desktop", Some("goose")),
            ("codex-mcp-client", Some("codex")),
            ("@cline/core", Some("cline")),
            ("Cline", Some("cline")),
            ("cursor-vscode", Some("cursor")),
            ("Visual Studio Code", Some("vscode")),
            ("claude-ai", Some("claude-desktop")),
            ("windsurf-client", Some("windsurf")),
            ("not-claude-code", None),
            ("claude-code-2", None),
            ("goos", None),
            ("göose", None),
            ("*", None),
            ("", None),
        ] {
            let expected = known.and_then(KnownClient::named).map_or(&OTHERS, |client| &client.behaviour);
            assert!(std::ptr::eq(Behaviour::of(name), expected), "{name}");
        }
        assert!(Behaviour::of("mcp").strict_uri_schemes && !Behaviour::of("mcp-client").strict_uri_schemes);
    }

    #[test]
    fn a_prefix_takes_its_part_of_a_name() {
        for (name, entry, expected) in [
            ("claude-code", "workbench", 64 - "mcp__workbench__".len()),
            ("Claude-Code", "toolman", 64 - "mcp__toolman__".len()),
            ("gemini-cli-mcp-client", "workbench", 63 - "mcp_workbench_".len()),
            ("opencode", "tools", 64 - "tools_".len()),
            ("goose-cli", "workbench", 64 - "workbench__".len()),
            ("codex-mcp-client", "workbench", 64 - "mcp__workbench__".len()),
            ("@cline/core", "workbench", 64 - "workbench__".len()),
            ("Visual Studio Code", "workbench", 64 - "mcp_workbench_".len()),
            ("cursor", "workbench", 60 - "workbench_".len()),
            ("cursor", "b\u{fc}ro", 60 - 5),
            ("Zed", "workbench", 64),
            ("who knows", "workbench", 64),
            ("", "workbench", 64),
            ("opencode", &"long".repeat(20), 10),
        ] {
            assert_eq!(Behaviour::of(name).tool_names.room(entry), expected, "{name} {entry}");
        }
    }

    #[test]
    fn no_name_stands_for_two_clients() {
        let named =
            |client: &'static KnownClient| client.behaviour.names.iter().map(move |name| (name, client));
        for (name, client) in CLIENTS.iter().flat_map(named) {
            let found = Behaviour::of(name.trim_end_matches('*'));
            assert!(std::ptr::eq(found, &client.behaviour), "{name} is {}", client.title);
        }
    }

    #[test]
    fn a_client_takes_what_its_row_says_and_at_most_40000() {
        for (client, modern, expected) in [
            ("claude-code", false, Some(40_000)),
            ("claude-code", true, Some(40_000)),
            ("codex-mcp-client", false, Some(9_000)),
            ("@cline/core", true, Some(7_000)),
            ("gemini-cli-mcp-client", false, Some(8_000)),
            ("opencode", false, Some(40_000)),
            ("Zed", false, None),
            ("who knows", true, None),
        ] {
            assert_eq!(Behaviour::of(client).longest_result(modern), expected, "{client}");
        }
    }
}
