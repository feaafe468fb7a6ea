//! Peers without a library: the server's sockets, and clients that vanish, stop or never read.

use super::{MIB, Scratch, serve};
use isotherm_live::nbd::server::{Address, Config, Server};
use isotherm_live::nbd::testing::MemPort;
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

#[test]
fn sockets_are_taken_only_when_free() {
    let scratch = Scratch::new("sockets");
    let port = Arc::new(MemPort::new(MIB));
    let start = |address: Address| Server::start(port.clone(), &[address], Config::new("vol"));
    let path = scratch.path("s");
    let unix = Address::Unix(path.clone());

    // A dead server's socket file must not prevent a start.
    drop(UnixListener::bind(&path).expect("bound"));
    let first = start(unix.clone()).expect("over a stale socket");
    let second = start(unix.clone())
        .err()
        .expect("a live socket is not taken");
    assert!(
        second.to_string().contains("another server listens"),
        "{second}"
    );
    first.stop();
    assert!(!path.exists(), "the socket file goes with its server");

    std::fs::write(&path, "precious").expect("written");
    assert!(start(unix).is_err());
    assert_eq!(std::fs::read(&path).expect("kept"), b"precious");

    let remote = start("0.0.0.0:0".parse().expect("address"))
        .err()
        .expect("not without leave");
    assert!(remote.to_string().contains("other machines"), "{remote}");
    let local = start("127.0.0.1:0".parse().expect("address")).expect("loopback");
    let [Address::Tcp(address)] = &local.addresses()[..] else {
        panic!("one TCP address")
    };
    let mut greeting = [0; 18];
    let mut peer = TcpStream::connect(address).expect("connected");
    std::io::Read::read_exact(&mut peer, &mut greeting).expect("greeted");
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    // An idle peer must not delay the end.
    local.stop();
    for text in ["", "unix:", "nohost", "host:", "host:99999", ":10809"] {
        assert!(text.parse::<Address>().is_err(), "{text:?}");
    }
}

#[test]
fn a_peer_that_vanishes_or_never_reads_leaves_nothing_behind() {
    use std::io::{Read, Write};
    let scratch = Scratch::new("rude");
    for vanish in [true, false] {
        let port = Arc::new(MemPort::with_engine_thread(64 * MIB, 16 << 20).expect("thread"));
        let (server, _) = serve(&port, &scratch);
        let mut peer =
            std::os::unix::net::UnixStream::connect(scratch.path("s")).expect("connected");
        let mut greeting = [0; 18];
        peer.read_exact(&mut greeting).expect("greeted");
        // Client flags, then EXPORT_NAME with the empty name.
        let hello = [
            &3u32.to_be_bytes()[..],
            b"IHAVEOPT",
            &1u32.to_be_bytes(),
            &[0; 4],
        ]
        .concat();
        peer.write_all(&hello).expect("sent");
        let mut export = [0; 10];
        peer.read_exact(&mut export).expect("answered");
        assert_eq!(export[..8], (64 * MIB).to_be_bytes());
        // Reads of 1 MiB, more than the pool has; the client never receives the data.
        let mut read = 0x2560_9513_u32.to_be_bytes().to_vec();
        read.extend_from_slice(&[0; 20]);
        read.extend_from_slice(&(1u32 << 20).to_be_bytes());
        peer.write_all(&read.repeat(100)).expect("sent");
        // The first bytes of a reply show that work is in progress.
        peer.read_exact(&mut [0; 16]).expect("a reply began");
        if vanish {
            drop(peer);
            while server.connections() != 0 {
                std::thread::yield_now();
            }
            server.stop();
        } else {
            drop(server);
            drop(peer);
        }
        assert_eq!(port.pool_bytes_out(), 0, "vanish: {vanish}");
    }
}

/// The header of a request at offset 0.
fn request(kind: u8, len: u32) -> [u8; 28] {
    let mut h = [0; 28];
    h[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
    h[7] = kind;
    h[24..].copy_from_slice(&len.to_be_bytes());
    h
}

/// Receives until the server ends the connection; the test fails if this takes longer than the limit.
fn cut_off(mut peer: std::os::unix::net::UnixStream, what: &str) {
    use std::io::Read;
    let limit = std::time::Duration::from_secs(20);
    peer.set_read_timeout(Some(limit)).expect("set");
    let mut rest = Vec::new();
    match peer.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(e) => panic!("{what}: not cut off after {limit:?}: {e}"),
    }
}

#[test]
fn peers_that_stop_in_the_middle_are_cut_off_and_idle_ones_are_not() {
    use isotherm_live::nbd::server::TimeLimits;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;
    let scratch = Scratch::new("stall");
    let (path, port) = (scratch.path("s"), Arc::new(MemPort::new(64 * MIB)));
    let mut config = Config::new("vol");
    config.time_limits = TimeLimits {
        // The others must choose the export in this time, on a busy machine too.
        handshake: Duration::from_secs(4),
        transmission: Duration::from_millis(400),
    };
    let server =
        Server::start(port.clone(), &[Address::Unix(path.clone())], config).expect("server");
    let greeted = || {
        let mut peer = UnixStream::connect(&path).expect("connected");
        peer.read_exact(&mut [0; 18]).expect("greeting");
        peer
    };
    let ready = || {
        let mut peer = greeted();
        peer.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")
            .expect("sent");
        peer.read_exact(&mut [0; 10]).expect("export");
        peer
    };
    let mut idle = ready();
    cut_off(greeted(), "silent in the handshake");
    let mut half = ready();
    // One call: between two, a busy machine could take longer than the server waits.
    half.write_all(&[&request(1, 32 << 20)[..], &[1; 5000]].concat())
        .expect("sent");
    cut_off(half, "in the middle of a write");
    let mut deaf = ready();
    for _ in 0..8 {
        deaf.write_all(&request(0, 1 << 20)).expect("sent");
    }
    let limit = std::time::Instant::now() + Duration::from_secs(20);
    while port.pool_bytes_out() != 0 || server.connections() > 1 {
        assert!(
            std::time::Instant::now() < limit,
            "a peer that reads nothing keeps its memory"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.counts().stalled, 2);
    // It was idle longer than any time limit, and must still be served.
    idle.write_all(&request(0, 512)).expect("sent");
    idle.read_exact(&mut [0; 16 + 512]).expect("answered");
}

/// The engine's thread serves a client that sends one request after another, and has no time limits of its own.
#[test]
fn a_client_of_the_engines_thread_that_stalls_within_a_write_is_cut_off() {
    use isotherm_live::nbd::server::TimeLimits;
    use std::io::{Read, Write};
    use std::time::Duration;
    let scratch = Scratch::new("lent");
    std::fs::create_dir_all(scratch.path("members")).expect("made");
    let members = scratch.path("members");
    let engine = super::common::serve(
        &members,
        super::common::two_files(&members, "greendm", 16 << 20, 16 << 20),
    );
    let mut config = Config::new("vol");
    config.time_limits = TimeLimits {
        handshake: Duration::from_secs(20),
        transmission: Duration::from_millis(400),
    };
    let path = scratch.path("s");
    let addresses = [Address::Unix(path.clone())];
    let (handle, port) = (engine.handle(), engine.port());
    let server = Server::start_on_engine(handle.clone(), port, &addresses, config).expect("server");
    let client = || {
        let mut peer = std::os::unix::net::UnixStream::connect(&path).expect("connected");
        peer.read_exact(&mut [0; 18]).expect("greeting");
        peer.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")
            .expect("sent");
        peer.read_exact(&mut [0; 10]).expect("export");
        // From the sixteenth on, the engine's thread receives them.
        for _ in 0..40 {
            peer.write_all(&request(0, 512)).expect("sent");
            peer.read_exact(&mut [0; 16 + 512]).expect("answered");
        }
        peer
    };
    let mut idle = client();
    for sent in [0, 100, 60_000] {
        let mut half = client();
        half.write_all(&[&request(1, 64 << 10)[..], &vec![1; sent]].concat())
            .expect("sent");
        cut_off(half, "in the middle of a write");
    }
    let limit = std::time::Instant::now() + Duration::from_secs(20);
    while server.counts().stalled < 3 || handle.buffer_bytes_out() != 0 {
        assert!(std::time::Instant::now() < limit, "memory comes back");
        std::thread::sleep(Duration::from_millis(20));
    }
    idle.write_all(&request(0, 512)).expect("sent");
    idle.read_exact(&mut [0; 16 + 512]).expect("answered");
    server.stop();
    engine.stop().expect("stopped");
}
