//! Who shares an upstream. The registry knows each upstream by its group, its server and its [`Share`]; in
//! the daemon that depends on where each session comes from, which is its [`DaemonSession`].
//!
//! Invariant: two sessions with the same share would start the same process. What differs between them that
//! a server could see, and that its isolation does not leave to chance, is part of the share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::process::{Variables, inherited};
use super::record::Record;
use super::session::ClientSession;
use super::stderr::Tail;
use super::upstream::{Spec, Upstream};
use crate::catalog::Exposed;
use crate::config::{Command, Http, Isolation, Transport};
use crate::json::Raw;
use crate::protocol::era::ClientHello;
use crate::transport::http_client::AUTHORITY_VARIABLES;

/// For whom an upstream is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Share {
    /// All clients of this process.
    Everyone,
    /// The client with this number.
    Client(u64),
    /// All sessions of the daemon that have the same of this.
    Alike(Arc<[u8]>),
}

/// A session of the daemon: where it comes from, and what becomes of it.
pub struct DaemonSession {
    /// The environment.
    pub vars: Variables,
    /// The working directory.
    pub directory: PathBuf,
    /// The directory of the configuration file.
    pub files: PathBuf,
    /// The umask; `None` where there is none.
    pub umask: Option<u32>,
    /// When the session began.
    pub since: SystemTime,
    calls: AtomicU64,
    /// The record that the client's end was given last.
    recorded: Mutex<Record>,
}

impl DaemonSession {
    /// A session that comes from there.
    pub fn new(vars: Variables, directory: PathBuf, files: PathBuf, umask: Option<u32>) -> Self {
        Self {
            vars,
            directory,
            files,
            umask,
            since: SystemTime::now(),
            calls: AtomicU64::new(0),
            recorded: Mutex::default(),
        }
    }

    /// Where a server of this session runs if its entry does not say so.
    pub(super) fn directory_for(&self, spec: &Spec) -> &Path {
        match spec.isolation_in_daemon() {
            Isolation::Shared => &self.files,
            Isolation::Directory | Isolation::Session => &self.directory,
        }
    }

    /// Counts a request to an upstream.
    pub(super) fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// How many requests went to upstreams.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Notes that the session stands like this now. Returns whether that is news.
    pub fn note(&self, record: &Record) -> bool {
        let mut recorded = self.recorded.lock();
        let is_new = *recorded != *record;
        if is_new {
            recorded.clone_from(record);
        }
        is_new
    }

    /// What the client said of itself, as far as that is noted.
    pub(super) fn hello(&self) -> Option<ClientHello> {
        let hello = self.recorded.lock().hello.clone()?;
        ClientHello::read(Raw::own(hello).root()).ok()
    }

    /// For whom a server of this session is; `client` is the session's own number.
    pub fn share(&self, client: u64, spec: &Spec) -> Share {
        let mut key = Key::default();
        key.transport(&spec.transport);
        match spec.isolation_in_daemon() {
            Isolation::Session => return Share::Client(client),
            Isolation::Shared => key.text("shared"),
            Isolation::Directory => {
                key.text("directory");
                key.text(self.directory.as_os_str().as_encoded_bytes());
                key.text(format!("{:?}", self.umask));
                match &spec.transport {
                    Transport::Stdio(command) => {
                        let mut inherited = inherited(&self.vars, &command.inherit_env);
                        inherited.sort();
                        for (name, value) in inherited {
                            key.text(name.as_encoded_bytes());
                            key.text(value.as_encoded_bytes());
                        }
                    }
                    // Whether a server can be reached depends on whom the session trusts.
                    Transport::Http(_) => {
                        for wanted in AUTHORITY_VARIABLES {
                            let value = self.vars.iter().find(|(name, _)| name == wanted);
                            key.texts(value.iter().map(|(_, value)| value.as_encoded_bytes()));
                        }
                    }
                    Transport::Unset(_) => {}
                }
            }
        }
        Share::Alike(key.0.into())
    }
}

/// For whom an upstream is, as a session of the daemon or any other client sees it.
pub(super) fn share(daemon_session: Option<&DaemonSession>, client: u64, spec: &Spec) -> Share {
    match daemon_session {
        Some(daemon_session) => daemon_session.share(client, spec),
        None if spec.isolation == Some(Isolation::Session) => Share::Client(client),
        None => Share::Everyone,
    }
}

/// What makes sessions alike, as texts that can be told apart.
#[derive(Default)]
struct Key(Vec<u8>);

impl Key {
    fn text(&mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        self.0.extend_from_slice(&text.len().to_le_bytes());
        self.0.extend_from_slice(text);
    }

    fn texts(&mut self, texts: impl ExactSizeIterator<Item = impl AsRef<[u8]>>) {
        self.text(texts.len().to_le_bytes());
        texts.for_each(|text| self.text(text));
    }

    /// All that an entry says of how a server is reached, with variables expanded.
    fn transport(&mut self, transport: &Transport) {
        match transport {
            Transport::Stdio(Command { program, args, env, cwd, inherit_env }) => {
                self.text("stdio");
                self.text(program);
                self.texts(args.iter());
                self.texts(env.iter().map(|(name, _)| name));
                self.texts(env.iter().map(|(_, value)| value.expose()));
                let cwd = cwd.as_ref().map(|cwd| cwd.as_os_str().as_encoded_bytes());
                self.texts(cwd.iter());
                self.texts(inherit_env.iter());
            }
            Transport::Http(Http { url, headers, sse, oauth }) => {
                self.text("http");
                self.text(url);
                self.texts(headers.iter().map(|(name, _)| name));
                self.texts(headers.iter().map(|(_, value)| value.expose()));
                self.text([u8::from(*sse)]);
                let Some(oauth) = oauth else { return };
                let secret = oauth.client_secret.as_ref().map(|secret| secret.expose());
                let texts = [oauth.client_id.as_deref(), secret, oauth.client_metadata_url.as_deref()];
                texts.iter().for_each(|text| self.texts(text.iter()));
                self.texts(oauth.scope.iter());
                self.text(format!("{:?}", oauth.callback_port));
            }
            Transport::Unset(unset) => {
                self.text("unset");
                self.texts(unset.variables.iter());
            }
        }
    }
}

/// How many lines of stderr somebody who asks is shown.
const SHOWN_LINES: usize = 50;

/// How much an upstream is used, for those who ask what runs.
pub struct Usage {
    calls: AtomicU64,
    /// How many requests it works on.
    open: AtomicU64,
    /// How often nobody had the upstream open any more.
    released: AtomicU64,
    /// When it had no more requests to work on, or was made.
    last: Mutex<Instant>,
    /// The id of the process that was started last; 0 before that is known.
    pid: Mutex<Arc<AtomicU32>>,
    /// What that process wrote to its stderr.
    stderr: Mutex<Arc<Tail>>,
    /// What the upstream offers, under the names that a view showed last.
    shown: Mutex<Weak<Exposed>>,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            calls: AtomicU64::new(0),
            open: AtomicU64::new(0),
            released: AtomicU64::new(0),
            last: Mutex::new(Instant::now()),
            pid: Mutex::default(),
            stderr: Mutex::default(),
            shown: Mutex::default(),
        }
    }
}

impl Usage {
    /// Notes what a view shows of the upstream.
    pub(super) fn show(&self, exposed: &Arc<Exposed>) {
        *self.shown.lock() = Arc::downgrade(exposed);
    }

    /// What a view showed of the upstream last, if it still does.
    pub(super) fn shown(&self) -> Option<Arc<Exposed>> {
        self.shown.lock().upgrade()
    }

    /// Notes where the id of the upstream's process will stand, and what it writes to stderr.
    pub(super) fn runs_as(&self, pid: Arc<AtomicU32>, stderr: Arc<Tail>) {
        *self.pid.lock() = pid;
        *self.stderr.lock() = stderr;
    }

    /// The last lines that the process wrote to its stderr, as they came.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.lock().last(SHOWN_LINES)
    }

    /// The id of the process that was started last.
    pub fn pid(&self) -> Option<u32> {
        Some(self.pid.lock().load(Ordering::Relaxed)).filter(|pid| *pid != 0)
    }

    /// How many requests there were.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// For how long it has had no request to work on.
    pub fn idle(&self) -> Duration {
        match self.open.load(Ordering::Relaxed) {
            0 => self.last.lock().elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Notes that nobody has the upstream open any more. Returns the number of this release.
    pub(super) fn release(&self) -> u64 {
        self.released.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether nobody had the upstream since the release with this number.
    pub(super) fn is_released(&self, number: u64) -> bool {
        self.released.load(Ordering::Relaxed) == number
    }
}

/// A request that an upstream works on.
pub(super) struct Using(Arc<Upstream>);

impl Using {
    pub(super) fn new(upstream: &Arc<Upstream>) -> Self {
        upstream.usage.calls.fetch_add(1, Ordering::Relaxed);
        upstream.usage.open.fetch_add(1, Ordering::Relaxed);
        Self(upstream.clone())
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        let usage = &self.0.usage;
        // While others are open, it is not the last one that ends.
        if usage.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            *usage.last.lock() = Instant::now();
        }
    }
}

impl ClientSession {
    /// Gives the client's end, or the store of the replicas, the record of how the session stands now. It must be
    /// called before the answer to the request that changed it, so that whoever has the answer has the
    /// record.
    pub fn record(&self) {
        self.note_change();
        let Some(daemon_session) = self.workspace.daemon_session() else { return };
        let record = Record::of(self);
        if daemon_session.note(&record) {
            self.tell_end(&record.to_line());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Secret, Unset};

    fn command(program: &str) -> Command {
        let (program, args) = (program.to_owned(), vec!["a".to_owned()]);
        Command { program, args, env: Vec::new(), cwd: None, inherit_env: vec!["TOKEN".to_owned()] }
    }

    fn spec(transport: Transport, isolation: Option<Isolation>) -> Spec {
        Spec { isolation, ..Spec::plain(transport) }
    }

    fn daemon_session(vars: &[(&str, &str)], directory: &str, umask: u32) -> DaemonSession {
        let vars = vars.iter().map(|(name, value)| (name.into(), value.into())).collect();
        DaemonSession::new(vars, directory.into(), "/files".into(), Some(umask))
    }

    #[test]
    fn sessions_share_what_their_isolation_says() {
        let base = || daemon_session(&[("HOME", "/h"), ("TOKEN", "1"), ("EDITOR", "vi")], "/work", 0o22);
        let others = [
            ("the same", base(), [true, true]),
            ("another order", daemon_session(&[("TOKEN", "1"), ("HOME", "/h")], "/work", 0o22), [true, true]),
            (
                "a variable that the server does not get",
                daemon_session(&[("HOME", "/h"), ("TOKEN", "1"), ("EDITOR", "ed")], "/work", 0o22),
                [true, true],
            ),
            (
                "a variable that the server inherits",
                daemon_session(&[("HOME", "/h"), ("TOKEN", "2")], "/work", 0o22),
                [true, false],
            ),
            ("a variable less", daemon_session(&[("HOME", "/h")], "/work", 0o22), [true, false]),
            (
                "another directory",
                daemon_session(&[("HOME", "/h"), ("TOKEN", "1")], "/other", 0o22),
                [true, false],
            ),
            (
                "another umask",
                daemon_session(&[("HOME", "/h"), ("TOKEN", "1")], "/work", 0o77),
                [true, false],
            ),
        ];
        for (what, other, expected) in others {
            for (isolation, expected) in [Isolation::Shared, Isolation::Directory].into_iter().zip(expected) {
                let spec = spec(Transport::Stdio(command("x")), Some(isolation));
                let same = base().share(1, &spec) == other.share(2, &spec);
                assert_eq!(same, expected, "{what}, {isolation:?}");
            }
            let own = spec(Transport::Stdio(command("x")), Some(Isolation::Session));
            assert_ne!(base().share(1, &own), other.share(2, &own), "{what}");
            assert_eq!(base().share(1, &own), other.share(1, &own), "{what}");
        }
    }

    #[test]
    fn whom_a_session_trusts_tells_servers_behind_urls_apart() {
        let share = |vars: &[(&str, &str)], isolation| {
            let http = Http { url: "https://a/".into(), headers: Vec::new(), sse: false, oauth: None };
            daemon_session(vars, "/work", 0).share(1, &spec(Transport::Http(http), Some(isolation)))
        };
        let [file, directory] = [("SSL_CERT_FILE", "/x"), ("SSL_CERT_DIR", "/x")];
        let alike = share(&[file, directory], Isolation::Directory);
        assert_eq!(share(&[directory, ("EDITOR", "vi"), file], Isolation::Directory), alike);
        for other in [&[][..], &[file], &[directory], &[("SSL_CERT_FILE", "/y"), directory]] {
            assert_ne!(share(other, Isolation::Directory), alike, "{other:?}");
            assert_eq!(share(other, Isolation::Shared), share(&[file], Isolation::Shared), "{other:?}");
        }
    }

    #[test]
    fn entries_that_mean_something_else_are_not_shared() {
        type Change = fn(&mut Command);
        let changes: [(&str, Change); 7] = [
            ("program", |command| command.program = "y".into()),
            ("arguments", |command| command.args.push(String::new())),
            ("parts of arguments", |command| command.args = vec!["".into(), "a".into()]),
            ("a variable", |command| command.env.push(("A".into(), Secret::new("1")))),
            ("its value", |command| command.env.push(("A".into(), Secret::new("2")))),
            ("directory", |command| command.cwd = Some("/x".into())),
            ("what it inherits", |command| command.inherit_env.clear()),
        ];
        let session = daemon_session(&[], "/work", 0);
        for isolation in [Isolation::Shared, Isolation::Directory] {
            let share = |transport| session.share(1, &spec(transport, Some(isolation)));
            let mut seen = vec![share(Transport::Stdio(command("x")))];
            for (what, change) in changes {
                let mut changed = command("x");
                change(&mut changed);
                let now = share(Transport::Stdio(changed));
                assert!(!seen.contains(&now), "{what}");
                seen.push(now);
            }
            for url in ["http://a/", "http://b/"] {
                let http = Http { url: url.into(), headers: Vec::new(), sse: false, oauth: None };
                let now = share(Transport::Http(http));
                assert!(!seen.contains(&now), "{url}");
                seen.push(now);
            }
            let unset = Unset { variables: vec!["A".into()], transport: "stdio" };
            assert!(!seen.contains(&share(Transport::Unset(unset))));
        }
    }

    #[test]
    fn the_default_depends_on_the_program_and_shared_servers_run_beside_the_file() {
        let session = daemon_session(&[], "/work", 0);
        for (program, isolation, expected, directory) in [
            ("x", None, Isolation::Directory, "/work"),
            ("playwright-mcp", None, Isolation::Session, "/work"),
            ("playwright-mcp", Some(Isolation::Shared), Isolation::Shared, "/files"),
        ] {
            let spec = spec(Transport::Stdio(command(program)), isolation);
            assert_eq!(spec.isolation_in_daemon(), expected, "{program}");
            assert_eq!(session.directory_for(&spec), Path::new(directory), "{program}");
        }
    }

    #[test]
    fn a_release_counts_until_the_next() {
        let usage = Usage::default();
        let first = usage.release();
        assert!(usage.is_released(first));
        let second = usage.release();
        assert!(!usage.is_released(first) && usage.is_released(second));
    }
}
