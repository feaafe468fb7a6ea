//! The short form of fuzzing for CI: seeded inputs, random or bent from a valid one. A failure prints its seed.

use isotherm_hostile::Rng;
use std::time::{Duration, Instant};

/// Feed `target` for `ISOTHERM_FUZZ_SECONDS` (else `seconds`), at least `least` inputs, made by `input`.
/// `ISOTHERM_SEED=X` repeats one.
pub fn run(
    name: &str,
    seconds: u64,
    least: u64,
    input: impl Fn(&mut Rng) -> Vec<u8>,
    target: impl Fn(&[u8]) + std::panic::RefUnwindSafe,
) {
    let var = |n: &str| std::env::var(n).ok().and_then(|v| v.parse::<u64>().ok());
    let one = |seed: u64| {
        let data = input(&mut Rng::new(seed));
        let sound = std::panic::catch_unwind(|| target(&data)).is_ok();
        assert!(sound, "{name}: ISOTHERM_SEED={seed}: input {data:02x?}");
    };
    if let Some(seed) = var("ISOTHERM_SEED") {
        return one(seed);
    }
    let until =
        Instant::now() + Duration::from_secs(var("ISOTHERM_FUZZ_SECONDS").unwrap_or(seconds));
    let base = var("ISOTHERM_SEED_BASE").unwrap_or(0);
    let mut n = 0;
    while n < least || Instant::now() < until {
        one(base + n);
        n += 1;
    }
    println!("{name}: seeds {base}..{}", base + n);
}

/// `len` random bytes at most.
pub fn noise(rng: &mut Rng, len: u64) -> Vec<u8> {
    (0..rng.below(len + 1)).map(|_| rng.draw() as u8).collect()
}

/// `valid` with a few bytes changed, removed, doubled or inserted.
pub fn bent(rng: &mut Rng, valid: &[u8]) -> Vec<u8> {
    let mut b = valid.to_vec();
    for _ in 0..=rng.below(8) {
        if b.is_empty() {
            break;
        }
        let at = rng.below(b.len() as u64) as usize;
        match rng.below(6) {
            0 => b[at] ^= 1 << rng.below(8),
            1 => b[at] = [0, 0xff, 0x7f, 0x80][rng.below(4) as usize],
            2 => drop(b.remove(at)),
            3 => b.insert(at, rng.draw() as u8),
            4 => b.truncate(at.max(1)),
            _ => {
                let from = rng.below(b.len() as u64) as usize;
                let piece = b[from..b.len().min(from + rng.below(64) as usize)].to_vec();
                b.splice(at..at, piece);
            }
        }
    }
    b
}
