//! Remembers what upstreams offered when they were last asked, their era, and for a short while why they
//! failed. The shell and running servers share these files; only the shell reads failures.
//!
//! A file's name is a digest of the upstream's identity: its command or URL, arguments, the names of its
//! variables and headers, and our version. Values of variables and headers are left out, and arguments are
//! part of the digest only. A remembered failure also has a digest of the whole entry, so that a changed value
//! makes it void.
//!
//! Invariant: files are replaced whole, so readers and writers need no lock. A file that cannot be read
//! counts as missing.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::replace_by;
use crate::catalog::{Kind, Sent, read_page};
use crate::config::{Command, Transport};
use crate::json::Scanner;
use crate::protocol::era::{Era, TaskSupport};
use crate::text::digest::Digest;

/// The remembered definitions of all upstreams.
#[derive(Debug, Clone)]
pub struct Definitions {
    /// The directory with the files of all upstreams.
    directory: PathBuf,
    /// Our working directory, in which programs start unless their entry names another.
    working: PathBuf,
}

/// How an upstream spoke when it was last asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpokenProtocol {
    /// The era, which saves the next start a probe.
    pub era: Era,
    /// The support for tasks, so that clients can be told before the upstream runs.
    pub tasks: TaskSupport,
}

/// How long a failure is remembered.
const FAILURE_LASTS: Duration = Duration::from_secs(600);

/// A failure as it is written to disk.
#[derive(Serialize, Deserialize)]
struct FailureRecord<R> {
    /// When it happened, in seconds since 1970.
    at: u64,
    /// A digest of the upstream's entry.
    entry: String,
    reason: R,
}

impl Definitions {
    /// The store below the cache directory.
    pub fn new(cache: &Path, working: &Path) -> Self {
        Self { directory: cache.join("mcp-workbench").join("definitions"), working: working.to_owned() }
    }

    /// What the upstream offered when it was last asked; `None` if that is unknown.
    pub fn load(&self, transport: &Transport) -> Option<Sent> {
        self.place(transport).load()
    }

    /// The file that remembers what the upstream offers.
    pub fn place(&self, transport: &Transport) -> DefinitionsFile {
        DefinitionsFile(self.path(transport, "json"))
    }

    /// Remembers what the upstream offers, as it was sent: the lock compares what was sent, whenever it is read
    /// again. This replaces any failure.
    pub fn save(&self, transport: &Transport, sent: &Sent) -> io::Result<()> {
        self.forget_failure(transport);
        write(&self.path(transport, "json"), |out| write_sent(sent, out))
    }

    /// Remembers why the upstream failed just now; `entry` is a digest of all that its entry says.
    pub fn save_failure(
        &self,
        transport: &Transport,
        entry: &str,
        reason: &impl Serialize,
        now: SystemTime,
    ) -> io::Result<()> {
        let at = now.duration_since(UNIX_EPOCH).map_err(io::Error::other)?.as_secs();
        let failure = FailureRecord { at, entry: entry.to_owned(), reason };
        write(&self.path(transport, "failure"), |out| Ok(serde_json::to_writer(out, &failure)?))
    }

    /// Why the upstream failed; `None` if it did not, if that was too long ago, or if its entry has changed.
    pub fn failure<R: DeserializeOwned>(
        &self,
        transport: &Transport,
        entry: &str,
        now: SystemTime,
    ) -> Option<R> {
        let text = fs::read_to_string(self.path(transport, "failure")).ok()?;
        let failure: FailureRecord<R> = serde_json::from_str(&text).ok()?;
        // A failure of the future comes from a clock that was set back.
        let age = now.duration_since(UNIX_EPOCH).ok()?.as_secs().checked_sub(failure.at)?;
        (failure.entry == entry && age < FAILURE_LASTS.as_secs()).then_some(failure.reason)
    }

    /// Forgets why the upstream failed.
    pub fn forget_failure(&self, transport: &Transport) {
        let _ = fs::remove_file(self.path(transport, "failure"));
    }

    /// How the upstream spoke when it was last asked; `None` if that is unknown.
    pub fn protocol(&self, transport: &Transport) -> Option<SpokenProtocol> {
        serde_json::from_str(&fs::read_to_string(self.path(transport, "manner")).ok()?).ok()
    }

    /// Remembers how the upstream speaks.
    pub fn save_protocol(&self, transport: &Transport, protocol: SpokenProtocol) -> io::Result<()> {
        write(&self.path(transport, "manner"), |out| Ok(serde_json::to_writer(out, &protocol)?))
    }

    /// Forgets how the upstream spoke, because it no longer speaks that way.
    pub fn forget_manner(&self, transport: &Transport) {
        let _ = fs::remove_file(self.path(transport, "manner"));
    }

    fn path(&self, transport: &Transport, what: &str) -> PathBuf {
        self.directory.join(format!("{}.{what}", digest(transport, &self.working)))
    }
}

/// Whether a command is another one in another directory: a relative word may name a different file there. `exists` says
/// whether a path does.
pub fn depends_on(command: &Command, directory: &Path, mut exists: impl FnMut(PathBuf) -> bool) -> bool {
    let mut is_file_there = |word: &String| {
        let is_name = !word.is_empty() && !word.starts_with('-') && Path::new(word).is_relative();
        is_name && exists(directory.join(word))
    };
    is_file_there(&command.program) || command.args.iter().any(is_file_there)
}

/// A digest of an upstream's identity, started in `working` unless it names another directory. The values of
/// variables make no difference.
pub fn digest(transport: &Transport, working: &Path) -> String {
    digest_by(env!("CARGO_PKG_VERSION"), transport, working)
}

fn digest_by(version: &str, transport: &Transport, working: &Path) -> String {
    let mut digest = Digest::default();
    let mut eat = |part: &str| digest.eat(part);
    eat(version);
    match transport {
        Transport::Stdio(command) => {
            eat("stdio");
            eat(&command.program);
            eat(&command.args.len().to_string());
            command.args.iter().for_each(|argument| eat(argument));
            command.env.iter().for_each(|(name, _)| eat(name));
            let directory = command.cwd.as_deref().unwrap_or(working);
            if command.cwd.is_some() || depends_on(command, directory, |path| path.exists()) {
                eat("in");
                eat(&directory.to_string_lossy());
            }
        }
        Transport::Http(http) => {
            eat(if http.sse { "sse" } else { "http" });
            eat(&http.url);
            http.headers.iter().for_each(|(name, _)| eat(name));
        }
        // Such a server never starts, so nothing is ever remembered about it.
        Transport::Unset(_) => eat("unset"),
    }
    digest.name()
}

/// The file that remembers what one upstream offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionsFile(PathBuf);

/// The time and size of a file's last write.
pub type Stamp = (SystemTime, u64);

impl DefinitionsFile {
    /// A stamp that changes whenever the file's contents do; `None` if there is no file.
    pub fn stamp(&self) -> Option<Stamp> {
        let metadata = fs::metadata(&self.0).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }

    /// The remembered definitions, if there are any. A file that cannot be read is deleted.
    pub fn load(&self) -> Option<Sent> {
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
            Err(_) => return None,
        };
        let sent = parse(&text);
        if sent.is_none() {
            tracing::debug!("{} is broken and is discarded", self.0.display());
            let _ = fs::remove_file(&self.0);
        }
        sent
    }
}

/// Writes what `text` writes to the file, unless that is what it holds. The text may be long, so it is never held
/// as a whole.
fn write(path: &Path, text: impl Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let is_known = File::open(path).and_then(|file| {
        let mut known = Comparison(BufReader::with_capacity(BLOCK, file));
        text(&mut known)?;
        Ok(known.0.fill_buf()?.is_empty())
    });
    if is_known.unwrap_or(false) {
        return Ok(());
    }
    replace_by(path, |file| {
        let mut out = BufWriter::with_capacity(BLOCK, file);
        text(&mut out)?;
        out.flush()
    })
}

/// How much of a file is read or written at once.
const BLOCK: usize = 64 * 1024;

/// Takes what it is given as long as it is what a reader has next.
struct Comparison<R>(R);

impl<R: BufRead> Write for Comparison<R> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let known = self.0.fill_buf()?;
        let same = known.len().min(bytes.len());
        if known[..same] != bytes[..same] {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.0.consume(same);
        Ok(same)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes everything that an upstream sent.
fn write_sent(sent: &Sent, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{{\"era\":{}", serde_json::to_string(&sent.era())?)?;
    for kind in Kind::ALL {
        write!(out, ",\"{}\":[", kind.list_key())?;
        for (at, (_, definition)) in sent.definitions(kind).enumerate() {
            out.write_all(if at > 0 { b"," } else { b"" })?;
            out.write_all(definition.as_bytes())?;
        }
        out.write_all(b"]")?;
    }
    out.write_all(b"}")
}

fn parse(text: &str) -> Option<Sent> {
    let mut scanner = Scanner::default();
    let root = scanner.scan_str(text).ok()?.root();
    let era: Era = serde_json::from_str(root.get("era")?.raw()).ok()?;
    let mut sent = Sent::new(era);
    for kind in Kind::ALL {
        sent = sent.with(kind, read_page(kind, era, root).ok()?.items, 0);
    }
    Some(sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Items;
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
        let items = Sent::new(Era::Modern).with(Kind::Tool, Items::named(Kind::Tool, &["a", "b\n"]), 0);
        let odd = Items::defined(Kind::Prompt, r#"{"name":"p","title":7}"#);
        let items = items.with(Kind::Prompt, odd, 0);
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
        let own = digest(&transport, &place);
        assert_eq!(digest_by(env!("CARGO_PKG_VERSION"), &transport, &place), own);
        assert_ne!(digest_by("0.0.0", &transport, &place), own, "another version remembers for itself");
        let protocol = SpokenProtocol { era: Era::Modern, tasks: TaskSupport::Plain };
        assert_eq!(store.protocol(&transport), None);
        store.save_protocol(&transport, protocol).unwrap();
        assert_eq!(store.protocol(&transport), Some(protocol));
        assert_eq!(store.load(&transport), Some(items));
        store.forget_manner(&transport);
        assert_eq!(store.protocol(&transport), None);
        let path = store.path(&transport, "json");
        let told = format!("{} {}", path.display(), fs::read_to_string(&path).unwrap());
        assert!(!told.contains("fixture-"), "{told}");
        for broken in [
            &b""[..],
            b"{\"tools\":[",
            b"{\"era\":\"legacy\",\"tools\":[]}",
            b"[]",
            b"{\"tools\":7}",
            b"\xff\xfe",
        ] {
            fs::write(&path, broken).unwrap();
            assert_eq!(store.load(&transport), None, "{broken:?}");
            assert!(!path.exists(), "{broken:?}");
        }
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn a_failure_is_remembered_for_ten_minutes_or_until_a_success() {
        let place = std::env::temp_dir().join(format!("mcp-workbench-failures-{}", std::process::id()));
        let store = Definitions::new(&place, &place);
        let transport = stdio("npx", &["-y", "fixture-argument"], &[("KEY", "fixture-value")]);
        let then = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let after = |seconds: u64| then + Duration::from_secs(seconds);
        let known = |entry: &str, now| store.failure::<String>(&transport, entry, now);
        assert_eq!(known("entry", then), None);
        store.save_failure(&transport, "entry", &"it exited", then).unwrap();
        for (entry, now, expected) in [
            ("entry", then, Some("it exited")),
            ("entry", after(599), Some("it exited")),
            ("entry", after(600), None),
            ("entry", then - Duration::from_secs(1), None),
            ("changed", then, None),
        ] {
            assert_eq!(known(entry, now).as_deref(), expected, "{entry} {now:?}");
        }
        let other = stdio("npx", &["-y"], &[]);
        assert_eq!(store.failure::<String>(&other, "entry", then), None);
        store.save(&transport, &Sent::default()).unwrap();
        assert_eq!(known("entry", then), None);
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn a_file_is_written_only_if_something_has_changed() {
        use std::os::unix::fs::MetadataExt;
        let place = std::env::temp_dir().join(format!("mcp-workbench-same-{}", std::process::id()));
        let store = Definitions::new(&place, &place);
        let transport = stdio("npx", &[], &[]);
        let of = |names: &[&str]| Sent::default().with(Kind::Tool, Items::named(Kind::Tool, names), 0);
        let long: Vec<String> = (0..2000).map(|tool| format!("tool-{tool}")).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let path = store.path(&transport, "json");
        let mut before = None;
        for (names, is_new) in [
            (&["a"][..], true),
            (&["a"], false),
            (&["b"], true),
            (&long, true),
            (&long, false),
            (&["b"], true),
        ] {
            store.save(&transport, &of(names)).unwrap();
            assert_eq!(store.load(&transport), Some(of(names)));
            let now = Some(fs::metadata(&path).unwrap().ino());
            assert_eq!(now != before, is_new, "{}", names.len());
            before = now;
        }
        // A file that goes on where the text ends is not the same.
        let text = fs::read(&path).unwrap();
        fs::write(&path, [&text[..], b" "].concat()).unwrap();
        store.save(&transport, &of(&["b"])).unwrap();
        assert_eq!(fs::read(&path).unwrap(), text);
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn many_writers_and_readers_never_see_half_of_it() {
        let place = std::env::temp_dir().join(format!("mcp-workbench-many-{}", std::process::id()));
        let store = Definitions::new(&place, &place);
        let transport = stdio("npx", &[], &[]);
        let versions: Vec<Sent> = (1..5usize)
            .map(|n| {
                let names: Vec<String> = (0..n * 200).map(|tool| format!("tool-{n}-{tool}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                Sent::default().with(Kind::Tool, Items::named(Kind::Tool, &names), 0)
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
