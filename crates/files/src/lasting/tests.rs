mod foreign;
mod trouble;

use super::*;
use crate::mover::Outcome;
use crate::mutants::choose;
use crate::names::IfPresent;
use crate::store::{Settings, Store, me};
use crate::tree::TEMPORARY;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Two tiers. A store that is dropped ends like one that is killed: nothing is written at its end.
struct World {
    dir: tempfile::TempDir,
    settings: Settings,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let tiers: Vec<PathBuf> = ["fast", "slow"].map(|t| dir.path().join(t)).into();
        for t in &tiers {
            fs::create_dir(t).unwrap();
        }
        let settings = Settings {
            tiers,
            marks: (100, 100),
            moves: false,
            ..Settings::default()
        };
        World { dir, settings }
    }
    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }
    fn open(&self) -> Store {
        Store::open(&self.settings).unwrap()
    }
    fn run(&self, script: &str) {
        let mut sh = Command::new("sh");
        let done = sh
            .args(["-ec", script])
            .current_dir(self.dir.path())
            .output();
        let done = done.unwrap();
        assert!(done.status.success(), "{script}: {done:?}");
    }
}

fn number(store: &Store, path: &str) -> u64 {
    let cat = store.cat();
    cat.shown_number(cat.find(path.as_bytes()).unwrap())
}

fn numbers<const N: usize>(store: &Store, paths: [&str; N]) -> [u64; N] {
    paths.map(|p| number(store, p))
}

fn make(store: &Store, name: &str) -> u64 {
    let (_, live, _) = store.create(ROOT, name.as_bytes(), 0o600, me()).unwrap();
    store.release(&live);
    number(store, name)
}

/// All numbers of a store, which last and are unique.
fn unique(store: &Store) -> HashSet<u64> {
    let cat = store.cat();
    let all: Vec<u64> = cat.all().map(|(id, _)| cat.shown_number(id)).collect();
    let unique: HashSet<u64> = all.iter().copied().collect();
    assert_eq!(all.len(), unique.len(), "{all:?}");
    assert!(unique.iter().all(|n| (1..TEMPORARY).contains(n)), "{all:?}");
    unique
}

/// Removes the attributes with the numbers.
fn strip(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_name() != ".isotherm" {
            let _ = rustix::fs::lremovexattr(entry.path(), "trusted.isotherm");
            let _ = rustix::fs::lremovexattr(entry.path(), "user.isotherm");
            if entry.file_type().unwrap().is_dir() {
                strip(&entry.path());
            }
        }
    }
}

fn has_mark(path: &Path) -> bool {
    let mut list = [0; 256];
    let n = rustix::fs::listxattr(path, &mut list).unwrap();
    list[..n].split(|b| *b == 0).any(crate::disk::is_mark)
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, now: &T, first: &T) -> Result<(), String> {
    (now == first)
        .then_some(())
        .ok_or_else(|| format!("{what}: {first:?}, then {now:?}"))
}

/// What all kinds of new files have is the same after a crash, a clean end, a move, a rename and a link.
fn new_files() -> Result<(), String> {
    let w = World::new();
    let store = w.open();
    for f in ["f", "moved", "renamed"] {
        make(&store, f);
    }
    store.mkdir(ROOT, b"d", 0o700, me()).unwrap();
    store.symlink(ROOT, b"s", b"f", me()).unwrap();
    store.mknod(ROOT, b"pipe", 0o010_600, 0, me()).unwrap();
    let renamed = number(&store, "renamed");
    let find = |p: &[u8]| store.cat().find(p).unwrap();
    let (d, moved, f) = (find(b"d"), find(b"moved"), find(b"f"));
    let rename = store.rename((ROOT, b"renamed"), (d, b"renamed"), IfPresent::Refuse);
    rename.unwrap();
    store.link(f, ROOT, b"other").unwrap();
    for node in [moved, f] {
        assert_eq!(store.move_file(node, 1), Outcome::Done);
    }
    let paths = ["f", "moved", "d", "s", "pipe", "d/renamed", "other", "."];
    let first = numbers(&store, paths);
    assert_eq!(
        (first[0], first[5], first[7]),
        (first[6], renamed, ROOT_NUMBER)
    );
    drop(store);
    for round in 0..4 {
        let store = w.open();
        expect("a crash", &numbers(&store, paths), &first)?;
        unique(&store);
        if round == 1 {
            store.names.save_numbers(&store.tiers).unwrap();
        }
        drop(store);
        if round == 1 {
            // From now on only the table has them.
            strip(&w.at("fast"));
            strip(&w.at("slow"));
        }
    }
    Ok(())
}

#[test]
fn numbers_of_new_files_last() {
    new_files().unwrap();
}

/// What others have made is not changed, and has a number that lasts from the moment at which it is first seen.
fn found_files() -> Result<(), String> {
    let w = World::new();
    w.run("mkdir fast/d slow/d; echo 1 >fast/d/a; echo 2 >slow/d/b; ln slow/d/b slow/c; ln -s x slow/s; mkfifo fast/p");
    let paths = ["d", "d/a", "d/b", "c", "s", "p"];
    let store = w.open();
    let first = numbers(&store, paths);
    assert_eq!(first[2], first[3]);
    unique(&store);
    assert!(!has_mark(&w.at("fast/d/a")) && !has_mark(&w.at("fast/d")));
    drop(store);
    // Also by the directory of the other tier alone.
    w.run("mv fast/d/a slow/d/x; rmdir fast/d");
    let paths = ["d", "d/x", "d/b", "c", "s", "p"];
    for clean in [false, true, false] {
        let store = w.open();
        let mut now = numbers(&store, paths);
        // This one has moved to another tier, so it counts as new.
        now[1] = first[1];
        expect("found", &now, &first)?;
        unique(&store);
        if clean {
            store.names.save_numbers(&store.tiers).unwrap();
        }
    }
    // While it is mounted.
    let store = w.open();
    let d = store.cat().find(b"d").unwrap();
    let (_, live, _) = store.create(d, b"mine", 0o600, me()).unwrap();
    store.release(&live);
    let mine = number(&store, "d/mine");
    w.run("echo 3 >fast/new; echo 4 >fast/repaired; mv slow/c slow/renamed; mv fast/p fast/pipe; echo 5 >slow/c; echo 6 >x; mv x fast/d2; ln fast/new fast/twice; mv fast/d/mine slow/d/mine");
    let new = store.create(ROOT, b"new", 0o600, me());
    assert!(new.is_err_and(|e| e == Errno::EXIST));
    assert_eq!(crate::check::check(&store, true)["repaired"], true);
    let paths = [
        "new", "repaired", "renamed", "c", "d/b", "d2", "pipe", "d/mine", "twice",
    ];
    let second = numbers(&store, paths);
    // Whatever the name, an inode keeps its number.
    let same = [second[2], second[4], second[6], second[7], second[8]];
    assert_eq!(same, [first[2], first[2], first[5], mine, second[0]]);
    assert!(second[3] != first[3], "another file has the name");
    drop(store);
    let store = w.open();
    let later = numbers(&store, paths);
    expect("found later", &later, &second)?;
    unique(&store);
    Ok(())
}

#[test]
fn numbers_of_what_others_made_last() {
    found_files().unwrap();
}

/// A copy that others make with all attributes has a number of its own, and the file keeps its number.
fn copied_files() -> Result<(), String> {
    let w = World::new();
    let store = w.open();
    let f = make(&store, "f");
    let node = store.cat().find(b"f").unwrap();
    assert_eq!(store.move_file(node, 1), Outcome::Done);
    drop(store);
    w.run(
        "cp -a --preserve=all slow/f fast/copy; mkdir backup; cp -a --preserve=all slow/f backup",
    );
    assert!(has_mark(&w.at("fast/copy")), "cp copies the attribute");
    let store = w.open();
    let now = numbers(&store, ["f", "copy"]);
    expect("a copy", &now[0], &f)?;
    unique(&store);
    drop(store);
    // Restored from a backup: it is another file.
    w.run("rm slow/f; cp -a --preserve=all backup/f slow/f");
    let store = w.open();
    unique(&store);
    expect("restored", &number(&store, "copy"), &now[1])?;
    assert!(!now.contains(&number(&store, "f")));
    Ok(())
}

#[test]
fn a_copied_attribute_says_nothing() {
    copied_files().unwrap();
}

/// A move changes no change time that users see, also after a remount, and hides no change by others.
fn moved_files() -> Result<(), String> {
    let w = World::new();
    w.run("echo 1 >fast/f; echo 2 >fast/g");
    let ctime = |store: &Store, path: &[u8]| {
        let cat = store.cat();
        cat.get(cat.find(path).unwrap()).unwrap().facts.ctime
    };
    let store = w.open();
    let first = ctime(&store, b"f");
    for (name, to) in [(&b"f"[..], 1), (b"g", 1), (b"f", 0), (b"f", 1)] {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let node = store.cat().find(name).unwrap();
        assert_eq!(store.move_file(node, to), Outcome::Done);
    }
    drop(store);
    for clean in [false, true, false] {
        let store = w.open();
        assert!(store.roots[1].stat(b"f").unwrap().unwrap().ctime > first);
        expect("moved", &ctime(&store, b"f"), &first)?;
        if clean {
            store.names.save_numbers(&store.tiers).unwrap();
        }
    }
    w.run("touch -r slow/f x; echo 3 >slow/f; touch -r x slow/f");
    let store = w.open();
    let now = store.roots[1].stat(b"f").unwrap().unwrap().ctime;
    expect("changed", &ctime(&store, b"f"), &now)
}

#[test]
fn a_move_is_no_change() {
    moved_files().unwrap();
}

/// A number is never used again, also if its file is gone and the store was killed at once, or between the number and the name.
fn killed_at_once() -> Result<(), String> {
    let w = World::new();
    let mut used = HashSet::new();
    for round in 0..4 {
        let store = w.open();
        let new = make(&store, "f");
        if !used.insert(new) {
            return Err(format!("{new} again"));
        }
        if round < 3 {
            store.unlink(ROOT, b"f").unwrap();
        }
        // Killed between the number and the name.
        let (fd, named) = store.roots[0].new_file(b"g", 0o600).unwrap();
        let id = crate::disk::facts_of(&fd).unwrap().id;
        let next = store.names.new_number(&store.tiers).unwrap();
        let lasting = store.names.lasting();
        lasting.give(store.root(0), 0, &fd, id, next).unwrap();
        used.insert(next);
        drop((fd, store));
        assert!(named || !w.at("fast/g").exists());
        let _ = fs::remove_file(w.at("fast/g"));
    }
    Ok(())
}

#[test]
fn no_number_is_given_twice() {
    killed_at_once().unwrap();
}

/// A table that is torn or damaged is not used: what is in the files counts, and no number is repeated.
fn damaged_table() -> Result<(), String> {
    let w = World::new();
    w.run("echo >slow/found");
    let store = w.open();
    let f = make(&store, "f");
    let gone = make(&store, "gone");
    store.unlink(ROOT, b"gone").unwrap();
    let found = number(&store, "found");
    store.names.save_numbers(&store.tiers).unwrap();
    drop(store);
    let table = w.at("fast/.isotherm/numbers");
    let whole = fs::read(&table).unwrap();
    for at in [
        0,
        20,
        30,
        60,
        84,
        whole.len() - 30,
        whole.len() - 1,
        whole.len(),
    ] {
        let mut bad = whole.clone();
        match bad.get_mut(at) {
            Some(b) => *b ^= 2,
            None => bad.truncate(at / 2),
        }
        fs::write(&table, &bad).unwrap();
        let store = w.open();
        expect("damaged", &number(&store, "f"), &f)?;
        unique(&store);
        let now = number(&store, "found");
        if [found, f, gone].contains(&now) || !store.said.lock().unwrap()[0].contains("damaged") {
            return Err(format!("byte {at}: a wrong table was used"));
        }
        let new = make(&store, "new");
        assert!(new > gone && new > now);
        store.unlink(ROOT, b"new").unwrap();
        drop(store);
        fs::write(w.at("fast/.isotherm/numbers.log"), "").unwrap();
    }
    fs::write(&table, &whole).unwrap();
    expect("whole", &numbers(&w.open(), ["f", "found"]), &[f, found])
}

#[test]
fn a_damaged_table_is_not_used() {
    damaged_table().unwrap();
}

/// Two files with the same number are parted, and stay so.
fn duplicates() -> Result<(), String> {
    let w = World::new();
    let store = w.open();
    let first = make(&store, "a");
    make(&store, "b");
    drop(store);
    let b = fs::File::open(w.at("fast/b")).unwrap();
    let id = crate::disk::facts_of(&b).unwrap().id;
    crate::disk::set_number(&b, id, first).unwrap();
    let store = w.open();
    let now = numbers(&store, ["a", "b"]);
    expect("both", &(now[0] != now[1] && now.contains(&first)), &true)?;
    assert_eq!(crate::check::check(&store, false)["renumbered"], 1);
    drop(store);
    let store = w.open();
    assert_eq!(crate::check::check(&store, false)["renumbered"], 0);
    expect("later", &numbers(&store, ["a", "b"]), &now)
}

#[test]
fn files_with_one_number_are_parted() {
    duplicates().unwrap();
}

#[test]
fn every_rule_about_numbers_is_needed() {
    use Mutant::*;
    type Scene = fn() -> Result<(), String>;
    let scenes: [(Mutant, Scene); 10] = [
        (ForgetNew, new_files),
        (ForgetNumber, new_files),
        (ForgetFound, found_files),
        (TrustOldTime, moved_files),
        (TrustCopiedNumber, copied_files),
        (TrustForeignNumber, foreign::one_more_disk),
        (SkipReserve, killed_at_once),
        (TrustTornTable, damaged_table),
        (KeepDuplicate, duplicates),
        (KeepGeneration, trouble::generations),
    ];
    for (mutant, scene) in scenes {
        choose(Some(mutant));
        let noticed = std::panic::catch_unwind(scene).map_or(true, |r| r.is_err());
        choose(None);
        assert!(noticed, "not noticed: {mutant:?}");
    }
}
