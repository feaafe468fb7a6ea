//! `serve --metrics`: serves the figures of a volume at an address, for Prometheus to fetch.

use std::sync::Arc;

use isotherm_control::metrics::{Snapshot, text};

use crate::Failure;
use crate::http::{HttpServer, Pages, Response};
use isotherm_web::Address;

/// Listens at `address`; `snapshot` is called for every scrape.
///
/// # Errors
/// The address is in use or not permitted.
pub fn start(
    address: &Address,
    snapshot: impl Fn() -> Result<Snapshot, String> + Send + Sync + 'static,
) -> Result<HttpServer, Failure> {
    let pages: Pages = Arc::new(move |path| match path {
        "/metrics" => match snapshot().and_then(|s| text(s).map_err(|e| e.to_string())) {
            Ok(text) => Response {
                status: "200 OK",
                kind: "application/openmetrics-text; version=1.0.0; charset=utf-8",
                body: text.into_bytes(),
            },
            Err(e) => Response::plain("503 Service Unavailable", &format!("{e}\n")),
        },
        "/" => Response::plain("200 OK", "An Isotherm volume. Figures: /metrics\n"),
        _ => Response::not_found(),
    });
    HttpServer::start(address, pages)
}
