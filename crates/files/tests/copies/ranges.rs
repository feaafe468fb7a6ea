//! Ranges of a large file: what is read is what is at home, whatever happens to the file, and only the ranges that are used lie on the fast
//! tier.

use crate::{Pair, edit, owner, size};
use isotherm_core::random::SplitMix64;
use isotherm_files::catalogue::NodeId;
use isotherm_files::live::Live;
use isotherm_files::mover::Outcome;
use isotherm_files::mutants::{Mutant, choose};
use isotherm_files::names::IfPresent;
use isotherm_files::ranges::{RANGE, RangeSettings};
use isotherm_files::store::Store;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of the file of the tests.
const BYTES: u64 = 6 * RANGE + 1000;

/// A mount on which files of one range have ranges, of at most so many per cent of the fast tier.
fn ranged(percent: u8) -> Pair {
    let mut pair = Pair::new();
    mount(&mut pair, percent);
    pair
}

fn mount(pair: &mut Pair, percent: u8) {
    pair.mount_as(|s| {
        s.copies = true;
        s.ranges = RangeSettings {
            percent,
            from: RANGE,
        };
    });
}

fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    let words = (0..bytes.div_ceil(8)).flat_map(|_| random.draw().to_le_bytes());
    words.take(bytes as usize).collect()
}

/// A file on the slow tier, in use, and its bytes.
fn file(pair: &Pair) -> (NodeId, Arc<Live>, Vec<u8>) {
    let data = pattern(7, BYTES);
    let node = pair.file("f", &data);
    (node, pair.store().live(node).unwrap(), data)
}

fn read(pair: &Pair, live: &Live, at: u64, len: usize) -> Vec<u8> {
    read_of(pair.store(), live, at, len)
}

fn read_of(store: &Store, live: &Live, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let n = store.read(live, at, &mut bytes).unwrap();
    bytes.truncate(n);
    bytes
}

fn hits(pair: &Pair) -> u64 {
    pair.store().copies.ranges.hits.load(Ordering::Relaxed)
}

/// Reads until the range of that byte is on the fast tier.
fn warm(pair: &Pair, live: &Live, at: u64) {
    let before = hits(pair);
    for _ in 0..20 {
        read(pair, live, at, 4096);
        if hits(pair) > before {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    panic!("the range of byte {at} is never kept");
}

fn warm_all(pair: &Pair, live: &Live) {
    for range in 0..BYTES / RANGE {
        warm(pair, live, range * RANGE + 5);
    }
}

/// The number of ranges of the file.
fn kept(pair: &Pair, node: NodeId) -> u64 {
    pair.store().copies.ranges.of(node).map_or(0, |r| r.ranges)
}

fn is_as_at_home(pair: &Pair, live: &Live) {
    let home = fs::read(pair.slow("f")).unwrap();
    let all = read(pair, live, 0, home.len() + 4096);
    assert!(all == home, "other bytes than at home");
}

/// What is read often comes from the fast tier, and the file stays where it is.
#[test]
fn what_is_used_of_a_large_file_is_kept() {
    let pair = ranged(1);
    let (node, live, data) = file(&pair);
    warm(&pair, &live, 2 * RANGE + 1);
    assert_eq!(kept(&pair, node), 1);
    let before = hits(&pair);
    // Others have put other bytes there: so it is seen from where the bytes come.
    let home = fs::OpenOptions::new().write(true).open(pair.slow("f"));
    let zeros = vec![0; RANGE as usize];
    std::os::unix::fs::FileExt::write_all_at(&home.unwrap(), &zeros, 2 * RANGE).unwrap();
    let got = read(&pair, &live, 2 * RANGE + 10, 9000);
    assert!(got == data[2 * RANGE as usize + 10..][..9000]);
    assert_eq!(hits(&pair), before + 1);
    // Over the border of two ranges, and behind the end.
    warm(&pair, &live, 4 * RANGE);
    warm(&pair, &live, 5 * RANGE);
    let over = read(&pair, &live, 5 * RANGE - 100, 200);
    assert!(over == data[5 * RANGE as usize - 100..][..200]);
    assert_eq!(hits(&pair), before + 5);
    let end = read(&pair, &live, BYTES - 100, 4096);
    assert!(end == data[BYTES as usize - 100..]);
    assert!(read(&pair, &live, BYTES, 4096).is_empty());
    pair.store().feed_policy();
    assert_eq!(pair.store().migrate_now(), 0);
    let n = pair.store().cat().get(node).unwrap().tier;
    assert_eq!((n, pair.store().copies.count()), (1, 0));
    let why = isotherm_files::control::answer(pair.store(), node, "why").unwrap();
    let why: serde_json::Value = serde_json::from_slice(&why).unwrap();
    assert_eq!(why["ranges"]["ranges"], 3);
    assert_eq!(why["ranges"]["bytes"], 3 * RANGE);
    assert_eq!(why["ranges"]["hits"], hits(&pair));
    let stats = isotherm_files::control::stats(pair.store()).copies;
    let ranges = stats.ranges.unwrap();
    assert_eq!((ranges.files, ranges.ranges, stats.bytes), (1, 3, 0));
    assert_eq!(ranges.bytes, 3 * RANGE);
    // It has changed, which is seen when it is closed.
    pair.store().release(&live);
    assert_eq!(kept(&pair, node), 0);
}

/// A file has a head and ranges at the same time.
#[test]
fn a_head_takes_no_ranges_away() {
    let mut pair = Pair::new();
    pair.mount_as(|s| {
        s.copies = true;
        (s.ranges.from, s.ranges.percent) = (RANGE, 1);
        s.heads.bytes = 4096;
    });
    let (node, live, _) = file(&pair);
    assert_eq!(pair.store().fetch_head(node), Outcome::Done);
    warm(&pair, &live, 3 * RANGE);
    is_as_at_home(&pair, &live);
    let store = pair.store();
    store.write(&live, 3 * RANGE, &[5; 9], false).unwrap();
    assert!(!store.copies.has_head(node) && kept(&pair, node) > 0);
    is_as_at_home(&pair, &live);
    store.release(&live);
}

/// The same changes reach the file and its ranges; others drop the ranges that they concern, and no others.
fn changes() {
    let pair = ranged(1);
    let store = pair.store();
    let (node, live, _) = file(&pair);
    warm_all(&pair, &live);
    assert_eq!(kept(&pair, node), 6);
    store.write(&live, RANGE - 50, &[1; 100], false).unwrap();
    store
        .write(&live, 3 * RANGE, &pattern(9, RANGE), true)
        .unwrap();
    assert_eq!(kept(&pair, node), 6, "a write drops none");
    let before = hits(&pair);
    is_as_at_home(&pair, &live);
    assert_eq!(hits(&pair), before + 6);
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    store
        .fallocate(&live, RANGE + 10, RANGE, flags.bits() as i32)
        .unwrap();
    assert_eq!(kept(&pair, node), 4);
    is_as_at_home(&pair, &live);
    warm_all(&pair, &live);
    // A copy of bytes of another file, which can be a reflink.
    let other = pair.file("other", &pattern(3, BYTES));
    let from = store.live(other).unwrap();
    let copied = store.copy(&from, 4 * RANGE, &live, 4 * RANGE, 100).unwrap();
    assert_eq!((copied, kept(&pair, node)), (100, 5));
    store.release(&from);
    is_as_at_home(&pair, &live);
    warm_all(&pair, &live);
    // It is cut off in a range, and grows again.
    store.set_attr(node, &size(4 * RANGE + 3)).unwrap();
    assert_eq!(kept(&pair, node), 4);
    store.set_attr(node, &size(BYTES)).unwrap();
    is_as_at_home(&pair, &live);
    warm(&pair, &live, 5 * RANGE);
    store.set_attr(node, &size(5 * RANGE + 3)).unwrap();
    store.write(&live, 6 * RANGE, &[5; 9], false).unwrap();
    is_as_at_home(&pair, &live);
    // Times, a name and a second user change nothing.
    warm_all(&pair, &live);
    let renamed = store.rename((0, b"f"), (0, b"g"), IfPresent::Refuse);
    renamed
        .and_then(|()| store.rename((0, b"g"), (0, b"f"), IfPresent::Refuse))
        .unwrap();
    let second = store.live(node).unwrap();
    store.release(&live);
    let before = hits(&pair);
    is_as_at_home(&pair, &second);
    assert_eq!(hits(&pair), before + 6);
    store.release(&second);
    let third = store.live(node).unwrap();
    is_as_at_home(&pair, &third);
    assert_eq!(hits(&pair), before + 12, "ranges outlive a close");
    store.release(&third);
}

#[test]
fn changes_reach_ranges_or_drop_them() {
    changes();
}

/// The file moves as a whole while it has ranges and is open, and comes back.
#[test]
fn a_move_drops_the_ranges() {
    let pair = ranged(1);
    let (node, live, mut data) = file(&pair);
    warm_all(&pair, &live);
    assert_eq!(pair.store().move_file(node, 0), Outcome::Done);
    assert_eq!(kept(&pair, node), 0);
    data[5] = 9;
    pair.store().write(&live, 5, &[9], false).unwrap();
    let before = hits(&pair);
    assert!(read(&pair, &live, 0, data.len()) == data);
    assert_eq!(hits(&pair), before);
    assert_eq!(pair.store().move_file(node, 1), Outcome::Done);
    warm_all(&pair, &live);
    assert!(read(&pair, &live, 0, data.len()) == data);
    // A whole copy, which somebody has asked for, goes before; it is the same when it is gone.
    assert_eq!(pair.store().fetch(node), Outcome::Done);
    pair.store().write(&live, RANGE, &[4; 10], false).unwrap();
    is_as_at_home(&pair, &live);
    pair.store().drop_copy(node);
    is_as_at_home(&pair, &live);
    // The last name goes, and another file has the node.
    warm_all(&pair, &live);
    pair.store().unlink(0, b"f").unwrap();
    data[RANGE as usize..][..10].fill(4);
    assert!(read(&pair, &live, 0, data.len()) == data);
    pair.store().write(&live, 0, &[8], false).unwrap();
    assert_eq!(read(&pair, &live, 0, 2), [8, data[1]]);
    pair.store().release(&live);
    let (_, live, _) = file(&pair);
    is_as_at_home(&pair, &live);
    pair.store().release(&live);
}

/// Somebody changes or replaces the file directly on its tier: while it is closed, while it is open, between two mounts.
fn changed_outside() {
    let mut pair = ranged(1);
    let (node, live, _) = file(&pair);
    warm_all(&pair, &live);
    pair.store().release(&live);
    edit(&pair.slow("f"), b"closed");
    let live = pair.store().live(node).unwrap();
    is_as_at_home(&pair, &live);
    warm_all(&pair, &live);
    edit(&pair.slow("f"), b"opened");
    pair.store().release(&live);
    let live = pair.store().live(node).unwrap();
    is_as_at_home(&pair, &live);
    warm_all(&pair, &live);
    pair.store().release(&live);
    fs::write(pair.slow("new"), pattern(5, BYTES)).unwrap();
    fs::rename(pair.slow("new"), pair.slow("f")).unwrap();
    let live = pair.store().live(node).unwrap();
    is_as_at_home(&pair, &live);
    warm_all(&pair, &live);
    // The server is killed with the ranges; the file is changed so that nobody can tell, and mounted.
    let times = fs::metadata(pair.slow("f")).unwrap().modified().unwrap();
    edit(&pair.slow("f"), b"between");
    let home = fs::File::options()
        .write(true)
        .open(pair.slow("f"))
        .unwrap();
    home.set_modified(times).unwrap();
    drop(live);
    mount(&mut pair, 1);
    assert_eq!(pair.left(), 0);
    let node = pair.store().cat().find(b"f").unwrap();
    assert_eq!(kept(&pair, node), 0);
    let live = pair.store().live(node).unwrap();
    is_as_at_home(&pair, &live);
    pair.store().release(&live);
}

#[test]
fn changes_outside_are_seen() {
    changed_outside();
}

/// Others need the space: ranges go first, and none is made while the tier is short.
#[test]
fn ranges_give_way() {
    let Some(mut pair) = Pair::with_limits("fast", "size=4M") else {
        return;
    };
    mount(&mut pair, 100);
    let (node, live, data) = file(&pair);
    warm_all(&pair, &live);
    let used = || pair.store().copies.ranges.used.load(Ordering::Relaxed);
    assert_eq!(used(), 6 * RANGE);
    let (_, other, _) = pair.store().create(0, b"new", 0o600, owner()).unwrap();
    let store = pair.store();
    let large = vec![3; 3700 << 10];
    store.write(&other, 0, &large, false).unwrap();
    assert_eq!(
        store
            .cat()
            .get(store.cat().find(b"new").unwrap())
            .unwrap()
            .tier,
        0
    );
    assert!(kept(&pair, node) < 5 && used() == kept(&pair, node) * RANGE);
    assert!(read(&pair, &live, 0, data.len()) == data);
    let (_, rest, _) = store.create(0, b"rest", 0o600, owner()).unwrap();
    store.write(&rest, 0, &vec![3; 500 << 10], false).unwrap();
    for _ in 0..50 {
        read(&pair, &live, 3 * RANGE, 100);
        assert!(read(&pair, &live, 0, data.len()) == data);
    }
    is_as_at_home(&pair, &live);
    for l in [&live, &other, &rest] {
        store.release(l);
    }
}

/// The fast tier has no space for a write to a range. (The file system counts what is written, not what is set aside.)
#[test]
fn a_share_of_the_tier_is_not_exceeded() {
    let Some(mut pair) = Pair::with_limits("fast", "size=8M") else {
        return;
    };
    // 2 ranges.
    mount(&mut pair, 2);
    let (node, live, data) = file(&pair);
    let mut random = SplitMix64::new(1);
    for _ in 0..500 {
        let at = random.below(BYTES);
        let got = read(&pair, &live, at, 3000);
        assert!(got == data[at as usize..][..got.len()]);
    }
    assert!((1..=2).contains(&kept(&pair, node)));
    assert!(pair.store().copies.ranges.used.load(Ordering::Relaxed) <= 2 * RANGE);
    // 0: the file is copied as a whole.
    pair.store().release(&live);
    mount(&mut pair, 0);
    let node = pair.store().cat().find(b"f").unwrap();
    let live = pair.store().live(node).unwrap();
    for _ in 0..50 {
        read(&pair, &live, 0, 4096);
    }
    assert_eq!(hits(&pair), 0);
    pair.store().release(&live);
}

/// Many readers, and writers of the same bytes, while ranges come and go: each read is of one write that had begun.
#[test]
fn readers_and_writers_at_the_same_time() {
    let Some(mut pair) = Pair::with_limits("fast", "size=8M") else {
        return;
    };
    mount(&mut pair, 3);
    let (node, live, _) = file(&pair);
    let store = pair.store();
    // Each block of 512 bytes has one byte, the number of its last write.
    store
        .write(&live, 0, &vec![0; BYTES as usize], false)
        .unwrap();
    let blocks = 64u64;
    let place = |b: u64| b * (BYTES / blocks) / 512 * 512;
    std::thread::scope(|scope| {
        for w in 0..2 {
            let live = &live;
            scope.spawn(move || {
                for n in 1..=200u64 {
                    for b in (w..blocks).step_by(2) {
                        store.write(live, place(b), &[n as u8; 512], false).unwrap();
                        let now = read_of(store, live, place(b), 512);
                        assert!(now.iter().all(|x| u64::from(*x) == n), "an old byte");
                    }
                    if n % 16 == 0 {
                        store.copies.ranges.give_way(1 << 20);
                    }
                }
            });
        }
        for r in 0..2 {
            let live = &live;
            scope.spawn(move || {
                let mut random = SplitMix64::new(r);
                let mut last = vec![0; blocks as usize];
                for _ in 0..20_000 {
                    let b = random.below(blocks);
                    let now = read_of(store, live, place(b), 512)[0];
                    assert!(now >= last[b as usize], "time goes back");
                    last[b as usize] = now;
                }
            });
        }
    });
    is_as_at_home(&pair, &live);
    assert!(hits(&pair) > 0 && kept(&pair, node) <= 3);
    store.release(&live);
}

/// Random changes while the file moves, is opened and closed, and ranges are given up.
#[test]
fn random_changes_are_read_back() {
    let base = std::env::var("ISOTHERM_SEED").ok();
    let base = base.and_then(|s| s.parse().ok()).unwrap_or(2026u64);
    for seed in base..base + 4 {
        random_changes(seed);
    }
}

fn random_changes(seed: u64) {
    let pair = ranged(1);
    let store = pair.store();
    let (node, mut live, mut expected) = file(&pair);
    let mut random = SplitMix64::new(seed);
    for _ in 0..600 {
        let (at, len) = (random.below(BYTES), 1 + random.below(2 * RANGE));
        match random.below(16) {
            0..=3 => {
                let data = vec![random.draw() as u8; len as usize];
                store.write(&live, at, &data, false).unwrap();
                let end = (at + len) as usize;
                expected.resize(expected.len().max(end), 0);
                expected[at as usize..end].copy_from_slice(&data);
            }
            4 => {
                store.set_attr(node, &size(at)).unwrap();
                expected.resize(at as usize, 0);
            }
            5 => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let mode = mode.bits() as i32;
                if store.fallocate(&live, at, len, mode) != Err(Errno::OPNOTSUPP) {
                    let all = expected.len();
                    expected[all.min(at as usize)..all.min((at + len) as usize)].fill(0);
                }
            }
            6 => {
                store.release(&live);
                live = store.live(node).unwrap();
            }
            7 => {
                store.copies.ranges.give_way(len);
            }
            8 if random.below(8) == 0 => {
                assert_eq!(store.move_file(node, 0), Outcome::Done);
                assert_eq!(store.move_file(node, 1), Outcome::Done);
            }
            _ => {
                for _ in 0..3 {
                    let got = read(&pair, &live, at, len as usize);
                    let all = expected.len();
                    let end = all.min((at + len) as usize);
                    assert!(got == expected[all.min(at as usize)..end], "seed {seed}");
                }
            }
        }
    }
    is_as_at_home(&pair, &live);
    assert!(read(&pair, &live, 0, expected.len() + 1) == expected);
    store.release(&live);
    assert!(hits(&pair) > 100, "{}", hits(&pair));
}

#[test]
fn every_rule_of_ranges_is_needed() {
    let caught = |mutant, scene: fn()| {
        choose(Some(mutant));
        let noticed = std::panic::catch_unwind(scene).is_err();
        choose(None);
        assert!(noticed, "not noticed: {mutant:?}");
    };
    caught(Mutant::ForgetRange, changes);
    caught(Mutant::KeepCutRange, changes);
    caught(Mutant::TrustChangedHome, changed_outside);
}
