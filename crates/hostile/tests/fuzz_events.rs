//! The entry functions of `fuzz/` for events files, with seeded inputs for some seconds. `ISOTHERM_FUZZ_SECONDS=N` runs longer,
//! `ISOTHERM_SEED=X` repeats one input.

#[path = "../../../fuzz/src/events.rs"]
mod events;
#[path = "../../../fuzz/src/seeded.rs"]
mod seeded;

use isotherm_traces::events::unpack;
use seeded::{bent, noise, run};

#[test]
fn files_of_any_content() {
    let valid = events::valid();
    assert_eq!(events::any(&valid), Some(10), "the valid one is understood");
    run(
        "events_file",
        1,
        300,
        |rng| bent(rng, &valid),
        |d| {
            events::any(d);
        },
    );
}

#[test]
fn payloads_of_any_content() {
    let blocks = unpack(&events::valid()).expect("valid");
    let kinds: Vec<u8> = blocks.iter().map(|b| b.0).collect();
    assert_eq!(kinds, [1, 2, 3, 3, 4]);
    let accepted = std::sync::atomic::AtomicU64::new(0);
    run(
        "events_file payloads",
        2,
        2000,
        |rng| {
            let n = rng.below(blocks.len() as u64) as usize;
            let mut data = vec![n as u8];
            data.extend(bent(rng, &blocks[n].1));
            data
        },
        |d| {
            let some = u64::from(events::any(d).is_some());
            accepted.fetch_add(some, std::sync::atomic::Ordering::Relaxed);
        },
    );
    assert!(
        accepted.into_inner() > 20,
        "too few get through to say anything"
    );
    run(
        "events_file noise",
        0,
        500,
        |rng| noise(rng, 300),
        |d| {
            events::any(d);
        },
    );
}
