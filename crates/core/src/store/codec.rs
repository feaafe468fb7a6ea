//! Little-endian fields at fixed offsets, and block checksums.

use crate::crc32c;

/// Reads a `u16` at byte `at`.
pub fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}
/// Reads a `u32` at byte `at`.
pub fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}
/// Reads a `u64` at byte `at`.
pub fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}
/// Writes `bytes` at byte `at`.
pub fn put(b: &mut [u8], at: usize, bytes: &[u8]) {
    b[at..at + bytes.len()].copy_from_slice(bytes);
}
/// Reads 16 bytes at byte `at`.
pub fn id_at(b: &[u8], at: usize) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&b[at..at + 16]);
    id
}
/// Writes the checksum of the whole block at byte `at`. For the computation the checksum field counts as zero.
pub fn seal(b: &mut [u8], at: usize) -> u32 {
    put(b, at, &[0; 4]);
    let crc = crc32c::crc32c(b);
    put(b, at, &crc.to_le_bytes());
    crc
}
/// [`seal`] for a block whose bytes from `used` on are all zero. Their number must be a multiple of 16.
pub fn seal_used(b: &mut [u8], at: usize, used: usize) -> u32 {
    debug_assert!((b.len() - used).is_multiple_of(16) && b[used..].iter().all(|&x| x == 0));
    put(b, at, &[0; 4]);
    let crc = crc32c::update_zeros(crc32c::crc32c(&b[..used]), (b.len() - used) / 16);
    put(b, at, &crc.to_le_bytes());
    crc
}
/// The checksum at `at`, if it is correct.
pub fn sealed(b: &[u8], at: usize) -> Option<u32> {
    let crc = u32_at(b, at);
    let c = crc32c::crc32c(&b[..at]);
    let c = crc32c::update(c, &[0; 4]);
    (crc32c::update(c, &b[at + 4..]) == crc).then_some(crc)
}
