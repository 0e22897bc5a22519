//! Random numbers whose seed means the same world for ever: xoshiro256** seeded by splitmix64.
//!
//! Written out here since a library may change its generator between releases, and a run's seed
//! must reproduce its losses years later. Not for secrets.
//!
//! Source: D. Blackman, S. Vigna, "Scrambled linear pseudorandom number generators", ACM TOMS
//! 47(4), 2021 (xoshiro256**, algorithm in section 5); splitmix64 from the same authors' notes.

/// A deterministic generator of 64-bit words.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator that `seed` names; every seed, zero included, is good.
    pub fn new(seed: u64) -> Self {
        let mut s = seed;
        Self {
            state: std::array::from_fn(|_| splitmix64(&mut s)),
        }
    }

    /// The next word, uniform over all u64.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in [0, 1), 53 bits.
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit an f64 exactly")]
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}

fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_matches_its_published_first_values() {
        // Seed 1234567, the test vector that implementations of splitmix64 share.
        let mut s = 1_234_567;
        assert_eq!(splitmix64(&mut s), 6_457_827_717_110_365_317);
        assert_eq!(splitmix64(&mut s), 3_203_168_211_198_807_973);
    }

    #[test]
    fn xoshiro_matches_the_reference_from_state_1_2_3_4() {
        let mut rng = Rng {
            state: [1, 2, 3, 4],
        };
        let first: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(first, [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    #[test]
    fn a_seed_always_gives_the_same_words() {
        let mut rng = Rng::new(42);
        let words: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        let mut again = Rng::new(42);
        assert_eq!(words, (0..3).map(|_| again.next_u64()).collect::<Vec<_>>());
        assert_ne!(words[0], Rng::new(43).next_u64());
    }

    #[test]
    fn unit_interval_is_half_open_and_centred() {
        let mut rng = Rng::new(7);
        let n = 100_000;
        let sum: f64 = (0..n)
            .map(|_| rng.next_f64())
            .inspect(|x| assert!((0.0..1.0).contains(x)))
            .sum();
        // Standard error of the mean is 0.0009; the seed is fixed, so this cannot flake.
        assert!((sum / f64::from(n) - 0.5).abs() < 0.004);
    }
}
