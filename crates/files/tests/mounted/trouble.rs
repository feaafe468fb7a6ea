//! Bad days: a disk that is not mounted, a tier that is full while a file grows on it, a slow disk that should sleep.

use crate::world::{World, run};
use isotherm_files::fuse::Io;
use isotherm_files::mount::{Options, mount};
use rustix::io::Errno;
use std::fs::{self, OpenOptions};
use std::io::{Error, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};

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
    assert_eq!(
        fs::read_dir(w.root.join("slow")).unwrap().count(),
        1,
        "only .isotherm"
    );
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
    // The rest works, below directories of the missing tier, too.
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
    // The disk is back.
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
    // Another directory on purpose.
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

/// A small fast tier is full in the middle of a write; all others are, too, at last.
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
    // Room again: on the fast one.
    fs::remove_file(w.at("f")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(600));
    fs::write(w.at("g"), "x").unwrap();
    assert_eq!(w.ask("g", "where")["tier"], 0);
    w.unmount();
    drop(small);
}

/// Unmounts at the end, whatever happened.
struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        let _ = rustix::mount::unmount(&self.0, flags);
    }
}
