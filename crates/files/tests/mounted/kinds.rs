//! Files, pipes, devices, sockets and links are made, renamed and removed at random under a mover that moves everything, with lists of moves
//! that are older than what they meet. Nothing changes its type or its contents, nothing goes to a tier against its pin, and no tier counts
//! an error.
//!
//! `ISOTHERM_STEPS=10000` makes so many changes instead of the usual number; `ISOTHERM_SEED` chooses the run.

use crate::world::World;
use isotherm_core::random::SplitMix64;
use isotherm_files::fuse::Io;
use isotherm_files::mutants::{Mutant, choose};
use isotherm_files::store::Store;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const STEPS: u64 = 1500;
/// Number of names in each of the two directories.
const NAMES: u64 = 40;

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// Its bytes, and whether it was made in the directory where it is.
    File(Vec<u8>, bool),
    Pipe,
    Device,
    Socket,
    Link(String),
}

fn number(name: &str, usual: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.and_then(|v| v.parse().ok()).unwrap_or(usual)
}

fn make(path: &Path, random: &mut SplitMix64) -> Kind {
    let node = |kind, dev| mknodat(CWD, path, kind, Mode::RUSR, dev).unwrap();
    match random.below(8) {
        0 => {
            node(FileType::Fifo, 0);
            Kind::Pipe
        }
        // `/dev/full`.
        1 => {
            node(FileType::CharacterDevice, makedev(1, 7));
            Kind::Device
        }
        2 => {
            node(FileType::Socket, 0);
            Kind::Socket
        }
        3 => {
            let to = format!("to-{}", random.draw());
            symlink(&to, path).unwrap();
            Kind::Link(to)
        }
        _ => {
            let bytes = random
                .draw()
                .to_le_bytes()
                .repeat(random.below(400) as usize);
            fs::write(path, &bytes).unwrap();
            Kind::File(bytes, true)
        }
    }
}

fn found(path: &Path) -> Kind {
    let kind = fs::symlink_metadata(path).unwrap();
    let of = kind.file_type();
    if of.is_fifo() {
        Kind::Pipe
    } else if of.is_char_device() {
        assert_eq!(kind.rdev(), makedev(1, 7));
        Kind::Device
    } else if of.is_socket() {
        Kind::Socket
    } else if of.is_symlink() {
        Kind::Link(fs::read_link(path).unwrap().display().to_string())
    } else {
        Kind::File(fs::read(path).unwrap(), true)
    }
}

fn check(path: &Path, expected: &Kind) {
    match (found(path), expected) {
        (Kind::File(now, _), Kind::File(bytes, _)) => assert!(now == *bytes, "{}", path.display()),
        (now, expected) => assert_eq!(now, *expected, "{}", path.display()),
    }
}

/// Moves what was wanted a while ago, until `stop`. Meanwhile `turns` counts.
fn mover(store: &Store, stop: &AtomicBool, turns: &AtomicU64) {
    while !stop.load(Ordering::SeqCst) {
        let wanted = store.wanted(true);
        let before = turns.fetch_add(1, Ordering::SeqCst);
        // What is wanted is removed and made again meanwhile.
        let wait = std::time::Instant::now();
        while turns.load(Ordering::SeqCst) == before + 1
            && !stop.load(Ordering::SeqCst)
            && wait.elapsed().as_millis() < 200
        {
            std::thread::yield_now();
        }
        store.carry_out(&wanted, None);
    }
}

/// The directory and the number of a name.
type At = (usize, u64);

fn name(at: &At) -> String {
    format!("{}/n{}", ["cold", "keep"][at.0], at.1)
}

fn tier(w: &World, at: &At) -> u8 {
    let cat = w.mounted.as_ref().unwrap().store.cat();
    let node = cat.find(name(at).as_bytes());
    node.and_then(|n| cat.get(n)).unwrap().tier
}

/// Makes the changes. Panics if something is wrong. Returns what is there at the end.
fn changes(w: &World, seed: u64, steps: u64, turns: &AtomicU64) -> BTreeMap<At, Kind> {
    let mut random = SplitMix64::new(seed);
    let mut there: BTreeMap<At, Kind> = BTreeMap::new();
    let path = |at: &At| w.at(&name(at));
    for step in 0..steps {
        if step % 50 == 0 {
            turns.fetch_add(1, Ordering::SeqCst);
        }
        let at = (random.below(2) as usize, random.below(NAMES));
        let to = (random.below(2) as usize, random.below(NAMES));
        match (there.get(&at).cloned(), random.below(4)) {
            (None, _) => {
                there.insert(at, make(&path(&at), &mut random));
            }
            (Some(kind), 0) if at != to => {
                fs::rename(path(&at), path(&to)).unwrap();
                there.remove(&at);
                let kind = match kind {
                    Kind::File(bytes, here) => Kind::File(bytes, here && at.0 == to.0),
                    other => other,
                };
                there.insert(to, kind);
            }
            (Some(_), 1 | 2) => {
                fs::remove_file(path(&at)).unwrap();
                there.remove(&at);
                // Another thing at once, which the old one's request must not meet.
                there
                    .entry(to)
                    .or_insert_with(|| make(&path(&to), &mut random));
            }
            (Some(kind), _) => check(&path(&at), &kind),
        }
        if let Some(Kind::File(_, true)) = there.get(&to)
            && to.0 == 1
        {
            assert_eq!(tier(w, &to), 0, "{} left its pin", path(&to).display());
        }
    }
    there
}

/// After the mover has stopped.
fn at_rest(w: &World, there: &BTreeMap<At, Kind>) {
    w.mounted.as_ref().unwrap().store.migrate_now();
    for (at, kind) in there {
        check(&w.at(&name(at)), kind);
        if matches!(kind, Kind::File(..)) {
            assert_eq!(usize::from(tier(w, at)), 1 - at.0, "{}", name(at));
        }
    }
    let status = w.ask("", "status");
    for t in [0, 1] {
        assert_eq!(status["tiers"][t]["errors"], 0, "{status}");
    }
    assert_eq!(w.ask("", "stats")["moves"]["failed"], 0);
    assert_eq!(w.ask("", "check")["ok"], true, "{}", w.ask("", "check"));
}

/// `None` without the right to mount; else whether all was right.
fn run(broken: Option<Mutant>, steps: u64) -> Option<bool> {
    let w = World::new(|_| {}, Io::Cached)?;
    let store = Arc::clone(&w.mounted.as_ref().unwrap().store);
    for (dir, tier) in [("cold", "slow"), ("keep", "fast")] {
        fs::create_dir(w.at(dir)).unwrap();
        let node = store.cat().find(dir.as_bytes()).unwrap();
        isotherm_files::control::command(&store, node, "pin", tier.as_bytes()).unwrap();
    }
    let seed = number("ISOTHERM_SEED", 36);
    println!("ISOTHERM_SEED={seed}");
    let (stop, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    let right = std::thread::scope(|scope| {
        scope.spawn(|| {
            choose(broken);
            mover(&store, &stop, &turns);
        });
        let work = || changes(&w, seed, steps, &turns);
        let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::SeqCst);
        match work {
            Err(e) if broken.is_none() => std::panic::resume_unwind(e),
            work => work.ok(),
        }
    });
    let right = right.is_some_and(|there| {
        let rest = std::panic::AssertUnwindSafe(|| at_rest(&w, &there));
        match std::panic::catch_unwind(rest) {
            Err(e) if broken.is_none() => std::panic::resume_unwind(e),
            rest => rest.is_ok(),
        }
    });
    assert!(broken.is_some() || store.placement.done[0].load(Ordering::Relaxed) > 0);
    Some(right)
}

#[test]
fn a_request_for_a_move_meets_only_the_file_that_it_means() {
    run(None, number("ISOTHERM_STEPS", STEPS));
}

/// With numbers that are used again, the same is noticed.
#[test]
fn numbers_that_are_used_again_are_noticed() {
    if let Some(right) = run(Some(Mutant::TrustNumber), 20_000) {
        assert!(!right);
    }
}
