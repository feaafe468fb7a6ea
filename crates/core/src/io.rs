//! The types that cross the engine's two interfaces: requests above, device operations below.

use crate::units::{MemberId, Nanos};

/// The caller's identifier of a request, which is returned with the reply. It is unique among the requests in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u32);

/// The engine's identifier of a device operation, which is returned with its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u32);

/// The operations that a front end can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestOp {
    /// Read `len` bytes into the request's buffer.
    Read,
    /// Write `len` bytes from the request's buffer.
    Write,
    /// Make every write durable that was answered before this request.
    Flush,
    /// Discard the range, which is not used any more: it reads as zeros afterwards, and slots are freed if it covers whole extents.
    Discard,
    /// Make the range read as zeros. `keep`: space must stay allocated (NBD `NO_HOLE`).
    WriteZeroes {
        /// Write zeros instead of freeing the space.
        keep: bool,
    },
}

/// A flag in [`Request::class`] for requests of the program itself (classifiers): policies do not see the access, and it does not count as
/// a hit or miss.
pub const QUIET: u8 = 0x80;

/// One request. `offset` and `len` of reads and writes may be unaligned: the engine aligns them (read-modify-write, serialised per block).
/// A discard applies to the whole blocks in its range. Write-zeroes must be whole blocks: front ends write unaligned ends as ordinary
/// zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The caller's identifier.
    pub tag: Tag,
    /// The operation.
    pub op: RequestOp,
    /// First byte.
    pub offset: u64,
    /// Length in bytes, at most 32 MiB for reads and writes; 0 for a flush.
    pub len: u32,
    /// Force unit access: the data must be durable before the reply.
    pub fua: bool,
    /// The class of its data, 0…63 (0 = unclassified).
    pub class: u8,
}

/// The reason why an operation or request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoError {
    /// The device reported an error (`EIO`).
    Io,
    /// No slot is left (`ENOSPC`).
    NoSpace,
    /// The range is outside of the volume, or the length is not allowed (`EINVAL`).
    Invalid,
    /// The volume serves reads only (`EROFS`).
    ReadOnly,
    /// The device is gone (`ENODEV`).
    Gone,
}

/// The kinds of device operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Read `len` bytes.
    Read,
    /// Write `len` bytes.
    Write,
    /// Make completed writes durable.
    Flush,
    /// Tell the device that the range is not used. This is a hint: the contents afterwards are undefined.
    Discard,
    /// Write zeros over the range.
    WriteZeroes,
    /// Go to standby (power saving); the next access wakes the device.
    Standby,
}

/// The memory that an operation uses. The engine only names buffers; the world owns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufRef {
    /// No data.
    None,
    /// The request's buffer. `offset` counts from the request's start *rounded down to the logical block*: for an unaligned request the
    /// world provides a bounce buffer that covers the aligned range.
    Request {
        /// The request that owns the buffer.
        tag: Tag,
        /// Offset in the aligned buffer.
        offset: u32,
    },
    /// Move buffer number `index`, which has the size of an extent.
    Move {
        /// Number of the move buffer.
        index: u16,
        /// Offset in it.
        offset: u32,
    },
    /// Metadata that the engine encoded: [`crate::Engine::meta`] returns the bytes while the operation is in progress.
    Meta,
}

/// One operation on one member device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOp {
    /// The engine's identifier.
    pub id: OpId,
    /// The device.
    pub member: MemberId,
    /// The operation.
    pub kind: OpKind,
    /// First byte on the device.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// The memory.
    pub buf: BufRef,
    /// Whether it must be durable when it completes (`RWF_DSYNC`).
    pub fua: bool,
}

/// An effect that the world must carry out, in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start a device operation.
    Start(DeviceOp),
    /// Fill part of a read's buffer with zeros (unwritten data).
    Zero {
        /// The request that owns the buffer.
        tag: Tag,
        /// Offset in the aligned buffer.
        offset: u32,
        /// Length in bytes.
        len: u32,
    },
    /// Copy from a move's buffer to a request's (a read served from RAM, GreenDM 6.1.3).
    CopyFromMove {
        /// Number of the move buffer.
        index: u16,
        /// Offset in it.
        from: u32,
        /// The request that owns the buffer.
        tag: Tag,
        /// Offset in the aligned buffer.
        to: u32,
        /// Length in bytes.
        len: u32,
    },
    /// The edge blocks of an unaligned write are in its bounce buffer: copy the payload over them.
    Patch {
        /// The request that owns the buffer.
        tag: Tag,
    },
    /// Keep this block of the journal, so that the next server finds it after this one was killed
    /// ([`Params::keeper`](crate::engine::Params::keeper)). It replaces an earlier version with the same number. Answers that follow rely
    /// on it. `meta` has the block.
    Keep {
        /// Its sequence number.
        seq: u64,
    },
    /// The request ended. The data of a successful read is in its buffer.
    Reply {
        /// The request.
        tag: Tag,
        /// Its result.
        result: Result<(), IoError>,
    },
}

/// An event for the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request arrived.
    Arrived(Request),
    /// A device operation ended: the number of transferred bytes (which may be short), or an error.
    Finished {
        /// The operation.
        id: OpId,
        /// Its result.
        result: Result<u32, IoError>,
    },
    /// No more requests will come: complete the requests in progress, write all state, and end ([`crate::Engine::close`]).
    Closed,
}

/// Everything outside the engine: clock, devices, buffers, clients. Lab, live and fault tests differ only here.
pub trait World {
    /// The present time of the engine.
    fn now(&self) -> Nanos;
    /// Waits (or jumps) until `until` or until something happens, and appends the events.
    fn wait(&mut self, until: Option<Nanos>, events: &mut alloc::vec::Vec<Event>);
    /// Carries out one effect. `meta` holds the bytes of a [`BufRef::Meta`] write or the block of [`Effect::Keep`], otherwise it is empty.
    fn carry_out(&mut self, effect: &Effect, meta: &[u8]);
}
