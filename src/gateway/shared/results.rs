//! Long results in the store, where every replica can read them.
//!
//! A result is a head and pieces, so that no single question to the store takes long. All of them expire an hour after
//! they were last read.

use std::sync::Arc;
use std::time::Duration;

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
}

#[derive(Serialize, Deserialize)]
struct Head {
    limit: usize,
    pieces: usize,
}

impl Elsewhere for Library {
    fn keep<'a>(&'a self, owner: &'a str, id: &'a str, whole: &'a Whole) -> Fetching<'a, bool> {
        Box::pin(async move { self.put(owner, id, whole).await.unwrap_or(false) })
    }

    fn get<'a>(&'a self, owner: &'a str, id: &'a str) -> Fetching<'a, Option<Whole>> {
        Box::pin(async move { self.take(owner, id).await.ok().flatten() })
    }
}

impl Library {
    async fn put(&self, owner: &str, id: &str, whole: &Whole) -> Result<bool, Away> {
        let name = name(owner, id);
        let pieces: Vec<&[u8]> = whole.text().as_bytes().chunks(PIECE).collect();
        for (number, piece) in pieces.iter().enumerate() {
            if self.replicas.swap(&format!("{name}:{number}"), 0, "", piece, LIFE).await?.is_none() {
                return Ok(false);
            }
        }
        // The head comes last: who finds it finds everything.
        let head = Head { limit: whole.limit(), pieces: pieces.len() };
        let head = serde_json::to_vec(&head).expect("plain data");
        Ok(self.replicas.swap(&name, 0, "", &head, LIFE).await?.is_some())
    }

    async fn take(&self, owner: &str, id: &str) -> Result<Option<Whole>, Away> {
        let name = name(owner, id);
        let Some(head) = self.replicas.read(&name).await? else { return Ok(None) };
        let Ok(Head { limit, pieces }) = serde_json::from_slice(&head.value) else { return Ok(None) };
        let keys: Vec<String> =
            (0..pieces).map(|number| format!("{name}:{number}")).chain([name.clone()]).collect();
        let mut text = Vec::new();
        for key in &keys[..pieces] {
            let Some(piece) = self.replicas.read(key).await? else { return Ok(None) };
            text.extend_from_slice(&piece.value);
        }
        self.replicas.touch(&keys, LIFE).await?;
        Ok(String::from_utf8(text).ok().map(|text| Whole::new(text, limit)))
    }
}

fn name(owner: &str, id: &str) -> String {
    format!("result:{}", Replicas::digest(&[owner, id]))
}
