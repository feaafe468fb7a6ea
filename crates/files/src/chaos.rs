//! A mover that moves files at random, for tests: whatever programs do in the meantime, nothing may be lost or shown wrong.

use crate::mover::Outcome;
use crate::store::Store;
use crate::tree::Tier;

/// Number of files that are tried to find one to move.
const LOOK: usize = 64;

/// The next number of a pseudo-random sequence (xorshift); `seed` must not be 0.
pub fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Moves files at random until `stopped`. Returns the number of moved files.
pub fn run(store: &Store, seed: u64, stopped: impl Fn() -> bool) -> u64 {
    let mut seed = seed.wrapping_mul(2).wrapping_add(1);
    let tiers = store.roots.len() as u64;
    let mut done = 0;
    // With one tier there is no other tier to move to.
    while tiers > 1 && !stopped() {
        let numbers = store.cat().numbers() as u64;
        let found = (0..LOOK).find_map(|_| {
            let id = (next(&mut seed) % numbers.max(1)) as u32;
            let cat = store.cat();
            let n = cat.get(id).filter(|n| n.is_file() && n.links() > 0)?;
            Some((id, n.tier))
        });
        let Some((id, tier)) = found else {
            std::thread::yield_now();
            continue;
        };
        let to = (u64::from(tier) + 1 + next(&mut seed) % (tiers - 1)) % tiers;
        done += u64::from(store.move_file(id, to as Tier) == Outcome::Done);
    }
    done
}
