//! `serve --metrics`: serves the figures of a volume at an address, for Prometheus to fetch.

use std::sync::Arc;

use isotherm_control::metrics::{Snapshot, text};
use isotherm_web::{Address, Text, TextServer, Texts};

use crate::Failure;

/// Listens at `address`; `snapshot` is called for every scrape.
///
/// # Errors
/// The address is in use or not permitted.
pub fn start(
    address: &Address,
    snapshot: impl Fn() -> Result<Snapshot, String> + Send + Sync + 'static,
) -> Result<TextServer, Failure> {
    let texts: Texts = Arc::new(move |path| match path {
        "/metrics" => Some(snapshot().and_then(|s| {
            Ok(Text {
                kind: "application/openmetrics-text; version=1.0.0; charset=utf-8",
                text: text(s).map_err(|e| e.to_string())?,
            })
        })),
        "/" => Some(Ok(Text::plain("An Isotherm volume. Figures: /metrics\n"))),
        _ => None,
    });
    TextServer::start(address, texts).map_err(Failure::failed)
}
