//! Requests of front ends to the volume: what they carry, how they end, and the port that takes them.

pub use crate::buffers::{ALIGNMENT, Buffer, Pool};
use crate::pages::Pages;
pub use crate::shares::Share;
use isotherm_core::{IoError, RequestOp};
use smallbox::space::S8;
use smallbox::{SmallBox, smallbox};
use std::sync::Arc;

/// Callback that is called once at the end of a request, on the engine's thread, with the request's buffer. It must not block for long.
///
/// Holds closures of up to 56 bytes in place; larger ones are boxed.
pub struct Completion(SmallBox<Ending, S8>);

type Ending = dyn FnMut(Result<(), IoError>, Option<Buffer>) + Send;

impl Completion {
    /// Calls `f` at the end.
    pub fn new(f: impl FnOnce(Result<(), IoError>, Option<Buffer>) + Send + 'static) -> Completion {
        let mut f = Some(f);
        Completion(smallbox!(move |result, buffer| {
            if let Some(f) = f.take() {
                f(result, buffer);
            }
        }))
    }

    /// Reports that the request has ended.
    pub fn call(mut self, result: Result<(), IoError>, buffer: Option<Buffer>) {
        (self.0)(result, buffer);
    }
}

/// A request of a front end.
pub struct IoRequest {
    /// The operation.
    pub op: RequestOp,
    /// First byte.
    pub offset: u64,
    /// Bytes; of any alignment. `0` for a flush.
    pub len: u32,
    /// Durable before the reply.
    pub fua: bool,
    /// The kind of data, 0…63; 0 if the front end does not know it.
    pub class: u8,
    /// The payload of a write, or the memory for the payload of a read; from [`Port::buffer`] or a [`Share`].
    pub buffer: Option<Buffer>,
    /// The memory of the payload in place of `buffer`, if it stays in the kernel: for whole blocks only, and from sources on the engine's
    /// own thread.
    pub pages: Option<Pages>,
}

impl IoRequest {
    /// A request without payload, FUA or class.
    pub fn new(op: RequestOp, offset: u64, len: u32) -> IoRequest {
        IoRequest {
            op,
            offset,
            len,
            fua: false,
            class: 0,
            buffer: None,
            pages: None,
        }
    }

    /// Everything that was answered before becomes durable.
    pub fn flush() -> IoRequest {
        IoRequest::new(RequestOp::Flush, 0, 0)
    }

    /// The same request with this payload.
    #[must_use]
    pub fn with_buffer(self, buffer: Option<Buffer>) -> IoRequest {
        IoRequest { buffer, ..self }
    }

    /// The same request with its payload in these pages.
    #[must_use]
    pub(crate) fn with_pages(self, pages: Option<Pages>) -> IoRequest {
        IoRequest { pages, ..self }
    }

    /// Reads `len` bytes at `offset` into `buffer`, which was made for this range.
    pub fn read(offset: u64, len: u32, buffer: Buffer) -> IoRequest {
        IoRequest::new(RequestOp::Read, offset, len).with_buffer(Some(buffer))
    }

    /// Writes `len` bytes at `offset` from `buffer`, which was made for this range.
    pub fn write(offset: u64, len: u32, buffer: Buffer) -> IoRequest {
        IoRequest::new(RequestOp::Write, offset, len).with_buffer(Some(buffer))
    }

    /// The same request, durable before the reply if `fua`.
    #[must_use]
    pub fn with_fua(self, fua: bool) -> IoRequest {
        IoRequest { fua, ..self }
    }

    /// The same request for data of this class.
    #[must_use]
    pub fn in_class(self, class: u8) -> IoRequest {
        IoRequest { class, ..self }
    }
}

/// Takes the requests of front ends, on any thread: those of sockets have threads of their own, and ublk and the block file pass most of theirs
/// on the engine's thread.
pub trait Port: Send + Sync {
    /// Size of the volume in bytes; fixed while it is served.
    fn volume_bytes(&self) -> u64;
    /// The logical block in bytes, a power of two from 512 to 4096.
    fn block_bytes(&self) -> u32;
    /// The block of the engine in bytes, a logical block or a larger power of two: the memory of a [`Buffer`] covers whole ones, and writes of
    /// a part of one are read-modify-write.
    fn engine_block(&self) -> u32 {
        self.block_bytes()
    }
    /// Whether writes are refused.
    fn read_only(&self) -> bool;
    /// Whether discarded blocks read as zeros, as in a tiering volume. In a cache volume nothing is promised about them until they are written.
    fn discards_to_zeros(&self) -> bool {
        true
    }
    /// A buffer for `len` bytes at `offset`; blocks while memory is short. Its memory covers the range rounded out to blocks of the engine, but
    /// it derefs to exactly the payload.
    fn buffer(&self, offset: u64, len: u32) -> Buffer;
    /// A share of the memory for one peer, whose buffers come from it instead of [`Port::buffer`]. `None`: the port has nothing
    /// to share out.
    fn share(&self) -> Option<Arc<Share>> {
        None
    }
    /// Submits a request. `done` is called on the engine's thread with the buffer, and must not block for long.
    fn submit(&self, request: IoRequest, done: Completion);
    /// Allocation status of a range: (length, mapped) runs starting at offset, at most `max` runs. May take a moment.
    fn block_status(&self, offset: u64, len: u32, max: usize) -> Vec<(u32, bool)>;
}

/// A port that passes requests to another port, and reads or changes some of them on the way. All other calls go to the port below.
pub trait Layer: Send + Sync {
    /// The port below.
    fn below(&self) -> &dyn Port;
    /// Takes the place of [`Port::submit`].
    fn submit(&self, request: IoRequest, done: Completion);
}

impl<T: Layer> Port for T {
    fn volume_bytes(&self) -> u64 {
        self.below().volume_bytes()
    }
    fn block_bytes(&self) -> u32 {
        self.below().block_bytes()
    }
    fn engine_block(&self) -> u32 {
        self.below().engine_block()
    }
    fn read_only(&self) -> bool {
        self.below().read_only()
    }
    fn discards_to_zeros(&self) -> bool {
        self.below().discards_to_zeros()
    }
    fn buffer(&self, offset: u64, len: u32) -> Buffer {
        self.below().buffer(offset, len)
    }
    fn share(&self) -> Option<Arc<Share>> {
        self.below().share()
    }
    fn submit(&self, request: IoRequest, done: Completion) {
        Layer::submit(self, request, done);
    }
    fn block_status(&self, offset: u64, len: u32, max: usize) -> Vec<(u32, bool)> {
        self.below().block_status(offset, len, max)
    }
}
