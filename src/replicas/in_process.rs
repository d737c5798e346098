//! What replicas share if they are all in this process, as in a test.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::store::{Addition, Away, Pending, Roll, Store, StoreEntry};

/// How long a replica is remembered after its last beat.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How long somebody waits for messages before he looks again.
const WAIT: Duration = Duration::from_secs(1);

/// A store in memory.
#[derive(Default)]
pub struct InProcess {
    state: Mutex<State>,
    /// Lets tests hold up writes, and letters between the mailbox and whoever receives them.
    pub gate: tokio::sync::RwLock<()>,
}

#[derive(Default)]
struct State {
    members: HashMap<String, Instant>,
    entries: HashMap<String, Living<StoreEntry>>,
    logs: HashMap<String, Living<BTreeMap<u64, Vec<u8>>>>,
    mail: HashMap<String, (VecDeque<Vec<u8>>, Arc<Notify>)>,
    /// What was taken out of mailboxes.
    returned: HashMap<String, Vec<Vec<u8>>>,
}

/// Something that is there until a time.
struct Living<T> {
    until: Instant,
    it: T,
}

impl<T> Living<T> {
    fn new(it: T, life: Duration) -> Self {
        Self { until: end_of(life), it }
    }
}

fn end_of(life: Duration) -> Instant {
    Instant::now() + life.min(super::store::LONGEST_LIFE)
}

impl InProcess {
    /// Whether letters to this replica wait in its mailbox.
    pub fn has_mail(&self, id: &str) -> bool {
        !self.state.lock().inbox(id).0.is_empty()
    }
}

impl State {
    fn entry(&mut self, key: &str) -> Option<&mut Living<StoreEntry>> {
        living(&mut self.entries, key)
    }

    fn epoch(&mut self, key: &str) -> u64 {
        self.entry(key).map_or(0, |entry| entry.it.epoch)
    }

    fn silences(&self, own: &str, now: Instant) -> Vec<(String, Duration)> {
        let others = self.members.iter().filter(|(id, _)| *id != own);
        others.map(|(id, last)| (id.clone(), now - *last)).collect()
    }

    fn inbox(&mut self, of: &str) -> &mut (VecDeque<Vec<u8>>, Arc<Notify>) {
        self.mail.entry(of.to_owned()).or_default()
    }
}

fn living<'m, T>(map: &'m mut HashMap<String, Living<T>>, key: &str) -> Option<&'m mut Living<T>> {
    if map.get(key).is_some_and(|found| found.until <= Instant::now()) {
        map.remove(key);
    }
    map.get_mut(key)
}

/// An answer that is there at once.
fn at_once<'a, T: Send + 'a>(answer: T) -> Pending<'a, T> {
    Box::pin(std::future::ready(Ok(answer)))
}

impl Store for InProcess {
    fn beat<'a>(&'a self, own: &'a str) -> Pending<'a, Roll> {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.members.retain(|_, last| now - *last < REMEMBERED);
        let own_silence = state.members.insert(own.to_owned(), now).map(|last| now - last);
        at_once(Roll { own_silence, others: state.silences(own, now) })
    }

    fn roll<'a>(&'a self, own: &'a str) -> Pending<'a, Roll> {
        let (state, now) = (self.state.lock(), Instant::now());
        let own_silence = state.members.get(own).map(|last| now - *last);
        at_once(Roll { own_silence, others: state.silences(own, now) })
    }

    fn apart(self: Arc<Self>) -> Result<Arc<dyn Store>, Away> {
        Ok(self)
    }

    fn leave<'a>(&'a self, own: &'a str) -> Pending<'a, ()> {
        self.state.lock().members.remove(own);
        at_once(())
    }

    fn read<'a>(&'a self, key: &'a str) -> Pending<'a, Option<StoreEntry>> {
        at_once(self.state.lock().entry(key).map(|entry| entry.it.clone()))
    }

    fn swap<'a>(
        &'a self,
        key: &'a str,
        seen: u64,
        owner: &'a str,
        value: &'a [u8],
        life: Duration,
    ) -> Pending<'a, Option<u64>> {
        let mut state = self.state.lock();
        if state.epoch(key) != seen {
            return at_once(None);
        }
        let entry = StoreEntry { owner: owner.to_owned(), epoch: seen + 1, value: value.to_vec() };
        state.entries.insert(key.to_owned(), Living::new(entry, life));
        at_once(Some(seen + 1))
    }

    fn write<'a>(&'a self, key: &'a str, epoch: u64, value: &'a [u8], life: Duration) -> Pending<'a, bool> {
        Box::pin(async move {
            let _open = self.gate.read().await;
            let mut state = self.state.lock();
            let Some(found) = state.entry(key).filter(|found| found.it.epoch == epoch) else {
                return Ok(false);
            };
            found.it.value = value.to_vec();
            found.until = end_of(life);
            Ok(true)
        })
    }

    fn epochs<'a>(&'a self, keys: &'a [String]) -> Pending<'a, Vec<u64>> {
        let mut state = self.state.lock();
        at_once(keys.iter().map(|key| state.epoch(key)).collect())
    }

    fn touch<'a>(&'a self, keys: &'a [String], life: Duration) -> Pending<'a, ()> {
        let mut state = self.state.lock();
        for key in keys {
            if let Some(entry) = state.entry(key) {
                entry.until = end_of(life);
            }
            if let Some(log) = living(&mut state.logs, key) {
                log.until = end_of(life);
            }
        }
        at_once(())
    }

    fn remove<'a>(&'a self, keys: &'a [String]) -> Pending<'a, ()> {
        let mut state = self.state.lock();
        for key in keys {
            state.entries.remove(key);
            state.logs.remove(key);
        }
        at_once(())
    }

    fn append<'a>(&'a self, addition: Addition<'a>) -> Pending<'a, bool> {
        Box::pin(async move {
            let _open = self.gate.read().await;
            let Addition { log, fence, first_kept, events, life } = addition;
            let mut state = self.state.lock();
            if fence.is_some_and(|(key, epoch)| state.epoch(key) != epoch) {
                return Ok(false);
            }
            let last =
                living(&mut state.logs, log).and_then(|log| log.it.last_key_value()).map(|(last, _)| *last);
            if events.first().is_some_and(|(first, _)| last.is_some_and(|last| *first <= last)) {
                return Ok(false);
            }
            let found =
                state.logs.entry(log.to_owned()).or_insert_with(|| Living::new(BTreeMap::new(), life));
            found.until = end_of(life);
            found.it.extend(events);
            found.it = found.it.split_off(&first_kept);
            Ok(true)
        })
    }

    fn events<'a>(&'a self, log: &'a str, after: u64) -> Pending<'a, Vec<(u64, Vec<u8>)>> {
        let mut state = self.state.lock();
        let events = living(&mut state.logs, log).map(|log| {
            let behind = log.it.iter().filter(|(position, _)| **position > after);
            behind.map(|(position, event)| (*position, event.clone())).collect()
        });
        at_once(events.unwrap_or_default())
    }

    fn send<'a>(&'a self, to: &'a str, message: &'a [u8], _life: Duration) -> Pending<'a, ()> {
        let mut state = self.state.lock();
        let (letters, news) = state.inbox(to);
        letters.push_back(message.to_vec());
        news.notify_one();
        at_once(())
    }

    fn receive<'a>(&'a self, own: &'a str) -> Pending<'a, Vec<Vec<u8>>> {
        Box::pin(async move {
            let news = self.state.lock().inbox(own).1.clone();
            let take = || std::mem::take(&mut self.state.lock().inbox(own).0);
            let mut letters = take();
            if letters.is_empty() {
                let _ = timeout(WAIT, news.notified()).await;
                letters = take();
            }
            let _open = self.gate.read().await;
            Ok(letters.into())
        })
    }

    fn take_back<'a>(&'a self, of: &'a str) -> Pending<'a, Vec<Vec<u8>>> {
        let mut state = self.state.lock();
        let taken = state.mail.remove(of).map(|(letters, _)| letters).unwrap_or_default();
        let returned = state.returned.entry(of.to_owned()).or_default();
        returned.extend(taken);
        at_once(returned.clone())
    }
}
