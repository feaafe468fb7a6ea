use super::*;
use crate::mutants::choose;
use crate::store::Store;
use std::path::PathBuf;

/// A store with the file `f` of four ranges on its slow tier, which is in use, and a second descriptor of it.
fn with_a_large_file(dir: &std::path::Path) -> (Store, Arc<crate::live::Live>) {
    let tiers: Vec<PathBuf> = ["fast", "slow"].map(|t| dir.join(t)).into();
    for t in &tiers {
        std::fs::create_dir(t).unwrap();
    }
    std::fs::write(dir.join("slow/f"), vec![1; 4 * RANGE as usize]).unwrap();
    let store = Store::open(&Settings {
        tiers,
        marks: (100, 100),
        copies: true,
        ranges: RangeSettings {
            percent: 1,
            from: RANGE,
        },
        ..Settings::default()
    });
    let store = store.unwrap();
    let node = store.cat().find(b"f").unwrap();
    let live = store.live(node).unwrap();
    (store, live)
}

/// Reads a byte of the first range until the range is kept.
fn keep(store: &Store, live: &crate::live::Live) {
    let hits = || store.copies.ranges.hits.load(Ordering::Relaxed);
    let before = hits();
    for _ in 0..20 {
        store.read(live, 0, &mut [0]).unwrap();
        if hits() > before {
            return;
        }
    }
    panic!("it is never kept");
}

/// A write comes between the read of a range at home and its end in the slot.
fn a_write_during_a_fill() {
    let dir = tempfile::tempdir().unwrap();
    let (store, live) = with_a_large_file(dir.path());
    let ranges = &store.copies.ranges;
    let cache = ranges.cache().unwrap();
    let old = vec![1; RANGE as usize];
    let begin = || {
        ranges.give_way(1 << 40);
        ranges.begin_fill(&store.tiers, cache, (live.node, 0), 0)
    };
    let fill = begin().unwrap();
    store.write(&live, 0, &[2], false).unwrap();
    ranges.end_fill(cache, &fill, Some(&old));
    let mut byte = [0];
    store.read(&live, 0, &mut byte).unwrap();
    assert_eq!(byte, [2]);
    // The same if the file was cut off, or closed and opened anew, or moved to and fro.
    let fill = begin().unwrap();
    store.truncate(live.node, 0, false).unwrap();
    store.truncate(live.node, 4 * RANGE, false).unwrap();
    ranges.end_fill(cache, &fill, Some(&old));
    store.read(&live, 0, &mut byte).unwrap();
    assert_eq!(byte, [0]);
    let fill = begin().unwrap();
    ranges.forget(live.node);
    let now = live.facts().unwrap();
    assert!(ranges.opened(&store.tiers, live.node, 1, &now));
    ranges.end_fill(cache, &fill, Some(&old));
    store.read(&live, 0, &mut byte).unwrap();
    assert_eq!(byte, [0]);
    // None begins during a change.
    let changing = ranges.begin_change(live.node).unwrap();
    assert!(begin().is_none());
    drop(changing);
    assert!(ranges.of(live.node).is_none(), "a change that never ended");
    store.release(&live);
}

#[test]
fn a_fill_keeps_no_bytes_from_before_a_write() {
    a_write_during_a_fill();
    choose(Some(Mutant::TrustOldFill));
    let noticed = std::panic::catch_unwind(a_write_during_a_fill).is_err();
    choose(None);
    assert!(noticed);
}

/// The fast tier does not give a range back, or take a write to it: the file at home has all bytes, and the range is dropped.
#[test]
fn an_error_of_the_fast_tier_drops_the_range() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, live) = with_a_large_file(dir.path());
    keep(&store, &live);
    let replace = |store: &mut Store, write: bool| {
        let path = dir.path().join("fast/bad");
        std::fs::write(&path, "").unwrap();
        let fd = std::fs::File::options()
            .read(!write)
            .write(write)
            .open(path);
        let cache = store
            .copies
            .ranges
            .cache
            .get_mut()
            .unwrap()
            .as_mut()
            .unwrap();
        std::mem::replace(&mut cache.fd, fd.unwrap().into())
    };
    let good = replace(&mut store, true);
    let mut byte = [0];
    store.read(&live, 0, &mut byte).unwrap();
    assert_eq!(byte, [1]);
    assert_eq!(store.copies.ranges.of(live.node).unwrap().ranges, 0);
    let cache = store
        .copies
        .ranges
        .cache
        .get_mut()
        .unwrap()
        .as_mut()
        .unwrap();
    cache.fd = good;
    keep(&store, &live);
    replace(&mut store, false);
    store.write(&live, 5, &[7], false).unwrap();
    assert_eq!(store.copies.ranges.of(live.node).unwrap().ranges, 0);
    store.read(&live, 5, &mut byte).unwrap();
    assert_eq!(byte, [7]);
    store.release(&live);
}

/// What the table takes does not depend on how large the files are.
#[test]
fn memory_depends_on_the_slots_alone() {
    // A small table also remembers eight times as many ranges without a slot.
    for (slots, most) in [(1 << 12, 500), (1 << 20, 250)] {
        let table = Table::new(slots, "benefit").unwrap();
        let each = table.bytes() as u64 / slots;
        println!("{each} bytes a slot of {slots}");
        assert!(each < most, "{each} bytes a slot of {slots}");
    }
    assert!(Table::new(0, "benefit").is_none());
    // A policy that keeps no copies.
    assert!(Table::new(64, "hro").is_some());
}
