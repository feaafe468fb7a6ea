//! Connections: their number, their time limits, TLS, and their end.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use isotherm_paths::reason;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};
use tokio_rustls::TlsAcceptor;

use crate::follow::All;
use crate::guard::refused;
use crate::peers::{Answer, MOST, Peer, Peers};
use crate::routes::router;
use crate::served::Served;
use crate::{Address, Settings, SocketFile, Source};

/// Most connections at a time that are told that there is no room; further ones are closed.
const REFUSED_MAX: usize = 8;
/// Time for telling so.
const REFUSING: Duration = Duration::from_secs(2);
/// Time limit for the head of a request and for the TLS handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest file of certificates that is read, in bytes.
const PEM_MAX: u64 = 4 << 20;
/// Number of threads for questions that block.
const WAITING_THREADS: usize = 8;

/// A thread that answers HTTP. Dropping it ends it and removes its socket.
pub(crate) struct Server {
    shown: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Removed at the end.
    _socket: Option<SocketFile>,
}

/// What connections get.
pub(crate) struct Connections {
    /// With it every connection uses TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// The answers.
    pub router: Router,
    /// Whether a connection may ask again.
    pub keep_alive: bool,
}

/// A running view. Dropping it ends it and removes its socket.
pub struct WebServer {
    all: Arc<All>,
    shown: String,
    _server: Server,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

enum Accepting {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Accepting {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Accepting::Tcp(l) => {
                let stream = l.accept().await?.0;
                // Events are small and should not wait for one another.
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Accepting::Unix(l) => Box::new(l.accept().await?.0),
        })
    }
}

impl Server {
    /// Listens and begins to answer.
    ///
    /// # Errors
    /// The address is in use or not permitted.
    pub(crate) fn start(address: &Address, connections: Connections) -> Result<Server, String> {
        let (listener, shown, socket) = bind(address)?;
        let (stop, stopped) = oneshot::channel();
        let (said, started) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("web".into())
            .spawn(move || {
                let runtime = match runtime(listener) {
                    Ok(r) => r,
                    Err(e) => {
                        return drop(said.send(Err(format!("the HTTP server: {}", reason(&e)))));
                    }
                };
                let _ = said.send(Ok(())); // the thread that started this one waits for it
                let (runtime, accepting) = runtime;
                runtime.block_on(async {
                    tokio::select! {
                        () = serve(&accepting, connections) => {}
                        _ = stopped => {}
                    }
                });
                // Questions that hang with their volume are abandoned, so that the process can end.
                runtime.shutdown_background();
            })
            .map_err(|e| format!("no thread for HTTP: {}", reason(&e)))?;
        started
            .recv()
            .unwrap_or_else(|_| Err("the HTTP server ended at once".into()))?;
        Ok(Server {
            shown,
            stop: Some(stop),
            thread: Some(thread),
            _socket: socket,
        })
    }

    /// Its address; if the port was 0, with the port that the system chose.
    pub(crate) fn address(&self) -> &str {
        &self.shown
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(()); // an error means that it has already ended
        }
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was already reported.
            let _ = thread.join();
        }
    }
}

impl WebServer {
    /// Listens and begins to answer.
    ///
    /// # Errors
    /// The settings would give strangers access; the address is in use; or a certificate or key is invalid.
    pub fn start(settings: Settings, source: Arc<dyn Source>) -> Result<WebServer, String> {
        settings.check()?;
        let tls = match &settings.tls {
            Some((certificate, key)) => Some(tls(certificate, key)?),
            None => None,
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let address = settings.address.clone();
        let all = All::start(source)?;
        let router = router(Served::new(Arc::clone(&all), settings));
        let connections = Connections {
            tls,
            router,
            keep_alive: true,
        };
        let server = Server::start(&address, connections).inspect_err(|_| all.end())?;
        let shown = match address {
            Address::Tcp(_) => format!("{scheme}://{}/", server.address()),
            Address::Unix(_) => server.address().to_owned(),
        };
        Ok(WebServer {
            all,
            shown,
            _server: server,
        })
    }

    /// Its address as people type it; if the port was 0, with the port that the system chose.
    pub fn address(&self) -> &str {
        &self.shown
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.all.end();
    }
}

/// The listener, its address, and the socket to remove at the end.
type Bound = (Listener, String, Option<SocketFile>);

fn bind(address: &Address) -> Result<Bound, String> {
    match address {
        Address::Tcp(a) => {
            let failed = |e: io::Error| format!("{a}: cannot listen there: {}", reason(&e));
            let listener = TcpListener::bind(a).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            let own = listener.local_addr().map_err(failed)?;
            Ok((Listener::Tcp(listener), own.to_string(), None))
        }
        Address::Unix(path) => {
            // A proxy runs as another user.
            let (listener, socket) = SocketFile::listen(path)?;
            listener
                .set_nonblocking(true)
                .map_err(|e| format!("{}: cannot listen there: {}", path.display(), reason(&e)))?;
            let shown = format!("unix:{}", path.display());
            Ok((Listener::Unix(listener), shown, Some(socket)))
        }
    }
}

fn runtime(listener: Listener) -> io::Result<(Runtime, Accepting)> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(WAITING_THREADS)
        .thread_name("web-ask")
        .build()?;
    let inside = runtime.enter();
    let accepting = match listener {
        Listener::Tcp(l) => Accepting::Tcp(tokio::net::TcpListener::from_std(l)?),
        Listener::Unix(l) => Accepting::Unix(tokio::net::UnixListener::from_std(l)?),
    };
    drop(inside);
    Ok((runtime, accepting))
}

fn tls(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let bad = |file: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let text =
        isotherm_paths::read(certificate, PEM_MAX).map_err(|e| bad(certificate, &reason(&e)))?;
    let chain = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| bad(certificate, &format!("no certificates in PEM: {e}")))?;
    let text = isotherm_paths::read_secret(key, PEM_MAX).map_err(|e| bad(key, &reason(&e)))?;
    let private = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|e| {
        bad(
            key,
            &format!("no private key in PEM (without a password): {e}"),
        )
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|e| {
            bad(
                certificate,
                &format!("does not go with the key {}: {e}", key.display()),
            )
        })?;
    Ok(Arc::new(config))
}

async fn serve(listener: &Accepting, connections: Connections) {
    let Connections {
        tls,
        router,
        keep_alive,
    } = connections;
    let peers = Arc::new(Peers::default());
    let refused = Arc::new(Semaphore::new(REFUSED_MAX));
    let acceptor = tls.map(TlsAcceptor::from);
    loop {
        let Ok(stream) = listener.accept().await else {
            // The process has no free descriptors. Some will be closed; the pause avoids a busy loop.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let acceptor = acceptor.clone();
        if let Some((peer, ended)) = peers.arrive() {
            let router = router.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = async {
                        if let Some(stream) = open(stream, acceptor).await {
                            let http = http(keep_alive);
                            converse(stream, router, &peer, &http).await;
                        }
                    } => {}
                    // Another one takes its place.
                    _ = ended => {}
                }
            });
        } else if let Ok(permit) = Arc::clone(&refused).try_acquire_owned() {
            tokio::spawn(async move {
                let told = async {
                    if let Some(stream) = open(stream, acceptor).await {
                        refuse(stream).await;
                    }
                };
                // Whoever does not take the answer in time goes without it.
                let _ = tokio::time::timeout(REFUSING, told).await;
                drop(permit);
            });
        }
        // Else dropping the connection closes it.
    }
}

/// The stream of HTTP; `None` if there is no handshake in time.
async fn open(stream: Box<dyn Stream>, tls: Option<TlsAcceptor>) -> Option<Box<dyn Stream>> {
    let Some(acceptor) = tls else {
        return Some(stream);
    };
    let shaken = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await;
    Some(Box::new(shaken.ok()?.ok()?))
}

/// A peer that breaks the protocol or disconnects ends its own connection only.
async fn converse(stream: Box<dyn Stream>, router: Router, peer: &Peer, http: &http1::Builder) {
    let answers = TowerToHyperService::new(router);
    let service = service_fn(|request: Request<Incoming>| {
        let (busy, answer) = (peer.begin(), answers.call(request));
        async move { Ok::<_, Infallible>(answer.await?.map(|body| Answer::new(body, busy))) }
    });
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

/// Answers one request: there is no room.
async fn refuse(stream: Box<dyn Stream>) {
    let service = service_fn(|_: Request<Incoming>| async {
        Ok::<_, Infallible>(refused(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("all {MOST} connections are in use: close others"),
        ))
    });
    let _ = http(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn http(keep_alive: bool) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .keep_alive(keep_alive)
        // Who asks once may close its side before it reads the answer; who may ask again is gone then.
        .half_close(!keep_alive)
        .max_headers(64)
        .max_buf_size(16 << 10);
    http
}
