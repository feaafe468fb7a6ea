//! Data is copied to flash before it is read. Most of it needs root and loop devices, and skips file systems whose tools are not installed.

mod common;

use common::loop_device::LoopDevice;
use common::peer::wait_for;
use common::{Place, Served};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

const MIB: u64 = 1 << 20;

/// One volume of this name at a time has a device.
static ONE: Mutex<()> = Mutex::new(());

fn run(words: &[&str]) -> String {
    let out = Command::new(words[0]).args(&words[1..]).output();
    let out = out.unwrap_or_else(|e| panic!("{words:?}: {e}"));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{words:?}: {said}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn has(program: &str) -> bool {
    Command::new(program).arg("-V").output().is_ok()
}

/// A mount that ends with this value. What the kernel remembers of the device is forgotten then.
struct Mount(String, PathBuf);

impl Mount {
    fn of(device: &str, at: PathBuf) -> Mount {
        run(&["mount", "-o", "noatime", device, &at.display().to_string()]);
        Mount(device.to_owned(), at)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.1).status();
        let forget = ["--flushbufs", &self.0];
        let _ = Command::new("blockdev").args(forget).status();
    }
}

fn serve(place: &Place) -> (Served, String) {
    let mut command = place.command("serve v --loop");
    command.env("ISOTHERM_DEVICE_DIR", place.path("dev"));
    let served = Place::wait_ready(command, "v --loop");
    (served, place.path("dev/v").display().to_string())
}

fn stats(place: &Place) -> Value {
    place.json("stats v", "stats")
}

/// Reads of the disk, and of the volume.
fn reads(place: &Place) -> (u64, u64) {
    let stats = stats(place);
    let members = stats["members"].as_array().expect("members").clone();
    let slow = members.iter().filter(|m| m["tier"] == json!(1));
    let slow = slow.filter_map(|m| m["reads"].as_u64()).sum();
    (slow, stats["reads"].as_u64().expect("a number"))
}

/// The same when they have not grown for two seconds: the kernel goes on reading for a while after a mount (ext4 the bitmaps of all groups),
/// and the server reads what a mount has written.
fn reads_at_rest(place: &Place) -> (u64, u64) {
    let (mut last, mut looks) = (reads(place), 0);
    while looks < 4 {
        std::thread::sleep(std::time::Duration::from_millis(500));
        let now = reads(place);
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
    }
    last
}

fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or_else(|| panic!("{key}: {of}"))
}

/// Many small files in some directories, and one that is not small.
fn fill(at: &Path) {
    for dir in 0..40 {
        let dir = at.join(format!("directory-{dir}"));
        fs::create_dir(&dir).expect("made");
        for i in 0..50 {
            let name = format!("a file with a rather long name, number {i}");
            fs::write(dir.join(name), [7; 5000]).expect("written");
        }
    }
    let large = vec![9; 3 << 20];
    fs::write(at.join("large"), large).expect("written");
}

/// A served volume on an adopted disk with files, with its device; `None` where that is not possible.
fn adopted(place: &Place, make: &[&str]) -> Option<(Served, String)> {
    if !rustix::process::geteuid().is_root() || !has(make[0]) {
        println!("skipped: needs root and {}", make[0]);
        return None;
    }
    for (file, bytes) in [("d", 400 * MIB), ("t", 8 * MIB)] {
        let made = fs::File::create(place.path(file));
        made.and_then(|f| f.set_len(bytes)).expect("sized");
    }
    for dir in ["dev", "mnt"] {
        fs::create_dir(place.path(dir)).expect("made");
    }
    {
        let data = LoopDevice::over(place, &[], "d")?;
        run(&[make, &[&data.0]].concat());
        let mounted = Mount::of(&data.0, place.path("mnt"));
        fill(&mounted.1);
    }
    place.ok("adopt v d --tail t --fast f:128M --yes");
    Some(serve(place))
}

fn find_reads_nothing_from_the_disk(make: &[&str]) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    let Some((served, device)) = adopted(&place, make) else {
        return;
    };
    // While flash answers late, as on a busy machine, the policy lets a write bypass it and drops the copy. That is not the question here.
    place.ok("set v guard=0");
    let warmed = place.json("warm v --metadata", "warm");
    assert!(number(&warmed, "copied_bytes") > 0, "{warmed}");
    assert_eq!(number(&warmed, "did_not_fit_bytes"), 0, "{warmed}");
    let used = number(&warmed, "wanted_bytes");
    assert!(used < 80 * MIB, "only what is in use: {warmed}");
    let mounted = Mount::of(&device, place.path("mnt"));
    let before = reads_at_rest(&place);
    let found = run(&["find", &mounted.1.display().to_string(), "-size", "+1"]);
    let after = reads(&place);
    assert!(found.lines().count() >= 2000, "{make:?}");
    assert!(after.1 > before.1 + 10, "{make:?}: it was not cold");
    assert_eq!(after.0 - before.0, 0, "{make:?}: reads of the disk");
    drop(mounted);
    // All of it is there now.
    let again = place.json("warm v --metadata", "warm");
    assert_eq!(number(&again, "copied_bytes"), 0, "{again}");
    place.end(served);
}

#[test]
fn find_on_a_warm_ext4_reads_nothing_from_the_disk() {
    // Else the kernel zeroes inode tables for some seconds after the mount, and what is then looked at again counts as reads.
    let now = "lazy_itable_init=0,lazy_journal_init=0";
    // As on disks of the usual size. With 1 KiB the journal, which is written 5 s after the mount, writes parts of blocks, and the rest is read.
    find_reads_nothing_from_the_disk(&["mkfs.ext4", "-q", "-b", "4096", "-E", now]);
}

#[test]
fn find_on_a_warm_xfs_reads_nothing_from_the_disk() {
    find_reads_nothing_from_the_disk(&["mkfs.xfs", "-q"]);
}

#[test]
fn files_classes_and_everything() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    let Some((served, device)) = adopted(&place, &["mkfs.ext4", "-q"]) else {
        return;
    };
    {
        let mounted = Mount::of(&device, place.path("mnt"));
        let large = mounted.1.join("large").display().to_string();
        let why = place.fails("warm v --file d");
        assert!(
            why.contains("lies on") || why.contains("block device"),
            "{why}"
        );
        assert!(!why.contains("--force"), "{why}");
        let why = place.fails("warm v --file mnt/directory-1");
        assert!(why.contains("is no regular file"), "{why}");
        let warmed = place.json(&format!("warm v --file {large}"), "warm");
        assert!(number(&warmed, "wanted_bytes") >= 3 * MIB, "{warmed}");
        assert!(number(&warmed, "wanted_bytes") < 4 * MIB, "{warmed}");
    }
    // What finds the file, and what the server itself reads after each change of metadata.
    place.ok("warm v --metadata");
    {
        let mounted = Mount::of(&device, place.path("mnt"));
        let before = reads(&place);
        let data = fs::read(mounted.1.join("large")).expect("read");
        assert!(data.len() == 3 << 20 && data.iter().all(|b| *b == 9));
        let after = reads(&place);
        assert!(
            after.1 > before.1 && after.0 == before.0,
            "{before:?} {after:?}"
        );
    }
    let words = place.ok("warm v --class directory,8-9");
    assert!(words.contains("copied to flash"), "{words}");
    let why = place.fails("warm v --class db-log");
    assert!(why.contains("no data of these classes"), "{why}");
    let all = place.json("warm v", "warm");
    assert!(number(&all, "did_not_fit_bytes") > 200 * MIB, "{all}");
    let words = place.ok("warm v");
    assert!(words.contains("did not fit: flash is full"), "{words}");
    assert_eq!(number(&stats(&place), "evictions"), 0);
    place.end(served);
}

/// A served cache volume whose disk copies 64 KiB per second.
fn slow(place: &Place) -> Served {
    place.ok("create v --fast f:16M --slow s:64M --policy lru");
    let served = place.serve("v --nbd unix:n");
    place.ok("set v move_bytes_per_s=65536");
    served
}

fn is_going_on(place: &Place) -> bool {
    let warm = &stats(place)["copies"]["warm"];
    warm.is_object() && warm["end"].is_null()
}

fn start(place: &Place) -> std::process::Child {
    let mut command = place.command("warm v");
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().expect("starts");
    wait_for("a copy", || is_going_on(place).then_some(()));
    child
}

#[test]
fn an_interrupted_command_leaves_the_server_copying_until_it_is_told_to_stop() {
    let place = Place::new();
    let served = slow(&place);
    let mut first = start(&place);
    let id = first.id().to_string();
    run(&["kill", "-INT", &id]);
    let code = first.wait().expect("waited");
    assert_eq!(code.signal(), Some(2));
    assert!(is_going_on(&place));
    assert!(place.ok("status v").contains("warming"), "status says so");
    let why = place.fails("warm v");
    assert!(
        why.contains("already") && why.contains("isotherm warm v --stop"),
        "{why}"
    );
    let stopped = place.json("warm v --stop", "warm");
    assert_eq!(stopped["end"], json!("stopped"));
    assert!(!is_going_on(&place));
    // Who waits is told.
    let waits = start(&place);
    place.ok("warm v --stop");
    let out = waits.wait_with_output().expect("waited");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("--stop"), "{said}");
    assert_eq!(out.status.code(), Some(1));
    place.end(served);
    let why = place.fails("warm v");
    assert!(why.contains("not served"), "{why}");
}

#[test]
fn it_ends_in_words_when_the_volume_changes() {
    let place = Place::new();
    let served = slow(&place);
    let said = |waits: std::process::Child| {
        let out = waits.wait_with_output().expect("waited");
        assert_eq!(out.status.code(), Some(1));
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let waits = start(&place);
    place.ok("set v policy=benefit");
    let why = said(waits);
    assert!(
        why.contains("policy or its write mode was changed"),
        "{why}"
    );
    let waits = start(&place);
    place.ok("cache v remove");
    let why = said(waits);
    assert!(why.contains("ended early"), "{why}");
    let why = place.fails("warm v");
    assert!(why.contains("flash was removed"), "{why}");
    place.ok("cache v add g:16M");
    place.ok("set v write-mode=pass-through");
    let why = place.fails("warm v");
    assert!(why.contains("pass-through"), "{why}");
    place.end(served);
    let served = place.serve("v --nbd unix:n --read-only");
    let why = place.fails("warm v");
    assert!(why.contains("read-only"), "{why}");
    place.end(served);
}

#[test]
fn a_tiering_volume_keeps_no_copies() {
    let place = Place::new();
    place.ok("create v --fast f:16M --slow s:64M --policy greendm");
    let served = place.serve("v --nbd unix:n");
    let why = place.fails("warm v");
    assert!(why.contains("tiering volume"), "{why}");
    place.end(served);
}
