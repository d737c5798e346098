//! Seals what stands in the store, so that whoever can read or change it there can neither read nor forge it.
//!
//! Invariant: a sealed text opens only in the place that it was sealed for.
//!
//! Invariant: no nonce is used twice with one key. Each process derives a key of its own from each configured one, by a
//! random salt that goes with every sealed text, and counts what it seals.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

use crate::config::Secret;

const SALT: usize = 16;
const COUNT: usize = 8;
/// The most salts of other processes whose keys are kept.
const MOST_SALTS: usize = 64;

/// Seals and opens what stands in the store.
pub struct StoreSeal {
    salt: [u8; SALT],
    count: AtomicU64,
    keys: Mutex<Keys>,
}

#[derive(Default)]
struct Keys {
    /// The first seals, all open.
    configured: Vec<Secret>,
    /// The keys that were derived from them, by salt.
    derived: HashMap<[u8; SALT], Arc<Vec<LessSafeKey>>>,
}

impl Keys {
    fn by(&mut self, salt: [u8; SALT]) -> Arc<Vec<LessSafeKey>> {
        if self.derived.len() >= MOST_SALTS && !self.derived.contains_key(&salt) {
            self.derived.clear();
        }
        let configured = &self.configured;
        let derive = || Arc::new(configured.iter().map(|key| derived(key, &salt)).collect());
        self.derived.entry(salt).or_insert_with(derive).clone()
    }
}

fn derived(key: &Secret, salt: &[u8; SALT]) -> LessSafeKey {
    let whole = Salt::new(HKDF_SHA256, salt).extract(key.expose().as_bytes());
    let part =
        whole.expand(&[b"mcp-workbench store"], &AES_256_GCM).expect("the length of one key is allowed");
    LessSafeKey::new(UnboundKey::from(part))
}

impl StoreSeal {
    /// A seal of this process, with these keys.
    pub fn new(keys: &[Secret]) -> Self {
        let mut salt = [0; SALT];
        getrandom::fill(&mut salt).expect("the system has random numbers");
        let seal = Self { salt, count: AtomicU64::new(0), keys: Mutex::default() };
        seal.renew(keys);
        seal
    }

    /// Switches to other keys.
    pub fn renew(&self, keys: &[Secret]) {
        *self.keys.lock() = Keys { configured: keys.to_vec(), derived: HashMap::new() };
    }

    /// The keys in force.
    pub fn keys(&self) -> Vec<Secret> {
        self.keys.lock().configured.clone()
    }

    /// Seals a text for a place.
    pub fn seal(&self, place: &str, text: &[u8]) -> Vec<u8> {
        let keys = self.keys.lock().by(self.salt);
        let count = self.count.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        let mut sealed = Vec::with_capacity(SALT + COUNT + text.len() + AES_256_GCM.tag_len());
        sealed.extend_from_slice(&self.salt);
        sealed.extend_from_slice(&count);
        sealed.extend_from_slice(text);
        let tag = keys[0]
            .seal_in_place_separate_tag(nonce(count), Aad::from(place), &mut sealed[SALT + COUNT..])
            .expect("short enough to be sealed");
        sealed.extend_from_slice(tag.as_ref());
        sealed
    }

    /// Opens what was sealed for this place; `None` for everything else.
    pub fn open(&self, place: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (salt, rest) = sealed.split_first_chunk::<SALT>()?;
        let (count, text) = rest.split_first_chunk::<COUNT>()?;
        let keys = self.keys.lock().by(*salt);
        keys.iter().find_map(|key| {
            let mut text = text.to_vec();
            let length = key.open_in_place(nonce(*count), Aad::from(place), &mut text).ok()?.len();
            text.truncate(length);
            Some(text)
        })
    }
}

fn nonce(count: [u8; COUNT]) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..COUNT].copy_from_slice(&count);
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_opens_in_its_place_with_a_key_of_its_time() {
        let seal =
            |keys: &[&str]| StoreSeal::new(&keys.iter().map(|key| Secret::new(*key)).collect::<Vec<_>>());
        let (old, both, new) = (seal(&["old"]), seal(&["new", "old"]), seal(&["new"]));
        let sealed = old.seal("session:1", b"text");
        assert_ne!(sealed, old.seal("session:1", b"text"), "two texts never look alike");
        assert!(!sealed.windows(4).any(|part| part == b"text"));
        for (seal, place, expected) in [
            (&old, "session:1", Some(&b"text"[..])),
            (&both, "session:1", Some(b"text")),
            (&new, "session:1", None),
            (&old, "session:2", None),
        ] {
            assert_eq!(seal.open(place, &sealed).as_deref(), expected, "{place}");
        }
        assert!(new.open("p", &both.seal("p", b"")).is_some(), "the first seals");
        for cut in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[cut] ^= 1;
            assert_eq!(old.open("session:1", &changed), None, "byte {cut}");
            assert_eq!(old.open("session:1", &sealed[..cut]), None, "the first {cut}");
        }
    }
}
