//! Files that the kernel itself writes, on a tier that becomes full: the writer waits until others have moved away.

use crate::passthrough::closed;
use crate::world::{World, run};
use isotherm_files::fuse::Io;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

const MIB: usize = 1 << 20;

/// Disks that are unmounted at the end.
struct Disks(World);

impl Drop for Disks {
    fn drop(&mut self) {
        drop(self.0.mounted.take());
        // A child process of another test may still have a descriptor for a moment.
        run(
            "fsfreeze -u slow 2>/dev/null || true; umount -l fast; umount -l slow",
            &self.0.root,
        );
    }
}

/// A world whose fast tier is a disk of so many MiB. `None` also if the kernel does not ask before it writes.
fn small(mib: usize) -> Option<Disks> {
    let mut w = World::new(|_| {}, Io::Passthrough)?;
    w.unmount();
    for (disk, mib) in [("fast", mib), ("slow", 1024)] {
        let make = format!(
            "truncate -s {mib}M {disk}.img; mkfs.ext4 -q -m 0 -E lazy_itable_init=0,lazy_journal_init=0 {disk}.img;
            mount -o loop {disk}.img {disk}; rmdir {disk}/lost+found"
        );
        run(&make, &w.root);
    }
    w.settings.accept = true;
    w.mount();
    let disks = Disks(w);
    asks(&disks.0).then_some(disks)
}

/// Whether the kernel itself writes, and asks before.
pub(crate) fn asks(w: &World) -> bool {
    let file = File::create(w.at("try")).unwrap();
    let (passes, asks) = (&w.ask("try", "why")["passthrough"], &figures(w)["asks"]);
    let both = passes == true && asks == true;
    if !both {
        println!(
            "SKIPPED: no passthrough, or no questions before writes (Linux 6.14) on this kernel"
        );
    }
    drop(file);
    closed(w);
    fs::remove_file(w.at("try")).unwrap();
    both
}

fn figures(w: &World) -> serde_json::Value {
    w.ask("", "status")["tiers"][0]["kernel_writes"].clone()
}

fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..6000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// Cold files of so many MiB each.
fn cold(w: &World, files: usize, mib: usize) {
    for n in 0..files {
        fs::write(w.at(&format!("cold{n}")), vec![n as u8; mib * MIB]).unwrap();
    }
    closed(w);
}

/// All cold files are whole. Returns how many of them are on the fast tier.
fn still_there(w: &World, files: usize, mib: usize) -> usize {
    let whole =
        |n: &usize| fs::read(w.at(&format!("cold{n}"))).unwrap() == vec![*n as u8; mib * MIB];
    assert!((0..files).all(|n| whole(&n)));
    let check = w.ask("", "check");
    assert_eq!(check["ok"], true, "{check}");
    let fast = |n: &usize| w.ask(&format!("cold{n}"), "where")["tier"] == 0;
    (0..files).filter(fast).count()
}

/// Creates a file that the kernel itself writes.
fn writer(w: &World, name: &str) -> File {
    let file = File::create(w.at(name)).unwrap();
    assert_eq!(w.ask(name, "why")["passthrough"], true);
    file
}

/// Many short writes and one that is longer than all that was ever free; then holes are filled, and what is there is written again.
#[test]
fn a_writer_gets_the_space_of_cold_files_before_it_needs_it() {
    let Some(disks) = small(96) else { return };
    let w = &disks.0;
    cold(w, 20, 3);
    let mut f = writer(w, "f");
    for _ in 0..40 {
        f.write_all(&vec![7; MIB]).unwrap();
    }
    f.write_all(&vec![8; 30 * MIB]).unwrap();
    assert_eq!(w.ask("f", "where")["tier"], 0, "the file itself stays");
    assert_eq!(figures(w)["handles"], 1);
    f.write_all_at(&vec![9; 50 * MIB], 0).unwrap();
    drop(f);
    let left = still_there(w, 20, 3);
    assert!(left < 10, "{left}");
    let all = fs::read(w.at("f")).unwrap();
    assert_eq!(all.len(), 70 * MIB);
    assert!(all[..50 * MIB].iter().all(|b| *b == 9) && all[50 * MIB..].iter().all(|b| *b == 8));
    closed(w);
    assert_eq!(figures(w)["handles"], 0);
}

/// Four at once, of which one leaves holes and one preallocates.
#[test]
fn four_writers_share_the_space_of_cold_files() {
    let Some(disks) = small(96) else { return };
    let w = &disks.0;
    cold(w, 20, 3);
    let files: Vec<File> = (0..4).map(|n| writer(w, &format!("f{n}"))).collect();
    std::thread::scope(|s| {
        for f in &files[..2] {
            s.spawn(|| {
                for n in 0..80 {
                    f.write_all_at(&vec![1; MIB / 4], n * (MIB as u64 / 4))
                        .unwrap();
                }
            });
        }
        // A page in each 2 MiB, from the end to the beginning, then all that lies between.
        s.spawn(|| {
            for n in (0..8).rev() {
                files[2].write_all_at(&[3; 4096], n << 21).unwrap();
            }
            files[2].write_all_at(&vec![2; 15 * MIB], 0).unwrap();
        });
        s.spawn(|| {
            for n in 0..5 {
                fallocate(&files[3], FallocateFlags::empty(), n << 22, 1 << 22).unwrap();
            }
            files[3].write_all_at(&vec![4; 20 * MIB], 0).unwrap();
        });
    });
    drop(files);
    for (n, mib) in [(0, 20), (1, 20), (3, 20)] {
        assert_eq!(
            fs::metadata(w.at(&format!("f{n}"))).unwrap().len(),
            mib << 20
        );
    }
    let sparse = fs::read(w.at("f2")).unwrap();
    assert!(sparse[..15 * MIB].iter().all(|b| *b == 2));
    still_there(w, 20, 3);
}

/// A writer of small blocks goes on while others preallocate and copy all that was ever free: those wait, and do not take what it was promised.
#[test]
fn what_this_program_allocates_does_not_take_the_space_of_a_writer() {
    let Some(disks) = small(96) else { return };
    let w = &disks.0;
    cold(w, 20, 3);
    let files: Vec<File> = (0..3).map(|n| writer(w, &format!("f{n}"))).collect();
    let source = File::open(w.at("cold19")).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            for n in 0..8 << 8 {
                files[0].write_all_at(&[1; 4096], n << 12).unwrap();
            }
        });
        s.spawn(|| {
            for n in 0..10 {
                fallocate(&files[1], FallocateFlags::empty(), n << 22, 1 << 22).unwrap();
            }
        });
        s.spawn(|| {
            for _ in 0..8 {
                let mut at = (0, 0);
                while at.0 < 3 * MIB as u64 {
                    let left = 3 * MIB - at.0 as usize;
                    rustix::fs::copy_file_range(
                        &source,
                        Some(&mut at.0),
                        &files[2],
                        Some(&mut at.1),
                        left,
                    )
                    .unwrap();
                }
                fallocate(
                    &files[2],
                    FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    0,
                    1 << 40,
                )
                .unwrap();
            }
        });
    });
    let hopeless = fallocate(&files[2], FallocateFlags::empty(), 0, 1 << 40);
    assert_eq!(hopeless, Err(rustix::io::Errno::NOSPC));
    assert!(still_there(w, 20, 3) > 0, "not all of them moved in vain");
    drop(files);
    assert_eq!(fs::metadata(w.at("f0")).unwrap().len(), 8 * MIB as u64);
    still_there(w, 20, 3);
}

/// What is written through the mount does not take the space that is kept for a file that the kernel writes.
#[test]
fn a_file_that_can_move_gives_way_to_one_that_cannot() {
    let Some(disks) = small(96) else { return };
    let w = &disks.0;
    cold(w, 10, 3);
    let mut f = writer(w, "f");
    f.write_all(&vec![1; MIB]).unwrap();
    let room = rustix::fs::statvfs(w.root.join("fast")).unwrap();
    let filler = File::create(w.on("fast", ".isotherm/filler")).unwrap();
    let most = room.f_bavail * room.f_frsize - (8 << 20);
    fallocate(&filler, FallocateFlags::empty(), 0, most).unwrap();
    let mut g = File::create(w.at("g")).unwrap();
    assert_eq!(w.ask("g", "why")["passthrough"], false);
    assert_eq!(w.ask("g", "where")["tier"], 0);
    g.write_all(&vec![2; MIB]).unwrap();
    assert_eq!(w.ask("g", "where")["tier"], 0, "there is space for both");
    g.write_all(&vec![2; 4 * MIB]).unwrap();
    assert_eq!(w.ask("g", "where")["tier"], 1);
    assert_eq!(still_there(w, 10, 3), 10, "no other file had to move");
    assert_eq!(f.write(&vec![1; 6 * MIB]).unwrap(), 6 * MIB);
    drop((f, g));
    assert_eq!(fs::read(w.at("g")).unwrap(), vec![2; 5 * MIB]);
    assert_eq!(fs::read(w.at("f")).unwrap(), vec![1; 7 * MIB]);
    still_there(w, 10, 3);
}

/// If nothing else can move, the kernel reports that the tier is full, and everything before that is kept.
#[test]
fn a_file_larger_than_its_tier_is_refused_when_nothing_else_can_move() {
    let Some(disks) = small(64) else { return };
    let w = &disks.0;
    cold(w, 6, 3);
    run("mkdir mnt/kept; cp mnt/cold0 mnt/kept/", &w.root);
    let open = File::open(w.at("kept/cold0")).unwrap();
    let mut f = writer(w, "f");
    let mut written = 0;
    let full = loop {
        match f.write(&vec![9; MIB]) {
            Ok(n) => written += n,
            Err(e) => break e,
        }
    };
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    assert_eq!(still_there(w, 6, 3), 0, "all that can move has moved");
    assert!(written > 40 * MIB, "{written}");
    assert_eq!(figures(w)["waiting"], 0);
    drop((f, open));
    closed(w);
    let mut f = OpenOptions::new().append(true).open(w.at("f")).unwrap();
    f.write_all(&vec![9; 8 * MIB]).unwrap();
    assert_eq!(w.ask("f", "where")["tier"], 1);
    drop(f);
    assert_eq!(fs::read(w.at("f")).unwrap(), vec![9; written + 8 * MIB]);
}

/// As long as a tier has much space the kernel does not ask; when others fill it, it does.
#[test]
fn the_kernel_asks_only_when_space_is_short() {
    let Some(disks) = small(1536) else { return };
    let w = &disks.0;
    cold(w, 16, 4);
    let mut f = writer(w, "f");
    until("quiet", || figures(w)["asking"] == false);
    f.write_all(&vec![1; MIB]).unwrap();
    let room = rustix::fs::statvfs(w.root.join("fast")).unwrap();
    let filler = File::create(w.on("fast", ".isotherm/filler")).unwrap();
    let most = room.f_bavail * room.f_frsize - (120 << 20);
    fallocate(&filler, FallocateFlags::empty(), 0, most).unwrap();
    until("asks", || figures(w)["asking"] == true);
    f.write_all(&vec![1; 160 * MIB]).unwrap();
    assert!(still_there(w, 16, 4) < 16);
    drop(filler);
    fs::remove_file(w.on("fast", ".isotherm/filler")).unwrap();
    until("quiet again", || figures(w)["asking"] == false);
    f.write_all(&vec![1; MIB]).unwrap();
    drop(f);
    assert_eq!(fs::metadata(w.at("f")).unwrap().len(), 162 << 20);
}

/// The slow tier does not answer while a writer waits for space: nobody else waits, and then the writer goes on.
#[test]
fn a_writer_that_waits_for_a_silent_tier_stops_no_other() {
    let Some(disks) = small(64) else { return };
    let w = &disks.0;
    cold(w, 9, 3);
    let mut other = writer(w, "other");
    other.write_all(&vec![5; MIB]).unwrap();
    let mut f = writer(w, "f");
    run("fsfreeze -f slow", &w.root);
    std::thread::scope(|s| {
        let writes = s.spawn(|| f.write_all(&vec![6; 40 * MIB]));
        until("waits", || figures(w)["waiting"] == 1);
        // What needs no space does not wait.
        other.write_all_at(&vec![7; MIB], 0).unwrap();
        assert_eq!(fs::read(w.at("cold8")).unwrap(), vec![8; 3 * MIB]);
        fs::create_dir(w.at("d")).unwrap();
        fs::rename(w.at("cold7"), w.at("d/g")).unwrap();
        fs::rename(w.at("d/g"), w.at("cold7")).unwrap();
        assert_eq!(fs::metadata(w.at("other")).unwrap().size(), MIB as u64);
        assert!(!writes.is_finished());
        run("fsfreeze -u slow", &w.root);
        writes.join().unwrap().unwrap();
    });
    drop((f, other));
    closed(w);
    assert!(still_there(w, 9, 3) < 9);
    assert_eq!(fs::read(w.at("f")).unwrap(), vec![6; 40 * MIB]);
    assert!(Path::new(&w.at("other")).exists());
}
