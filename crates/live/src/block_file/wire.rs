//! FUSE's wire protocol, as far as requests are served without fuser. Layouts: `include/uapi/linux/fuse.h`.

/// `fuse_in_header`.
pub(super) const IN_HEADER: usize = 40;
/// `fuse_read_in` and `fuse_write_in` have the same size, and offset, size and flags in the same places.
pub(super) const IO_HEADER: usize = 40;
pub(super) const OUT_HEADER: usize = 16;
pub(super) const FUSE_READ: u32 = 15;
pub(super) const FUSE_WRITE: u32 = 16;
pub(super) const FUSE_FSYNC: u32 = 20;
/// Largest read or write request in bytes, which fits the kernel's default limit of 256 pages.
pub(super) const MAX_IO: u32 = 1 << 20;
