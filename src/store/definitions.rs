//! What upstreams offered when last asked, and how they spoke: files for each, shared by the shell and running servers.
//!
//! A file's name is a digest of what the upstream is: its command or URL, arguments, the names of its variables and
//! headers, and our version. No value of a variable or header goes in, and arguments only as part of the digest. Files are
//! replaced whole, so readers and writers need no lock; one that cannot be read is as good as none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::replace;
use crate::config::Transport;
use crate::core::catalog::{Items, Kind, read_page};
use crate::core::upstream::Era;
use crate::wire::era::TaskSupport;
use crate::wire::json::Scanner;

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
        let path = self.path(transport, "json");
        let text = fs::read_to_string(&path).ok()?;
        let items = parse(&text);
        if items.is_none() {
            log::debug!("{} is broken and is discarded", path.display());
            let _ = fs::remove_file(&path);
        }
        items
    }

    /// Remembers what the upstream offers.
    pub fn save(&self, transport: &Transport, items: &Items) -> io::Result<()> {
        let lists = Kind::ALL.map(|kind| {
            let raws: Vec<&str> = items.of(kind).iter().map(|item| &*item.raw).collect();
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
        let mut context = Context::new(&SHA256);
        let mut eat = |part: &str| {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part.as_bytes());
        };
        eat(env!("CARGO_PKG_VERSION"));
        match transport {
            Transport::Stdio(command) => {
                eat("stdio");
                eat(&command.program);
                eat(&command.args.len().to_string());
                command.args.iter().for_each(|argument| eat(argument));
                command.env.iter().for_each(|(name, _)| eat(name));
                // What an argument names may be another file in another directory.
                let directory = command.cwd.as_deref().unwrap_or(&self.working);
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
        let digest = context.finish();
        let name: String = digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        self.directory.join(format!("{name}.{what}"))
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
    Scanner::default().scan_str(text).ok()?;
    let mut items = Items::default();
    for kind in Kind::ALL {
        items = items.with(kind, read_page(kind, text).ok()?.items);
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
        for broken in ["", "{\"tools\":[", "{\"tools\":[]}", "[]", "{\"tools\":7}"] {
            fs::write(&path, broken).unwrap();
            assert_eq!(store.load(&transport), None, "{broken}");
            assert!(!path.exists(), "{broken}");
        }
        fs::remove_dir_all(&place).unwrap();
    }
}
