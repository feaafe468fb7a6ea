//! A real mount: two directories as tiers, real programs, and a mover that moves every file at random in the meantime.

mod asleep;
mod disks;
mod edges;
mod file_handles;
mod fsx;
mod handles;
mod heads;
mod hung_reads;
mod inodes;
mod kernel_writes;
mod kinds;
mod locks;
mod passthrough;
mod ranges;
mod read_only;
mod refusals;
mod renames;
mod settings;
mod stalled;
mod trouble;
mod world;

use isotherm_files::fuse::Io;
use isotherm_files::mount::{Options, mount};
use isotherm_files::mover::Outcome;
use isotherm_files::store::Settings;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use world::{World, run, until};

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn what_posix_promises_on_both_tiers() {
    let Some(mut w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    for tier in [0u8, 1] {
        let d = w.at(&format!("d{tier}"));
        fs::create_dir(&d).unwrap();
        let at = |n: &str| d.join(n);
        fs::write(at("f"), "hello").unwrap();
        assert_eq!(w.send(&format!("d{tier}/f"), tier), Outcome::Done);
        // Append, truncate, holes, read back through a second handle.
        let mut f = OpenOptions::new()
            .append(true)
            .read(true)
            .open(at("f"))
            .unwrap();
        f.write_all(b" world").unwrap();
        assert_eq!(fs::read(at("f")).unwrap(), b"hello world");
        f.set_len(5).unwrap();
        f.sync_all().unwrap();
        assert_eq!(fs::metadata(at("f")).unwrap().len(), 5);
        File::create(at("hole"))
            .unwrap()
            .write_all_at(b"x", 1 << 20)
            .unwrap();
        assert!(fs::metadata(at("hole")).unwrap().blocks() * 512 < 1 << 20);
        let mut hole = File::open(at("hole")).unwrap();
        hole.seek(SeekFrom::Start((1 << 20) - 1)).unwrap();
        let mut two = Vec::new();
        hole.read_to_end(&mut two).unwrap();
        assert_eq!(two, b"\0x");
        // Names.
        assert!(
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(at("f"))
                .is_err()
        );
        fs::hard_link(at("f"), at("g")).unwrap();
        assert_eq!(fs::metadata(at("f")).unwrap().nlink(), 2);
        assert_eq!(
            fs::metadata(at("f")).unwrap().ino(),
            fs::metadata(at("g")).unwrap().ino()
        );
        fs::write(at("h"), "other").unwrap();
        fs::rename(at("h"), at("g")).unwrap();
        assert_eq!(fs::read(at("g")).unwrap(), b"other");
        assert_eq!(fs::read(at("f")).unwrap(), b"hello");
        assert_eq!(fs::metadata(at("f")).unwrap().nlink(), 1);
        symlink("f", at("s")).unwrap();
        assert_eq!(fs::read(at("s")).unwrap(), b"hello");
        // A deleted open file stays readable and writable.
        let gone = OpenOptions::new()
            .read(true)
            .write(true)
            .open(at("g"))
            .unwrap();
        fs::remove_file(at("g")).unwrap();
        gone.write_all_at(b"OTHER", 0).unwrap();
        let mut text = [0; 5];
        gone.read_exact_at(&mut text, 0).unwrap();
        assert_eq!((&text, gone.metadata().unwrap().nlink()), (b"OTHER", 0));
        drop(gone);
        // Attributes.
        fs::set_permissions(at("f"), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::metadata(at("f")).unwrap().mode() & 0o7777, 0o640);
        rustix::fs::setxattr(
            at("f"),
            "user.colour",
            b"red",
            rustix::fs::XattrFlags::empty(),
        )
        .unwrap();
        let script = "python3 - <<'P'
import os, fcntl, mmap
assert os.getxattr('f', 'user.colour') == b'red' and os.listxattr('f') == ['user.colour']
os.utime('f', ns=(1500000000123456789, 1600000000987654321))
s = os.stat('f'); assert (s.st_atime_ns, s.st_mtime_ns) == (1500000000123456789, 1600000000987654321), s
os.chown('f', 12, 34); s = os.stat('f'); assert (s.st_uid, s.st_gid) == (12, 34)
f = open('f', 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); fcntl.flock(f, fcntl.LOCK_EX)
m = mmap.mmap(f.fileno(), 5); m[0:1] = b'J'; m.flush(); m.close(); f.close()
assert open('f', 'rb').read() == b'Jello'
f = open('big', 'wb'); os.posix_fallocate(f.fileno(), 0, 65536); f.close(); assert os.stat('big').st_size == 65536
os.mkfifo('fifo'); os.mkdir('sub'); open('sub/x', 'w').close()
try: os.rmdir('sub'); assert False
except OSError as e: assert e.errno == 39
assert sorted(os.listdir('.')) == sorted(['f', 'hole', 's', 'big', 'fifo', 'sub'])
P";
        run(script, &d);
        assert!(
            fs::rename(&d, at("sub/d")).is_err(),
            "a directory into itself"
        );
    }
    fs::rename(w.at("d1"), w.at("renamed")).unwrap();
    assert!(w.on("slow", "renamed/f").exists() && !w.on("slow", "d1").exists());
    assert_eq!(w.ask("", "check")["ok"], true, "{}", w.ask("", "check"));
    assert!(fs::metadata(w.at(".isotherm")).is_err(), "hidden");
    w.unmount();
    assert_eq!(fs::read(w.on("fast", "d0/f")).unwrap(), b"Jello");
    assert_eq!(fs::read(w.on("slow", "renamed/f")).unwrap(), b"Jello");
    w.mount();
    assert_eq!(fs::read(w.at("renamed/f")).unwrap(), b"Jello");
    assert_eq!(
        fs::metadata(w.at("renamed/f")).unwrap().mode() & 0o7777,
        0o640
    );
}

#[test]
fn files_keep_everything_when_they_move() {
    let Some(w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    let f = w.at("a/f");
    fs::create_dir(w.at("a")).unwrap();
    let data: Vec<u8> = (0..300_000u32).map(|i| (i * 7 % 251) as u8).collect();
    fs::write(&f, &data).unwrap();
    fs::hard_link(&f, w.at("a/g")).unwrap();
    rustix::fs::setxattr(&f, "user.colour", b"red", rustix::fs::XattrFlags::empty()).unwrap();
    fs::set_permissions(&f, fs::Permissions::from_mode(0o4751)).unwrap();
    let before = fs::metadata(&f).unwrap();
    let open = OpenOptions::new().read(true).write(true).open(&f).unwrap();
    assert_eq!(w.send("a/f", 1), Outcome::Done);
    assert!(!w.on("fast", "a/f").exists() && !w.on("fast", "a/g").exists());
    let (x, y) = (
        fs::metadata(w.on("slow", "a/f")).unwrap(),
        fs::metadata(w.on("slow", "a/g")).unwrap(),
    );
    assert_eq!((x.ino(), x.nlink()), (y.ino(), 2), "all names moved");
    let after = fs::metadata(&f).unwrap();
    assert_eq!(
        (
            before.ino(),
            before.mode(),
            before.mtime_nsec(),
            before.nlink()
        ),
        (after.ino(), after.mode(), after.mtime_nsec(), 2)
    );
    open.write_all_at(b"moved", 100).unwrap();
    assert_eq!(&fs::read(w.on("slow", "a/g")).unwrap()[100..105], b"moved");
    assert_eq!(&fs::read(w.at("a/g")).unwrap()[105..], &data[105..]);
    assert_eq!(w.ask("a/f", "where")["tier"], 1);
    // A link outside of the namespace: all names or none must move.
    fs::hard_link(w.on("slow", "a/f"), w.on("slow", ".isotherm/outside")).unwrap();
    let outcome = w.send("a/f", 0);
    assert_eq!(outcome, Outcome::Refused(isotherm_files::mover::Why::Links));
    assert_eq!(fs::read(w.at("a/f")).unwrap().len(), data.len());
}

#[test]
fn programs_under_a_mover_that_moves_everything() {
    for (copies, io) in [(false, Io::Cached), (true, Io::Writeback)] {
        let change = |s: &mut Settings| {
            s.copies = copies;
            s.heads.bytes = if copies { 4096 } else { 0 };
        };
        programs(World::new(change, io));
    }
}

#[test]
fn programs_while_everything_moves_between_three_disks() {
    programs(World::with_disks(|s| s.copies = true, Io::Cached));
}

#[expect(clippy::too_many_lines, reason = "one scenario")]
fn programs(world: Option<World>) {
    let Some(mut w) = world else { return };
    let source = w.root.join("source");
    fs::create_dir_all(source.join("deep/er")).unwrap();
    for i in 0..120u32 {
        let text: String = (0..i * 37)
            .map(|n| char::from(b'a' + ((n * i) % 26) as u8))
            .collect();
        fs::write(
            source.join(format!("{}f{i}", ["", "deep/", "deep/er/"][i as usize % 3])),
            text,
        )
        .unwrap();
    }
    let stop = AtomicBool::new(false);
    let store = std::sync::Arc::clone(&w.mounted.as_ref().unwrap().store);
    std::thread::scope(|scope| {
        let mover =
            scope.spawn(|| isotherm_files::chaos::run(&store, 1, || stop.load(Ordering::SeqCst)));
        let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let dir = w.at("");
            for _ in 0..1 {
                run(
                    "rm -rf copy; mkdir copy; tar -C ../source -cf - . | tar -C copy -xf -; diff -r ../source copy; mv copy copy2; diff -r ../source copy2; rm -rf copy2",
                    &dir,
                );
            }
            run("python3 - <<'P'
import sqlite3
d = sqlite3.connect('a.db')
d.execute('create table t (k integer primary key, v text)')
for r in range(12):
    with d: d.executemany('insert into t (v) values (?)', [('x' * (r * i % 900),) for i in range(60)])
    if r % 3 == 0:
        with d: d.execute('delete from t where k % 7 = ?', (r % 7,))
assert d.execute('pragma integrity_check').fetchone() == ('ok',)
n = d.execute('select count(*), sum(length(v)) from t').fetchone()
d.close()
d = sqlite3.connect('a.db'); assert d.execute('select count(*), sum(length(v)) from t').fetchone() == n
P", &dir);
            if Command::new("git")
                .arg("--version")
                .output()
                .is_ok_and(|o| o.status.success())
            {
                run(
                    "git init -q repo; cd repo; git config user.email a@b; git config user.name a; cp -r ../../source/. .; git add .; git commit -qm one; git fsck --strict; cd ..; git clone -q repo clone; diff -r --exclude=.git repo clone",
                    &dir,
                );
            }
            // A compiler, a linker and the program that they made.
            run(
                "mkdir app; cd app; mkdir src
for i in 1 2 3 4 5 6; do echo \"pub fn f$i(n: u64) -> u64 { (0..n).map(|x| x * $i).sum() }\" >src/m$i.rs; done
printf '[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n' >Cargo.toml
(for i in 1 2 3 4 5 6; do echo \"mod m$i;\"; done; echo 'fn main() { println!(\"{}\", m1::f1(10) + m6::f6(10)); }') >src/main.rs
CARGO_TARGET_DIR=\"$PWD/target\" cargo build -q --offline
[ \"$(target/debug/app)\" = 315 ]",
                &dir,
            );
            until("moves", || w.moves() > 20);
        }));
        stop.store(true, Ordering::SeqCst);
        mover.join().unwrap();
        if let Err(e) = work {
            std::panic::resume_unwind(e);
        }
    });
    let check = w.ask("", "check");
    assert_eq!(check["ok"], true, "{check}");
    drop(store);
    w.unmount();
    let left = |t: &str| fs::read_dir(w.on(t, ".isotherm/tmp")).unwrap().count();
    assert_eq!((left("fast"), left("slow")), (0, 0));
}

#[test]
fn new_files_spill_pins_hold_and_policies_move() {
    let Some(w) = World::new(
        |s| {
            s.marks = (80, 90);
            s.quotas = vec![Some(4 << 20), None];
            s.rules = vec![isotherm_files::rules::Rule::parse("*.iso=slow").unwrap()];
            s.policy = "hot-dst-dynamic".into();
        },
        Io::Cached,
    ) else {
        return;
    };
    for i in 0..20 {
        fs::write(w.at(&format!("f{i}")), vec![i as u8; 400_000]).unwrap();
        File::open(w.at(&format!("f{i}")))
            .unwrap()
            .sync_all()
            .unwrap();
        std::thread::sleep(Duration::from_millis(if i == 8 { 600 } else { 0 }));
    }
    fs::write(w.at("x.iso"), "disc").unwrap();
    let store = &w.mounted.as_ref().unwrap().store;
    let on = |t: u8| {
        store
            .cat()
            .all()
            .filter(|n| n.1.is_file() && n.1.tier == t)
            .count()
    };
    assert!(
        on(1) >= 8,
        "above the mark new files go to the slow tier: {}",
        on(1)
    );
    store.migrate_now();
    assert_eq!(w.ask("x.iso", "where")["tier"], 1, "the rule");
    let dir = store.cat().find(b"f19").unwrap();
    assert!(isotherm_files::control::command(store, dir, "pin", b"fast").is_ok());
    store.migrate_now();
    assert_eq!(w.ask("f19", "where")["tier"], 0, "{}", w.ask("f19", "why"));
    assert_eq!(w.ask("f19", "why")["decided_by"], "pin");
    assert_eq!(fs::read(w.at("f19")).unwrap(), vec![19u8; 400_000]);
    for i in 0..20 {
        assert_eq!(
            fs::read(w.at(&format!("f{i}"))).unwrap(),
            vec![i as u8; 400_000]
        );
    }
    assert_eq!(w.ask("", "check")["ok"], true);
}

#[test]
fn what_is_read_again_and_again_comes_up_under_every_kind_of_policy() {
    for policy in [
        "benefit",
        "hro",
        "hot",
        "hot-dst-dynamic",
        "cache-ondemand",
        "lru",
    ] {
        let Some(w) = World::new(|s| s.policy = policy.into(), Io::Cached) else {
            return;
        };
        for i in 0..6 {
            fs::write(w.at(&format!("f{i}")), vec![7; 20_000]).unwrap();
        }
        let store = &w.mounted.as_ref().unwrap().store;
        for i in 0..6 {
            assert_eq!(w.send(&format!("f{i}"), 1), Outcome::Done);
            let node = store.cat().find(format!("f{i}").as_bytes()).unwrap();
            let n = store.cat().get(node).unwrap().facts;
            store
                .placement
                .report_tier(node, 1, &n, format!("f{i}").as_bytes(), true);
        }
        for turn in 0..60u64 {
            let node = store.cat().find(b"f3").unwrap();
            let live = store.live(node).unwrap();
            let mut bytes = [0; 512];
            store
                .read(&live, (turn * 7919) % 19_000, &mut bytes)
                .unwrap();
            store.release(&live);
            if turn % 10 == 0 {
                store.feed_policy();
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        store.migrate_now();
        assert_eq!(
            w.ask("f3", "where")["tier"],
            0,
            "{policy}: {}",
            w.ask("f3", "why")
        );
        assert_eq!(fs::read(w.at("f3")).unwrap(), vec![7; 20_000]);
        assert!(w.ask("f3", "why")["policy_says"].is_string());
    }
}

#[test]
fn edits_underneath_are_noticed_and_shown() {
    let Some(w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    fs::write(w.at("a"), "one").unwrap();
    fs::write(w.at("b"), "two").unwrap();
    fs::write(w.on("fast", "new"), "x").unwrap();
    fs::remove_file(w.on("fast", "b")).unwrap();
    fs::write(w.on("fast", "a2"), "other one").unwrap();
    fs::rename(w.on("fast", "a2"), w.on("fast", "a")).unwrap();
    let check = w.ask("", "check");
    assert_eq!(
        (
            check["ok"].as_bool(),
            check["findings"].as_array().unwrap().len()
        ),
        (Some(false), 3),
        "{check}"
    );
    assert_eq!(w.send("a", 1), Outcome::Done, "what is there now is moved");
    assert!(
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(w.at("new"))
            .is_err()
    );
    isotherm_files::check::check(&w.mounted.as_ref().unwrap().store, true);
    assert_eq!(w.ask("", "check")["ok"], true);
    assert_eq!(fs::read(w.at("a")).unwrap(), b"other one");
    assert_eq!(fs::read(w.at("new")).unwrap(), b"x");
    assert!(fs::read(w.at("b")).is_err());
}

#[test]
fn what_cannot_be_served_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for d in ["fast", "slow", "fast/in", "mnt"] {
        fs::create_dir(root.join(d)).unwrap();
    }
    let options = Options {
        io: Io::Cached,
        threads: 1,
        allow_other: false,
        read_only: false,
    };
    let said = |tiers: &[&str], mnt: &str, policy: &str| {
        let settings = Settings {
            tiers: tiers.iter().map(|t| root.join(t)).collect(),
            policy: policy.into(),
            ..Settings::default()
        };
        match mount(&settings, &root.join(mnt), &options) {
            Ok(_) => String::from("mounted"),
            Err(e) => e.0,
        }
    };
    assert!(said(&["fast", "nowhere"], "mnt", "hro").contains("missing"));
    assert!(said(&["fast", "fast/in"], "mnt", "hro").contains("lies in another tier"));
    assert!(said(&["fast", "slow"], "fast/in", "hro").contains("lies in the tier"));
    assert!(said(&["fast"], "mnt", "hro").contains("2 to 8"));
    assert!(said(&["fast", "slow"], "mnt", "hrro").contains("nearest: `hro`"));
    fs::write(root.join("fast/x"), "1").unwrap();
    fs::write(root.join("slow/x"), "2").unwrap();
    assert!(said(&["fast", "slow"], "mnt", "hro").contains("names are taken on two tiers: x"));
    assert!(said(&["fast", "slow"], ".", "hro").contains("not empty"));
}
