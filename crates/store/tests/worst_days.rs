//! Directed worst days: what each does to a disk, and what the program says.

mod common;

use common::place::{BLOCK, BLOCKS, Place, filled, reads, settings, spool_files, up};
use common::{Random, runtime, scratch, way};
use isotherm_store::disk::{Disk, DiskError, Settings};
use isotherm_store::head;
use isotherm_store::remote::Remote;
use isotherm_store::upload::Failed;
use object_store::PutPayload;
use object_store::path::Path as Name;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_missing_short_or_changed_object_is_eio_and_never_zeros() {
    let place = Place::new();
    let disk = place.open("a").unwrap();
    disk.write(0, &filled(7, 300)).unwrap();
    up(&disk);
    let names = place.names("data/");
    assert_eq!(names.len(), 2, "{names:?}");
    let whole = place.get(&names[1]);
    let fails = |damage: &str| {
        let mut last = filled(1, 1);
        let said = disk.read(299, &mut last).unwrap_err();
        assert!(
            matches!(&said, DiskError::Io(why) if why.contains(damage)),
            "{said}"
        );
        assert!(reads(&disk, 0, 7));
        assert!(place.open("b").is_err() || disk.report().damage.is_some());
    };
    place.delete(&names[1]);
    fails("not in the store");
    for len in [0, 1, whole.len() / 2, whole.len() - 1] {
        place.put(&names[1], whole[..len].to_vec());
        fails("damaged");
    }
    let mut random = Random(3);
    for _ in 0..50 {
        let mut flipped = whole.clone();
        let at = (43 * BLOCK) as u64 + random.below(BLOCK as u64);
        flipped[at as usize] ^= 1 << random.below(8);
        place.put(&names[1], flipped);
        fails("damaged");
    }
    place.put(&names[1], place.get(&names[0]));
    fails("damaged");
    place.put(&names[1], whole);
    assert!(reads(&disk, 299, 7));
}

#[test]
fn a_damaged_map_or_manifest_stops_the_start() {
    let place = Place::new();
    let disk = place.open("a").unwrap();
    disk.write(0, &filled(7, 3)).unwrap();
    up(&disk);
    drop(disk);
    let manifests = place.names("manifest/").len();
    for name in place
        .names("map/")
        .into_iter()
        .chain(place.names("manifest/").into_iter().next_back())
    {
        let whole = place.get(&name);
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 4;
            place.put(&name, flipped);
            let said = place
                .open("b")
                .err()
                .unwrap_or_else(|| panic!("{name}: byte {at}"));
            assert!(said.contains("damaged"), "{said}");
            // Nobody lost the store to a start that failed.
            assert_eq!(place.names("manifest/").len(), manifests);
        }
        if name.starts_with("map/") {
            place.delete(&name);
            let said = place.open("b").err().unwrap();
            assert!(
                said.contains(&format!("{name} is not in the store")),
                "{said}"
            );
        }
        place.put(&name, whole);
    }
    assert!(reads(&place.open("c").unwrap(), 2, 7));
}

#[test]
fn a_store_that_went_back_is_refused_by_the_spool() {
    let place = Place::new();
    let disk = place.open("a").unwrap();
    for byte in 1..5 {
        disk.write(0, &filled(byte, 1)).unwrap();
        up(&disk);
    }
    drop(disk);
    // An old manifest under a newer name is none.
    let names = place.names("manifest/");
    let next = format!("manifest/{:020}", names.len() + 1);
    place.put(&next, place.get(&names[1]));
    let said = place.open("a").err().unwrap();
    assert!(
        said.contains("damaged") && said.contains("another one's"),
        "{said}"
    );
    place.delete(&next);
    // A backup of the store from two commits ago.
    drop(place.open("a").unwrap());
    for name in place.names("manifest/").iter().rev().take(3) {
        place.delete(name);
    }
    let said = place.open("a").err().unwrap();
    assert!(
        said.contains("gone back") && said.contains("--discard-spool"),
        "{said}"
    );
    let disk = Disk::open(place.remote(), &place.dir("a"), settings(), true).unwrap();
    assert!(reads(&disk, 0, 2));
}

#[test]
fn a_prefix_with_something_else_a_wrong_size_and_no_store_are_refused() {
    let place = Place::new();
    let make = |bytes, object| head::create(&place.remote(), bytes, object).unwrap_err();
    assert!(make(BLOCKS * 8192, 1 << 20).contains("not empty"));
    for (bytes, object) in [
        (0, 1 << 20),
        (4097, 1 << 20),
        (1 << 30, 1 << 19),
        (1 << 30, 64 << 20),
        (1 << 30, (1 << 20) + 4096),
    ] {
        assert!(make(bytes, object).contains("size"), "{bytes} {object}");
    }
    assert_eq!(place.open("a").unwrap().blocks(), BLOCKS);
    let other = Place {
        world: Arc::default(),
        runtime: runtime(),
        scratch: scratch(),
    };
    assert!(
        other
            .open("a")
            .err()
            .unwrap()
            .contains("isotherm-store create")
    );
    other.put("photo.jpg", vec![1]);
    assert!(
        head::create(&other.remote(), 1 << 30, 1 << 20)
            .unwrap_err()
            .contains("photo.jpg")
    );
    // A spool of another store.
    let second = Place::new();
    let disk = second.open("x").unwrap();
    disk.write(0, &filled(1, 1)).unwrap();
    drop(disk);
    let said = Disk::open(place.remote(), &second.dir("x"), settings(), false)
        .err()
        .unwrap();
    assert!(said.contains("another store"), "{said}");
    assert!(second.open("x").is_ok());
}

/// A creation is killed after any number of requests: the same one goes on, and another one is refused.
#[test]
fn a_creation_that_was_killed_goes_on_and_nobody_elses_does() {
    let (ours, theirs) = ("a".repeat(32), "b".repeat(32));
    for left in 0..20 {
        let world = Arc::default();
        let runtime = runtime();
        let (killed, faults) = way(&world, 1, &runtime);
        faults.lock().unwrap().left = Some(left);
        let make = |remote: &Remote, id: &str| head::create_as(remote, id, 1 << 30, 1 << 20);
        let done = make(&killed, &ours).is_ok();
        let again = way(&world, 2, &runtime).0;
        let made = make(&again, &ours).unwrap_or_else(|e| panic!("after {left}: {e}"));
        assert_eq!((made.id.as_str(), made.bytes), (ours.as_str(), 1 << 30));
        assert_eq!(head::newest(&again, &ours).unwrap().number, 1);
        let said = make(&again, &theirs).unwrap_err();
        assert!(said.contains("another store"), "{said}");
        let said = head::create_as(&again, &ours, 2 << 30, 1 << 20).unwrap_err();
        assert!(said.contains("other sizes"), "{said}");
        if done {
            return assert!(left > 5, "{left}");
        }
    }
    panic!("it never ended");
}

/// Starts of one spool have one lineage, as long as each has all that was answered.
#[test]
fn the_lineage_ends_with_the_spool_and_with_an_error() {
    let place = Place::new();
    let first = place.open("a").unwrap();
    let lineage = first.lineage();
    first.write(0, &filled(1, 1)).unwrap();
    up(&first);
    first.write(1, &filled(1, 1)).unwrap();
    drop(first);
    assert_eq!(place.open("a").unwrap().lineage(), lineage);
    assert_ne!(place.open("b").unwrap().lineage(), lineage);
    let discarded = Disk::open(place.remote(), &place.dir("a"), settings(), true).unwrap();
    assert_ne!(discarded.lineage(), lineage);
}

#[test]
fn a_store_of_another_id_is_refused() {
    let place = Place::new();
    let known = Settings {
        id: Some("c".repeat(32)),
        ..settings()
    };
    let said = Disk::open(place.remote(), &place.dir("a"), known, false)
        .err()
        .unwrap();
    assert!(said.contains("another store is here"), "{said}");
}

#[test]
fn the_old_machine_is_refused_while_its_spool_holds_something() {
    let place = Place::new();
    let first = place.open("a").unwrap();
    first.write(0, &filled(1, 1)).unwrap();
    up(&first);
    first.write(1, &filled(1, 1)).unwrap();
    first.flush().unwrap();
    let second = place.open("b").unwrap();
    // Enough writes that the numbers of those on the first machine are taken.
    for at in 0..9 {
        second.write(at, &filled(2, 1)).unwrap();
    }
    up(&second);
    first.cut_now();
    assert!(matches!(first.upload(), Err(Failed::Fenced)));
    assert_eq!(first.write(0, &filled(1, 1)), Err(DiskError::Fenced));
    drop(first);
    let said = place.open("a").err().unwrap();
    assert!(
        said.contains("another writer") && said.contains("--discard-spool"),
        "{said}"
    );
    second.write(0, &filled(3, 1)).unwrap();
    up(&second);
    drop(second);
    let first = Disk::open(place.remote(), &place.dir("a"), settings(), true).unwrap();
    assert!(reads(&first, 0, 3) && reads(&first, 1, 2));
    assert!(
        Disk::open(place.remote(), &place.dir("a"), settings(), false)
            .err()
            .unwrap()
            .contains("another isotherm-store")
    );
}

#[test]
fn a_spool_torn_at_any_byte_is_a_prefix_and_damage_below_a_flush_is_said() {
    let place = Place::new();
    let disk = place.open("a").unwrap();
    disk.write(0, &filled(1, 1)).unwrap();
    disk.flush().unwrap();
    let flushed = fs::metadata(spool_files(&place.dir("a")).pop().unwrap())
        .unwrap()
        .len();
    for at in 1..4 {
        disk.write(at, &filled(at as u8 + 1, 1)).unwrap();
    }
    drop(disk);
    let file = spool_files(&place.dir("a")).pop().unwrap();
    let (name, whole) = (
        file.file_name().unwrap().to_owned(),
        fs::read(&file).unwrap(),
    );
    let manifests = place.names("manifest/");
    let copy = |n: &str, bytes: &[u8]| {
        // No other life of the spool has had the store.
        for name in place.names("manifest/") {
            if !manifests.contains(&name) {
                place.delete(&name);
            }
        }
        let dir = place.dir(n);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(&name), bytes).unwrap();
    };
    for len in (flushed..=whole.len() as u64).step_by(61) {
        copy("torn", &whole[..len as usize]);
        let disk = place.open("torn").unwrap();
        let many = (0..4)
            .take_while(|&at| reads(&disk, at, at as u8 + 1))
            .count() as u64;
        assert!(
            many >= 1 && (many..4).all(|at| reads(&disk, at, 0)),
            "{len}: {many}"
        );
        // What is left is durable and goes on.
        disk.write(9, &filled(9, 1)).unwrap();
        drop(disk);
        assert!(reads(&place.open("torn").unwrap(), 9, 9), "{len}");
    }
    // A flipped bit in what the FLUSH covered: later records know of it.
    for at in (64..flushed as usize).step_by(37) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        copy("flipped", &flipped);
        match place.open("flipped") {
            Err(said) => assert!(
                said.contains("damaged") && said.contains("--discard-spool"),
                "{said}"
            ),
            // The padding after the checksums is not padding to the record's own checksum, so there is no such byte.
            Ok(_) => panic!("byte {at} was not noticed"),
        }
    }
}

#[test]
fn a_full_spool_stalls_writers_and_loses_nothing() {
    let place = Place::new();
    let limit = Settings {
        spool_bytes: 1 << 20,
        ..settings()
    };
    let disk = Arc::new(Disk::open(place.remote(), &place.dir("a"), limit, false).unwrap());
    let writer = {
        let disk = Arc::clone(&disk);
        std::thread::spawn(move || {
            for at in 0..600 {
                disk.write(at, &filled(at as u8 | 1, 1)).unwrap();
            }
        })
    };
    while disk.report().stalled_since.is_none() {
        std::thread::yield_now();
    }
    assert!(!writer.is_finished());
    assert!(disk.report().spool_bytes <= 1 << 20);
    let uploads = {
        let disk = Arc::clone(&disk);
        std::thread::spawn(move || disk.run())
    };
    writer.join().unwrap();
    disk.close();
    uploads.join().unwrap().unwrap();
    assert_eq!(disk.report().waiting_bytes, 0);
    drop(disk);
    let disk = place.open("b").unwrap();
    assert!((0..600).all(|at| reads(&disk, at, at as u8 | 1)));
}

#[test]
fn a_writer_that_waits_for_room_does_not_keep_the_end_up() {
    let place = Place::new();
    let limit = Settings {
        spool_bytes: 1 << 20,
        ..settings()
    };
    let (remote, faults) = way(&place.world, 1, &place.runtime);
    let disk = Arc::new(Disk::open(remote, &place.dir("a"), limit, false).unwrap());
    faults.lock().unwrap().left = Some(0);
    let writer = {
        let disk = Arc::clone(&disk);
        std::thread::spawn(move || (0..600).find_map(|at| disk.write(at, &filled(1, 1)).err()))
    };
    while disk.report().stalled_since.is_none() {
        std::thread::yield_now();
    }
    disk.close();
    let said = writer.join().unwrap().unwrap().to_string();
    assert!(said.contains("service ends"), "{said}");
    let said = disk.run().unwrap_err();
    assert!(said.contains("away") && said.contains("stays"), "{said}");
}

#[test]
fn a_spool_that_cannot_be_read_does_not_keep_the_end_up() {
    let place = Place::new();
    let disk = place.open("a").unwrap();
    disk.write(0, &filled(1, 1)).unwrap();
    let file = spool_files(&place.dir("a")).pop().unwrap();
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    disk.close();
    let said = disk.run().unwrap_err();
    assert!(
        said.contains("checksum") && said.contains("stays"),
        "{said}"
    );
}

#[test]
fn the_store_is_away_and_comes_back() {
    let place = Place::new();
    let (remote, faults) = way(&place.world, 1, &place.runtime);
    let disk = Disk::open(remote, &place.dir("a"), settings(), false).unwrap();
    disk.write(0, &filled(1, 1)).unwrap();
    up(&disk);
    faults.lock().unwrap().left = Some(0);
    disk.write(1, &filled(2, 1)).unwrap();
    disk.flush().unwrap();
    assert!(reads(&disk, 1, 2));
    assert!(
        matches!(disk.read(0, &mut filled(0, 1)), Err(DiskError::Io(why)) if why.contains("away"))
    );
    disk.cut_now();
    assert!(disk.upload().is_err());
    let status = disk.report();
    assert!(status.away_since.is_some() && status.away_why.is_some());
    assert_eq!(status.waiting_bytes, BLOCK as u64);
    faults.lock().unwrap().left = None;
    assert!(disk.upload().unwrap());
    assert!(disk.report().away_since.is_none() && reads(&disk, 0, 1));
}

#[test]
fn a_store_without_a_conditional_put_is_refused() {
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, PutMode,
        PutMultipartOptions, PutOptions, PutResult, Result,
    };
    type Stream<T> = futures_util::stream::BoxStream<'static, Result<T>>;
    /// Takes every PUT, whatever its condition.
    #[derive(Debug)]
    struct Careless(object_store::memory::InMemory);
    impl std::fmt::Display for Careless {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("careless")
        }
    }
    #[async_trait::async_trait]
    impl object_store::ObjectStore for Careless {
        async fn put_opts(
            &self,
            path: &Name,
            payload: PutPayload,
            _: PutOptions,
        ) -> Result<PutResult> {
            self.0
                .put_opts(path, payload, PutMode::Overwrite.into())
                .await
        }
        async fn put_multipart_opts(
            &self,
            path: &Name,
            o: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.0.put_multipart_opts(path, o).await
        }
        async fn get_opts(&self, path: &Name, o: GetOptions) -> Result<GetResult> {
            self.0.get_opts(path, o).await
        }
        fn delete_stream(&self, paths: Stream<Name>) -> Stream<Name> {
            self.0.delete_stream(paths)
        }
        fn list(&self, prefix: Option<&Name>) -> Stream<ObjectMeta> {
            self.0.list(prefix)
        }
        async fn list_with_delimiter(&self, prefix: Option<&Name>) -> Result<ListResult> {
            self.0.list_with_delimiter(prefix).await
        }
        async fn copy_opts(&self, from: &Name, to: &Name, o: CopyOptions) -> Result<()> {
            self.0.copy_opts(from, to, o).await
        }
    }
    let store = Arc::new(Careless(object_store::memory::InMemory::new()));
    let remote = Remote::over(store, Name::from("p"), runtime(), Duration::from_secs(5));
    let said = head::create(&remote, 1 << 30, 1 << 20).unwrap_err();
    assert!(said.contains("conditional PUT"), "{said}");
    assert!(
        remote
            .wait(remote.list("", 9, |_| true))
            .unwrap()
            .is_empty()
    );
}
