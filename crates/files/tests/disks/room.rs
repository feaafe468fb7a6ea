//! The disk of a file: the create rule, full disks, quotas.

use crate::{Place, file, file_on, find, mkdir, owner, send_down, status};
use isotherm_files::layout::Create;
use rustix::io::Errno;
use std::sync::Arc;

/// Writes that many MiB at the end of a file.
fn grow(store: &isotherm_files::store::Store, path: &str, mib: u64) -> Result<(), Errno> {
    let live = store.live(find(store, path)).unwrap();
    let from = live.facts().unwrap().size;
    let done = (0..mib).try_for_each(|n| {
        let piece = vec![b'x'; 1 << 20];
        store.write(&live, from + (n << 20), &piece, false)
    });
    store.release(&Arc::clone(&live));
    done
}

fn tier(store: &isotherm_files::store::Store, path: &str) -> u8 {
    store.cat().get(find(store, path)).unwrap().tier
}

/// What the mover sends down goes where the rule says, also if a quota leaves less than each disk has: it is that of all together.
#[test]
fn a_demotion_follows_the_create_rule() {
    for (create, expected, quota) in [
        (Create::SameDirectory, 1, None),
        (Create::MostFree, 2, None),
        (Create::PercentFree, 3, None),
        (Create::SameDirectory, 1, Some(14 << 20)),
        (Create::MostFree, 2, Some(14 << 20)),
        (Create::PercentFree, 3, Some(14 << 20)),
    ] {
        let Some(mut place) = Place::with_sizes([8, 32, 16]) else {
            return;
        };
        place.create = create;
        let store = place.open();
        // 4, 24 and 15 MiB are free, or so.
        mkdir(&store, "dir");
        file_on(&store, "dir/f1", 1);
        grow(&store, "dir/f1", 4).unwrap();
        file_on(&store, "f2", 2);
        grow(&store, "f2", 8).unwrap();
        file_on(&store, "f3", 3);
        let store = {
            drop(store);
            place.open_as(|s| s.quotas = vec![None, quota]).unwrap()
        };
        let new = file(&store, "dir/new");
        mkdir(&store, "other");
        file(&store, "other/new");
        send_down(&store);
        assert_eq!(store.cat().get(new).unwrap().tier, expected, "{create:?}");
        // A directory that no disk has goes where the most is free.
        let other = if create == Create::PercentFree { 3 } else { 2 };
        assert_eq!(tier(&store, "other/new"), other, "{create:?}");
    }
}

/// A disk above its upper mark gets no new files while another one is below, although it has their directory.
#[test]
fn a_disk_above_its_mark_gets_no_new_files() {
    let Some(place) = Place::with_sizes([8, 8, 8]) else {
        return;
    };
    let store = place.open_as(|s| s.marks = (50, 60)).unwrap();
    mkdir(&store, "dir");
    file_on(&store, "dir/f1", 1);
    file(&store, "dir/a");
    send_down(&store);
    assert_eq!(tier(&store, "dir/a"), 1);
    grow(&store, "dir/f1", 6).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(600));
    file(&store, "dir/b");
    send_down(&store);
    assert_ne!(tier(&store, "dir/b"), 1);
    let slow = &status(&store)["tiers"][1];
    assert_eq!(slow["disks"][0]["above_mark"], true, "{slow}");
    assert_eq!(
        (&slow["above_mark"], &slow["files"]),
        (&false.into(), &3.into())
    );
}

/// A file that grows on a full disk moves to another disk of the tier, and the write goes on. ENOSPC only if no disk has room.
#[test]
fn a_file_that_outgrows_its_disk_moves_on() {
    let Some(place) = Place::with_sizes([8, 8, 24]) else {
        return;
    };
    let store = place.open_as(|s| s.quotas = vec![Some(0), None]).unwrap();
    file_on(&store, "f", 1);
    let live = store.live(find(&store, "f")).unwrap();
    grow(&store, "f", 6).unwrap();
    assert_eq!(tier(&store, "f"), 1);
    grow(&store, "f", 8).unwrap();
    assert_eq!(tier(&store, "f"), 3);
    // A file of which the kernel itself writes cannot move: another one leaves its disk.
    store.release(&live);
    file_on(&store, "stays", 1);
    file_on(&store, "goes", 1);
    grow(&store, "goes", 5).unwrap();
    let stays = store.live(find(&store, "stays")).unwrap();
    stays
        .had_passthrough
        .store(true, std::sync::atomic::Ordering::SeqCst);
    grow(&store, "stays", 6).unwrap();
    assert_eq!(tier(&store, "stays"), 1);
    assert_ne!(tier(&store, "goes"), 1);
    store.release(&stays);
}

/// New files go to another disk of the tier if theirs is full, and fail only if all are.
#[test]
fn a_new_file_goes_to_the_disk_that_has_room() {
    let Some(mut place) = Place::with_sizes([2, 2, 2]) else {
        return;
    };
    // The fast tier is full, too.
    let fast = place.root.join("fast");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("fast", &fast, "tmpfs", flags, c"size=2M").unwrap();
    place.mounted.push(fast);
    let store = place.open();
    mkdir(&store, "dir");
    let mut seen = [false; 4];
    let dir = find(&store, "dir");
    let full = (0..200).find_map(|n| {
        let name = format!("f{n}");
        let (node, live, _) = match store.create(dir, name.as_bytes(), 0o600, owner()) {
            Ok(made) => made,
            Err(e) => return Some(e),
        };
        let written = store.write(&live, 0, &vec![7; 100_000], false);
        store.release(&live);
        seen[usize::from(store.cat().get(node).unwrap().tier)] = true;
        written.err()
    });
    assert_eq!(full, Some(Errno::NOSPC));
    assert_eq!(seen, [true; 4]);
    let check = isotherm_files::check::check(&store, false);
    assert_eq!(check["ok"], true, "{check}");
}

/// The quota of a tier limits the sum of its disks. Disks on one file system share its space, which counts once.
#[test]
fn a_quota_is_of_the_tier_and_space_counts_once() {
    let place = Place::new();
    let store = place
        .open_as(|s| s.quotas = vec![None, Some(1 << 20)])
        .unwrap();
    file_on(&store, "a", 1);
    grow(&store, "a", 0).unwrap();
    let used = |store: &isotherm_files::store::Store| {
        let slow = &status(store)["tiers"][1];
        (
            slow["bytes"].as_u64().unwrap(),
            slow["free_bytes"].as_u64().unwrap(),
        )
    };
    let (bytes, free) = used(&store);
    assert!(bytes > 0 && bytes + free == 1 << 20, "{bytes} {free}");
    file_on(&store, "b", 3);
    let (more, less) = used(&store);
    assert_eq!((more, less), (2 * bytes, (1 << 20) - 2 * bytes));
    assert_eq!(store.room(2), (less, 1 << 20));
    drop(store);
    let store = place.open();
    let slow = &status(&store)["tiers"][1];
    let (one, all) = (&slow["disks"][0]["room_bytes"], &slow["room_bytes"]);
    assert_eq!(one, all);
}

/// A pin that a mount of more tiers has left is to the slowest tier, and moves no file from one of its disks to another.
#[test]
fn a_pin_beyond_the_slowest_tier_is_to_that() {
    let place = Place::new();
    let store = place.open();
    file_on(&store, "on disk 3", 3);
    file(&store, "new");
    let pin = |s: &mut isotherm_files::policy_state::PlacementSettings| {
        s.pins.insert(".".into(), 7);
    };
    store.change_settings(pin).unwrap();
    assert_eq!(store.migrate_now(), 1);
    assert_eq!((tier(&store, "on disk 3"), tier(&store, "new")), (3, 1));
}

/// As many disks as there can be, and one more.
#[test]
fn there_may_be_sixteen_directories() {
    let place = Place::new();
    let dirs: Vec<_> = (0..14)
        .map(|n| place.root.join(format!("more{n}")))
        .collect();
    for dir in &dirs {
        std::fs::create_dir(dir).unwrap();
    }
    let settings = |n: usize| {
        let mut s = place.settings();
        s.more_slow = dirs[..n].to_vec();
        s
    };
    let store = isotherm_files::store::Store::open(&settings(14)).unwrap();
    mkdir(&store, "dir");
    file_on(&store, "dir/f", 15);
    assert_eq!(crate::read(&store, "dir/f").unwrap(), b"dir/f");
    assert!(dirs[13].join("dir/f").exists());
    drop(store);
    let mut more = settings(14);
    more.more_slow.push(place.root.join("d2"));
    let why = isotherm_files::store::Store::open(&more).err().unwrap();
    assert!(why.0.contains("at most 16"), "{why}");
}
