//! Random damage to the metadata of used volumes. `ISOTHERM_DAMAGES=N` makes more, `ISOTHERM_SEED=X` repeats one.

use isotherm_core::engine::Mutant;
use isotherm_hostile::damage::{Damage, damage, lost_checkpoint, lost_tail, older_checkpoint};

/// Runs `count` cases; returns that number and the outcomes.
fn all(count: u64, one: fn(u64, Option<Mutant>) -> Result<Damage, String>) -> (u64, Damage) {
    let var = |n: &str| std::env::var(n).ok().and_then(|v| v.parse::<u64>().ok());
    let base = var("ISOTHERM_SEED_BASE").unwrap_or(0);
    let seeds = match var("ISOTHERM_SEED") {
        Some(s) => s..s + 1,
        None => base..base + count,
    };
    let mut sum = Damage::default();
    for seed in seeds.clone() {
        let one = one(seed, None).unwrap_or_else(|e| panic!("ISOTHERM_SEED={seed}: {e}"));
        sum = sum.and(one);
    }
    let count = seeds.end - seeds.start;
    println!("{count} damages: {sum:?}");
    (count, sum)
}

#[test]
fn no_loss_is_silent() {
    let asked = std::env::var("ISOTHERM_DAMAGES").ok();
    let (count, sum) = all(asked.and_then(|v| v.parse().ok()).unwrap_or(600), damage);
    assert!(count < 500 || (sum.mended > 0 && sum.refused > 0));
    // Damage that cannot be proved must be the exception.
    assert!(count < 100 || sum.unprovable * 20 <= count);
}

/// Block 3 of the journal is lost on primary and mirror, and with it block 4, which only the mirror had: nothing says any more that block 3
/// was durable. If its proof is still there, the same loss must be refused.
#[test]
fn a_block_that_is_lost_with_its_only_proof_is_not_missed() {
    let found = damage(1_796_045_138, None).expect("nothing wrong is shown");
    assert_eq!(found.unprovable, 1, "{found:?}");
}

#[test]
fn a_lost_checkpoint_is_lost_only_with_consent() {
    let (count, sum) = all(60, lost_checkpoint);
    assert!(count < 60 || sum.accepted * 2 > count);
}

#[test]
fn a_volume_lives_on_from_an_older_checkpoint() {
    let (count, sum) = all(200, older_checkpoint);
    assert!(count < 100 || sum.mended * 4 > count);
}

#[test]
fn a_lost_end_of_the_journal_shows_no_foreign_bytes() {
    let (count, sum) = all(400, lost_tail);
    assert!(count < 400 || sum.unprovable > 0);
}
