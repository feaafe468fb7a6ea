//! A spool whose file system is full, or whose device fails and is good again.

mod common;

use common::place::{Place, filled, reads, spool_files, up};
use isotherm_store::disk::Disk;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Blocks of a write.
const MANY: usize = 256;

/// A file system on a loop device, whose file has no room for all of it.
struct Small<'a>(&'a Path);

impl Small<'_> {
    fn run(&self, script: &str) -> bool {
        let out = Command::new("sh")
            .args(["-ec", script])
            .env("T", self.0)
            .output()
            .unwrap();
        out.status.success()
    }
    /// The loop device answers a request that is carried out in part as a good one, so each is of one page.
    fn make(&self) -> bool {
        self.run(
            "mkdir $T/back $T/front; mount -t tmpfs -o size=14m none $T/back
            truncate -s 64M $T/back/device; mkfs.ext4 -q -O ^has_journal -F $T/back/device
            head -c 4M /dev/zero >$T/back/ballast; mount -o loop $T/back/device $T/front
            device=$(findmnt -no SOURCE $T/front); echo 4 >/sys/block/${device#/dev/}/queue/max_sectors_kb",
        )
    }
    fn has_room_again(&self) {
        assert!(self.run("rm $T/back/ballast"));
    }
    /// What is only in the kernel's memory, and not to be written, is gone.
    fn again(&self) {
        assert!(self.run("umount $T/front; mount -o loop $T/back/device $T/front"));
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        self.run("umount $T/front || :; umount $T/back");
    }
}

fn marks(disk: &Disk) -> Vec<u8> {
    let mut block = filled(0, 1);
    let blocks = disk.blocks() as usize;
    let read = (0..blocks).step_by(MANY).map(|at| {
        disk.read(at as u64, &mut block).unwrap();
        assert!(block == filled(block[0], 1));
        block[0]
    });
    read.collect()
}

#[test]
fn what_a_flush_acknowledges_after_a_failure_is_on_the_device() {
    let place = Place::new();
    let small = Small(place.scratch.path());
    if !small.make() {
        return eprintln!("SKIPPED: no right to mount, or no loop devices");
    }
    let disk = place.open("front/spool").unwrap();
    let mut flushed = 0;
    let count = disk.blocks() as usize / MANY;
    while flushed < count {
        let at = (flushed * MANY) as u64;
        let data = filled(flushed as u8 + 1, MANY);
        if disk.write(at, &data).and_then(|()| disk.flush()).is_err() {
            break;
        }
        flushed += 1;
    }
    assert!(flushed > 2 && flushed < count);
    assert!(disk.flush().is_err() && disk.write(0, &filled(9, 1)).is_err());
    drop(disk);
    small.has_room_again();
    // The kernel has all of it still, but not the device.
    let disk = place.open("front/spool").unwrap();
    disk.flush().unwrap();
    let seen = marks(&disk);
    assert!(
        (0..flushed).all(|i| seen[i] == i as u8 + 1),
        "{flushed}: {seen:?}"
    );
    drop(disk);
    small.again();
    let disk = place.open("front/spool").unwrap();
    assert_eq!(marks(&disk), seen);
    drop(disk);
}

/// A tmpfs of two megabytes; `None` without the right to mount.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn new(dir: PathBuf) -> Option<Tmpfs> {
        fs::create_dir_all(&dir).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "none"])
            .arg(&dir)
            .status();
        if !mounted.is_ok_and(|s| s.success()) {
            eprintln!("SKIPPED: no right to mount");
            return None;
        }
        Some(Tmpfs(dir))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// It is full before the bound is reached.
#[test]
fn a_full_file_system_of_the_spool_stalls_too() {
    let place = Place::new();
    let Some(small) = Tmpfs::new(place.dir("small")) else {
        return;
    };
    let disk = Arc::new(place.open("small").unwrap());
    let uploads = {
        let disk = Arc::clone(&disk);
        std::thread::spawn(move || disk.run())
    };
    for at in 0..1500 {
        disk.write(at, &filled(at as u8 | 1, 1)).unwrap();
    }
    assert!((0..1500).all(|at| reads(&disk, at, at as u8 | 1)));
    disk.close();
    uploads.join().unwrap().unwrap();
    drop((disk, small));
    let disk = place.open("b").unwrap();
    assert!((0..1500).all(|at| reads(&disk, at, at as u8 | 1)));
}

/// Only a start can give back its room.
#[test]
fn a_full_file_system_of_the_spool_does_not_keep_the_next_start_out() {
    let place = Place::new();
    let Some(_small) = Tmpfs::new(place.dir("small")) else {
        return;
    };
    let disk = place.open("small").unwrap();
    disk.close();
    let many = (0..1500).find(|&at| disk.write(at, &filled(1, 1)).is_err());
    let many = many.unwrap();
    disk.flush().unwrap();
    drop(disk);
    // What is left of the last page.
    let rest = fs::File::create(place.dir("small/rest")).unwrap();
    while (&rest).write_all(&[1; 64]).is_ok() {}
    for _ in 0..3 {
        drop(place.open("small").unwrap());
    }
    let disk = place.open("small").unwrap();
    up(&disk);
    assert!((0..many).all(|at| reads(&disk, at, 1)));
    disk.write(many, &filled(1, 1)).unwrap();
}

#[test]
fn others_cannot_read_the_spool() {
    let place = Place::new();
    let _disk = place.open("a").unwrap();
    for file in spool_files(&place.dir("a")) {
        let mode = fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
}
