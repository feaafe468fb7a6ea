//! Maps from numbers of slots. The numbers are given out one after the other by this program, so a multiplication spreads them well enough.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from the slots of nodes.
pub(super) type NodeMap<V> = HashMap<super::slots::SlotId, V, BuildHasherDefault<NodeHasher>>;

/// A hash function for numbers of slots: see the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeHasher(u64);

impl Hasher for NodeHasher {
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u32(u32::from(*b));
        }
    }
    fn write_u32(&mut self, n: u32) {
        self.0 = (self.0 ^ u64::from(n)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    fn finish(&self) -> u64 {
        self.0.rotate_left(32)
    }
}
