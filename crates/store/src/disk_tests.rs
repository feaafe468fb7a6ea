//! Tests that need the inside of a disk.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::disk::{Disk, DiskError, Settings};
use crate::head;
use crate::layout::BLOCK;
use crate::remote::Remote;

fn disk(dir: &Path) -> Disk {
    let remote = remote(&Arc::new(object_store::memory::InMemory::new()));
    head::create(&remote, 64 * BLOCK, 1 << 20).unwrap();
    Disk::open(remote, dir, Settings::default(), false).unwrap()
}

fn remote(store: &Arc<object_store::memory::InMemory>) -> Remote {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    Remote::over(
        store.clone(),
        object_store::path::Path::from("p"),
        Arc::new(runtime),
        Duration::from_secs(5),
    )
}

/// What was written before may be gone, so that a volume must not go on with the next start.
#[test]
fn an_error_of_the_spool_ends_the_lineage() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(object_store::memory::InMemory::new());
    head::create(&remote(&store), 64 * BLOCK, 1 << 20).unwrap();
    let open = || Disk::open(remote(&store), dir.path(), Settings::default(), false).unwrap();
    let first = open().lineage();
    let failing = open();
    assert_eq!(failing.lineage(), first);
    failing.lock().spool.fail("cannot be flushed".into());
    drop(failing);
    assert_ne!(open().lineage(), first);
}

fn is_broken(result: Result<(), DiskError>) -> bool {
    matches!(result, Err(DiskError::Io(why)) if why.contains("cannot be flushed"))
}

/// The kernel says once that `fdatasync` has failed: the next one of the same file is good, and the data is lost all the same.
#[test]
fn a_failed_fdatasync_at_the_end_of_an_epoch_is_final() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path());
    disk.write(0, &[1; BLOCK as usize]).unwrap();
    let is_log = |name: std::ffi::OsString| name.to_string_lossy().ends_with(".spool");
    let files = || {
        let all = std::fs::read_dir(dir.path()).unwrap();
        all.filter(|f| is_log(f.as_ref().unwrap().file_name()))
            .count()
    };
    let before = files();
    // It takes all writes, and has no fdatasync.
    let null = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/null")
        .unwrap();
    let good = disk.lock().spool.swap_last(Arc::new(null));
    assert!(disk.cut_now());
    disk.lock().spool.swap_last(good);
    assert!(is_broken(disk.flush()));
    assert!(is_broken(disk.write(1, &[1; BLOCK as usize])));
    // What was written can be read, and goes to the store.
    assert!(disk.upload().unwrap());
    assert!(disk.report().damage.is_some());
    // A file after one whose end may be lost would make that end damage.
    assert_eq!(files(), before);
}

#[test]
fn a_flush_beside_one_that_fails_does_not_succeed() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path());
    disk.write(0, &[1; BLOCK as usize]).unwrap();
    let (begins, begun) = channel();
    std::thread::scope(|scope| {
        let first = disk.syncing.lock().unwrap();
        let second = scope.spawn(|| {
            begins.send(()).unwrap();
            disk.flush()
        });
        begun.recv().unwrap();
        // So that it comes as far as it can. The outcome does not depend on it.
        std::thread::sleep(Duration::from_millis(20));
        disk.lock().spool.fail("cannot be flushed".into());
        drop(first);
        assert!(is_broken(second.join().unwrap()));
    });
}
