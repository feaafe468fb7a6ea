//! Peers that must get nothing before they have shown a certificate, and peers for which a stop must not wait.

use super::{
    EXPORT_NAME, GO, LIST, MIB, Rig, STARTTLS, TIMEOUT, ask, choose, connect, encrypted, enter,
    greet, noise, option, reply, rig, use_it, wait_for,
};
use isotherm_live::nbd::server::{Address, Config, Server};
use isotherm_live::nbd::testing::MemPort;
use isotherm_live::port::{Completion, IoRequest, Layer, Port};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long a stop may take, on a machine that is busy with other things: the server gives its peers 3 s, and those with TLS 3 s more.
const STOP: Duration = Duration::from_secs(60);

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// Counts the requests.
struct Counting(MemPort, AtomicU64);

impl Layer for Counting {
    fn below(&self) -> &dyn Port {
        &self.0
    }
    fn submit(&self, request: IoRequest, done: Completion) {
        self.1.fetch_add(1, Ordering::SeqCst);
        Port::submit(&self.0, request, done);
    }
}

/// The messages of a peer that wants to get by without a certificate.
fn messages() -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    for code in 0..16 {
        let name = [&4u32.to_be_bytes()[..], b"vol\0\0\0"].concat();
        for data in [&b""[..], b"vol", &name] {
            let mut bytes = Vec::new();
            option(&mut bytes, code, data).expect("in memory");
            all.push((format!("option {code}, {} bytes", data.len()), bytes));
        }
    }
    for command in [0, 1, 3, 4, 6, 7] {
        let mut bytes = Vec::new();
        ask(&mut bytes, command, 0, 512).expect("in memory");
        bytes.extend([7; 512]);
        all.push((format!("request {command}"), bytes));
    }
    all.push(("client flags".into(), 3u32.to_be_bytes().to_vec()));
    all
}

/// Every state before the end of the TLS handshake × every message, followed by a request: no answer tells the size of the export, and no
/// request reaches the volume.
#[test]
fn no_message_before_the_certificate_reaches_the_volume() {
    let rig = rig(TIMEOUT);
    let mut config = Config::new("vol");
    config.tls = Some(rig.certificates.tls());
    let port = Arc::new(Counting(MemPort::new(64 * MIB), AtomicU64::new(0)));
    let to: Arc<dyn Port> = port.clone();
    let server = Server::start(to, &[Address::Tcp("127.0.0.1:0".into())], config).expect("server");
    let at = server.addresses()[0].to_string();
    let mut flags_and_list = 3u32.to_be_bytes().to_vec();
    option(&mut flags_and_list, LIST, b"").expect("in memory");
    let mut starttls = 3u32.to_be_bytes().to_vec();
    option(&mut starttls, STARTTLS, b"").expect("in memory");
    let hello = [&starttls[..], &[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]].concat();
    let states: [(&str, &[u8]); 5] = [
        ("connected", b""),
        ("flags sent", &starttls[..4]),
        ("an option refused", &flags_and_list),
        ("STARTTLS", &starttls),
        ("a part of the TLS handshake", &hello),
    ];
    let mut read = Vec::new();
    ask(&mut read, 0, 0, 4096).expect("in memory");
    let size = (64 * MIB).to_be_bytes();
    for (state, sent) in states {
        for (name, message) in messages() {
            let mut tcp = connect(&at);
            // The server may end the connection at any of these.
            let all = [sent, &message, &read].concat();
            let _ = tcp.write_all(&all);
            let _ = tcp.shutdown(std::net::Shutdown::Write);
            let mut told = Vec::new();
            let _ = tcp.read_to_end(&mut told);
            let tells = told.windows(8).any(|w| w == size);
            assert!(!tells, "{state}: {name}: the size of the export");
        }
    }
    // The handshake is complete for the client, but it has no certificate that the server accepts.
    for who in [None, Some("stranger"), Some("server")] {
        for (name, message) in messages() {
            let mut tcp = connect(&at);
            greet(&mut tcp).expect("greeted");
            option(&mut tcp, STARTTLS, b"").expect("sent");
            reply(&mut tcp).expect("answered");
            let mut stream = encrypted(tcp, rig.certificates.client(who));
            let _ = stream.write_all(&[&3u32.to_be_bytes()[..], &message, &read].concat());
            let mut told = Vec::new();
            let _ = stream.read_to_end(&mut told);
            assert!(told.is_empty(), "{who:?}: {name}: {told:?}");
        }
    }
    assert_eq!(port.1.load(Ordering::SeqCst), 0);
    assert_eq!((server.clients(), server.counts().accepted), (0, 0));
    server.stop();
}

type Act = fn(&mut dyn Stream) -> io::Result<()>;

/// What a peer does last, in the handshake.
const EARLY: [(&str, Act); 4] = [
    ("nothing", |_| Ok(())),
    ("half of its flags", |s| s.write_all(&[0, 0])),
    ("half an option", |s| {
        greet(&mut Whole(s))?;
        s.write_all(b"IHAVE")
    }),
    ("an option whose data is cut", |s| {
        greet(&mut Whole(s))?;
        let mut bytes = Vec::new();
        option(&mut bytes, GO, &[0; 400])?;
        s.write_all(&bytes[..100])
    }),
];

/// What a client does last.
const LATE: [(&str, Act); 4] = [
    ("half a header", |s| s.write_all(&[0x25, 0x60, 0x95])),
    ("a WRITE without its data", |s| {
        ask(&mut Whole(s), 1, 0, 32 << 20)
    }),
    ("a WRITE whose data is cut", |s| {
        ask(&mut Whole(s), 1, 0, 32 << 20)?;
        s.write_all(&[1; 100_000])
    }),
    ("READs whose data it does not receive", |s| {
        (0..60).try_for_each(|i| ask(&mut Whole(s), 0, i * MIB, MIB as u32))
    }),
];

/// A stream as a sized type.
struct Whole<'a>(&'a mut dyn Stream);

impl Read for Whole<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Whole<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A peer of each kind, by a unix socket and by TLS.
fn peers(rig: &Rig) -> Vec<Box<dyn Stream>> {
    let mut all: Vec<Box<dyn Stream>> = Vec::new();
    let unix = || UnixStream::connect(&rig.unix).expect("connected");
    let starttls = || {
        let mut tcp = connect(&rig.tcp);
        greet(&mut tcp).expect("greeted");
        option(&mut tcp, STARTTLS, b"").expect("sent");
        assert_eq!(reply(&mut tcp).expect("answered"), super::ACK);
        tcp
    };
    for (name, act) in EARLY {
        let inside: Box<dyn Stream> = {
            let mut stream = encrypted(starttls(), rig.certificates.client(Some("client")));
            // This completes the handshake.
            stream.flush().expect("sent");
            Box::new(stream)
        };
        for mut stream in [
            Box::new(unix()) as Box<dyn Stream>,
            Box::new(connect(&rig.tcp)),
        ] {
            act(&mut *stream).expect(name);
            all.push(stream);
        }
        all.push(inside);
    }
    let mut torn = starttls();
    torn.write_all(&[22, 3, 1, 2, 0]).expect("sent");
    all.push(Box::new(torn));
    for (name, act) in LATE {
        let mut local = unix();
        greet(&mut local).expect("greeted");
        choose(&mut local).expect("chosen");
        let remote = enter(rig, Some("client")).expect("in");
        for mut stream in [Box::new(local) as Box<dyn Stream>, Box::new(remote)] {
            act(&mut *stream).expect(name);
            all.push(stream);
        }
    }
    all
}

fn stop_in_time(server: Server) {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        server.stop();
        tell.send(()).expect("the test waits");
    });
    told.recv_timeout(STOP).expect("the server stops");
}

#[test]
fn a_stop_waits_for_no_peer_and_nothing_is_left_of_those_that_go() {
    let rig = rig(TIMEOUT);
    for peer in peers(&rig) {
        drop(peer);
    }
    wait_for("all to have left", || rig.server.connections() == 0);
    assert_eq!(rig.server.clients(), 0);
    use_it(
        &mut enter(&rig, Some("client")).expect("in"),
        0,
        &noise(4096),
    )
    .expect("served");
    let stay = peers(&rig);
    let Rig { server, port, .. } = rig;
    stop_in_time(server);
    assert_eq!(port.pool_bytes_out(), 0);
    drop(stay);
}

/// Clients of TCP that go on sending, and receive their answers.
#[test]
fn a_stop_waits_for_no_busy_client() {
    let port = Arc::new(MemPort::with_engine_thread(64 * MIB, 16 << 20).expect("thread"));
    let any = [Address::Tcp("127.0.0.1:0".into())];
    let server = Server::start(port.clone(), &any, Config::new("vol")).expect("server");
    let at = server.addresses()[0].to_string();
    std::thread::scope(|s| {
        for _ in 0..3 {
            let mut tcp = connect(&at);
            greet(&mut tcp).expect("greeted");
            choose(&mut tcp).expect("chosen");
            let mut out = tcp.try_clone().expect("cloned");
            // Each ends with an error when the server ends the connection.
            s.spawn(move || while ask(&mut out, 3, 0, 0).is_ok() {});
            s.spawn(move || while tcp.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {});
        }
        stop_in_time(server);
    });
    assert_eq!(port.pool_bytes_out(), 0);
}

#[test]
fn connections_that_choose_no_export_give_way_and_clients_do_not() {
    let port = Arc::new(MemPort::new(64 * MIB));
    let any = [Address::Tcp("127.0.0.1:0".into())];
    let config = Config {
        max_clients: 2,
        ..Config::new("vol")
    };
    let server = Server::start(port.clone(), &any, config).expect("server");
    let at = server.addresses()[0].to_string();
    let client = || -> io::Result<TcpStream> {
        let mut tcp = connect(&at);
        greet(&mut tcp)?;
        choose(&mut tcp)?;
        Ok(tcp)
    };
    let mut first = client().expect("in");
    let idle: Vec<TcpStream> = (0..70).map(|_| connect(&at)).collect();
    let mut second = client().expect("in, although many wait");
    assert!(server.connections() <= 2 + 32, "few of them stay");
    assert!(client().is_err(), "there is room for two");
    assert_eq!(server.counts().refused, 1);
    for stream in [&mut first, &mut second] {
        use_it(stream, 0, &noise(4096)).expect("served");
    }
    drop(first);
    wait_for("the first to leave", || server.clients() == 1);
    use_it(&mut client().expect("in"), 0, &noise(4096)).expect("served");
    drop(idle);
    let mut unknown = connect(&at);
    greet(&mut unknown).expect("greeted");
    // The old way to ask for an export has no answer that refuses.
    option(&mut unknown, EXPORT_NAME, b"other").expect("sent");
    assert_eq!(unknown.read(&mut [0]).unwrap_or(0), 0);
    server.stop();
}
