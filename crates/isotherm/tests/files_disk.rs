//! `files disk`: a disk of a tier is emptied and left out, and another one joins, through the program.

mod common;

use common::{Place, unmount};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

const FILES: usize = 60;
const BYTES: usize = 2 << 20;

fn mount(place: &Place, disks: &[&str]) -> Child {
    let slow = disks.join(" --slow ");
    let call = format!("mount --fast fast --slow {slow} --watermarks 100,100 --no-moves mnt");
    let server = place.command(&call).spawn().expect("starts");
    for _ in 0..600 {
        if place
            .command("files disk list mnt")
            .output()
            .is_ok_and(|o| o.status.success())
        {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    server
}

fn whole(place: &Place) {
    for n in 0..FILES {
        let bytes = fs::read(place.path(&format!("mnt/album/{n}"))).expect("there");
        assert!(bytes == vec![n as u8; BYTES], "{n}");
    }
}

/// The server is killed while a disk is emptied; the next one goes on without being told, and then the disk may be left out.
#[test]
fn a_disk_is_emptied_and_left_out() {
    let place = Place::new();
    for dir in ["fast", "d1", "d2", "d3", "mnt", "d2/album"] {
        fs::create_dir(place.path(dir)).expect("made");
    }
    if !Path::new("/dev/fuse").exists() || !rustix::process::getuid().is_root() {
        println!("SKIPPED: needs /dev/fuse and root");
        return;
    }
    for n in 0..FILES {
        fs::write(place.path(&format!("d2/album/{n}")), vec![n as u8; BYTES]).expect("written");
    }
    std::os::unix::fs::symlink("album/0", place.path("d2/link")).expect("made");
    let mut server = mount(&place, &["d1", "d2", "d3"]);
    let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let said = place.fails("files disk drain mnt nowhere");
        assert!(
            said.contains("none of the disks of the slowest tier"),
            "{said}"
        );
        let list = place.json("files disk list mnt", "files-disk-list");
        assert_eq!(
            (&list["disks"][2]["files"], &list["disks"][2]["drain"]),
            (&FILES.into(), &"none".into())
        );
        let begun = place.json("files disk drain mnt d2 --no-wait", "files-disk-list");
        assert_eq!(begun["disks"][2]["drain"], "draining", "{begun}");
        // It is killed between two files, or while one moves.
        for _ in 0..6000 {
            let list = place.json("files disk list mnt", "files-disk-list");
            if list["disks"][2]["left"]
                .as_u64()
                .is_none_or(|left| left < FILES as u64)
            {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }));
    server.kill().expect("killed");
    let _ = server.wait();
    let mut server = mount(&place, &["d1", "d2", "d3"]);
    let rest = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..600 {
            let list = place.json("files disk list mnt", "files-disk-list");
            if list["disks"][2]["drain"] == "empty" {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        // Told again, it is done at once.
        let done = place.json("files disk drain mnt d2", "files-disk-list");
        assert_eq!(done["disks"][2]["drain"], "empty", "{done}");
        assert!(place.ok("files disk list mnt").contains("EMPTY"));
        whole(&place);
        let why = place.fails("files disk balance mnt --to 70");
        assert!(why.contains("each on a file system of its own"), "{why}");
    }));
    unmount(&place.path("mnt"));
    let _ = server.wait();
    work.and(rest)
        .unwrap_or_else(|e| std::panic::resume_unwind(e));
    let mut server = mount(&place, &["d1", "d3"]);
    let last = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        whole(&place);
        let list = place.json("files disk list mnt", "files-disk-list");
        assert_eq!(list["disks"].as_array().map(Vec::len), Some(3), "{list}");
    }));
    unmount(&place.path("mnt"));
    let _ = server.wait();
    last.unwrap_or_else(|e| std::panic::resume_unwind(e));
}

/// A disk joins while it is mounted; after a kill, the next mount says that it must be named.
#[test]
fn a_disk_is_added_and_must_be_named() {
    let place = Place::new();
    for dir in ["fast", "d1", "d2", "mnt", "d2/album"] {
        fs::create_dir(place.path(dir)).expect("made");
    }
    if !Path::new("/dev/fuse").exists() || !rustix::process::getuid().is_root() {
        println!("SKIPPED: needs /dev/fuse and root");
        return;
    }
    fs::write(place.path("d2/album/photo"), "photo").expect("written");
    let d2 = place.path("d2").display().to_string();
    let mut server = mount(&place, &["d1"]);
    let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        assert!(!place.path("mnt/album").exists());
        let said = place.fails("files disk add mnt nowhere");
        assert!(said.contains("nowhere"), "{said}");
        let said = place.fails("files disk add mnt d1");
        assert!(said.contains("is a disk already"), "{said}");
        let list = place.json("files disk list mnt", "files-disk-list");
        assert!(list["joining"]["refused"].is_string(), "{list}");
        assert!(
            place
                .ok("files disk list mnt")
                .contains("is a disk already")
        );
        let done = place.json("files disk add mnt d2", "files-disk-list");
        assert_eq!(
            (&done["disks"][2]["path"], &done["disks"][2]["files"]),
            (&d2.as_str().into(), &1.into())
        );
        assert!(done["joining"].is_null());
        let photo = fs::read_to_string(place.path("mnt/album/photo"));
        assert_eq!(photo.expect("there"), "photo");
    }));
    server.kill().expect("killed");
    let _ = server.wait();
    work.unwrap_or_else(|e| std::panic::resume_unwind(e));
    let said = place.fails("mount --fast fast --slow d1 mnt");
    assert!(
        said.contains(&d2) && said.contains("is not named"),
        "{said}"
    );
    let mut server = mount(&place, &["d2", "d1"]);
    let rest = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let photo = fs::read_to_string(place.path("mnt/album/photo"));
        assert_eq!(photo.expect("there"), "photo");
    }));
    unmount(&place.path("mnt"));
    let _ = server.wait();
    rest.unwrap_or_else(|e| std::panic::resume_unwind(e));
}

/// What Prometheus gets.
fn scrape(place: &Place) -> String {
    let mut to = UnixStream::connect(place.path("metrics")).expect("it listens");
    to.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .expect("asked");
    let mut all = String::new();
    to.read_to_string(&mut all).expect("answered");
    all
}

/// Each disk has figures of its own, also one that is emptied.
#[test]
fn prometheus_sees_each_disk() {
    let place = Place::new();
    for dir in ["fast", "d1", "d2", "mnt"] {
        fs::create_dir(place.path(dir)).expect("made");
    }
    if !Path::new("/dev/fuse").exists() || !rustix::process::getuid().is_root() {
        println!("SKIPPED: needs /dev/fuse and root");
        return;
    }
    for n in 0..3 {
        fs::write(place.path(&format!("d2/{n}")), "bytes").expect("written");
    }
    let mut server = mount(&place, &["d1", "d2 --metrics unix:metrics"]);
    let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let of = |text: &str, name: &str, disk: u8| {
            let start = format!("isotherm_files_disk_{name}{{tier=\"1\",disk=\"{disk}\",path=\"");
            let line = text.lines().find(|l| l.starts_with(&start));
            let value = line.and_then(|l| l.rsplit(' ').next()?.parse::<u64>().ok());
            value.unwrap_or_else(|| panic!("{name} {disk}: {text}"))
        };
        let text = scrape(&place);
        assert!(text.contains("application/openmetrics-text") && text.ends_with("# EOF\n"));
        assert_eq!((of(&text, "files", 1), of(&text, "files", 2)), (0, 3));
        assert_eq!(of(&text, "draining", 2), 0);
        assert!(of(&text, "free_bytes", 1) > 0);
        let done = place.command("files disk remove mnt d2").output();
        let done = done.expect("runs");
        let told = String::from_utf8_lossy(&done.stderr);
        let left_out = format!("leave out `--slow {}`", place.path("d2").display());
        assert!(done.status.success() && told.contains(&left_out), "{told}");
        let text = scrape(&place);
        assert_eq!((of(&text, "files", 1), of(&text, "files", 2)), (3, 0));
        assert_eq!(
            (of(&text, "draining", 2), of(&text, "left_files", 2)),
            (2, 0)
        );
        assert_eq!(of(&text, "errors_total", 2), 0);
        assert!(text.contains("isotherm_files_moves_total{outcome=\"done\"} 3"));
    }));
    unmount(&place.path("mnt"));
    let _ = server.wait();
    work.unwrap_or_else(|e| std::panic::resume_unwind(e));
}
