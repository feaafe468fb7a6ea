//! The disk of a cache volume becomes a plain disk again.

mod common;

use common::Place;
use common::nbd::{MIB, back, copy_in, holds, noise};
use isotherm_core::MemberId;
use isotherm_core::store::open::Mode;
use isotherm_core::store::{self, Superblock, mark, release};
use isotherm_hostile::disk::{Disk, Disks};
use std::fs;
use std::process::Stdio;
use std::time::Duration;

fn with_data(place: &Place, data: &[u8]) {
    place.json("create v --fast f:24M --slow s:96M --policy lru", "create");
    let served = place.serve("v --nbd unix:n");
    copy_in(place, data);
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
}

/// What the volume showed is on the disk, from its first byte on.
fn is_plain(place: &Place, data: &[u8]) {
    let disk = fs::read(place.path("s")).expect("read");
    let differs = (0..data.len()).find(|&i| disk[i] != data[i]);
    assert_eq!(differs, None, "the first byte that differs");
    let rest = &disk[data.len()..];
    assert!(
        rest.iter().all(|&b| b == 0),
        "something is left behind the data"
    );
}

#[test]
fn the_disk_of_a_released_volume_holds_what_it_showed() {
    let place = Place::new();
    let data = noise(7, 40 * MIB);
    with_data(&place, &data);
    let out = place.run("release v");
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        out.status.code() == Some(2) && why.contains("--yes"),
        "{why}"
    );
    let served = place.serve("v --nbd unix:n");
    let why = place.fails("release v --yes");
    assert!(why.contains("served"), "{why}");
    holds(&place, &data);
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    let released = place.json("release v --yes", "release");
    assert!(
        released["written_home_bytes"].as_u64() > Some(0),
        "{released}"
    );
    is_plain(&place, &data);
    assert!(!place.path("v.toml").exists());
    // Nothing takes the devices for members any more.
    let found = place.run("find f s");
    let words = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(!words.contains("member 0"), "{words}");
}

#[test]
fn a_release_that_is_killed_goes_on() {
    let data = noise(8, 40 * MIB);
    for round in 0..6u32 {
        let place = Place::new();
        with_data(&place, &data);
        for at in 0..4 {
            let mut killed = place
                .command("release v --yes")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the program starts");
            std::thread::sleep(Duration::from_millis(u64::from(3 + 9 * round + 4 * at)));
            // It may have ended already.
            let _ = killed.kill();
            let _ = killed.wait();
        }
        if place.path("v.toml").exists() {
            place.json("release v --yes", "release");
        }
        is_plain(&place, &data);
    }
}

/// Begins a release of the volume, up to the moment at which its first disk says so, or all do. Returns where the first stash is.
fn begin(place: &Place, devices: &[&str], all: bool) -> usize {
    let load = |name: &str| {
        let bytes = fs::read(place.path(name)).expect("read");
        let mut disk = Disk::zeros(bytes.len());
        disk.write_through(0, &bytes);
        (Superblock::decode(&bytes[..4096]).ok(), disk)
    };
    let (found, mut disks): (Vec<_>, Vec<_>) = devices.iter().map(|d| load(d)).unzip();
    let mut media = Disks::of(&mut disks);
    let opened = store::open(&mut media, &found, Mode::ReadWrite { epoch: 7 }).expect("opened");
    let home = release::dirty_home(&opened.space);
    release::carry(&mut media, &home, &mut [0; 4096]).expect("copied");
    let releases = |media: &mut Disks<'_>, m: u8| {
        let mark = mark::read(media, &opened.superblock, MemberId(m));
        mark.newest.is_some_and(|k| k.cover.is_releasing())
    };
    let last = devices.len() as u8 - 1;
    for steps in 1.. {
        media.fuse = (!all).then_some(steps);
        let ended = release::leave_flash(&mut media, &opened).is_ok();
        if ended || releases(&mut media, 1) {
            assert_eq!((ended, releases(&mut media, last)), (all, all));
            break;
        }
    }
    for (name, disk) in devices.iter().zip(&disks) {
        fs::write(place.path(name), disk.read(0, disk.len())).expect("written");
    }
    opened.superblock.stash(MemberId(1)).at as usize
}

#[test]
fn a_stash_that_was_damaged_is_copied_nowhere() {
    let place = Place::new();
    let data = noise(8, 40 * MIB);
    with_data(&place, &data);
    let stash = begin(&place, &["f", "s"], true);
    let whole = fs::read(place.path("s")).expect("read");
    let mut damaged = whole.clone();
    damaged[stash + 3 * MIB] ^= 4;
    fs::write(place.path("s"), &damaged).expect("written");
    let why = place.fails("release v --yes");
    assert!(
        why.contains("s: the first") && why.contains("from a backup"),
        "{why}"
    );
    assert!(fs::read(place.path("s")).expect("read") == damaged);
    fs::write(place.path("s"), &whole).expect("written");
    let released = place.json("release v --yes", "release");
    assert_eq!(released["went_on"], true, "{released}");
    is_plain(&place, &data);
}

/// The release is cut short when one of two disks knows of it: the other one is given back, too, and nothing is while it is away.
#[test]
fn all_disks_are_given_back_after_an_interruption() {
    let data = noise(8, 100 * MIB);
    for away in [false, true] {
        let place = Place::new();
        let call = "create v --fast f:24M --slow s:64M --slow t:64M --policy lru";
        place.json(call, "create");
        let served = place.serve("v --nbd unix:n");
        copy_in(&place, &data);
        place.ok("stop v");
        assert_eq!(served.end().0, Some(0));
        begin(&place, &["f", "s", "t"], false);
        let aside = |from: &str, to: &str| {
            fs::rename(place.path(from), place.path(to)).expect("renamed");
        };
        if away {
            aside("t", "elsewhere");
            let why = place.fails("release v --yes");
            assert!(why.contains("t: ") && why.contains("attach it"), "{why}");
            aside("elsewhere", "t");
        }
        let released = place.json("release v --yes", "release");
        let disks = released["disks"].as_array().expect("a list");
        assert_eq!(disks.len(), 2, "{released}");
        let from = disks.last().expect("one")["from"]
            .as_u64()
            .expect("a number") as usize;
        let [s, t] = ["s", "t"].map(|name| fs::read(place.path(name)).expect("read"));
        assert!(s[..from] == data[..from] && t[..data.len() - from] == data[from..]);
        assert!(!place.path("v.toml").exists());
    }
}

#[test]
fn a_tiering_volume_is_not_released() {
    let place = Place::new();
    place.ok("create v --fast f:16M --slow s:64M --policy greendm");
    let why = place.fails("release v --yes");
    assert!(why.contains("only a cache volume"), "{why}");
    let served = place.serve("v --nbd unix:n");
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
}

#[test]
fn what_a_disk_held_is_kept_and_comes_back() {
    let place = Place::new();
    let data = noise(9, 64 * MIB);
    fs::write(place.path("s"), &data).expect("written");
    place.ok("create v --fast f:16M --slow s --policy lru --keep --force");
    let served = place.serve("v --nbd unix:n");
    // The end of the disk holds metadata now.
    assert!(back(&place)[..56 * MIB] == data[..56 * MIB]);
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    place.json("release v --yes", "release");
    let disk = fs::read(place.path("s")).expect("read");
    assert!(disk[..56 * MIB] == data[..56 * MIB]);
}
