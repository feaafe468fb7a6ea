//! The entry functions of `fuzz/` that read the contents of devices, with seeded inputs for some seconds. `ISOTHERM_FUZZ_SECONDS=N` runs
//! longer, `ISOTHERM_SEED=X` repeats one input.

#[path = "../../../fuzz/src/seeded.rs"]
mod seeded;
#[path = "../../../fuzz/src/store.rs"]
mod store;

use seeded::{bent, noise, run};

#[test]
fn damaged_volumes_are_refused_or_served() {
    run(
        "checkpoint_and_recovery",
        6,
        3000,
        |rng| {
            let mut recipe = vec![rng.draw() as u8, rng.draw() as u8];
            for _ in 0..=rng.below(6) {
                recipe.extend_from_slice(&rng.draw().to_le_bytes());
            }
            // Half of the edits change fields of a header, which contains most of the structure.
            for e in recipe[2..].chunks_exact_mut(8) {
                if rng.one_in(2) {
                    e[4..6].copy_from_slice(&(rng.below(128) as u16).to_le_bytes());
                }
            }
            recipe
        },
        store::checkpoint_and_recovery,
    );
}

#[test]
fn superblocks_of_any_content() {
    run(
        "superblock",
        1,
        2000,
        |rng| {
            // The input differs from a valid one in only a few bits, because otherwise it would fail at the first check.
            let mut x = vec![0; 4096];
            for _ in 0..=rng.below(6) {
                let at = [rng.below(128), rng.below(1024)][rng.below(2) as usize] as usize;
                x[at] = if rng.one_in(2) {
                    rng.draw() as u8
                } else {
                    0xff
                };
            }
            x
        },
        store::superblock,
    );
    run(
        "superblock noise",
        0,
        500,
        |rng| noise(rng, 5000),
        store::superblock,
    );
}

#[test]
fn journal_blocks_and_records_of_any_content() {
    run(
        "journal_block",
        1,
        2000,
        |rng| noise(rng, 4200),
        store::journal_block,
    );
    run(
        "record_decode",
        1,
        5000,
        |rng| {
            let mut x = noise(rng, 600);
            // Only kinds of records and members that exist.
            for u in x.chunks_mut(16) {
                u[0] = (rng.below(7) | rng.below(3) << 4) as u8;
                if u.len() > 1 {
                    u[1] = 0;
                }
            }
            x
        },
        store::record_decode,
    );
    // Extent 3 whole in slot 5 of member 0, extent 4 partly in slot 6 of member 1, extent 5 without a home, extent 6 in slot 7 of member 1
    // with a copy in slot 2 of member 0 and a bitmap of its dirty blocks, a counter, the end.
    let mut valid = [0u8; 144];
    for (at, bytes) in [
        (0, [1, 3, 5]),
        (16, [0x12, 4, 6]),
        (48, [3, 5, 0xff]),
        (64, [0x14, 6, 7]),
        (112, [0x15, 0, 9]),
    ] {
        (valid[at], valid[at + 4], valid[at + 8]) = (bytes[0], bytes[1], bytes[2]);
    }
    (valid[80], valid[86], valid[96]) = (2, 1 | 2 << 2, 0x0f);
    run(
        "record_decode bent",
        0,
        3000,
        |rng| bent(rng, &valid),
        store::record_decode,
    );
}
