//! A mount whose slow tier has several disks.

use crate::kernel_writes::asks;
use crate::passthrough::closed;
use crate::trouble::{Unmount, kill_slow_disk, slow_disk};
use crate::world::{World, run, until};
use isotherm_files::fuse::Io;
use isotherm_files::mover::Outcome;
use rustix::io::Errno;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;

const MIB: usize = 1 << 20;

/// The kernel itself writes a file on a disk that becomes full: colder files leave it for the other disks of the tier.
#[test]
fn a_writer_of_the_kernel_gets_the_space_of_cold_files_on_its_disk() {
    let Some(mut w) = World::with_disks(|_| {}, Io::Passthrough) else {
        return;
    };
    w.unmount();
    run(
        "truncate -s 96M img; mkfs.ext4 -q -m 0 -E lazy_itable_init=0,lazy_journal_init=0 img; mount -o loop img slow; rmdir slow/lost+found",
        &w.root,
    );
    let disk = Unmount(w.root.join("slow"));
    w.settings.accept = true;
    w.mount();
    if asks(&w) {
        for n in 0..18 {
            let name = format!("cold{n}");
            fs::write(w.at(&name), vec![n as u8; 3 * MIB]).unwrap();
            closed(&w);
            assert_eq!(w.send(&name, 1), Outcome::Done);
        }
        fs::write(w.at("f"), "").unwrap();
        closed(&w);
        assert_eq!(w.send("f", 1), Outcome::Done);
        let mut f = OpenOptions::new().write(true).open(w.at("f")).unwrap();
        assert_eq!(w.ask("f", "why")["passthrough"], true);
        for _ in 0..30 {
            f.write_all(&vec![7; MIB]).unwrap();
        }
        f.write_all(&vec![8; 20 * MIB]).unwrap();
        assert_eq!(w.ask("f", "where")["disks"], serde_json::json!([1]));
        drop(f);
        let all = fs::read(w.at("f")).unwrap();
        assert!(all.len() == 50 * MIB && all[30 * MIB - 1] == 7 && all[30 * MIB] == 8);
        let left = (0..18).filter(|n| {
            let name = format!("cold{n}");
            assert!(fs::read(w.at(&name)).unwrap() == vec![*n as u8; 3 * MIB]);
            w.on("slow", &name).exists()
        });
        assert!(left.count() < 18);
        let check = w.ask("", "check");
        assert_eq!(check["ok"], true, "{check}");
    }
    w.unmount();
    drop(disk);
}

/// Times, modes and numbers of files and directories are the same whatever the disk; `df` counts a file system once, and a mount says that
/// disks share one.
#[test]
fn a_move_between_disks_shows_nowhere() {
    let Some(w) = World::with_disks(|_| {}, Io::Cached) else {
        return;
    };
    fs::create_dir(w.at("d")).unwrap();
    fs::write(w.at("d/f"), "f").unwrap();
    let look = |path: &str| {
        let m = fs::metadata(w.at(path)).unwrap();
        (m.ino(), m.mode(), m.mtime_nsec(), m.ctime_nsec(), m.nlink())
    };
    let before = [look("d"), look("d/f")];
    for disk in [1, 3, 2, 1] {
        assert_eq!(w.send("d/f", disk), Outcome::Done);
        assert_eq!([look("d"), look("d/f")], before);
        let below = w.ask("d/f", "where");
        assert_eq!(
            (&below["tier"], &below["disks"][0]),
            (&1.into(), &disk.into())
        );
    }
    for disk in ["slow", "slow2", "slow3"] {
        let m = fs::metadata(w.on(disk, "d")).unwrap();
        assert_eq!(
            (m.mode(), m.mtime_nsec()),
            (before[0].1, before[0].2),
            "{disk}"
        );
    }
    let size = |at: &std::path::Path| {
        let s = rustix::fs::statvfs(at).unwrap();
        s.f_blocks * s.f_frsize
    };
    let (ours, below) = (size(&w.at("")), size(&w.root));
    assert!(ours.abs_diff(below) <= 4096, "{ours} {below}");
    let said = w.ask("", "status")["said"].to_string();
    assert_eq!(
        said.matches("same file system as another disk").count(),
        2,
        "{said}"
    );
}

/// A disk joins a mount in use: its names are there also where the kernel knew that there was none, in the directory that took the command,
/// too.
#[test]
fn names_of_a_disk_that_joins_are_seen_at_once() {
    let Some(w) = World::with_disks(|_| {}, Io::Cached) else {
        return;
    };
    fs::create_dir(w.at("d")).unwrap();
    fs::create_dir_all(w.on("new", "d")).unwrap();
    let names = ["top", "d/f"];
    for name in names {
        assert!(!w.at(name).exists());
        fs::write(w.on("new", name), name).unwrap();
    }
    let add = |path: &str| {
        let path = w.root.join(path).display().to_string();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(w.at(""), "user.isotherm.add", path.as_bytes(), flags).unwrap();
        until("it joins or is refused", || {
            let joining = w.ask("", "disks")["joining"].clone();
            joining.is_null() || joining["refused"].is_string()
        });
        w.ask("", "disks")["joining"]["refused"].clone()
    };
    // The server asks itself, which must not end in a deadlock.
    let said = add("mnt/d").to_string();
    assert!(said.contains("`isotherm mount` serves at"), "{said}");
    let said = add("mnt").to_string();
    assert!(said.contains("`isotherm mount` serves at"), "{said}");
    assert!(add("new").is_null());
    until("the kernel is told", || {
        names.iter().all(|n| w.at(n).exists())
    });
    for name in names {
        assert_eq!(fs::read_to_string(w.at(name)).unwrap(), name);
    }
    let listed = fs::read_dir(w.at("")).unwrap();
    assert_eq!(listed.count(), 2);
    assert_eq!(w.send("d/f", 1), Outcome::Done);
    fs::write(w.at("d/more"), "more").unwrap();
    assert_eq!(w.send("d/more", 4), Outcome::Done);
    assert!(w.on("new", "d/more").exists());
    let check = w.ask("", "check");
    assert_eq!(check["ok"], true, "{check}");
}

/// `df` shows no space that a quota forbids.
#[test]
fn df_shows_what_quotas_allow() {
    let quotas = |s: &mut isotherm_files::store::Settings| {
        s.quotas = vec![Some(2 << 20), Some(6 << 20)];
    };
    let Some(w) = World::with_disks(quotas, Io::Cached) else {
        return;
    };
    let space = || {
        let s = rustix::fs::statvfs(w.root.join("mnt")).unwrap();
        (s.f_blocks * s.f_frsize, s.f_bavail * s.f_frsize)
    };
    assert_eq!(space(), (8 << 20, 8 << 20));
    fs::write(w.at("f"), vec![7; 1 << 20]).unwrap();
    run("sync -f .", &w.root.join("mnt"));
    assert_eq!(space(), (8 << 20, 7 << 20));
}

/// A directory that is private on one disk and public on another is private in the tree, also for a file of the public one.
#[test]
fn a_directory_is_as_private_as_on_any_disk() {
    let Some(mut w) = World::with_disks(|_| {}, Io::Cached) else {
        return;
    };
    w.unmount();
    let open = |mode| fs::Permissions::from_mode(mode);
    fs::set_permissions(&w.root, open(0o755)).unwrap();
    for (disk, path, mode) in [
        ("slow", "home", 0o755),
        ("slow2", "home", 0o700),
        ("slow", "public", 0o755),
        ("slow3", "public", 0o755),
    ] {
        let dir = w.on(disk, path);
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, open(mode)).unwrap();
        fs::write(dir.join(disk), "key").unwrap();
        fs::set_permissions(dir.join(disk), open(0o644)).unwrap();
    }
    w.mount();
    let nobody_reads = |path| {
        let cat = std::process::Command::new("cat")
            .arg(w.at(path))
            .uid(65534)
            .gid(65534)
            .output();
        cat.unwrap().status.success()
    };
    let files = ["public/slow", "public/slow3", "home/slow", "home/slow2"];
    assert_eq!(files.map(nobody_reads), [true, true, false, false]);
    assert_eq!(fs::read(w.at("home/slow2")).unwrap(), b"key");
}

/// Nobody has used a file of a disk since it died, except for this program, which copies or moves it: that counts, too.
#[test]
fn a_copy_that_fails_counts_for_the_disk_that_failed() {
    for (copies, file) in [(true, "copied"), (false, "moved")] {
        let Some((mut w, disk)) = slow_disk(|s| s.copies = copies) else {
            return;
        };
        w.mount();
        fs::write(w.at(file), vec![7u8; 8192]).unwrap();
        w.send(file, 1);
        let open = fs::File::open(w.at(file)).unwrap();
        rustix::fs::sync();
        run("echo 3 >/proc/sys/vm/drop_caches", &w.root);
        kill_slow_disk(&w);
        let health = |w: &World| {
            let tiers = w.ask("", "status")["tiers"].clone();
            [0, 1].map(|t| (tiers[t]["failing"] == true, tiers[t]["errors"].as_u64()))
        };
        assert_eq!(health(&w), [(false, Some(0)); 2], "{file}");
        let store = &w.mounted.as_ref().unwrap().store;
        let node = store.cat().find(file.as_bytes()).unwrap();
        let outcome = if copies {
            store.fetch(node)
        } else {
            store.move_file(node, 0)
        };
        assert_eq!(outcome, Outcome::Failed(Errno::IO), "{file}");
        assert_eq!(health(&w), [(false, Some(0)), (true, Some(1))], "{file}");
        drop(open);
        w.unmount();
        drop(disk);
    }
}
