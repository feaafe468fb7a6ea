//! `--metrics`: serves the figures of a volume, or of a mounted file system, at an address, for Prometheus to fetch.

use std::sync::Arc;

use isotherm_web::{Address, Text, TextServer, Texts};

use crate::Failure;

/// Listens at `address`; `figures`, OpenMetrics text, is called for every scrape.
///
/// # Errors
/// The address is in use or not permitted.
pub fn start(
    address: &Address,
    figures: impl Fn() -> Result<String, String> + Send + Sync + 'static,
) -> Result<TextServer, Failure> {
    let texts: Texts = Arc::new(move |path| match path {
        "/metrics" => Some(figures().map(|text| Text {
            kind: "application/openmetrics-text; version=1.0.0; charset=utf-8",
            text,
        })),
        "/" => Some(Ok(Text::plain("Isotherm. Figures: /metrics\n"))),
        _ => None,
    });
    TextServer::start(address, texts).map_err(Failure::failed)
}
