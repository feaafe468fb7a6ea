//! Sequential reads are fetched ahead over the ends of objects, and random reads are not.

mod common;

use common::place::{Place, filled, settings};
use isotherm_store::disk::{Disk, Settings};
use std::time::{Duration, Instant};

#[test]
fn a_stream_is_fetched_ahead_over_the_ends_of_objects_and_random_reads_are_not() {
    let place = Place::new();
    let open = || {
        let large = Settings {
            cache_bytes: 64 << 20,
            ..settings()
        };
        Disk::open(place.remote(), &place.dir("a"), large, false).unwrap()
    };
    let disk = open();
    for at in 0..4 {
        disk.write(at * 512, &filled(at as u8 + 1, 512)).unwrap();
    }
    assert!(disk.cut_now() && disk.upload().unwrap());
    assert!(place.names("data/").len() >= 8, "an object has a mebibyte");
    drop(disk);
    let disk = open();
    let mut block = filled(0, 64);
    let before = disk.report().gets;
    disk.read(0, &mut block).unwrap();
    let far = || disk.is_near(1500, 400);
    assert!(!far());
    disk.read(64, &mut block).unwrap();
    let begun = Instant::now();
    while !far() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing ahead");
        std::thread::sleep(Duration::from_millis(5));
    }
    for at in (128..2048).step_by(64) {
        disk.read(at, &mut block).unwrap();
        assert_eq!(block, filled((at / 512) as u8 + 1, 64));
    }
    // One request for each of the objects, and the first two reads.
    assert!(
        disk.report().gets - before <= 11,
        "a block was fetched again"
    );
    drop(disk);
    let disk = open();
    let gets = disk.report().gets;
    for at in [1900, 40, 1200] {
        disk.read(at, &mut block[..4096]).unwrap();
    }
    assert_eq!(disk.report().gets, gets + 3);
}
