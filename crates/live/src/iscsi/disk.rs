//! The logical unit: its properties, and the limits that it states.

use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum size of one read, write or write-same in bytes.
pub const MAX_TRANSFER: u32 = 4 << 20;
/// Maximum number of bytes of one unmap.
pub const MAX_UNMAP: u64 = 512 << 20;
/// Maximum number of ranges of one unmap.
pub const MAX_RANGES: usize = 256;
/// Properties of the logical unit.
#[derive(Debug)]
pub struct Disk {
    /// Name of the volume.
    pub name: String,
    /// Name of the target, `iqn.…`.
    pub target: String,
    /// Identity of the volume; it does not depend on the machine or the session.
    pub uuid: [u8; 16],
    /// Number of logical blocks; see [`Disk::blocks`].
    pub present_blocks: AtomicU64,
    /// Size of a block in bytes, a power of two from 512 to 4096.
    pub block: u32,
    /// Preferred size of a transfer in bytes.
    pub preferred: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Unmapped blocks read as zeros.
    pub zeros: bool,
}

impl Disk {
    /// Number of logical blocks, which changes if the volume grows.
    pub fn blocks(&self) -> u64 {
        self.present_blocks.load(Ordering::Acquire)
    }
}
