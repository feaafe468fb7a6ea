//! A slow tier whose disk does not answer reads: an ext4 over a loop device over a file of a FUSE server that keeps reads waiting. All
//! other files must work meanwhile, `status` must say what waits, and the unmount must end.

use crate::stalled::use_fast;
use crate::trouble::Unmount;
use crate::world::{World, run};
use fuser::{
    BackgroundSession, Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};
use isotherm_files::fuse::Io;
use isotherm_files::mover::Outcome;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, UNIX_EPOCH};

const DISK_BYTES: u64 = 64 << 20;
/// Bytes of a file on the slow tier: more than one read ahead.
const FILE_BYTES: usize = 300 << 10;

/// Whether the disk answers.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar, AtomicBool);

/// While the last part of the gate says so, a block of these bytes cannot be written.
const LOST: [u8; 1024] = [0xe7; 1024];

impl Gate {
    fn shut(&self, shut: bool) {
        *self.0.lock().unwrap() = shut;
        self.1.notify_all();
    }
    fn pass(&self) {
        let shut = self.0.lock().unwrap();
        drop(self.1.wait_while(shut, |shut| *shut).unwrap());
    }
}

/// Shuts the gate until it is dropped.
struct Silent(Arc<Gate>);

impl Drop for Silent {
    fn drop(&mut self) {
        self.0.shut(false);
    }
}

/// The file system of one file, its root.
struct Disk(File, Arc<Gate>);

impl Filesystem for Disk {
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let attr = FileAttr {
            ino,
            size: DISK_BYTES,
            blocks: DISK_BYTES / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::RegularFile,
            perm: 0o600,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        reply.attr(&Duration::from_secs(3600), &attr);
    }
    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }
    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.1.pass();
        let mut bytes = vec![0; size as usize];
        self.0.read_exact_at(&mut bytes, offset).unwrap();
        reply.data(&bytes);
    }
    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.1.pass();
        if self.1.2.load(Ordering::SeqCst) && data.chunks(LOST.len()).any(|b| b == LOST) {
            return reply.error(fuser::Errno::EIO);
        }
        self.0.write_all_at(data, offset).unwrap();
        reply.written(data.len() as u32);
    }
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// What is taken down at the end, in this order.
struct Below {
    _tier: Unmount,
    _disk: BackgroundSession,
}

/// A world whose slow tier is on such a disk, with `d0` to `d…` on both tiers and a file in each on each.
fn world(dirs: usize) -> Option<(World, Below, Arc<Gate>)> {
    let mut w = World::new(|_| {}, Io::Cached)?;
    w.unmount();
    w.settings.accept = true;
    let (gate, at) = (Arc::new(Gate::default()), w.root.join("disk"));
    run(
        "truncate -s 64M image; mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 image; touch disk",
        &w.root,
    );
    let image = OpenOptions::new()
        .read(true)
        .write(true)
        .open(w.root.join("image"));
    let mut config = Config::default();
    config.n_threads = Some(4);
    let disk = fuser::Session::new(Disk(image.unwrap(), Arc::clone(&gate)), &at, &config);
    let disk = disk.unwrap().spawn().unwrap();
    run("mount -o loop disk slow; rmdir slow/lost+found", &w.root);
    let tier = Unmount(w.root.join("slow"));
    w.mount();
    for n in 0..dirs {
        fs::create_dir(w.at(&format!("d{n}"))).unwrap();
        fs::write(w.at(&format!("d{n}/fast")), "fast").unwrap();
        let slow = format!("d{n}/slow");
        fs::write(w.at(&slow), vec![n as u8; FILE_BYTES]).unwrap();
        assert_eq!(w.send(&slow, 1), Outcome::Done);
    }
    let below = Below {
        _tier: tier,
        _disk: disk,
    };
    Some((w, below, gate))
}

/// Nothing of the slow tier is in memory from here on, and its disk does not answer.
fn fall_silent(w: &World, gate: &Arc<Gate>) -> Silent {
    for _ in 0..600 {
        if w.ask("", "status")["in_use"] == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    rustix::fs::sync();
    // Several times: what is kept in use at first is free later.
    run(
        "for i in 1 2 3 4 5; do echo 3 >/proc/sys/vm/drop_caches; sleep 0.1; done",
        &w.root,
    );
    gate.shut(true);
    Silent(Arc::clone(gate))
}

type Call = fn(PathBuf) -> std::io::Result<()>;

/// Calls that read the file `slow` of a directory.
const CALLS: [Call; 7] = [
    |d| fs::read(d.join("slow")).map(|_| ()),
    |d| File::open(d.join("slow")).map(|_| ()),
    |d| File::open(d.join("slow"))?.read_exact_at(&mut [0], FILE_BYTES as u64 - 1),
    // A page fault.
    |d| {
        let map = "import mmap, sys; f = open(sys.argv[1], 'rb'); mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[5000]";
        let python = Command::new("python3")
            .args(["-c", map])
            .arg(d.join("slow"))
            .status()?;
        assert!(python.success());
        Ok(())
    },
    |d| fs::copy(d.join("slow"), d.with_extension("copy")).map(|_| ()),
    |d| {
        let mut file = OpenOptions::new().append(true).open(d.join("slow"))?;
        file.write_all(b"W")
    },
    |d| {
        let file = File::open(d.join("slow"))?;
        let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0))?;
        assert!(end >= FILE_BYTES as u64);
        Ok(())
    },
];

/// The worst day: many programs read files of a disk that does not answer.
fn others_go_on(calls: usize) {
    let Some((mut w, below, gate)) = world(calls) else {
        return;
    };
    let silent = fall_silent(&w, &gate);
    let start = |n: usize| {
        let (dir, call) = (w.at(&format!("d{n}")), CALLS[n % CALLS.len()]);
        std::thread::spawn(move || call(dir))
    };
    let hung: Vec<JoinHandle<std::io::Result<()>>> = (0..calls).map(start).collect();
    std::thread::sleep(Duration::from_millis(1500));
    let (tell, hear) = channel();
    let (dirs, state) = ((0..calls).map(|n| w.at(&format!("d{n}"))), w.at(""));
    let dirs: Vec<PathBuf> = dirs.collect();
    std::thread::spawn(move || {
        let mut longest = Duration::ZERO;
        for (n, dir) in dirs.into_iter().enumerate() {
            let begun = Instant::now();
            use_fast(&dir);
            longest = longest.max(begun.elapsed());
            // The receiver may have given up.
            let _ = tell.send((n, serde_json::Value::Null));
        }
        let mut status = vec![0; 1 << 20];
        let len = rustix::fs::getxattr(&state, "user.isotherm.status", &mut status[..]).unwrap();
        rustix::fs::statvfs(&state).unwrap();
        println!("the longest of {calls} rounds of uses took {longest:?}");
        let _ = tell.send((calls, serde_json::from_slice(&status[..len]).unwrap()));
    });
    // Other tests may keep the disk below busy, so there is much time for each directory.
    let mut heard = Vec::new();
    while heard.len() <= calls
        && let Ok(next) = hear.recv_timeout(Duration::from_secs(60))
    {
        heard.push(next);
    }
    let waiting = hung.iter().filter(|h| !h.is_finished()).count();
    drop(silent);
    assert_eq!(heard.len(), calls + 1, "files of the fast tier wait, too");
    // On a busy machine some of it is still in memory. Far more calls wait than the session has threads.
    assert!(waiting > calls / 2, "{waiting} of {calls} calls wait");
    for (n, call) in hung.into_iter().enumerate() {
        call.join().unwrap().unwrap_or_else(|e| panic!("{n}: {e}"));
    }
    let status = heard.pop().unwrap().1;
    let tiers = status["tiers"].as_array().unwrap();
    assert_eq!(tiers[0]["waiting"], serde_json::Value::Null);
    let said = &tiers[1]["waiting"];
    let path = said["path"].as_str().unwrap_or_default();
    assert!(path.starts_with('d') && path.ends_with("/slow"), "{said}");
    assert!(said["calls"].as_u64().unwrap() >= 1, "{said}");
    assert!(said["longest_s"].as_f64().unwrap() >= 1.0, "{said}");
    for _ in 0..600 {
        if w.ask("", "status")["tiers"][1]["waiting"].is_null() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(w.ask("", "status")["tiers"][1]["waiting"].is_null());
    assert_eq!(w.ask("", "check")["ok"], true, "{}", w.ask("", "check"));
    w.unmount();
    drop(below);
}

#[test]
fn one_read_of_a_silent_disk_stops_no_other_file() {
    others_go_on(1);
}

/// There are four session threads here.
#[test]
fn many_reads_of_a_silent_disk_stop_no_other_file() {
    others_go_on(21);
}

/// More programs than the kernel has places for reads ahead by default.
#[test]
fn very_many_reads_of_a_silent_disk_stop_no_other_file() {
    others_go_on(140);
}

/// The unmount ends although a program and the mover wait for the disk, and the next mount has every file.
#[test]
fn an_unmount_ends_while_the_disk_is_silent() {
    let Some((mut w, below, gate)) = world(2) else {
        return;
    };
    let silent = fall_silent(&w, &gate);
    let mounted = w.mounted.take().unwrap();
    let node = mounted.store.cat().find(b"d0").unwrap();
    isotherm_files::control::command(&mounted.store, node, "pin", b"fast").unwrap();
    isotherm_files::control::command(&mounted.store, node, "migrate", b"now").unwrap();
    let slow = w.at("d1/slow");
    let reader = std::thread::spawn(move || fs::read(slow));
    std::thread::sleep(Duration::from_millis(1500));
    let status = isotherm_files::control::answer(&mounted.store, node, "status").unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    assert_eq!(status["migrating"], true, "the mover waits, too: {status}");
    let calls = &status["tiers"][1]["waiting"]["calls"];
    assert!(calls.as_u64().unwrap() >= 2, "{status}");
    let (tell, hear) = channel();
    std::thread::spawn(move || tell.send(mounted.unmount(Duration::from_secs(1)).map_err(|e| e.0)));
    let ended = hear.recv_timeout(Duration::from_secs(60));
    drop(silent);
    let said = ended.expect("the unmount waits for the disk").unwrap_err();
    assert!(said.contains("still in use"), "{said}");
    // The reader gets what it read or an error, but it ends.
    let _ = reader.join().unwrap();
    // The threads that waited still have the tiers, until they end.
    let options = isotherm_files::mount::Options {
        io: Io::Cached,
        threads: 4,
        allow_other: true,
        read_only: false,
    };
    for _ in 0..600 {
        let again = isotherm_files::mount::mount(&w.settings, &w.root.join("mnt"), &options);
        match again {
            Ok(m) => {
                w.mounted = Some(m);
                break;
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    for n in 0..2u8 {
        let slow = w.at(&format!("d{n}/slow"));
        assert_eq!(fs::read(slow).unwrap(), vec![n; FILE_BYTES]);
    }
    assert_eq!(w.ask("", "check")["ok"], true, "{}", w.ask("", "check"));
    w.unmount();
    drop(below);
}

/// A disk loses what was written to a file, and nobody has been told of it yet. The move of the file, which would close the descriptor that
/// the kernel tells, leaves it where it is, and all who have it open are told.
#[test]
fn a_move_does_not_hide_that_data_was_lost() {
    let Some((mut w, below, gate)) = world(1) else {
        return;
    };
    let slow = w.at("d0/slow");
    let open = || OpenOptions::new().write(true).open(&slow).unwrap();
    let users = [open(), open()];
    gate.2.store(true, Ordering::SeqCst);
    users[0].write_all_at(&LOST.repeat(64), 0).unwrap();
    // The kernel writes it of itself.
    run("sync -f slow || true", &w.root);
    assert_eq!(w.send("d0/slow", 0), Outcome::Failed(rustix::io::Errno::IO));
    assert!(w.on("slow", "d0/slow").exists() && !w.on("fast", "d0/slow").exists());
    for user in &users {
        let told = user.sync_all().unwrap_err();
        assert_eq!(told.raw_os_error(), Some(5), "{told}");
        user.sync_all().unwrap();
    }
    gate.2.store(false, Ordering::SeqCst);
    users[1].write_all_at(&LOST.repeat(64), 0).unwrap();
    assert_eq!(w.send("d0/slow", 0), Outcome::Done);
    let all = fs::read(w.on("fast", "d0/slow")).unwrap();
    assert!(all.len() == FILE_BYTES && all[..LOST.len()] == LOST);
    drop(users);
    w.unmount();
    drop(below);
}
