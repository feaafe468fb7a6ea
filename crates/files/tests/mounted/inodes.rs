//! Inode numbers that users see: they last over remounts, crashes, moves and renames, and listings show the same ones.

use crate::world::{World, run};
use isotherm_files::fuse::Io;
use isotherm_files::mover::Outcome;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

/// All paths and their numbers. Those of `stat` and of the listing are the same, and no two files have the same.
fn numbers(w: &World) -> BTreeMap<String, u64> {
    let script = "import os, sys
for at, dirs, files in os.walk('.'):
    for e in os.scandir(at):
        assert e.inode() == os.lstat(e.path).st_ino, e.path
        print(os.lstat(e.path).st_ino, e.path)
print(os.stat('.').st_ino, '.')";
    let mut python = Command::new("python3");
    let out = python.args(["-c", script]).current_dir(w.at("."));
    let out = out.output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8(out.stdout).unwrap();
    let lines = text.lines().map(|l| l.split_once(' ').unwrap());
    let all: BTreeMap<String, u64> = lines.map(|(n, p)| (p.into(), n.parse().unwrap())).collect();
    let mut unique: Vec<u64> = all.values().copied().collect();
    unique.sort_unstable();
    unique.dedup();
    // One file has two names.
    assert_eq!(unique.len() + 1, all.len(), "{all:?}");
    all
}

/// Ends it without what an unmount stores, as kill -9 does.
pub(crate) fn kill(w: &mut World) {
    let mounted = w.mounted.take().unwrap();
    let fast = w.on("fast", ".isotherm");
    let kept = w.root.join("kept");
    run("rm -rf kept; cp -a fast/.isotherm kept", &w.root);
    mounted.unmount(std::time::Duration::from_secs(60)).unwrap();
    fs::remove_dir_all(&fast).unwrap();
    fs::rename(kept, fast).unwrap();
}

fn fill(w: &World) {
    run(
        "mkdir -p slow/old fast/old; echo 1 >slow/old/a; echo 2 >fast/b; echo 3 >slow/c",
        &w.root,
    );
}

#[test]
fn they_last() {
    for io in [Io::Cached, Io::Writeback, Io::Passthrough] {
        let Some(mut w) = World::new(|_| {}, io) else {
            return;
        };
        w.unmount();
        fill(&w);
        w.mount();
        fs::create_dir_all(w.at("d/e")).unwrap();
        for f in ["f", "d/g", "d/e/h", "old/new"] {
            fs::write(w.at(f), f).unwrap();
        }
        symlink("f", w.at("s")).unwrap();
        fs::hard_link(w.at("f"), w.at("d/link")).unwrap();
        run("mkfifo pipe", &w.at("."));
        let mut first = numbers(&w);
        assert_eq!(first["."], 1);
        for round in 0..4 {
            let to = u8::from(round % 2 == 0);
            for f in ["f", "old/a", "d/e/h"] {
                assert_eq!(w.send(f, to), Outcome::Done);
            }
            assert_eq!(numbers(&w), first, "moved");
            if round == 1 {
                fs::rename(w.at("d/e"), w.at("e")).unwrap();
                let renamed = ["", "/h"].map(|p| first.remove(&format!("./d/e{p}")).unwrap());
                first.insert("./e".into(), renamed[0]);
                first.insert("./e/h".into(), renamed[1]);
                fs::create_dir(w.at("d/e")).unwrap();
                fs::rename(w.at("e"), w.at("d/e")).unwrap();
                first.remove("./e");
                first.remove("./e/h");
                first.insert("./d/e".into(), renamed[0]);
                first.insert("./d/e/h".into(), renamed[1]);
            }
            match round {
                0 | 2 => kill(&mut w),
                _ => w.unmount(),
            }
            w.settings.marks = (70, 80 + round);
            w.settings.copies = round == 1 && io != Io::Passthrough;
            w.mount();
            assert_eq!(numbers(&w), first, "mounted again");
        }
        let program = fs::read(w.at("d/link")).unwrap();
        assert_eq!(program, b"f");
        assert_eq!(w.ask("", "check")["ok"], true);
    }
}

/// The attribute with the number cannot be seen, set or removed through the mount, and is not copied from it.
#[test]
fn the_attribute_is_hidden() {
    let Some(mut w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    fs::create_dir(w.at("d")).unwrap();
    symlink("f", w.at("s")).unwrap();
    for f in ["f", "g"] {
        fs::write(w.at(f), f).unwrap();
    }
    let flags = rustix::fs::XattrFlags::empty();
    let (own, names) = (c"trusted.isotherm", ["f", "d", "s"]);
    let number = |p: &Path| p.symlink_metadata().unwrap().ino();
    let first = names.map(|n| number(&w.at(n)));
    let mut value = [0; 64];
    for name in names {
        let stored = rustix::fs::lgetxattr(w.on("fast", name), own, &mut value);
        assert_eq!(stored, Ok(16), "{name}");
        for attribute in [own, c"user.isotherm"] {
            let at = w.at(name);
            let get = rustix::fs::lgetxattr(&at, attribute, &mut [0; 64]);
            assert_eq!(get, Err(Errno::NODATA));
            let set = rustix::fs::lsetxattr(&at, attribute, &value[..16], flags);
            assert_eq!(set, Err(Errno::PERM), "{name} {attribute:?}");
            let gone = rustix::fs::lremovexattr(&at, attribute);
            assert!(matches!(gone, Err(Errno::NODATA | Errno::PERM)));
        }
        assert_eq!(rustix::fs::llistxattr(w.at(name), &mut [0; 64]), Ok(0));
    }
    rustix::fs::setxattr(w.at("f"), c"user.colour", b"red", flags).unwrap();
    run(
        "cp -a --preserve=all f copy; rm -f ../list; getfattr -d f >../list 2>/dev/null || true",
        &w.at("."),
    );
    assert_eq!(w.send("f", 1), Outcome::Done);
    kill(&mut w);
    w.mount();
    assert_eq!(names.map(|n| number(&w.at(n))), first);
    let listed = rustix::fs::listxattr(w.at("copy"), &mut value).unwrap();
    assert_eq!(&value[..listed], b"user.colour\0");
    assert_ne!(number(&w.at("copy")), first[0]);
}

/// GNU tar compares inode numbers and times of directories with those of its last run.
#[test]
fn an_incremental_backup_finds_no_change() {
    let Some(mut w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    w.unmount();
    fill(&w);
    w.mount();
    fs::create_dir_all(w.at("d/e")).unwrap();
    for i in 0..50 {
        fs::write(w.at(&format!("d/e/{i}")), "x").unwrap();
    }
    let backup = "tar --create --file $N.tar --listed-incremental=list --no-check-device -C mnt . 2>$N.said; cat $N.said; tar tf $N.tar | grep -v /$ || true";
    let backup = |n: u32, w: &World| {
        let mut sh = Command::new("sh");
        sh.args(["-ec", &backup.replace("$N", &n.to_string())]);
        let out = sh.current_dir(&w.root).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap().lines().count()
    };
    // The first one has all files.
    assert!(backup(1, &w) >= 53);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    for end in [kill, World::unmount] {
        end(&mut w);
        w.mount();
        assert_eq!(
            backup(2, &w),
            0,
            "{}",
            fs::read_to_string(w.root.join("2.said")).unwrap()
        );
    }
}

/// borg and restic, with their usual options, read no file again after a remount, a crash and moves.
#[test]
fn borg_and_restic_find_no_change() {
    let there = |p: &str| Command::new(p).arg("--version").output().is_ok();
    let programs = ["borg", "restic"].map(there);
    let Some(mut w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    w.unmount();
    fill(&w);
    w.mount();
    fs::create_dir(w.at("d")).unwrap();
    for i in 0..50 {
        fs::write(w.at(&format!("d/{i}")), "x").unwrap();
    }
    let script = "export BORG_BASE_DIR=$PWD/borg BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes BORG_RELOCATED_REPO_ACCESS_IS_OK=yes
export RESTIC_PASSWORD=x RESTIC_CACHE_DIR=$PWD/cache RESTIC_REPOSITORY=$PWD/restic-repo; N=$(date +%s%N)";
    let borg = "[ -d borg-repo ] || borg init -e none borg-repo; cd mnt; borg create --list --filter=AM ../borg-repo::$N . 2>&1 | grep -v ' newest$' | grep -c '^[AM] ' || true";
    let restic = "[ -d restic-repo ] || restic init -q; restic backup mnt | sed -n 's/^Files: *\\([0-9]*\\) new, *\\([0-9]*\\) changed.*/\\1 \\2/p'";
    let backup = |program: usize, w: &World| {
        let mut sh = Command::new("sh");
        sh.args(["-ec", &format!("{script}\n{}", [borg, restic][program])]);
        let out = sh.current_dir(&w.root).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        let text = String::from_utf8(out.stdout).unwrap();
        let counts = text.split_whitespace().map(|n| n.parse::<u64>().unwrap());
        counts.sum::<u64>()
    };
    // borg reads the file with the newest change time of the last run again, whatever it is.
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(w.at("newest"), "x").unwrap();
    for (program, name) in ["borg", "restic"].into_iter().enumerate() {
        if !programs[program] {
            println!("SKIPPED: {name} is not installed");
            continue;
        }
        assert_eq!(backup(program, &w), 53 + program as u64, "{name}");
        for (round, end) in [World::unmount as fn(&mut World), kill, kill]
            .into_iter()
            .enumerate()
        {
            for i in 0..20 {
                let to = u8::from(round % 2 == 0);
                assert_eq!(w.send(&format!("d/{i}"), to), Outcome::Done);
            }
            end(&mut w);
            w.mount();
            assert_eq!(backup(program, &w), 0, "{name}, round {round}");
        }
    }
}
