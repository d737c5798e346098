//! An entry whose keys have been read but which is not a server yet: its parts may be contradictory or
//! unusable.

use super::read::ImportedTimeouts;
use super::template::{Piece, Template};
use crate::config::entry::{TransportName, is_header_name, is_header_value, is_variable_name};

#[derive(Default)]
pub(super) struct Draft {
    pub(super) program: DraftProgram,
    pub(super) remote: DraftRemote,
    /// The transport that the entry names, and the key that names it.
    pub(super) transport: Option<(String, Declared)>,
    pub(super) timeouts: ImportedTimeouts,
    pub(super) tools: DraftTools,
    pub(super) disabled: bool,
    pub(super) description: String,
}

/// The transport that an entry declares.
pub(super) enum Declared {
    As(TransportName),
    /// The server is built into its client.
    BuiltIn(String),
}

/// The part of an entry that describes a program.
#[derive(Default)]
pub(super) struct DraftProgram {
    pub(super) name: Option<Template>,
    /// The words after the program, if the command is a list.
    pub(super) words: Vec<Template>,
    pub(super) args: Vec<Template>,
    pub(super) env: Vec<(String, Template)>,
    pub(super) inherit_env: Vec<String>,
    pub(super) cwd: Option<Template>,
    /// The keys that describe the program, apart from the command.
    pub(super) places: Vec<String>,
}

/// The part of an entry that describes a server behind a URL.
#[derive(Default)]
pub(super) struct DraftRemote {
    /// The URL and its key.
    pub(super) url: Option<(String, Template)>,
    pub(super) headers: Vec<(String, Template)>,
    pub(super) oauth: Vec<(String, Template)>,
    /// The keys that describe the remote server, apart from the URL.
    pub(super) places: Vec<String>,
}

/// The filter of tools.
#[derive(Default)]
pub(super) struct DraftTools {
    pub(super) only: Option<Vec<String>>,
    pub(super) only_key: String,
    /// The tools that are excluded in any case.
    pub(super) excluded: Vec<String>,
    pub(super) excluded_key: String,
}

impl Draft {
    /// Removes what is unused or unusable, and returns the keys with a note on each. `env_in_headers` says
    /// that headers may use the entry's own variables.
    pub(super) fn settle(&mut self, env_in_headers: bool) -> Vec<(String, String)> {
        let mut notes = Vec::new();
        self.tools.exclude(&mut notes);
        self.drop_useless(env_in_headers, &mut notes);
        self.drop_unsound(&mut notes);
        notes
    }

    /// Removes the keys of the other kind, because a server is either started or called.
    fn drop_useless(&mut self, env_in_headers: bool, notes: &mut Vec<(String, String)>) {
        let (places, beside) = match (&self.program.name, &self.remote.url) {
            (Some(_), None) => (std::mem::take(&mut self.remote.places), "a command"),
            (None, Some(_)) => {
                if env_in_headers && self.put_env_into_headers() {
                    self.program.places.retain(|place| place != "envs" && place != "env_keys");
                }
                let unused = std::mem::take(&mut self.program);
                (unused.places, "a URL")
            }
            _ => return,
        };
        let message = format!("is not used here beside {beside}; left out");
        notes.extend(places.into_iter().map(|place| (place, message.clone())));
    }

    /// Removes values that cannot be passed to a process or sent in a request.
    fn drop_unsound(&mut self, notes: &mut Vec<(String, String)>) {
        let nul = |template: &Template| template.text().is_some_and(|text| text.contains('\0'));
        let mut sound = |sound: bool, key: String| {
            if !sound {
                notes.push((key, "cannot be used; left out".to_owned()));
            }
            sound
        };
        self.program
            .env
            .retain(|(key, value)| sound(is_variable_name(key) && !nul(value), format!("env.{key}")));
        self.remote.headers.retain(|(key, value)| {
            let fits = is_header_name(key) && value.text().is_none_or(is_header_value);
            sound(fits, format!("headers.{key}"))
        });
        let cwd = self.program.cwd.take();
        self.program.cwd = cwd.filter(|cwd| sound(cwd.text() != Some("") && !nul(cwd), "cwd".to_owned()));
    }

    /// Replaces the entry's own variables in its headers by their values. Returns whether the headers use all
    /// of them.
    fn put_env_into_headers(&mut self) -> bool {
        let env = &self.program.env;
        let own = |name: &str| env.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let mut used = Vec::new();
        for (_, header) in &mut self.remote.headers {
            let mut filled = Template::default();
            for piece in header.pieces() {
                let value = match piece {
                    Piece::Variable { name, .. } => own(name).inspect(|_| used.push(name.clone())),
                    Piece::Text(_) => None,
                };
                match value {
                    Some(value) => filled.extend(value),
                    None => filled.push(piece.clone()),
                }
            }
            *header = filled;
        }
        env.iter().all(|(key, _)| used.contains(key))
    }
}

impl DraftTools {
    /// Removes the excluded tools from the allowed ones.
    fn exclude(&mut self, notes: &mut Vec<(String, String)>) {
        let excluded = std::mem::take(&mut self.excluded);
        match &mut self.only {
            _ if excluded.is_empty() => {}
            Some(tools) => {
                tools.retain(|tool| !excluded.contains(tool));
                self.only_key.push_str(&format!(" minus {}", self.excluded_key));
            }
            None => {
                let message = "names tools to leave out; `toolFilters` names those to offer instead";
                notes.push((self.excluded_key.clone(), message.to_owned()));
            }
        }
    }
}
