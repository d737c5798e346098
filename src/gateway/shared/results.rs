//! Long results in the store, where every replica can read them.
//!
//! Each owner has a list of results, least recently read first, and every result lies there in pieces, so that no single
//! question to the store takes long. All of it expires an hour after it was last read.
//!
//! Invariant: a result is there if its owner's list names it. Whoever changes the list has seen the one before, so that
//! the results of one owner never have more than its room, whichever replicas keep them.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::replicas::Replicas;
use crate::replicas::store::Away;
use crate::results::Whole;
use crate::results::kept::{Elsewhere, Fetching};

/// How long a result stays after it was last read.
const LIFE: Duration = Duration::from_secs(60 * 60);
/// The bytes of a piece.
const PIECE: usize = 1024 * 1024;

/// The results that lie in the store.
pub(super) struct Library {
    pub(super) replicas: Arc<Replicas>,
    /// The bytes that the results of one owner may have together.
    pub(super) room: usize,
}

/// The results of one owner, least recently read first.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Shelf(Vec<Volume>);

/// A result on its shelf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Volume {
    id: String,
    bytes: usize,
    limit: usize,
    /// When it was last read or, if it never was, kept, in seconds of the epoch.
    read: u64,
}

impl Shelf {
    /// Takes out what has expired, and what was not read for the longest time until there is room for so many bytes.
    fn make_room(&mut self, bytes: usize, room: usize, now: u64) -> Vec<Volume> {
        let mut used: usize = self.0.iter().map(|volume| volume.bytes).sum();
        let goes = |volume: &Volume, used: usize| {
            volume.read + LIFE.as_secs() < now || used.saturating_add(bytes) > room
        };
        let mut gone = Vec::new();
        while self.0.first().is_some_and(|oldest| goes(oldest, used)) {
            let oldest = self.0.remove(0);
            used -= oldest.bytes;
            gone.push(oldest);
        }
        gone
    }

    /// Takes note that a result is read now; `None` if it is not there.
    fn read(&mut self, id: &str, now: u64) -> Option<Volume> {
        let at = self.0.iter().position(|volume| volume.id == id)?;
        let read = Volume { read: now, ..self.0.remove(at) };
        self.0.push(read.clone());
        Some(read)
    }
}

impl Elsewhere for Library {
    fn keep<'a>(&'a self, owner: &'a str, id: &'a str, whole: &'a Whole) -> Fetching<'a, bool> {
        Box::pin(async move { self.put(owner, id, whole).await.is_ok() })
    }

    fn get<'a>(&'a self, owner: &'a str, id: &'a str) -> Fetching<'a, Option<Whole>> {
        Box::pin(async move { self.take(owner, id).await.ok().flatten() })
    }

    fn forget<'a>(&'a self, owner: &'a str) -> Fetching<'a, ()> {
        Box::pin(async move {
            // What the store does not hear of expires.
            let _ = self.clear(owner).await;
        })
    }
}

impl Library {
    async fn put(&self, owner: &str, id: &str, whole: &Whole) -> Result<(), Away> {
        let shelf = shelf_key(owner);
        let text = whole.text().as_bytes();
        let added = Volume { id: id.to_owned(), bytes: text.len(), limit: whole.limit(), read: now() };
        let gone = self
            .change(&shelf, |volumes| {
                let gone = volumes.make_room(added.bytes, self.room, added.read);
                volumes.0.push(added.clone());
                Some(gone)
            })
            .await?;
        let gone: Vec<String> = gone.iter().flatten().flat_map(|volume| pieces(&shelf, volume)).collect();
        self.replicas.remove(&gone).await?;
        for (key, piece) in pieces(&shelf, &added).iter().zip(text.chunks(PIECE)) {
            self.replicas.swap(key, 0, "", piece, LIFE).await?;
        }
        Ok(())
    }

    async fn take(&self, owner: &str, id: &str) -> Result<Option<Whole>, Away> {
        let shelf = shelf_key(owner);
        let Some(volume) = self.change(&shelf, |volumes| volumes.read(id, now())).await? else {
            return Ok(None);
        };
        let keys = pieces(&shelf, &volume);
        self.replicas.touch(&keys, LIFE).await?;
        let mut text = Vec::with_capacity(volume.bytes);
        for key in &keys {
            let Some(piece) = self.replicas.read(key).await? else { return Ok(None) };
            text.extend_from_slice(&piece.value);
        }
        Ok(String::from_utf8(text).ok().map(|text| Whole::new(text, volume.limit)))
    }

    async fn clear(&self, owner: &str) -> Result<(), Away> {
        let shelf = shelf_key(owner);
        let (seen, volumes) = self.volumes(&shelf).await?;
        if seen == 0 {
            return Ok(());
        }
        let mut keys: Vec<String> = volumes.0.iter().flat_map(|volume| pieces(&shelf, volume)).collect();
        keys.push(shelf);
        self.replicas.remove(&keys).await
    }

    async fn volumes(&self, shelf: &str) -> Result<(u64, Shelf), Away> {
        let entry = self.replicas.read(shelf).await?;
        Ok(entry.map_or_else(Default::default, |entry| {
            (entry.epoch, serde_json::from_slice(&entry.value).unwrap_or_default())
        }))
    }

    /// Changes a list in the place of the one that was seen, until nobody else has done so meanwhile; `None`: there is
    /// nothing to change.
    async fn change<T>(
        &self,
        shelf: &str,
        change: impl Fn(&mut Shelf) -> Option<T>,
    ) -> Result<Option<T>, Away> {
        loop {
            let (seen, mut volumes) = self.volumes(shelf).await?;
            let Some(changed) = change(&mut volumes) else { return Ok(None) };
            let value = serde_json::to_vec(&volumes).expect("plain data");
            if self.replicas.swap(shelf, seen, "", &value, LIFE).await?.is_some() {
                return Ok(Some(changed));
            }
        }
    }
}

fn shelf_key(owner: &str) -> String {
    format!("result:{}", Replicas::digest(&["results", owner]))
}

fn pieces(shelf: &str, volume: &Volume) -> Vec<String> {
    let name = format!("{shelf}:{}", Replicas::digest(&["result", &volume.id]));
    (0..volume.bytes.div_ceil(PIECE)).map(|number| format!("{name}:{number}")).collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;
    use crate::replicas::in_process::InProcess;
    use crate::replicas::store::Store;

    /// Two replicas whose owners have this much room.
    fn two(room: usize) -> (Arc<InProcess>, [Library; 2]) {
        let store = Arc::new(InProcess::default());
        let library = || Library {
            replicas: Replicas::new(store.clone(), &[Secret::new("a key of thirty-two bytes or more")]),
            room,
        };
        let both = [library(), library()];
        (store, both)
    }

    fn whole(bytes: usize) -> Whole {
        Whole::new("x".repeat(bytes), 4000)
    }

    async fn there(library: &Library, owner: &str, ids: &[&str]) -> Vec<usize> {
        let mut found = Vec::new();
        for id in ids {
            found.push(library.get(owner, id).await.map_or(0, |whole| whole.text().len()));
        }
        found
    }

    #[tokio::test]
    async fn the_least_recently_read_make_room_whichever_replica_keeps_the_next() {
        let (_, [one, two]) = two(3 * PIECE);
        assert!(one.keep("a", "r1", &whole(PIECE)).await && two.keep("a", "r2", &whole(PIECE + 1)).await);
        assert!(one.keep("b", "r3", &whole(2 * PIECE)).await, "another owner has a room of its own");
        assert_eq!(there(&two, "a", &["r2", "r1"]).await, [PIECE + 1, PIECE]);
        // What fits exactly makes nobody go.
        assert!(two.keep("a", "r4", &whole(PIECE - 1)).await);
        assert_eq!(there(&one, "a", &["r2", "r1", "r4"]).await, [PIECE + 1, PIECE, PIECE - 1]);
        assert!(one.keep("a", "r5", &whole(1)).await);
        assert_eq!(there(&two, "a", &["r2", "r1", "r4", "r5"]).await, [0, PIECE, PIECE - 1, 1]);
        assert_eq!(there(&one, "b", &["r3", "r1"]).await, [2 * PIECE, 0], "nobody reads what is another's");
    }

    #[tokio::test]
    async fn what_makes_room_or_is_forgotten_is_nowhere_in_the_store() {
        let (store, [one, two]) = two(2 * PIECE);
        assert!(one.keep("a", "r1", &whole(2 * PIECE)).await && one.keep("a", "r2", &whole(2 * PIECE)).await);
        let keys = |id: &str| {
            let volume = Volume { id: id.to_owned(), bytes: 2 * PIECE, limit: 0, read: 0 };
            [pieces(&shelf_key("a"), &volume), vec![shelf_key("a")]].concat()
        };
        assert_eq!(store.epochs(&keys("r1")).await, Ok(vec![0, 0, 2]));
        assert_eq!(store.epochs(&keys("r2")).await, Ok(vec![1, 1, 2]));
        two.forget("a").await;
        assert_eq!(store.epochs(&keys("r2")).await, Ok(vec![0, 0, 0]));
        assert_eq!(there(&one, "a", &["r2"]).await, [0]);
    }

    #[test]
    fn what_was_not_read_for_an_hour_counts_no_more() {
        let volume = |id: &str, read| Volume { id: id.to_owned(), bytes: 10, limit: 1, read };
        let mut shelf = Shelf(vec![volume("old", 1000), volume("new", 4000)]);
        assert_eq!(shelf.make_room(10, 100, 4600), []);
        assert_eq!(shelf.make_room(10, 100, 4601), [volume("old", 1000)]);
        assert_eq!((shelf.read("old", 4601), shelf.read("new", 4602)), (None, Some(volume("new", 4602))));
        assert_eq!(shelf, Shelf(vec![volume("new", 4602)]));
    }
}
