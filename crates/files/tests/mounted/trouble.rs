//! Faults: a disk that is not mounted, a disk that fails during use, a tier that becomes full while a file on it grows, a slow disk that
//! should sleep.

use crate::world::{World, run};
use isotherm_files::fuse::Io;
use isotherm_files::mount::{Options, mount};
use rustix::io::Errno;
use std::fs::{self, OpenOptions};
use std::io::{Error, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

fn refused(w: &World) -> String {
    let options = Options {
        io: Io::Cached,
        threads: 1,
        allow_other: false,
        read_only: false,
    };
    match mount(&w.settings, &w.root.join("mnt"), &options) {
        Ok(_) => "mounted".into(),
        Err(e) => e.0,
    }
}

fn is(e: &Error, errno: Errno) -> bool {
    e.raw_os_error() == Some(errno.raw_os_error())
}

/// The slow disk is not mounted at boot: an empty directory is in its place.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story, each step upon the one before"
)]
fn a_tier_that_is_missing_takes_only_its_files_along() {
    let Some(mut w) = World::with_tiers(3, |_| {}, Io::Cached) else {
        return;
    };
    for d in ["both", "slow only", "both/deep"] {
        fs::create_dir(w.at(d)).unwrap();
    }
    fs::set_permissions(w.at("slow only"), fs::Permissions::from_mode(0o751)).unwrap();
    for (f, tier) in [
        ("both/f", 0),
        ("both/m", 1),
        ("both/deep/s", 2),
        ("slow only/s", 2),
    ] {
        fs::write(w.at(f), f).unwrap();
        w.send(f, tier);
    }
    w.unmount();
    // Only the slow disk has that directory.
    fs::remove_dir(w.on("fast", "slow only")).unwrap();
    fs::rename(w.root.join("slow"), w.root.join("away")).unwrap();
    fs::create_dir(w.root.join("slow")).unwrap();
    let said = refused(&w);
    assert!(said.contains("is its disk mounted?"), "{said}");
    let left = fs::read_dir(w.root.join("slow")).unwrap().count();
    assert_eq!(left, 0, "a refused mount leaves nothing");
    w.settings.degraded = true;
    w.mount();
    assert_eq!(w.ask("", "status")["state"], "degraded");
    assert_eq!(fs::read(w.at("both/m")).unwrap(), b"both/m");
    assert_eq!(
        fs::metadata(w.at("slow only/s")).unwrap().len(),
        11,
        "shown"
    );
    let slow = w.at("both/deep/s");
    let errors = [
        fs::read(&slow).map(|_| ()),
        OpenOptions::new().append(true).open(&slow).map(|_| ()),
        fs::remove_file(&slow),
        fs::rename(&slow, w.at("x")),
        fs::rename(w.at("both/f"), &slow),
        fs::hard_link(&slow, w.at("x")),
        fs::set_permissions(&slow, fs::Permissions::from_mode(0o600)),
        fs::rename(w.at("slow only"), w.at("x")),
        fs::remove_dir_all(w.at("slow only")),
    ];
    for (i, e) in errors.into_iter().enumerate() {
        let e = e.unwrap_err();
        assert!(is(&e, Errno::IO), "{i}: {e}");
    }
    let said = w.ask("", "status")["said"].to_string();
    assert!(said.contains("does not answer (it is missing)"), "{said}");
    // The rest must work, also in directories of the missing tier.
    fs::write(w.at("slow only/new"), "new").unwrap();
    let mode = fs::metadata(w.on("fast", "slow only")).unwrap().mode_bits();
    assert_eq!(mode, 0o751);
    fs::set_permissions(w.at("both"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::rename(w.at("both/f"), w.at("both/g")).unwrap();
    assert_eq!(w.ask("", "check")["ok"], true, "{}", w.ask("", "check"));
    assert!(matches!(
        w.send("both/g", 2),
        isotherm_files::mover::Outcome::Refused(_)
    ));
    w.unmount();
    // The disk is mounted again.
    fs::remove_dir_all(w.root.join("slow")).unwrap();
    fs::rename(w.root.join("away"), w.root.join("slow")).unwrap();
    w.settings.degraded = false;
    w.mount();
    assert_eq!(w.ask("", "status")["state"], "serving");
    for f in [
        "both/g",
        "both/m",
        "both/deep/s",
        "slow only/s",
        "slow only/new",
    ] {
        assert!(fs::read(w.at(f)).is_ok(), "{f}");
    }
    w.unmount();
    // Another directory is used on purpose.
    fs::rename(w.root.join("middle"), w.root.join("old")).unwrap();
    fs::create_dir(w.root.join("middle")).unwrap();
    w.settings.accept = true;
    w.mount();
    assert!(fs::read(w.at("both/m")).is_err());
    w.unmount();
    w.settings.accept = false;
    w.mount();
}

trait Bits {
    fn mode_bits(&self) -> u32;
}

impl Bits for fs::Metadata {
    fn mode_bits(&self) -> u32 {
        self.permissions().mode() & 0o7777
    }
}

/// A small fast tier becomes full in the middle of a write; in the end all others are full, too.
#[test]
fn a_full_tier_gives_its_growing_file_away() {
    let Some(mut w) = World::with_tiers(3, |_| {}, Io::Cached) else {
        return;
    };
    w.unmount();
    let mut small = Vec::new();
    for (tier, mib) in [("fast", 4), ("middle", 8), ("slow", 16)] {
        let dir = w.root.join(tier);
        run(
            &format!("mount -t tmpfs -o size={mib}M none {tier}"),
            &w.root,
        );
        small.push(Unmount(dir));
    }
    w.settings.accept = true;
    w.mount();
    let mut f = OpenOptions::new();
    let f = f.create(true).read(true).write(true);
    let mut f = f.truncate(true).open(w.at("f")).unwrap();
    let chunk = vec![7u8; 1 << 20];
    let on = |w: &World| w.ask("f", "where")["tier"].as_u64().unwrap();
    let mut written = 0u64;
    let mut tiers = vec![on(&w)];
    let full = loop {
        match f.write(&chunk) {
            Ok(n) => written += n as u64,
            Err(e) => break e,
        }
        let now = on(&w);
        if tiers.last() != Some(&now) {
            tiers.push(now);
        }
        assert!(written < 17 << 20);
    };
    assert!(is(&full, Errno::NOSPC), "{full}");
    assert_eq!(tiers, [0, 1, 2]);
    assert!(written >= 14 << 20, "{written}");
    let mut byte = [0];
    f.read_exact_at(&mut byte, written - 1).unwrap();
    assert_eq!((byte[0], f.metadata().unwrap().len() >= written), (7, true));
    drop(f);
    assert_eq!(w.ask("", "check")["ok"], true, "{}", w.ask("", "check"));
    // The fast tier has space again.
    fs::remove_file(w.at("f")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(600));
    fs::write(w.at("g"), "x").unwrap();
    assert_eq!(w.ask("g", "where")["tier"], 0);
    w.unmount();
    drop(small);
}

/// An ext4 over a loop device as the slow tier of a world with two tiers, with default mount options; it has no delayed writes of its own.
pub(crate) fn slow_disk(
    change: impl FnOnce(&mut isotherm_files::store::Settings),
) -> Option<(World, Unmount)> {
    let mut w = World::new(change, Io::Cached)?;
    w.unmount();
    run(
        "truncate -s 64M disk; mkfs.ext4 -q -b 1024 -E lazy_itable_init=0,lazy_journal_init=0 disk; mount -o loop disk slow; rmdir slow/lost+found",
        &w.root,
    );
    let disk = Unmount(w.root.join("slow"));
    w.settings.accept = true;
    Some((w, disk))
}

/// Every later call on the slow tier fails, as after the kernel has given up the disk (EXT4_IOC_SHUTDOWN, the log is lost).
pub(crate) fn kill_slow_disk(w: &World) {
    let die = "import fcntl, os, struct; fcntl.ioctl(os.open('slow', 0), 0x8004587D, struct.pack('I', 2))";
    run(&format!("python3 -c \"{die}\""), &w.root);
}

/// What the block device of a slow disk was asked for; equal values mean that nothing woke it in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requests {
    /// Changes with every read that is not 4 KiB long. Servers of volumes, such as those of other tests, search all block devices for their
    /// members, with reads of that length; the blocks of the file system are 1 KiB.
    reads: i64,
    /// Number of sectors. The requests are not counted: a sync(2) of any process is one, without data.
    written: i64,
}

/// The requests of the block device on which a directory lies.
pub(crate) fn requests(dir: &Path) -> Requests {
    let dev = fs::metadata(dir).unwrap().dev();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).unwrap();
    let counts: Vec<i64> = stat
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    Requests {
        reads: counts[2] - 8 * counts[0],
        written: counts[6],
    }
}

/// Reads names, attributes and the state of a mount, and uses the fast tier in a directory that at first only the slow tier had.
fn look_at_names(w: &World) {
    run(
        "test $(ls -lR mnt | wc -l) -gt 1000; find mnt -newermt 2001-01-01 -size -20c >found; test -s found; du -s mnt >du; df mnt >df",
        &w.root,
    );
    let mut tag = [0; 8];
    assert_eq!(
        rustix::fs::getxattr(w.at("d3/f3"), "user.tag", &mut tag[..]),
        Ok(1)
    );
    assert_eq!(fs::read_link(w.at("d3/points")).unwrap(), Path::new("f1"));
    assert!(fs::metadata(w.at("d3/nobody")).is_err());
    for _ in 0..2 {
        fs::write(w.at("d4/new"), "new").unwrap();
        assert_eq!(fs::read(w.at("d4/new")).unwrap(), b"new");
        fs::rename(w.at("d4/new"), w.at("d5/other")).unwrap();
        fs::remove_file(w.at("d5/other")).unwrap();
    }
    for what in ["status", "stats"] {
        w.ask("", what);
    }
    assert_eq!(w.ask("d3/f3", "why")["tier"], 1);
    std::thread::sleep(Duration::from_millis(1500));
}

/// Reading names and attributes must wake no disk: the block device below the slow tier gets no request, with all caches of the kernel
/// dropped.
///
/// Other programs (blkid, udev) and the kernel's thread for new file systems may read block devices at any time, so only one of six tries
/// must be without a request. A request of the mount itself would occur in each.
#[test]
fn a_slow_disk_sleeps_while_names_are_looked_at() {
    let Some((mut w, disk)) = slow_disk(|s| s.moves = true) else {
        return;
    };
    for d in 0..20 {
        let dir = w.on("slow", &format!("d{d}"));
        fs::create_dir(&dir).unwrap();
        for f in 0..50 {
            fs::write(dir.join(format!("f{f}")), "some bytes").unwrap();
        }
        fs::hard_link(dir.join("f0"), dir.join("linked")).unwrap();
        symlink("f1", dir.join("points")).unwrap();
    }
    let tagged = w.on("slow", "d3/f3");
    rustix::fs::setxattr(&tagged, "user.tag", b"x", rustix::fs::XattrFlags::empty()).unwrap();
    let mut looks = Vec::new();
    let still = loop {
        w.mount();
        // Reading the names at the mount changed times of directories; these are written now.
        rustix::fs::sync();
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        let before = requests(&w.root.join("slow"));
        look_at_names(&w);
        let after = requests(&w.root.join("slow"));
        if before == after {
            break before;
        }
        looks.push((before, after));
        assert!(
            looks.len() < 6,
            "somebody woke the disk each time: {looks:?}"
        );
        w.unmount();
        run("rm -rf fast/d4 fast/d5", &w.root);
    };
    // A request that wakes the disk is visible in the measurement.
    assert_eq!(fs::read(w.at("d7/f7")).unwrap(), b"some bytes");
    assert_ne!(requests(&w.root.join("slow")).reads, still.reads);
    let woke = &w.ask("", "status")["tiers"][1]["last_opened"];
    // The kernel gives the number of the thread that opens a file.
    let here = rustix::thread::gettid().as_raw_nonzero().get();
    assert_eq!(woke["path"], "d7/f7");
    assert_eq!(woke["pid"], here, "{woke}");
    assert!(woke["program"].is_string(), "{woke}");
    w.unmount();
    drop(disk);
}

/// Immutable, append-only and sealed files stay on their tiers, and attempts to move them do not stop the moves of others.
#[test]
fn what_is_fixed_on_its_tier_stays_there() {
    use isotherm_files::mover::{Outcome, Why};
    let Some((mut w, disk)) = slow_disk(|s| s.copies = true) else {
        return;
    };
    for f in ["fixed", "log", "d/f", "verity", "plain"] {
        let path = w.on("slow", f);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "as it is").unwrap();
    }
    // fs-verity, if the kernel supports it and it can be switched on for the file system.
    run(
        "chattr +i slow/fixed; chattr +a slow/log slow/d; tune2fs -O verity disk 2>tune || cat tune
python3 - <<'P'
import fcntl, os, struct
f = os.open('slow/verity', os.O_RDONLY)
try: fcntl.ioctl(f, 0x40806685, struct.pack('IIIIQIIQ', 1, 1, 4096, 0, 0, 0, 0, 0) + bytes(88))
except OSError as e: pass
P
lsattr slow/verity | cut -d' ' -f1 >sealed",
        &w.root,
    );
    let sealed = fs::read_to_string(w.root.join("sealed")).unwrap();
    w.mount();
    for f in ["fixed", "log", "d/f"] {
        assert_eq!(w.send(f, 0), Outcome::Refused(Why::Flags), "{f}");
    }
    if sealed.contains('V') {
        assert_eq!(w.send("verity", 0), Outcome::Refused(Why::Flags));
    } else {
        println!("SKIPPED: fs-verity");
    }
    // A change on two tiers that cannot be finished is not begun.
    for f in ["fixed", "log", "d/f"] {
        fs::write(w.at("new"), "new").unwrap();
        let over = fs::rename(w.at("new"), w.at(f)).unwrap_err();
        assert!(is(&over, Errno::PERM), "{f}: {over}");
        assert_eq!(fs::read(w.at(f)).unwrap(), b"as it is");
    }
    assert!(fs::rename(w.at("d"), w.at("e")).is_err());
    assert_eq!(w.ask("", "status")["state"], "serving");
    assert_eq!(w.send("plain", 0), Outcome::Done);
    let store = &w.mounted.as_ref().unwrap().store;
    let node = store.cat().find(b"fixed").unwrap();
    assert_eq!(store.fetch(node), Outcome::Done, "a copy is no move");
    assert_eq!(fs::read(w.at("fixed")).unwrap(), b"as it is");
    assert_eq!(w.ask("", "check")["ok"], true);
    w.unmount();
    w.mount();
    w.unmount();
    run("chattr -i slow/fixed; chattr -a slow/log slow/d", &w.root);
    drop(disk);
}

/// The slow disk fails under the mount: calls that need it return EIO, with a message that states the reason; everything else works.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story, each step upon the one before"
)]
fn a_tier_that_dies_takes_only_its_files_along() {
    let Some((mut w, disk)) = slow_disk(|_| {}) else {
        return;
    };
    fs::create_dir(w.on("slow", "both")).unwrap();
    fs::create_dir(w.on("slow", "slow only")).unwrap();
    w.mount();
    for f in ["both/open", "both/s", "both/up", "slow only/s"] {
        fs::write(w.at(f), vec![7u8; 8192]).unwrap();
        w.send(f, 1);
    }
    for f in ["both/f", "both/g", "both/down"] {
        fs::write(w.at(f), f).unwrap();
    }
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .open(w.at("both/open"))
        .unwrap();
    rustix::fs::sync();
    kill_slow_disk(&w);
    run("echo 3 >/proc/sys/vm/drop_caches", &w.root);
    let mut byte = [0];
    let slow = w.at("both/s");
    let errors = [
        open.read_exact_at(&mut byte, 0),
        open.write_all_at(b"x", 0),
        open.sync_all(),
        fs::read(&slow).map(|_| ()),
        fs::remove_file(&slow),
        fs::rename(&slow, w.at("x")),
        fs::rename(w.at("both/f"), &slow),
        fs::set_permissions(&slow, fs::Permissions::from_mode(0o600)),
        fs::rename(w.at("both"), w.at("x")),
        fs::remove_dir_all(w.at("slow only")),
    ];
    for (i, e) in errors.into_iter().enumerate() {
        let e = e.unwrap_err();
        assert!(is(&e, Errno::IO) || is(&e, Errno::ROFS), "{i}: {e}");
    }
    drop(open);
    let status = w.ask("", "status");
    assert_eq!(status["state"], "degraded", "{status}");
    assert_eq!(
        (
            &status["tiers"][0]["failing"],
            &status["tiers"][1]["failing"]
        ),
        (&false.into(), &true.into())
    );
    let said = status["said"].to_string();
    assert!(said.contains("does not answer"), "{said}");
    // Names are shown, and the fast tier is unchanged.
    assert_eq!(fs::metadata(&slow).unwrap().len(), 8192);
    assert_eq!(fs::read_dir(w.at("both")).unwrap().count(), 6);
    fs::write(w.at("both/new"), "new").unwrap();
    fs::rename(w.at("both/f"), w.at("both/g")).unwrap();
    fs::remove_file(w.at("both/new")).unwrap();
    fs::create_dir(w.at("made")).unwrap();
    assert_eq!(fs::read(w.at("both/g")).unwrap(), b"both/f");
    // The mover stops, and loses nothing.
    for (f, to) in [("both/up", 0), ("both/down", 1)] {
        let outcome = w.send(f, to);
        assert!(
            !matches!(outcome, isotherm_files::mover::Outcome::Done),
            "{f}"
        );
    }
    assert_eq!(fs::read(w.at("both/down")).unwrap(), b"both/down");
    assert_eq!(
        fs::read_dir(w.on("fast", ".isotherm/tmp")).unwrap().count(),
        0
    );
    fs::write(w.at("both/late"), "late").unwrap();
    w.unmount();
    // The disk itself is intact: mounted again, it has all of its files.
    drop(disk);
    run("mount -o loop disk slow", &w.root);
    let disk = Unmount(w.root.join("slow"));
    w.settings.accept = false;
    w.mount();
    assert_eq!(w.ask("", "status")["state"], "serving");
    for f in ["both/open", "both/s", "both/up", "slow only/s"] {
        assert_eq!(fs::read(w.at(f)).unwrap(), vec![7u8; 8192], "{f}");
    }
    for (f, holds) in [
        ("both/g", "both/f"),
        ("both/down", "both/down"),
        ("both/late", "late"),
    ] {
        assert_eq!(fs::read(w.at(f)).unwrap(), holds.as_bytes(), "{f}");
    }
    w.unmount();
    drop(disk);
}

/// Unmounts at the end of the test in any case.
pub(crate) struct Unmount(pub(crate) std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        let _ = rustix::mount::unmount(&self.0, flags);
    }
}
