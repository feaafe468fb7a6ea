//! The kernel's interface: numbers and layouts of `linux/ublk_cmd.h` (Linux 6.5; the registration of pages: 6.16).

/// The device through which devices are added and removed.
pub const CONTROL: &str = "/dev/ublk-control";

/// An ioctl number: direction (2 read, 3 both), bytes of the argument, command.
const fn ioctl(direction: u32, bytes: u32, command: u32) -> u32 {
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | command
}

pub(super) const ADD_DEV: u32 = ioctl(3, 32, 0x04);
pub(super) const DEL_DEV: u32 = ioctl(3, 32, 0x05);
pub(super) const START_DEV: u32 = ioctl(3, 32, 0x06);
pub(super) const STOP_DEV: u32 = ioctl(3, 32, 0x07);
pub(super) const SET_PARAMS: u32 = ioctl(3, 32, 0x08);
pub(super) const GET_PARAMS: u32 = ioctl(2, 32, 0x09);
pub(super) const GET_DEV_INFO: u32 = ioctl(2, 32, 0x02);
pub(super) const START_RECOVERY: u32 = ioctl(3, 32, 0x10);
pub(super) const END_RECOVERY: u32 = ioctl(3, 32, 0x11);
pub(super) const DEL_DEV_ASYNC: u32 = ioctl(2, 32, 0x14);
pub(super) const UPDATE_SIZE: u32 = ioctl(3, 32, 0x15);
pub(super) const GET_FEATURES: u32 = ioctl(2, 32, 0x13);

pub(super) const FETCH: u32 = ioctl(3, 16, 0x20);
pub(super) const COMMIT_AND_FETCH: u32 = ioctl(3, 16, 0x21);

/// The device survives its server.
pub const F_USER_RECOVERY: u64 = 1 << 3;
/// Requests that were in flight are sent again.
pub const F_REISSUE: u64 = 1 << 4;
/// Commands are numbered as ioctls.
pub const F_IOCTL: u64 = 1 << 6;
/// Data is copied by pread and pwrite.
pub const F_USER_COPY: u64 = 1 << 7;
/// The size of a device can be changed while it is in use (Linux 6.16).
pub const F_UPDATE_SIZE: u64 = 1 << 10;
/// The pages of a request are registered with the ring of its command (`register_at`) before the command comes back.
pub const F_REGISTER: u64 = 1 << 11;
/// All features that are needed; Linux 6.5 has them.
pub const NEEDED: u64 = F_USER_RECOVERY | F_REISSUE | F_IOCTL | F_USER_COPY;

/// No server has started the device.
pub const DEAD: u16 = 0;
/// The device has a server.
pub const LIVE: u16 = 1;
/// The server of the device is gone; users wait.
pub const QUIESCED: u16 = 2;

/// First byte of the requests' data in `/dev/ublkcN`.
const DATA: u64 = 0x8000_0000;
/// Maximum number of requests of a queue; it determines where the descriptors of the next queue begin.
const MAX_DEPTH: usize = 4096;
/// Size of a descriptor in bytes.
pub const DESCRIPTOR: usize = 24;

/// Offset of a request's data in `/dev/ublkcN`.
pub fn data_at(queue: u16, tag: u16) -> u64 {
    DATA + (u64::from(queue) << 41 | u64::from(tag) << 25)
}

/// Offset of a queue's descriptors in `/dev/ublkcN`.
pub fn descriptors_at(queue: u16) -> usize {
    usize::from(queue) * MAX_DEPTH * DESCRIPTOR
}

/// No ring has a buffer of this number.
pub(super) const NO_BUFFER: u16 = u16::MAX;

/// For a device with [`F_REGISTER`], the address field of a command: the pages of the next request of this tag become buffer `number` of
/// the ring. If the kernel cannot register them, the request comes with [`IO_UNREGISTERED`].
pub(super) fn register_at(number: u16) -> u64 {
    const OR_ELSE_TELL: u64 = 1 << 16;
    u64::from(number) | OR_ELSE_TELL
}

/// The argument of a control command.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ControlCommand {
    pub dev_id: u32,
    pub queue_id: u16,
    pub len: u16,
    pub addr: u64,
    pub data: u64,
    pub dev_path_len: u16,
    pub pad: u16,
    pub reserved: u32,
}

/// The kernel's description of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Number of queues.
    pub queues: u16,
    /// Number of requests in each queue.
    pub depth: u16,
    /// [`DEAD`], [`LIVE`], [`QUIESCED`].
    pub state: u16,
    pub(super) pad0: u16,
    /// Maximum size of a request in bytes.
    pub max_io_bytes: u32,
    /// The number N of `/dev/ublkbN`.
    pub id: u32,
    /// Process of the server.
    pub pid: i32,
    pub(super) pad1: u32,
    /// `F_…`
    pub flags: u64,
    /// A value of ours: the volume that the device shows.
    pub owner: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) reserved: [u64; 2],
}

/// Properties of a device: basic and discard parameters, and the alignment of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Params {
    pub(super) len: u32,
    pub(super) types: u32,
    pub(super) attributes: u32,
    pub(super) logical_shift: u8,
    pub(super) physical_shift: u8,
    pub(super) optimal_shift: u8,
    pub(super) minimal_shift: u8,
    pub(super) max_sectors: u32,
    pub(super) chunk_sectors: u32,
    /// Size in sectors of 512 bytes.
    pub sectors: u64,
    pub(super) virtual_boundary: u64,
    pub(super) discard_alignment: u32,
    pub(super) discard_granularity: u32,
    pub(super) max_discard_sectors: u32,
    pub(super) max_zeroes_sectors: u32,
    pub(super) max_discard_segments: u16,
    pub(super) reserved: u16,
    /// Parameters of other kinds, which are not used: device numbers and zones.
    pub(super) others: [u32; 12],
    /// The bits that are 0 in the addresses of all parts of a request's pages.
    pub(super) memory_mask: u32,
    pub(super) pad: [u32; 2],
}

/// Size of [`Params`] in bytes.
pub(super) const PARAMS: u32 = size_of::<Params>() as u32;
/// The basic and discard parameters are set.
pub(super) const PARAM_TYPES: u32 = 1 | 2;
/// `memory_mask` is set.
pub(super) const PARAM_MEMORY: u32 = 1 << 4;
pub(super) const ATTR_READ_ONLY: u32 = 1;
pub(super) const ATTR_CACHE: u32 = 4;
pub(super) const ATTR_FUA: u32 = 8;

/// The command of a queue's entry.
pub(super) fn io_command(queue: u16, tag: u16, result: i32) -> [u8; 16] {
    let mut b = [0; 16];
    b[..2].copy_from_slice(&queue.to_ne_bytes());
    b[2..4].copy_from_slice(&tag.to_ne_bytes());
    b[4..8].copy_from_slice(&result.to_ne_bytes());
    b
}

/// A request of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// The operation is in the low byte, flags are above it.
    pub op_flags: u32,
    pub sectors: u32,
    pub first_sector: u64,
}

pub(super) const OP_READ: u32 = 0;
pub(super) const OP_WRITE: u32 = 1;
pub(super) const OP_FLUSH: u32 = 2;
pub(super) const OP_DISCARD: u32 = 3;
pub(super) const OP_ZEROES: u32 = 5;
/// The file system marks the request as metadata.
pub(super) const IO_META: u32 = 1 << 11;
pub(super) const IO_FUA: u32 = 1 << 13;
pub(super) const IO_NOUNMAP: u32 = 1 << 15;
/// The pages of the request could not be registered.
pub(super) const IO_UNREGISTERED: u32 = 1 << 17;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layouts_are_those_of_the_kernel() {
        assert_eq!(size_of::<ControlCommand>(), 32);
        assert_eq!(offset_of!(ControlCommand, data), 16);
        assert_eq!(size_of::<DeviceInfo>(), 64);
        assert_eq!(offset_of!(DeviceInfo, flags), 24);
        assert_eq!(offset_of!(DeviceInfo, owner), 32);
        assert_eq!(offset_of!(Params, sectors), 24);
        assert_eq!(offset_of!(Params, discard_alignment), 40);
        assert_eq!(offset_of!(Params, others), 60);
        assert_eq!(offset_of!(Params, memory_mask), 108);
        assert_eq!(PARAMS, 120);
        assert_eq!(register_at(5), 0x1_0005);
        assert_eq!((ADD_DEV, FETCH), (0xc020_7504, 0xc010_7520));
    }
}
