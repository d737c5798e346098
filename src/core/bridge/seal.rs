//! State that a client carries for us. The bridge seals it when it tells a client to come back, and opens it
//! on the client's return.
//!
//! Invariant: nobody else can read or change the state, and it is useless to another client, for another
//! request, and after it expires.

use parking_lot::RwLock;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::config::Secret;
use crate::text::digest::{from_hex, hex};

/// Seals and opens states.
pub struct Seal {
    /// The first seals, all open; there is at least one.
    keys: RwLock<Vec<LessSafeKey>>,
    random: SystemRandom,
}

/// A state with the conditions for its use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The client that may use it.
    pub principal: String,
    /// The method that it is valid for.
    pub method: String,
    /// A digest of the parameters that it is valid for.
    pub digest: String,
    /// The expiry as Unix time in seconds.
    pub expires: u64,
    /// The state itself.
    pub state: State,
}

/// What a retry continues with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// A call that is parked in a process: that of this replica, which has no name if it is alone.
    Parked {
        /// The replica.
        home: String,
        /// The call there.
        call: u64,
    },
    /// The upstream's own state as JSON; `None` if it sent none.
    Upstream(Option<String>),
    /// A call that the upstream refused with this error until the user has visited a page. The retry calls
    /// again.
    Refused(String),
}

impl Seal {
    /// Uses the configured keys, so that replicas agree, or else a key of this process.
    pub fn new(keys: &[Secret]) -> Self {
        let random = SystemRandom::new();
        Self { keys: RwLock::new(made_of(keys, &random)), random }
    }

    /// Switches to other keys. What was sealed with a key that is not among them can no longer be opened.
    pub fn renew(&self, keys: &[Secret]) {
        *self.keys.write() = made_of(keys, &self.random);
    }

    /// Seals a state into a text that only we can open.
    pub fn seal(&self, sealed: &Sealed) -> String {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).expect("the system has random numbers");
        let mut text = serde_json::to_vec(sealed).expect("plain data");
        self.keys.read()[0]
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut text)
            .expect("short enough to be sealed");
        let mut whole = nonce.to_vec();
        whole.append(&mut text);
        hex(whole)
    }

    /// Opens a sealed text; `None` for any other text, and after it has expired.
    pub fn open(&self, text: &str, now: u64) -> Option<Sealed> {
        let whole = from_hex(text)?;
        let (nonce, rest) = whole.split_at_checked(NONCE_LEN)?;
        let open = |key: &LessSafeKey| {
            let mut rest = rest.to_vec();
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            serde_json::from_slice(key.open_in_place(nonce, Aad::empty(), &mut rest).ok()?).ok()
        };
        let sealed: Sealed = self.keys.read().iter().find_map(open)?;
        (sealed.expires > now).then_some(sealed)
    }

    /// A number that nobody can guess.
    pub fn number(&self) -> u64 {
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes).expect("the system has random numbers");
        u64::from_le_bytes(bytes)
    }
}

fn made_of(keys: &[Secret], random: &SystemRandom) -> Vec<LessSafeKey> {
    let key = |bytes: &[u8]| {
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).expect("the key has the right length"))
    };
    if keys.is_empty() {
        let mut bytes = [0; 32];
        random.fill(&mut bytes).expect("the system has random numbers");
        return vec![key(&bytes)];
    }
    keys.iter().map(|given| key(digest(&SHA256, given.expose().as_bytes()).as_ref())).collect()
}

/// A digest of parameters that does not depend on the order of their keys.
pub fn params_digest(params: &str) -> String {
    let mut value: serde_json::Value = serde_json::from_str(params).unwrap_or_default();
    if let Some(members) = value.as_object_mut() {
        for key in ["_meta", "inputResponses", "requestState"] {
            members.remove(key);
        }
    }
    let text = serde_json::to_string(&value).expect("a value is JSON");
    hex(digest(&SHA256, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_sealed_opens_and_only_for_a_while() {
        let seal = Seal::new(&[]);
        let sealed = Sealed {
            principal: "ci".into(),
            method: "tools/call".into(),
            digest: params_digest(r#"{"name":"a","arguments":{"x":1,"y":2}}"#),
            expires: 100,
            state: State::Parked { home: String::new(), call: 7 },
        };
        let text = seal.seal(&sealed);
        assert_eq!(seal.open(&text, 99), Some(sealed.clone()));
        assert_eq!(seal.open(&text, 100), None);
        assert_eq!(Seal::new(&[]).open(&text, 0), None);
        for broken in ["", "zz", "ä", &text[2..], &format!("{}00", &text[..text.len() - 2])] {
            assert_eq!(seal.open(broken, 0), None, "{broken}");
        }
    }

    /// A key is changed in three steps, and at each of them replicas that are a step apart accept each other's states.
    #[test]
    fn keys_are_rotated_without_a_state_lost() {
        let sealed = Sealed {
            principal: String::new(),
            method: "tools/call".into(),
            digest: params_digest("{}"),
            expires: 100,
            state: State::Upstream(None),
        };
        let seal = |keys: &[&str]| Seal::new(&keys.iter().map(|key| Secret::new(*key)).collect::<Vec<_>>());
        let steps = [seal(&["old"]), seal(&["old", "new"]), seal(&["new", "old"]), seal(&["new"])];
        for (one, step) in steps.iter().enumerate() {
            for (other, reader) in steps.iter().enumerate() {
                let opens = one.abs_diff(other) <= 1 || (one, other) == (0, 2) || (one, other) == (3, 1);
                assert_eq!(reader.open(&step.seal(&sealed), 0).is_some(), opens, "{one} {other}");
            }
        }
        let changed = seal(&["old"]);
        let text = changed.seal(&sealed);
        changed.renew(&[Secret::new("new"), Secret::new("old")]);
        assert_eq!(changed.open(&text, 0), Some(sealed));
    }

    #[test]
    fn the_digest_minds_values_and_not_their_order() {
        let digest = params_digest(r#"{"name":"a","arguments":{"x":1,"y":2}}"#);
        assert_eq!(
            digest,
            params_digest(r#"{"arguments":{"y":2,"x":1},"name":"a","_meta":{"z":1},"requestState":"s"}"#)
        );
        assert_ne!(digest, params_digest(r#"{"name":"a","arguments":{"x":1,"y":3}}"#));
    }
}
