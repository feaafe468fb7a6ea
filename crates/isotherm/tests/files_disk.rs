//! `files disk`: a disk of a tier is emptied and left out, through the program.

mod common;

use common::{Place, unmount};
use std::fs;
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
