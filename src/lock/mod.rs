//! The lock: the definitions that somebody approved, and how what servers send now compares with them.
//!
//! The configuration holds the [`Lock`] that is in force and hands each server its part of it, a [`Guard`].
//! The catalogue shows nothing that a server sent without asking the guard. The verb `lock` reads, renews and
//! writes the file.
//!
//! Invariant: everything here is pure. Texts come in and values go out; nothing reads a file or waits.
//! Invariant: what [`write`] writes, [`Lock::read`] reads as the same definitions.

mod difference;
mod literal;
mod read;
mod renew;
#[cfg(test)]
mod tests;
mod value;
mod write;

pub use difference::{Difference, WordChange, words};
pub use read::Fault;
pub use renew::{DefinitionChange, HowChanged, Offered, Renewal, Unwritable, renew};
pub use write::write;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::value::JsonValue;

/// A text as the lock file writes it: what nobody sees is escaped.
pub fn escaped(text: &str) -> String {
    literal::written(text)
}

/// The version of the file's format.
const VERSION: &str = "1";

/// Whose lock file it is, which decides how servers stand in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Toolboxes with servers.
    Toolboxes,
    /// Namespaces, as toolman has them. Servers with the same namespace share what is approved.
    Namespaces,
}

impl Form {
    /// The member of the file that holds the servers.
    fn key(self) -> &'static str {
        match self {
            Self::Toolboxes => "toolboxes",
            Self::Namespaces => "namespaces",
        }
    }

    /// The command that writes such a file.
    pub fn command(self) -> &'static str {
        match self {
            Self::Toolboxes => "mcp-workbench lock",
            Self::Namespaces => "mcp-workbench lock --face toolman",
        }
    }
}

/// A kind of thing whose definition is approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockedKind {
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
}

impl LockedKind {
    /// Both kinds, in the order of the file.
    pub const ALL: [Self; 2] = [Self::Tool, Self::Prompt];

    /// The member of a server that holds the definitions.
    fn key(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Prompt => "prompts",
        }
    }

    /// The noun for one of them.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
        }
    }
}

/// A server of the file: its toolbox and its name, or its namespace and no name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockPlace {
    /// The toolbox or namespace.
    pub group: String,
    /// The server in the toolbox; empty for a namespace.
    pub server: String,
}

impl LockPlace {
    /// The place of a server.
    pub fn new(group: &str, server: &str) -> Self {
        Self { group: group.to_owned(), server: server.to_owned() }
    }
}

/// What is approved of all servers.
pub type Servers = BTreeMap<LockPlace, Arc<Approved>>;

/// What is approved of one server: its definitions by kind and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approved([BTreeMap<String, Definition>; 2]);

/// One approved definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The definition as JSON.
    text: Box<str>,
    /// Whether the text was laid out for the file, which keeps it as it is.
    laid_out: bool,
}

impl Approved {
    /// The definitions of one kind, by name.
    pub fn of(&self, kind: LockedKind) -> &BTreeMap<String, Definition> {
        &self.0[kind as usize]
    }

    fn of_mut(&mut self, kind: LockedKind) -> &mut BTreeMap<String, Definition> {
        &mut self.0[kind as usize]
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeMap::is_empty)
    }
}

/// A valid lock file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    form: Form,
    /// The file's name, for messages.
    file: Arc<str>,
    servers: Servers,
}

impl Lock {
    /// Reads a file with this name. The text has no byte order mark.
    pub fn read(form: Form, file: &str, text: &str) -> Result<Self, Fault> {
        Ok(Self { form, file: file.into(), servers: read::read(form, text)? })
    }

    /// What is approved of each server.
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// What guards a server. Nothing is approved of a server that the file does not have.
    pub fn guard(&self, group: &str, server: &str, enforced: bool) -> Guard {
        let approved = self.servers.get(&LockPlace::new(group, server)).cloned().unwrap_or_default();
        Guard { approved, enforced, file: self.file.clone(), form: self.form }
    }
}

/// What is approved of one server, and whether clients are kept from everything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    approved: Arc<Approved>,
    /// Whether what differs is kept from clients. Otherwise it is only logged.
    pub enforced: bool,
    file: Arc<str>,
    form: Form,
}

/// How a definition compares with the approved one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// They are equal.
    Equal,
    /// Only texts differ; this is the approved definition, on one line.
    Texts(String),
    /// They differ otherwise.
    Other,
    /// Nothing of this name is approved.
    New,
    /// The definition has a member twice, or is nested too deeply to be compared.
    Unfit,
}

impl Guard {
    /// Compares a definition, as the server sent it, with the approved one of the same name.
    pub fn compare(&self, kind: LockedKind, name: &str, sent: &str) -> Verdict {
        let approved = self.approved.of(kind).get(name);
        // What is approved is fit, and so is what is like it.
        if approved.is_some_and(|approved| value::are_alike(&approved.text, sent)) {
            return Verdict::Equal;
        }
        let Ok(sent) = JsonValue::read(sent) else { return Verdict::Unfit };
        let Some(approved) = approved else { return Verdict::New };
        let known = approved.value();
        if known == sent {
            return Verdict::Equal;
        }
        match difference::only_texts(&known, &sent) {
            true => Verdict::Texts(write::compact(&known)),
            false => Verdict::Other,
        }
    }

    /// The name of the lock file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The command that approves what is withheld.
    pub fn command(&self) -> &'static str {
        self.form.command()
    }

    /// Why something that is withheld cannot be used, and what a person can do about it.
    pub fn reason(&self) -> String {
        let (file, command) = (&self.file, self.command());
        format!(
            "it is withheld, since its definition is not the one approved in {file}; a person can approve it with \
             `{command}`"
        )
    }
}

/// Access to lock files for fuzz targets.
#[cfg(fuzzing)]
pub(crate) mod fuzzing {
    use std::ops::Range;

    use super::{Form, Lock, LockedKind, Verdict, write};

    /// Reads a lock file and writes it anew; the error says where its fault stands. Whatever was approved compares as equal
    /// with itself.
    pub fn read_lock(form: Form, text: &str) -> Result<String, Range<usize>> {
        let lock = Lock::read(form, "lock", text).map_err(|fault| fault.span)?;
        for (place, approved) in lock.servers() {
            let guard = lock.guard(&place.group, &place.server, true);
            for kind in LockedKind::ALL {
                for (name, definition) in approved.of(kind) {
                    assert_eq!(guard.compare(kind, name, &definition.text), Verdict::Equal);
                }
            }
        }
        Ok(write(form, lock.servers()))
    }
}

impl Definition {
    fn value(&self) -> JsonValue<'_> {
        JsonValue::read(&self.text).expect("a definition that cannot be read is not approved")
    }
}
