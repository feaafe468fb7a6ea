//! The view over HTTP, with an artificial source: answers, refusals, events, and the end.

mod connections;
mod texts;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use isotherm_web::{Listed, Question, Settings, Source, WebServer};
use serde_json::{Value, json};

/// A limit that any machine meets; only a failure reaches it.
const LIMIT: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A volume `v` whose figures count up; it can vanish or hang.
#[derive(Default)]
struct MadeUp {
    looks: AtomicU64,
    vanished: AtomicBool,
    hangs: AtomicBool,
    asked: std::sync::Mutex<Vec<Question>>,
}

impl Source for MadeUp {
    fn volumes(&self) -> Vec<Listed> {
        let one = |name: &str, served: bool| Listed {
            id: name.to_owned(),
            name: name.to_owned(),
            state: if served { "serving" } else { "stopped" }.to_owned(),
            note: None,
            served,
        };
        vec![one("v", true), one("<b>still</b>", false)]
    }
    fn look(&self, volume: &str) -> Result<Value, String> {
        if self.vanished.load(Ordering::SeqCst) {
            return Err(format!("{volume}: is not served (any more)"));
        }
        let n = self.looks.fetch_add(1, Ordering::SeqCst);
        Ok(json!({"name": volume, "n": n, "point": [n, 1.0]}))
    }
    fn ask(&self, _volume: &str, question: Question) -> Result<Value, String> {
        while self.hangs.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if question == (Question::Why { offset: 13 }) {
            return Err("byte 13 lies beyond the volume".into());
        }
        let answer = json!(format!("{question:?}"));
        self.asked.lock().expect("not poisoned").push(question);
        Ok(answer)
    }
}

fn start(source: &Arc<MadeUp>, address: &str, token: bool, control: bool) -> WebServer {
    let settings = Settings {
        address: address.parse().expect("an address"),
        tls: None,
        token: token.then(|| TOKEN.to_owned()),
        control,
    };
    WebServer::start(settings, source.clone()).expect("listens")
}

fn port(server: &WebServer) -> String {
    let address = server.address().trim_start_matches("http://");
    address.trim_end_matches('/').to_owned()
}

/// Sends a request on a connection of its own; returns the status and the whole answer.
fn send(server: &WebServer, request: &str) -> (u16, String) {
    let mut peer = TcpStream::connect(port(server)).expect("connects");
    peer.set_read_timeout(Some(LIMIT)).expect("set");
    peer.write_all(request.as_bytes()).expect("written");
    let mut text = String::new();
    peer.read_to_string(&mut text).expect("read");
    let status = text.split(' ').nth(1).and_then(|s| s.parse().ok());
    (status.unwrap_or(0), text)
}

fn request(method: &str, path: &str, host: &str, more: &[&str], body: &str) -> String {
    let more = more.iter().fold(String::new(), |all, h| all + h + "\r\n");
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {}\r\n{more}\r\n{body}",
        body.len()
    )
}

fn get(server: &WebServer, path: &str) -> (u16, String) {
    send(server, &request("GET", path, &port(server), &[], ""))
}

#[test]
fn the_page_is_whole_and_asks_nobody_else() {
    let server = start(&Arc::default(), "127.0.0.1:0", false, false);
    let mut sources = String::new();
    for path in [
        "/",
        "/app.css",
        "/icon.svg",
        "/app.js",
        "/charts.js",
        "/map.js",
        "/net.js",
        "/panels.js",
        "/transport.js",
        "/words.js",
    ] {
        let (status, text) = get(&server, path);
        assert_eq!(status, 200, "{path}");
        for header in [
            "content-security-policy: default-src 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(text.to_lowercase().contains(header), "{path}: {header}");
        }
        sources += text.split_once("\r\n\r\n").expect("a body").1;
    }
    // Cockpit's page has these besides.
    sources += include_str!("../../../../dist/cockpit/actions.js");
    sources += include_str!("../../../../dist/cockpit/transport.js");
    let elsewhere = sources.replace("http://www.w3.org/2000/svg", "");
    for no in [
        "http://",
        "https://",
        "innerHTML",
        "eval(",
        "style=\"",
        "onclick=",
    ] {
        assert!(!elsewhere.contains(no), "{no}");
    }
    assert_eq!(get(&server, "/no").0, 404);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn strangers_and_nonsense_are_refused() {
    let source = Arc::<MadeUp>::default();
    let server = start(&source, "127.0.0.1:0", true, true);
    let own = port(&server);
    let json = "Content-Type: application/json";
    let right = format!("Authorization: Bearer {TOKEN}");
    let wrong = "Authorization: Bearer 0123456789abcdef0123456789abcdeX";
    let set = r#"{"volume":"v","values":{"PT":2,"write-mode":"write-around"}}"#;
    for (method, path, host, headers, body, status) in [
        ("GET", "/api/volumes", own.as_str(), &[][..], "", 200),
        ("GET", "/", "localhost", &[], "", 200),
        // A name that was rebound to this machine.
        ("GET", "/api/volumes", "evil.example", &[], "", 421),
        ("GET", "/", "evil.example:9450", &[], "", 421),
        // A page of another site.
        (
            "GET",
            "/api/volumes",
            &own,
            &["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors"],
            "",
            403,
        ),
        (
            "POST",
            "/api/set",
            &own,
            &["Sec-Fetch-Site: same-site", &right, json],
            set,
            403,
        ),
        // A user who follows a link to the page gets it.
        (
            "GET",
            "/",
            &own,
            &["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"],
            "",
            200,
        ),
        ("POST", "/api/set", &own, &[json], set, 401),
        ("POST", "/api/set", &own, &[json, wrong], set, 401),
        (
            "POST",
            "/api/set",
            &own,
            &["Content-Type: text/plain", &right],
            set,
            415,
        ),
        ("POST", "/api/set", &own, &[json, &right], "{", 400),
        (
            "POST",
            "/api/set",
            &own,
            &[json, &right],
            r#"{"volume":"v","rm":1}"#,
            422,
        ),
        (
            "POST",
            "/api/set",
            &own,
            &[json, &right],
            r#"{"volume":"w","values":{}}"#,
            404,
        ),
        (
            "POST",
            "/api/switch",
            &own,
            &[json, &right],
            r#"{"volume":"v","policy":"lru"}"#,
            200,
        ),
        ("POST", "/api/set", &own, &[json, &right], set, 200),
        ("PUT", "/api/set", &own, &[&right], set, 405),
        ("POST", "/api/volumes", &own, &[&right], "", 405),
        (
            "GET",
            "/api/map?volume=v&from=0&to=10&bins=5",
            &own,
            &[],
            "",
            200,
        ),
        (
            "GET",
            "/api/map?volume=v&from=9&to=9&bins=5",
            &own,
            &[],
            "",
            400,
        ),
        (
            "GET",
            "/api/map?volume=v&from=0&to=9&bins=999999",
            &own,
            &[],
            "",
            400,
        ),
        (
            "GET",
            "/api/map?volume=v&from=-1&to=9&bins=9",
            &own,
            &[],
            "",
            400,
        ),
        ("GET", "/api/why?volume=v&offset=13", &own, &[], "", 422),
        ("GET", "/api/events?volume=w", &own, &[], "", 404),
        ("GET", "/../../etc/passwd", &own, &[], "", 404),
    ] {
        let (got, text) = send(&server, &request(method, path, host, headers, body));
        assert_eq!(got, status, "{method} {path} {headers:?}: {text}");
    }
    let asked = source.asked.lock().expect("not poisoned").clone();
    let values = vec![
        ("PT".to_owned(), json!(2)),
        ("write-mode".to_owned(), json!("write-around")),
    ];
    assert!(
        asked.contains(&Question::Switch("lru".into())) && asked.contains(&Question::Set(values))
    );
    // A body that is too long, a head that is too long, and a connection that does not speak HTTP.
    let long = "x".repeat(64 << 10);
    let (status, _) = send(
        &server,
        &request("POST", "/api/set", &own, &[json, &right], &long),
    );
    assert_eq!(status, 413);
    let mut peer = TcpStream::connect(&own).expect("connects");
    let _ = peer.write_all(format!("GET / HTTP/1.1\r\nX: {long}\r\n\r\n").as_bytes()); // closed before its end
    let mut text = Vec::new();
    let _ = peer.read_to_end(&mut text); // reset, perhaps
    assert!(!String::from_utf8_lossy(&text).contains("200 OK"));
    let (status, text) = send(&server, "\u{1}\u{2}\r\n\r\n");
    assert!(status == 400 || text.is_empty(), "{text}");
    // Read-only, even with a token.
    let server = start(&source, "127.0.0.1:0", true, false);
    let (status, text) = send(
        &server,
        &request("POST", "/api/set", &port(&server), &[json, &right], set),
    );
    assert_eq!(status, 403, "{text}");
}

/// A stream of events, and the next event of it.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(server: &WebServer) -> Events {
        let mut peer = TcpStream::connect(port(server)).expect("connects");
        peer.set_read_timeout(Some(LIMIT)).expect("set");
        let request = format!(
            "GET /api/events?volume=v HTTP/1.1\r\nHost: {}\r\n\r\n",
            port(server)
        );
        peer.write_all(request.as_bytes()).expect("written");
        Events(BufReader::new(peer))
    }
    fn next(&mut self) -> Option<(String, Value)> {
        let mut event = String::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).expect("read") == 0 {
                return None;
            }
            if let Some(name) = line.strip_prefix("event:") {
                name.trim().clone_into(&mut event);
            } else if let Some(data) = line.strip_prefix("data:") {
                return Some((event, serde_json::from_str(data.trim()).expect("JSON")));
            }
        }
    }
}

#[test]
fn events_begin_with_the_past_and_go_on_when_the_volume_vanishes() {
    let source = Arc::<MadeUp>::default();
    let server = start(&source, "127.0.0.1:0", false, false);
    let begun = Instant::now();
    while source.looks.load(Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < LIMIT, "nobody looks");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut one = Events::open(&server);
    let mut two = Events::open(&server);
    let (event, history) = one.next().expect("an event");
    assert_eq!((event.as_str(), &history[0][0]), ("history", &json!(0)));
    let mut last = None;
    for _ in 0..2 {
        let (event, frame) = one.next().expect("an event");
        assert_eq!(event, "frame");
        assert!(frame["n"].as_u64() > last, "{frame}");
        last = frame["n"].as_u64();
    }
    // The volume is polled only once, whatever the number of watchers.
    assert!(source.looks.load(Ordering::SeqCst) <= last.unwrap_or(0) + 2);
    source.vanished.store(true, Ordering::SeqCst);
    for events in [&mut one, &mut two] {
        loop {
            let (event, data) = events.next().expect("an event");
            if event == "gone" {
                assert!(
                    data["why"]
                        .as_str()
                        .is_some_and(|w| w.contains("not served"))
                );
                break;
            }
        }
    }
    source.vanished.store(false, Ordering::SeqCst);
    while one.next().expect("an event").0 != "frame" {}
    drop(server);
    while one.next().is_some() {}
}

#[test]
fn a_volume_that_hangs_holds_up_neither_pages_nor_the_end() {
    let source = Arc::<MadeUp>::default();
    let server = start(&source, "127.0.0.1:0", false, false);
    source.hangs.store(true, Ordering::SeqCst);
    let ask = request("GET", "/api/moves?volume=v", &port(&server), &[], "");
    let peers: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut peer = TcpStream::connect(port(&server)).expect("connects");
            peer.write_all(ask.as_bytes()).expect("written");
            peer
        })
        .collect();
    // Six questions wait; further ones are refused at once, and so are later ones.
    let begun = Instant::now();
    while get(&server, "/api/moves?volume=v").0 != 503 {
        assert!(begun.elapsed() < LIMIT, "everybody waits");
    }
    assert_eq!(get(&server, "/").0, 200);
    let begun = Instant::now();
    drop(server);
    assert!(begun.elapsed() < LIMIT / 2, "the end waited for the volume");
    source.hangs.store(false, Ordering::SeqCst);
    drop(peers);
}

#[test]
fn sockets_of_dead_servers_are_replaced_and_other_files_are_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("w");
    let address = format!("unix:{}", path.display());
    drop(std::os::unix::net::UnixListener::bind(&path).expect("binds"));
    let source = Arc::<MadeUp>::default();
    let server = start(&source, &address, false, false);
    let mut peer = UnixStream::connect(&path).expect("connects");
    peer.write_all(request("GET", "/api/volumes", "proxy.example", &[], "").as_bytes())
        .expect("written");
    let mut text = String::new();
    peer.read_to_string(&mut text).expect("read");
    assert!(
        text.contains("200 OK") && text.contains("<b>still</b>"),
        "{text}"
    );
    let again = |address: &str| {
        let settings = Settings {
            address: address.parse().expect("an address"),
            tls: None,
            token: None,
            control: false,
        };
        WebServer::start(settings, source.clone()).err()
    };
    assert!(again(&address).is_some_and(|e| e.contains("another server listens")));
    drop(server);
    assert!(!path.exists());
    std::fs::write(&path, "precious").expect("written");
    assert!(again(&address).is_some_and(|e| e.contains("no socket")));
    assert!(again("0.0.0.0:0").is_some_and(|e| e.contains("--web-tls-cert")));
}

#[test]
fn other_machines_see_nothing_without_tls_and_token() {
    let dir = tempfile::tempdir().expect("a directory");
    let made =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (certificate, key) = (dir.path().join("c.pem"), dir.path().join("k.pem"));
    std::fs::write(&certificate, made.cert.pem()).expect("written");
    std::fs::write(&key, made.key_pair.serialize_pem()).expect("written");
    let permit = |file, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(file, mode).expect("set");
    };
    permit(&certificate, 0o600);
    permit(&key, 0o644);
    let settings = |key: &std::path::Path| Settings {
        address: "0.0.0.0:0".parse().expect("an address"),
        tls: Some((certificate.clone(), key.to_owned())),
        token: Some(TOKEN.to_owned()),
        control: false,
    };
    let source = Arc::<MadeUp>::default();
    let wrong = WebServer::start(settings(&certificate), source.clone()).err();
    assert!(wrong.is_some_and(|e| e.contains("no private key")));
    let open = WebServer::start(settings(&key), source.clone()).err();
    assert!(open.is_some_and(|e| e.contains("`chmod 600 ")));
    permit(&key, 0o600);
    let server = WebServer::start(settings(&key), source).expect("listens");
    let at = server
        .address()
        .trim_start_matches("https://0.0.0.0")
        .trim_end_matches('/')
        .to_owned();
    let at = format!("127.0.0.1{at}");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = Arc::new(client);
    let ask = |path: &str, more: &[&str]| {
        let name = "localhost".try_into().expect("a name");
        let connection = rustls::ClientConnection::new(client.clone(), name).expect("a client");
        let mut stream =
            rustls::StreamOwned::new(connection, TcpStream::connect(&at).expect("connects"));
        stream
            .write_all(request("GET", path, "nas.example", more, "").as_bytes())
            .expect("written");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text); // closed without a final message
        text
    };
    assert!(ask("/", &[]).starts_with("HTTP/1.1 200"));
    assert!(ask("/api/volumes", &[]).starts_with("HTTP/1.1 401"));
    let right = format!("Authorization: Bearer {TOKEN}");
    assert!(ask("/api/volumes", &[&right]).starts_with("HTTP/1.1 200"));
    // Plain HTTP gets no answer there.
    let mut peer = TcpStream::connect(&at).expect("connects");
    peer.write_all(request("GET", "/", &at, &[&right], "").as_bytes())
        .expect("written");
    let mut text = Vec::new();
    let _ = peer.read_to_end(&mut text); // reset, perhaps
    assert!(!text.starts_with(b"HTTP/"));
}
