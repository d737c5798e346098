//! A faster hash than the standard library's. It has a new seed in each process, so that no server can choose
//! words that collide.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, Seeded>;

/// Makes hashers with the seed of this process.
#[derive(Clone, Copy)]
pub(crate) struct Seeded(u64);

impl Default for Seeded {
    fn default() -> Self {
        static SEED: OnceLock<u64> = OnceLock::new();
        Self(*SEED.get_or_init(|| RandomState::new().hash_one(0_u8)))
    }
}

impl BuildHasher for Seeded {
    type Hasher = Mixer;

    fn build_hasher(&self) -> Mixer {
        Mixer(self.0)
    }
}

/// Multiplies eight bytes at a time and folds the product.
pub(crate) struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value) * 0x9E37_79B9_7F4A_7C15_u128;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        // What is left of a long text is read together with bytes that were mixed already.
        let last = match bytes.last_chunk() {
            Some(last) => u64::from_le_bytes(*last),
            None => rest.iter().fold(0, |last, byte| last << 8 | u64::from(*byte)),
        };
        self.mix(last ^ (bytes.len() as u64) << 56);
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
