//! Two writers of one disk, both alive.

mod common;

use common::{World, runtime, scratch, way};
use isotherm_store::disk::{Disk, Settings};
use isotherm_store::head;
use isotherm_store::remote::Remote;
use isotherm_store::upload::Failed;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const BLOCK: usize = 4096;

fn open(world: &Arc<World>, dir: &Path) -> Disk {
    open_by(way(world, 1, &runtime()).0, dir)
}

fn open_by(remote: Remote, dir: &Path) -> Disk {
    let settings = Settings {
        order: Duration::from_secs(3600),
        grace: Duration::ZERO,
        new_spool: true,
        remote_wait: Duration::ZERO,
        ..Settings::default()
    };
    Disk::open(remote, dir, settings, false).unwrap()
}

fn write(disk: &Disk, at: u64, byte: u8) {
    disk.write(at, &vec![byte; BLOCK]).unwrap();
    disk.cut_now();
}

fn read(disk: &Disk, at: u64) -> u8 {
    let mut block = vec![0; BLOCK];
    disk.read(at, &mut block).unwrap();
    block[0]
}

/// The loser sleeps until the winner has removed the manifests that would have refused it.
#[test]
fn a_writer_that_slept_for_a_grace_time_is_fenced() {
    let (world, scratch) = (Arc::<World>::default(), scratch());
    head::create(&way(&world, 1, &runtime()).0, 1 << 20, 1 << 20).unwrap();
    let loser = open(&world, &scratch.path().join("a"));
    write(&loser, 0, 1);
    loser.upload().unwrap();
    write(&loser, 1, 1);
    let winner = open(&world, &scratch.path().join("b"));
    for i in 0..20 {
        write(&winner, 2, i);
        winner.upload().unwrap();
        // Another millisecond, so that what is old is older than the newest manifest.
        std::thread::sleep(Duration::from_millis(2));
    }
    write(&winner, 2, 99);
    winner.upload().unwrap();
    assert!(winner.collect().unwrap() > 10);
    assert!(matches!(loser.upload(), Err(Failed::Fenced)));
    assert!(loser.write(3, &vec![1; BLOCK]).is_err() && loser.flush().is_err());
    // What it has made is no state, and is removed as an orphan.
    let third = open(&world, &scratch.path().join("c"));
    let seen: Vec<u8> = (0..4).map(|at| read(&third, at)).collect();
    assert_eq!(seen, [1, 0, 99, 0]);
}

/// The loser collects with a list of its own while the winner works.
#[test]
fn a_loser_removes_nothing_of_the_winner() {
    let (world, scratch) = (Arc::<World>::default(), scratch());
    head::create(&way(&world, 1, &runtime()).0, 1 << 20, 1 << 20).unwrap();
    let (remote, faults) = way(&world, 1, &runtime());
    let loser = open_by(remote, &scratch.path().join("a"));
    write(&loser, 0, 1);
    loser.upload().unwrap();
    std::thread::sleep(Duration::from_millis(5));
    let (there, place) = (Arc::clone(&world), scratch.path().join("b"));
    let take = move || {
        let winner = open(&there, &place);
        write(&winner, 1, 2);
        winner.upload().unwrap();
        write(&winner, 2, 3);
        winner.upload().unwrap();
    };
    // It has asked for its own manifest and for the next one, and does not know yet.
    faults.lock().unwrap().hook = Some((2, Box::new(take)));
    assert_eq!(loser.collect().unwrap(), 0);
    assert!(faults.lock().unwrap().hook.is_none());
    let third = open(&world, &scratch.path().join("c"));
    let seen: Vec<u8> = (0..3).map(|at| read(&third, at)).collect();
    assert_eq!(seen, [1, 2, 3]);
}
