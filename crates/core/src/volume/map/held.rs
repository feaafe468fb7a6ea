//! The extents in use.

use crate::by_number::ByNumber;
use crate::units::ExtentId;

/// The extents that are in use by moves, locks and waiting pieces of requests. There are few at a time, so the set is small, whatever the
/// size of the volume.
#[derive(Clone, Debug)]
pub(super) struct Held(ByNumber<()>);

impl Default for Held {
    fn default() -> Held {
        Held(ByNumber::new(256))
    }
}

impl Held {
    #[inline]
    pub(super) fn get(&self, e: ExtentId) -> bool {
        self.0.get(e.0).is_some()
    }
    pub(super) fn put(&mut self, e: ExtentId, on: bool) {
        if on {
            self.0.entry(e.0);
        } else {
            self.0.remove(e.0);
        }
    }
    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
