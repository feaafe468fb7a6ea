//! The frequent calls, each once: how a read, a write or an fsync becomes a request to the port, and its end an answer. What carries them,
//! `/dev/fuse` (`pump.rs`) or the engine's ring (`ring.rs`), is a [`Carrier`]. All other calls are fuser's, with `serve.rs`.

use isotherm_core::IoError;
use rustix::io::Errno;

use super::O_DSYNC;
use super::wire::{Call, Range, write_out};
use crate::mutants::{LiveMutant, broken};
use crate::port::{Buffer, Completion, IoRequest, Port};

/// One request on its way: where its payload lies, and how it is answered. If it is dropped without an answer (a port that loses a
/// completion), it answers `EIO`, because a caller must never wait for ever.
pub(super) trait Carrier: Send + Sized + 'static {
    /// A buffer over memory of its own for this range of the file, which holds the payload of a write; `None` if it has none that suits.
    fn lend(&self, offset: u64, bytes: u32) -> Option<Buffer>;
    /// The answer is an error.
    fn fail(self, error: IoError);
    /// The answer is `payload`.
    fn answer(self, payload: &[u8]);
    /// The answer is the first `bytes` bytes of the memory that was lent.
    fn answer_from_lent(self, bytes: u32);
}

/// Starts a call. The payload of a write has `payload` bytes, of which `copy` copies the first into a buffer.
pub(super) fn start<C: Carrier>(
    port: &dyn Port,
    call: Call,
    carrier: C,
    payload: usize,
    copy: impl FnOnce(&C, &mut [u8]),
) {
    match call {
        Call::Read(range) => read(port, range, carrier),
        Call::Write(range) if range.bytes as usize == payload => write(port, range, carrier, copy),
        Call::Write(_) => carrier.fail(IoError::Invalid),
        Call::Fsync => fsync(port, carrier),
    }
}

/// Whether changes through a descriptor with these flags are durable before they are answered. `O_SYNC` contains `O_DSYNC`, and the kernel
/// adds it to a write with `RWF_DSYNC` or `RWF_SYNC`.
pub(super) fn is_durable(flags: i32) -> bool {
    flags & O_DSYNC != 0 && !broken(LiveMutant::DropDsyncFlag)
}

pub(super) fn errno(error: IoError) -> Errno {
    match error {
        IoError::Io => Errno::IO,
        IoError::NoSpace => Errno::NOSPC,
        IoError::Invalid => Errno::INVAL,
        IoError::ReadOnly => Errno::ROFS,
        IoError::Gone => Errno::NODEV,
    }
}

/// The number of bytes of the range inside the volume.
fn inside(port: &dyn Port, range: Range) -> u32 {
    let left = port.volume_bytes().saturating_sub(range.offset);
    u64::from(range.bytes).min(left) as u32
}

fn read(port: &dyn Port, range: Range, carrier: impl Carrier) {
    let (offset, len) = (range.offset, inside(port, range));
    if len == 0 {
        return carrier.answer(&[]);
    }
    let lent = carrier.lend(offset, len);
    let is_lent = lent.is_some();
    let buffer = lent.unwrap_or_else(|| port.buffer(offset, len));
    let done = move |result, buffer: Option<Buffer>| match (result, buffer) {
        (Ok(()), Some(_)) if is_lent => carrier.answer_from_lent(len),
        (Ok(()), Some(buffer)) => carrier.answer(&buffer),
        (Ok(()), None) => carrier.fail(IoError::Io),
        (Err(error), _) => carrier.fail(error),
    };
    port.submit(IoRequest::read(offset, len, buffer), Completion::new(done));
}

fn write<C: Carrier>(port: &dyn Port, range: Range, carrier: C, copy: impl FnOnce(&C, &mut [u8])) {
    let (offset, len) = (range.offset, inside(port, range));
    if port.read_only() {
        return carrier.fail(IoError::ReadOnly);
    }
    if len == 0 && range.bytes > 0 {
        return carrier.fail(IoError::NoSpace);
    }
    if len == 0 {
        return carrier.answer(&write_out(0));
    }
    let buffer = carrier.lend(offset, len).unwrap_or_else(|| {
        let mut buffer = port.buffer(offset, len);
        copy(&carrier, &mut buffer);
        buffer
    });
    let done = move |result, _buffer| match result {
        Ok(()) => carrier.answer(&write_out(len)),
        Err(error) => carrier.fail(error),
    };
    let request = IoRequest::write(offset, len, buffer).with_fua(is_durable(range.flags));
    port.submit(request, Completion::new(done));
}

/// `fsync` and `fdatasync`.
fn fsync(port: &dyn Port, carrier: impl Carrier) {
    let done = Completion::new(move |result, _buffer| match result {
        Ok(()) => carrier.answer(&[]),
        Err(error) => carrier.fail(error),
    });
    if broken(LiveMutant::AnswerFsync) {
        return done.call(Ok(()), None);
    }
    port.submit(IoRequest::flush(), done);
}
