//! What was taken out of results, never on disk. Each workspace has a [`Room`] here. Several replicas keep results
//! [`Elsewhere`] that any of them may be asked for.
//!
//! Invariant: a result exists for its owner alone: a session or, in the modern era, everybody with the same credentials.
//! It is forgotten with the owner's last room.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::Whole;

/// The bytes that the results of one owner may have together.
pub const OWNERS_ROOM: usize = 64 * 1024 * 1024;
/// The bytes that all results may have together.
const WHOLE_ROOM: usize = 256 * 1024 * 1024;

/// How many letters and digits follow the `r` of an id.
const ID_LETTERS: usize = 20;

/// The results that a process keeps.
pub struct Kept {
    owners_room: usize,
    whole_room: usize,
    results: Mutex<Results>,
    /// Where results of owners lie that come to other processes, too.
    elsewhere: OnceLock<Arc<dyn Elsewhere>>,
}

/// A place for results that other processes can reach.
pub trait Elsewhere: Send + Sync {
    /// Keeps a result of this owner under this id; `false`: it cannot.
    fn keep<'a>(&'a self, owner: &'a str, id: &'a str, whole: &'a Whole) -> Fetching<'a, bool>;
    /// The result with this id, if it is this owner's.
    fn get<'a>(&'a self, owner: &'a str, id: &'a str) -> Fetching<'a, Option<Whole>>;
    /// Forgets all results of this owner.
    fn forget<'a>(&'a self, owner: &'a str) -> Fetching<'a, ()>;
}

/// What will have come from elsewhere.
pub type Fetching<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[derive(Default)]
struct Results {
    by_id: HashMap<Arc<str>, KeptWhole>,
    /// The ids in the order in which the results were last read or, if they never were, kept.
    by_age: BTreeMap<u64, Arc<str>>,
    owners: HashMap<u64, Owner>,
    /// How often results were kept or read so far.
    clock: u64,
    /// The bytes of all results.
    used: usize,
}

struct KeptWhole {
    owner: u64,
    whole: Arc<Whole>,
    last_read: u64,
}

#[derive(Default)]
struct Owner {
    rooms: usize,
    used: usize,
}

impl Default for Kept {
    fn default() -> Self {
        Self::with_room(OWNERS_ROOM, WHOLE_ROOM)
    }
}

impl Kept {
    fn with_room(owners_room: usize, whole_room: usize) -> Self {
        Self { owners_room, whole_room, results: Mutex::default(), elsewhere: OnceLock::new() }
    }

    /// Lets results lie elsewhere from now on, for owners whose rooms say who they are.
    pub fn lie_in(&self, elsewhere: Arc<dyn Elsewhere>) {
        // There is one such place in a process.
        let _ = self.elsewhere.set(elsewhere);
    }

    /// A room for this owner's results.
    pub fn room(self: &Arc<Self>, owner: u64) -> Room {
        self.results.lock().owners.entry(owner).or_default().rooms += 1;
        Room { kept: self.clone(), owner, shared_as: OnceLock::new() }
    }
}

/// Where the results of one owner are kept.
pub struct Room {
    kept: Arc<Kept>,
    owner: u64,
    /// Who the owner is to all processes.
    shared_as: OnceLock<Box<str>>,
}

impl Room {
    /// The most bytes that a result may have.
    pub fn most(&self) -> usize {
        self.kept.owners_room
    }

    /// Says who the owner is to all processes that its clients may come to.
    pub fn is_shared_as(&self, owner: &str) {
        // Whoever comes second says the same.
        let _ = self.shared_as.set(owner.into());
    }

    fn elsewhere(&self) -> Option<(&Arc<dyn Elsewhere>, &str)> {
        Some((self.kept.elsewhere.get()?, self.shared_as.get()?))
    }

    /// Keeps a result where all processes can read it, or else here, and returns its id.
    pub async fn keep_for_all(&self, whole: Arc<Whole>) -> Arc<str> {
        if let Some((elsewhere, owner)) = self.elsewhere() {
            let id = new_id();
            if elsewhere.keep(owner, &id, &whole).await {
                return id.into();
            }
        }
        self.keep(whole)
    }

    /// The result with this id, wherever it lies, if it is this owner's.
    pub async fn find(&self, id: &str) -> Option<Arc<Whole>> {
        if let Some(whole) = self.get(id) {
            return Some(whole);
        }
        let (elsewhere, owner) = self.elsewhere()?;
        elsewhere.get(owner, id).await.map(Arc::new)
    }

    /// Forgets what lies elsewhere, since the owner is gone from all processes.
    pub async fn forget_elsewhere(&self) {
        if let Some((elsewhere, owner)) = self.elsewhere() {
            elsewhere.forget(owner).await;
        }
    }

    /// Keeps a result and returns its id. Results that were not read for the longest time make room for it.
    pub fn keep(&self, whole: Arc<Whole>) -> Arc<str> {
        let (id, bytes): (Arc<str>, _) = (new_id().into(), whole.text.len());
        let mut results = self.kept.results.lock();
        let used = results.owners.get(&self.owner).map_or(0, |owner| owner.used);
        results.free((used + bytes).saturating_sub(self.kept.owners_room), |entry| entry.owner == self.owner);
        let used = results.used;
        results.free((used + bytes).saturating_sub(self.kept.whole_room), |_| true);
        results.clock += 1;
        let last_read = results.clock;
        results.used += bytes;
        results.owners.entry(self.owner).or_default().used += bytes;
        results.by_age.insert(last_read, id.clone());
        results.by_id.insert(id.clone(), KeptWhole { owner: self.owner, whole, last_read });
        id
    }

    /// The result with this id, if it is this owner's.
    pub fn get(&self, id: &str) -> Option<Arc<Whole>> {
        let results = &mut *self.kept.results.lock();
        let entry = results.by_id.get_mut(id).filter(|entry| entry.owner == self.owner)?;
        results.clock += 1;
        let age = results.by_age.remove(&entry.last_read).expect("each result has an age");
        entry.last_read = results.clock;
        results.by_age.insert(results.clock, age);
        Some(entry.whole.clone())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut results = self.kept.results.lock();
        let Some(owner) = results.owners.get_mut(&self.owner) else { return };
        owner.rooms -= 1;
        if owner.rooms == 0 {
            results.free(usize::MAX, |entry| entry.owner == self.owner);
            results.owners.remove(&self.owner);
        }
    }
}

impl Results {
    /// Forgets so many bytes, or a little more, of these results: those first that were not read for the longest time.
    fn free(&mut self, bytes: usize, which: impl Fn(&KeptWhole) -> bool) {
        if bytes == 0 {
            return;
        }
        let mut freed = 0;
        let mut gone = Vec::new();
        for (age, id) in &self.by_age {
            let entry = &self.by_id[id];
            if freed < bytes && which(entry) {
                freed += entry.whole.text.len();
                gone.push((*age, id.clone()));
            }
        }
        for (age, id) in gone {
            self.by_age.remove(&age);
            let entry = self.by_id.remove(&id).expect("found above");
            self.used -= entry.whole.text.len();
            if let Some(owner) = self.owners.get_mut(&entry.owner) {
                owner.used -= entry.whole.text.len();
            }
        }
    }
}

/// An id that nobody guesses: 20 letters and digits are 103 bits.
fn new_id() -> String {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut id = String::from("r");
    while id.len() <= ID_LETTERS {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the system has random numbers");
        // Bytes beyond the last whole round of letters would make some likelier than others.
        let even = bytes.iter().filter(|byte| **byte < 252).take(ID_LETTERS + 1 - id.len());
        id.extend(even.map(|byte| char::from(LETTERS[usize::from(byte % 36)])));
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: usize) -> Arc<Whole> {
        Arc::new(Whole::new("x".repeat(bytes), 4000))
    }

    #[test]
    fn a_result_exists_for_its_owner_alone_and_as_long_as_it_does() {
        let kept = Arc::new(Kept::default());
        let (one, same, other) = (kept.room(1), kept.room(1), kept.room(2));
        let id = one.keep(whole(10));
        let is_sound = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        assert!(id.starts_with('r') && id.len() == 21 && id.bytes().all(is_sound), "{id}");
        assert_ne!(one.keep(whole(10)), id);
        assert_eq!((one.most(), kept.whole_room), (64 << 20, 256 << 20));
        assert_eq!(same.get(&id).map(|whole| whole.text.len()), Some(10));
        assert!(other.get(&id).is_none() && one.get("r").is_none());
        drop((one, other));
        assert!(same.get(&id).is_some());
        drop(same);
        assert!(kept.room(1).get(&id).is_none());
        let results = kept.results.lock();
        assert_eq!((results.used, results.by_id.len(), results.by_age.len()), (0, 0, 0));
        assert!(results.owners.is_empty());
    }

    #[test]
    fn the_least_recently_read_go_first() {
        let kept = Arc::new(Kept::with_room(100, 150));
        let (one, other) = (kept.room(1), kept.room(2));
        let (first, second) = (one.keep(whole(40)), one.keep(whole(40)));
        one.get(&first);
        let third = one.keep(whole(40));
        let there =
            |room: &Room, id: &str| kept.results.lock().by_id.get(id).is_some_and(|e| e.owner == room.owner);
        assert_eq!([there(&one, &first), there(&one, &second), there(&one, &third)], [true, false, true]);
        // The room of all: the oldest of anybody goes.
        let large = other.keep(whole(90));
        assert_eq!([there(&one, &first), there(&one, &third), there(&other, &large)], [false, true, true]);
        // As many go as have to.
        let largest = one.keep(whole(100));
        assert_eq!([there(&one, &third), there(&other, &large), there(&one, &largest)], [false, false, true]);
        assert_eq!(kept.results.lock().used, 100);
        // And no more of them.
        let kept = Arc::new(Kept::with_room(100, 150));
        let one = kept.room(1);
        let (first, second) = (one.keep(whole(40)), one.keep(whole(40)));
        one.keep(whole(60));
        assert!(one.get(&first).is_none() && one.get(&second).is_some());
    }
}
