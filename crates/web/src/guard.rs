//! Which requests are answered at all, and what every answer says to the browser.
//!
//! There are no cookies: the token travels in a header that only a page of ours sets. So a page of somebody else cannot act for
//! its reader. It must not read for him either, hence the look at `Host` (a name that was rebound to this machine) and at what
//! the browser says about the asking page.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::routes::Served;
use crate::settings::Address;
use crate::token::is_same;

const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (header::CACHE_CONTROL, "no-store"),
];

/// Whoever guesses tokens waits so long for each.
const WRONG: Duration = Duration::from_millis(300);

/// A line of text instead of an answer.
pub(crate) fn refused(status: StatusCode, why: impl Into<String>) -> Response {
    (status, format!("{}\n", why.into())).into_response()
}

/// Before and after every request.
pub(crate) async fn guard(State(served): State<Served>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let mut response = if let Err(why) = host(headers, &served.settings.address) {
        refused(StatusCode::MISDIRECTED_REQUEST, why)
    } else if is_foreign(headers) {
        refused(StatusCode::FORBIDDEN, "asked by a page of another site")
    } else if !matches!(*request.method(), Method::GET | Method::HEAD | Method::POST) {
        refused(StatusCode::METHOD_NOT_ALLOWED, "GET, HEAD or POST")
    } else {
        let is_api = request.uri().path().starts_with("/api/");
        let wants_token =
            is_api && (served.settings.is_private() || *request.method() == Method::POST);
        let known = match (&served.settings.token, given(headers)) {
            (Some(known), Some(given)) => Some(is_same(known, given)),
            (None, Some(_)) => Some(false),
            (_, None) => None,
        };
        match known {
            Some(false) => {
                tokio::time::sleep(WRONG).await;
                refused(StatusCode::UNAUTHORIZED, "this is not the token")
            }
            None if wants_token => {
                refused(StatusCode::UNAUTHORIZED, "the token is needed for this")
            }
            _ => next.run(request).await,
        }
    };
    for (name, value) in &HEADERS {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

fn given(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    text.strip_prefix("Bearer ").map(str::trim)
}

/// The browser says that a page from elsewhere asks.
fn is_foreign(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").and_then(|v| v.to_str().ok());
    let mode = headers.get("sec-fetch-mode").and_then(|v| v.to_str().ok());
    // Somebody followed a link to the page: it is shown. What scripts ask is not.
    let followed = mode == Some("navigate");
    !followed && site.is_some_and(|s| !matches!(s, "same-origin" | "none"))
}

/// A name that belongs to this machine, where names are known. Behind a Unix socket is a proxy, which answers for names; other
/// machines must know the token.
fn host(headers: &HeaderMap, address: &Address) -> Result<(), String> {
    let Address::Tcp(own) = address else {
        return Ok(());
    };
    if address.is_remote() {
        return Ok(());
    }
    let given = headers.get(header::HOST).and_then(|h| h.to_str().ok());
    let given = given.ok_or("no host named")?;
    if is_ours(given, *own) {
        Ok(())
    } else {
        Err(format!(
            "`{given}` is no name of this machine's own: use http://{own}/"
        ))
    }
}

fn is_ours(host: &str, own: SocketAddr) -> bool {
    if let Ok(a) = host.parse::<SocketAddr>() {
        return a.ip().is_loopback() || a.ip() == own.ip();
    }
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|i| i.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_ours() {
        let own: SocketAddr = "127.0.0.1:9450".parse().expect("an address");
        for ours in [
            "127.0.0.1:9450",
            "localhost:9450",
            "LOCALHOST",
            "[::1]:80",
            "127.0.0.1",
        ] {
            assert!(is_ours(ours, own), "{ours}");
        }
        for other in [
            "evil.example:9450",
            "evil.example",
            "192.0.2.1:9450",
            "",
            "localhost.evil.example:9450",
        ] {
            assert!(!is_ours(other, own), "{other}");
        }
    }
}
