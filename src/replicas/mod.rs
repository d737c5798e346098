//! Any number of gateways behind a load balancer that are one server to their clients.
//!
//! A [`Replicas`] is this process among its fellows: it tells them that it lives, knows who else does, keeps what all of them
//! share in a [`Store`] and carries letters between them. `serve --http` makes one if the file names a store; without
//! it nothing of this module runs.
//!
//! | file | what |
//! |---|---|
//! | `store.rs` | what replicas share, as one interface; `valkey.rs` implements it, `in_process.rs` does for tests |
//! | `seal.rs` | everything that stands in the store is sealed |
//! | `members.rs` | who is there; pure |
//! | `pulse.rs` | tells the others that we live, on a thread of its own |
//! | `post.rs` | letters, and requests that are handed on; `all.rs` those to all replicas |
//!
//! **How to build on it.** Something that every replica can read is an entry: [`Replicas::read`], [`Replicas::swap`] to put it in
//! the place of what was seen (0: nothing; so a marker for single use is `swap(key, 0, …)`, and the first to come gets
//! `Some`), [`Replicas::write`] for its owner's changes. Something that lives in one place has an entry whose owner is its
//! *home*: whoever is asked for it reads the entry, asks the owner by [`Replicas::ask`] while
//! [`Replicas::is_there`], and else takes its place by `swap`, which begins a new epoch. The home serves what it is asked by
//! [`Replicas::serve`]. What all must hear they are asked by [`Replicas::ask_all`].
//!
//! Invariant: what is unreadable in the store is as good as absent. Nothing of it is believed.
//!
//! Invariant: a home that may have lost its place without noticing answers nothing before it has asked
//! ([`Replicas::settled`]). While the store is away nobody can have taken its place for long, and it goes on.

pub mod all;
#[cfg(test)]
pub mod in_process;
mod members;
pub mod post;
mod pulse;
mod seal;
pub mod store;
#[cfg(test)]
mod tests;
pub mod valkey;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use self::members::{BEAT, Fellows, GONE};
use self::post::{Arrival, ID_LENGTH, Letter, LetterKind, PostOffice, Subject};
use self::pulse::Beat;
use self::seal::StoreSeal;
use self::store::{Addition, Away, LONGEST_LIFE, Store, StoreEntry};
use crate::config::Secret;
use crate::text::digest::{Digest, hex};

/// How long a replica can be sure that nobody has taken its place, after it has told that it lives.
const LEASE: Duration = Duration::from_millis(2200);
/// How long a replica that leaves cares for letters that it has received.
const LAST_LETTERS: Duration = Duration::from_secs(1);
/// How long letters live that nobody receives.
const LETTER_LIFE: Duration = Duration::from_secs(60);
// A request at a replica that dies fails within three seconds: somebody's beat notices it, and there is some time left to
// find the next home.
const _: () = assert!(GONE.as_millis() + BEAT.as_millis() <= 2800);
const _: () = assert!(LEASE.as_millis() < GONE.as_millis());
/// How long those who wait for another replica go on waiting while the store is away.
const LONGEST_AWAY: Duration = Duration::from_secs(5);
/// How often the key that the replicas agreed on is kept from expiring.
const KEY_CARE: Duration = Duration::from_secs(60 * 60);
/// The entry of that key.
const KEY: &str = "key";

/// What serves requests of a subject. It gives back those that nobody is there to serve any more.
type Handler = Arc<dyn Fn(Handed) -> Option<Handed> + Send + Sync>;
/// What is asked when we may have lost our place. It gives up what is no longer ours.
type OnDoubt = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), Away>> + Send>> + Send + Sync>;

/// Whoever is to hear of something.
#[derive(Default)]
struct Ears {
    handlers: HashMap<Subject, Handler>,
    on_doubt: Vec<OnDoubt>,
}

/// This process among its fellows.
///
/// It has many fields because each is a small thing that another task reads or writes by itself.
pub struct Replicas {
    /// Our id, which no other process has.
    pub id: Arc<str>,
    store: Arc<dyn Store>,
    seal: StoreSeal,
    /// Whether the file has keys, so that none is agreed on in the store.
    has_keys: AtomicBool,
    key_changes: AtomicU64,
    members: Mutex<Fellows>,
    desk: PostOffice,
    ears: RwLock<Ears>,
    begun: Instant,
    /// Until when nobody can have taken our place, in milliseconds since `begun`.
    lease: AtomicU64,
    /// Since when the store is away; `None` while it is there.
    away: watch::Sender<Option<Instant>>,
    /// Counts the beats that were heard of, whatever the store said.
    beats: watch::Sender<u64>,
    running: Mutex<Option<RunningReplica>>,
}

/// What runs.
struct RunningReplica {
    /// Ends the beating; told, the replica also leaves.
    leave: oneshot::Sender<()>,
    /// Ends after the beating.
    hearing: JoinHandle<()>,
    receiving: JoinHandle<()>,
    /// Whether the letters that are received next are the last.
    leaving: Arc<AtomicBool>,
}

impl Replicas {
    /// A replica over this store. It is one of them once it runs.
    pub fn new(store: Arc<dyn Store>, keys: &[Secret]) -> Arc<Self> {
        let mut id = [0; ID_LENGTH / 2];
        getrandom::fill(&mut id).expect("the system has random numbers");
        let begun = Instant::now();
        Arc::new(Self {
            id: hex(id).into(),
            store,
            seal: StoreSeal::new(keys),
            has_keys: AtomicBool::new(!keys.is_empty()),
            key_changes: AtomicU64::new(0),
            members: Mutex::new(Fellows::new(begun)),
            desk: PostOffice::default(),
            ears: RwLock::default(),
            begun,
            lease: AtomicU64::new(0),
            away: watch::Sender::new(None),
            beats: watch::Sender::new(0),
            running: Mutex::default(),
        })
    }

    /// Agrees on a key if need be, tells the others that we live, and begins to run.
    pub async fn begin(self: &Arc<Self>) -> Result<(), Away> {
        self.agree().await?;
        self.beat().await?;
        let (leave, beats) = pulse::begin(self.store.clone().apart()?, self.id.clone())
            .map_err(|error| Away(format!("no thread can be started: {error}")))?;
        let (hearing, receiving) = (self.clone(), self.clone());
        let hearing = tokio::spawn(async move { hearing.keep_hearing(beats).await });
        let leaving = Arc::<AtomicBool>::default();
        let receiving = tokio::spawn(receiving.keep_receiving(leaving.clone()));
        *self.running.lock() = Some(RunningReplica { leave, hearing, receiving, leaving });
        Ok(())
    }

    /// Ends what runs, without a word to the others.
    #[cfg(test)]
    pub fn stop(&self) {
        if let Some(RunningReplica { hearing, receiving, .. }) = self.running.lock().take() {
            hearing.abort();
            receiving.abort();
        }
    }

    /// Leaves for good: the others need not wait to know that we are gone. Whoever has sent us a letter gets an answer, or
    /// the letter back.
    pub async fn leave(&self) {
        let Some(running) = self.running.lock().take() else { return };
        let RunningReplica { leave, hearing, mut receiving, leaving } = running;
        let last_letters = async {
            leaving.store(true, Ordering::Relaxed);
            // Whoever waits for letters notices by one that it is the last time.
            let _ = self.send(&self.id, LetterKind::Gone, Subject::Session, 0, &[]).await;
            let _ = (&mut receiving).await;
            self.desk.all_served().await;
        };
        if timeout(LAST_LETTERS, last_letters).await.is_err() {
            receiving.abort();
        }
        let _ = leave.send(());
        let _ = hearing.await;
    }

    /// The keys in force: those of the file, or the one that was agreed on.
    pub fn keys(&self) -> Vec<Secret> {
        self.seal.keys()
    }

    /// Puts the keys of a new file in force. What lives for long is sealed anew by whoever has it, so that it outlives
    /// the old key.
    pub fn set_keys(&self, keys: &[Secret]) {
        self.has_keys.store(!keys.is_empty(), Ordering::Relaxed);
        if !keys.is_empty() && self.seal.keys() != keys {
            self.seal.renew(keys);
            self.key_changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often the keys have changed.
    pub fn key_changes(&self) -> u64 {
        self.key_changes.load(Ordering::Relaxed)
    }

    /// Waits until no request of another replica is being served here.
    pub async fn all_served(&self) {
        self.desk.all_served().await;
    }

    /// Whether the store is away.
    pub fn is_away(&self) -> bool {
        self.away.borrow().is_some()
    }

    /// Whether a home may answer at once.
    pub fn is_settled(&self) -> bool {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        now < self.lease.load(Ordering::Relaxed) || self.is_away()
    }

    /// Waits until it is known that our homes are still ours, or that nobody can say.
    pub async fn settled(&self) {
        let mut beats = self.beats.subscribe();
        while !self.is_settled() {
            if beats.changed().await.is_err() {
                return;
            }
        }
    }

    /// Calls this whenever others may have taken our place, or the store has forgotten everything.
    pub fn on_doubt(&self, ask: OnDoubt) {
        self.ears.write().on_doubt.push(ask);
    }

    /// Serves the letters of a subject in this way.
    pub fn serve(&self, subject: Subject, handler: Handler) {
        self.ears.write().handlers.insert(subject, handler);
    }

    /// A name for keys that tells nothing of what it stands for.
    pub fn digest(parts: &[&str]) -> String {
        let mut digest = Digest::default();
        parts.iter().for_each(|part| digest.eat(part));
        digest.name()
    }
}

/// What stands in the store.
impl Replicas {
    /// Reads an entry.
    pub async fn read(&self, key: &str) -> Result<Option<StoreEntry>, Away> {
        Ok(self.look(key).await?.1)
    }

    /// Reads an entry, and tells which epoch is to be swapped to put another in its place: that of one that is unreadable,
    /// too, since nobody else would ever remove it.
    pub async fn look(&self, key: &str) -> Result<(u64, Option<StoreEntry>), Away> {
        self.reachable()?;
        let Some(entry) = self.noted(self.store.read(key).await)? else { return Ok((0, None)) };
        let opened = self.seal.open(key, &entry.value);
        Ok((entry.epoch, opened.map(|value| StoreEntry { value, ..entry })))
    }

    /// Puts an entry in the place of the one with the epoch `seen`, where 0 means that there was none. Returns the new
    /// epoch, or `None` if another entry is there by now.
    pub async fn swap(
        &self,
        key: &str,
        seen: u64,
        owner: &str,
        value: &[u8],
        life: Duration,
    ) -> Result<Option<u64>, Away> {
        self.reachable()?;
        let sealed = self.seal.seal(key, value);
        self.noted(self.store.swap(key, seen, owner, &sealed, life).await)
    }

    /// Changes the value of an entry as long as it has this epoch; `false`: it has another by now.
    pub async fn write(&self, key: &str, epoch: u64, value: &[u8], life: Duration) -> Result<bool, Away> {
        self.reachable()?;
        let sealed = self.seal.seal(key, value);
        self.noted(self.store.write(key, epoch, &sealed, life).await)
    }

    /// The epochs of entries; 0 for those that are not there.
    pub async fn epochs(&self, keys: &[String]) -> Result<Vec<u64>, Away> {
        self.noted(self.store.epochs(keys).await)
    }

    /// Lets entries or logs live for this long from now on.
    pub async fn touch(&self, keys: &[String], life: Duration) -> Result<(), Away> {
        self.reachable()?;
        self.noted(self.store.touch(keys, life).await)
    }

    /// Deletes entries and logs.
    pub async fn remove(&self, keys: &[String]) -> Result<(), Away> {
        self.reachable()?;
        self.noted(self.store.remove(keys).await)
    }

    /// Adds to a log, all or nothing; `false`: the fence does not hold, or the log has gone further.
    pub async fn append(&self, mut addition: Addition<'_>) -> Result<bool, Away> {
        self.reachable()?;
        for (position, event) in &mut addition.events {
            *event = self.seal.seal(&place(addition.log, *position), event);
        }
        self.noted(self.store.append(addition).await)
    }

    /// The events of a log behind this position, in their order.
    pub async fn events(&self, log: &str, after: u64) -> Result<Vec<(u64, Vec<u8>)>, Away> {
        self.reachable()?;
        let events = self.noted(self.store.events(log, after).await)?;
        let open = |(position, event): (u64, Vec<u8>)| {
            self.seal.open(&place(log, position), &event).map(|event| (position, event))
        };
        Ok(events.into_iter().map_while(open).collect())
    }

    /// Refuses at once while the store is away, so that nobody waits for it.
    fn reachable(&self) -> Result<(), Away> {
        match self.is_away() {
            true => Err(Away("the store is away".to_owned())),
            false => Ok(()),
        }
    }

    /// Takes note of a store that is away.
    fn noted<T>(&self, answer: Result<T, Away>) -> Result<T, Away> {
        if let Err(Away(reason)) = &answer {
            let is_news = self.away.send_if_modified(|away| {
                let is_news = away.is_none();
                away.get_or_insert_with(Instant::now);
                is_news
            });
            if is_news {
                tracing::warn!("the store is away ({reason}); what needs it is refused until it is back");
            }
        }
        answer
    }
}

fn place(log: &str, position: u64) -> String {
    format!("{log}#{position}")
}

/// Who is there.
impl Replicas {
    /// Whether a replica is there; if nobody has heard of it yet, the store is asked again.
    pub async fn is_there(self: &Arc<Self>, id: &str) -> Result<bool, Away> {
        if *id == *self.id {
            return Ok(true);
        }
        if let Some(there) = self.members.lock().is_there(id) {
            return Ok(there);
        }
        self.reachable()?;
        let roll = self.noted(self.store.roll(&self.id).await)?;
        Ok(self.members.lock().meet(&roll, id, Instant::now()))
    }

    async fn keep_hearing(self: Arc<Self>, mut beats: mpsc::Receiver<Beat>) {
        let mut cared = Instant::now();
        while let Some(beat) = beats.recv().await {
            let _ = self.hear(beat).await;
            self.beats.send_modify(|count| *count += 1);
            if cared.elapsed() >= KEY_CARE {
                cared = Instant::now();
                let _ = self.touch(&[KEY.to_owned()], LONGEST_LIFE).await;
            }
            let away_since = *self.away.borrow();
            if away_since.is_some_and(|since| since.elapsed() >= LONGEST_AWAY) {
                self.give_up_waiting();
            }
        }
    }

    /// Tells that we live, and hears who else does, before anything runs.
    async fn beat(self: &Arc<Self>) -> Result<(), Away> {
        let told = Instant::now();
        let answer = self.store.beat(&self.id).await;
        self.hear(Beat { told, answer }).await
    }

    /// Takes note of what the store has said to a beat. Only here the lease is made longer, in the order of the beats: one
    /// that tells of a doubt comes before those that no longer do.
    async fn hear(self: &Arc<Self>, Beat { told, answer }: Beat) -> Result<(), Away> {
        let roll = self.noted(answer)?;
        // A store that has gone away since is not back.
        let is_back = self.away.borrow().is_some_and(|since| since <= told);
        let verdict = {
            let (mut members, now) = (self.members.lock(), Instant::now());
            if is_back {
                members.begin_anew(now);
            }
            members.judge(&roll, now)
        };
        if verdict.doubt || is_back {
            // The store may have forgotten the key, and what is sealed with another one nobody can read.
            self.noted(self.agree().await)?;
            if is_back {
                self.away.send_replace(None);
                tracing::warn!("the store is back");
            }
            let asked: Vec<_> = self.ears.read().on_doubt.clone();
            for ask in asked {
                self.noted(ask().await)?;
            }
        }
        if verdict.doubt {
            self.members.lock().settle();
            // What was on its way to us may have been sent back or forgotten.
            self.give_up_waiting();
            // At its first beat a replica is new to everybody.
            if self.lease.load(Ordering::Relaxed) > 0 {
                tracing::warn!(
                    "the store has lost its data, or the other replicas took this one for dead; this replica has ended \
                     the sessions that are no longer its own, and the requests that were on their way"
                );
            }
        }
        let until = told.duration_since(self.begun) + LEASE;
        self.lease.store(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        for id in verdict.gone {
            tracing::info!("replica {id} is gone");
            let replicas = self.clone();
            tokio::spawn(async move { replicas.bury(&id).await });
        }
        Ok(())
    }

    /// Agrees with the others on a key, if the file has none.
    async fn agree(&self) -> Result<(), Away> {
        if self.has_keys.load(Ordering::Relaxed) {
            return Ok(());
        }
        loop {
            if let Some(entry) = self.store.read(KEY).await? {
                let key = Secret::new(hex(&entry.value));
                if self.seal.keys() != [key.clone()] {
                    self.seal.renew(&[key]);
                    self.key_changes.fetch_add(1, Ordering::Relaxed);
                }
                return Ok(());
            }
            let mut key = [0; 32];
            getrandom::fill(&mut key).expect("the system has random numbers");
            self.store.swap(KEY, 0, "", &key, LONGEST_LIFE).await?;
        }
    }

    /// Gives up what depends on a replica that is gone. Whoever asked it hears that it never received the letter, or that
    /// it is lost.
    async fn bury(&self, id: &str) {
        // Letters that are not in the store yet are nobody's: whoever sends them looks again.
        let waiting = self.desk.sent_to(id);
        let letters = self.noted(self.store.take_back(id).await).unwrap_or_default();
        let opened = letters.iter().filter_map(|letter| Letter::read(&self.seal.open(&mailbox(id), letter)?));
        let ours = opened.filter(|letter| letter.kind == LetterKind::Ask && *letter.from == *self.id);
        let unreceived: Vec<u64> = ours.map(|letter| letter.number).collect();
        for number in waiting {
            let end = if unreceived.contains(&number) { Arrival::Bounced } else { Arrival::Lost };
            self.desk.part(number, None, end);
        }
        self.desk.all_gone(Some(id));
    }

    /// Gives up all that waits for others, or for whom others wait; these are told, since they may not have noticed
    /// anything.
    fn give_up_waiting(self: &Arc<Self>) {
        for number in self.desk.asked() {
            self.desk.part(number, None, Arrival::Lost);
        }
        let (replicas, given_up) = (self.clone(), self.desk.all_gone(None));
        tokio::spawn(async move {
            for (from, number) in given_up {
                let _ = replicas.send(&from, LetterKind::Lost, Subject::Session, number, &[]).await;
            }
        });
    }
}

fn mailbox(id: &str) -> String {
    format!("mail:{id}")
}

/// Letters.
impl Replicas {
    /// Hands a request to another replica.
    pub async fn ask(self: &Arc<Self>, to: &str, subject: Subject, body: &[u8]) -> Result<Asking, Away> {
        self.reachable()?;
        let number = self.desk.next();
        let parts = self.desk.ask(number, to);
        let asking = Asking { replicas: self.clone(), subject, number, parts };
        let was_there = self.members.lock().is_there(to) == Some(true);
        self.send(to, LetterKind::Ask, subject, number, body).await?;
        self.desk.sent(number);
        // It may have gone while the letter was on its way to the store, and after its mail was taken back.
        let is_there = self.members.lock().is_there(to);
        if is_there == Some(false) || was_there && is_there.is_none() {
            let (replicas, to) = (self.clone(), to.to_owned());
            tokio::spawn(async move { replicas.bury(&to).await });
        }
        Ok(asking)
    }

    async fn send(
        &self,
        to: &str,
        kind: LetterKind,
        subject: Subject,
        number: u64,
        body: &[u8],
    ) -> Result<(), Away> {
        self.reachable()?;
        let (from, serial) = (self.id.to_string(), self.desk.next());
        let letter = Letter { kind, subject, from, serial, number, body: body.to_vec() };
        let sealed = self.seal.seal(&mailbox(to), &letter.write());
        self.noted(self.store.send(to, &sealed, LETTER_LIFE).await)
    }

    /// Receives letters until those that are the last were received.
    async fn keep_receiving(self: Arc<Self>, leaving: Arc<AtomicBool>) {
        while !leaving.load(Ordering::Relaxed) {
            match self.store.receive(&self.id).await {
                Ok(letters) => {
                    for letter in letters {
                        match self.open(&letter).await {
                            Some(letter) => self.take(letter),
                            None => tracing::debug!("a letter of another replica cannot be opened"),
                        }
                    }
                }
                Err(_) => sleep(BEAT).await,
            }
        }
    }

    /// Opens a letter. One that does not open may come from a replica that noticed earlier than we did that the store has
    /// forgotten the key; whoever sent it would wait in vain for an answer.
    async fn open(&self, sealed: &[u8]) -> Option<Letter> {
        let open = || self.seal.open(&mailbox(&self.id), sealed).and_then(|text| Letter::read(&text));
        match open() {
            Some(letter) => Some(letter),
            None => self.agree().await.ok().and_then(|()| open()),
        }
    }

    fn take(self: &Arc<Self>, letter: Letter) {
        let Letter { kind, subject, from, serial, number, body } = letter;
        if !self.desk.is_new(&from, serial) {
            return;
        }
        match kind {
            LetterKind::Ask => {
                let handler = self.ears.read().handlers.get(&subject).cloned();
                let gone = self.desk.hand(&from, number);
                let handed = Handed { replicas: self.clone(), subject, from, number, gone, body };
                let unserved = match handler {
                    Some(handler) => handler(handed),
                    None => Some(handed),
                };
                if let Some(handed) = unserved {
                    tokio::spawn(async move { handed.bounce().await });
                }
            }
            LetterKind::Part { last } => {
                if !self.desk.part(number, Some(&from), Arrival::Answer(body, last)) && !last {
                    let replicas = self.clone();
                    tokio::spawn(async move {
                        let _ = replicas.send(&from, LetterKind::Gone, subject, number, &[]).await;
                    });
                }
            }
            LetterKind::Bounced => {
                self.desk.part(number, None, Arrival::Bounced);
            }
            LetterKind::Lost => {
                self.desk.part(number, Some(&from), Arrival::Lost);
            }
            LetterKind::Gone => self.desk.gone(&from, number),
        }
    }
}

/// A request that was handed to another replica. Dropping it tells the other that nobody waits any more.
pub struct Asking {
    replicas: Arc<Replicas>,
    subject: Subject,
    number: u64,
    parts: mpsc::Receiver<Arrival>,
}

impl Asking {
    /// What comes next of it.
    pub async fn next(&mut self) -> Arrival {
        self.parts.recv().await.unwrap_or(Arrival::CutOff)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(to) = self.replicas.desk.forget(self.number) {
            let (replicas, subject, number) = (self.replicas.clone(), self.subject, self.number);
            tokio::spawn(async move {
                let _ = replicas.send(&to, LetterKind::Gone, subject, number, &[]).await;
            });
        }
    }
}

/// A request that another replica handed us.
pub struct Handed {
    replicas: Arc<Replicas>,
    subject: Subject,
    /// The replica that asks.
    pub from: String,
    number: u64,
    gone: watch::Receiver<bool>,
    /// What it asks.
    pub body: Vec<u8>,
}

impl Handed {
    /// Sends a part of the answer. While the store is away for a moment, it is tried again; `false`: nobody will get it.
    pub async fn part(&self, body: &[u8], last: bool) -> bool {
        let kind = LetterKind::Part { last };
        let sent = async {
            while self.replicas.send(&self.from, kind, self.subject, self.number, body).await.is_err() {
                sleep(BEAT).await;
            }
        };
        !self.is_gone() && timeout(LONGEST_AWAY, sent).await.is_ok()
    }

    /// Says that the request is none of ours.
    pub async fn bounce(&self) {
        let _ = self.replicas.send(&self.from, LetterKind::Bounced, self.subject, self.number, &[]).await;
    }

    /// Whether nobody waits for the answer any more.
    pub fn is_gone(&self) -> bool {
        *self.gone.borrow()
    }

    /// Resolves when nobody waits for the answer any more.
    pub async fn gone(&self) {
        let _ = self.gone.clone().wait_for(|gone| *gone).await;
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        self.replicas.desk.served(&self.from, self.number);
    }
}
