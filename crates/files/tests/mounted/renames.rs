//! Renames across tiers, and calls that a file system may refuse.

use crate::trouble::Unmount;
use crate::world::{World, run, until};
use isotherm_files::fuse::Io;
use isotherm_files::mover::Outcome;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

fn with(a: &Path, b: &Path, flags: RenameFlags) -> Result<(), Errno> {
    renameat_with(CWD, a, CWD, b, flags)
}

/// Files and directories on every pair of three tiers are replaced, exchanged and kept; the next mount must show the same.
#[test]
fn names_change_places_over_three_tiers() {
    let Some(mut w) = World::with_tiers(3, |_| {}, Io::Cached) else {
        return;
    };
    let read = |w: &World, p: &str| fs::read_to_string(w.at(p)).unwrap();
    let mut expected = Vec::new();
    for (a, b) in (0..3u8).flat_map(|a| (0..3u8).map(move |b| (a, b))) {
        let d = format!("d{a}{b}");
        fs::create_dir(w.at(&d)).unwrap();
        let file = |n: &str, tier: u8| {
            let path = format!("{d}/{n}");
            fs::write(w.at(&path), format!("{n}{a}{b}")).unwrap();
            assert_eq!(w.send(&path, tier), Outcome::Done);
            w.at(&path)
        };
        let (x, y) = (file("x", a), file("y", b));
        let (u, v) = (file("u", a), file("v", b));
        let kept = with(&x, &y, RenameFlags::NOREPLACE);
        assert_eq!(kept, Err(Errno::EXIST));
        with(&x, &y, RenameFlags::EXCHANGE).unwrap();
        fs::rename(&u, &v).unwrap();
        // A directory with files on both tiers, over an empty one, and exchanged with a file.
        for (n, tier) in [("s/one", a), ("s/two", b), ("t/three", b)] {
            fs::create_dir_all(w.at(&format!("{d}/{}", &n[..1]))).unwrap();
            file(n, tier);
        }
        fs::create_dir(w.at(&format!("{d}/empty"))).unwrap();
        fs::rename(w.at(&format!("{d}/s")), w.at(&format!("{d}/empty"))).unwrap();
        with(&w.at(&format!("{d}/t")), &v, RenameFlags::EXCHANGE).unwrap();
        let gone = with(&u, &v, RenameFlags::EXCHANGE);
        assert_eq!(gone, Err(Errno::NOENT));
        for (path, text) in [
            ("x", "y"),
            ("y", "x"),
            ("t", "u"),
            ("v/three", "t/three"),
            ("empty/one", "s/one"),
            ("empty/two", "s/two"),
        ] {
            expected.push((format!("{d}/{path}"), format!("{text}{a}{b}")));
        }
    }
    for (path, text) in &expected {
        assert_eq!(read(&w, path), *text, "{path}");
    }
    assert_eq!(w.ask("", "check")["ok"], true, "{}", w.ask("", "check"));
    w.unmount();
    w.mount();
    for (path, text) in &expected {
        assert_eq!(read(&w, path), *text, "{path} after a mount");
    }
}

/// Files without names are refused in a way that programs know; mappings, locks, copies in the kernel and rewound listings must work on
/// every tier.
#[test]
fn unusual_calls_work_or_are_refused() {
    let Some(w) = World::with_tiers(3, |_| {}, Io::Cached) else {
        return;
    };
    let nameless = rustix::fs::open(w.at(""), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR);
    assert_eq!(nameless.unwrap_err(), Errno::OPNOTSUPP);
    for tier in 0..3u8 {
        fs::write(w.at("f"), vec![b'f'; 100_000]).unwrap();
        assert_eq!(w.send("f", tier), Outcome::Done);
        run(
            "python3 - <<'P'
import fcntl, mmap, os, struct, subprocess, sys
f = open('f', 'r+b')
m = mmap.mmap(f.fileno(), 100000)
m[50000:50005] = b'mapped'[:5]; m.flush()
assert os.pread(f.fileno(), 5, 50000) == b'mappe'
os.pwrite(f.fileno(), b'WRITE', 60000)
assert m[60000:60005] == b'WRITE'
m.close()
# Another process sees the lock, whole and in part, by both calls.
probe = '''import fcntl, sys
f = open(\"f\", \"r+b\")
try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, int(sys.argv[1])); print(\"free\")
except BlockingIOError: print(\"held\")'''
fcntl.lockf(f, fcntl.LOCK_EX, 10, 100)
ask = lambda at: subprocess.run([sys.executable, '-c', probe, str(at)], capture_output=True, text=True).stdout.strip()
assert (ask(105), ask(200)) == ('held', 'free')
flock = subprocess.run(['flock', '-n', '-x', 'f', 'true']).returncode
assert flock == 0
fcntl.flock(f, fcntl.LOCK_SH)
assert subprocess.run(['flock', '-n', '-x', 'f', 'true']).returncode == 1
assert subprocess.run(['flock', '-n', '-s', 'f', 'true']).returncode == 0
# Copies in the kernel: same and other offsets, into a file with a hole.
g = open('g', 'w+b'); g.truncate(300000)
assert os.copy_file_range(f.fileno(), g.fileno(), 50000, 50000, 50000) == 50000
n = os.copy_file_range(f.fileno(), g.fileno(), 20000, 50000, 200000)
g.flush(); assert os.pread(g.fileno(), 5, 50000) == b'mappe' and os.pread(g.fileno(), 5, 200000) == b'mappe'
assert os.lseek(g.fileno(), 100001, os.SEEK_DATA) >= 100001
h = open('hole', 'w+b'); h.truncate(1 << 20); os.pwrite(h.fileno(), b'x', 1 << 19); h.flush()
assert os.lseek(h.fileno(), 0, os.SEEK_DATA) == 1 << 19 and os.lseek(h.fileno(), 0, os.SEEK_HOLE) == 0
P
rm f g hole",
            &w.at(""),
        );
    }
    // A rewound listing must show files that were created since, also if it was empty.
    fs::create_dir(w.at("empty")).unwrap();
    let mut list = rustix::fs::Dir::read_from(fs::File::open(w.at("empty")).unwrap()).unwrap();
    assert_eq!(list.by_ref().count(), 2);
    fs::write(w.at("empty/new"), "").unwrap();
    list.rewind();
    assert_eq!(list.count(), 3);
}

/// A move leaves the times of the directory as they were, and takes back no change that a user makes meanwhile.
#[test]
fn times_of_directories_go_on_while_files_move() {
    use isotherm_files::chaos;
    use std::sync::atomic::{AtomicBool, Ordering};
    let Some(w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    let stop = AtomicBool::new(false);
    let store = std::sync::Arc::clone(&w.mounted.as_ref().unwrap().store);
    fs::create_dir(w.at("d")).unwrap();
    for i in 0..4 {
        fs::write(w.at(&format!("d/f{i}")), "x").unwrap();
    }
    let time = || fs::metadata(w.at("d")).unwrap().modified().unwrap();
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| chaos::run(&store, 3, || stop.load(Ordering::SeqCst)));
        let lost = (0..100).find(|_| {
            let before = time();
            std::thread::sleep(std::time::Duration::from_millis(11));
            fs::write(w.at("d/new"), "").unwrap();
            let made = time();
            std::thread::sleep(std::time::Duration::from_millis(11));
            fs::remove_file(w.at("d/new")).unwrap();
            made <= before || time() <= made
        });
        if lost.is_none() {
            until("a move", || w.moves() > 0);
        }
        stop.store(true, Ordering::SeqCst);
        mover.join().unwrap();
        assert_eq!(lost, None, "a change of the directory does not show");
    });
}

fn is_whiteout(path: &Path) -> bool {
    let found = fs::symlink_metadata(path).unwrap();
    found.file_type().is_char_device() && found.rdev() == 0
}

/// RENAME_WHITEOUT leaves a whiteout in the place of the old name, on whatever tier the file is, also after the next mount.
#[test]
fn a_rename_leaves_a_whiteout() {
    let Some(mut w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    fs::create_dir(w.at("d")).unwrap();
    for (name, tier) in [("fast", 0), ("slow", 1), ("over", 1)] {
        fs::write(w.at(name), name).unwrap();
        assert_eq!(w.send(name, tier), Outcome::Done);
    }
    fs::write(w.at("d/over"), "replaced").unwrap();
    let mut numbers = Vec::new();
    for name in ["fast", "slow", "over"] {
        let (from, to) = (w.at(name), w.at(&format!("d/{name}")));
        with(&from, &to, RenameFlags::WHITEOUT).unwrap();
        assert!(is_whiteout(&from), "{name}");
        numbers.push(fs::symlink_metadata(&from).unwrap().ino());
        assert_eq!(fs::read_to_string(&to).unwrap(), name);
    }
    w.unmount();
    w.mount();
    for (name, number) in ["fast", "slow", "over"].into_iter().zip(numbers) {
        let from = w.at(name);
        assert!(is_whiteout(&from), "{name}");
        assert_eq!(fs::symlink_metadata(&from).unwrap().ino(), number);
        assert_eq!(
            fs::read_to_string(w.at(&format!("d/{name}"))).unwrap(),
            name
        );
    }
    assert_eq!(w.ask("", "check")["ok"], true);
    w.unmount();
}

/// The kernel's overlay accepts the mount as its upper directory, and all that it changes is there after the next mount of both.
#[test]
fn an_overlay_has_its_upper_directory_on_the_mount() {
    let Some(mut w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    run(
        "mkdir -p lower/dir/deep merged; for f in gone kept changed dir/a dir/b dir/deep/c; do echo $f >lower/$f; done; mkdir mnt/upper mnt/work",
        &w.root,
    );
    let overlay =
        "mount -t overlay overlay -o lowerdir=lower,upperdir=mnt/upper,workdir=mnt/work merged";
    let mount = |w: &World| {
        let mut sh = std::process::Command::new("sh");
        sh.args(["-c", overlay])
            .current_dir(&w.root)
            .status()
            .unwrap()
            .success()
    };
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    if !known.contains("\toverlay\n") {
        println!("SKIPPED: the kernel has no overlay");
        return;
    }
    assert!(mount(&w));
    let work = "cd merged; rm gone; echo new >changed; mv kept moved; rm -r dir; mkdir dir; echo x >dir/x; ln changed twice; mv dir/x dir/y; touch late; mv late dir/late";
    let look = "cd merged; cat changed moved twice dir/y; find . | sort | tr '\n' ' '; test ! -e gone -a ! -e kept -a ! -e dir/a";
    let seen = |w: &World| {
        let mut sh = std::process::Command::new("sh");
        let out = sh
            .args(["-ec", look])
            .current_dir(&w.root)
            .output()
            .unwrap();
        (out.status.success(), String::from_utf8(out.stdout).unwrap())
    };
    let merged = Unmount(w.root.join("merged"));
    run(work, &w.root);
    let before = seen(&w);
    drop(merged);
    assert_eq!(
        before,
        (
            true,
            "new\nkept\nnew\nx\n. ./changed ./dir ./dir/late ./dir/y ./moved ./twice ".into()
        )
    );
    // The mover may take whatever it wants.
    for (path, tier) in [("upper/changed", 1), ("upper/moved", 1), ("upper/dir/y", 1)] {
        assert_eq!(w.send(path, tier), Outcome::Done, "{path}");
    }
    w.unmount();
    w.mount();
    assert!(is_whiteout(&w.at("upper/gone")));
    assert!(mount(&w));
    let merged = Unmount(w.root.join("merged"));
    assert_eq!(seen(&w), before);
    drop(merged);
    w.unmount();
}
