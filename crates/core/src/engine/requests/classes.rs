//! What is known of the data in an extent, from somebody who knows: a file system's layout, an administrator.

use crate::engine::Engine;
use crate::io::Effect;
use crate::units::{ExtentId, Nanos};
use alloc::vec::Vec;

impl Engine {
    /// The data in `extent` is of that class (0…63; 0: nobody knows) until somebody says otherwise; requests that name a class of
    /// their own go before this. The policy hears of it. Kept in memory only.
    pub fn reclassify(&mut self, now: Nanos, extent: ExtentId, class: u8, out: &mut Vec<Effect>) {
        self.wear.pass(now);
        if self.space.set_class(extent, class) {
            let (policy, mut view, wanted) = self.view(now, crate::engine::SCAN_BUDGET);
            policy.on_reclassified(&mut view, extent, class, wanted);
            self.upkeep(now, out);
        }
    }
}
