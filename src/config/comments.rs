//! Keys that begin with `_` are comments, as in the files of our ancestors.
//!
//! Both loaders drop these keys from the tree before anything else, so that they are never checked, expanded
//! or remembered.

use super::node::{Kind, Node};

/// What an object of a file holds, which decides what a key that begins with `_` means in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// The whole of `workbench-config.json`.
    Workbench,
    /// The whole of `tools.toml`.
    Toolman,
    /// Toolboxes by their names.
    Toolboxes,
    /// One toolbox.
    Toolbox,
    /// Servers by their names.
    Servers,
    /// One server.
    Server,
    /// Variables or headers, where a name that begins with `_` is a real name.
    Texts,
    /// Settings.
    Settings,
}

impl Holds {
    /// What the value under a key holds.
    fn below(self, key: &str) -> Self {
        match (self, key) {
            (Self::Workbench, "toolboxes") => Self::Toolboxes,
            (Self::Toolboxes, _) => Self::Toolbox,
            (Self::Toolbox, "mcpServers") => Self::Servers,
            (Self::Servers, _) | (Self::Toolman, "servers") => Self::Server,
            (Self::Server, "env" | "envs" | "environment" | "headers") => Self::Texts,
            _ => Self::Settings,
        }
    }

    fn is_comment(self, key: &str, value: &Node) -> bool {
        let names = matches!(self, Self::Toolboxes | Self::Servers);
        key.starts_with('_') && self != Self::Texts && !(names && matches!(value.kind, Kind::Object(_)))
    }
}

/// Drops all comments from a tree.
pub(super) fn drop_comments(node: &mut Node, holds: Holds) {
    match &mut node.kind {
        Kind::Object(entries) => {
            entries.retain(|entry| !holds.is_comment(&entry.key, &entry.value));
            entries.iter_mut().for_each(|entry| drop_comments(&mut entry.value, holds.below(&entry.key)));
        }
        Kind::List(items) => items.iter_mut().for_each(|item| drop_comments(item, holds)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Inputs, load, load_toolman};

    #[test]
    fn comments_are_nobodys_concern() {
        let file = r#"{
            "_": "${UNSET}", "_": 7, "_comment": {"command": "${UNSET}"},
            "toolboxes": {
                "_note": "${UNSET}",
                "_hidden": {"mcpServers": {}},
                "dev": {"_why": [], "description": "d", "mcpServers": {
                    "_server": "${UNSET}",
                    "_real": {"command": "x"},
                    "env": {"_c": null, "command": "x", "env": {"_KEY": "v"}, "oauth": {"_c": 1}},
                    "url": {"url": "http://h/", "headers": {"_h": "v"}}
                }}
            },
            "auth": {"_c": 1, "tokens": [{"_c": 1, "name": "n", "token": "secret"}]}
        }"#;
        let (config, warnings) =
            load(Path::new("x"), file.as_bytes(), &Inputs::of(&|_| None)).expect("it is valid");
        assert!(warnings.is_empty(), "{warnings:?}");
        let names: Vec<_> = config.toolboxes.iter().map(|toolbox| toolbox.name.as_str()).collect();
        assert_eq!(names, ["_hidden", "dev"]);
        let servers: Vec<_> = config.toolboxes[1].servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(servers, ["_real", "env", "url"]);
        let kept = |index: usize| format!("{:?}", names_of(&config.toolboxes[1].servers[index].transport));
        assert_eq!((kept(1), kept(2)), (r#"["_KEY"]"#.to_owned(), r#"["_h"]"#.to_owned()));
    }

    fn names_of(transport: &super::super::Transport) -> Vec<&str> {
        let pairs = match transport {
            super::super::Transport::Stdio(command) => &command.env,
            super::super::Transport::Http(http) => &http.headers,
            super::super::Transport::Unset(unset) => panic!("{unset}"),
        };
        pairs.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn comments_of_toolman() {
        let file = "_c = \"${UNSET}\"\n[[servers]]\nnamespace = \"a\"\n_command = \"${UNSET}\"\ncommand = \"x\"\nenv = { _K = \"v\" }\n[_more]\na = 1\n";
        let (config, warnings) =
            load_toolman(Path::new("x"), file.as_bytes(), &Inputs::of(&|_| None)).expect("it is valid");
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(names_of(&config.servers[0].transport), ["_K"]);
    }
}
