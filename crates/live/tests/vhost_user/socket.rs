//! The socket: who may use it, and a monitor that lies in its messages.

use super::*;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use vhost::vhost_user::VhostUserFrontend;
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};

#[test]
fn only_the_own_user_may_connect_and_one_machine_at_a_time() {
    let rig = rig();
    let mode = rig.path.metadata().expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut g = rig.guest();
    let mut second = UnixStream::connect(&rig.path).expect("accepted");
    assert_eq!(second.read(&mut [0]).expect("closed"), 0, "refused");
    assert_eq!((rig.count("refused"), rig.count("clients")), (1, 1));
    g.write(0, &[1; 512]);
}

#[test]
fn what_lies_at_the_path_stays() {
    let mut rig = rig();
    rig.front.take().expect("it runs").stop();
    assert!(!rig.path.exists());
    let dir = rig.dir.path().to_owned();
    let foreign = dir.join("foreign");
    std::fs::write(&foreign, "data").expect("written");
    symlink(&foreign, &rig.path).expect("linked");
    let e = rig.start().expect_err("a link").to_string();
    assert!(e.contains("not a socket") && e.contains("v.vhost"), "{e}");
    assert_eq!(std::fs::read(&foreign).expect("it is there"), b"data");
    std::fs::rename(&foreign, &rig.path).expect("moved");
    assert!(rig.start().is_err(), "a file");
    assert_eq!(std::fs::read(&rig.path).expect("it is there"), b"data");
    std::fs::remove_file(&rig.path).expect("removed");
    let other = UnixListener::bind(&rig.path).expect("bound");
    let e = rig.start().expect_err("another server").to_string();
    assert!(e.contains("another server"), "{e}");
    drop(other);
    rig.start().expect("a dead server's socket is replaced");
    // A stranger's file in the place of the socket is not removed with it.
    std::fs::remove_file(&rig.path).expect("removed");
    std::fs::write(&rig.path, "data").expect("written");
    rig.front.take().expect("it runs").stop();
    assert_eq!(std::fs::read(&rig.path).expect("it is there"), b"data");
}

fn message(code: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let header = [code, flags, body.len() as u32].map(u32::to_le_bytes);
    [header.as_flattened(), body].concat()
}

/// Messages that are none, cut, unknown, too long, without their descriptors. Each ends its connection.
#[test]
fn wrong_messages_end_the_connection() {
    let rig = rig();
    let state = |index: u32, value: u32| [index, value].map(u32::to_le_bytes).concat();
    let wrong = [
        vec![0xff; 12],
        message(999, 1, &[]),
        message(1, 2, &[]),
        message(1, 5, &[]),
        message(2, 1, &[0; 7]),
        message(2, 1, &u64::MAX.to_le_bytes()),
        message(16, 1, &u64::MAX.to_le_bytes()),
        message(1, 1, &[0; 513]),
        message(5, 1, &[0; 8]),
        message(5, 1, &[1, 0, 0, 0, 0, 0, 0, 0]),
        message(8, 1, &state(0, 0)),
        message(8, 1, &state(0, 3)),
        message(8, 1, &state(0, 2048)),
        message(8, 1, &state(16, 64)),
        message(10, 1, &state(0, 1 << 16)),
        message(9, 1, &[0; 40]),
        message(12, 1, &[0; 8]),
        message(12, 1, &256u64.to_le_bytes()),
        message(13, 1, &99u64.to_le_bytes()),
        message(21, 1, &[]),
        message(24, 1, &[0xff; 12]),
        message(31, 1, &[0; 20]),
        message(32, 1, &[1; 20]),
    ];
    for (i, bytes) in wrong.iter().enumerate() {
        until("free", || rig.count("clients") == 0);
        let mut socket = UnixStream::connect(&rig.path).expect("accepted");
        socket.write_all(bytes).expect("sent");
        let mut rest = Vec::new();
        // The rest of a message that is too long may still be unread.
        let _ = socket.read_to_end(&mut rest);
        assert!(rest.is_empty(), "message {i}");
        until("counted", || rig.count("violations") == i as u64 + 1);
    }
    rig.check_served();
    // A peer that stops in a message is ended by its end.
    let mut socket = UnixStream::connect(&rig.path).expect("accepted");
    socket.write_all(&message(1, 1, &[])[..5]).expect("sent");
    drop(socket);
    rig.check_served();
}

/// Memory and rings that are not there. A monitor that asks is told, and nothing is mapped.
#[test]
fn memory_that_is_not_there_is_refused() {
    let rig = rig();
    let mut g = rig.guest();
    let good = g.memory.region();
    let with = |change: fn(&mut VhostUserMemoryRegionInfo)| {
        let mut region = g.memory.region();
        change(&mut region);
        region
    };
    let pipe = UnixStream::pair().expect("a pair");
    let beyond = with(|r| r.memory_size += 4096);
    let late = with(|r| r.mmap_offset = 4096);
    let wraps = with(|r| r.guest_phys_addr = u64::MAX - 4095);
    let mut other = with(|_| {});
    other.mmap_handle = pipe.0.as_raw_fd();
    for (what, regions) in [
        ("beyond the end", vec![beyond]),
        ("an offset", vec![late]),
        ("the end of all addresses", vec![wraps]),
        ("a socket", vec![other]),
        ("twice", vec![good, good]),
    ] {
        assert!(g.front.set_mem_table(&regions).is_err(), "{what}");
    }
    // The memory from before is still used.
    assert_eq!(g.read(0, 512), [0; 512]);
    // An area that its file does not have.
    let (mut area, file) = (g.inflight.take()).expect("an area");
    area.mmap_offset = area.mmap_size;
    assert!(g.front.set_inflight_fd(&area, file.as_raw_fd()).is_err());
    drop(g);
    rig.check_served();
}

/// Rings outside of the memory, or at odd places.
#[test]
fn rings_that_are_not_there_are_refused() {
    let rig = rig();
    let g = rig.guest();
    let good = g.memory.region();
    let here = good.userspace_addr;
    let size = good.memory_size;
    for (descriptors, available, used) in [
        (here - 16, here, here),
        (here, here + size, here),
        (here, here, u64::MAX - 3),
        (here + 8, here, here),
        (here, here + 1, here),
    ] {
        let addresses = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: descriptors,
            avail_ring_addr: available,
            used_ring_addr: used,
            log_addr: None,
        };
        let set = g.front.set_vring_addr(0, &addresses);
        assert!(set.is_err(), "{descriptors:x} {available:x} {used:x}");
    }
    drop(g);
    // Rings that begin in the memory and end outside: the queue breaks when it is used.
    until("free", || rig.count("clients") == 0);
    let mut g = rig.guest();
    let addresses = VringConfigData {
        queue_max_size: SIZE,
        queue_size: SIZE,
        flags: 0,
        desc_table_addr: here_of(&g) + g.memory.region().memory_size - 16,
        avail_ring_addr: here_of(&g) + g.queues[0].available() - guest::BASE,
        used_ring_addr: here_of(&g) + g.memory.region().memory_size - 4,
        log_addr: None,
    };
    g.front
        .set_vring_addr(0, &addresses)
        .expect("it begins inside");
    g.prepare(0, 1, READ, 0, &[], 512);
    g.publish(0, 3);
    g.kick(0);
    assert!(guest::wait_readable(
        &g.queues[0].error,
        Duration::from_secs(60)
    ));
    drop(g);
    rig.check_served();
}

fn here_of(g: &Guest) -> u64 {
    g.memory.region().userspace_addr
}

/// Many connections leave nothing behind: no descriptor, no mapping, no thread.
#[test]
fn connections_leave_nothing_behind() {
    let rig = rig();
    let left = || {
        let fds = std::fs::read_dir("/proc/self/fd").expect("proc").count();
        let maps = std::fs::read_to_string("/proc/self/maps").expect("proc");
        let mapped = |name: &str| maps.lines().filter(|l| l.contains(name)).count();
        (
            fds,
            mapped("/memfd:guest"),
            mapped("/memfd:isotherm-inflight"),
        )
    };
    rig.check_served();
    until("gone", || rig.count("clients") == 0);
    for _ in 0..30 {
        let mut g = Guest::new(&rig.path, 2, SIZE, 0);
        g.write(0, &[1; 4096]);
        drop(g);
        until("gone", || rig.count("clients") == 0);
    }
    // Other tests of this process have machines of their own at the same time, but not 30 more.
    until("nothing is left", || {
        let (fds, guests, areas) = left();
        fds < 250 && guests < 20 && areas < 20
    });
}
