//! Copies that are always opened without the file at home. Nothing is changed directly on the tiers here. So whatever is done through the
//! store, at random and by several threads at once, a read returns what was written last.

use crate::{Pair, size};
use isotherm_core::random::SplitMix64;
use isotherm_files::mutants::{Mutant, choose};
use isotherm_files::names::IfPresent;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// While this value exists, this thread opens copies without a comparison with the file at home.
struct WithoutComparison;

impl WithoutComparison {
    fn new() -> WithoutComparison {
        choose(Some(Mutant::NeverLook));
        WithoutComparison
    }
}

impl Drop for WithoutComparison {
    fn drop(&mut self) {
        choose(None);
    }
}

/// One thread: a file stays open for reading while it is changed in every way.
fn random_changes(seed: u64) {
    let _without_comparison = WithoutComparison::new();
    let pair = Pair::new();
    let store = pair.store();
    let mut random = SplitMix64::new(seed);
    let mut expected = vec![7u8; 20_000];
    let node = pair.file("f0", &expected);
    let mut reader = store.live_to_read(node).unwrap();
    let (mut name, mut copy_only) = (0, 0);
    for _ in 0..400 {
        let (at, len) = (random.below(30_000), 1 + random.below(5_000));
        match random.below(12) {
            0 | 1 => {
                let data = vec![random.draw() as u8; len as usize];
                let live = store.live(node).unwrap();
                store.write(&live, at, &data, len % 2 == 0).unwrap();
                store.release(&live);
                let end = (at + len) as usize;
                expected.resize(expected.len().max(end), 0);
                expected[at as usize..end].copy_from_slice(&data);
            }
            2 => {
                store.set_attr(node, &size(at)).unwrap();
                expected.resize(at as usize, 0);
            }
            3 => {
                let (old, new) = (format!("f{name}"), format!("f{}", name + 1));
                let done =
                    store.rename((0, old.as_bytes()), (0, new.as_bytes()), IfPresent::Refuse);
                assert_eq!(done, Ok(()));
                name += 1;
            }
            4 => store.drop_copy(node),
            5 => {
                store.move_file(node, random.below(2) as u8);
            }
            6 => store.sync(&reader, false).unwrap(),
            7 | 8 => {
                store.fetch(node);
            }
            _ => {
                store.release(&reader);
                reader = store.live_to_read(node).unwrap();
                copy_only += u32::from(reader.hold().backing().is_err());
            }
        }
        assert!(pair.read(&reader) == expected, "seed {seed}");
        assert_eq!(store.facts(node).map(|f| f.size), Ok(expected.len() as u64));
        let tier = store.cat().get(node).unwrap().tier;
        let home = pair.root.join(["fast", "slow"][usize::from(tier)]);
        let home = fs::read(home.join(format!("f{name}"))).unwrap();
        assert!(home == expected, "seed {seed}: at home");
    }
    assert!(
        copy_only > 5,
        "seed {seed}: only the copy was open {copy_only} times"
    );
    store.release(&reader);
}

#[test]
fn a_reader_of_a_copy_sees_every_change() {
    let base = std::env::var("ISOTHERM_SEED").ok();
    let base = base.and_then(|s| s.parse().ok()).unwrap_or(2026u64);
    for seed in base..base + 4 {
        random_changes(seed);
    }
}

/// A counter in a file. A reader that begins after a write has returned reads that value or a later one, while the file is copied and moved
/// and its copy is dropped.
#[test]
fn readers_never_see_what_was() {
    let pair = Pair::new();
    let store = pair.store();
    let node = pair.file("f", &0u64.to_le_bytes());
    let (written, end, copy_only) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    let over = || end.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _without_comparison = WithoutComparison::new();
                while !over() {
                    let live = store.live_to_read(node).unwrap();
                    for _ in 0..4 {
                        let (least, mut bytes) = (written.load(Ordering::SeqCst), [0; 8]);
                        let asleep = live.hold().backing().is_err();
                        let read = store.read(&live, 0, &mut bytes);
                        let now = u64::from_le_bytes(bytes);
                        if read != Ok(8) || now < least {
                            end.store(true, Ordering::SeqCst);
                            panic!("{read:?}: {now} after {least}");
                        }
                        copy_only.fetch_add(u64::from(asleep), Ordering::SeqCst);
                    }
                    store.release(&live);
                }
            });
        }
        scope.spawn(|| {
            let mut random = SplitMix64::new(7);
            while !over() {
                match random.below(8) {
                    0 => store.drop_copy(node),
                    1 => drop(store.move_file(node, random.below(2) as u8)),
                    _ => drop(store.fetch(node)),
                }
                // Pause, so that at times no other thread has the file open.
                std::thread::sleep(Duration::from_millis(random.below(6)));
            }
        });
        let (enough, most) = (Duration::from_secs(2), Duration::from_secs(120));
        let (start, mut n) = (Instant::now(), 0u64);
        let few = || copy_only.load(Ordering::SeqCst) < 50;
        while !over() && (start.elapsed() < enough || (few() && start.elapsed() < most)) {
            n += 1;
            let live = store.live(node).unwrap();
            store.write(&live, 0, &n.to_le_bytes(), false).unwrap();
            written.store(n, Ordering::SeqCst);
            store.release(&live);
            if n.is_multiple_of(4) {
                std::thread::sleep(Duration::from_millis(3));
            }
        }
        end.store(true, Ordering::SeqCst);
        println!(
            "{n} writes, {} reads of a copy alone",
            copy_only.load(Ordering::SeqCst)
        );
    });
    assert!(copy_only.load(Ordering::SeqCst) > 0);
    let last = written.load(Ordering::SeqCst).to_le_bytes();
    assert_eq!(pair.read_anew(node), last);
}
