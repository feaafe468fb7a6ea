//! The object store of a volume, as its process `isotherm-store` tells of itself in its spool.

use std::fs::File;
use std::path::Path;

use isotherm_answers::Store;
use isotherm_live::config::StoreConfig;
use rustix::fs::{FlockOperation, flock};

/// Largest status that is read, in bytes.
const BYTES_MAX: u64 = 1 << 16;

/// Whether a process serves the store.
pub fn is_served(config: &StoreConfig) -> bool {
    let lock = File::open(config.spool.join("lock"));
    lock.is_ok_and(|f| flock(&f, FlockOperation::NonBlockingLockShared).is_err())
}

/// What the process said last.
pub fn told(config: &StoreConfig) -> Option<Store> {
    let text = isotherm_paths::read_text(&config.spool.join("status.json"), BYTES_MAX).ok()?;
    let mut told: Store = serde_json::from_str(&text).ok()?;
    told.url.clone_from(&config.url);
    told.serving = is_served(config);
    Some(told)
}

/// The store of `volume`, if it has one.
pub fn of(volume: &Path) -> Option<Store> {
    let config = StoreConfig::load(&StoreConfig::place(volume)).ok()??;
    Some(told(&config).unwrap_or_else(|| Store {
        url: config.url.clone(),
        serving: is_served(&config),
        ..Store::default()
    }))
}
