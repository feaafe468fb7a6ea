//! What has to be known of a shingled disk besides its `[hdd]` table.

use serde::Deserialize;

use crate::sheet::{Check, SheetError};

/// Drive-managed shingling. Makers publish none of this; sheets say where each value is from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmrSheet {
    /// Media cache: GB (10⁹ bytes) of conventional tracks at the outer edge that take what cannot be written in place.
    pub media_cache_gb: f64,
    /// Extents the drive can keep track of in it: many small writes fill this before the bytes.
    pub media_cache_extents: u32,
    /// A band: tracks that overlap and can be rewritten only together.
    pub band_mib: u32,
    /// Without commands for so long, the drive begins to clean.
    pub idle_clean_ms: f64,
    /// A sequential run of this length is written in place from the next band's start on.
    pub stream_kib: u32,
    /// What the drive spends on a write to the media cache besides moving its bytes.
    pub cached_write_us: f64,
}

impl SmrSheet {
    pub(crate) fn check(&self, file: &str) -> Result<(), SheetError> {
        let c = Check { file, table: "smr" };
        c.at_least("media_cache_gb", self.media_cache_gb, 0.001)?;
        c.within(
            "media_cache_extents",
            f64::from(self.media_cache_extents),
            16.0,
            1e8,
        )?;
        c.within("band_mib", f64::from(self.band_mib), 1.0, 4096.0)?;
        c.at_least("idle_clean_ms", self.idle_clean_ms, 0.0)?;
        c.within("stream_kib", f64::from(self.stream_kib), 4.0, 1e6)?;
        c.at_least("cached_write_us", self.cached_write_us, 0.0)
    }
}
