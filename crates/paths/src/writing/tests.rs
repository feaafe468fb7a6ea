use super::*;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::PathBuf;
use std::process::Command;

/// Somebody who is not root.
const STRANGER: u32 = 65_534;

fn write(file: &Path) -> io::Result<()> {
    replace(file, 0o640, |f| f.write_all(b"new"))
}

/// Names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let mut all: Vec<String> = fs::read_dir(dir)
        .expect("read")
        .map(|e| e.expect("an entry").file_name().to_string_lossy().into())
        .collect();
    all.sort();
    all
}

fn pipe(at: &Path) {
    let made = Command::new("mkfifo").arg(at).status();
    assert!(made.expect("runs").success());
}

/// A directory with something planted under the names that could be used, and a victim outside.
fn planted(kind: &str) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").expect("written");
    let there = dir.path().join("there");
    fs::create_dir(&there).expect("made");
    for name in ["v", "v.new"] {
        let at = there.join(name);
        match kind {
            "link" => symlink(&victim, &at).expect("made"),
            "dangling link" => symlink(dir.path().join("nowhere"), &at).expect("made"),
            "hard link" => fs::hard_link(&victim, &at).expect("made"),
            "pipe" => pipe(&at),
            "directory" => fs::create_dir(&at).expect("made"),
            "file" => fs::write(&at, "old").expect("written"),
            _ => unreachable!("{kind}"),
        }
    }
    (dir, there, victim)
}

#[test]
fn nothing_is_written_through_what_is_planted() {
    for kind in ["link", "dangling link", "hard link", "pipe", "file"] {
        let (dir, there, victim) = planted(kind);
        write(&there.join("v")).expect(kind);
        let written = fs::symlink_metadata(there.join("v")).expect("there");
        assert!(written.is_file(), "{kind}");
        assert_eq!(fs::read(there.join("v")).expect("read"), b"new", "{kind}");
        assert_eq!(fs::read(victim).expect("read"), b"precious", "{kind}");
        assert_eq!(names(&there), ["v", "v.new"], "{kind}");
        assert_eq!(names(dir.path()), ["there", "victim"], "{kind}");
    }
    let (_dir, there, _) = planted("directory");
    write(&there.join("v")).expect_err("a directory is there");
    assert_eq!(names(&there), ["v", "v.new"]);
    for kind in ["link", "dangling link", "pipe", "file"] {
        let (dir, there, victim) = planted(kind);
        create(&there.join("v"), 0o600).expect_err(kind);
        assert_eq!(fs::read(victim).expect("read"), b"precious", "{kind}");
        assert_eq!(names(dir.path()), ["there", "victim"], "{kind}");
    }
}

#[test]
fn a_failure_leaves_the_old_file_and_nothing_else() {
    let (_dir, there, _) = planted("file");
    let full = |_: &mut File| Err(io::ErrorKind::StorageFull.into());
    replace(&there.join("v"), 0o600, full).expect_err("full");
    assert_eq!(fs::read(there.join("v")).expect("read"), b"old");
    assert_eq!(names(&there), ["v", "v.new"]);
    write(&there.join("no/v")).expect_err("no directory");
    write(Path::new("/")).expect_err("no name");
}

#[test]
fn owner_and_permissions_stay_and_new_files_have_those_asked_for() {
    let (_dir, there, _) = planted("file");
    let v = there.join("v");
    fs::set_permissions(&v, Permissions::from_mode(0o604)).expect("set");
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        chown(&v, Some(STRANGER), Some(STRANGER)).expect("given");
    }
    let old = fs::metadata(&v).expect("there");
    write(&v).expect("written");
    let new = fs::metadata(&v).expect("there");
    assert_eq!(new.mode() & 0o7777, 0o604);
    assert_eq!((new.uid(), new.gid()), (old.uid(), old.gid()));
    let w = there.join("w");
    write(&w).expect("written");
    assert_eq!(fs::metadata(&w).expect("there").mode() & 0o7777, 0o640);
    // A link of the administrator's stays one.
    symlink("w", there.join("x")).expect("made");
    replace_behind_links(&there.join("x"), 0o600, |f| f.write_all(b"3")).expect("written");
    assert_eq!(fs::read(&w).expect("read"), b"3");
    assert!(there.join("x").is_symlink());
    // So does one to a file that is not there yet, and a circle ends.
    symlink("not-yet", there.join("y")).expect("made");
    replace_behind_links(&there.join("y"), 0o600, |f| f.write_all(b"4")).expect("written");
    assert_eq!(fs::read(there.join("not-yet")).expect("read"), b"4");
    symlink("z", there.join("z")).expect("made");
    replace_behind_links(&there.join("z"), 0o600, |_| Ok(())).expect_err("a circle");
}

#[test]
fn a_strangers_link_leads_nowhere_else() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can give files away");
        return;
    }
    let (dir, there, victim) = planted("file");
    let lchown = |at: &Path| std::os::unix::fs::lchown(at, Some(STRANGER), None).expect("given");
    let at = |name: &str| there.join(name);
    fs::create_dir(at("own")).expect("made");
    lchown(&at("own"));
    for (name, goal) in [
        ("out", dir.path()),
        ("up", Path::new("..")),
        ("in", Path::new("own")),
    ] {
        symlink(goal, at(name)).expect("made");
        lchown(&at(name));
    }
    symlink(at("out"), at("over")).expect("made");
    for planted in ["out/victim", "up/victim", "over/victim"] {
        let said = write(&at(planted)).expect_err(planted).to_string();
        assert!(said.contains("name that directory itself"), "{said}");
        assert!(create(&at(planted), 0o600).is_err(), "{planted}");
        assert!(crate::bind(&at(planted), 0o600).is_err(), "{planted}");
    }
    assert_eq!(fs::read(&victim).expect("read"), b"precious");
    write(&at("in/v")).expect("from a user's link to his own directory");
    symlink(&victim, at("description")).expect("made");
    replace_behind_links(&at("description"), 0o600, |f| f.write_all(b"5")).expect("root's link");
    assert_eq!(fs::read(&victim).expect("read"), b"5");
    lchown(&at("description"));
    replace_behind_links(&at("description"), 0o600, |_| Ok(())).expect_err("a stranger's");
    write(&at("description")).expect("replaces the link");
    assert_eq!(fs::read(&victim).expect("read"), b"5");
}

#[test]
fn a_socket_has_its_mode_and_any_length_of_path() {
    let dir = tempfile::tempdir().expect("a directory");
    let deep = dir.path().join("d".repeat(100));
    fs::create_dir(&deep).expect("made");
    for (path, mode) in [
        (dir.path().join("s"), 0o600),
        (deep.join("s"), 0o600),
        (dir.path().join("t"), 0o666),
    ] {
        let first = crate::bind(&path, mode).expect("binds");
        let second = crate::bind(&path, mode).expect("takes the place");
        drop(first);
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o7777, mode);
        drop(second);
    }
    assert_eq!(names(&deep), ["s"]);
    let from = dir.path().join("link");
    symlink("/nowhere", &from).expect("made");
    let listener = crate::bind(&from, 0o600).expect("takes the link's place");
    std::os::unix::net::UnixStream::connect(&from).expect("connects");
    drop(listener);
    assert!(!Path::new("/nowhere").exists());
}

/// Without each rule, one of these tests fails.
#[test]
fn the_tests_notice_a_missing_rule() {
    for (rule, test) in [
        (
            "FollowPlanted",
            "nothing_is_written_through_what_is_planted",
        ),
        ("FollowStrangers", "a_strangers_link_leads_nowhere_else"),
    ] {
        if rule == "FollowStrangers" && !rustix::process::geteuid().is_root() {
            continue;
        }
        let run = Command::new(std::env::current_exe().expect("this program"))
            .arg(test)
            .env("ISOTHERM_PATHS_MUTANT", rule)
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(said.contains("1 failed"), "without {rule}: {said}");
    }
}
