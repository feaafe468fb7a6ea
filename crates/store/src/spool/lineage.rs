//! Whether a start of the spool has all writes that were answered, and not only those that a FLUSH has covered: after a kill it has; after an
//! error of the device, or on another spool, it may not. A volume above goes on only with the former.

use std::path::Path;

use super::record::{hex, random_id};

/// A file whose text is another one after each error.
const FILE: &str = "errors";

/// From now on the lineage is another one. If even that cannot be written, the next start has no place for its first file either.
pub fn end(dir: &Path) {
    if let Ok(id) = random_id() {
        let _ = std::fs::write(dir.join(FILE), id);
    }
}

/// The lineage of the spool with this id.
pub fn of(dir: &Path, id: &[u8; 16]) -> String {
    let errors = std::fs::read(dir.join(FILE)).unwrap_or_default();
    format!("{}{:08x}", hex(id), crc32fast::hash(&errors))
}
