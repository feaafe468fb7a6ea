//! `scripts/rescue`, the reader without us, on members that this program made.

mod common;

use common::Place;
use common::nbd::{MIB, copy_in, noise};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

/// Runs the script; returns its exit code, and what it says on both outputs.
fn rescue(place: &Place, call: &str) -> (Option<i32>, String) {
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/rescue"));
    command.args(call.split_whitespace());
    let dir = place.path("");
    let out = command.current_dir(dir).output().expect("python3 runs");
    let said = [out.stdout, out.stderr].concat();
    (
        out.status.code(),
        String::from_utf8(said)
            .expect("text")
            .trim_end()
            .to_string(),
    )
}

#[track_caller]
fn gives(place: &Place, call: &str) -> String {
    let (code, said) = rescue(place, call);
    assert_eq!(code, Some(0), "`{call}`: {said}");
    said
}

#[track_caller]
fn refuses(place: &Place, call: &str, words: &str) {
    let (code, said) = rescue(place, call);
    assert!(code == Some(1) && said.contains(words), "`{call}`: {said}");
    assert!(!place.path("image").exists() && !place.path("image.part").exists());
}

/// The image that rescue writes is `data`, then zeros.
#[track_caller]
fn image_is(place: &Place, members: &str, data: &[u8]) {
    gives(place, &format!("{members} --out image"));
    let image = fs::read(place.path("image")).expect("read");
    let differs = (0..data.len()).find(|&i| image[i] != data[i]);
    assert_eq!(differs, None, "the first byte that differs");
    assert!(image[data.len()..].iter().all(|b| *b == 0), "not zeros");
    fs::remove_file(place.path("image")).expect("removed");
}

/// Changes some bytes of a member; returns what was there.
fn patch(place: &Place, name: &str, at: u64, bytes: &[u8]) -> Vec<u8> {
    let mut how = File::options();
    let file = how.read(true).write(true).open(place.path(name));
    let file = file.expect("opened");
    let mut old = vec![0; bytes.len()];
    file.read_exact_at(&mut old, at).expect("read");
    file.write_all_at(bytes, at).expect("written");
    old
}

/// The volume `v` of this call, with `data` at its begin, killed after a FLUSH.
fn killed(place: &Place, create: &str, data: &[u8]) {
    place.ok(create);
    let served = place.serve("v --nbd unix:n");
    copy_in(place, data);
    served.kill();
}

#[test]
fn a_cache_volume_that_was_killed_is_read() {
    let place = Place::new();
    let data = noise(1, 20 * MIB);
    place.ok("create v --fast f:16M --slow s:48M --policy lru");
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    refuses(&place, "--list f s", "in use");
    served.kill();
    let said = gives(&place, "--list f s");
    assert!(
        said.contains("volume v: cache volume") && said.contains("not closed cleanly"),
        "{said}"
    );
    assert!(said.contains("bytes is on f alone"), "{said}");
    image_is(&place, "s f", &data);

    // The flash is missing: what may be newer there is named, and given only with consent.
    let (code, said) = rescue(&place, "--list s");
    assert!(
        code == Some(3) && said.contains("member 0: tier 0, MISSING"),
        "{said}"
    );
    assert!(said.contains("cannot be had: bytes "), "{said}");
    refuses(&place, "s --out image", "--accept-loss");
    refuses(&place, "--in-place --yes s", "--accept-loss");
    let said = gives(&place, "s --out image --accept-loss");
    assert!(said.contains("cannot be had: bytes "), "{said}");
    fs::remove_file(place.path("image")).expect("removed");

    // The disk is missing: only what is dirty can be had.
    let (code, said) = rescue(&place, "--list f");
    assert!(
        code == Some(3) && said.contains("is on the missing"),
        "{said}"
    );

    // One superblock is damaged, then both.
    let old = patch(&place, "s", 200, b"?");
    let said = gives(&place, "--list f s");
    assert!(said.contains("one of its superblocks is damaged"), "{said}");
    image_is(&place, "f s", &data);
    let last = fs::metadata(place.path("s")).expect("there").len() - 4096;
    let old = (old, patch(&place, "s", last + 200, b"?"));
    refuses(&place, "--list f s", "s: no whole superblock");
    patch(&place, "s", 200, &old.0);
    image_is(&place, "f s", &data);
    patch(&place, "s", last + 200, &old.1);

    // A wrong device.
    fs::write(place.path("x"), noise(2, MIB)).expect("written");
    refuses(&place, "f x --out image", "x: no whole superblock");
    place.ok("create w --fast wf:16M --slow ws:48M --policy lru");
    refuses(&place, "f ws --out image", "several volumes");
    fs::copy(place.path("s"), place.away("twin")).expect("copied");
    refuses(&place, "f s away/twin --out image", "copies of one member");
    refuses(&place, "f nothing --out image", "nothing: No such file");
    fs::write(place.path("there"), b"mine").expect("written");
    let (code, said) = rescue(&place, "f s --out there");
    assert!(code == Some(1) && said.contains("exists already"), "{said}");
    refuses(&place, "--in-place f s", "--yes");
}

#[test]
fn an_older_copy_of_a_member_is_named() {
    let place = Place::new();
    let data = noise(1, 8 * MIB);
    killed(
        &place,
        "create v --fast f:16M --slow s:48M --policy lru",
        &data,
    );
    fs::copy(place.path("f"), place.away("before")).expect("copied");
    let served = place.serve("v --nbd unix:n");
    // This one is of the last session, and its counter tells.
    fs::copy(place.path("f"), place.away("during")).expect("copied");
    let newer = noise(2, 8 * MIB);
    copy_in(&place, &newer);
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    image_is(&place, "f s", &newer);
    refuses(
        &place,
        "away/before s --out image",
        "before is of generation",
    );
    refuses(
        &place,
        "away/during s --out image",
        "during is an older copy",
    );
}

#[test]
fn a_tiering_volume_is_read() {
    let place = Place::new();
    let data = noise(3, 20 * MIB);
    killed(
        &place,
        "create v --fast f:16M --slow s:48M --policy linear",
        &data,
    );
    let said = gives(&place, "--list f s");
    assert!(said.contains("volume v: tiering volume"), "{said}");
    image_is(&place, "f s", &data);
    let (code, said) = rescue(&place, "--list s");
    assert!(code == Some(3) && said.contains("MISSING"), "{said}");
    let (code, said) = rescue(&place, "--list f");
    assert!(
        code == Some(3) && said.contains("is on the missing"),
        "{said}"
    );
    refuses(&place, "--in-place --yes f s", "tiering volume");
}

/// An image of a file system with some files, `bytes` long.
fn file_system(place: &Place, name: &str, bytes: u64) -> Vec<u8> {
    fs::create_dir(place.path("files")).expect("made");
    for i in 0..40 {
        fs::write(place.path(&format!("files/{i}")), noise(i, 300_000)).expect("written");
    }
    let file = File::create(place.path(name)).expect("created");
    file.set_len(bytes).expect("sized");
    let made = place.tool(
        "mkfs.ext4",
        &["-q", "-F", "-b", "4096", "-d", "files", name],
    );
    assert!(made.status.success(), "{made:?}");
    fs::remove_dir_all(place.path("files")).expect("removed");
    fs::read(place.path(name)).expect("read")
}

/// The disk is what the file system was, and its own check finds nothing.
fn is_file_system(place: &Place, data: &[u8]) {
    let now = fs::read(place.path("d")).expect("read");
    let differs = (0..data.len()).find(|&i| now[i] != data[i]);
    assert_eq!(differs, None, "the first byte that differs");
    let checked = place.tool("e2fsck", &["-f", "-n", "d"]);
    assert!(checked.status.success(), "{checked:?}");
}

/// An adopted disk, into which another file system was copied since, whose data is dirty on flash, is given back without the program.
#[test]
fn an_adopted_disk_is_given_back() {
    let place = Place::new();
    let bytes: u64 = 60 << 20;
    let data = file_system(&place, "e", bytes);
    let file = File::create(place.path("d")).expect("created");
    file.set_len(bytes).expect("sized");
    let made = place.tool("mkfs.ext4", &["-q", "-F", "d"]);
    assert!(made.status.success(), "{made:?}");
    file.set_len(bytes + (8 << 20)).expect("sized");
    place.ok("adopt v d --fast f:32M --yes");
    let served = place.serve("v --nbd unix:n");
    place.ok("adopt --finish v");
    place.ok("set v policy=lru");
    copy_in(&place, &data);
    served.kill();
    let said = gives(&place, "--list d f");
    assert!(said.contains("bytes is on f alone"), "{said}");
    gives(&place, "--in-place --yes d f");
    is_file_system(&place, &data);
    refuses(&place, "--list d f", "given back already");
}

#[test]
fn an_adopted_disk_with_a_tail_is_given_back() {
    let place = Place::new();
    let bytes: u64 = (60 << 20) + (12 << 10);
    let data = file_system(&place, "d", bytes);
    File::create(place.path("t"))
        .and_then(|t| t.set_len(8 << 20))
        .expect("sized");
    place.ok("adopt v d --tail t --fast f:32M --yes");
    let served = place.serve("v --nbd unix:n");
    place.ok("adopt --finish v");
    place.ok("set v policy=lru");
    let mut image = data.clone();
    image.resize(data.len().next_multiple_of(64 << 10), 0);
    copy_in(&place, &image);
    served.kill();
    refuses(&place, "f t --out image", "t: the tail of a disk");
    image_is(&place, "d t f", &image);
    refuses(&place, "d f --out image", "tail device");
    patch(&place, "d", 300, b"?");
    image_is(&place, "d t f", &image);
    gives(&place, "--in-place --yes t d f");
    assert_eq!(fs::metadata(place.path("d")).expect("there").len(), bytes);
    is_file_system(&place, &data);
    assert!(
        !fs::read(place.path("t"))
            .expect("read")
            .starts_with(b"ISOTTAIL")
    );
}

/// Two flash devices and two disks: one of each may be missing, and what it alone had is named.
#[test]
fn each_member_may_be_missing() {
    let place = Place::new();
    let data = noise(4, 40 * MIB);
    killed(
        &place,
        "create v --fast f:16M --fast g:16M --slow s:32M --slow u:32M --policy lru",
        &data,
    );
    image_is(&place, "f g s u", &data);
    for missing in ["f", "g", "s", "u"] {
        let left: Vec<&str> = ["f", "g", "s", "u"]
            .into_iter()
            .filter(|m| *m != missing)
            .collect();
        let left = left.join(" ");
        let (code, said) = rescue(&place, &format!("--list {left}"));
        assert!(code == Some(3) && said.contains("MISSING"), "{said}");
        gives(&place, &format!("{left} --out image --accept-loss"));
        // Every byte that is not named is right.
        let image = fs::read(place.path("image")).expect("read");
        let mut known = vec![true; image.len()];
        for line in said.lines().filter(|l| l.starts_with("cannot be had: ")) {
            let words: Vec<&str> = line.split([' ', ':']).collect();
            let byte = |i: usize| words[i].parse::<usize>().expect("a byte");
            known[byte(5)..byte(7)].fill(false);
        }
        assert!(known.iter().any(|k| *k) && known.iter().any(|k| !*k));
        let wrong = (0..data.len()).find(|&i| known[i] && image[i] != data[i]);
        assert_eq!(wrong, None, "without {missing}");
        fs::remove_file(place.path("image")).expect("removed");
    }
}
