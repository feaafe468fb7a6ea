//! What must be the same on all disks that have it: who may use a directory; and what only one may have: the name of a file.

use crate::set::filled;
use crate::{Place, file_on, find, mkdir, mount_again, owner, read, said, unmount};
use isotherm_files::attributes::{SetAttr, SetTime};
use isotherm_files::check::check;
use isotherm_files::store::Store;
use isotherm_files::tree::Time;
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

const KEEP: SetAttr = SetAttr {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: SetTime::Keep,
    mtime: SetTime::Keep,
    strip: false,
};

fn chmod(store: &Store, path: &str, mode: u32) -> Result<u32, Errno> {
    let set = SetAttr {
        mode: Some(mode),
        ..KEEP
    };
    let done = store.set_attr(find(store, path), &set);
    done.map(|f| f.mode & 0o7777)
}

/// The modes of a directory on the disks that have it.
fn modes(place: &Place, path: &str) -> Vec<u32> {
    let on = place.on(path).into_iter();
    let meta = on.map(|d| fs::metadata(place.root.join(d).join(path)).unwrap());
    meta.map(|m| m.permissions().mode() & 0o7777).collect()
}

/// A change of a directory that would be undone when an absent disk is back fails, like a rename; and what is done lasts.
#[test]
fn attributes_of_a_directory_are_not_undone_by_a_disk_that_returns() {
    let place = filled();
    let times = |sec| SetAttr {
        mtime: SetTime::At(Time { sec, nsec: 0 }),
        ..KEEP
    };
    let own = SetAttr {
        uid: Some(owner().uid + 1),
        ..KEEP
    };
    let user = [b"user.x".as_slice(), b"1"];
    // The first of its disks is there.
    unmount(&place, "d3");
    let store = place.open_as(|s| s.degraded = true).unwrap();
    let dir = find(&store, "dir");
    assert_eq!(chmod(&store, "dir", 0o775), Err(Errno::IO));
    assert_eq!(store.set_attr(dir, &own), Err(Errno::IO));
    let acl = b"system.posix_acl_access";
    assert_eq!(store.set_xattr(dir, acl, b"", 0), Err(Errno::IO));
    assert_eq!(store.remove_xattr(dir, acl), Err(Errno::IO));
    assert_eq!(modes(&place, "dir"), [0o755; 3], "nothing is half done");
    assert_eq!(chmod(&store, ".", 0o1777), Ok(0o1777));
    assert_eq!(chmod(&store, "dir", 0o750), Ok(0o750));
    assert!(store.set_attr(dir, &times(77)).is_ok());
    let marked = store.set_xattr(dir, user[0], user[1], 0).is_ok();
    drop(store);
    mount_again(&place, "d3");
    let store = place.open();
    let facts = store.facts(find(&store, "dir")).unwrap();
    assert_eq!((facts.mode & 0o7777, facts.mtime.sec), (0o750, 77));
    assert_eq!(
        store.facts(find(&store, ".")).unwrap().mode & 0o7777,
        0o1777
    );
    assert_eq!(modes(&place, "dir"), [0o750; 4]);
    assert_eq!(marked, !store.cat().xattrs(find(&store, "dir")).is_empty());
    drop(store);
    // The first is absent: everything would be undone.
    fs::remove_dir(place.root.join("fast/dir")).unwrap();
    drop(place.open());
    unmount(&place, "d1");
    let store = place.open_as(|s| s.degraded = true).unwrap();
    let dir = find(&store, "dir");
    assert_eq!(chmod(&store, "dir", 0o700), Err(Errno::IO));
    assert_eq!(store.set_attr(dir, &times(78)), Err(Errno::IO));
    assert_eq!(store.set_xattr(dir, user[0], b"2", 0), Err(Errno::IO));
    assert_eq!(store.remove_xattr(dir, user[0]), Err(Errno::IO));
    mkdir(&store, "other");
    assert_eq!(chmod(&store, "other", 0o777), Ok(0o777));
    drop(store);
    mount_again(&place, "d1");
    assert_eq!(chmod(&place.open(), "dir", 0o775), Ok(0o775));
    assert_eq!(modes(&place, "dir"), [0o775; 3]);
}

/// kill -9 after some disks have a new mode, whether it gives or takes rights: all have the stricter one after the next mount, and it says
/// so. The same for directories that were filled apart.
#[test]
fn the_strictest_mode_holds_on_all_disks() {
    for (old, new) in [(0o755, 0o700), (0o700, 0o755), (0o750, 0o705)] {
        for done in 1..=3 {
            let place = filled();
            for (i, d) in ["d3", "d2", "d1", "fast"].iter().enumerate() {
                let mode = if i < done { new } else { old };
                let dir = place.root.join(d).join("dir");
                fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
            }
            let store = place.open();
            let strict = old & new;
            let shown = store.facts(find(&store, "dir")).unwrap().mode & 0o7777;
            assert_eq!(
                (shown, modes(&place, "dir")),
                (strict, vec![strict; 4]),
                "{done}"
            );
            let line = format!(
                "dir: owner, mode or access lists were not the same on all disks: the strictest hold from now on (mode {strict:04o}"
            );
            assert!(said(&store).contains(&line), "{}", said(&store));
            let found = check(&store, false);
            assert_eq!(found["ok"], true, "{found}");
            drop(store);
            assert!(!said(&place.open()).contains("were not the same"));
        }
    }
}

/// Others change a directory on one disk while it is mounted: a check tells, and a repair gives the strictest to all.
#[test]
fn a_check_finds_directories_that_are_not_alike() {
    let place = filled();
    let store = place.open();
    let dir = place.root.join("d2/dir");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    let found = check(&store, false);
    let line = found["findings"][0].as_str().unwrap_or_default();
    let d2 = place.root.join("d2").display().to_string();
    assert!(
        line.starts_with("dir: has another owner, mode or access list on ") && line.contains(&d2),
        "{found}"
    );
    assert_eq!(check(&store, true)["repaired"], true);
    assert_eq!(modes(&place, "dir"), [0o700; 4]);
    assert_eq!(
        store.facts(find(&store, "dir")).unwrap().mode & 0o7777,
        0o700
    );
    assert_eq!(check(&store, false)["ok"], true);
}

/// If owners or access lists differ, root owns the directory, or only its owner may use it.
#[test]
fn a_private_directory_does_not_become_public() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root");
        return;
    }
    let place = Place::new();
    for d in ["d1", "d3"] {
        for dir in ["owners", "lists"] {
            let dir = place.root.join(d).join(dir);
            fs::create_dir(&dir).unwrap();
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    std::os::unix::fs::chown(place.root.join("d1/owners"), Some(1000), Some(1000)).unwrap();
    // A list: its owner may do everything, user 65534 and the others may read.
    let entry = |tag: u16, rights: u16, id: u32| {
        [
            &tag.to_le_bytes()[..],
            &rights.to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .concat()
    };
    let none = u32::MAX;
    let entries = [
        (1, 7, none),
        (2, 7, 65534),
        (4, 5, none),
        (16, 7, none),
        (32, 5, none),
    ];
    let mut list = 2u32.to_le_bytes().to_vec();
    list.extend(entries.iter().flat_map(|e| entry(e.0, e.1, e.2)));
    let name = "system.posix_acl_access";
    let flags = rustix::fs::XattrFlags::empty();
    let listed = rustix::fs::setxattr(place.root.join("d1/lists"), name, &list, flags);
    let store = place.open();
    let facts = |path: &str| {
        let f = store.facts(find(&store, path)).unwrap();
        (f.uid, f.mode & 0o7777)
    };
    assert_eq!(facts("owners"), (0, 0o755));
    let on_disk = fs::metadata(place.root.join("d1/owners")).unwrap();
    assert_eq!(on_disk.uid(), 0);
    if listed.is_err() {
        println!("SKIPPED: needs access lists");
        return;
    }
    assert_eq!(facts("lists"), (0, 0o700));
    let node = find(&store, "lists");
    assert!(store.cat().xattrs(node).is_empty());
    let left = rustix::fs::getxattr(place.root.join("d1/lists"), name, &mut [0u8; 64][..]);
    assert_eq!(left, Err(Errno::NODATA));
}

/// Attributes without a part in who may do what: those of the first disk are shown. A difference is told, and mended only on request, because
/// what the other disks have is lost then.
#[test]
fn a_check_finds_attributes_that_differ() {
    let place = Place::new();
    let store = place.open();
    mkdir(&store, "d");
    for (disk, name) in (1..).zip(["d/1", "d/2"]) {
        file_on(&store, name, disk);
    }
    let flags = rustix::fs::XattrFlags::empty();
    let at = |disk: &str| place.root.join(disk).join("d");
    let get = |disk: &str, name: &str| {
        let mut value = [0; 8];
        let n = rustix::fs::getxattr(at(disk), name, &mut value[..])?;
        Ok::<_, Errno>(value[..n].to_vec())
    };
    if rustix::fs::setxattr(at("fast"), "user.a", b"1", flags).is_err() {
        println!("SKIPPED: needs extended attributes");
        return;
    }
    rustix::fs::setxattr(at("d1"), "user.b", b"2", flags).unwrap();
    drop(store);
    let store = place.open();
    assert_eq!(said(&store).matches("were not the same").count(), 0);
    let found = check(&store, false)["findings"].clone();
    let line = found[0].as_str().unwrap();
    assert!(
        line.starts_with("d: has other extended attributes on"),
        "{found}"
    );
    assert_eq!(
        get("d1", "user.b").unwrap(),
        b"2",
        "a check changes nothing"
    );
    assert_eq!(check(&store, true)["repaired"], true);
    for disk in ["fast", "d1", "d2"] {
        assert_eq!(get(disk, "user.a").unwrap(), b"1", "{disk}");
        assert_eq!(get(disk, "user.b"), Err(Errno::NODATA), "{disk}");
    }
    assert_eq!(check(&store, false)["ok"], true);
}

/// A name that a second disk gets while it is mounted makes the next mount refuse, so a check tells it, also for a file against a directory.
#[test]
fn a_check_finds_names_that_two_disks_have() {
    let place = Place::new();
    let store = place.open();
    file_on(&store, "n", 1);
    mkdir(&store, "d");
    fs::write(place.root.join("d2/n"), "other").unwrap();
    fs::write(place.root.join("d3/d"), "other").unwrap();
    for repair in [false, true] {
        let found = check(&store, repair);
        let lines = found["findings"].as_array().unwrap();
        assert_eq!((&found["ok"], lines.len()), (&false.into(), 2), "{found}");
        let is = |at: usize, disk: &str, part: &str| {
            let line = lines[at].as_str().unwrap();
            let disk = place.root.join(disk).display().to_string();
            assert!(line.contains(part) && line.contains(&disk), "{line}");
        };
        is(0, "d3", "d: is something else underneath");
        is(1, "d2", "n: is on");
    }
    assert_eq!(read(&store, "n").unwrap(), b"n");
    drop(store);
    assert!(
        place
            .refused(|_| {})
            .contains("names are taken on two tiers")
    );
}
