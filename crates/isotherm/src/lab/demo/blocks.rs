//! Space in use on a file system.

use std::path::Path;

use crate::Failure;

/// Bytes in use on the file system at `dir`.
pub fn used(dir: &Path) -> Result<u64, Failure> {
    let s =
        rustix::fs::statvfs(dir).map_err(|e| Failure::file(dir, "ask for its space", &e.into()))?;
    Ok((s.f_blocks - s.f_bfree) * s.f_frsize)
}
