//! The block file through FUSE over io_uring, and the same calls if that is switched off.

use super::calls::check_each_call;
use super::common::fuse_ring::FuseRing;
use super::common::{serve, two_files};
use super::{MIB, Served, can_mount, check_every_block, open};
use isotherm_live::Server;
use isotherm_live::block_file::testing::MemPort;
use isotherm_live::block_file::{Options, mount_on_engine};
use isotherm_live::port::{Buffer, Port};
use rustix::fs::OFlags;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// An engine whose ring serves the block file of a volume in memory.
fn engine(dir: &Path) -> Server {
    serve(dir, two_files(dir, "greendm", 16 << 20, 16 << 20))
}

fn serve_by_ring(server: &Server, memory: &Arc<MemPort>) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let port = Arc::clone(memory) as Arc<dyn Port>;
    let options = Options::default();
    let mount = mount_on_engine(&server.handle(), port, dir.path(), "volume", &options).unwrap();
    assert!(mount.uses_ring());
    Served {
        mount,
        memory: Arc::clone(memory),
        dir,
    }
}

#[test]
fn each_call_reaches_the_volume_through_the_ring_too() {
    if !can_mount() {
        return;
    }
    let Some(_on) = FuseRing::on() else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = engine(dir.path());
    let memory = Arc::new(MemPort::new(4 * MIB, 512));
    check_each_call(serve_by_ring(&server, &memory));
    server.stop().unwrap();
}

#[test]
fn parallel_direct_io_keeps_every_block_through_the_ring_too() {
    if !can_mount() {
        return;
    }
    let Some(_on) = FuseRing::on() else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = engine(dir.path());
    let memory = Arc::new(MemPort::new(32 * MIB, 512));
    let mut served = serve_by_ring(&server, &memory);
    check_every_block(served.mount.file(), &memory);
    served.mount.unmount().unwrap();

    // Again on the same engine; if the connection is cut while the file is open, the entries are returned.
    for _ in 0..2 {
        let served = serve_by_ring(&server, &memory);
        let file = open(served.mount.file(), OFlags::DIRECT.bits() as i32).unwrap();
        let mut buffer = Buffer::new(0, 1 << 20, 4096);
        file.read_exact_at(&mut buffer, 0).unwrap();
        drop(served);
        assert!(
            file.read_at(&mut buffer, 0).is_err(),
            "the connection is cut"
        );
    }
    server.stop().unwrap();
}

/// The switch is off, or the volume's description excludes it: requests come from `/dev/fuse`, without a message.
#[test]
fn without_the_ring_the_block_file_is_the_same() {
    if !can_mount() {
        return;
    }
    let Some(_on) = FuseRing::on() else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = engine(dir.path());
    let memory = Arc::new(MemPort::new(4 * MIB, 512));
    let serve = |options: &Options| {
        let dir = tempfile::tempdir().unwrap();
        let port = Arc::clone(&memory) as Arc<dyn Port>;
        let mount = mount_on_engine(&server.handle(), port, dir.path(), "volume", options).unwrap();
        assert!(!mount.uses_ring());
        Served {
            mount,
            memory: Arc::clone(&memory),
            dir,
        }
    };
    let plain = Options {
        ring: false,
        ..Options::default()
    };
    drop(serve(&plain));
    // It is switched off after the engine began: the kernel does not offer it.
    FuseRing::off();
    check_each_call(serve(&Options::default()));
    server.stop().unwrap();
}
