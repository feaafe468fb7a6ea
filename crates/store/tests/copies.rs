//! Old lists, images that are not whole, and spools that were copied.

mod common;

use common::place::{BLOCK, BLOCKS, Place, filled, reads, settings, spool_files, up};
use common::way;
use isotherm_store::disk::{Disk, Settings};
use isotherm_store::readout::read_out;
use std::fs;

/// What the list does not have yet is looked for: the highest manifest in it is not the newest.
#[test]
fn an_old_list_is_no_old_state() {
    let place = Place::new();
    let disk = place.open("a").unwrap();
    for byte in 1..6 {
        disk.write(3, &filled(byte, 1)).unwrap();
        up(&disk);
    }
    let (remote, faults) = way(&place.world, 1, &place.runtime);
    faults.lock().unwrap().old_lists = 4;
    let image = place.dir("image");
    assert_eq!(
        read_out(&remote, &image).unwrap(),
        (BLOCKS * BLOCK as u64, BLOCK as u64)
    );
    let whole = fs::read(&image).unwrap();
    assert!(whole[3 * BLOCK..4 * BLOCK] == filled(5, 1));
    assert!(whole[..3 * BLOCK].iter().all(|&b| b == 0));
    assert_eq!(whole.len(), BLOCKS as usize * BLOCK);
    // Nor does a writer start with one.
    drop(disk);
    let disk = Disk::open(remote, &place.dir("b"), settings(), false).unwrap();
    assert!(reads(&disk, 3, 5));
}

/// An image that is not whole has not the size of one.
#[test]
fn a_read_out_that_fails_leaves_no_image_of_full_size() {
    let place = Place::new();
    let disk = place.open("a").unwrap();
    disk.write(0, &filled(7, 300)).unwrap();
    up(&disk);
    place.delete(&place.names("data/")[1]);
    let image = place.dir("image");
    let said = read_out(&place.remote(), &image).unwrap_err();
    assert!(said.contains("not in the store"), "{said}");
    assert!(fs::metadata(&image).unwrap().len() < BLOCKS * BLOCK as u64);
}

/// A spool that was copied, or put back from a backup, is that of another life of the writer.
#[test]
fn a_copy_of_the_spool_is_refused_when_the_other_has_gone_on() {
    let place = Place::new();
    let copy = |to: &str| {
        fs::create_dir_all(place.dir(to)).unwrap();
        for file in spool_files(&place.dir("a")) {
            fs::copy(&file, place.dir(to).join(file.file_name().unwrap())).unwrap();
        }
    };
    let write = |disk: &Disk, at, byte| disk.write(at, &filled(byte, 1)).unwrap();
    let disk = place.open("a").unwrap();
    write(&disk, 0, 1);
    up(&disk);
    write(&disk, 1, 1);
    disk.flush().unwrap();
    copy("b");
    // What only the first has.
    for at in 2..6 {
        write(&disk, at, 1);
    }
    disk.flush().unwrap();
    drop(disk);
    // A copy has everything up to its moment, and takes the disk.
    let second = place.open("b").unwrap();
    assert!(reads(&second, 1, 1) && reads(&second, 2, 0));
    write(&second, 7, 2);
    up(&second);
    drop(second);
    // Numbers of its writes were given again: some of them would be replayed over the other's.
    for again in 0..2 {
        let said = place.open("a").err().unwrap();
        assert!(
            said.contains("another writer") && said.contains("--discard-spool"),
            "{again}: {said}"
        );
    }
    let second = place.open("b").unwrap();
    assert!(reads(&second, 5, 0) && reads(&second, 7, 2));
}

/// Its flash may not be mounted, or the machine comes back after another has taken the disk.
#[test]
fn an_empty_spool_that_did_not_write_last_takes_nothing() {
    let place = Place::new();
    let open = |name: &str, new_spool| {
        let settings = Settings {
            new_spool,
            ..settings()
        };
        Disk::open(place.remote(), &place.dir(name), settings, false)
    };
    let refused = |name: &str| {
        let manifests = place.names("manifest/");
        let said = open(name, false).err().unwrap();
        assert!(said.contains("--new-spool"), "{said}");
        assert_eq!(place.names("manifest/"), manifests);
    };
    // Nothing has written to a new store.
    let disk = open("a", false).unwrap();
    disk.write(0, &filled(1, 1)).unwrap();
    up(&disk);
    drop(disk);
    refused("not mounted");
    // Often enough that it could be taken for one of its own.
    refused("not mounted");
    let disk = open("a", false).unwrap();
    disk.write(0, &filled(2, 1)).unwrap();
    up(&disk);
    drop(disk);
    let disk = open("elsewhere", true).unwrap();
    assert!(reads(&disk, 0, 2));
    refused("a");
    drop(disk);
    open("elsewhere", false).unwrap();
}
