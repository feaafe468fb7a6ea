//! A minimal HTTP server for pages that only answer `GET`, on a Unix socket or on a loopback address.
//!
//! It needs no runtime besides the engine's threads, keeps no state of clients, and has fixed limits: eight peers at a time, request heads
//! of 8 KiB, ten seconds for each peer. If all places are taken, the oldest peer that has not sent its request yet gives way.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use isotherm_web::{Address, SocketFile, check_host};

use crate::Failure;

/// Most peers at a time.
const PEERS_MAX: usize = 8;
/// Most bytes of a request's head.
const HEAD_MAX: usize = 8 << 10;
/// Time limit for a peer to send its request and to receive the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Parses an address that other machines cannot reach.
///
/// # Errors
/// The message says what to write instead.
pub fn local_address(text: &str) -> Result<Address, String> {
    let address: Address = text.parse()?;
    if address.is_remote() {
        return Err(format!(
            "`{text}`: other machines could connect, and there is no password: write 127.0.0.1:PORT or unix:PATH, and put a proxy with TLS before it"
        ));
    }
    Ok(address)
}

/// An answer.
pub struct Response {
    /// Status line after `HTTP/1.1`.
    pub status: &'static str,
    /// `Content-Type`.
    pub kind: &'static str,
    /// The page.
    pub body: Vec<u8>,
}

impl Response {
    /// The answer for a page that does not exist.
    pub fn not_found() -> Response {
        Response::plain("404 Not Found", "no such page\n")
    }

    /// An answer with a line of text.
    pub fn plain(status: &'static str, text: &str) -> Response {
        Response {
            status,
            kind: "text/plain; charset=utf-8",
            body: text.as_bytes().to_vec(),
        }
    }
}

/// Answers `GET` requests, given the path without its query.
pub type Pages = Arc<dyn Fn(&str) -> Response + Send + Sync>;

enum Listener {
    /// The file is removed when the listener is dropped.
    Unix(UnixListener, SocketFile),
    Tcp(TcpListener),
}

/// A running server. Dropping it ends it and removes its socket.
pub struct HttpServer {
    listener: Arc<Listener>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

trait Peer: Read + Write {
    fn limit(&self, time: Duration) -> io::Result<()>;
    /// What ends the connection, although its thread reads from it.
    fn ending(&self) -> io::Result<Ending>;
}

/// Ends a connection.
type Ending = Box<dyn Fn() + Send>;

/// The peers that have not sent their requests yet, in the order of arrival.
#[derive(Default)]
struct Waiting(Mutex<BTreeMap<u64, Ending>>);

impl Waiting {
    fn table(&self) -> MutexGuard<'_, BTreeMap<u64, Ending>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the oldest. Returns whether there was one.
    fn end_oldest(&self) -> bool {
        let oldest = self.table().pop_first();
        oldest.is_some_and(|(_, end)| {
            end();
            true
        })
    }
}

impl Peer for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }

    fn ending(&self) -> io::Result<Ending> {
        let peer = self.try_clone()?;
        Ok(Box::new(move || {
            // If it fails, the connection has ended.
            let _ = peer.shutdown(Shutdown::Both);
        }))
    }
}

impl Peer for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }

    fn ending(&self) -> io::Result<Ending> {
        let peer = self.try_clone()?;
        Ok(Box::new(move || {
            // If it fails, the connection has ended.
            let _ = peer.shutdown(Shutdown::Both);
        }))
    }
}

impl Listener {
    fn bind(address: &Address) -> Result<Listener, Failure> {
        match address {
            Address::Tcp(a) => match TcpListener::bind(a) {
                Ok(listener) => Ok(Listener::Tcp(listener)),
                Err(e) => Err(Failure::failed(format!(
                    "{a}: cannot listen there: {}",
                    crate::failure::reason(&e)
                ))),
            },
            Address::Unix(path) => {
                let (listener, file) = SocketFile::listen(path).map_err(Failure::failed)?;
                Ok(Listener::Unix(listener, file))
            }
        }
    }

    fn accept(&self) -> io::Result<Box<dyn Peer + Send>> {
        Ok(match self {
            Listener::Unix(l, _) => Box::new(l.accept()?.0),
            Listener::Tcp(l) => Box::new(l.accept()?.0),
        })
    }

    /// Wakes the thread that waits in `accept`.
    fn ring(&self) {
        // If it fails, the thread has already ended.
        match self {
            Listener::Unix(_, file) => drop(UnixStream::connect(file.path())),
            Listener::Tcp(l) => {
                if let Ok(a) = l.local_addr() {
                    drop(TcpStream::connect_timeout(&a, TIMEOUT));
                }
            }
        }
    }
}

impl HttpServer {
    /// Listens and answers with `pages`.
    ///
    /// # Errors
    /// The address is in use or not permitted.
    pub fn start(address: &Address, pages: Pages) -> Result<HttpServer, Failure> {
        let listener = Arc::new(Listener::bind(address)?);
        let over = Arc::new(AtomicBool::new(false));
        let (l, o) = (Arc::clone(&listener), Arc::clone(&over));
        let own = address.clone();
        let thread = std::thread::Builder::new()
            .name("http".into())
            .spawn(move || serve(&l, &o, &pages, &own))
            .map_err(|e| Failure::failed(format!("no thread for HTTP: {e}")))?;
        Ok(HttpServer {
            listener,
            over,
            thread: Some(thread),
        })
    }

    /// The address at which it listens; if the port was 0, with the port that the system chose.
    pub fn address(&self) -> String {
        match &*self.listener {
            Listener::Unix(_, file) => format!("unix:{}", file.path().display()),
            Listener::Tcp(l) => l
                .local_addr()
                .map_or_else(|e| e.to_string(), |a| a.to_string()),
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.listener.ring();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was already reported.
            let _ = thread.join();
        }
    }
}

fn serve(listener: &Listener, over: &AtomicBool, pages: &Pages, own: &Address) {
    let peers = Arc::new(AtomicUsize::new(0));
    let waiting = Arc::new(Waiting::default());
    for number in 0.. {
        let accepted = listener.accept();
        if over.load(Ordering::SeqCst) {
            return;
        }
        let Ok(mut peer) = accepted else {
            // The process has no free descriptors. Some will be closed; the pause avoids a busy loop.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        let Ok(ending) = peer.ending() else {
            continue;
        };
        if peers.fetch_add(1, Ordering::SeqCst) >= PEERS_MAX && !waiting.end_oldest() {
            peers.fetch_sub(1, Ordering::SeqCst);
            let _ = peer.limit(Duration::from_millis(100));
            let busy = Response::plain("503 Service Unavailable", "too many at once\n");
            let _ = send(&mut *peer, &busy, true);
            continue;
        }
        waiting.table().insert(number, ending);
        let (count, pages, own) = (Arc::clone(&peers), Arc::clone(pages), own.clone());
        let still = Arc::clone(&waiting);
        let started = std::thread::Builder::new()
            .name("http-peer".into())
            .spawn(move || {
                // A peer that breaks the protocol or disconnects ends its own connection only.
                let head = read_head(&mut *peer);
                drop(still.table().remove(&number));
                let _ = head.and_then(|head| serve_peer(&mut *peer, head, &pages, &own));
                count.fetch_sub(1, Ordering::SeqCst);
            });
        if started.is_err() {
            drop(waiting.table().remove(&number));
            peers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Answers a request, whose head is `None` if it is too long.
fn serve_peer(
    peer: &mut dyn Peer,
    head: Option<String>,
    pages: &Pages,
    own: &Address,
) -> io::Result<()> {
    let Some(head) = head else {
        let long = Response::plain("431 Request Header Fields Too Large", "too long\n");
        return send(peer, &long, true);
    };
    if let Some(Err(why)) = host(&head).map(|h| check_host(h, own)) {
        return send(peer, &Response::plain("403 Forbidden", &(why + "\n")), true);
    }
    let (response, with_body) = answer(&head, pages);
    send(peer, &response, with_body)
}

/// Reads up to the empty line; `None` if it does not come within the size limit.
fn read_head(peer: &mut dyn Peer) -> io::Result<Option<String>> {
    let deadline = Instant::now() + TIMEOUT;
    let mut head = Vec::new();
    let mut some = [0; 1024];
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        peer.limit(left)?;
        match peer.read(&mut some)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => head.extend_from_slice(&some[..n]),
        }
        if head.len() > HEAD_MAX {
            return Ok(None);
        }
    }
    Ok(Some(String::from_utf8_lossy(&head).into_owned()))
}

/// The host that a request names. Every browser names one.
fn host(head: &str) -> Option<&str> {
    let fields = head.lines().skip(1).filter_map(|l| l.split_once(':'));
    let mut hosts = fields.filter(|(name, _)| name.trim().eq_ignore_ascii_case("host"));
    hosts.next().map(|(_, value)| value.trim())
}

fn answer(head: &str, pages: &Pages) -> (Response, bool) {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next());
    let is_http = words.next().is_some_and(|v| v.starts_with("HTTP/1."));
    let path = target.and_then(|t| t.split('?').next()).filter(|_| is_http);
    let Some(path) = path.filter(|p| p.starts_with('/')) else {
        return (Response::plain("400 Bad Request", "not HTTP\n"), true);
    };
    match method {
        "GET" => (pages(path), true),
        "HEAD" => (pages(path), false),
        _ => {
            let text = "only GET: nothing can be changed here\n";
            (Response::plain("405 Method Not Allowed", text), true)
        }
    }
}

fn send(peer: &mut dyn Peer, r: &Response, with_body: bool) -> io::Result<()> {
    peer.limit(TIMEOUT)?;
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        r.status,
        r.kind,
        r.body.len()
    );
    peer.write_all(head.as_bytes())?;
    if with_body {
        peer.write_all(&r.body)?;
    }
    peer.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(server: &HttpServer, request: &[u8]) -> String {
        let mut peer = TcpStream::connect(server.address()).expect("connects");
        peer.write_all(request).expect("written");
        let mut text = String::new();
        peer.read_to_string(&mut text).expect("read");
        text
    }

    #[test]
    fn only_pages_are_answered_and_only_here() {
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
        let address = local_address("localhost:0").expect("an address");
        let pages: Pages = Arc::new(|path| match path {
            "/metrics" => Response::plain("200 OK", "yes\n"),
            _ => Response::not_found(),
        });
        let server = HttpServer::start(&address, pages).expect("listens");
        let ok = ask(
            &server,
            b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:1\r\n\r\n",
        );
        assert!(
            ok.starts_with("HTTP/1.1 200 OK\r\n") && ok.ends_with("\r\n\r\nyes\n"),
            "{ok}"
        );
        let head = ask(&server, b"HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(head.ends_with("\r\n\r\n"), "{head}");
        for (request, status) in [
            (&b"GET /x HTTP/1.1\r\n\r\n"[..], "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"\xff\xfe\r\n\r\n", "400"),
            (b"GET metrics HTTP/1.1\r\n\r\n", "400"),
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
        // Peers that send nothing, or half a request, give way, however many come.
        let mut stalled = Vec::new();
        for n in 0..3 * PEERS_MAX {
            let mut peer = TcpStream::connect(server.address()).expect("connects");
            if n % 2 == 0 {
                peer.write_all(b"GET /metrics HTTP/1.1\r\n")
                    .expect("written");
            }
            stalled.push(peer);
            assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").contains("200"));
        }
        let mut oldest = stalled.swap_remove(0);
        assert!(!matches!(oldest.read(&mut [0; 1]), Ok(n) if n > 0));
    }

    #[test]
    fn a_socket_is_removed_at_the_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("m");
        let pages: Pages = Arc::new(|_| Response::not_found());
        let address = Address::Unix(path.clone());
        let server = HttpServer::start(&address, Arc::clone(&pages)).expect("listens");
        assert!(HttpServer::start(&address, pages).is_err());
        drop(server);
        assert!(!path.exists());
    }
}
