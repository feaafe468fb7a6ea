//! Heads: reads of the beginning of a file use them, and nothing else does. With either rule removed, the same tests must fail.

use crate::asleep::{drop_caches, end, only_copy_is_open};
use crate::{Pair, edit, owner, size};
use isotherm_core::random::SplitMix64;
use isotherm_files::catalogue::NodeId;
use isotherm_files::heads::HeadSettings;
use isotherm_files::live::Live;
use isotherm_files::mover::{Outcome, Why};
use isotherm_files::mutants::{Mutant, choose};
use rustix::io::Errno;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

const HEAD: u64 = 64 << 10;

fn with_heads(copies: bool) -> Pair {
    let mut pair = Pair::new();
    mount(&mut pair, copies);
    pair
}

fn mount(pair: &mut Pair, copies: bool) {
    pair.mount_as(|s| {
        s.copies = copies;
        s.heads = HeadSettings {
            bytes: HEAD,
            percent: 100,
        };
    });
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    (0..len).map(|_| random.draw() as u8).collect()
}

/// A file on the slow tier with a head.
fn headed(pair: &Pair, name: &str, data: &[u8]) -> NodeId {
    let node = pair.file(name, data);
    assert_eq!(pair.store().fetch_head(node), Outcome::Done);
    assert!(pair.store().copies.has_head(node) && !pair.store().copies.has(node));
    node
}

fn read_at(pair: &Pair, live: &Arc<Live>, offset: u64, len: usize) -> Vec<u8> {
    let mut buffer = vec![0; len];
    let n = pair.store().read(live, offset, &mut buffer).unwrap();
    buffer.truncate(n);
    buffer
}

/// Opens a file for reading while the kernel does not have it in memory. `None` without the right to drop the kernel's caches.
fn open_asleep(pair: &Pair, node: NodeId) -> Option<Arc<Live>> {
    for _ in 0..5 {
        if !drop_caches() {
            return None;
        }
        let live = pair.store().live_to_read(node).unwrap();
        if only_copy_is_open(&live) {
            return Some(live);
        }
        end(pair.store(), live);
    }
    panic!("the home is opened each time, or this is a file system that does not sleep");
}

#[test]
fn a_head_is_read_while_its_home_sleeps() {
    let pair = with_heads(false);
    let data = bytes(300_000, 1);
    let node = headed(&pair, "large", &data);
    let small = headed(&pair, "small", &data[..1000]);
    let copy = fs::read_dir(pair.root.join("fast/.isotherm/copies")).unwrap();
    let space = |m: fs::Metadata| std::os::unix::fs::MetadataExt::blocks(&m) * 512;
    let space: u64 = copy.map(|c| space(c.unwrap().metadata().unwrap())).sum();
    assert!(space <= HEAD + 4096, "{space} bytes");
    let Some(live) = open_asleep(&pair, node) else {
        return;
    };
    let head = HEAD as usize;
    assert_eq!(read_at(&pair, &live, 0, 32 << 10), data[..32 << 10]);
    assert_eq!(read_at(&pair, &live, 100, head - 100), data[100..head]);
    assert!(only_copy_is_open(&live));
    // One byte more needs the file.
    assert_eq!(read_at(&pair, &live, 100, head - 99), data[100..=head]);
    assert!(!only_copy_is_open(&live));
    assert_eq!(read_at(&pair, &live, 0, 1 << 20), data);
    end(pair.store(), live);
    // A head that is the whole file also knows its end, holes and copies.
    let live = open_asleep(&pair, small).unwrap();
    assert_eq!(read_at(&pair, &live, 0, 1 << 20), data[..1000]);
    assert_eq!(read_at(&pair, &live, 5000, 4096), b"");
    let (_, to, _) = pair.store().create(0, b"to", 0o600, owner()).unwrap();
    assert_eq!(pair.store().copy(&live, 0, &to, 0, 1 << 20), Ok(1000));
    assert!(only_copy_is_open(&live));
    end(pair.store(), live);
    end(pair.store(), to);
    let live = open_asleep(&pair, node).unwrap();
    let (_, to, _) = pair.store().create(0, b"too", 0o600, owner()).unwrap();
    assert_eq!(pair.store().copy(&live, 0, &to, 0, 1 << 20), Ok(300_000));
    assert_eq!(pair.read(&to), data);
    end(pair.store(), live);
    end(pair.store(), to);
}

fn changes() {
    let pair = with_heads(false);
    let store = pair.store();
    let mut expected = bytes(150_000, 2);
    let node = headed(&pair, "f", &expected);
    let mut random = SplitMix64::new(3);
    let mut made = 0;
    for turn in 0..150 {
        let live = store.live_to_read(node).unwrap();
        let at = random.below(expected.len() as u64) as usize;
        let len = random.below(80_000) as usize;
        let up_to = expected.len().min(at + len);
        let read = read_at(&pair, &live, at as u64, len);
        assert!(
            read == expected[at..up_to],
            "turn {turn}, {len} bytes at {at}"
        );
        let (at, new) = (
            random.below(100_000),
            bytes(random.below(3000) as usize, turn),
        );
        match turn % 6 {
            0 => {
                store.write(&live, at, &new, false).unwrap();
                let until = at as usize + new.len();
                if !new.is_empty() {
                    expected.resize(expected.len().max(until), 0);
                }
                expected[at as usize..until].copy_from_slice(&new);
            }
            1 => {
                let to = 50_000 + random.below(150_000);
                store.set_attr(node, &size(to)).unwrap();
                expected.resize(to as usize, 0);
            }
            2 => {
                // FALLOC_FL_KEEP_SIZE with FALLOC_FL_PUNCH_HOLE.
                if store.fallocate(&live, 0, 8192, 3) == Ok(()) {
                    expected[..8192].fill(0);
                }
            }
            3 => store.drop_copy(node),
            _ => {
                made += u32::from(store.fetch_head(node) == Outcome::Done);
            }
        }
        let read = read_at(&pair, &live, 0, 1 << 20);
        assert!(read == expected, "turn {turn}: another file");
        store.release(&live);
    }
    assert!(made > 20);
}

#[test]
fn reads_give_what_is_at_home() {
    changes();
}

#[test]
fn every_rule_of_heads_is_needed() {
    for mutant in [Mutant::ReadBeyondHead, Mutant::KeepHead] {
        choose(Some(mutant));
        let caught = std::panic::catch_unwind(changes).is_err();
        choose(None);
        assert!(caught, "not noticed: {mutant:?}");
    }
}

#[test]
fn a_change_underneath_is_noticed() {
    let pair = with_heads(false);
    let data = bytes(100_000, 4);
    let node = headed(&pair, "f", &data);
    edit(&pair.slow("f"), b"changed");
    assert_eq!(pair.read_anew(node)[..7], *b"changed");
    assert!(!pair.store().copies.has_head(node));
    // While only the head is open, the first call that needs the file notices it.
    assert_eq!(pair.store().fetch_head(node), Outcome::Done);
    let Some(live) = open_asleep(&pair, node) else {
        return;
    };
    edit(&pair.slow("f"), b"CHANGED");
    assert_eq!(read_at(&pair, &live, 90_000, 100), data[90_000..90_100]);
    assert_eq!(read_at(&pair, &live, 0, 7), b"CHANGED");
    end(pair.store(), live);
}

#[test]
fn heads_outlive_a_remount_and_no_crash() {
    let mut pair = with_heads(true);
    let data = bytes(200_000, 5);
    let node = headed(&pair, "head", &data);
    // A whole copy takes the place of a head.
    let whole = headed(&pair, "whole", &data);
    assert_eq!(pair.store().fetch(whole), Outcome::Done);
    assert!(pair.store().copies.has(whole) && !pair.store().copies.has_head(whole));
    assert_eq!(pair.store().fetch_head(whole), Outcome::Done);
    assert!(pair.store().copies.has(whole));
    assert_eq!((pair.left(), pair.store().copies.count()), (2, 1));
    assert_eq!(pair.read_anew(node), data);
    pair.unmount();
    mount(&mut pair, true);
    let of = |name: &[u8], pair: &Pair| {
        let node = pair.store().cat().find(name).unwrap();
        let copies = &pair.store().copies;
        (copies.has(node), copies.has_head(node))
    };
    assert_eq!(of(b"head", &pair), (false, true));
    assert_eq!(of(b"whole", &pair), (true, false));
    let node = pair.store().cat().find(b"head").unwrap();
    assert_eq!(pair.read_anew(node), data);
    pair.unmount();
    // A mount without heads removes them, one without copies keeps only heads.
    mount(&mut pair, false);
    assert_eq!(of(b"head", &pair), (false, true));
    assert_eq!(of(b"whole", &pair), (false, false));
    pair.unmount();
    pair.mount();
    assert_eq!(pair.left(), 0);
    // Longer heads than those of the last mount are asked for.
    mount(&mut pair, false);
    let node = pair.store().cat().find(b"head").unwrap();
    assert_eq!(pair.store().fetch_head(node), Outcome::Done);
    pair.unmount();
    pair.mount_as(|s| {
        s.heads = HeadSettings {
            bytes: 2 * HEAD,
            percent: 100,
        };
    });
    assert_eq!(pair.left(), 0);
    // After a crash there is no list.
    mount(&mut pair, false);
    let node = pair.store().cat().find(b"head").unwrap();
    assert_eq!(pair.store().fetch_head(node), Outcome::Done);
    mount(&mut pair, false);
    assert_eq!(pair.left(), 0);
}

/// Heads are made of files whose beginning is read, if these were not changed a short time ago, within their share of the fast tier.
#[test]
fn heads_are_made_of_what_is_read_and_settled() {
    let Some(mut pair) = Pair::with_limits("fast", "size=4M") else {
        return;
    };
    pair.mount_as(|s| {
        s.heads = HeadSettings {
            bytes: HEAD,
            percent: 10,
        };
    });
    let store = pair.store();
    let soon = || Instant::now() + Duration::from_secs(20);
    let long_ago = |name: &str| {
        let past = std::time::SystemTime::now() - Duration::from_secs(3600);
        let file = fs::File::options()
            .write(true)
            .open(pair.slow(name))
            .unwrap();
        file.set_modified(past).unwrap();
    };
    let nodes: Vec<NodeId> = (0..10)
        .map(|n| pair.file(&format!("f{n}"), &bytes(100_000, n)))
        .collect();
    store.make_heads(soon());
    let heads = &store.copies.heads;
    let count = || heads.files.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(count(), 0, "written a moment ago");
    for (n, node) in nodes.iter().enumerate() {
        long_ago(&format!("f{n}"));
        let live = store.live_to_read(*node).unwrap();
        read_at(&pair, &live, 0, 4096);
        store.release(&live);
        store.make_heads(soon());
        assert!(store.copies.has_head(*node), "{n}");
    }
    // A tenth of 4 MiB holds six; the oldest went.
    assert_eq!((count(), pair.left()), (6, 6));
    assert!(!store.copies.has_head(nodes[3]) && store.copies.has_head(nodes[4]));
    // The end of a file says nothing about its beginning.
    let live = store.live_to_read(nodes[0]).unwrap();
    read_at(&pair, &live, 90_000, 4096);
    store.release(&live);
    store.make_heads(soon());
    assert!(!store.copies.has_head(nodes[0]));
    // A file that moves down again has its head at once.
    assert_eq!(store.move_file(nodes[1], 0), Outcome::Done);
    assert_eq!(store.move_file(nodes[1], 1), Outcome::Done);
    store.make_heads(soon());
    assert!(store.copies.has_head(nodes[1]));
    // Files need the space.
    let full = fs::write(pair.root.join("fast/full"), vec![7; 4 << 20]);
    assert!(full.is_err());
    let made = store.create(0, b"new", 0o600, owner());
    let (_, live, _) = made.unwrap();
    assert_eq!(store.write(&live, 0, &[1; 4096], false), Ok(()));
    store.release(&live);
    assert!(count() < 6);
    // A share that holds no head makes none.
    pair.mount_as(|s| {
        s.heads = HeadSettings {
            bytes: HEAD,
            percent: 1,
        };
    });
    let node = pair.store().cat().find(b"f1").unwrap();
    assert_eq!(pair.store().fetch_head(node), Outcome::Refused(Why::Full));
    assert_eq!(pair.store().unlink(0, b"nothing"), Err(Errno::NOENT));
}
