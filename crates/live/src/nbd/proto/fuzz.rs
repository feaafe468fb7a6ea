//! Peers that send invalid bytes: mutated sessions and random data.

use super::tests::{BYTES, Harness, flags, go, opt, req, session, volume};
use isotherm_core::random::SplitMix64;

struct Random(SplitMix64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.draw()
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Runs `f` with each seed; a panic names the seed.
fn seeds(count: u64, f: impl Fn(&mut Random) + std::panic::RefUnwindSafe) {
    for seed in 1..=count {
        let run = std::panic::catch_unwind(|| f(&mut Random(SplitMix64::new(seed))));
        assert!(run.is_ok(), "seed {seed}");
    }
}

#[test]
fn mutated_sessions_do_no_harm() {
    let original = session();
    seeds(4000, |random| {
        let mut bytes = original.clone();
        for _ in 0..=random.below(8) {
            if bytes.is_empty() {
                break;
            }
            let at = random.below(bytes.len());
            match random.below(6) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = [0, 0xff, 0x7f, 0x80][random.below(4)],
                2 => drop(bytes.remove(at)),
                3 => bytes.insert(at, random.next() as u8),
                4 => bytes.truncate(at.max(1)),
                _ => {
                    let from = random.below(bytes.len());
                    let piece = bytes[from..bytes.len().min(from + random.below(64))].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        let mut harness = Harness::new(volume(random.below(2) == 0));
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at(rest.len().min(1 + random.below(200)));
            harness.feed(piece);
            rest = tail;
        }
    });
}

#[test]
fn random_bytes_do_no_harm() {
    seeds(3000, |random| {
        let mut harness = Harness::new(volume(false));
        // The position is random, so that invalid bytes arrive in every state.
        match random.below(4) {
            0 => {}
            1 => harness.feed(&flags(3)),
            2 => harness.feed(&go(true)),
            _ => harness.feed(&go(false)),
        }
        for _ in 0..random.below(60) {
            let small = random.below(70_000) as u32;
            let kind = random.below(9) as u16;
            match random.below(5) {
                0 => harness.feed(&req(random.next() as u16, kind, 1, random.next(), small)),
                1 => harness.feed(&req(
                    random.next() as u16 & 0x1f,
                    kind,
                    1,
                    random.next() % BYTES,
                    small,
                )),
                2 => harness.feed(&opt(random.below(14) as u32, &random.next().to_be_bytes())),
                3 => harness.feed(&vec![random.next() as u8; small as usize]),
                _ => harness.feed(&random.next().to_be_bytes()[..random.below(9)]),
            }
        }
    });
}
