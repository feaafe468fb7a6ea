//! What crosses the engine's two edges: requests above, device operations below.

use crate::units::{MemberId, Nanos};

/// The caller's name for a request; comes back with the reply. Unique among requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u32);

/// The engine's name for a device operation; comes back with its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u32);

/// What a front end can ask of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestOp {
    /// Read `len` bytes into the request's buffer.
    Read,
    /// Write `len` bytes from the request's buffer.
    Write,
    /// Make every write that was replied to before this request durable.
    Flush,
    /// Give up the range: it reads as zeros afterwards and its slots are freed where whole extents are covered.
    Discard,
    /// The range reads as zeros afterwards. `keep`: space must stay allocated (NBD `NO_HOLE`).
    WriteZeroes {
        /// Write real zeros instead of freeing.
        keep: bool,
    },
}

/// Set in [`Request::class`] by who looks at a volume from inside (classifiers): policies do not hear of the access, and it is in
/// no count of hits.
pub const QUIET: u8 = 0x80;

/// One request. `offset` and `len` of reads and writes may be odd: the engine aligns (read-modify-write, serialised per
/// block). A discard covers the whole blocks inside. Write-zeroes must be whole blocks: front ends write odd edges as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The caller's name for it.
    pub tag: Tag,
    /// What to do.
    pub op: RequestOp,
    /// First byte.
    pub offset: u64,
    /// Bytes, at most 32 MiB for reads and writes; 0 for a flush.
    pub len: u32,
    /// Force unit access: durable before the reply.
    pub fua: bool,
    /// What kind of data it carries, 0…63 (0 = unclassified).
    pub class: u8,
}

/// Why an operation or request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoError {
    /// The device reported an error (`EIO`).
    Io,
    /// No slot left (`ENOSPC`).
    NoSpace,
    /// Out of the volume's range, or an impossible length (`EINVAL`).
    Invalid,
    /// The volume serves reads only (`EROFS`).
    ReadOnly,
    /// The device is gone (`ENODEV`).
    Gone,
}

/// What a device is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Read `len` bytes.
    Read,
    /// Write `len` bytes.
    Write,
    /// Make completed writes durable.
    Flush,
    /// Tell the device that the range is unused. Advice only: contents afterwards are undefined.
    Discard,
    /// Write zeros over the range.
    WriteZeroes,
    /// Spin down (power saving); the next access wakes the device.
    Standby,
}

/// Which memory an operation uses. The engine names buffers; the world owns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufRef {
    /// No data.
    None,
    /// The request's buffer. `offset` counts from the request's start *rounded down to the logical block*: for an odd
    /// request the world provides a bounce buffer that covers the aligned range.
    Request {
        /// Whose buffer.
        tag: Tag,
        /// Bytes into the aligned buffer.
        offset: u32,
    },
    /// Extent-sized move buffer number `index`; `offset` bytes into it.
    Move {
        /// Which move buffer.
        index: u16,
        /// Bytes into it.
        offset: u32,
    },
    /// Metadata that the engine encoded: [`crate::Engine::meta`] gives the bytes while the op is in flight.
    Meta,
}

/// One operation on one member device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOp {
    /// The engine's name for it.
    pub id: OpId,
    /// Which device.
    pub member: MemberId,
    /// What to do.
    pub kind: OpKind,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// Memory.
    pub buf: BufRef,
    /// Durable at completion (`RWF_DSYNC`).
    pub fua: bool,
}

/// What the engine wants done, in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start a device operation.
    Start(DeviceOp),
    /// Fill part of a read's buffer with zeros (unwritten data).
    Zero {
        /// Whose buffer.
        tag: Tag,
        /// Bytes into the aligned buffer.
        offset: u32,
        /// Bytes.
        len: u32,
    },
    /// Copy from a move's buffer to a request's (a read served from RAM, GreenDM 6.1.3).
    CopyFromMove {
        /// Which move buffer.
        index: u16,
        /// Bytes into it.
        from: u32,
        /// Whose buffer.
        tag: Tag,
        /// Bytes into the aligned buffer.
        to: u32,
        /// Bytes.
        len: u32,
    },
    /// An odd write's edge blocks are in its bounce buffer: lay the payload over them.
    Patch {
        /// Whose buffer.
        tag: Tag,
    },
    /// The request ended. Data of a successful read is in its buffer.
    Reply {
        /// Which request.
        tag: Tag,
        /// How it ended.
        result: Result<(), IoError>,
    },
}

/// What happens to the engine from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request arrived.
    Arrived(Request),
    /// A device operation ended: bytes transferred (may be short) or an error.
    Finished {
        /// Which operation.
        id: OpId,
        /// How it ended.
        result: Result<u32, IoError>,
    },
    /// No more requests will come: drain, checkpoint, end.
    Closed,
}

/// Everything the engine is not: clock, devices, buffers, clients. Lab, live and fault tests differ only here.
pub trait World {
    /// Engine time now.
    fn now(&self) -> Nanos;
    /// Block (or jump) until `until` or until something happened, and append what happened.
    fn wait(&mut self, until: Option<Nanos>, events: &mut alloc::vec::Vec<Event>);
    /// Carry out one effect. `meta` holds the bytes of a [`BufRef::Meta`] write, else it is empty.
    fn carry_out(&mut self, effect: &Effect, meta: &[u8]);
}
