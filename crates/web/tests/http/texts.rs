//! Texts for other programs: paths, refusals, peers that stall, volumes that hang, the end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, mpsc};

use isotherm_web::{Address, Text, TextServer, Texts, local_address};

/// More than the server admits at a time.
const MANY: usize = 100;

fn start(texts: Texts) -> TextServer {
    let address = local_address("localhost:0").expect("an address");
    TextServer::start(&address, texts).expect("listens")
}

fn metrics() -> TextServer {
    start(Arc::new(|path| match path {
        "/metrics" => Some(Ok(Text::plain("yes\n"))),
        "/later" => Some(Err("v: does not answer".to_owned())),
        _ => None,
    }))
}

/// A connection that has sent a request.
fn send(server: &TextServer, request: &[u8]) -> TcpStream {
    let mut peer = TcpStream::connect(server.address()).expect("connects");
    peer.write_all(request).expect("written");
    peer
}

/// All that comes until the connection ends.
fn rest(mut peer: impl Read) -> String {
    let mut text = String::new();
    peer.read_to_string(&mut text).expect("read");
    text
}

fn ask(server: &TextServer, request: &[u8]) -> String {
    rest(send(server, request))
}

/// `nc -N` and `socat` close their side when they have sent the request.
#[test]
fn who_has_closed_its_side_gets_the_answer() {
    let (asked, is_asked) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let (asked, may_go) = (Mutex::new(asked), Mutex::new(may_go));
    let server = start(Arc::new(move |_| {
        let _ = asked.lock().expect("not poisoned").send(());
        let _ = may_go.lock().expect("not poisoned").recv();
        Some(Ok(Text::plain("yes\n")))
    }));
    let peer = send(&server, b"GET / HTTP/1.1\r\n\r\n");
    peer.shutdown(Shutdown::Write).expect("closed");
    is_asked.recv().expect("asked");
    go.send(()).expect("waits");
    let text = rest(peer);
    assert!(text.ends_with("\r\n\r\nyes\n"), "{text}");
}

#[test]
fn only_texts_are_answered_and_only_here() {
    for refused in [
        "0.0.0.0:9100",
        "192.0.2.1:80",
        "[::]:1",
        "9100",
        "unix:",
        "nonsense",
    ] {
        assert!(local_address(refused).is_err(), "{refused}");
    }
    let server = metrics();
    let ok = ask(
        &server,
        b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:1\r\n\r\n",
    );
    assert!(
        ok.starts_with("HTTP/1.1 200 OK\r\n") && ok.ends_with("\r\n\r\nyes\n"),
        "{ok}"
    );
    let head = ask(&server, b"HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(
        head.contains(" 200 OK\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let posted = ask(&server, b"POST /metrics HTTP/1.1\r\n\r\n");
    assert!(
        posted.ends_with("\r\n\r\nonly GET: nothing can be changed here\n"),
        "{posted}"
    );
    for header in [
        "allow: GET, HEAD",
        "cache-control: no-store",
        "x-content-type-options: nosniff",
    ] {
        assert!(
            ok.contains(header) && posted.contains(header),
            "{ok}{posted}"
        );
    }
    for (request, status) in [
        (&b"GET /x HTTP/1.1\r\n\r\n"[..], "404"),
        (b"GET metrics HTTP/1.1\r\n\r\n", "400"),
        (b"GET /later HTTP/1.1\r\n\r\n", "503"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"\xff\xfe\r\n\r\n", "400"),
        // A page of another site, whose name has begun to lead here.
        (
            b"GET /metrics HTTP/1.1\r\nhost: evil.example:80\r\n\r\n",
            "403",
        ),
        (b"GET /metrics HTTP/1.1\r\nA: b\r\nHost:\r\n\r\n", "403"),
    ] {
        let text = ask(&server, request);
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
    }
}

/// Peers that send nothing, or half a request, give way, however many come.
#[test]
fn peers_that_stall_keep_out_nobody() {
    let server = metrics();
    let mut stalled = Vec::new();
    for n in 0..MANY {
        let mut peer = TcpStream::connect(server.address()).expect("connects");
        if n % 2 == 0 {
            peer.write_all(b"GET /metrics HTTP/1.1\r\n")
                .expect("written");
        }
        stalled.push(peer);
        assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").contains("200 OK"));
    }
    let mut oldest = stalled.swap_remove(0);
    assert!(!matches!(oldest.read(&mut [0; 1]), Ok(n) if n > 0));
}

/// A volume that hangs holds up a few questions; further ones are told so, and the end of the server does not wait for it.
#[test]
fn one_too_many_is_told_so() {
    let gate = Arc::new(Mutex::new(()));
    let shut = gate.lock().expect("not poisoned");
    let (arrived, arrivals) = mpsc::channel();
    let (passed, arrived) = (Arc::clone(&gate), Mutex::new(arrived));
    let server = start(Arc::new(move |_| {
        let _ = arrived.lock().expect("not poisoned").send(());
        drop(passed.lock());
        Some(Ok(Text::plain("yes\n")))
    }));
    let request = b"GET /metrics HTTP/1.1\r\n\r\n";
    let mut hung = Vec::new();
    let told = loop {
        let peer = send(&server, request);
        if hung.len() < 6 {
            arrivals.recv().expect("asked");
            hung.push(peer);
            continue;
        }
        break rest(peer);
    };
    assert!(told.starts_with("HTTP/1.1 503"), "{told}");
    drop(shut);
    for peer in hung {
        let text = rest(peer);
        assert!(text.contains("200 OK"), "{text}");
    }
    assert!(ask(&server, request).contains("200 OK"));
    let shut = gate.lock().expect("not poisoned");
    let mut peer = send(&server, request);
    arrivals.recv().expect("asked");
    while arrivals.try_recv().is_ok() {}
    // The volume still hangs.
    drop(server);
    assert!(!matches!(peer.read(&mut [0; 1]), Ok(n) if n > 0));
    drop(shut);
}

#[test]
fn a_socket_is_removed_at_the_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("m");
    let address = Address::Unix(path.clone());
    let texts: Texts = Arc::new(|_| Some(Ok(Text::plain("yes\n"))));
    let server = TextServer::start(&address, Arc::clone(&texts)).expect("listens");
    assert!(TextServer::start(&address, texts).is_err());
    let mut peer = UnixStream::connect(&path).expect("connects");
    peer.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("written");
    let text = rest(peer);
    assert!(text.ends_with("yes\n"), "{text}");
    drop(server);
    assert!(!path.exists());
}

/// The number of a system error says nothing to people.
#[test]
fn why_it_cannot_listen_is_said_in_words() {
    let texts: Texts = Arc::new(|_| None);
    let server = start(Arc::clone(&texts));
    let used = local_address(server.address()).expect("an address");
    let nowhere = Address::Unix("/nowhere/at/all".into());
    for (address, why) in [(used, "in use"), (nowhere, "no such file")] {
        let Err(said) = TextServer::start(&address, Arc::clone(&texts)) else {
            panic!("it listens at {address:?}");
        };
        assert!(
            said.contains("cannot listen there") && said.contains(why),
            "{said}"
        );
        assert!(!said.contains("os error"), "{said}");
    }
}
