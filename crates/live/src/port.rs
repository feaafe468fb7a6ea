//! The only interface between a front end and the volume.

pub use crate::buffers::{ALIGNMENT, Buffer, Pool};
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

    /// The request has ended.
    pub fn call(mut self, result: Result<(), IoError>, buffer: Option<Buffer>) {
        (self.0)(result, buffer);
    }
}

/// The interface through which front ends pass requests to the engine's thread.
pub trait Port: Send + Sync {
    /// Size of the volume in bytes; fixed while it is served.
    fn volume_bytes(&self) -> u64;
    /// The logical block in bytes, a power of two from 512 to 4096.
    fn block_bytes(&self) -> u32;
    /// Whether writes are refused.
    fn read_only(&self) -> bool;
    /// A buffer for `len` bytes at `offset`; blocks while memory is short. Covers the range rounded out to logical
    /// blocks inside, but derefs to exactly the payload.
    fn buffer(&self, offset: u64, len: u32) -> Buffer;
    /// A share of the memory for one peer, whose buffers come from it instead of [`Port::buffer`]. `None`: the port has nothing
    /// to share out.
    fn share(&self) -> Option<Arc<Share>> {
        None
    }
    /// Submits a request. `done` is called on the engine's thread with the buffer, and must not block for long.
    #[allow(clippy::too_many_arguments)]
    fn submit(
        &self,
        op: RequestOp,
        offset: u64,
        len: u32,
        fua: bool,
        class: u8,
        buf: Option<Buffer>,
        done: Completion,
    );
    /// Allocation status of a range: (length, mapped) runs starting at offset, at most `max` runs. May take a moment.
    fn block_status(&self, offset: u64, len: u32, max: usize) -> Vec<(u32, bool)>;
}
