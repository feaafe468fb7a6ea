//! NBD over TLS: which clients may connect, and that slow clients delay no other.

mod certificates;
mod hostile;
mod programs;

use certificates::Certificates;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_live::nbd::server::{Address, Config, Server, TimeLimits};
use isotherm_live::nbd::testing::MemPort;
use isotherm_live::nbd::tls::Tls;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

const MIB: u64 = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(40);
const EXPORT_NAME: u32 = 1;
const LIST: u32 = 3;
const STARTTLS: u32 = 5;
const GO: u32 = 7;
const ACK: u32 = 1;
const ERR_INVALID: u32 = (1 << 31) + 3;
const ERR_TLS_REQD: u32 = (1 << 31) + 5;

struct Rig {
    certificates: Certificates,
    port: Arc<MemPort>,
    server: Server,
    tcp: String,
    unix: PathBuf,
}

fn rig(handshake: Duration) -> Rig {
    let certificates = Certificates::new();
    let port = Arc::new(MemPort::new(64 * MIB));
    let mut config = Config::new("vol");
    config.tls = Some(certificates.tls());
    config.allow_remote = true;
    config.time_limits = TimeLimits {
        handshake,
        ..TimeLimits::default()
    };
    let unix = certificates.path("socket");
    let addresses = [
        Address::Tcp("127.0.0.1:0".into()),
        Address::Unix(unix.clone()),
    ];
    let server = Server::start(port.clone(), &addresses, config).expect("server");
    let tcp = server.addresses()[0].to_string();
    Rig {
        certificates,
        port,
        server,
        tcp,
        unix,
    }
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    stream.set_write_timeout(Some(TIMEOUT)).expect("set");
    stream
}

/// Receives the greeting and answers it.
fn greet(stream: &mut (impl Read + Write)) -> io::Result<()> {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting)?;
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    stream.write_all(&3u32.to_be_bytes())
}

fn option(stream: &mut impl Write, code: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(code.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    stream.write_all(&bytes)
}

/// The kind of the reply to an option.
fn reply(stream: &mut impl Read) -> io::Result<u32> {
    let mut b = [0; 20];
    stream.read_exact(&mut b)?;
    let number = |at: usize| u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    io::copy(&mut stream.take(u64::from(number(16))), &mut io::sink())?;
    Ok(number(12))
}

type Secret = StreamOwned<ClientConnection, TcpStream>;

fn encrypted(tcp: TcpStream, config: Arc<ClientConfig>) -> Secret {
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    StreamOwned::new(ClientConnection::new(config, name).expect("a client"), tcp)
}

/// Connects up to the transmission phase; fails if the server closes the connection.
fn enter(rig: &Rig, who: Option<&str>) -> io::Result<Secret> {
    let mut tcp = connect(&rig.tcp);
    greet(&mut tcp)?;
    option(&mut tcp, STARTTLS, b"")?;
    assert_eq!(reply(&mut tcp)?, ACK);
    let mut stream = encrypted(tcp, rig.certificates.client(who));
    choose(&mut stream)?;
    Ok(stream)
}

fn choose(stream: &mut (impl Read + Write)) -> io::Result<()> {
    option(stream, EXPORT_NAME, b"")?;
    let mut export = [0; 10];
    stream.read_exact(&mut export)?;
    assert_eq!(export[..8], (64 * MIB).to_be_bytes());
    Ok(())
}

fn ask(stream: &mut impl Write, command: u16, offset: u64, len: u32) -> io::Result<()> {
    let mut header = Vec::with_capacity(28);
    header.extend(0x2560_9513_u32.to_be_bytes());
    header.extend(0u16.to_be_bytes());
    header.extend(command.to_be_bytes());
    header.extend(offset.to_be_bytes());
    header.extend(offset.to_be_bytes());
    header.extend(len.to_be_bytes());
    stream.write_all(&header)
}

fn answer(stream: &mut impl Read) -> io::Result<()> {
    let mut b = [0; 16];
    stream.read_exact(&mut b)?;
    assert_eq!(b[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
    Ok(())
}

/// Writes, reads back, flushes.
fn use_it(stream: &mut (impl Read + Write), offset: u64, data: &[u8]) -> io::Result<()> {
    let len = data.len() as u32;
    ask(stream, 1, offset, len)?;
    stream.write_all(data)?;
    answer(stream)?;
    ask(stream, 0, offset, len)?;
    answer(stream)?;
    let mut back = vec![0; data.len()];
    stream.read_exact(&mut back)?;
    assert!(back == data, "what was written comes back");
    ask(stream, 3, 0, 0)?;
    answer(stream)
}

fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < TIMEOUT, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    isotherm_core::random::SplitMix64::new(1).fill(&mut bytes);
    bytes
}

#[test]
fn an_authenticated_client_is_served_and_no_information_is_given_before() {
    let rig = rig(TIMEOUT);
    let mut tcp = connect(&rig.tcp);
    greet(&mut tcp).expect("greeted");
    for (code, data) in [
        (LIST, &b""[..]),
        (GO, b"\0\0\0\x03vol\0\0"),
        (99, &[7; 5000]),
    ] {
        option(&mut tcp, code, data).expect("sent");
        assert_eq!(
            reply(&mut tcp).expect("answered"),
            ERR_TLS_REQD,
            "option {code}"
        );
    }
    option(&mut tcp, STARTTLS, b"x").expect("sent");
    assert_eq!(reply(&mut tcp).expect("answered"), ERR_INVALID);
    option(&mut tcp, STARTTLS, b"").expect("sent");
    assert_eq!(reply(&mut tcp).expect("answered"), ACK);
    let mut stream = encrypted(tcp, rig.certificates.client(Some("client")));
    // A second STARTTLS is an error, and the session continues.
    option(&mut stream, STARTTLS, b"").expect("sent");
    assert!(reply(&mut stream).expect("answered") >= 1 << 31);
    choose(&mut stream).expect("chosen");
    for (i, len) in [1usize, 512, 4096, 100_000, 9 << 20]
        .into_iter()
        .enumerate()
    {
        use_it(&mut stream, i as u64 * 10 * MIB, &noise(len)).expect("used");
    }
    assert_eq!(rig.server.clients(), 1);
    // Many requests whose replies are read late.
    for i in 0..64 {
        ask(&mut stream, 0, i * MIB, MIB as u32).expect("sent");
    }
    let mut data = vec![0; MIB as usize];
    for _ in 0..64 {
        answer(&mut stream).expect("answered");
        stream.read_exact(&mut data).expect("read");
    }
    ask(&mut stream, 2, 0, 0).expect("sent");
    // It is closed properly: no truncation.
    assert_eq!(stream.read(&mut data).expect("closed in order"), 0);
    wait_for("the session to end", || rig.server.connections() == 0);
    // Without encryption nothing is available: EXPORT_NAME has no error reply, so the server closes the connection.
    let mut tcp = connect(&rig.tcp);
    greet(&mut tcp).expect("greeted");
    option(&mut tcp, EXPORT_NAME, b"").expect("sent");
    assert_eq!(tcp.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(rig.server.counts().accepted, 1);
}

#[test]
fn clients_without_a_valid_certificate_are_refused() {
    let rig = rig(TIMEOUT);
    for who in [None, Some("stranger"), Some("server")] {
        assert!(enter(&rig, who).is_err(), "{who:?}");
    }
    // Bytes that are sent together with STARTTLS are read as part of the TLS handshake, never as decrypted data.
    let mut tcp = connect(&rig.tcp);
    greet(&mut tcp).expect("greeted");
    let mut both = Vec::new();
    option(&mut both, STARTTLS, b"").expect("in memory");
    option(&mut both, EXPORT_NAME, b"").expect("in memory");
    tcp.write_all(&both).expect("sent");
    assert_eq!(reply(&mut tcp).expect("answered"), ACK);
    let mut rest = Vec::new();
    // It may send an alert.
    let _ = tcp.read_to_end(&mut rest);
    assert!(rest.len() < 10, "{rest:?}");
    wait_for("all of them to be counted", || {
        rig.server.counts().unknown == 4
    });
    assert_eq!(rig.server.counts().accepted, 0);
    use_it(
        &mut enter(&rig, Some("client")).expect("in"),
        0,
        &noise(4096),
    )
    .expect("served");
}

#[test]
fn slow_handshakes_delay_no_other_client() {
    // The others must complete their handshakes in this time, on a busy machine too.
    let rig = rig(Duration::from_secs(15));
    let mut first = enter(&rig, Some("client")).expect("in");
    let mut idle: Vec<TcpStream> = Vec::new();
    for i in 0..100 {
        let mut tcp = connect(&rig.tcp);
        if i % 3 > 0 {
            // A connection that was already ended in favour of another cannot send.
            let _ = greet(&mut tcp);
        }
        if i % 3 > 1 {
            let _ = option(&mut tcp, STARTTLS, b"");
            let _ = tcp.write_all(&[22, 3, 1, 2, 0]);
        }
        idle.push(tcp);
    }
    assert_eq!(
        rig.server.connections(),
        1,
        "none of them is a connection yet"
    );
    use_it(&mut first, 0, &noise(1 << 20)).expect("served");
    let mut local = UnixStream::connect(&rig.unix).expect("connected");
    greet(&mut local).expect("greeted");
    choose(&mut local).expect("chosen");
    use_it(&mut local, MIB, &noise(4096)).expect("served");
    // A new client can connect, because it is newer than all the slow ones.
    use_it(
        &mut enter(&rig, Some("client")).expect("in"),
        0,
        &noise(4096),
    )
    .expect("served");
    // The time limit ends all of them, and only them.
    for mut tcp in idle {
        let mut rest = Vec::new();
        if let Err(e) = tcp.read_to_end(&mut rest) {
            assert_eq!(e.kind(), io::ErrorKind::ConnectionReset);
        }
    }
    use_it(&mut first, 0, &noise(4096)).expect("still served");
}

#[test]
fn a_client_that_does_not_read_delays_no_other_and_the_server_ends() {
    let rig = rig(TIMEOUT);
    let mut paused = enter(&rig, Some("client")).expect("in");
    for i in 0..60 {
        ask(&mut paused, 0, i * MIB, MIB as u32).expect("sent");
    }
    let mut other = enter(&rig, Some("client")).expect("in");
    for _ in 0..20 {
        use_it(&mut other, 0, &noise(64 << 10)).expect("served");
    }
    let Rig { server, port, .. } = rig;
    server.stop();
    assert!(
        other.read(&mut [0]).is_ok_and(|n| n == 0),
        "closed in order"
    );
    drop((paused, port));
}

#[test]
fn certificates_that_do_not_fit_are_named() {
    let c = Certificates::new();
    let load = |cert: &str, key: &str, ca: &str| {
        Tls::load(&c.path(cert), &c.path(key), &c.path(ca)).map_err(|e| e.to_string())
    };
    let good = ("server-cert.pem", "server-key.pem", "ca-cert.pem");
    for (cert, key, ca, want) in [
        ("gone.pem", good.1, good.2, "gone.pem: "),
        ("server-key.pem", good.1, good.2, "no certificate in it"),
        (good.0, "ca-cert.pem", good.2, "ca-cert.pem: no private key"),
        (good.0, "client-key.pem", good.2, "client-key.pem"),
        (
            good.0,
            good.1,
            "server-key.pem",
            "server-key.pem: no certificate",
        ),
    ] {
        let e = load(cert, key, ca).expect_err(want);
        assert!(e.contains(want), "{e}");
    }
    c.permit(good.0, 0o644);
    load(good.0, good.1, good.2).expect("everybody may know the certificate");
    c.permit(good.1, 0o640);
    let e = load(good.0, good.1, good.2).expect_err("not the key");
    assert!(e.contains("`chmod 600 "), "{e}");
    c.permit(good.1, 0o600);
    let mut config = Config::new("vol");
    config.allow_remote = true;
    let any = [Address::Tcp("0.0.0.0:0".into())];
    let port = Arc::new(MemPort::new(MIB));
    let e = Server::start(port.clone(), &any, config.clone()).map(drop);
    assert!(e.expect_err("refused").to_string().contains("without TLS"));
    config.allow_remote = false;
    config.tls = Some(c.tls());
    let e = Server::start(port.clone(), &any, config.clone()).map(drop);
    assert!(
        e.expect_err("refused")
            .to_string()
            .contains("--nbd-allow-remote")
    );
    config.allow_remote = true;
    drop(Server::start(port, &any, config).expect("allowed"));
}
