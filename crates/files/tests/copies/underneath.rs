//! Files that somebody puts directly on a tier are never replaced unseen.

use crate::{Pair, owner};
use rustix::io::Errno;
use std::fs;

fn on_fast(pair: &Pair, name: &[u8], data: &[u8]) {
    let (_, live, _) = pair.store().create(0, name, 0o600, owner()).unwrap();
    pair.store().write(&live, 0, data, false).unwrap();
    pair.store().release(&live);
}

fn put(pair: &Pair, name: &str, data: &str) {
    fs::write(pair.root.join("fast/new"), data).unwrap();
    fs::rename(
        pair.root.join("fast/new"),
        pair.root.join("fast").join(name),
    )
    .unwrap();
}

#[test]
fn a_rename_replaces_only_what_is_shown() {
    let pair = Pair::new();
    let store = pair.store();
    let rename = |a: &[u8], b: &[u8], exchange| store.rename(0, a, 0, b, false, exchange);
    let fast = |name: &str| fs::read_to_string(pair.root.join("fast").join(name)).unwrap();
    // The target was replaced, or the source.
    on_fast(&pair, b"f", b"f");
    on_fast(&pair, b"g", b"g");
    put(&pair, "g", "precious");
    assert_eq!(rename(b"f", b"g", false), Err(Errno::STALE));
    assert_eq!((fast("f"), fast("g")), ("f".into(), "precious".into()));
    put(&pair, "f", "other");
    assert_eq!(rename(b"f", b"g", true), Err(Errno::STALE));
    assert_eq!((fast("f"), fast("g")), ("other".into(), "precious".into()));
    // Now both are shown as they are.
    assert_eq!(rename(b"f", b"g", false), Ok(()));
    assert_eq!(fast("g"), "other");
    // The target is on the slow tier, and somebody has put a file of that name on the fast one.
    pair.file("s", b"slow");
    put(&pair, "s", "precious");
    assert_eq!(rename(b"g", b"s", false), Err(Errno::EXIST));
    assert_eq!(fast("s"), "precious");
    assert_eq!(fs::read(pair.slow("s")).unwrap(), b"slow");
    fs::remove_file(pair.root.join("fast/s")).unwrap();
    assert_eq!(rename(b"g", b"s", false), Ok(()));
    assert_eq!(fast("s"), "other");
    assert!(!pair.slow("s").exists());
}

/// A directory that could not be removed from every tier is on all of them again.
#[test]
fn a_directory_that_stays_is_still_on_every_tier() {
    let pair = Pair::new();
    let store = pair.store();
    let dir = store.mkdir(0, b"d", 0o751, owner()).unwrap();
    let (node, live, _) = store.create(dir, b"f", 0o600, owner()).unwrap();
    store.release(&live);
    assert_eq!(
        store.move_file(node, 1),
        isotherm_files::mover::Outcome::Done
    );
    store.unlink(dir, b"f").unwrap();
    fs::write(pair.root.join("fast/d/under"), "made underneath").unwrap();
    assert_eq!(store.rmdir(0, b"d"), Err(Errno::NOTEMPTY));
    assert!(pair.slow("d").is_dir() && pair.root.join("fast/d/under").exists());
    fs::remove_file(pair.root.join("fast/d/under")).unwrap();
    assert_eq!(store.rmdir(0, b"d"), Ok(()));
    assert!(!pair.slow("d").exists() && !pair.root.join("fast/d").exists());
}
