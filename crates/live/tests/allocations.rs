//! No request allocates memory, through any front end; the allocator counts.
//!
//! The client is in the same process and allocates nothing itself. A few thousand requests in steady state are counted; a few allocations
//! may have other causes (the stamp, which is written every few seconds).

mod common;

use common::two_files;
use isotherm_live::Server;
use isotherm_live::block_file::{Options, mount_on_engine};
use isotherm_live::iscsi::pdu::{HEADER, header, put, put_data_len, u32_at};
use isotherm_live::iscsi::server::{Config as IscsiConfig, Server as IscsiServer};
use isotherm_live::nbd::server::{Config, Server as NbdServer};
use isotherm_live::port::{Buffer, Port};
use rustix::fs::OFlags;
use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
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

const ROUNDS: u64 = 300;
/// Number of requests. A round has a read, a write to a block that was written before, a write to a new block, and two flushes.
const REQUESTS: u64 = 5 * ROUNDS;
/// Allowed number of allocations with other causes, in all that time.
const OTHERS: u64 = 25;
const BLOCK: u64 = 4096;
const EXTENT: u64 = 65536;

/// A directory in memory if possible, because the test is about allocations and not about disks.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn serve(dir: &Path, policy: &str, fast: u64) -> Server {
    common::serve(dir, two_files(dir, policy, fast, 128 << 20))
}

/// The operations of a client that allocates nothing.
trait Client {
    fn read(&mut self, offset: u64);
    fn write(&mut self, offset: u64);
    fn flush(&mut self);
}

/// Makes the same requests twice: once to warm up, and once counted. Places are `stride` bytes apart.
fn count(what: &str, client: &mut impl Client, stride: u64) {
    let mut new = 64 * stride;
    let mut run = || {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for i in 0..ROUNDS {
            client.write(i % 64 * stride);
            client.flush();
            client.write(new);
            client.flush();
            client.read(i % 64 * stride);
            new += stride;
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

/// A session of an initiator.
struct Iscsi {
    socket: TcpStream,
    /// Numbers of the next command and of the last status.
    cmd_sn: u32,
    stat_sn: u32,
    bytes: Box<[u8; HEADER + BLOCK as usize]>,
}

impl Iscsi {
    fn login(at: SocketAddr, target: &str) -> Iscsi {
        let socket = TcpStream::connect(at).unwrap();
        socket.set_nodelay(true).unwrap();
        let mut me = Iscsi {
            socket,
            cmd_sn: 1,
            stat_sn: 0,
            bytes: Box::new([7; _]),
        };
        let text =
            format!("InitiatorName=iqn.x:counting\0TargetName={target}\0SessionType=Normal\0");
        let mut login = header(0x43, 0x87, 0);
        login[8] = 0x40;
        put(&mut login, 24, me.cmd_sn);
        put_data_len(&mut login, text.len());
        let mut bytes = [&login, text.as_bytes()].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        me.socket.write_all(&bytes).unwrap();
        assert_eq!(me.answer()[0], 0x23);
        me
    }
    /// The header of the next answer. Its data is left in `bytes`.
    fn answer(&mut self) -> [u8; HEADER] {
        let mut b = [0; HEADER];
        self.socket.read_exact(&mut b).unwrap();
        let len = ((u32_at(&b, 4) & 0xff_ffff) as usize).next_multiple_of(4);
        self.socket
            .read_exact(&mut self.bytes[HEADER..HEADER + len])
            .unwrap();
        self.stat_sn = u32_at(&b, 24).wrapping_add(1);
        b
    }
    /// Carries out a command on one block (or on none) that reads, writes or does neither.
    fn command(&mut self, opcode: u8, offset: u64, direction: u8) {
        let len = if direction == 0 { 0 } else { BLOCK as u32 };
        let mut b = header(0x01, 0x80 | direction | 1, self.cmd_sn);
        put(&mut b, 20, len);
        put(&mut b, 24, self.cmd_sn);
        put(&mut b, 28, self.stat_sn);
        b[32] = opcode;
        b[34..42].copy_from_slice(&(offset / BLOCK).to_be_bytes());
        put(&mut b, 42, u32::from(len > 0));
        let sent = if direction == 0x20 { BLOCK as usize } else { 0 };
        put_data_len(&mut b, sent);
        self.bytes[..HEADER].copy_from_slice(&b);
        self.socket.write_all(&self.bytes[..HEADER + sent]).unwrap();
        let answer = self.answer();
        // The last Data-In carries the status of a read.
        let is_last = answer[0] == 0x21 || (answer[0] == 0x25 && answer[1] & 1 == 1);
        assert!(is_last && answer[3] == 0, "{answer:?}");
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
    }
}

impl Client for Iscsi {
    fn read(&mut self, offset: u64) {
        self.command(0x88, offset, 0x40);
    }
    fn write(&mut self, offset: u64) {
        self.command(0x8a, offset, 0x20);
    }
    fn flush(&mut self) {
        self.command(0x91, 0, 0);
    }
}

fn by_nbd(policy: &str, fast: u64, stride: u64) {
    let scratch = in_memory();
    let server = serve(scratch.path(), policy, fast);
    let path = scratch.path().join("socket");
    let address = format!("unix:{}", path.display()).parse().unwrap();
    let nbd =
        NbdServer::start_on_engine(server.handle(), server.port(), &[address], Config::new("v"));
    let nbd = nbd.unwrap();
    let mut client = Nbd::connect(&path);
    count(&format!("NBD, {policy}"), &mut client, stride);
    drop(client);
    let c = server
        .handle()
        .call(|engine, _| engine.counters().clone())
        .unwrap();
    let (fetched, home) = (c.fetches.done, c.writebacks.done + c.evictions.done);
    eprintln!("NBD, {policy}: {fetched} copies made, {home} written home or given up");
    // The caching work that the comment below describes must have happened.
    assert!(
        policy != "lru" || (fetched > 100 && home > 100),
        "{fetched}, {home}"
    );
    drop(nbd);
    server.stop().unwrap();
}

fn by_iscsi() {
    let scratch = in_memory();
    let server = serve(scratch.path(), "greendm", 96 << 20);
    let config = IscsiConfig::new("v", [7; 16]);
    let target = IscsiServer::start(server.port(), &["127.0.0.1:0".into()], config).unwrap();
    let mut client = Iscsi::login(target.addresses()[0], target.target());
    count("iSCSI", &mut client, BLOCK);
    drop(client);
    drop(target);
    server.stop().unwrap();
}

fn by_block_file(ring: bool) {
    let scratch = in_memory();
    let server = serve(scratch.path(), "greendm", 96 << 20);
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
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(mount.file())
        .unwrap();
    let what = if mount.uses_ring() {
        "block file by io_uring"
    } else {
        "block file by /dev/fuse"
    };
    let mut client = BlockFile(file, Buffer::new(0, BLOCK as u32, BLOCK as u32));
    client.1.fill(7);
    count(what, &mut client, BLOCK);
    drop(client);
    mount.unmount().unwrap();
    server.stop().unwrap();
}

/// There is only one test, because the allocator counts for all threads.
#[test]
fn no_request_allocates() {
    by_nbd("greendm", 96 << 20, BLOCK);
    // Each request goes to an extent of its own, and few extents fit into the fast tier: copies are made, written home and dropped.
    by_nbd("lru", 16 << 20, EXTENT);
    by_nbd("benefit", 16 << 20, EXTENT);
    by_iscsi();

    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: the block file needs root and /dev/fuse");
        return;
    }
    by_block_file(false);
    if let Some(_on) = common::fuse_ring::FuseRing::on() {
        by_block_file(true);
    }
}
