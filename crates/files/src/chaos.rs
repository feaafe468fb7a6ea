//! A mover that moves and copies files at random, for tests: whatever programs do in the meantime, nothing may be lost or shown wrong.

use crate::mover::Outcome;
use crate::store::Store;
use crate::tree::Tier;
use isotherm_core::random::SplitMix64;

/// Number of files that are tried to find one to move.
const LOOK: usize = 64;

/// Moves files at random until `stopped`. Returns the number of moved files.
pub fn run(store: &Store, seed: u64, stopped: impl Fn() -> bool) -> u64 {
    let mut random = SplitMix64::new(seed);
    let tiers = store.roots.len() as u64;
    let mut done = 0;
    // With one tier there is no other tier to move to.
    while tiers > 1 && !stopped() {
        let found = (0..LOOK).find_map(|_| {
            let cat = store.cat();
            let id = cat.any(random.draw())?;
            let n = cat.get(id).filter(|n| n.is_file() && n.links() > 0)?;
            Some((id, n.tier))
        });
        let Some((id, tier)) = found else {
            std::thread::yield_now();
            continue;
        };
        if store.copies.on && random.below(2) == 0 {
            if tier == 0 || store.copies.has(id) {
                store.drop_copy(id);
            } else {
                store.fetch(id);
            }
            continue;
        }
        if random.below(4) == 0 {
            store.copies.ranges.give_way(1 << 20);
        }
        if tier > 0 && store.copies.heads.bytes > 0 && random.below(3) == 0 {
            store.fetch_head(id);
            continue;
        }
        let to = (u64::from(tier) + 1 + random.below(tiers - 1)) % tiers;
        done += u64::from(store.move_file(id, to as Tier) == Outcome::Done);
    }
    done
}
