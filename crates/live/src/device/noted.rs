//! Writes to a device that is being copied while it is written to.

use super::Device;
use crate::copying::stale::Stale;
use std::sync::{Arc, Mutex, PoisonError};

/// Where the ends of writes are noted while the device is being copied.
#[derive(Debug, Default)]
pub(super) struct Noted(Mutex<Option<Arc<Stale>>>);

impl Device {
    /// From now on the ends of writes to it are noted there, or nowhere. This is about writes by the methods of this type; those of the engine
    /// are noted by the world.
    pub(crate) fn watch_writes(&self, stale: Option<Arc<Stale>>) {
        *self.noted.0.lock().unwrap_or_else(PoisonError::into_inner) = stale;
    }

    /// A write to these bytes has ended.
    pub(super) fn note_write(&self, at: u64, bytes: usize) {
        let noted = self.noted.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stale) = &*noted {
            stale.mark(at, bytes as u64);
        }
    }
}
