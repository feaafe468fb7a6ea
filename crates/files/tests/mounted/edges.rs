//! What the kernel does of itself: it repeats calls, keeps what was written in mappings, and takes an error for nothing done.

use crate::trouble::slow_disk;
use crate::world::{World, run, until};
use isotherm_files::fuse::Io;
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A call on a file and another one.
type Call = fn(&Path, &Path) -> std::io::Result<()>;

/// The kernel makes a call on names a second time if it fails with ESTALE. By then the file of others is known, and would be removed, replaced
/// or renamed although the first call refused that.
#[test]
fn a_call_that_was_refused_is_not_repeated_by_the_kernel() {
    let Some(w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    let calls: [(&str, Call); 4] = [
        ("removed", |f, _| fs::remove_file(f)),
        ("replaced", |f, other| fs::rename(other, f)),
        ("renamed", |f, other| fs::rename(f, other)),
        ("linked", |f, _| fs::hard_link(f, f.with_extension("link"))),
    ];
    for (name, call) in calls {
        fs::write(w.at(name), "ours").unwrap();
        fs::write(w.at("other"), "other").unwrap();
        fs::write(w.on("fast", "new"), "precious").unwrap();
        fs::rename(w.on("fast", "new"), w.on("fast", name)).unwrap();
        let done = call(&w.at(name), &w.at("other"));
        let told = done.map_err(|e| e.raw_os_error());
        assert_eq!(told, Err(Some(Errno::BUSY.raw_os_error())), "{name}");
        for (f, text) in [(name, "precious"), ("other", "other")] {
            assert_eq!(fs::read_to_string(w.on("fast", f)).unwrap(), text, "{name}");
        }
        // Nothing of the former file is left in the kernel's memory.
        until("the file of others is shown", || {
            fs::read_to_string(w.at(name)).unwrap() == "precious"
        });
        call(&w.at(name), &w.at("other")).unwrap();
    }
    symlink("ours", w.at("points")).unwrap();
    symlink("theirs", w.on("fast", "new")).unwrap();
    fs::rename(w.on("fast", "new"), w.on("fast", "points")).unwrap();
    fs::remove_file(w.at("points")).unwrap_err();
    let link = w.ask("points", "where");
    assert_eq!(link["names"], 1, "{link}");
    let store = &w.mounted.as_ref().unwrap().store;
    let cat = store.cat();
    let node = cat.get(cat.find(b"points").unwrap()).unwrap();
    assert_eq!(node.target(), Some(&b"theirs"[..]));
}

/// A program has written in a mapping, and another one copies the file and leaves out its holes.
#[test]
fn what_was_written_in_a_mapping_is_no_hole() {
    let Some(w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    let script = "python3 - <<'P'
import os, mmap
with open('f', 'wb') as f: f.truncate(1 << 20)
open('f', 'rb').close()
fd = os.open('f', os.O_RDWR)
m = mmap.mmap(fd, 1 << 20)
os.close(fd)
reader = os.open('f', os.O_RDONLY)
m[600000:600005] = b'bytes'
at = os.lseek(reader, 0, os.SEEK_DATA)
assert 590000 < at <= 600000, at
assert os.lseek(reader, at, os.SEEK_HOLE) >= 600005
m[100000:100001] = b'x'
assert os.lseek(reader, 0, os.SEEK_DATA) <= 100000
m.close()
P";
    run(script, &w.at(""));
}

/// No tier has space for all of a write: what is there of it counts as written, so a program that repeats the rest has each byte once.
#[test]
fn the_beginning_of_a_write_is_reported() {
    let Some((mut w, disk)) = slow_disk(|_| {}) else {
        return;
    };
    run(
        "truncate -s 16M small; mkfs.ext4 -q -m 0 small; mount -o loop small fast; rmdir fast/lost+found",
        &w.root,
    );
    let small = crate::trouble::Unmount(w.root.join("fast"));
    w.mount();
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(w.at("f"))
        .unwrap();
    let piece = vec![7; 900_001];
    let mut acknowledged = 0;
    let full = loop {
        match file.write(&piece) {
            Ok(n) => acknowledged += n as u64,
            Err(e) => break e,
        }
    };
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(file.metadata().unwrap().len(), acknowledged);
    file.set_len(1000).unwrap();
    // What a call has done that failed in the end is shown, too.
    let none = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&file, none, 0, 200 << 20).unwrap_err();
    let tier = if w.on("fast", "f").exists() {
        "fast"
    } else {
        "slow"
    };
    let below = fs::metadata(w.on(tier, "f")).unwrap().len();
    assert_eq!(file.metadata().unwrap().len(), below);
    assert!(below > 1000, "ext4 gives what it has");
    drop(file);
    w.unmount();
    drop((small, disk));
}

/// A move holds the file while it waits for the other tier, and many programs open it. All else goes on.
#[test]
fn opens_that_wait_for_a_move_stop_no_other_file() {
    let Some(w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    for f in ["f", "other"] {
        fs::write(w.at(f), f).unwrap();
    }
    let store = &w.mounted.as_ref().unwrap().store;
    let node = store.cat().find(b"f").unwrap();
    let live = store.live(node).unwrap();
    let held = live.state.write().unwrap();
    let open = |_| {
        let f = w.at("f");
        std::thread::spawn(move || File::open(f).map(|_| ()))
    };
    let opens: Vec<_> = (0..8).map(open).collect();
    std::thread::sleep(Duration::from_millis(300));
    let (tell, told) = channel();
    let other = w.at("other");
    std::thread::spawn(move || tell.send(fs::read(other)));
    let read = told.recv_timeout(Duration::from_secs(30));
    drop(held);
    for open in opens {
        open.join().unwrap().unwrap();
    }
    assert_eq!(read.expect("other files wait, too").unwrap(), b"other");
    store.release(&live);
}

/// Somebody has set the time of a directory to one in the future, or the clock was wrong: who looks whether names changed must see it.
#[test]
fn a_change_of_a_directory_is_seen_although_its_time_was_in_the_future() {
    let Some(w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    fs::create_dir(w.at("d")).unwrap();
    let future = UNIX_EPOCH + Duration::from_secs(5_000_000_000);
    File::open(w.at("d")).unwrap().set_modified(future).unwrap();
    fs::write(w.at("d/f"), "x").unwrap();
    let seen = fs::metadata(w.at("d")).unwrap().modified().unwrap();
    assert!(seen <= SystemTime::now(), "{seen:?}");
}

/// Others replace a file that is in use, or take it away. What a program writes that opens it then would be gone when all have closed it.
#[test]
fn nothing_is_written_to_a_file_in_use_that_has_no_name_any_more() {
    let Some(w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    let write = |f: &Path| OpenOptions::new().append(true).open(f);
    for name in ["replaced", "taken"] {
        let f = w.at(name);
        fs::write(&f, "ours").unwrap();
        let user = write(&f).unwrap();
        write(&f).unwrap();
        fs::remove_file(w.on("fast", name)).unwrap();
        if name == "replaced" {
            fs::write(w.on("fast", name), "theirs").unwrap();
        }
        let told = write(&f).unwrap_err();
        assert_eq!(told.raw_os_error(), Some(Errno::BUSY.raw_os_error()));
        assert_eq!(fs::read_to_string(&f).unwrap(), "ours", "rescued");
        drop(user);
        let in_use = || w.ask("", "status")["in_use"] == 0;
        until("it is closed", in_use);
        let mut now = if name == "replaced" {
            write(&f).unwrap()
        } else {
            write(&f).unwrap_err();
            continue;
        };
        now.write_all(b" and ours").unwrap();
        drop(now);
        let all = fs::read_to_string(w.on("fast", name)).unwrap();
        assert_eq!(all, "theirs and ours");
    }
    // Others have added to it.
    for grown in [" and theirs", ""] {
        fs::write(w.at("log"), "ours").unwrap();
        fs::read(w.at("log")).unwrap();
        until("it is closed", || w.ask("", "status")["in_use"] == 0);
        let below = w.on("fast", "log");
        fs::write(&below, format!("ours{grown}")).unwrap();
        if grown.is_empty() {
            fs::write(&below, "o").unwrap();
        }
        let start = fs::read(&below).unwrap();
        write(&w.at("log")).unwrap().write_all(b"more").unwrap();
        let all = [&start[..], b"more"].concat();
        assert_eq!(fs::read(&below).unwrap(), all);
        assert_eq!(fs::read(w.at("log")).unwrap(), all);
    }
    // A file that its users removed through the mount is theirs as long as they have it.
    fs::write(w.at("f"), "x").unwrap();
    let user = File::open(w.at("f")).unwrap();
    fs::remove_file(w.at("f")).unwrap();
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&user));
    write(Path::new(&again)).unwrap();
}
