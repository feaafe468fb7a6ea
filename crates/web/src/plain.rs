//! Texts that every program of this machine may read, such as a volume's metrics. One request a connection, and only to read.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use crate::Address;
use crate::guard::{check_host, refused};
use crate::listen::{Connections, Server};

/// Most texts that are made at a time. A volume that hangs holds up its texts, and each of them occupies a thread.
const AT_A_TIME: usize = 6;

/// A text of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// `Content-Type`.
    pub kind: &'static str,
    /// The text itself.
    pub text: String,
}

impl Text {
    /// Text without further meaning.
    pub fn plain(text: impl Into<String>) -> Text {
        Text {
            kind: "text/plain; charset=utf-8",
            text: text.into(),
        }
    }
}

/// The text of a path without its query; `None` if there is no such path, an error if it cannot be made now, with the reason in one line.
/// It may block, and is never called on the thread that serves HTTP.
pub type Texts = Arc<dyn Fn(&str) -> Option<Result<Text, String>> + Send + Sync>;

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

/// Serves texts. Dropping it ends it and removes its socket.
pub struct TextServer(Server);

#[derive(Clone)]
struct Shared {
    texts: Texts,
    address: Address,
    threads: Arc<Semaphore>,
}

impl TextServer {
    /// Listens and begins to answer.
    ///
    /// # Errors
    /// The address is in use or not permitted.
    pub fn start(address: &Address, texts: Texts) -> Result<TextServer, String> {
        let shared = Shared {
            texts,
            address: address.clone(),
            threads: Arc::new(Semaphore::new(AT_A_TIME)),
        };
        let router = Router::new().fallback(answer).with_state(shared);
        let connections = Connections {
            tls: None,
            router,
            keep_alive: false,
        };
        Ok(TextServer(Server::start(address, connections)?))
    }

    /// The address at which it listens; if the port was 0, with the port that the system chose.
    pub fn address(&self) -> &str {
        self.0.address()
    }
}

async fn answer(
    State(shared): State<Shared>,
    method: Method,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    // Every browser names the host; other programs need not.
    let host = headers.get(header::HOST).map(|h| h.to_str());
    let checked = host.map_or(Ok(()), |h| {
        check_host(h.unwrap_or_default(), &shared.address)
    });
    let mut response = match checked {
        Err(why) => refused(StatusCode::FORBIDDEN, why),
        Ok(()) if !matches!(method, Method::GET | Method::HEAD) => refused(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET: nothing can be changed here",
        ),
        // Such as `GET metrics`.
        Ok(()) if !uri.path().starts_with('/') => {
            refused(StatusCode::BAD_REQUEST, "a path begins with /")
        }
        Ok(()) => text(shared, uri.path().to_owned()).await,
    };
    for (name, value) in [
        (header::ALLOW, "GET, HEAD"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        let value = header::HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

async fn text(shared: Shared, path: String) -> Response {
    let Ok(permit) = shared.threads.try_acquire_owned() else {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "too many at once");
    };
    let texts = shared.texts;
    let made = tokio::task::spawn_blocking(move || {
        let made = texts(&path);
        drop(permit);
        made
    });
    match made.await {
        Ok(Some(Ok(t))) => ([(header::CONTENT_TYPE, t.kind)], t.text).into_response(),
        Ok(Some(Err(why))) => refused(StatusCode::SERVICE_UNAVAILABLE, why),
        Ok(None) => refused(StatusCode::NOT_FOUND, "no such page"),
        Err(e) => refused(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
    }
}
