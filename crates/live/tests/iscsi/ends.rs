//! The end of sessions: a peer that ends, or stops, in the middle of whatever leaves nothing behind and delays no stop; peers that have not
//! logged in give way to newer ones.

use super::{BYTES, Fault, READ, Rig, WRITE, data_out, good, half_a_write, rig, rig_with, until};
use isotherm_live::iscsi::pdu::{Header, NO_TAG, header, put, put_data_len};
use isotherm_live::iscsi::server::TimeLimits;
use isotherm_live::iscsi::testing::Initiator;
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long a stop may take, on a machine that is busy with other things: the server gives its peers 3 s.
const STOP: Duration = Duration::from_secs(60);

/// Sends a header that promises 4096 bytes, and 100 of them. It is one call: between two, a busy machine could take longer than the target waits.
fn cut_short(i: &mut Initiator, mut b: Header) {
    put_data_len(&mut b, 4096);
    // The numbers of the first command of a session.
    put(&mut b, 24, 1);
    i.send_bytes(&[&b[..], &[1; 100]].concat()).unwrap();
}

fn command(flags: u8, opcode: u8) -> Header {
    let mut b = header(0x01, 0x80 | flags, 7);
    put(&mut b, 20, 4096);
    b[32..48].copy_from_slice(&Initiator::blocks(opcode, 0, 8, 0, false));
    b
}

/// What a peer does last. Afterwards it is in the middle of something, for which the target would have to wait.
const LAST_ACTS: [(&str, Fault); 17] = [
    ("a WRITE whose data is cut", |i| {
        cut_short(i, command(0x20, WRITE));
    }),
    ("data with a READ", |i| cut_short(i, command(0x40, READ))),
    ("an UNMAP whose list is cut", |i| {
        let mut b = command(0x20, 0x42);
        b[32..48].copy_from_slice(&[0x42, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0]);
        cut_short(i, b);
    }),
    ("a WRITE SAME whose block is cut", |i| {
        cut_short(i, command(0x20, 0x93));
    }),
    ("a command to another unit, cut", |i| {
        let mut b = command(0x20, WRITE);
        b[9] = 1;
        cut_short(i, b);
    }),
    ("a command of nobody, cut", |i| {
        cut_short(i, command(0x20, 0xff));
    }),
    ("an immediate WRITE whose data is cut", |i| {
        let mut b = command(0x20, WRITE);
        b[0] |= 0x40;
        cut_short(i, b);
    }),
    ("a WRITE whose further data never comes", |i| {
        half_a_write(i);
    }),
    ("further data that is cut", |i| {
        let r2t = half_a_write(i);
        cut_short(i, data_out(&r2t, 512, 0, false));
    }),
    ("data for nobody, cut", |i| {
        cut_short(i, header(0x05, 0x80, 99));
    }),
    ("a text request that is cut", |i| {
        cut_short(i, header(0x04, 0x80, 7));
    }),
    ("a text request that goes on", |i| {
        i.send(header(0x04, 0x40, 7), b"SendTargets=").unwrap();
    }),
    ("a ping that is cut", |i| {
        cut_short(i, header(0x00, 0x80, 7));
    }),
    ("an answer to no ping, cut", |i| {
        cut_short(i, header(0x00, 0x80, NO_TAG));
    }),
    ("a task request with data, cut", |i| {
        cut_short(i, header(0x02, 0x81, 7));
    }),
    ("a logout with data, cut", |i| {
        cut_short(i, header(0x06, 0x80, 7));
    }),
    ("half a header", |i| {
        i.send_bytes(&command(0x20, WRITE)[..20]).unwrap();
    }),
];

/// The same before the login.
const FIRST_ACTS: [(&str, Fault); 4] = [
    ("nothing", |_| {}),
    ("half a header of a login", |i| {
        i.send_bytes(&header(0x43, 0x87, 1)[..20]).unwrap();
    }),
    ("a login that is cut", |i| {
        cut_short(i, header(0x43, 0x87, 1));
    }),
    ("one step of a login", |i| {
        let keys = [
            ("InitiatorName", "iqn.x:slow"),
            ("SessionType", "Discovery"),
        ];
        i.negotiate(0x00, &keys).unwrap();
    }),
];

/// All peers, each after its last act; every peer has a session of its own.
fn peers(rig: &Rig) -> Vec<(&'static str, Initiator)> {
    let last = LAST_ACTS.iter().enumerate().map(|(n, (name, act))| {
        let mut i = rig.login(&format!("iqn.x:peer{n}"));
        act(&mut i);
        (*name, i)
    });
    let first = FIRST_ACTS.iter().map(|(name, act)| {
        let mut i = Initiator::connect(rig.at).unwrap();
        act(&mut i);
        (*name, i)
    });
    last.chain(first).collect()
}

fn nothing_is_left(rig: &Rig, what: &str) {
    until(what, || rig.server.connections() == 0);
    assert_eq!(rig.server.clients(), 0);
    until(what, || rig.port.inner.pool_bytes_out() == 0);
}

#[test]
fn a_session_ends_when_its_peer_does_whatever_was_in_progress() {
    let rig = rig();
    let mut peers = peers(&rig);
    while let Some((name, peer)) = peers.pop() {
        drop(peer);
        // Some were cut off before, for a breach of the protocol.
        until(name, || rig.server.connections() <= peers.len());
    }
    rig.check_served();
    nothing_is_left(&rig, "all have left");
    rig.server.stop();
}

#[test]
fn a_peer_that_stalls_anywhere_within_a_message_is_cut_off() {
    let rig = rig_with(64 << 20, |c| {
        c.time_limits = TimeLimits {
            // The others must log in in this time, on a busy machine too.
            handshake: Duration::from_secs(4),
            transmission: Duration::from_millis(300),
        };
    });
    for (name, mut peer) in peers(&rig) {
        // It may be idle between two messages.
        if name != "a text request that goes on" {
            assert!(peer.is_closed(), "{name}");
        }
    }
    nothing_is_left(&rig, "all were cut off");
}

/// The peers stay, and do not receive what they asked for.
#[test]
fn a_stop_waits_for_no_peer() {
    let rig = rig();
    let mut peers: Vec<Initiator> = peers(&rig).into_iter().map(|p| p.1).collect();
    let mut deaf = rig.login("iqn.x:deaf");
    for n in 0..32 {
        let cdb = Initiator::blocks(READ, n * 2048, 2048, 0, false);
        deaf.begin(&cdb, 1 << 20, &[]).unwrap();
    }
    peers.push(deaf);
    // Some leave while the server waits: this must not give the others more time.
    let leaving = std::thread::spawn(move || {
        while let Some(peer) = peers.pop() {
            std::thread::sleep(Duration::from_millis(500));
            if peers.len().is_multiple_of(2) {
                drop(peer);
            } else {
                // It stays open.
                std::mem::forget(peer);
            }
        }
    });
    let Rig { server, port, .. } = rig;
    let (tell, told) = channel();
    std::thread::spawn(move || {
        server.stop();
        tell.send(()).unwrap();
    });
    told.recv_timeout(STOP).expect("the server stops");
    until("memory comes back", || port.inner.pool_bytes_out() == 0);
    drop(leaving);
}

#[test]
fn connections_that_do_not_log_in_give_way() {
    let rig = rig();
    let mut user = rig.login("iqn.x:user");
    let mut idle: Vec<TcpStream> = Vec::new();
    for _ in 0..70 {
        idle.push(TcpStream::connect(rig.at).unwrap());
    }
    rig.check_served();
    assert!(rig.server.connections() <= 1 + 32 + 1, "few of them stay");
    good(&user.command(&[0; 6], 0, &[]).unwrap());
    // The newest may still log in; the oldest was ended.
    let mut rest = [0; 1];
    let oldest = std::io::Read::read(&mut idle[0], &mut rest);
    assert!(oldest.map_or(true, |n| n == 0));
    drop(idle);
    until("all but the user have left", || {
        rig.server.connections() == 1
    });
}

#[test]
fn more_sessions_than_there_is_room_for_are_refused_by_their_names() {
    let rig = rig_with(64 << 20, |c| c.max_sessions = 2);
    let first = rig.login("iqn.x:a");
    let mut second = rig.login("iqn.x:b");
    let third = Initiator::login(rig.at, "iqn.x:c", &rig.target, None);
    // Service unavailable.
    assert!(third.err().expect("refused").to_string().contains("0301"));
    until("the reason is noted", || {
        rig.server.counts().last_fault == Some("there are too many sessions")
    });
    drop(first);
    until("the first has left", || rig.server.clients() == 1);
    rig.check_served();
    // A session that comes back takes its own place.
    let mut again = rig.login("iqn.x:b");
    assert!(second.is_closed());
    let cdb = Initiator::blocks(READ, BYTES / 512 - 1, 1, 0, false);
    good(&again.command(&cdb, 512, &[]).unwrap());
}

/// The older session's write could be carried out after one of the new session, and so over newer data.
#[test]
fn no_session_is_taken_over_while_the_volume_owes_it_an_answer() {
    let rig = rig_with(64 << 20, |c| c.take_over = Duration::from_millis(300));
    let mut old = rig.login("iqn.x:a");
    *rig.port.held.lock().unwrap() = Some(Vec::new());
    old.begin(&Initiator::blocks(WRITE, 0, 8, 0, false), 0, &[1; 4096])
        .unwrap();
    let held = || rig.port.held.lock().unwrap().as_ref().map_or(0, Vec::len);
    until("the write is at the volume", || held() == 1);
    let refused = Initiator::login(rig.at, "iqn.x:a", &rig.target, None);
    // A failed test must not wait for the volume, either.
    rig.port.go_on();
    assert!(refused.is_err(), "it was let in");
    until("the reason is noted", || {
        let said = rig.server.counts().last_fault;
        said.is_some_and(|s| s.contains("older session does not end"))
    });
    let mut new = rig.login("iqn.x:a");
    let write = Initiator::blocks(WRITE, 0, 8, 0, false);
    good(&new.command(&write, 0, &[2; 4096]).unwrap());
    let read = Initiator::blocks(READ, 0, 8, 0, false);
    assert_eq!(new.command(&read, 4096, &[]).unwrap().data, [2; 4096]);
}
