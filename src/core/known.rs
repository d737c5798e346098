//! What is known about servers from their last run, in this process or another.
//!
//! Requests are answered from memory: [`Known::recall`] reads the disk before the first of them arrives.
//!
//! Invariant: nothing on a request's path touches the disk.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::connection::Connection;
use super::probes::{Probe, Probes};
use super::start_error::StartError;
use super::upstream::{Listing, Spec, Upstream};
use crate::catalog::{Kind, Sent};
use crate::config::Transport;
use crate::memory::definitions::{Definitions, SpokenProtocol};
use crate::protocol::era::{Era, TaskSupport};
use crate::text::digest::Digest;

/// The group and the name of a server.
pub type ServerPlace = (Box<str>, Box<str>);

/// The names of a server's tools, in the server's order.
pub type ToolNames = Arc<[Box<str>]>;

/// What is known about servers.
pub struct Known {
    /// The definitions on disk; `None` if nothing is remembered there.
    definitions: Option<Definitions>,
    probes: Probes,
    /// How servers spoke when they were last asked.
    protocols: Mutex<Vec<(Transport, Option<SpokenProtocol>)>>,
    /// What servers offered when they were last asked, for those that are on offer before they run.
    offers: Mutex<Vec<(Transport, Sent)>>,
    /// The names of tools by which groups of servers are introduced; `None` for a server of which nothing is
    /// known yet.
    introduced: Mutex<Vec<(ServerPlace, Option<ToolNames>)>>,
    /// Permits one save at a time: a thread for each upstream would need more memory than the upstreams
    /// themselves.
    turn: Arc<Semaphore>,
}

impl Known {
    pub(super) fn new(cache: Option<&Path>, directory: &Path) -> Self {
        Self {
            definitions: cache.map(|cache| Definitions::new(cache, directory)),
            probes: Probes::default(),
            protocols: Mutex::default(),
            offers: Mutex::default(),
            introduced: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// The remembered definitions, if there are any.
    pub fn definitions(&self) -> Option<&Definitions> {
        self.definitions.as_ref()
    }

    /// Reads how these servers spoke when they were last asked, and what was offered by those that are shown
    /// before they run, so that no request waits for the disk.
    pub fn recall(&self, specs: &[Spec], listing: Listing) {
        let Some(definitions) = &self.definitions else { return };
        for spec in specs {
            let transport = &spec.transport;
            if find(&self.protocols.lock(), transport).is_none() {
                note(&self.protocols, transport, definitions.protocol(transport));
            }
            if spec.recalls(listing)
                && find(&self.offers.lock(), transport).is_none()
                && let Some(sent) = definitions.load(transport)
            {
                note(&self.offers, transport, sent);
            }
        }
    }

    /// Reads the names of the tools of these servers, which clients are told of by their tools. Names that were read
    /// before stay, so that the lists of other sessions do, unless they are to be read `anew`.
    pub fn recall_introductions(&self, servers: impl Iterator<Item = (ServerPlace, Spec)>, anew: bool) {
        let known = |spec: &Spec| Some(names(&self.definitions.as_ref()?.load(&spec.transport)?, spec));
        let before = |place: &ServerPlace| self.introduction(&place.0, &place.1).filter(|_| !anew);
        let recalled: Vec<_> = servers
            .map(|(place, spec)| {
                let names = before(&place).or_else(|| known(&spec));
                (place, names)
            })
            .collect();
        *self.introduced.lock() = recalled;
    }

    /// The names of a server's tools, if it is introduced by them and they are known.
    pub fn introduction(&self, group: &str, server: &str) -> Option<ToolNames> {
        let introduced = self.introduced.lock();
        introduced.iter().find(|((of, name), _)| **of == *group && **name == *server)?.1.clone()
    }

    /// What a server offered when it was last asked; `None` if nobody is shown that before it runs.
    pub(super) fn offered(&self, transport: &Transport) -> Option<Sent> {
        find(&self.offers.lock(), transport)
    }

    /// Whether a server spoke the modern era when it was last asked.
    pub(super) fn is_modern(&self, transport: &Transport) -> bool {
        self.protocol(transport).is_some_and(|protocol| protocol.era == Era::Modern)
    }

    /// How a server spoke when it was last asked.
    pub(super) fn protocol(&self, transport: &Transport) -> Option<SpokenProtocol> {
        find(&self.protocols.lock(), transport).flatten()
    }

    /// Remembers how an upstream speaks; the returned future writes that to disk.
    pub(super) fn speaks(&self, connection: &Connection) -> impl Future<Output = ()> + Send + use<> {
        let protocol = spoken(connection);
        note(&self.protocols, &connection.upstream.spec().transport, Some(protocol));
        self.save(&connection.upstream, move |definitions, transport| {
            definitions.save_protocol(transport, protocol)
        })
    }

    /// Remembers what an upstream offers, in memory as well if it is `recalled` before it runs; the returned future
    /// writes it to disk.
    pub(super) fn offers(
        &self,
        upstream: &Arc<Upstream>,
        sent: Sent,
        recalled: bool,
    ) -> impl Future<Output = ()> + Send + use<> {
        let spec = upstream.spec();
        if recalled {
            note(&self.offers, &spec.transport, sent.clone());
        }
        // The names that clients were told stay until the next start, so that their lists stay as they are.
        let is_it = |place: &ServerPlace| *place.0 == *upstream.group && *place.1 == *upstream.server;
        let mut introduced = self.introduced.lock();
        if let Some((_, unknown @ None)) = introduced.iter_mut().find(|(place, _)| is_it(place)) {
            *unknown = Some(names(&sent, &spec));
        }
        drop(introduced);
        self.save(upstream, move |definitions, transport| definitions.save(transport, &sent))
    }

    /// Remembers why an upstream failed; the returned future writes that to disk.
    pub(super) fn failed(
        &self,
        upstream: &Arc<Upstream>,
        reason: StartError,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (entry, now) = (fingerprint(&upstream.spec()), SystemTime::now());
        self.save(upstream, move |definitions, transport| {
            definitions.save_failure(transport, &entry, &reason, now)
        })
    }

    /// Why an upstream failed, if it did so a short while ago and its entry has not changed since.
    pub fn failure(&self, upstream: &Upstream) -> Option<StartError> {
        let spec = upstream.spec();
        self.definitions.as_ref()?.failure(&spec.transport, &fingerprint(&spec), SystemTime::now())
    }

    /// Forgets why an upstream failed, because something has changed that is not part of its entry. A failure that is
    /// just being written to disk is forgotten too.
    pub fn forget_failure(&self, upstream: &Arc<Upstream>) -> impl Future<Output = ()> + Send + use<> {
        self.save(upstream, |definitions, transport| {
            definitions.forget_failure(transport);
            Ok(())
        })
    }

    fn save<S>(&self, upstream: &Arc<Upstream>, save: S) -> impl Future<Output = ()> + Send + use<S>
    where
        S: FnOnce(&Definitions, &Transport) -> io::Result<()> + Send + 'static,
    {
        let (definitions, upstream, turn) = (self.definitions.clone(), upstream.clone(), self.turn.clone());
        async move {
            let Some(definitions) = definitions else { return };
            let _turn = turn.acquire().await;
            let save = move || {
                if let Err(error) = save(&definitions, &upstream.spec().transport) {
                    tracing::debug!("[{upstream}] what it offers cannot be saved: {error}");
                }
            };
            let _ = tokio::task::spawn_blocking(save).await;
        }
    }

    /// The era that an upstream spoke when it was last asked. If nobody knows, the caller is to ask, and
    /// other starts of the same command wait for the outcome while the second value lives.
    pub(super) async fn era(&self, upstream: &Upstream) -> (Option<Era>, Option<Probe<'_>>) {
        let spec = upstream.spec();
        let remembered = || self.protocol(&spec.transport).map(|protocol| protocol.era);
        if let Some(era) = remembered() {
            return (Some(era), None);
        }
        // A server that never says its era must not cost the other starts all of their time.
        let probe = self.probes.begin(&spec.transport, spec.timeouts.connect / 2).await;
        match remembered() {
            Some(era) => (Some(era), None),
            None => (None, probe),
        }
    }

    /// Takes an upstream to be of the legacy era until it says otherwise.
    pub(super) fn guess_legacy(&self, upstream: &Upstream) {
        let guess = SpokenProtocol { era: Era::Legacy, tasks: TaskSupport::None };
        note(&self.protocols, &upstream.spec().transport, Some(guess));
    }

    /// Makes the next start of an upstream ask for its era; the returned future forgets it on disk as well.
    pub(super) fn forget_era(&self, upstream: &Arc<Upstream>) -> impl Future<Output = ()> + Send + use<> {
        let transport = &upstream.spec().transport;
        self.protocols.lock().retain(|(known, _)| known != transport);
        self.save(upstream, |definitions, transport| {
            definitions.forget_manner(transport);
            Ok(())
        })
    }
}

/// The names of the tools that a model can be told of.
fn names(sent: &Sent, spec: &Spec) -> ToolNames {
    let (items, _) = sent.shown(spec.guard.as_ref());
    let tools = items.of(Kind::Tool).iter().filter(|tool| !tool.is_for_hosts());
    tools.map(|tool| Box::from(&*tool.key)).collect()
}

/// A digest of all that decides whether a server can be asked: how it is reached, values included, and how long
/// it may take.
fn fingerprint(spec: &Spec) -> String {
    let mut digest = Digest::default();
    digest.eat(&format!("{:?} {:?}", spec.transport, spec.timeouts));
    let values: Vec<_> = match &spec.transport {
        Transport::Stdio(command) => command.env.iter().map(|(_, value)| value).collect(),
        Transport::Http(http) => {
            let secret = http.oauth.iter().filter_map(|oauth| oauth.client_secret.as_ref());
            http.headers.iter().map(|(_, value)| value).chain(secret).collect()
        }
        Transport::Unset(_) => Vec::new(),
    };
    values.into_iter().for_each(|value| digest.eat(value.expose()));
    digest.name()
}

/// What is noted about a server.
fn find<T: Clone>(notes: &[(Transport, T)], transport: &Transport) -> Option<T> {
    notes.iter().find(|(other, _)| other == transport).map(|(_, noted)| noted.clone())
}

/// The most servers of which something is noted. The notes of servers that the file no longer has, or that only
/// ended sessions of the daemon had, give way to those of others.
const MOST_NOTES: usize = 1000;

/// Notes something about a server, in place of any earlier note.
fn note<T>(notes: &Mutex<Vec<(Transport, T)>>, transport: &Transport, now: T) {
    let mut notes = notes.lock();
    notes.retain(|(other, _)| other != transport);
    if notes.len() == MOST_NOTES {
        notes.remove(0);
    }
    notes.push((transport.clone(), now));
}

/// How a running upstream speaks.
pub(super) fn spoken(connection: &Connection) -> SpokenProtocol {
    SpokenProtocol { era: connection.version().era(), tasks: connection.profile.tasks() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Items;
    use crate::config::{Command, Secret, Start};

    /// An entry with `${PROJECT}` in it, as one session of the daemon expands it.
    fn of_session(project: &str) -> Spec {
        let command = Command {
            program: "serve".to_owned(),
            args: Vec::new(),
            env: vec![("PROJECT".to_owned(), Secret::new(project))],
            cwd: None,
            inherit_env: Vec::new(),
        };
        let spec = (*Upstream::unreal("box", "s").spec()).clone();
        Spec { transport: Transport::Stdio(command), start: Some(Start::Call), ..spec }
    }

    #[test]
    fn what_one_session_of_the_daemon_recalls_stays_when_another_begins() {
        let place = std::env::temp_dir().join(format!("mcp-workbench-known-{}", std::process::id()));
        let known = Known::new(Some(&place), &place);
        let (one, other) = (of_session("a"), of_session("b"));
        let sent = Sent::new(Era::Legacy).with(Kind::Tool, Items::named(Kind::Tool, &["t"]), 0);
        let protocol = SpokenProtocol { era: Era::Legacy, tasks: TaskSupport::None };
        let definitions = known.definitions().expect("there is a cache");
        definitions.save(&one.transport, &sent).expect("the directory is ours");
        definitions.save_protocol(&one.transport, protocol).expect("the directory is ours");
        known.recall(std::slice::from_ref(&one), Listing::WhileUp);
        known.recall(&[other], Listing::WhileUp);
        // What was recalled is in memory.
        std::fs::remove_dir_all(&place).expect("the directory is ours");
        assert_eq!(known.offered(&one.transport), Some(sent.clone()));
        assert_eq!(known.protocol(&one.transport), Some(protocol));
    }

    #[test]
    fn the_names_by_which_clients_are_told_of_a_server_stay_when_another_session_begins() {
        let place = std::env::temp_dir().join(format!("mcp-workbench-introduced-{}", std::process::id()));
        let (known, spec) = (Known::new(Some(&place), &place), of_session("a"));
        let offers = |name: &str| {
            let sent = Sent::new(Era::Legacy).with(Kind::Tool, Items::named(Kind::Tool, &[name]), 0);
            let definitions = known.definitions().expect("there is a cache");
            definitions.save(&spec.transport, &sent).expect("the directory is ours");
        };
        let introduced = |anew: bool| {
            let server = (("box".into(), "s".into()), spec.clone());
            known.recall_introductions(std::iter::once(server), anew);
            known
                .introduction("box", "s")
                .map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(introduced(false), None);
        offers("old");
        assert_eq!(introduced(false), Some(vec!["old".to_owned()]));
        offers("new");
        assert_eq!(introduced(false), Some(vec!["old".to_owned()]));
        assert_eq!(introduced(true), Some(vec!["new".to_owned()]));
        std::fs::remove_dir_all(&place).expect("the directory is ours");
    }

    /// A login takes no longer than the write of why it was needed.
    #[tokio::test]
    async fn a_failure_that_is_still_being_written_is_forgotten_too() {
        let place = std::env::temp_dir().join(format!("mcp-workbench-forgotten-{}", std::process::id()));
        let (known, upstream) = (Known::new(Some(&place), &place), Upstream::unreal("box", "s"));
        let writing = known.turn.clone().acquire_owned().await.expect("it is never closed");
        let failed = tokio::spawn(known.failed(&upstream, StartError::from("it needs a login")));
        tokio::task::yield_now().await;
        let forgotten = tokio::spawn(known.forget_failure(&upstream));
        tokio::task::yield_now().await;
        drop(writing);
        failed.await.expect("it is written");
        assert!(place.exists());
        forgotten.await.expect("it is forgotten");
        assert_eq!(known.failure(&upstream).map(|error| error.problem), None);
        std::fs::remove_dir_all(&place).expect("the directory is ours");
    }

    #[test]
    fn notes_are_bounded_and_the_oldest_go_first() {
        let notes = Mutex::default();
        let transport = |number: usize| of_session(&number.to_string()).transport;
        (0..=MOST_NOTES).for_each(|number| note(&notes, &transport(number), number));
        let notes = notes.lock();
        assert_eq!(
            (notes.len(), find(&notes, &transport(0)), find(&notes, &transport(1))),
            (MOST_NOTES, None, Some(1))
        );
    }
}
