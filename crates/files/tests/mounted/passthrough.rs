//! Files that the kernel itself reads and writes on their tiers.

use crate::world::{World, run};
use isotherm_files::fuse::Io;
use isotherm_files::mover::{Outcome, Why};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
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
    let closed = || {
        for _ in 0..600 {
            if w.ask("", "status")["in_use"] == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("still in use: {}", w.ask("", "status"));
    };
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
    closed();
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
        closed();
        // With space, the kernel reads and writes itself.
        let reader = open(false);
        let writer = open(true);
        passes(true);
        writer.write_all_at(&[b], 0).unwrap();
        assert_eq!((byte(&writer), byte(&reader)), (b, b));
        drop((reader, writer));
        closed();
        fill(&w, 15);
        let both = open(true);
        passes(false);
        assert_eq!(byte(&both), b, "an old page of the kernel's cache");
        drop(both);
        closed();
    }
    assert_eq!(w.ask("", "check")["ok"], true, "{}", w.ask("", "check"));
    end(w);
}
