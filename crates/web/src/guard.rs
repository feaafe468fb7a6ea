//! Decides which requests are answered at all, and sets the headers of every answer.
//!
//! There are no cookies: the token is sent in a header that only this program's page sets. So a page of another site cannot change anything
//! on behalf of its reader. It must not be able to read anything on the reader's behalf, either, which is why `Host` is checked (a name may
//! have been rebound to this machine), and also the browser's statement about the requesting page.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::served::Served;
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

/// Delay of the answer to a wrong token, which slows down guessing.
const WRONG: Duration = Duration::from_millis(300);

/// An error answer of one line of text.
pub(crate) fn refused(status: StatusCode, why: impl Into<String>) -> Response {
    (status, format!("{}\n", why.into())).into_response()
}

/// Runs before and after every request.
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

/// Whether the browser says that a page of another site makes the request.
fn is_foreign(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").and_then(|v| v.to_str().ok());
    let mode = headers.get("sec-fetch-mode").and_then(|v| v.to_str().ok());
    // A user who follows a link to the page gets it; requests of foreign scripts are refused.
    let followed = mode == Some("navigate");
    !followed && site.is_some_and(|s| !matches!(s, "same-origin" | "none"))
}

fn host(headers: &HeaderMap, address: &Address) -> Result<(), String> {
    let given = headers.get(header::HOST).and_then(|h| h.to_str().ok());
    check_host(given.unwrap_or_default(), address)
}

/// Checks that a request's `Host` is a name of this machine, where its names are known: a browser that believes to talk to another site sends
/// the name of that site. Behind a Unix socket there is a proxy, which is responsible for names; other machines must know the token.
///
/// # Errors
/// It is another name, or none; with the name to use.
pub(crate) fn check_host(given: &str, address: &Address) -> Result<(), String> {
    let Address::Tcp(own) = address else {
        return Ok(());
    };
    if address.is_remote() || is_ours(given, *own) {
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
