//! A device that holds a file system becomes the slow member of a cache volume in place, and is given back.

mod common;

use common::Place;
use common::loop_device::LoopDevice;
use common::nbd::{MIB, NBD, back, noise};
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Output, Stdio};
use std::time::Duration;

/// Size of the file system, and of the device.
const DATA: usize = 60 * MIB;
const DEVICE: u64 = 68 << 20;

/// A device with a file system that has room behind it; returns its bytes.
fn with_file_system(place: &Place) -> Vec<u8> {
    let file = fs::File::create(place.path("d")).expect("created");
    file.set_len(DATA as u64).expect("sized");
    let made = place.tool("mkfs.ext4", &["-q", "-F", "d"]);
    assert!(made.status.success(), "{made:?}");
    // What a file system holds is not looked at. So any bytes will do.
    let noise = noise(5, 20 * MIB);
    file.write_all_at(&noise, 30 << 20).expect("written");
    file.set_len(DEVICE).expect("sized");
    fs::read(place.path("d")).expect("read")[..DATA].to_vec()
}

fn holds(place: &Place, data: &[u8]) {
    let now = fs::read(place.path("d")).expect("read");
    let differs = (0..data.len()).find(|&i| now[i] != data[i]);
    assert_eq!(differs, None, "the first byte of the device that differs");
}

#[test]
fn a_file_system_is_adopted_in_place_and_given_back() {
    let place = Place::new();
    let mut data = with_file_system(&place);
    let asked = place.run("adopt v d --fast f:16M");
    let why = String::from_utf8_lossy(&asked.stderr).into_owned();
    let said = why.contains("stays in place") && why.contains("--yes");
    assert!(asked.status.code() == Some(2) && said, "{why}");
    assert!(!place.path("v.toml").exists());
    holds(&place, &data);
    let adopted = place.json("adopt v d --fast f:16M --yes", "adopt");
    assert_eq!(
        adopted["data_bytes"].as_u64(),
        Some(DATA as u64),
        "{adopted}"
    );
    // The device itself is no file system any more.
    let raw = fs::read(place.path("d")).expect("read");
    assert!(raw.starts_with(b"ISOTHERM") && raw[1080..1082] != [0x53, 0xef]);

    let served = place.serve("v --nbd unix:n");
    assert!(
        back(&place)[..DATA] == data[..],
        "the volume shows other data"
    );
    // Until the trial ends, nothing that was written is on flash alone.
    let new = noise(6, 4 * MIB);
    data[..new.len()].copy_from_slice(&new);
    fs::write(place.path("data"), &new).expect("written");
    let copied = place.tool("nbdcopy", &["--flush", "data", NBD]);
    assert!(copied.status.success(), "{copied:?}");
    let status = place.json("status v", "status");
    assert_eq!(
        status["copies"]["dirty_bytes"].as_u64(),
        Some(0),
        "{status}"
    );
    let ended = place.ok("adopt --finish v");
    assert!(ended.contains("may stay on flash"), "{ended}");
    let why = place.fails("adopt --finish v");
    assert!(why.contains("not in the trial"), "{why}");
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    place.json("release v --yes", "release");
    holds(&place, &data);
}

fn release(place: &Place) -> (Output, String) {
    let out = place.run("release v --yes");
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    (out, words)
}

#[test]
fn an_adoption_that_is_killed_is_undone_or_complete() {
    let place = Place::new();
    let data = with_file_system(&place);
    let mut undone = 0;
    for round in 0..24u64 {
        let mut killed = place
            .command("adopt v d --fast f:16M --yes")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        std::thread::sleep(Duration::from_millis(3 + 4 * round));
        let _ = killed.kill();
        let whole = killed.wait().expect("ended").success();
        if place.path("v.toml").exists() {
            let why = place.fails("adopt v d --fast f:16M --yes");
            assert!(why.contains("isotherm release v"), "{why}");
            let (mut out, mut words) = release(&place);
            // The kernel may still hold the devices of the process that was killed.
            for _ in 0..300 {
                if out.status.success() || !words.contains("in use") {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
                (out, words) = release(&place);
            }
            // Nothing may have been written to the device yet.
            let early = words.contains("an adoption at its beginning");
            assert!(out.status.success() || (early && !whole), "{words}");
            undone += u64::from(!whole);
            let _ = fs::remove_file(place.path("v.toml"));
        }
        holds(&place, &data);
        let _ = fs::remove_file(place.path("f"));
        fs::OpenOptions::new()
            .write(true)
            .open(place.path("d"))
            .and_then(|f| f.set_len(DATA as u64).and_then(|()| f.set_len(DEVICE)))
            .expect("sized");
    }
    println!("{undone} adoptions were undone");
}

/// The flash of a volume gets its superblock last, so an adoption that was killed before may leave it without.
#[test]
fn a_start_after_an_interrupted_adoption_names_what_undoes_it() {
    let place = Place::new();
    let data = with_file_system(&place);
    place.ok("adopt v d --fast f:16M --yes");
    fs::write(place.path("f"), vec![0; 16 << 20]).expect("written");
    let why = place.fails("serve v --nbd unix:n");
    assert!(
        why.contains("`isotherm release v` gives the device back"),
        "{why}"
    );
    let (out, words) = release(&place);
    assert!(out.status.success(), "{words}");
    holds(&place, &data);
}

#[test]
fn what_cannot_be_adopted_is_refused_in_words() {
    let place = Place::new();
    let data = with_file_system(&place);
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(place.path("d"))
        .expect("opened");
    let refused = |words: &str| {
        let why = place.fails("adopt v d --fast f:16M --yes");
        assert!(why.contains(words), "{why}");
        assert!(!place.path("v.toml").exists() && !place.path("f").exists());
    };
    // No room behind the file system.
    file.set_len(DATA as u64 + 4096).expect("sized");
    refused("resize2fs");
    file.set_len(DEVICE).expect("sized");
    // A journal to replay; more blocks than 32 bits can count.
    let u32_at = |at: u64| {
        let mut b = [0; 4];
        file.read_exact_at(&mut b, at).expect("read");
        u32::from_le_bytes(b)
    };
    let put = |at: u64, b: &[u8]| file.write_all_at(b, at).expect("written");
    let features = u32_at(1024 + 0x60);
    put(1024 + 0x60, &(features | 4).to_le_bytes());
    refused("not unmounted");
    put(1024 + 0x60, &(features | 0x80).to_le_bytes());
    put(1024 + 0x150, &[1]);
    refused("larger than the device");
    put(1024 + 0x150, &[0]);
    put(1024 + 0x60, &features.to_le_bytes());
    // One block more than there is room for.
    let (blocks, size) = (u32_at(1028), 1024 << u32_at(1024 + 0x18));
    put(1028, &((DEVICE / size) as u32).to_le_bytes());
    let why = place.fails("adopt v d --fast f:16M --yes");
    let words = why.split_whitespace();
    let mut kib = words.filter_map(|w| w.strip_suffix('K')?.parse::<u64>().ok());
    let most = (kib.next_back().expect("a size") * 1024 / size) as u32;
    put(1028, &(most + 1).to_le_bytes());
    refused("resize2fs");
    put(1028, &most.to_le_bytes());
    let asked = place.run("adopt v d --fast f:16M");
    assert_eq!(asked.status.code(), Some(2), "{asked:?}");
    put(1028, &blocks.to_le_bytes());
    // Something else, too.
    file.write_all_at(b"LUKS\xba\xbe\0\x02", 0)
        .expect("written");
    refused("wipefs");
    file.write_all_at(&[0; 2048], 0).expect("written");
    refused("nothing is recognised");
    // Unknown data is taken as it is, if the end is free.
    file.write_all_at(&[1], DEVICE - 9).expect("written");
    let why = place.fails("adopt v d --fast f:16M --force --yes");
    assert!(why.contains("data of an unknown kind"), "{why}");
    file.write_all_at(&[0], DEVICE - 9).expect("written");
    place.json("adopt v d --fast f:16M --force --yes", "adopt");
    place.json("release v --yes", "release");
    let now = fs::read(place.path("d")).expect("read");
    assert!(now[2048..DATA] == data[2048..]);
    let why = place.fails("adopt v no --fast f:16M --yes");
    assert!(
        why.contains("does not exist") && !why.contains("10G"),
        "{why}"
    );
    // Flash that holds something is not overwritten.
    fs::copy(place.path("d"), place.path("f")).expect("copied");
    let flash = fs::File::options()
        .write(true)
        .open(place.path("f"))
        .expect("opened");
    flash.write_all_at(b"XFSB", 0).expect("written");
    let why = place.fails("adopt v d --fast f --force --yes");
    assert!(why.contains("XFS") && why.contains("wipefs"), "{why}");
}

#[test]
fn a_part_of_a_file_system_is_refused() {
    let place = Place::new();
    let refused = |bytes: &[(u64, &[u8])], words: &str| {
        let file = fs::File::create(place.path("d")).expect("created");
        file.set_len(DEVICE).expect("sized");
        for (at, b) in bytes {
            file.write_all_at(b, *at).expect("written");
        }
        let why = place.fails("adopt v d --fast f:16M --yes");
        assert!(why.contains(words), "{why}");
        assert!(!place.path("v.toml").exists());
    };
    // XFS with 1024 blocks of 4 KiB, whose log is on another device; then with a realtime part.
    let blocks: [(u64, &[u8]); 3] = [(0, b"XFSB"), (6, &[0x10]), (14, &[4])];
    refused(&blocks, "log or its realtime part");
    let log: [(u64, &[u8]); 2] = [(0x37, &[1]), (0x17, &[1])];
    refused(
        &[blocks, [log[0], log[1], (0x66, &[2])]].concat(),
        "log or its realtime part",
    );
    // What states that it has errors.
    let ext: [(u64, &[u8]); 3] = [
        (1024, &[9]),
        (1024 + 0x38, &[0x53, 0xef, 3]),
        (1024 + 0x60, &[0x40]),
    ];
    refused(&ext, "e2fsck -f");
    let broken: [(u64, &[u8]); 3] = [(0x65, &[5]), (0xdb, &[1 << 4]), (0x37, &[1])];
    refused(&[&blocks[..], &broken].concat(), "xfs_repair");
    refused(
        &[(0x1_0040, b"_BHRfS_M"), (0x1_0038, &[4]), (0x1_0088, &[1])],
        "btrfs check",
    );
    // btrfs on two devices.
    refused(&[(0x1_0040, b"_BHRfS_M"), (0x1_0088, &[2])], "2 devices");
}

#[test]
fn a_read_only_device_is_refused_before_anything_is_written() {
    let place = Place::new();
    let data = with_file_system(&place);
    let Some(device) = LoopDevice::over(&place, &["--read-only"], "d") else {
        return;
    };
    let why = place.fails(&format!("adopt v {} --fast f:16M --yes", device.0));
    assert!(
        why.contains("read-only") && why.contains(&device.0),
        "{why}"
    );
    assert!(!place.path("v.toml").exists() && !place.path("f").exists());
    holds(&place, &data);
}
