//! What upstreams offered when last asked, and how they spoke: files for each, shared by the shell and running servers.
//!
//! A file's name is a digest of what the upstream is: its command or URL, arguments, the names of its variables and
//! headers, and our version. No value of a variable or header goes in, and arguments only as part of the digest. Files are
//! replaced whole, so readers and writers need no lock; one that cannot be read is as good as none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::replace;
use crate::catalog::{Item, Items, Kind, read_page};
use crate::config::Transport;
use crate::json::Scanner;
use crate::protocol::era::{Era, TaskSupport};
use crate::text::digest::Digest;

/// The remembered definitions of all upstreams.
#[derive(Debug, Clone)]
pub struct Definitions {
    /// Holds one file for each upstream.
    directory: PathBuf,
    /// Our working directory, in which programs are started that name no other.
    working: PathBuf,
}

/// How an upstream spoke when last asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manner {
    /// So that the next start needs no probe.
    pub era: Era,
    /// So that clients can be told before it runs.
    pub tasks: TaskSupport,
}

impl Definitions {
    /// The store in the directory for caches.
    pub fn new(cache: &Path, working: &Path) -> Self {
        Self { directory: cache.join("mcp-workbench").join("definitions"), working: working.to_owned() }
    }

    /// What the upstream offered when last asked; `None` where that is not known.
    pub fn load(&self, transport: &Transport) -> Option<Items> {
        self.place(transport).load()
    }

    /// Where what the upstream offers is remembered.
    pub fn place(&self, transport: &Transport) -> DefinitionsFile {
        DefinitionsFile(self.path(transport, "json"))
    }

    /// Remembers what the upstream offers.
    pub fn save(&self, transport: &Transport, items: &Items) -> io::Result<()> {
        let lists = Kind::ALL.map(|kind| {
            let raws: Vec<&str> = items.of(kind).iter().map(Item::raw).collect();
            format!("\"{}\":[{}]", kind.list_key(), raws.join(","))
        });
        let text = format!("{{{}}}", lists.join(","));
        write(&self.path(transport, "json"), &text)
    }

    /// How the upstream spoke when last asked; `None` where that is not known.
    pub fn manner(&self, transport: &Transport) -> Option<Manner> {
        serde_json::from_str(&fs::read_to_string(self.path(transport, "manner")).ok()?).ok()
    }

    /// Remembers how the upstream speaks.
    pub fn save_manner(&self, transport: &Transport, manner: Manner) -> io::Result<()> {
        write(&self.path(transport, "manner"), &serde_json::to_string(&manner)?)
    }

    /// Forgets how the upstream spoke: it does so no longer.
    pub fn forget_manner(&self, transport: &Transport) {
        let _ = fs::remove_file(self.path(transport, "manner"));
    }

    fn path(&self, transport: &Transport, what: &str) -> PathBuf {
        self.directory.join(format!("{}.{what}", digest(transport, &self.working)))
    }
}

/// A digest of what an upstream is, started in this directory unless it names another. Values of variables make no
/// difference.
pub fn digest(transport: &Transport, working: &Path) -> String {
    let mut digest = Digest::default();
    let mut eat = |part: &str| digest.eat(part);
    eat(env!("CARGO_PKG_VERSION"));
    match transport {
        Transport::Stdio(command) => {
            eat("stdio");
            eat(&command.program);
            eat(&command.args.len().to_string());
            command.args.iter().for_each(|argument| eat(argument));
            command.env.iter().for_each(|(name, _)| eat(name));
            // What an argument names may be another file in another directory.
            let directory = command.cwd.as_deref().unwrap_or(working);
            let mut words = std::iter::once(&command.program).chain(&command.args);
            let relative = |word: &String| {
                !word.is_empty() && Path::new(word).is_relative() && directory.join(word).exists()
            };
            if command.cwd.is_some() || words.any(relative) {
                eat("in");
                eat(&directory.to_string_lossy());
            }
        }
        Transport::Http(http) => {
            eat(if http.sse { "sse" } else { "http" });
            eat(&http.url);
            http.headers.iter().for_each(|(name, _)| eat(name));
        }
    }
    digest.name()
}

/// Where what one upstream offers is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionsFile(PathBuf);

/// When a place was last written, and how much.
pub type Stamp = (SystemTime, u64);

impl DefinitionsFile {
    /// Differs when something else is remembered; `None` where nothing is.
    pub fn stamp(&self) -> Option<Stamp> {
        let metadata = fs::metadata(&self.0).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }

    /// What is remembered here, if anything; what cannot be read is discarded.
    pub fn load(&self) -> Option<Items> {
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
            Err(_) => return None,
        };
        let items = parse(&text);
        if items.is_none() {
            tracing::debug!("{} is broken and is discarded", self.0.display());
            let _ = fs::remove_file(&self.0);
        }
        items
    }
}

/// Writes the file unless it holds this already.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if fs::read(path).is_ok_and(|known| known == text.as_bytes()) {
        return Ok(());
    }
    replace(path, text.as_bytes())
}

fn parse(text: &str) -> Option<Items> {
    let mut scanner = Scanner::default();
    let root = scanner.scan_str(text).ok()?.root();
    let mut items = Items::default();
    // Whichever era it was, what is remembered fits already.
    for kind in Kind::ALL {
        items = items.with(kind, read_page(kind, Era::Modern, root).ok()?.items);
    }
    Some(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Command, Secret};

    fn stdio(program: &str, args: &[&str], env: &[(&str, &str)]) -> Transport {
        Transport::Stdio(Command {
            program: program.to_owned(),
            args: args.iter().map(|argument| (*argument).to_owned()).collect(),
            env: env.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect(),
            cwd: None,
            inherit_env: Vec::new(),
        })
    }

    #[test]
    fn what_is_saved_is_loaded_by_what_the_upstream_is() {
        let place = std::env::temp_dir().join(format!("mcp-workbench-definitions-{}", std::process::id()));
        let store = Definitions::new(&place, &place);
        let transport = stdio("npx", &["-y", "fixture-argument"], &[("KEY", "fixture-value")]);
        assert_eq!(store.load(&transport), None);
        let items = Items::default().with(Kind::Tool, Items::named(Kind::Tool, &["a", "b\n"]));
        store.save(&transport, &items).unwrap();
        let others = [
            (stdio("npx", &["-y", "fixture-argument"], &[("KEY", "another-value")]), true),
            (stdio("npx", &["-y", "fixture-argument"], &[("OTHER", "fixture-value")]), false),
            (stdio("npx", &["-y", "fixture-argument", "KEY"], &[]), false),
            (stdio("npx", &["-y"], &[("KEY", "fixture-value")]), false),
            (stdio("uvx", &["-y", "fixture-argument"], &[("KEY", "fixture-value")]), false),
        ];
        for (other, known) in others {
            assert_eq!(store.load(&other), known.then(|| items.clone()), "{other:?}");
        }
        let manner = Manner { era: Era::Modern, tasks: TaskSupport::Plain };
        assert_eq!(store.manner(&transport), None);
        store.save_manner(&transport, manner).unwrap();
        assert_eq!(store.manner(&transport), Some(manner));
        assert_eq!(store.load(&transport), Some(items));
        store.forget_manner(&transport);
        assert_eq!(store.manner(&transport), None);
        let path = store.path(&transport, "json");
        let told = format!("{} {}", path.display(), fs::read_to_string(&path).unwrap());
        assert!(!told.contains("fixture-"), "{told}");
        for broken in [&b""[..], b"{\"tools\":[", b"{\"tools\":[]}", b"[]", b"{\"tools\":7}", b"\xff\xfe"] {
            fs::write(&path, broken).unwrap();
            assert_eq!(store.load(&transport), None, "{broken:?}");
            assert!(!path.exists(), "{broken:?}");
        }
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn many_writers_and_readers_never_see_half_of_it() {
        let place = std::env::temp_dir().join(format!("mcp-workbench-many-{}", std::process::id()));
        let store = Definitions::new(&place, &place);
        let transport = stdio("npx", &[], &[]);
        let versions: Vec<Items> = (1..5usize)
            .map(|n| {
                let names: Vec<String> = (0..n * 200).map(|tool| format!("tool-{n}-{tool}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                Items::default().with(Kind::Tool, Items::named(Kind::Tool, &names))
            })
            .collect();
        store.save(&transport, &versions[0]).unwrap();
        std::thread::scope(|scope| {
            for items in &versions {
                scope.spawn(|| (0..20).for_each(|_| store.save(&transport, items).unwrap()));
                scope.spawn(|| {
                    for _ in 0..20 {
                        let read = store.load(&transport);
                        assert!(read.is_some_and(|read| versions.contains(&read)), "half of it");
                    }
                });
            }
        });
        assert_eq!(
            fs::read_dir(store.path(&transport, "json").parent().unwrap()).unwrap().count(),
            1,
            "nothing is left over"
        );
        fs::remove_dir_all(&place).unwrap();
    }
}
