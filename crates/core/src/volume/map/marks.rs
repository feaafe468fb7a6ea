//! A mark of extents.

use crate::bits::Bits;
use crate::units::ExtentId;

/// A mark that no extent has, or few. It needs no memory until an extent has it, then 1/8 byte per extent.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    pub(super) bits: Bits,
    extents: u32,
    pub(super) count: u32,
}

impl Marks {
    pub(super) fn new(extents: u32) -> Marks {
        Marks {
            bits: Bits::default(),
            extents,
            count: 0,
        }
    }
    #[inline]
    pub(super) fn get(&self, e: ExtentId) -> bool {
        self.count > 0 && self.bits.get(e.0 as usize)
    }
    #[inline]
    pub(super) fn put(&mut self, e: ExtentId, on: bool) {
        if on {
            if self.bits.bytes() == 0 {
                self.bits = Bits::new(self.extents as usize);
            }
            self.count += u32::from(self.bits.set(e.0 as usize));
        } else if self.get(e) {
            self.bits.clear(e.0 as usize);
            self.count -= 1;
        }
    }
}
