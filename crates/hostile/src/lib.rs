//! The hostile world: it tests the engine, not any policy.
//!
//! A chaos policy proposes random moves. The world completes operations in a seeded order and applies each one at its completion. It loses
//! or tears unflushed writes, and lets transfers fail or end early. A flat array of cells contains the expected contents. The engine must
//! be safe whatever a policy proposes, so random proposals are the hardest test.

pub mod audit;
mod cache_end;
pub mod chaos;
mod clients;
pub mod damage;
pub mod directed;
pub mod disk;
mod ends;
mod grow;
mod harm;
pub mod image;
mod loss;
mod policies;
mod promises;
mod replace;
mod rollback;
pub mod run;
pub mod scenario;
pub mod truth;
pub mod world;

/// A small, fast, seeded generator (xorshift64*): the same seed gives the same run everywhere. It is not the workspace's generator
/// (`isotherm_core::random`), because known cases are identified by their seeds, which must not change.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator from any seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// A number less than `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        (self.draw() >> 11) % n.max(1)
    }
    /// True once in `n` times on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }
}
