//! Files that the kernel itself reads and writes on their tiers.

use crate::world::{World, run};
use isotherm_files::fuse::Io;
use isotherm_files::mover::{Outcome, Why};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;
use std::time::Duration;

#[test]
fn passthrough_serves_and_keeps_open_files_where_they_are() {
    let Some(w) = World::new(|_| {}, Io::Passthrough) else {
        return;
    };
    let mut f = File::create(w.at("f")).unwrap();
    f.write_all(b"hello").unwrap();
    let live = w.ask("f", "why")["passthrough"] == true;
    if live {
        let outcome = w.send("f", 1);
        assert_eq!(outcome, Outcome::Refused(Why::Passthrough));
    } else {
        println!("SKIPPED in part: no passthrough on this kernel");
    }
    f.write_all(b" world").unwrap();
    drop(f);
    assert_eq!(fs::read(w.at("f")).unwrap(), b"hello world");
    assert_eq!(fs::metadata(w.at("f")).unwrap().len(), 11);
    // The kernel reports the last close a little later.
    let mut moved = w.send("f", 1);
    for _ in 0..600 {
        if moved == Outcome::Done {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        moved = w.send("f", 1);
    }
    assert_eq!(moved, Outcome::Done);
    assert_eq!(fs::read(w.at("f")).unwrap(), b"hello world");
}

/// A world whose fast tier has 16 MiB and whose slow one has 64 MiB; `None` also on a kernel without passthrough.
fn small(change: impl FnOnce(&mut isotherm_files::store::Settings)) -> Option<World> {
    let mut w = World::new(change, Io::Passthrough)?;
    File::create(w.at("try")).unwrap();
    let open = File::open(w.at("try")).unwrap();
    let works = w.ask("try", "why")["passthrough"] == true;
    drop(open);
    w.unmount();
    if !works {
        println!("SKIPPED: no passthrough on this kernel");
        return None;
    }
    for (tier, mib) in [("fast", 16), ("slow", 64)] {
        let mount = format!("mount -t tmpfs -o size={mib}M none {tier}");
        run(&mount, &w.root);
    }
    w.settings.accept = true;
    w.mount();
    Some(w)
}

fn end(mut w: World) {
    w.unmount();
    // A child process of another test may still have a descriptor for a moment.
    run("umount -l fast; umount -l slow", &w.root);
}

/// The kernel reports the last close of a file a little later.
pub(crate) fn closed(w: &World) {
    for _ in 0..600 {
        if w.ask("", "status")["in_use"] == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("still in use: {}", w.ask("", "status"));
}

/// Fills the fast tier up to that many MiB, or makes room again. The mount notices after half a second.
fn fill(w: &World, mib: usize) {
    fs::write(w.on("fast", ".isotherm/filler"), vec![1; mib << 20]).unwrap();
    std::thread::sleep(Duration::from_millis(600));
}

#[test]
fn a_nearly_full_tier_gives_a_growing_file_away_also_with_passthrough() {
    // Once with an upper mark, and once without, where the last sixteenth of the tier counts.
    for (marks, filled) in [((80, 90), 15), ((100, 100), 15)] {
        let Some(w) = small(|s| s.marks = marks) else {
            return;
        };
        fs::write(w.at("f"), "begin").unwrap();
        fill(&w, filled);
        fs::write(w.on("fast", ".isotherm/filler2"), vec![1; 600 << 10]).unwrap();
        std::thread::sleep(Duration::from_millis(600));
        let mut f = OpenOptions::new().append(true).open(w.at("f")).unwrap();
        f.write_all(&vec![7; 4 << 20]).unwrap();
        let why = w.ask("f", "why");
        assert_eq!(
            (&why["tier"], &why["passthrough"]),
            (&1.into(), &false.into()),
            "{marks:?}: {why}"
        );
        let said = w.ask("", "status")["said"].to_string();
        assert!(said.contains("nearly full"), "{said}");
        drop(f);
        let all = fs::read(w.at("f")).unwrap();
        assert_eq!((all.len(), &all[..6]), ((4 << 20) + 5, &b"begin\x07"[..]));
        end(w);
    }
}

/// The kernel refuses handles of both kinds at the same time, and its cache does not see writes through passthrough.
#[test]
fn handles_of_both_kinds_follow_each_other_and_show_the_same_bytes() {
    let Some(w) = small(|s| s.marks = (80, 90)) else {
        return;
    };
    let passes = |yes: bool| assert_eq!(w.ask("f", "why")["passthrough"], yes);
    let open = |write: bool| {
        OpenOptions::new()
            .read(true)
            .write(write)
            .open(w.at("f"))
            .unwrap()
    };
    let byte = |f: &File| {
        let mut byte = [0];
        f.read_exact_at(&mut byte, 0).unwrap();
        byte[0]
    };
    fs::write(w.at("f"), "0").unwrap();
    closed(&w);
    for turn in 0..3u8 {
        let (a, b) = (b'a' + turn, b'A' + turn);
        // Nearly full: the first handle goes through the mount, and so do all others as long as one is open.
        fill(&w, 15);
        let writer = open(true);
        let reader = open(false);
        passes(false);
        writer.write_all_at(&[a], 0).unwrap();
        assert_eq!((byte(&writer), byte(&reader)), (a, a));
        drop(writer);
        fill(&w, 1);
        let other = open(true);
        passes(false);
        assert_eq!(byte(&other), a);
        drop((reader, other));
        closed(&w);
        // With space, the kernel reads and writes itself.
        let reader = open(false);
        let writer = open(true);
        passes(true);
        writer.write_all_at(&[b], 0).unwrap();
        assert_eq!((byte(&writer), byte(&reader)), (b, b));
        drop((reader, writer));
        closed(&w);
        fill(&w, 15);
        let both = open(true);
        passes(false);
        assert_eq!(byte(&both), b, "an old page of the kernel's cache");
        drop(both);
        closed(&w);
    }
    assert_eq!(w.ask("", "check")["ok"], true, "{}", w.ask("", "check"));
    end(w);
}

/// The worst day of a writer: the file cannot move, because a reader has a passthrough handle; its tier is full; others can leave it.
#[test]
fn a_writer_beside_a_passthrough_reader_gets_the_space_of_others() {
    let Some(w) = small(|_| {}) else {
        return;
    };
    fs::write(w.at("f"), "begin").unwrap();
    fs::set_permissions(w.at("f"), fs::Permissions::from_mode(0o4777)).unwrap();
    for n in 0..7 {
        fs::write(w.at(&format!("old{n}")), vec![n; 2 << 20]).unwrap();
    }
    closed(&w);
    let reader = File::open(w.at("f")).unwrap();
    assert_eq!(w.ask("f", "why")["passthrough"], true);
    fs::write(w.on("fast", ".isotherm/filler"), vec![1; 3 << 19]).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    let mut f = OpenOptions::new().append(true).open(w.at("f")).unwrap();
    // Four times what is free, in one call and in many.
    f.write_all(&vec![7; 2 << 20]).unwrap();
    for _ in 0..32 {
        f.write_all(&vec![8; 64 << 10]).unwrap();
    }
    assert_eq!(
        w.send("f", 1),
        Outcome::Refused(Why::Passthrough),
        "stayed where it was"
    );
    let moved = (0..7).filter(|n| w.ask(&format!("old{n}"), "where")["tier"] == 1);
    assert!((1..7).contains(&moved.count()), "as many as were needed");
    // Both kinds of handles see the same, and a user who may not keep them loses the file's rights.
    let mut bytes = [0; 6];
    reader.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"begin\x07");
    reader.read_exact_at(&mut bytes, (4 << 20) - 1).unwrap();
    assert_eq!(bytes, [8; 6]);
    let mode = || fs::metadata(w.at("f")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(), 0o4777, "written by root");
    // A user without privileges writes with the same handle.
    let other = Command::new("setpriv")
        .args(["--reuid", "1000", "--clear-groups", "printf", "x"])
        .stdout(f.try_clone().unwrap())
        .status();
    assert!(other.unwrap().success());
    assert_eq!(mode(), 0o777);
    // Preallocation makes space, too.
    rustix::fs::fallocate(&f, rustix::fs::FallocateFlags::empty(), 0, 7 << 20).unwrap();
    drop((f, reader));
    for n in 0..7 {
        assert_eq!(
            fs::read(w.at(&format!("old{n}"))).unwrap(),
            vec![n; 2 << 20]
        );
    }
    let check = w.ask("", "check");
    assert_eq!(check["ok"], true, "{check}");
    end(w);
}

/// What the kernel itself writes, nobody can redirect: a writer that outgrows the tier gets ENOSPC, and keeps what was written before.
#[test]
fn a_writer_that_outgrows_its_tier_loses_nothing_and_goes_on_after_a_new_open() {
    let Some(w) = small(|_| {}) else {
        return;
    };
    let mut f = File::create(w.at("f")).unwrap();
    assert_eq!(w.ask("f", "why")["passthrough"], true);
    let mut written = 0;
    let full = loop {
        match f.write(&vec![9; 1 << 20]) {
            Ok(n) => written += n,
            Err(e) => break e,
        }
    };
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    assert!((10 << 20..16 << 20).contains(&written), "{written}");
    drop(f);
    closed(&w);
    let mut f = OpenOptions::new().append(true).open(w.at("f")).unwrap();
    // The mover may have made space for it before the last close was over.
    let why = w.ask("f", "why");
    assert!(why["passthrough"] == false || why["tier"] == 1, "{why}");
    f.write_all(&vec![9; 8 << 20]).unwrap();
    assert_eq!(w.ask("f", "where")["tier"], 1);
    drop(f);
    assert_eq!(fs::read(w.at("f")).unwrap(), vec![9; written + (8 << 20)]);
    end(w);
}

/// With `--passthrough=reads`, the same writer does not notice that its tier became full.
#[test]
fn with_passthrough_for_reads_a_writer_outgrows_its_tier() {
    let Some(mut w) = small(|_| {}) else {
        return;
    };
    w.unmount();
    w.io = Io::PassthroughReads;
    w.mount();
    assert_eq!(w.ask("", "status")["io"], "passthrough=reads");
    let mut f = File::create(w.at("f")).unwrap();
    assert_eq!(w.ask("f", "why")["passthrough"], false);
    f.write_all(&vec![9; 24 << 20]).unwrap();
    assert_eq!(w.ask("f", "where")["tier"], 1);
    drop(f);
    closed(&w);
    let f = File::open(w.at("f")).unwrap();
    assert_eq!(w.ask("f", "why")["passthrough"], true);
    drop(f);
    assert_eq!(fs::read(w.at("f")).unwrap(), vec![9; 24 << 20]);
    end(w);
}

/// Each handle with which the kernel itself may write has a sixteenth of the tier.
#[test]
fn many_writers_have_a_reserve_each() {
    let Some(w) = small(|_| {}) else {
        return;
    };
    let create = |n: usize| {
        let file = File::create(w.at(&n.to_string())).unwrap();
        // `room` is at most half a second old, and the files have no bytes.
        (file, w.ask(&n.to_string(), "why")["passthrough"] == true)
    };
    let first: Vec<(File, bool)> = (0..20).map(create).collect();
    let passed = first.iter().filter(|f| f.1).count();
    assert!((10..=16).contains(&passed), "{passed} of 20");
    assert!(first[0].1 && !first[19].1);
    drop(first);
    closed(&w);
    assert!(create(21).1, "closed handles have no reserve");
    end(w);
}
