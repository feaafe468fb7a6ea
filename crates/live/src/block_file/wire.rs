//! FUSE's wire protocol, as far as requests are served without fuser. Layouts: `include/uapi/linux/fuse.h`, all fields in native byte order.

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

const FUSE_INIT: u32 = 26;
/// `FUSE_INIT_EXT`: the message has a second word of flags, one of which is `FUSE_OVER_IO_URING`.
const INIT_MORE: u32 = 1 << 30;
const INIT_RING: u32 = 1 << 9;
/// Byte offsets of the first and the second word of flags in `fuse_init_in` and in `fuse_init_out`.
const INIT_IN_FLAGS: [usize; 2] = [12, 16];
const INIT_OUT_FLAGS: [usize; 2] = [12, 32];
/// `FUSE_NOTIFY_INVAL_INODE`: a header and three numbers.
const FORGET: i32 = 2;
const FORGET_BYTES: usize = OUT_HEADER + 24;

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_ne_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_ne_bytes)
}

/// The number of a request or an answer.
pub(super) fn unique(message: &[u8]) -> Option<u64> {
    u64_at(message, 8)
}

/// A request that is served without fuser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Read(Range),
    /// The payload follows.
    Write(Range),
    Fsync,
}

/// What a read or write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u32,
    /// The flags of the descriptor, and of this request.
    pub flags: i32,
}

impl Call {
    /// Decodes a request: `header` is its `fuse_in_header`, `arguments` what follows. `None` for all other requests, and if it is cut off.
    pub(super) fn decode(header: &[u8], arguments: &[u8]) -> Option<Call> {
        let range = || {
            Some(Range {
                offset: u64_at(arguments, 8)?,
                bytes: u32_at(arguments, 16)?,
                flags: u32_at(arguments, 32)? as i32,
            })
        };
        match u32_at(header, 4)? {
            FUSE_READ => range().map(Call::Read),
            FUSE_WRITE => range().map(Call::Write),
            FUSE_FSYNC => Some(Call::Fsync),
            _ => None,
        }
    }
}

/// `fuse_out_header` of an answer with `payload` bytes. `error` is a positive number, or 0.
pub(super) fn out_header(unique: u64, error: i32, payload: usize) -> [u8; OUT_HEADER] {
    let mut header = [0; OUT_HEADER];
    header[..4].copy_from_slice(&((OUT_HEADER + payload) as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&(-error).to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// `fuse_write_out`: the number of bytes written, and padding.
pub(super) fn write_out(bytes: u32) -> [u8; 8] {
    let mut out = [0; 8];
    out[..4].copy_from_slice(&bytes.to_ne_bytes());
    out
}

/// The number of a request if it is INIT, and whether it offers requests through io_uring.
pub(super) fn init(message: &[u8]) -> Option<(u64, bool)> {
    if u32_at(message, 4)? != FUSE_INIT {
        return None;
    }
    let [flags, more] = INIT_IN_FLAGS.map(|at| u32_at(message, IN_HEADER + at).unwrap_or(0));
    let offered = flags & INIT_MORE != 0 && more & INIT_RING != 0;
    Some((unique(message)?, offered))
}

/// Changes fuser's answer to INIT so that it accepts requests through io_uring, which fuser does not know. Returns false if the answer is
/// an error or too short for that.
pub(super) fn accept_ring(answer: &mut [u8]) -> bool {
    let long = answer.len() >= OUT_HEADER + INIT_OUT_FLAGS[1] + 4;
    if !long || u32_at(answer, 4) != Some(0) {
        return false;
    }
    for (at, flag) in INIT_OUT_FLAGS.into_iter().zip([INIT_MORE, INIT_RING]) {
        let at = OUT_HEADER + at;
        let flags = u32_at(answer, at).unwrap_or(0) | flag;
        answer[at..at + 4].copy_from_slice(&flags.to_ne_bytes());
    }
    true
}

/// A message that tells the kernel to forget the attributes of an inode.
pub(super) fn forget_attributes(inode: u64) -> Vec<u8> {
    let mut message = Vec::with_capacity(FORGET_BYTES);
    message.extend((FORGET_BYTES as u32).to_ne_bytes());
    message.extend(FORGET.to_ne_bytes());
    // A message without a request.
    message.extend(0u64.to_ne_bytes());
    message.extend(inode.to_ne_bytes());
    // A negative offset: no pages are meant.
    message.extend((-1i64).to_ne_bytes());
    message.extend(0i64.to_ne_bytes());
    message
}
