//! The generator of pseudo-random numbers for models, experiments and tests of all crates, so that a seed gives the same sequence
//! everywhere. It must not be used for secrets. The trace generators need distributions and use the crate `rand` instead.

/// SplitMix64. Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
///
/// Any seed is good, and the sequences of similar seeds differ from the first number on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }
    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
    /// Fills `bytes` with the next numbers, little-endian. A rest of less than 8 bytes gets the low bytes of one more number.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.draw().to_le_bytes()[..piece.len()]);
        }
    }
    /// A number less than `n`; 0 if `n` is 0. The numbers are not exactly equally probable; the relative difference is at most n / 2⁶⁴.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw().checked_rem(n).unwrap_or(0)
    }
}

/// The finaliser of SplitMix64: a bijection in which each bit of the result depends on all bits of `x`.
#[must_use]
pub const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_the_authors() {
        // The reference implementation with seed 1234567 (also in the tests of other libraries).
        let mut r = SplitMix64::new(1_234_567);
        let want = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(want.map(|_| r.draw()), want);
        let mut bytes = [0; 11];
        SplitMix64::new(1_234_567).fill(&mut bytes);
        assert_eq!(bytes[..8], want[0].to_le_bytes());
        assert_eq!(bytes[8..], want[1].to_le_bytes()[..3]);
        assert_eq!(r.below(0), 0);
        assert!((0..100).all(|_| r.below(7) < 7));
    }
}
