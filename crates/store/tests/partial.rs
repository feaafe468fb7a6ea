//! Writes of less than a block, and of more than a record.

mod common;

use common::place::{BLOCK, Place, filled, reads, settings, up};
use common::{World, runtime, scratch, way};
use isotherm_store::disk::{Disk, DiskError};
use isotherm_store::head;
use std::sync::Arc;

/// A disk with block 0 in the store, whose next request has a write to block `at` before it.
fn disk(place: &Place, at: u64) -> Arc<Disk> {
    let (remote, faults) = way(&place.world, 1, &place.runtime);
    let disk = Arc::new(Disk::open(remote, &place.dir("a"), settings(), false).unwrap());
    disk.write(0, &filled(1, 2)).unwrap();
    up(&disk);
    let other = Arc::clone(&disk);
    let write = move || other.write(at, &filled(2, 1)).unwrap();
    faults.lock().unwrap().hook = Some((0, Box::new(write)));
    disk
}

#[test]
fn a_write_to_the_block_between_its_read_and_the_write_is_kept() {
    let place = Place::new();
    let disk = disk(&place, 0);
    disk.write_bytes(100, &[9; 10]).unwrap();
    let mut block = filled(0, 1);
    disk.read(0, &mut block).unwrap();
    let mut wanted = filled(2, 1);
    wanted[100..110].fill(9);
    assert!(block == wanted);
}

/// Else a client that writes all the time would keep it up for ever.
#[test]
fn a_write_elsewhere_does_not_repeat_the_read() {
    let place = Place::new();
    let disk = disk(&place, 1);
    let before = disk.report().gets;
    disk.write_bytes(100, &[9; 10]).unwrap();
    assert_eq!(disk.report().gets, before + 1);
    let mut blocks = filled(0, 2);
    disk.read(0, &mut blocks).unwrap();
    let mut wanted = filled(1, 2);
    wanted[100..110].fill(9);
    wanted[BLOCK..].fill(2);
    assert!(blocks == wanted);
}

/// The replay would not know its record.
#[test]
fn a_write_of_more_than_a_record_is_refused() {
    let place = Place {
        world: Arc::<World>::default(),
        runtime: runtime(),
        scratch: scratch(),
    };
    head::create(&place.remote(), 1 << 30, 1 << 20).unwrap();
    let disk = place.open("a").unwrap();
    let many = 1 << 14;
    assert_eq!(disk.write(0, &filled(1, many + 1)), Err(DiskError::Range));
    disk.write(0, &filled(1, many)).unwrap();
    disk.flush().unwrap();
    drop(disk);
    assert!(reads(&place.open("a").unwrap(), many as u64 - 1, 1));
}
