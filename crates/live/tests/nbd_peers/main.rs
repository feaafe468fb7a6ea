//! The NBD server with common clients. A test whose tool is missing is skipped with a message.

#[path = "../common/mod.rs"]
mod common;
mod raw;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use isotherm_core::IoError;
use isotherm_live::nbd::server::{Address, Config, Server};
use isotherm_live::nbd::testing::MemPort;

const MIB: u64 = 1 << 20;

/// A test directory, which is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("isotherm-nbd-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a scratch directory");
        Scratch(path)
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn missing(tools: &[&str]) -> bool {
    let absent = |tool: &&&str| {
        // nbdsh is a script: it may exist although its Python does not find libnbd.
        let probe: &[&str] = if **tool == "nbdsh" {
            &["-c", "import nbd"]
        } else {
            &["--version"]
        };
        !command(tool)
            .args(probe)
            .output()
            .is_ok_and(|o| o.status.success())
    };
    let first = tools.iter().find(absent);
    if let Some(tool) = first {
        println!("skipped: `{tool}` is not installed or does not run");
    }
    first.is_some()
}

fn serve(port: &Arc<MemPort>, scratch: &Scratch) -> (Server, String) {
    let path = scratch.path("s");
    let mut config = Config::new("vol");
    config.description = "test volume".into();
    let server =
        Server::start(port.clone(), &[Address::Unix(path.clone())], config).expect("server");
    (server, format!("nbd+unix:///vol?socket={}", path.display()))
}

/// A tool, with the system's directory first on the path: nbdsh runs the first `python3` that it finds, and libnbd's module belongs to the
/// system's Python.
fn command(tool: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("timeout");
    command
        .env("PATH", format!("/usr/bin:{path}"))
        .args(["60", tool]);
    command
}

fn run(tool: &str, args: &[&str]) -> Output {
    command(tool).args(args).output().expect("started")
}

fn ok(tool: &str, args: &[&str]) -> String {
    let output = run(tool, args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{tool} {args:?}: {}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Data with holes, from a fixed seed.
fn image(path: &Path, bytes: u64) -> Vec<u8> {
    let mut random = isotherm_core::random::SplitMix64::new(1);
    let mut data = vec![0; bytes as usize];
    for (n, block) in data.chunks_mut(96 << 10).enumerate() {
        if n % 3 != 1 {
            random.fill(block);
        }
    }
    std::fs::write(path, &data).expect("image written");
    data
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("UTF-8 path")
}

#[test]
fn nbdinfo_sees_what_is_served() {
    if missing(&["nbdinfo"]) {
        return;
    }
    let scratch = Scratch::new("info");
    let (_server, uri) = serve(&Arc::new(MemPort::new(64 * MIB)), &scratch);
    let text = ok("nbdinfo", &[&uri]);
    for wanted in [
        "newstyle-fixed",
        "structured packets",
        "export-size: 67108864",
        "description: test volume",
        "base:allocation",
        "can_multi_conn: true",
        "can_cache: true",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_trim: true",
        "can_zero: true",
        "is_read_only: false",
        "block_size_minimum: 1",
        "block_size_preferred: 4096",
        "block_size_maximum: 33554432",
    ] {
        assert!(text.contains(wanted), "`{wanted}` is not in:\n{text}");
    }
    assert!(ok("nbdinfo", &["--list", &uri]).contains("export=\"vol\""));
    assert!(
        !run("nbdinfo", &[&uri.replace("/vol", "/other")])
            .status
            .success()
    );
    assert!(ok("nbdinfo", &["--map", &uri]).contains("hole,zero"));
}

#[test]
fn nbdcopy_both_ways_keeps_every_byte() {
    if missing(&["nbdcopy", "nbdinfo"]) {
        return;
    }
    let scratch = Scratch::new("copy");
    let (bytes, from, to) = (70 * MIB + 512, scratch.path("from"), scratch.path("to"));
    let data = image(&from, bytes);
    for engine in [false, true] {
        let port = if engine {
            // Far less memory than nbdcopy's requests need, so that the reader waits for buffers.
            MemPort::with_engine_thread(bytes, MIB as usize).expect("thread")
        } else {
            MemPort::new(bytes)
        };
        let port = Arc::new(port);
        let (server, uri) = serve(&port, &scratch);
        ok("nbdcopy", &["--flush", utf8(&from), &uri]);
        assert!(port.flushes() > 0, "--flush must arrive");
        std::fs::remove_file(&to).ok();
        ok("nbdcopy", &[&uri, utf8(&to)]);
        assert!(
            std::fs::read(&to).expect("copy") == data,
            "engine thread: {engine}"
        );
        server.stop();
        assert_eq!(port.pool_bytes_out(), 0, "every buffer came back");
    }
}

#[test]
fn qemu_img_converts_and_compares() {
    if missing(&["qemu-img"]) {
        return;
    }
    let scratch = Scratch::new("qemu");
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    let data = image(&from, 40 * MIB);
    let (_server, uri) = serve(&Arc::new(MemPort::new(40 * MIB)), &scratch);
    ok(
        "qemu-img",
        &["convert", "-n", "-f", "raw", "-O", "raw", utf8(&from), &uri],
    );
    ok(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", utf8(&from), &uri],
    );
    ok(
        "qemu-img",
        &["convert", "-f", "raw", "-O", "raw", &uri, utf8(&to)],
    );
    assert!(std::fs::read(&to).expect("copy") == data);
    // A difference of one byte must be noticed.
    let mut changed = data;
    changed[12_345] ^= 1;
    std::fs::write(&to, changed).expect("written");
    assert!(
        !run(
            "qemu-img",
            &["compare", "-f", "raw", "-F", "raw", utf8(&to), &uri]
        )
        .status
        .success()
    );
}

#[test]
fn fio_verifies_over_four_connections() {
    if missing(&["fio"]) {
        return;
    }
    if !ok("fio", &["--enghelp"]).contains("nbd") {
        println!("skipped: this fio has no nbd engine");
        return;
    }
    let scratch = Scratch::new("fio");
    let port = Arc::new(MemPort::with_engine_thread(64 * MIB, 64 << 20).expect("thread"));
    let (server, uri) = serve(&port, &scratch);
    let uri = format!("--uri={uri}");
    let common = [
        "--name=v",
        "--ioengine=nbd",
        &uri,
        "--size=16M",
        "--offset_increment=16M",
        "--numjobs=4",
    ];
    let rest = [
        "--rw=randwrite",
        "--bsrange=512-64k",
        "--bs_unaligned",
        "--iodepth=32",
        "--verify=crc32c",
        "--verify_state_save=0",
        "--verify_fatal=1",
        "--randseed=7",
    ];
    ok("fio", &[&common[..], &rest[..]].concat());
    assert!(server.counts().accepted >= 4);
    assert_eq!(server.counts().violations, 0);
}

/// Every command and every error from libnbd's view.
const SCRIPT: &str = r#"
import errno, nbd
def fails(number, call):
    try:
        call()
    except nbd.Error as e:
        assert e.errnum == number, (e.errnum, number, e.string)
    else:
        raise AssertionError("no error, expected %d" % number)
h.set_strict_mode(0)
size = h.get_size()
data = bytes(range(256)) * 40
h.pwrite(data, 1000)
assert h.pread(len(data), 1000) == data
assert h.pread(3, 999) == b"\0" + data[:2]
h.pwrite(b"durable", 0, nbd.CMD_FLAG_FUA)
h.flush()
chunks = []
def chunk(buf, offset, status, error):
    chunks.append((offset, len(buf), status))
assert h.pread_structured(65536, 0, chunk, nbd.CMD_FLAG_DF)[:7] == b"durable"
assert chunks == [(0, 65536, nbd.READ_DATA)], chunks
h.zero(100, 1000)
assert h.pread(101, 1000) == bytes(100) + data[100:101]
h.zero(1 << 20, 4 << 20, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
h.zero(1 << 20, 4 << 20, nbd.CMD_FLAG_FAST_ZERO)
fails(errno.ENOTSUP, lambda: h.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE))
h.pwrite(b"x" * 65536, 65536)
h.trim(65536, 65536, nbd.CMD_FLAG_FUA)
assert h.pread(65536, 65536) == bytes(65536)
h.cache(1 << 20, 0)
runs = []
def extent(context, offset, entries, error):
    runs.append((context, offset, entries))
h.block_status(1 << 20, 0, extent)
assert runs == [("base:allocation", 0, [65536, 0, (1 << 20) - 65536, 3])], runs
runs.clear()
h.block_status(1 << 20, 0, extent, nbd.CMD_FLAG_REQ_ONE)
assert runs == [("base:allocation", 0, [65536, 0])], runs
fails(errno.EINVAL, lambda: h.pread(512, size))
fails(errno.ENOSPC, lambda: h.pwrite(b"y" * 512, size - 1))
fails(errno.ENOSPC, lambda: h.zero(512, size))
fails(errno.EINVAL, lambda: h.trim(512, size))
fails(errno.EINVAL, lambda: h.cache(512, size))
fails(errno.EINVAL, lambda: h.block_status(512, size, extent))
fails(errno.EINVAL, lambda: h.block_status(0, 0, extent))
fails(errno.EIO, lambda: h.pread(4096, 8 << 20))
fails(errno.ENOSPC, lambda: h.pwrite(bytes(4096), 9 << 20))
assert h.pread(7, 0) == b"durable"
big = (32 << 20) + 1
fails(errno.EINVAL, lambda: h.pread(big, 0))
fails(errno.EOVERFLOW, lambda: h.pread_structured(big, 0, chunk, nbd.CMD_FLAG_DF))
fails(errno.EINVAL, lambda: h.pwrite(bytes(big), 0))
assert h.pread(32 << 20, 16 << 20) == bytes(32 << 20)
cookies = [h.aio_pread(nbd.Buffer(4096), 4096 * n) for n in range(600)]
while h.aio_in_flight():
    h.poll(-1)
assert all(h.aio_command_completed(c) for c in cookies)
assert h.pread(7, 0) == b"durable"
h.shutdown()
"#;

#[test]
fn nbdsh_exercises_every_command_and_error() {
    if missing(&["nbdsh"]) {
        return;
    }
    let scratch = Scratch::new("shell");
    let port = Arc::new(MemPort::new(128 * MIB));
    port.fail(8 * MIB..8 * MIB + 4096, IoError::Io);
    port.fail(9 * MIB..9 * MIB + 4096, IoError::NoSpace);
    let (server, uri) = serve(&port, &scratch);
    ok("nbdsh", &["--base-allocation", "-u", &uri, "-c", SCRIPT]);
    assert_eq!(
        port.fua_writes(),
        3,
        "a write, a zeroing and a trim asked for durability"
    );
    // The same reads from a client that knows only simple replies.
    let simple = "h.set_request_structured_replies(False)\n";
    let rest = format!(
        "h.connect_uri({uri:?})\nassert h.pread(7, 0) == b'durable'\nassert not h.can_df()\n"
    );
    ok("nbdsh", &["-c", simple, "-c", &rest]);
    assert_eq!(server.counts().violations, 0);
}

#[test]
fn a_read_only_volume_refuses_writes() {
    if missing(&["nbdsh"]) {
        return;
    }
    let scratch = Scratch::new("readonly");
    let (_server, uri) = serve(&Arc::new(MemPort::new_read_only(MIB)), &scratch);
    let script = r"
import errno, nbd
h.set_strict_mode(0)
assert h.is_read_only() and not h.can_trim() and not h.can_zero()
for call in [lambda: h.pwrite(b'x' * 512, 0), lambda: h.trim(512, 0), lambda: h.zero(512, 0)]:
    try:
        call()
        raise AssertionError('written')
    except nbd.Error as e:
        assert e.errnum == errno.EPERM, e.errnum
assert h.pread(512, 0) == bytes(512)
h.flush()
";
    ok("nbdsh", &["-u", &uri, "-c", script]);
}
