//! The choices of a model's user besides the device.

use serde::Deserialize;

use crate::span::Span;

/// The initial state of a drive's flash.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "kebab-case")]
pub enum FlashState {
    /// After a long time of random overwrites: every page is in use, and each write pays its share of garbage collection.
    #[default]
    Preconditioned,
    /// Erased: garbage collection begins once the spare flash is used up.
    Fresh,
    /// No translation layer: no garbage collection, no write amplification, no wear by erases. Writes are as fast as those of a fresh drive.
    Ideal,
    /// No translation layer, at the rates of the sheet, whatever they include: for a drive that is used as its sheet was measured.
    Rated,
}

impl FlashState {
    /// Parses the name of a state: `preconditioned` (or `ftl`), `fresh`, `ideal` or `rated`.
    ///
    /// # Errors
    /// The message lists the names.
    pub fn parse(text: &str) -> Result<FlashState, String> {
        match text {
            "preconditioned" | "ftl" => Ok(FlashState::Preconditioned),
            "fresh" => Ok(FlashState::Fresh),
            "ideal" => Ok(FlashState::Ideal),
            "rated" => Ok(FlashState::Rated),
            _ => Err(format!(
                "`{text}` is no state of flash: preconditioned (or ftl), fresh, ideal or rated"
            )),
        }
    }

    /// The name of the state.
    pub fn name(self) -> &'static str {
        match self {
            FlashState::Preconditioned => "preconditioned",
            FlashState::Fresh => "fresh",
            FlashState::Ideal => "ideal",
            FlashState::Rated => "rated",
        }
    }
}

/// The choices of a model's user besides the device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Bytes of the member that the device stands for; 0 = the whole drive.
    pub size: u64,
    /// The part of the drive that the member is.
    pub span: Span,
    /// HDD: number of commands that the drive sees, in place of the sheet's; 1 = first come, first served.
    pub queue_depth: Option<u32>,
    /// HDD: whether writes are answered from the buffer, in place of the sheet's setting.
    pub write_cache: Option<bool>,
    /// SSD: the state of the flash, for sheets with a flash layer.
    pub flash: FlashState,
    /// SSD: spare flash as a share of `size`, in place of the sheet's.
    pub over_provisioning: Option<f64>,
    /// SSD wear: how many page reads count as one page write, in place of the sheet's number; 0 = reads do not count.
    pub reads_per_write: Option<f64>,
}
