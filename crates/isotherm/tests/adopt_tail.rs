//! A device that is full to its last byte is adopted together with a tail device, and is given back.

mod common;

use common::Place;
use common::faulty::Faulty;
use common::loop_device::LoopDevice;
use common::nbd::{MIB, NBD, back, noise};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Size of the device, which the file system fills: its last extent is not whole.
const DATA: usize = 60 * MIB + (12 << 10);
const TAIL: u64 = 8 << 20;
const ADOPT: &str = "adopt v d --tail t --fast f:16M --yes";

fn open(place: &Place, name: &str) -> File {
    let mut how = File::options();
    let file = how.read(true).write(true).create(true).truncate(false);
    file.open(place.path(name)).expect("opened")
}

fn sized(place: &Place, name: &str, bytes: u64) {
    open(place, name).set_len(bytes).expect("sized");
}

/// A device `d` that a file system fills, and an empty tail `t`; returns the bytes of the device.
fn full(place: &Place) -> Vec<u8> {
    sized(place, "d", DATA as u64);
    sized(place, "t", TAIL);
    let made = place.tool("mkfs.ext4", &["-q", "-F", "-b", "4096", "d"]);
    assert!(made.status.success(), "{made:?}");
    // What a file system holds is not looked at. So any bytes will do, also in its last extent.
    let (file, noise) = (open(place, "d"), noise(5, 20 * MIB));
    file.write_all_at(&noise, 30 << 20).expect("written");
    let last = DATA as u64 - (8 << 10);
    file.write_all_at(&noise[..8 << 10], last).expect("written");
    fs::read(place.path("d")).expect("read")
}

fn holds(place: &Place, data: &[u8]) {
    let now = fs::read(place.path("d")).expect("read");
    assert_eq!(now.len(), data.len());
    let differs = (0..data.len()).find(|&i| now[i] != data[i]);
    assert_eq!(differs, None, "the first byte of the device that differs");
}

fn has_label(place: &Place) -> bool {
    fs::read(place.path("t"))
        .expect("read")
        .starts_with(b"ISOTTAIL")
}

/// The start is refused, and the words name both devices.
fn start_is_refused(place: &Place, words: &str) {
    let why = place.fails("serve v --nbd unix:n");
    let named = ["d", "t"].map(|n| why.contains(&*place.path(n).to_string_lossy()));
    assert!(why.contains(words) && named == [true; 2], "{why}");
}

#[test]
fn a_full_device_is_adopted_with_a_tail_and_given_back() {
    let place = Place::new();
    let mut data = full(&place);
    let why = place.fails("adopt v d --fast f:16M --yes");
    assert!(why.contains("--tail"), "{why}");
    let asked = place.run("adopt v d --tail t --fast f:16M");
    let why = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(
        asked.status.code() == Some(2) && why.contains("needed from then on"),
        "{why}"
    );
    assert!(!place.path("v.toml").exists() && !has_label(&place));
    holds(&place, &data);
    let adopted = place.json(ADOPT, "adopt");
    assert_eq!(
        adopted["data_bytes"].as_u64(),
        Some(DATA as u64),
        "{adopted}"
    );
    let bytes = adopted["volume_bytes"].as_u64().expect("a number");
    assert_eq!(bytes, (DATA as u64).next_multiple_of(64 << 10));
    let raw = fs::read(place.path("d")).expect("read");
    assert!(raw.starts_with(b"ISOTHERM") && raw[1080..1082] != [0x53, 0xef]);
    assert!(raw[8 * MIB..] == data[8 * MIB..] && has_label(&place));
    let found = place.ok("find d t f");
    assert!(found.contains("tail = "), "{found}");
    let told = place.run("find d f");
    let why = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(
        told.status.success() && why.contains("continues on a tail device"),
        "{why}"
    );

    let served = place.serve("v --nbd unix:n");
    let all = back(&place);
    assert!(all[..DATA] == data[..], "the volume shows other data");
    assert!(all[DATA..].iter().all(|&b| b == 0), "behind the data");
    // Both devices are locked.
    sized(&place, "e", 80 << 20);
    let why = place.fails("adopt w e --tail t --force --fast g:16M --yes");
    assert!(why.contains("in use") && why.contains("/t"), "{why}");
    // The head, which is on the tail, and the extent that lies on both.
    let new = noise(6, data.len());
    for range in [0..5 * MIB, DATA - (3 << 19)..DATA] {
        data[range.clone()].copy_from_slice(&new[range]);
    }
    let mut image = data.clone();
    image.resize(bytes as usize, 0);
    fs::write(place.path("data"), &image).expect("written");
    let copied = place.tool("nbdcopy", &["--flush", "data", NBD]);
    assert!(copied.status.success(), "{copied:?}");
    assert!(back(&place) == image, "other data than was written");
    let status = place.ok("status v");
    assert!(status.contains("with its tail"), "{status}");
    place.json("status v", "status");
    place.ok("adopt --finish v");
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    place.json("check v", "check");
    let told = place.run("check v --data");
    let why = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.status.success() && why.contains("/t"), "{why}");
    let served = place.serve("v --nbd unix:n");
    assert!(back(&place) == image, "other data after a new start");
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    // Neither can be done to a member of two devices.
    sized(&place, "g", 80 << 20);
    let why = place.fails("replace v g --member 1");
    assert!(why.contains("with a tail cannot be replaced"), "{why}");
    let why = place.fails("grow v");
    assert!(why.contains("with a tail cannot grow"), "{why}");
    place.json("release v --yes", "release");
    holds(&place, &data);
    assert!(!has_label(&place) && !place.path("v.toml").exists());
}

#[test]
fn a_volume_that_has_grown_onto_the_tail_is_not_released() {
    let place = Place::new();
    let mut data = full(&place);
    place.json(ADOPT, "adopt");
    let served = place.serve("v --nbd unix:n");
    let mut image = back(&place);
    image[DATA + 5] = 1;
    fs::write(place.path("data"), &image).expect("written");
    assert!(
        place
            .tool("nbdcopy", &["--flush", "data", NBD])
            .status
            .success()
    );
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    let why = place.fails("release v --yes");
    assert!(why.contains("behind the end of the data device"), "{why}");
    let served = place.serve("v --nbd unix:n");
    assert!(back(&place) == image, "the volume shows other data");
    image[DATA + 5] = 0;
    image[7] = 7;
    data[7] = 7;
    fs::write(place.path("data"), &image).expect("written");
    assert!(
        place
            .tool("nbdcopy", &["--flush", "data", NBD])
            .status
            .success()
    );
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    place.json("release v --yes", "release");
    holds(&place, &data);
}

#[test]
fn a_tail_that_cannot_be_used_is_refused_in_words() {
    let place = Place::new();
    let data = full(&place);
    let refused = |call: &str, words: &str| {
        let why = place.fails(call);
        assert!(why.contains(words), "{why}");
        assert!(!place.path("v.toml").exists() && !place.path("f").exists());
        why
    };
    refused("adopt v d --tail no --fast f:16M --yes", "does not exist");
    refused(
        "adopt v d --tail d --fast f:16M --yes",
        "give each device once",
    );
    // Too small by one byte, or by all; the words state the size.
    sized(&place, "t", 4096);
    let why = refused(ADOPT, "needs at least");
    let bytes = why.split("at least ").nth(1).expect("a size");
    let bytes: u64 = bytes
        .split(':')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("a number");
    assert!((4 << 20..5 << 20).contains(&bytes), "{bytes}");
    sized(&place, "t", bytes - 1);
    refused(ADOPT, &format!("needs at least {bytes}"));
    sized(&place, "t", bytes);
    assert_eq!(
        place.run("adopt v d --tail t --fast f:16M").status.code(),
        Some(2)
    );
    // Something is on it.
    open(&place, "t").write_all_at(b"XFSB", 0).expect("written");
    refused(ADOPT, "carries an XFS file system");
    holds(&place, &data);
    // A file system that ends within the last block.
    sized(&place, "d", DATA as u64 + 1024);
    let block = DATA as u32 / 1024 + 1;
    let mut superblock = data[1024..2048].to_vec();
    superblock[4..8].copy_from_slice(&block.to_le_bytes());
    superblock[0x18..0x1c].fill(0);
    open(&place, "d")
        .write_all_at(&superblock, 1024)
        .expect("written");
    refused(&format!("{ADOPT} --force"), "whole blocks of 4096");
    open(&place, "d")
        .write_all_at(&data[1024..2048], 1024)
        .expect("written");
    sized(&place, "d", DATA as u64);
    let tail = fs::read(place.path("t")).expect("read");
    assert!(tail.starts_with(b"XFSB"), "nothing was erased yet");
    place.json(&format!("{ADOPT} --force"), "adopt");
    // A tail in use is nothing for another volume.
    for call in [
        "adopt w e --tail t --fast g:16M --yes",
        "create w --fast t --slow h:64M",
    ] {
        sized(&place, "e", 0);
        fs::write(place.path("e"), &data).expect("written");
        let why = place.fails(call);
        assert!(
            why.contains("belongs to a volume already (its tail)"),
            "{why}"
        );
    }
    place.json("release v --yes", "release");
    holds(&place, &data);
}

/// Serves the volume, which must show the data.
fn is_served(place: &Place, data: &[u8]) {
    let served = place.serve("v --nbd unix:n");
    let shown = back(place);
    assert!(shown[..DATA] == *data, "the volume shows other data");
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
}

fn mv(place: &Place, from: &str, to: &str) {
    fs::rename(place.path(from), place.path(to)).expect("renamed");
}

#[test]
fn a_start_needs_the_tail_of_this_volume() {
    let place = Place::new();
    let data = full(&place);
    place.json(ADOPT, "adopt");
    let away = |name: &str| place.away(name);
    // Missing.
    fs::rename(place.path("t"), away("t")).expect("renamed");
    start_is_refused(&place, "both are needed");
    let why = place.fails("release v --yes");
    assert!(why.contains("both are needed"), "{why}");
    // One without a label, and another volume's.
    sized(&place, "t", TAIL);
    start_is_refused(&place, "no label of a tail");
    fs::create_dir(away("w")).expect("made");
    fs::write(away("w/e"), &data).expect("written");
    sized(&place, "away/w/t", TAIL);
    place.ok("adopt away/w/w away/w/e --tail away/w/t --fast away/w/f:16M --yes");
    fs::copy(away("w/t"), place.path("t")).expect("copied");
    start_is_refused(&place, "belongs to volume");
    fs::remove_file(place.path("t")).expect("removed");
    fs::rename(away("t"), place.path("t")).expect("renamed");
    // Renamed, and with swapped names.
    mv(&place, "t", "u");
    is_served(&place, &data);
    mv(&place, "d", "t");
    mv(&place, "u", "d");
    is_served(&place, &data);
    mv(&place, "d", "u");
    mv(&place, "t", "d");
    // Two of them, and none is where the description says.
    fs::copy(place.path("u"), place.path("x")).expect("copied");
    let why = place.fails("serve v --nbd unix:n");
    assert!(why.contains("are both the tail"), "{why}");
    fs::remove_file(place.path("x")).expect("removed");
    mv(&place, "u", "t");
    is_served(&place, &data);
}

#[test]
fn both_devices_must_be_as_they_were_left() {
    let place = Place::new();
    let data = full(&place);
    place.json(ADOPT, "adopt");
    let away = |name: &str| place.away(name);
    for name in ["t", "d"] {
        fs::copy(place.path(name), away(&format!("old-{name}"))).expect("copied");
    }
    is_served(&place, &data);
    // An older copy of either; the volume has been written to since.
    let words = [
        ("t", "the tail is an older copy"),
        ("d", "the data device is an older copy"),
    ];
    for (name, words) in words {
        fs::rename(place.path(name), away("now")).expect("renamed");
        fs::copy(away(&format!("old-{name}")), place.path(name)).expect("copied");
        start_is_refused(&place, words);
        let why = place.fails("check v");
        assert!(why.contains(words), "{why}");
        fs::rename(away("now"), place.path(name)).expect("renamed");
    }
    // Longer devices are no other ones; shorter ones have lost something.
    for name in ["d", "t"] {
        let was = fs::read(place.path(name)).expect("read");
        sized(&place, name, was.len() as u64 + (3 << 20));
        is_served(&place, &data);
        let now = fs::read(place.path(name)).expect("read")[..was.len()].to_vec();
        sized(&place, name, 4 << 20);
        start_is_refused(&place, "it was cut short");
        fs::write(place.path(name), now).expect("written");
    }
    is_served(&place, &data);
    place.json("release v --yes", "release");
    holds(&place, &data);
}

#[test]
fn an_adoption_with_a_tail_that_is_killed_is_undone_or_complete() {
    let place = Place::new();
    let data = full(&place);
    let mut undone = 0;
    for round in 0..24u64 {
        let mut killed = place
            .command(ADOPT)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        std::thread::sleep(Duration::from_millis(3 + 4 * round));
        let _ = killed.kill();
        let whole = killed.wait().expect("ended").success();
        if place.path("v.toml").exists() {
            let mut out = place.run("release v --yes");
            let words =
                |out: &std::process::Output| String::from_utf8_lossy(&out.stderr).into_owned();
            // The kernel may still hold the devices of the process that was killed.
            for _ in 0..300 {
                if out.status.success() || !words(&out).contains("in use") {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
                out = place.run("release v --yes");
            }
            // Nothing may have been written to the device yet.
            let early = words(&out).contains("an adoption at its beginning");
            assert!(out.status.success() || (early && !whole), "{}", words(&out));
            undone += u64::from(!whole);
            let _ = fs::remove_file(place.path("v.toml"));
        }
        holds(&place, &data);
        assert!(!has_label(&place), "round {round}");
        let _ = fs::remove_file(place.path("f"));
    }
    println!("{undone} adoptions were undone");
}

/// The nodes of the two partitions of a device. Where nobody makes them, they are made in the test's directory.
fn partitions(place: &Place, device: &LoopDevice) -> Option<[String; 2]> {
    let _ = Command::new("partx").args(["-a", &device.0]).output();
    let node = |n: u32| {
        let part = format!("{}p{n}", device.0);
        if std::path::Path::new(&part).exists() {
            return Some(part);
        }
        let name = part.trim_start_matches("/dev/");
        let number = fs::read_to_string(format!("/sys/class/block/{name}/dev")).ok()?;
        let (major, minor) = number.trim().split_once(':')?;
        let own = place.path(&format!("p{n}")).display().to_string();
        let made = Command::new("mknod")
            .args([&own, "b", major, minor])
            .status();
        made.is_ok_and(|s| s.success()).then_some(own)
    };
    Some([node(1)?, node(2)?])
}

/// Two partitions of one disk are two devices; the disk and its partition are not.
#[test]
fn disk_and_tail_may_be_partitions_of_one_disk() {
    let place = Place::new();
    let data = full(&place);
    let (first, sectors) = (2048u32, DATA as u32 / 512);
    let second = first + sectors;
    let mut table = [0u8; 512];
    for (i, (start, len)) in [(first, sectors), (second, TAIL as u32 / 512)]
        .into_iter()
        .enumerate()
    {
        let entry = &mut table[446 + 16 * i..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&len.to_le_bytes());
    }
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    let disk = open(&place, "away-disk");
    disk.set_len(u64::from(second) * 512 + TAIL).expect("sized");
    disk.write_all_at(&table, 0).expect("written");
    disk.write_all_at(&data, u64::from(first) * 512)
        .expect("written");
    disk.sync_all().expect("written");
    let Some(device) = LoopDevice::over(&place, &["--partscan"], "away-disk") else {
        return;
    };
    let Some(parts) = partitions(&place, &device) else {
        println!("skipped: no partitions of loop devices");
        return;
    };
    let call = |tail: &str| format!("adopt v {} --tail {tail} --fast f:16M --yes", parts[0]);
    let why = place.fails(&call(&device.0));
    assert!(why.contains("give each device once"), "{why}");
    place.json(&call(&parts[1]), "adopt");
    let served = place.serve("v --nbd unix:n");
    assert!(
        back(&place)[..DATA] == data[..],
        "the volume shows other data"
    );
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    place.json("release v --yes", "release");
    let now = fs::read(place.path("away-disk")).expect("read");
    assert!(now[first as usize * 512..][..DATA] == data[..]);
    assert!(
        now[second as usize * 512..][..TAIL as usize]
            .iter()
            .all(|&b| b == 0)
    );
}

/// A flush goes to both devices, and one that fails on the tail is final, as on any disk.
#[test]
fn a_flush_that_fails_on_the_tail_is_final() {
    let place = Place::new();
    let data = full(&place);
    let Some(tail) = Faulty::attach(&place.path("t"), &place.path("bad"), "t") else {
        return;
    };
    place.json("adopt v d --tail bad/t --fast f:16M --yes", "adopt");
    let served = place.serve("v --nbd unix:n");
    assert!(
        back(&place)[..DATA] == data[..],
        "the volume shows other data"
    );
    tail.fail_flushes(5);
    fs::write(place.path("data"), noise(7, MIB)).expect("written");
    let copied = place.tool("nbdcopy", &["--flush", "data", NBD]);
    assert!(!copied.status.success(), "the flush was answered");
    let status = place.ok("status v");
    assert!(
        status.contains("on its tail") && status.contains("bad/t"),
        "{status}"
    );
    place.run("stop v");
    assert_ne!(served.end().0, Some(0));
}
