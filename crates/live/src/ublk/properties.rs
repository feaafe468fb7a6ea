//! The properties of a new disk.

use super::abi::{self, Params};
use super::control::Control;
use super::front::{DISCARD, LARGEST};
use crate::port::Port;

/// Whether this kernel can register pages. If it cannot, the reason is reported.
pub(super) fn has_zero_copy(control: &Control) -> bool {
    let has = control.features() & abi::F_REGISTER != 0;
    if !has {
        tracing::warn!(
            "ublk: this kernel cannot register the pages of requests: their data is copied (zero copy needs Linux 6.16)"
        );
    }
    has
}

/// The properties of the disk.
pub(super) fn params(port: &dyn Port, extent: u32, zero_copy: bool) -> Params {
    let shift = port.block_bytes().trailing_zeros() as u8;
    let read_only = if port.read_only() {
        abi::ATTR_READ_ONLY
    } else {
        0
    };
    let memory = if zero_copy { abi::PARAM_MEMORY } else { 0 };
    Params {
        len: abi::PARAMS,
        types: abi::PARAM_TYPES | memory,
        // Most disks accept memory that is aligned to 4 bytes or 512; operations that a member refuses go through memory of this process.
        memory_mask: 511,
        attributes: abi::ATTR_CACHE | abi::ATTR_FUA | read_only,
        logical_shift: shift,
        physical_shift: shift.max(12),
        optimal_shift: extent.trailing_zeros() as u8,
        minimal_shift: shift.max(12),
        max_sectors: LARGEST >> 9,
        sectors: port.volume_bytes() >> 9,
        discard_granularity: port.engine_block(),
        max_discard_sectors: DISCARD >> 9,
        max_zeroes_sectors: DISCARD >> 9,
        max_discard_segments: 1,
        ..Params::default()
    }
}
