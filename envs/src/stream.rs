//! Labelled random streams: all randomness of a run descends from one root seed.

use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

/// The one random generator of the suite: object safe, cheap to copy, and serialisable, so that a checkpoint holds its exact state.
///
/// It implements [`RngCore`], so every distribution of `rand` and `rand_distr` draws from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRng(Xoshiro256PlusPlus);

impl StreamRng {
    /// The stream with this label and index under the root seed.
    ///
    /// Streams of different labels or indices are independent for all practical purposes: the three inputs are hashed
    /// (FNV-1a over the label, then SplitMix64 finalisers) into the generator's seed.
    ///
    /// ```
    /// use pushforward_envs::StreamRng;
    /// use rand::RngCore;
    /// let first = StreamRng::new(7, "environment", 0).next_u64();
    /// assert_eq!(first, StreamRng::new(7, "environment", 0).next_u64());
    /// assert_ne!(first, StreamRng::new(7, "environment", 1).next_u64());
    /// assert_ne!(first, StreamRng::new(7, "replay", 0).next_u64());
    /// ```
    pub fn new(root_seed: u64, label: &str, index: u64) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in label.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let seed = mix(mix(mix(root_seed) ^ hash) ^ index);
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }
}

/// The SplitMix64 finaliser: a bijection of 64-bit words whose output bits each depend on all input bits.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl RngCore for StreamRng {
    #[inline]
    fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    #[inline]
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}
