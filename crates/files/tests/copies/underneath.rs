//! Files that somebody puts directly on a tier are never replaced unnoticed.

use crate::{Pair, owner, size};
use isotherm_files::attributes::SetAttr;
use isotherm_files::names::IfPresent;
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::PermissionsExt;

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
    let rename = |a: &[u8], b: &[u8], if_present| store.rename((0, a), (0, b), if_present);
    let fast = |name: &str| fs::read_to_string(pair.root.join("fast").join(name)).unwrap();
    // The target was replaced, or the source.
    on_fast(&pair, b"f", b"f");
    on_fast(&pair, b"g", b"g");
    put(&pair, "g", "precious");
    assert_eq!(rename(b"f", b"g", IfPresent::Replace), Err(Errno::STALE));
    assert_eq!((fast("f"), fast("g")), ("f".into(), "precious".into()));
    put(&pair, "f", "other");
    assert_eq!(rename(b"f", b"g", IfPresent::Exchange), Err(Errno::STALE));
    assert_eq!((fast("f"), fast("g")), ("other".into(), "precious".into()));
    // A new name or other attributes would be those of the other file.
    let node = store.cat().find(b"g").unwrap();
    put(&pair, "g", "precious");
    assert_eq!(store.link(node, 0, b"h"), Err(Errno::STALE));
    put(&pair, "g", "precious");
    let mode = SetAttr {
        mode: Some(0o777),
        size: None,
        ..size(0)
    };
    assert!(store.set_attr(node, &mode).is_err());
    assert_eq!(
        store.rename((0, b"g"), (0, b"i"), IfPresent::Refuse),
        Err(Errno::STALE)
    );
    // Now both are shown as they are.
    assert_eq!(rename(b"f", b"g", IfPresent::Replace), Ok(()));
    assert_eq!(fast("g"), "other");
    // The target is on the slow tier, and somebody has put a file of that name on the fast one.
    pair.file("s", b"slow");
    put(&pair, "s", "precious");
    assert_eq!(rename(b"g", b"s", IfPresent::Replace), Err(Errno::EXIST));
    assert_eq!(fast("s"), "precious");
    assert_eq!(fs::read(pair.slow("s")).unwrap(), b"slow");
    fs::remove_file(pair.root.join("fast/s")).unwrap();
    assert_eq!(rename(b"g", b"s", IfPresent::Replace), Ok(()));
    assert_eq!(fast("s"), "other");
    assert!(!pair.slow("s").exists());
}

/// Somebody who may write below a tier puts a symbolic link in the place of a directory. Nothing outside of the tier changes, whatever is
/// done with the names in that directory.
#[test]
fn links_that_lead_out_of_a_tier_are_not_followed() {
    let pair = Pair::new();
    let store = pair.store();
    let outside = pair.root.join("outside");
    fs::create_dir_all(outside.join("sub")).unwrap();
    for name in ["f", "g"] {
        fs::write(outside.join(name), "precious").unwrap();
    }
    fs::set_permissions(outside.join("f"), fs::Permissions::from_mode(0o600)).unwrap();
    let dir = store.mkdir(0, b"d", 0o755, owner()).unwrap();
    let sub = store.mkdir(dir, b"sub", 0o755, owner()).unwrap();
    let (node, live, _) = store.create(dir, b"f", 0o644, owner()).unwrap();
    store.release(&live);
    on_fast(&pair, b"other", b"other");
    let other = store.cat().find(b"other").unwrap();
    let fast = pair.root.join("fast");
    fs::rename(fast.join("d"), fast.join("away")).unwrap();
    std::os::unix::fs::symlink(&outside, fast.join("d")).unwrap();
    let mode = SetAttr {
        mode: Some(0o666),
        size: None,
        ..size(0)
    };
    let results = [
        store.set_attr(node, &mode).map(|_| ()),
        store.set_attr(sub, &mode).map(|_| ()),
        store.set_xattr(node, b"user.x", b"1", 0),
        store.mkdir(dir, b"new", 0o700, owner()).map(|_| ()),
        store.symlink(dir, b"new", b"to", owner()).map(|_| ()),
        store.mknod(dir, b"new", 0o010_600, 0, owner()).map(|_| ()),
        store.create(dir, b"new", 0o600, owner()).map(|_| ()),
        store.link(other, dir, b"new"),
        store.rename((0, b"other"), (dir, b"g"), IfPresent::Replace),
        store.rename((0, b"other"), (dir, b"f"), IfPresent::Replace),
        store.unlink(dir, b"f").map(|_| ()),
        store.rmdir(dir, b"sub"),
    ];
    for (i, r) in results.iter().enumerate() {
        assert!(r.is_err(), "{i}");
    }
    let mut left: Vec<_> = (fs::read_dir(&outside).unwrap())
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["f", "g", "sub"]);
    let mode = fs::metadata(outside.join("f"))
        .unwrap()
        .permissions()
        .mode()
        & 0o7777;
    assert_eq!(mode, 0o600);
    for name in ["f", "g"] {
        assert_eq!(fs::read(outside.join(name)).unwrap(), b"precious");
    }
    // A link in the place of a file is not followed either.
    fs::remove_file(fast.join("other")).unwrap();
    std::os::unix::fs::symlink(outside.join("f"), fast.join("other")).unwrap();
    let mode = SetAttr {
        mode: Some(0o666),
        size: None,
        ..size(0)
    };
    assert!(store.set_attr(other, &mode).is_err());
    let mode = fs::metadata(outside.join("f"))
        .unwrap()
        .permissions()
        .mode()
        & 0o7777;
    assert_eq!(mode, 0o600);
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

/// As above, with the link at each depth of the path: a link in the place of any directory of it, or of its last part.
fn links_at_each_depth() -> bool {
    let parts = ["a", "b", "c", "f"];
    let mut kept = true;
    for depth in 0..parts.len() {
        let pair = Pair::new();
        let store = pair.store();
        let (fast, outside) = (pair.root.join("fast"), pair.root.join("outside"));
        let below = parts[depth + 1..].join("/");
        let (a, b, c) = {
            let dir = |up, name: &[u8]| store.mkdir(up, name, 0o755, owner()).unwrap();
            let a = dir(0, b"a");
            let b = dir(a, b"b");
            (a, b, dir(b, b"c"))
        };
        let (node, live, _) = store.create(c, b"f", 0o644, owner()).unwrap();
        store.release(&live);
        let (other, live, _) = store.create(0, b"other", 0o644, owner()).unwrap();
        store.release(&live);
        // What the link leads to looks like what was there.
        let name = fast.join(parts[..=depth].join("/"));
        let precious = if below.is_empty() {
            outside.clone()
        } else {
            outside.join(&below)
        };
        fs::rename(&name, pair.root.join("away")).unwrap();
        fs::create_dir_all(precious.parent().unwrap()).unwrap();
        fs::write(&precious, "precious").unwrap();
        fs::set_permissions(&precious, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&outside, &name).unwrap();
        let mode = SetAttr {
            mode: Some(0o666),
            size: None,
            ..size(0)
        };
        let into = [a, b, c][depth.min(2)];
        let _ = store.set_attr(node, &mode);
        let _ = store.set_attr(node, &size(3));
        let _ = store.set_xattr(node, b"user.x", b"1", 0);
        let _ = store.live(node).map(|l| store.release(&l));
        let _ = store.move_file(node, 1);
        if depth < 3 {
            let _ = store.create(into, b"new", 0o600, owner());
            let _ = store.mkdir(into, b"dir", 0o700, owner());
            let _ = store.symlink(into, b"link", b"to", owner());
            let _ = store.mknod(into, b"pipe", 0o010_600, 0, owner());
            let _ = store.link(other, into, b"name");
            let _ = store.rename((0, b"other"), (into, b"moved"), IfPresent::Replace);
        }
        let _ = store.rename((c, b"f"), (0, b"g"), IfPresent::Replace);
        let _ = store.unlink(c, b"f");
        let _ = store.rmdir(b, b"c");
        let _ = isotherm_files::check::check(store, true);
        let _ = store.unlink(c, b"f");
        let (mut files, mut todo) = (Vec::new(), vec![outside.clone()]);
        while let Some(at) = todo.pop() {
            match fs::read_dir(&at) {
                Ok(all) => todo.extend(all.map(|e| e.unwrap().path())),
                Err(_) => files.push(at),
            }
        }
        let same = || {
            let mode = fs::symlink_metadata(&precious).ok()?.permissions().mode() & 0o7777;
            Some((fs::read(&precious).ok()?, mode))
        };
        kept &= same() == Some((b"precious".to_vec(), 0o600)) && files.len() == 1;
    }
    kept
}

#[test]
fn links_at_each_depth_of_a_path_are_not_followed() {
    use isotherm_files::mutants::{Mutant, choose};
    assert!(links_at_each_depth());
    choose(Some(Mutant::FollowLinks));
    let kept = std::panic::catch_unwind(links_at_each_depth).unwrap_or(false);
    choose(None);
    assert!(!kept, "not noticed");
}
