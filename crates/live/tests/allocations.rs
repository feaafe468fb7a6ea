//! No request allocates memory, through any front end; the allocator counts.
//!
//! The client is in the same process and allocates nothing itself. A few thousand requests in steady state are counted; a few allocations
//! may have other causes (the stamp, which is written every few seconds).

use isotherm_live::block_file::{Options, mount_on_engine};
use isotherm_live::config::{IoConfig, Size};
use isotherm_live::nbd::server::{Config, Server as NbdServer};
use isotherm_live::port::{Buffer, Port};
use isotherm_live::{MemberConfig, OpenMode, Server, Volume, VolumeConfig};
use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all calls go to the system's allocator; counting changes nothing of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's guarantee.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantee.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's guarantee.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// FUSE's switch for io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
const ROUNDS: u64 = 300;
/// Number of requests. A round has a read, a write to a block that was written before, a write to a new block, and two flushes.
const REQUESTS: u64 = 5 * ROUNDS;
/// Allowed number of allocations with other causes, in all that time.
const OTHERS: u64 = 25;
const BLOCK: u64 = 4096;

/// A directory in memory if there is one, because the test is about allocations and not about disks.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn serve(dir: &Path) -> Server {
    let member = |name: &str, tier| MemberConfig {
        path: dir.join(name),
        tier,
        size: Some(Size(96 << 20)),
        ..MemberConfig::default()
    };
    let config = VolumeConfig {
        qos: Vec::new(),
        name: "v".into(),
        uuid: None,
        extent: Size(65536),
        policy: "greendm".into(),
        io: IoConfig {
            buffers: Size(8 << 20),
            ..IoConfig::default()
        },
        members: vec![member("fast", 0), member("slow", 1)],
    };
    Volume::create(&dir.join("v"), config, false).unwrap();
    Volume::open(&dir.join("v"), OpenMode::ReadWrite)
        .unwrap()
        .serve()
        .unwrap()
}

/// The operations of a client that allocates nothing.
trait Client {
    fn read(&mut self, offset: u64);
    fn write(&mut self, offset: u64);
    fn flush(&mut self);
}

/// Makes the same requests twice: once to warm up, and once counted.
fn count(what: &str, client: &mut impl Client) {
    let mut new = 1 << 20;
    let mut run = || {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for i in 0..ROUNDS {
            client.write(i % 64 * BLOCK);
            client.flush();
            client.write(new);
            client.flush();
            client.read(i % 64 * BLOCK);
            new += BLOCK;
        }
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    let first = run();
    let counted = run();
    eprintln!("{what}: {counted} allocations in {REQUESTS} requests ({first} in those before)");
    assert!(
        counted <= OTHERS,
        "{what}: {counted} allocations in {REQUESTS} requests"
    );
}

struct BlockFile(File, Buffer);

impl Client for BlockFile {
    fn read(&mut self, offset: u64) {
        self.0.read_exact_at(&mut self.1, offset).unwrap();
    }
    fn write(&mut self, offset: u64) {
        self.0.write_all_at(&self.1, offset).unwrap();
    }
    fn flush(&mut self) {
        self.0.sync_data().unwrap();
    }
}

struct Nbd(UnixStream, [u8; 28 + BLOCK as usize]);

impl Nbd {
    fn connect(path: &Path) -> Nbd {
        let mut socket = UnixStream::connect(path).unwrap();
        socket.read_exact(&mut [0; 18]).unwrap();
        socket.write_all(&3u32.to_be_bytes()).unwrap();
        socket.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\x01v").unwrap();
        socket.read_exact(&mut [0; 10]).unwrap();
        Nbd(socket, [7; _])
    }
    /// Sends a request with `payload` bytes, and takes the reply with `answer` bytes.
    fn ask(&mut self, kind: u16, offset: u64, len: usize, payload: usize, answer: usize) {
        let Nbd(socket, bytes) = self;
        bytes[..4].copy_from_slice(&0x2560_9513u32.to_be_bytes());
        bytes[4..6].copy_from_slice(&[0; 2]);
        bytes[6..8].copy_from_slice(&kind.to_be_bytes());
        bytes[16..24].copy_from_slice(&offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&(len as u32).to_be_bytes());
        socket.write_all(&bytes[..28 + payload]).unwrap();
        socket.read_exact(&mut bytes[..16 + answer]).unwrap();
        assert_eq!(
            bytes[..8],
            [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0],
            "kind {kind}"
        );
    }
}

impl Client for Nbd {
    fn read(&mut self, offset: u64) {
        self.ask(0, offset, BLOCK as usize, 0, BLOCK as usize);
    }
    fn write(&mut self, offset: u64) {
        self.ask(1, offset, BLOCK as usize, BLOCK as usize, 0);
    }
    fn flush(&mut self) {
        self.ask(3, 0, 0, 0, 0);
    }
}

fn by_block_file(ring: bool) {
    let scratch = in_memory();
    let server = serve(scratch.path());
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        ring,
        ..Options::default()
    };
    let port: Arc<dyn Port> = server.port();
    let mut mount = mount_on_engine(&server.handle(), port, dir.path(), "v", &options).unwrap();
    assert!(ring || !mount.uses_ring());
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(mount.file())
        .unwrap();
    let what = if mount.uses_ring() {
        "block file by io_uring"
    } else {
        "block file by /dev/fuse"
    };
    let mut client = BlockFile(file, Buffer::new(0, BLOCK as u32, BLOCK as u32));
    client.1.fill(7);
    count(what, &mut client);
    drop(client);
    mount.unmount().unwrap();
    server.stop().unwrap();
}

/// There is only one test, because the allocator counts for all threads.
#[test]
fn no_request_allocates() {
    let scratch = in_memory();
    let server = serve(scratch.path());
    let path = scratch.path().join("socket");
    let address = format!("unix:{}", path.display()).parse().unwrap();
    let nbd =
        NbdServer::start_on_engine(server.handle(), server.port(), &[address], Config::new("v"));
    let nbd = nbd.unwrap();
    let mut client = Nbd::connect(&path);
    count("NBD", &mut client);
    drop(client);
    drop(nbd);
    server.stop().unwrap();

    if !nix::unistd::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: the block file needs root and /dev/fuse");
        return;
    }
    by_block_file(false);
    let before = std::fs::read(SWITCH).ok();
    let Some(before) = before.filter(|_| std::fs::write(SWITCH, "Y").is_ok()) else {
        eprintln!("skipped: no FUSE over io_uring here");
        return;
    };
    by_block_file(true);
    std::fs::write(SWITCH, before).unwrap();
}
