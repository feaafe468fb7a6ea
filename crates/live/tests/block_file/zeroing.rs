//! Zeroing and discards of ranges that are not whole blocks, through every front end, on volumes with logical blocks of 512 and 4096 bytes.
//! After each request the volume is compared with a plain file.
//!
//! A promise (`fallocate`, NBD WRITE_ZEROES, SCSI WRITE SAME, zeroing of a loop device) makes exactly its range zeros. A hint (NBD TRIM, SCSI
//! UNMAP, DISCARD of ublk) makes its whole blocks zeros, and must change no other byte. ublk needs a kernel with its driver; here its
//! requests are made as its queue makes them (`ublk/queue/tests.rs`).

use super::common::fuse_ring::FuseRing;
use super::common::{serve as served, two_files};
use super::{can_mount, fallocate, open};
use isotherm_core::RequestOp;
use isotherm_live::Server;
use isotherm_live::block_file::{Options, mount_on_engine};
use isotherm_live::iscsi::server as iscsi;
use isotherm_live::iscsi::testing::Initiator;
use isotherm_live::loop_device::LoopDevice;
use isotherm_live::nbd::server as nbd;
use isotherm_live::port::{Completion, IoRequest, Port};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};

/// The bytes that are compared, around a border of extents.
const BASE: u64 = (64 << 10) - 8192;
const SPAN: u64 = 16384;
const KEEP_SIZE: FallocateFlags = FallocateFlags::KEEP_SIZE;

/// One way to zero a range or to give it up.
struct Way<'a> {
    name: &'static str,
    /// Offsets and lengths are multiples of this many bytes.
    unit: u64,
    promise: bool,
    act: Box<dyn FnMut(u64, u64) + 'a>,
}

fn way<'a>(name: &'static str, promise: bool, act: impl FnMut(u64, u64) + 'a) -> Way<'a> {
    Way {
        name,
        unit: 512,
        promise,
        act: Box::new(act),
    }
}

/// A loop device, which is detached at the end in any case.
struct Attached(LoopDevice);

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.detach();
    }
}

/// A volume with this logical block, if a device with such sectors can be made.
fn volume(dir: &Path, block: u32) -> Option<(Server, Option<Attached>)> {
    let mut config = two_files(dir, "greendm", 16 << 20, 16 << 20);
    let mut sectors = None;
    if block != 512 {
        let image = dir.join("sectors");
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let device = LoopDevice::attach(&image, false, block, "zeroing test");
        let device =
            device.map_err(|e| eprintln!("skipped: no loop device with 4 KiB sectors: {e}"));
        let device = device.ok()?;
        device.path().clone_into(&mut config.members[1].path);
        config.members[1].size = None;
        sectors = Some(Attached(device));
    }
    let server = served(dir, config);
    assert_eq!(server.port().block_bytes(), block);
    Some((server, sectors))
}

fn ask(port: &Arc<dyn Port>, request: IoRequest) -> Vec<u8> {
    let (send, receive) = mpsc::channel();
    let done = Completion::new(move |result, buffer| send.send((result, buffer)).unwrap());
    port.submit(request, done);
    let (result, buffer) = receive.recv().unwrap();
    assert_eq!(result, Ok(()));
    buffer.map(|b| b.to_vec()).unwrap_or_default()
}

/// Ranges that start anywhere in a block of 4096 bytes and have up to one, or about two of them: by `unit`, or by 512 bytes and a few that
/// begin and end anywhere.
fn ranges(unit: u64) -> Vec<(u64, u64)> {
    let step = unit.max(512) as usize;
    let starts = (0..4096).step_by(step);
    let by_step = starts.flat_map(|from| {
        let lens = (step as u64..9216).step_by(step);
        let lens = lens.filter(|len| !(4609..7680).contains(len));
        lens.map(move |len| (from, len))
    });
    let odd = [(1, 1), (100, 700), (511, 2), (513, 5000), (4095, 4098)];
    by_step
        .chain(odd.into_iter().filter(|_| unit == 1))
        .collect()
}

fn check(port: &Arc<dyn Port>, block: u64, ways: Vec<Way<'_>>) {
    let plain = tempfile::tempfile().unwrap();
    for mut way in ways {
        for (n, (from, len)) in ranges(way.unit).into_iter().enumerate() {
            let old = vec![n as u8 % 250 + 1; SPAN as usize];
            let mut buffer = port.buffer(BASE, SPAN as u32);
            buffer.copy_from_slice(&old);
            ask(port, IoRequest::write(BASE, SPAN as u32, buffer));
            (way.act)(BASE + from, len);
            let (first, end) = if way.promise {
                (from, from + len)
            } else {
                let first = from.next_multiple_of(block);
                (first, ((from + len) / block * block).max(first))
            };
            plain.write_all_at(&old, 0).unwrap();
            if first < end {
                fallocate(
                    &plain,
                    FallocateFlags::PUNCH_HOLE | KEEP_SIZE,
                    first,
                    end - first,
                )
                .unwrap();
            }
            let mut want = vec![0; SPAN as usize];
            plain.read_exact_at(&mut want, 0).unwrap();
            let buffer = port.buffer(BASE, SPAN as u32);
            let got = ask(port, IoRequest::read(BASE, SPAN as u32, buffer));
            let wrong = got.iter().zip(&want).position(|(a, b)| a != b);
            let name = way.name;
            assert_eq!(
                wrong, None,
                "{name}, blocks of {block}: {from}+{len}: first wrong byte"
            );
        }
    }
}

fn ways_of_a_file<'a>(file: &'a File, names: [&'static str; 3]) -> Vec<Way<'a>> {
    let modes = [
        FallocateFlags::PUNCH_HOLE | KEEP_SIZE,
        FallocateFlags::ZERO_RANGE,
        FallocateFlags::ZERO_RANGE | KEEP_SIZE,
    ];
    let all = names.into_iter().zip(modes);
    all.map(|(name, mode)| {
        way(name, true, move |at, len| {
            fallocate(file, mode, at, len).unwrap();
        })
    })
    .collect()
}

/// An NBD client that has chosen the export.
fn nbd_client(path: &Path) -> UnixStream {
    let mut peer = UnixStream::connect(path).unwrap();
    peer.read_exact(&mut [0; 18]).unwrap();
    // Client flags (fixed newstyle, no zeroes), then EXPORT_NAME with the empty name.
    peer.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")
        .unwrap();
    peer.read_exact(&mut [0; 10]).unwrap();
    peer
}

fn nbd_request(peer: &mut UnixStream, flags: u16, command: u16, at: u64, len: u64) {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend(at.to_be_bytes());
    bytes.extend((len as u32).to_be_bytes());
    peer.write_all(&bytes).unwrap();
    let mut reply = [0; 16];
    peer.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], [0; 4], "an error");
}

fn check_volume(block: u32) {
    let dir = tempfile::tempdir().unwrap();
    // The engine prepares for it when it starts.
    let ring = FuseRing::on();
    let Some((server, sectors)) = volume(dir.path(), block) else {
        return;
    };
    let (port, wide) = (server.port(), u64::from(block));
    let request = |op, fua| {
        let port = Arc::clone(&port);
        move |at, len: u64| drop(ask(&port, IoRequest::new(op, at, len as u32).with_fua(fua)))
    };
    let zeroes = |keep| RequestOp::WriteZeroes { keep };
    check(
        &port,
        wide,
        vec![
            way("ublk DISCARD", false, request(RequestOp::Discard, false)),
            way(
                "ublk DISCARD, FUA",
                false,
                request(RequestOp::Discard, true),
            ),
            way("ublk WRITE_ZEROES", true, request(zeroes(false), false)),
            way(
                "ublk WRITE_ZEROES, NOUNMAP",
                true,
                request(zeroes(true), true),
            ),
        ],
    );

    let socket = dir.path().join("s");
    let addresses = [nbd::Address::Unix(socket.clone())];
    let config = nbd::Config::new("v");
    let export =
        nbd::Server::start_on_engine(server.handle(), Arc::clone(&port), &addresses, config)
            .unwrap();
    let nbd = |flags, command| {
        let mut peer = nbd_client(&socket);
        move |at, len| nbd_request(&mut peer, flags, command, at, len)
    };
    let mut nbd_ways = vec![
        way("NBD TRIM", false, nbd(0, 4)),
        way("NBD TRIM, FUA", false, nbd(1, 4)),
        way("NBD WRITE_ZEROES", true, nbd(0, 6)),
        way("NBD WRITE_ZEROES, FUA, NO_HOLE", true, nbd(3, 6)),
    ];
    // NBD and files have no smallest block.
    for way in &mut nbd_ways {
        way.unit = 1;
    }
    check(&port, wide, nbd_ways);
    export.stop();

    check_iscsi(&port, wide);
    if can_mount() {
        check_block_file(&server, false, wide);
        if ring.is_some() {
            check_block_file(&server, true, wide);
        }
    }
    server.stop().unwrap();
    drop(sectors);
}

fn check_iscsi(port: &Arc<dyn Port>, block: u64) {
    let config = iscsi::Config::new("v", [7; 16]);
    let target = iscsi::Server::start(Arc::clone(port), &["127.0.0.1:0".into()], config).unwrap();
    let login = |name| {
        let name = format!("iqn.x:{name}");
        Initiator::login(target.addresses()[0], &name, target.target(), None).unwrap()
    };
    let same = |unmap| {
        let mut i = login(if unmap { "unmap" } else { "same" });
        move |at: u64, len: u64| {
            let cdb = Initiator::blocks(0x93, at / block, (len / block) as u32, 0, unmap);
            let done = i.command(&cdb, 0, &vec![0; block as usize]).unwrap();
            assert_eq!((done.status, done.sense), (0, None));
        }
    };
    let mut i = login("list");
    let unmap = move |at: u64, len: u64| {
        let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
        list.extend((at / block).to_be_bytes());
        list.extend(((len / block) as u32).to_be_bytes());
        list.extend([0; 4]);
        let cdb = [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
        assert_eq!(i.command(&cdb, 0, &list).unwrap().status, 0);
    };
    let mut ways = vec![
        way("iSCSI WRITE SAME", true, same(false)),
        way("iSCSI WRITE SAME, UNMAP", true, same(true)),
        way("iSCSI UNMAP", false, unmap),
    ];
    for way in &mut ways {
        way.unit = block;
    }
    check(port, block, ways);
    target.stop();
}

fn check_block_file(server: &Server, ring: bool, block: u64) {
    let (port, dir) = (server.port(), tempfile::tempdir().unwrap());
    let options = Options {
        ring,
        ..Options::default()
    };
    let handle = server.handle();
    let mut mount = mount_on_engine(&handle, Arc::clone(&port), dir.path(), "v", &options).unwrap();
    assert_eq!(mount.uses_ring(), ring);
    let file = open(mount.file(), 0).unwrap();
    let names = ["PUNCH_HOLE", "ZERO_RANGE", "ZERO_RANGE, KEEP_SIZE"];
    let mut ways = ways_of_a_file(&file, names);
    for way in &mut ways {
        way.unit = 1;
    }
    check(&port, block, ways);
    drop(file);
    if !ring {
        check_loop(&port, mount.file(), block);
    }
    mount.unmount().unwrap();
}

/// A loop device as `losetup` makes it: with sectors of 512 bytes, whatever the block of the volume.
fn check_loop(port: &Arc<dyn Port>, shown: &Path, block: u64) {
    let device = match LoopDevice::attach(shown, false, 512, "zeroing test") {
        Ok(device) => Attached(device),
        Err(e) => return eprintln!("skipped: no loop devices: {e}"),
    };
    let path = device.0.path();
    let file = open(path, 0).unwrap();
    let names = [
        "loop PUNCH_HOLE",
        "loop ZERO_RANGE",
        "loop ZERO_RANGE, KEEP_SIZE",
    ];
    let mut ways = ways_of_a_file(&file, names);
    // The loop driver has one call for a hole and for the hint that a range is not used, so the hint is a promise.
    let discard = |at: u64, len: u64| {
        if !((at + len) / 512).is_multiple_of(5) {
            // A process for each range takes too long.
            return fallocate(&file, FallocateFlags::ZERO_RANGE, at, len).unwrap();
        }
        let (at, len) = (at.to_string(), len.to_string());
        let args = ["--force", "-o", &at, "-l", &len];
        let done = Command::new("blkdiscard").args(args).arg(path).output();
        assert!(done.unwrap().status.success());
    };
    if block == 4096 {
        ways.push(way("loop DISCARD", true, discard));
    }
    check(port, block, ways);
}

#[test]
fn ranges_of_any_length_become_zeros_on_blocks_of_512() {
    check_volume(512);
}

#[test]
fn ranges_of_any_length_become_zeros_on_blocks_of_4096() {
    check_volume(4096);
}
