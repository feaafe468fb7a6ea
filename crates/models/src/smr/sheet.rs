//! The parameters of a shingled disk besides its `[hdd]` table.

use serde::Deserialize;

use crate::check::{Check, SheetError};

/// Drive-managed shingling. Manufacturers publish none of these; sheets state the source of each value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmrSheet {
    /// Media cache: GB (10⁹ bytes) of conventional tracks at the outer edge, for data that cannot be written in place.
    pub media_cache_gb: f64,
    /// Most extents in the media cache that the drive can track. Many small writes reach this limit before the cache is full.
    pub media_cache_extents: u32,
    /// Size of a band: tracks that overlap and can be rewritten only together.
    pub band_mib: u32,
    /// The drive begins to clean after this time without commands.
    pub idle_clean_ms: f64,
    /// A sequential run of this length is written in place from the start of the next band on.
    pub stream_kib: u32,
    /// The drive's time for a write to the media cache in addition to the transfer.
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
