//! The iSCSI target with an initiator of the test and with libiscsi's programs: data, classes, login, faulty and vanished peers.

mod ends;
mod fuzz;
mod programs;
mod reservations;

use isotherm_core::RequestOp;
use isotherm_live::iscsi::chap::Secrets;
use isotherm_live::iscsi::pdu::{header, put, put_data_len, u32_at};
use isotherm_live::iscsi::server::{Config, Server, TimeLimits};
use isotherm_live::iscsi::testing::{Initiator, Outcome};
use isotherm_live::nbd::testing::MemPort;
use isotherm_live::port::{Completion, IoRequest, Layer, Port};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BYTES: u64 = 64 << 20;
const WRITE: u8 = 0x8a;
const READ: u8 = 0x88;

/// A volume in memory that records the classes of its requests.
struct RecordingPort {
    inner: MemPort,
    classes: Mutex<Vec<(RequestOp, u8)>>,
    /// Requests that wait, while there is a list.
    held: Mutex<Option<Vec<(IoRequest, Completion)>>>,
}

impl RecordingPort {
    /// Carries out what waits, and from now on everything.
    fn go_on(&self) {
        let held = self.held.lock().unwrap().take();
        for (request, done) in held.into_iter().flatten() {
            Port::submit(&self.inner, request, done);
        }
    }
}

impl Layer for RecordingPort {
    fn below(&self) -> &dyn Port {
        &self.inner
    }

    fn submit(&self, request: IoRequest, done: Completion) {
        let heard = (request.op, request.class);
        self.classes.lock().unwrap().push(heard);
        if let Some(held) = &mut *self.held.lock().unwrap() {
            held.push((request, done));
            return;
        }
        Port::submit(&self.inner, request, done);
    }
}

struct Rig {
    server: Server,
    port: Arc<RecordingPort>,
    at: SocketAddr,
    target: String,
}

fn rig_with(pool: usize, change: impl FnOnce(&mut Config)) -> Rig {
    let port = Arc::new(RecordingPort {
        inner: MemPort::with_engine_thread(BYTES, pool).unwrap(),
        classes: Mutex::default(),
        held: Mutex::default(),
    });
    let mut config = Config::new("v", [7; 16]);
    change(&mut config);
    let to: Arc<dyn Port> = port.clone();
    let server = Server::start(to, &["127.0.0.1:0".into()], config).unwrap();
    Rig {
        at: server.addresses()[0],
        target: server.target().to_owned(),
        port,
        server,
    }
}

fn rig() -> Rig {
    rig_with(64 << 20, |_| {})
}

impl Rig {
    fn login(&self, name: &str) -> Initiator {
        Initiator::login(self.at, name, &self.target, None).unwrap()
    }

    /// Checks that another client is served without problems.
    fn check_served(&self) {
        let mut i = self.login("iqn.x:well");
        let data = noise(9, 4096);
        good(
            &i.command(&Initiator::blocks(WRITE, 64, 8, 0, false), 0, &data)
                .unwrap(),
        );
        let back = i
            .command(&Initiator::blocks(READ, 64, 8, 0, false), 4096, &[])
            .unwrap();
        assert_eq!(back.data, data);
        i.logout().unwrap();
    }
}

fn good(o: &Outcome) {
    assert_eq!((o.status, o.sense, o.residual), (0, None, 0));
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    isotherm_core::random::SplitMix64::new(seed).fill(&mut bytes);
    bytes
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_is_written_is_read_in_pieces_of_every_size_with_its_class() {
    let rig = rig();
    let mut i = rig.login("iqn.x:a");
    for (n, (lba, blocks)) in [
        (0u64, 1u32),
        (7, 128),
        (500, 129),
        (3000, 2048),
        (9000, 8192),
    ]
    .into_iter()
    .enumerate()
    {
        let data = noise(lba + 1, blocks as usize * 512);
        let class = n as u8 * 7;
        good(
            &i.command(
                &Initiator::blocks(WRITE, lba, blocks, class, n == 1),
                0,
                &data,
            )
            .unwrap(),
        );
        let cdb = Initiator::blocks(READ, lba, blocks, class + 1, false);
        let back = i.command(&cdb, data.len() as u32, &[]).unwrap();
        good(&back);
        assert!(back.data == data, "{lba}+{blocks}");
    }
    let heard = rig.port.classes.lock().unwrap().clone();
    let want: Vec<_> = (0..5u8)
        .flat_map(|n| [(RequestOp::Write, n * 7), (RequestOp::Read, n * 7 + 1)])
        .collect();
    assert_eq!(heard, want);
    assert_eq!(rig.port.inner.fua_writes(), 1);
    good(
        &i.command(&[0x91, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3], 0, &[])
            .unwrap(),
    );
    assert_eq!(rig.port.inner.flushes(), 1);
    i.logout().unwrap();
    until("memory comes back", || rig.port.inner.pool_bytes_out() == 0);
}

#[test]
fn ranges_are_given_up_and_written_over_alike() {
    let rig = rig();
    let mut i = rig.login("iqn.x:a");
    let data = noise(1, 1 << 20);
    good(
        &i.command(&Initiator::blocks(WRITE, 0, 2048, 0, false), 0, &data)
            .unwrap(),
    );
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend_from_slice(&8u64.to_be_bytes());
    list.extend_from_slice(&[0, 0, 0, 8, 0, 0, 0, 0]);
    good(
        &i.command(&[0x42, 0, 0, 0, 0, 0, 5, 0, 24, 0], 0, &list)
            .unwrap(),
    );
    let block = noise(2, 512);
    good(
        &i.command(&Initiator::blocks(0x93, 32, 16, 0, false), 0, &block)
            .unwrap(),
    );
    good(
        &i.command(&Initiator::blocks(0x93, 64, 16, 0, true), 0, &[0; 512])
            .unwrap(),
    );
    let back = i
        .command(&Initiator::blocks(READ, 0, 128, 0, false), 65536, &[])
        .unwrap()
        .data;
    assert!(back[..4096] == data[..4096] && back[4096..8192].iter().all(|b| *b == 0));
    assert!(back[32 * 512..48 * 512].chunks(512).all(|b| b == block));
    assert!(back[64 * 512..80 * 512].iter().all(|b| *b == 0));
    assert!(back[80 * 512..] == data[80 * 512..65536]);
    // A truncated list, and a reservation of the old kind, are refused by their names.
    let cut = i
        .command(&[0x42, 0, 0, 0, 0, 0, 0, 0, 16, 0], 0, &list[..16])
        .unwrap();
    assert_eq!(cut.sense, Some((5, 0x26, 0)));
    let reserve = i.command(&[0x16, 0, 0, 0, 0, 0], 0, &[]).unwrap();
    assert_eq!(reserve.sense, Some((5, 0x20, 0)));
}

#[test]
fn lengths_that_do_not_match_are_reported() {
    let rig = rig();
    let mut i = rig.login("iqn.x:a");
    let cdb = Initiator::blocks(READ, 0, 2, 0, false);
    let less = i.command(&cdb, 512, &[]).unwrap();
    assert_eq!((less.status, less.data.len(), less.residual), (0, 512, 512));
    let more = i.command(&cdb, 4096, &[]).unwrap();
    assert_eq!(
        (more.status, more.data.len(), more.residual),
        (0, 1024, -3072)
    );
    let none = i.command(&cdb, 0, &[]).unwrap();
    assert_eq!((none.status, none.data.len(), none.residual), (0, 0, 1024));
    let beyond = i
        .command(&Initiator::blocks(READ, BYTES / 512, 1, 0, false), 512, &[])
        .unwrap();
    assert_eq!(beyond.sense, Some((5, 0x21, 0)));
    let inquiry = i.command(&[0x12, 0, 0, 0, 36, 0], 255, &[]).unwrap();
    assert_eq!(
        (inquiry.data.len(), &inquiry.data[8..16]),
        (36, &b"ISOTHERM"[..])
    );
}

#[test]
fn only_initiators_with_a_secret_can_log_in() {
    let secrets = Secrets::parse("joe secret-of-joe").unwrap();
    let rig = rig_with(64 << 20, |c| c.secrets = Some(Arc::new(secrets)));
    let login = |secret| Initiator::login(rig.at, "iqn.x:a", &rig.target, secret);
    for wrong in [
        None,
        Some(("joe", "secret-of-ann")),
        Some(("ann", "secret-of-joe")),
    ] {
        let e = login(wrong).err().expect("refused");
        assert!(e.to_string().contains("0201"), "{e}");
    }
    let mut joe = login(Some(("joe", "secret-of-joe"))).unwrap();
    good(&joe.command(&[0; 6], 0, &[]).unwrap());
    until("counted", || rig.server.counts().unknown == 3);
    let elsewhere = Config {
        allow_remote: true,
        ..Config::new("v", [7; 16])
    };
    let port: Arc<dyn Port> = rig.port.clone();
    let open = Server::start(port, &["0.0.0.0:0".into()], elsewhere);
    assert!(
        open.err()
            .expect("refused")
            .to_string()
            .contains("without secrets")
    );
}

#[test]
fn addresses_that_others_reach_are_refused() {
    let rig = rig();
    for (address, says) in [
        ("0.0.0.0:0", "--iscsi-allow-remote"),
        ("nonsense", "HOST:PORT"),
    ] {
        let port: Arc<dyn Port> = rig.port.clone();
        let e = Server::start(port, &[address.into()], Config::new("v", [7; 16]));
        let e = e.err().expect("refused").to_string();
        assert!(e.contains(says) && e.contains(address), "{e}");
    }
}

type Fault = fn(&mut Initiator);

/// Sends a write of 128 KiB of which only the part in the command is sent; returns the target's request for the rest.
fn half_a_write(i: &mut Initiator) -> [u8; 48] {
    i.immediate = 512;
    i.begin(
        &Initiator::blocks(WRITE, 0, 256, 0, false),
        0,
        &vec![1; 128 << 10],
    )
    .unwrap();
    let r2t = i.receive().unwrap();
    assert_eq!(r2t.header[0], 0x31);
    assert_eq!(
        (u32_at(&r2t.header, 40), u32_at(&r2t.header, 44)),
        (512, (128 << 10) - 512)
    );
    r2t.header
}

fn data_out(r2t: &[u8; 48], offset: u32, data_sn: u32, last: bool) -> [u8; 48] {
    let mut b = header(0x05, u8::from(last) << 7, u32_at(r2t, 16));
    b[20..24].copy_from_slice(&r2t[20..24]);
    put(&mut b, 36, data_sn);
    put(&mut b, 40, offset);
    b
}

#[test]
fn peers_that_break_the_rules_are_cut_off_and_no_others() {
    let rig = rig();
    let faults: [(&str, Fault); 6] = [
        ("a login again", |i| {
            i.send(header(0x43, 0x87, 1), &[]).unwrap();
        }),
        ("an operation of nobody", |i| {
            i.send(header(0x1f, 0x80, 1), &[]).unwrap();
        }),
        ("too long a segment", |i| {
            let mut b = header(0x05, 0x80, 1);
            put_data_len(&mut b, (256 << 10) + 1);
            i.send_bytes(&b).unwrap();
        }),
        ("data of another place", |i| {
            let r2t = half_a_write(i);
            i.send(data_out(&r2t, 1024, 0, false), &[1; 512]).unwrap();
        }),
        ("more than was asked for", |i| {
            let r2t = half_a_write(i);
            i.send(data_out(&r2t, 512, 0, false), &vec![1; 128 << 10])
                .unwrap();
        }),
        ("an early end", |i| {
            let r2t = half_a_write(i);
            i.send(data_out(&r2t, 512, 0, true), &[1; 512]).unwrap();
        }),
    ];
    for (n, (name, fault)) in faults.into_iter().enumerate() {
        let mut i = rig.login("iqn.x:bad");
        fault(&mut i);
        assert!(i.is_closed(), "{name}");
        until(name, || rig.server.counts().violations == n as u64 + 1);
    }
    // Before a login only login PDUs are understood.
    let mut i = Initiator::connect(rig.at).unwrap();
    i.send(header(0x01, 0x80, 1), &[]).unwrap();
    assert!(i.is_closed());
    rig.check_served();
    until("memory comes back", || rig.port.inner.pool_bytes_out() == 0);
    until("all have left", || rig.server.connections() == 0);
}

/// If a number is missing, the command fails, and nothing else.
#[test]
fn data_out_of_turn_fails_its_command_alone() {
    let rig = rig();
    let mut i = rig.login("iqn.x:a");
    for wrong in [1, 27, u32::MAX] {
        let r2t = half_a_write(&mut i);
        i.send(data_out(&r2t, 512, wrong, false), &[1; 512])
            .unwrap();
        let answer = i.receive().unwrap();
        assert_eq!((answer.header[0], answer.header[3]), (0x21, 2));
        assert_eq!((answer.data[4] & 15, answer.data[14]), (11, 0x4b));
        // Data that was sent before the answer is skipped.
        i.send(data_out(&r2t, 1024, 0, false), &[1; 512]).unwrap();
        good(&i.command(&[0; 6], 0, &[]).unwrap());
    }
    rig.check_served();
    until("memory comes back", || rig.port.inner.pool_bytes_out() == 0);
}

#[test]
fn stalled_initiators_are_cut_off_and_idle_ones_are_not() {
    let time_limits = TimeLimits {
        // The others must log in in this time, on a busy machine too.
        handshake: Duration::from_secs(4),
        transmission: Duration::from_millis(300),
    };
    let rig = rig_with(64 << 20, |c| c.time_limits = time_limits);
    let mut idle = rig.login("iqn.x:idle");
    let mut silent = Initiator::connect(rig.at).unwrap();
    let mut half = rig.login("iqn.x:half");
    half_a_write(&mut half);
    let mut torn = rig.login("iqn.x:torn");
    torn.send_bytes(&[0x41, 0x80]).unwrap();
    assert!(silent.is_closed() && half.is_closed() && torn.is_closed());
    until("counted", || rig.server.counts().stalled == 3);
    good(&idle.command(&[0; 6], 0, &[]).unwrap());
    until("memory comes back", || rig.port.inner.pool_bytes_out() == 0);
}

/// Writes that begin and never continue use up the memory: other clients must be served nevertheless, and so must other commands of the
/// same client.
#[test]
fn an_initiator_that_holds_all_memory_delays_only_itself() {
    let rig = rig_with(8 << 20, |_| {});
    let mut hogs: Vec<Initiator> = (0..3)
        .map(|n| rig.login(&format!("iqn.x:hog{n}")))
        .collect();
    for hog in &mut hogs {
        hog.immediate = 0;
        for n in 0..8 {
            let cdb = Initiator::blocks(WRITE, n * 4096, 4096, 0, false);
            hog.begin(&cdb, 0, &vec![0; 2 << 20]).unwrap();
        }
    }
    rig.check_served();
    // One of these clients continues: all of its writes must complete, although the others hold memory.
    let mut left = 8;
    let hog = &mut hogs[0];
    while left > 0 {
        let a = hog.receive().unwrap();
        match a.header[0] {
            0x31 => {
                let (offset, len) = (u32_at(&a.header, 40), u32_at(&a.header, 44));
                let mut at = 0;
                for sn in 0.. {
                    let n = (len - at).min(256 << 10);
                    let last = at + n == len;
                    let b = data_out(&a.header, offset + at, sn, last);
                    hog.send(b, &vec![3; n as usize]).unwrap();
                    at += n;
                    if last {
                        break;
                    }
                }
            }
            0x21 => {
                assert_eq!(a.header[3], 0);
                left -= 1;
            }
            other => panic!("{other:#x}"),
        }
    }
    drop(hogs);
    rig.check_served();
    until("memory comes back", || rig.port.inner.pool_bytes_out() == 0);
}

#[test]
fn a_session_that_logs_in_again_takes_its_place() {
    let rig = rig();
    let mut old = rig.login("iqn.x:a");
    let mut other = rig.login("iqn.x:b");
    half_a_write(&mut old);
    let mut new = rig.login("iqn.x:a");
    assert!(old.is_closed(), "the older one ends");
    good(&new.command(&[0; 6], 0, &[]).unwrap());
    good(&other.command(&[0; 6], 0, &[]).unwrap());
    assert_eq!(rig.server.clients(), 2);
    // A task that waits for data can be aborted; afterwards it is unknown.
    half_a_write(&mut new);
    for (function, about, want) in [(1u8, 2u32, 0u8), (1, 2, 1), (5, 0, 0)] {
        let mut b = header(0x42, 0x80 | function, 99);
        put(&mut b, 20, about);
        new.send(b, &[]).unwrap();
        let a = new.receive().unwrap();
        assert_eq!((a.header[0], a.header[2]), (0x22, want), "{function}");
    }
    let mut server = rig.server;
    server.refuse_new();
    good(&new.command(&[0; 6], 0, &[]).unwrap());
    server.stop();
    assert!(new.is_closed() && other.is_closed());
}
