//! The effect of each system call on the volume.

use super::{MIB, Served, data_from, errno, fallocate, hole_from, open, seen};
use isotherm_live::block_file::{Error, O_DSYNC};
use rustix::fs::{AtFlags, CWD, FallocateFlags, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Makes each call once, and checks the requests that reach the volume, the results, and the end of the mount.
#[expect(clippy::too_many_lines, reason = "one scenario")]
pub(super) fn check_each_call(mut served: Served) {
    let counts = &served.memory.counts;
    let about = std::fs::metadata(served.mount.file()).unwrap();
    assert_eq!(
        (
            about.len(),
            about.permissions().mode() & 0o7777,
            about.blksize()
        ),
        (4 * MIB, 0o600, 65536)
    );
    let file = open(served.mount.file(), 0).unwrap();

    // Unaligned offsets and lengths.
    file.write_all_at(b"odd bytes across a block", 1000)
        .unwrap();
    let mut back = [0; 24];
    file.read_exact_at(&mut back, 1000).unwrap();
    assert_eq!(&back, b"odd bytes across a block");
    assert_eq!(seen(&counts.fua), 0);

    file.sync_all().unwrap();
    file.sync_data().unwrap();
    assert_eq!(seen(&counts.flushes), 2);
    drop(open(served.mount.file(), 0).unwrap());
    assert_eq!(seen(&counts.flushes), 2, "closing flushes nothing");
    open(served.mount.file(), O_DSYNC)
        .unwrap()
        .write_all_at(&[1; 512], 0)
        .unwrap();
    open(served.mount.file(), OFlags::SYNC.bits() as i32)
        .unwrap()
        .write_all_at(&[1; 512], 0)
        .unwrap();
    assert_eq!(seen(&counts.fua), 2);

    // The end of the volume.
    let end = 4 * MIB;
    let mut tail = [9; 100];
    assert_eq!(file.read_at(&mut tail, end - 10).unwrap(), 10);
    assert_eq!(file.read_at(&mut tail, end).unwrap(), 0);
    assert_eq!(file.write_at(&tail, end - 10).unwrap(), 10);
    assert_eq!(errno(file.write_at(&tail, end)), Some(Errno::NOSPC));
    assert_eq!(errno(file.set_len(end / 2)), Some(Errno::PERM));
    assert_eq!(errno(file.set_len(end * 2)), Some(Errno::PERM));
    file.set_len(end).unwrap();
    assert_eq!(std::fs::metadata(served.mount.file()).unwrap().len(), end);

    // Holes.
    let (keep, punch, zero) = (
        FallocateFlags::KEEP_SIZE,
        FallocateFlags::PUNCH_HOLE,
        FallocateFlags::ZERO_RANGE,
    );
    file.write_all_at(&vec![5; 65536], MIB).unwrap();
    assert_eq!(data_from(&file, MIB - 4096), Ok(MIB));
    assert_eq!(hole_from(&file, MIB), Ok(MIB + 65536));
    fallocate(&file, punch | keep, MIB, 4096).unwrap();
    assert_eq!(seen(&counts.discarded), 4096);
    assert_eq!(data_from(&file, MIB), Ok(MIB + 4096));
    fallocate(&file, zero | keep, MIB, 8192).unwrap();
    fallocate(&file, zero, MIB + 8192, 512).unwrap();
    assert_eq!(seen(&counts.zeroed), 8192 + 512);
    assert_eq!(
        data_from(&file, MIB),
        Ok(MIB),
        "zeroed ranges stay allocated"
    );
    let mut zeros = [1; 8192 + 512 + 1];
    file.read_exact_at(&mut zeros, MIB).unwrap();
    assert!(zeros[..8704].iter().all(|b| *b == 0) && zeros[8704] == 5);
    fallocate(&file, punch | keep, 0, 2 * end).unwrap();
    assert_eq!(data_from(&file, 0), Err(Errno::NXIO));
    assert_eq!(hole_from(&file, 0), Ok(0));
    assert_eq!(fallocate(&file, zero, end - 512, 1024), Err(Errno::NOSPC));
    assert_eq!(
        fallocate(&file, FallocateFlags::empty(), 0, 4096),
        Err(Errno::OPNOTSUPP)
    );
    assert_eq!(
        fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096),
        Err(Errno::OPNOTSUPP)
    );

    // The directory.
    let names: Vec<_> = std::fs::read_dir(served.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["volume"]);
    let other = served.dir.path().join("other");
    assert_eq!(
        File::create(&other).unwrap_err().kind(),
        ErrorKind::PermissionDenied
    );
    assert_eq!(
        errno(std::fs::remove_file(served.mount.file())),
        Some(Errno::PERM)
    );
    assert_eq!(
        errno(std::fs::rename(served.mount.file(), &other)),
        Some(Errno::PERM)
    );
    assert_eq!(errno(std::fs::create_dir(&other)), Some(Errno::PERM));
    assert_eq!(File::open(&other).unwrap_err().kind(), ErrorKind::NotFound);

    // The file is busy while it is open; afterwards it can be unmounted.
    let said = served.mount.unmount().unwrap_err();
    assert!(
        matches!(said, Error::Busy { .. }) && said.to_string().contains("losetup -j"),
        "{said}"
    );
    file.read_exact_at(&mut back, 0).unwrap();
    drop(file);
    served.mount.unmount().unwrap();
    assert!(served.mount.is_finished());
}

/// Sets times at both ends of the kernel's numbers. Whether the block file takes them does not matter.
pub(super) fn set_extreme_times(path: &Path) {
    for tv_sec in [i64::MIN, i64::MIN + 1, -1, i64::MAX - 1, i64::MAX] {
        for tv_nsec in [0, 1, 999_999_999] {
            let time = Timespec { tv_sec, tv_nsec };
            let times = Timestamps {
                last_access: time,
                last_modification: time,
            };
            let _ = rustix::fs::utimensat(CWD, path, &times, AtFlags::empty());
            assert!(path.exists(), "{tv_sec} {tv_nsec}");
        }
    }
}
