//! Random damages to the metadata of used volumes. `ISOTHERM_DAMAGES=N` does more, `ISOTHERM_SEED=X` one.

use isotherm_lab::hostile::damage::{Damage, damage};

#[test]
fn nothing_is_lost_in_silence() {
    let var = |n: &str| std::env::var(n).ok().and_then(|v| v.parse::<u64>().ok());
    let base = var("ISOTHERM_SEED_BASE").unwrap_or(0);
    let seeds: Vec<u64> = match var("ISOTHERM_SEED") {
        Some(s) => vec![s],
        None => (base..base + var("ISOTHERM_DAMAGES").unwrap_or(600)).collect(),
    };
    let mut sum = Damage::default();
    for &seed in &seeds {
        let one = damage(seed, None).unwrap_or_else(|e| panic!("ISOTHERM_SEED={seed}: {e}"));
        sum = sum.and(one);
    }
    println!("{} damages: {sum:?}", seeds.len());
    assert!(seeds.len() < 500 || (sum.mended > 0 && sum.refused > 0 && sum.accepted > 0));
    // What nobody can prove is the exception.
    assert!(sum.unprovable * 20 <= seeds.len() as u64);
}
