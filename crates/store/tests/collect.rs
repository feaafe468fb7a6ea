//! When objects that are not needed are removed.

mod common;

use common::place::{BLOCK, Place, filled, settings, up};
use isotherm_store::disk::{Disk, DiskError, Settings};
use isotherm_store::upload::Failed;
use std::time::Duration;

fn open(place: &Place, grace: Duration) -> Disk {
    let settings = Settings {
        grace,
        order: Duration::MAX,
        epoch_bytes: u64::MAX,
        ..settings()
    };
    Disk::open(place.remote(), &place.dir("a"), settings, false).unwrap()
}

fn write(disk: &Disk, byte: u8) {
    disk.write(0, &filled(byte, 1)).unwrap();
    up(disk);
}

/// However old it is: a read of it may be on its way.
#[test]
fn an_object_stays_for_the_grace_time_after_it_was_needed() {
    let grace = Duration::from_millis(300);
    let (place, pause) = (Place::new(), grace + Duration::from_millis(100));
    let disk = open(&place, grace);
    write(&disk, 1);
    std::thread::sleep(pause);
    write(&disk, 2);
    assert_eq!(place.names("data/").len(), 2);
    assert_eq!(disk.collect().unwrap(), 0);
    assert_eq!(place.names("data/").len(), 2);
    std::thread::sleep(pause);
    write(&disk, 2);
    assert!(disk.collect().unwrap() > 0);
    // The second is seen without need for the first time.
    assert_eq!(place.names("data/").len(), 2);
}

#[test]
fn endless_times_have_no_end() {
    let place = Place::new();
    for grace in [Duration::MAX, Duration::from_secs(u64::MAX)] {
        let disk = open(&place, grace);
        for byte in 0..12 {
            write(&disk, byte);
        }
        disk.write(0, &filled(1, 1)).unwrap();
        disk.flush().unwrap();
        let all = place.names("");
        assert_eq!(disk.collect().unwrap(), 0);
        assert_eq!(place.names(""), all);
    }
}

/// A disk that is never idle has garbage, too.
#[test]
fn a_disk_that_always_uploads_collects() {
    let place = Place::new();
    let disk = open(&place, Duration::ZERO);
    for byte in 0..12 {
        write(&disk, byte);
    }
    std::thread::sleep(Duration::from_millis(5));
    disk.write(0, &filled(99, 1)).unwrap();
    disk.close();
    disk.run().unwrap();
    assert_eq!(place.names("data/").len(), 1);
    assert_eq!(disk.report().stored_bytes, BLOCK as u64);
}

#[test]
fn a_writer_without_work_notices_that_it_has_lost_the_store() {
    let place = Place::new();
    let first = open(&place, Duration::from_secs(3600));
    assert_eq!(first.collect().unwrap(), 0);
    let _second = place.open("b").unwrap();
    assert!(matches!(first.collect(), Err(Failed::Fenced)));
    assert_eq!(first.flush(), Err(DiskError::Fenced));
}
