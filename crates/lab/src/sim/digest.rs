//! A running hash that distinguishes unequal runs.

/// Multiply-rotate over 64-bit words. It does not resist deliberate collisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0x9e37_79b9_7f4a_7c15)
    }
}

impl Digest {
    /// Adds one word.
    #[inline]
    pub fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
    /// The hash as text.
    pub fn text(self) -> String {
        let x = self.0 ^ (self.0 >> 32);
        format!("{:016x}", x.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }
}
