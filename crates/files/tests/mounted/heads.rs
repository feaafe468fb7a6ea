//! The beginnings of files are read, through the kernel and its read-ahead, while the disk of the files sleeps.

use crate::trouble::{requests, slow_disk};
use crate::world::World;
use isotherm_files::heads::HeadSettings;
use isotherm_files::mover::Outcome;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

const FILES: u8 = 8;
const BYTES: usize = 2 << 20;

/// The contents of a file, which look like a picture.
fn picture(n: u8) -> Vec<u8> {
    let mut data = vec![n + 1; BYTES];
    data[..20].copy_from_slice(b"\xff\xd8\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0");
    data
}

/// Reads the first bytes in calls of `step` bytes.
fn read(path: &Path, step: usize, calls: usize) {
    let mut file = fs::File::open(path).unwrap();
    let mut buffer = vec![0; step];
    for _ in 0..calls {
        file.read_exact(&mut buffer).unwrap();
    }
}

/// Files that do not do as they should when they are read in that way: `wakes` says whether the disk gets a request.
fn surprises(w: &World, wakes: bool, read: impl Fn(&Path)) -> Vec<u8> {
    let as_it_should = |n: &u8| {
        // Other programs of the machine may read block devices at any time, and the kernel may keep what it was told to
        // drop, so one of several tries counts.
        (0..4).any(|_| {
            rustix::fs::sync();
            for _ in 0..4 {
                fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
            }
            let before = requests(&w.root.join("slow"));
            read(&w.at(&format!("d{n}/f")));
            (requests(&w.root.join("slow")) != before) == wakes
        })
    };
    (0..FILES).filter(|n| !as_it_should(n)).collect()
}

fn world(head: u64) -> Option<(World, crate::trouble::Unmount)> {
    let (mut w, disk) = slow_disk(|s| {
        s.heads = HeadSettings {
            bytes: head,
            percent: 50,
        };
    })?;
    for n in 0..FILES {
        let dir = w.on("slow", &format!("d{n}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("f"), picture(n)).unwrap();
    }
    w.mount();
    let store = &w.mounted.as_ref().unwrap().store;
    for n in 0..FILES {
        let node = store.cat().find(format!("d{n}/f").as_bytes()).unwrap();
        assert_eq!(store.fetch_head(node), Outcome::Done);
    }
    Some((w, disk))
}

#[test]
fn a_slow_disk_sleeps_while_beginnings_are_read() {
    // Length of the heads, and reads: bytes in a call, calls, whether they wake the disk.
    for (head, reads) in [
        (
            64 << 10,
            &[
                (4 << 10, 1, false),
                (32 << 10, 1, false),
                (256 << 10, 1, true),
            ][..],
        ),
        (
            256 << 10,
            &[
                (4 << 10, 24, false),
                (128 << 10, 1, false),
                (64 << 10, 1, false),
            ],
        ),
    ] {
        let Some((mut w, disk)) = world(head) else {
            return;
        };
        for (step, calls, wakes) in reads {
            let surprises = surprises(&w, *wakes, |f| read(f, *step, *calls));
            assert!(
                surprises.is_empty(),
                "{surprises:?}: {calls} of {step} bytes, heads of {head}"
            );
        }
        // After a remount, too. The kernel tells us of a close a moment later.
        while w.ask("", "status")["in_use"] != 0 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        w.unmount();
        w.mount();
        assert!(surprises(&w, false, |f| read(f, 4096, 1)).is_empty());
        // Who read on is known.
        let woke = || w.ask("", "status")["tiers"][1]["last_opened"]["path"].clone();
        assert!(woke().is_null(), "{}", woke());
        let all = fs::read(w.at("d3/f")).unwrap();
        assert!(all == picture(3));
        assert_eq!(woke(), "d3/f");
        assert_eq!(w.ask("", "check")["ok"], true);
        w.unmount();
        drop(disk);
    }
}

/// The program `file` reads the first 7 MiB of a file in one call, or as many bytes as it is told, and of some kinds also the end.
#[test]
fn file_finds_kinds_while_the_disk_sleeps() {
    if Command::new("file").arg("--version").output().is_err() {
        println!("SKIPPED: needs the program file");
        return;
    }
    let Some((mut w, disk)) = world(64 << 10) else {
        return;
    };
    let short = |f: &Path| {
        let mut file = Command::new("file");
        let out = file.args(["-b", "-P", "bytes=32768"]).arg(f).output();
        let text = String::from_utf8(out.unwrap().stdout).unwrap();
        assert!(text.contains("JPEG"), "{text}");
    };
    assert!(surprises(&w, false, short).is_empty());
    w.unmount();
    drop(disk);
}
