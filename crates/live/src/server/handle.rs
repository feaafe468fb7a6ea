//! Access to a served volume from any thread.

use super::VolumeFailure;
use crate::buffers::{Buffer, Pool};
use crate::classes::Classes;
use crate::config::VolumeConfig;
use crate::copying::{State as Copying, Step};
use crate::error::{Error, ErrorKind};
use crate::inbox::{Done, Inbox, Submission};
use crate::loss::Listed;
use crate::port::{Completion, IoRequest, Port, Share};
use crate::recorder::{Driver, Recording};
use crate::reopen::Purpose;
use crate::vitals::{Board, Vitals};
use crate::volume::grow::Grows;
use crate::volume::{FlashAsk, FlashChanged, FormerFlash, Grown, NotChanged, ReplaceHow, Replaced};
use crate::world::{Command, UringWorld};
use crate::zeroing::{self, Join};
use isotherm_core::{Engine, ExtentId, IoError, MemberId, RequestOp};
use isotherm_events::Ending;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};

/// Access to a served volume from any thread.
#[derive(Clone)]
pub struct Handle {
    pub(super) inbox: Arc<Inbox<Command>>,
    pub(super) pool: Arc<Pool>,
    /// See [`crate::buffers::Arena::file`].
    pub(super) file: Arc<Pool>,
    pub(super) classes: Arc<Classes>,
    pub(super) extent_shift: u32,
    pub(super) failure: Arc<OnceLock<VolumeFailure>>,
    /// Members that the volume went on without, one bit each.
    pub(super) left_out: Arc<AtomicU32>,
    /// What was lost with flash and is listed, as of a second ago.
    pub(super) listed: Arc<Mutex<Listed>>,
    /// The copy of a member that is being replaced.
    pub(super) copying: Arc<Mutex<Option<Arc<Copying>>>>,
    pub(crate) vitals: Arc<Board>,
    /// Size of the volume, which changes if it grows.
    pub(super) volume_bytes: Arc<AtomicU64>,
    /// See [`Port::engine_block`].
    pub(super) block: u32,
    /// See [`Port::block_bytes`].
    pub(super) logical_block: u32,
    pub(super) read_only: bool,
    /// See [`Port::discards_to_zeros`].
    pub(super) zeros: bool,
}

impl Handle {
    /// Runs `f` on the engine's thread between events and waits for the result. `None` if the volume is closed. Must not be called from a
    /// completion, because it would wait for itself.
    pub fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Driver, &mut UringWorld) -> R + Send + 'static,
    ) -> Option<R> {
        let (send, receive) = mpsc::sync_channel(1);
        let command: Command = Box::new(move |engine, world| {
            // The caller may have stopped waiting; then the answer is not needed.
            let _ = send.send(f(engine, world));
        });
        self.inbox.command(command).then(|| receive.recv().ok())?
    }

    /// Runs `f` on the engine's thread between events, without waiting for it. Does nothing if the volume is closed.
    pub(crate) fn post(&self, f: impl FnOnce() + Send + 'static) {
        self.inbox.command(Box::new(|_, _| f()));
    }

    /// Begins to record all calls of the engine and its decisions. The engine is opened again for this (see `reopen.rs`): requests wait as
    /// long as recovery takes.
    ///
    /// # Errors
    /// A recording is in progress, or the volume is closing or has failed; or it could not be opened again, and its clients have lost it
    /// until it is served again.
    pub fn record_events(&self) -> Result<Recording, Error> {
        self.reopen(Purpose::Record)
    }

    /// Lets the volume grow to the present size of the devices of its slowest tier. The engine is closed meanwhile (see `reopen.rs`):
    /// requests wait as long as the growth and recovery take. `file` is the description, for errors; its sizes are left to the caller.
    ///
    /// # Errors
    /// As for [`crate::Volume::grow`]; also, the volume is read-only, being recorded, closing, or has failed. Its clients go on in all
    /// cases but one: if it could not be opened again, they have lost it until it is served again.
    pub fn grow(&self, file: &Path) -> Result<Grown, Error> {
        let (what, file) = (Grows::Volume, file.to_owned());
        let grown = self.reopen(move |tell| Purpose::Grow { what, file, tell });
        // A failed growth may have gone so far that the volume has its new size.
        self.classes.grow(self.volume_bytes());
        grown
    }

    /// Lets the flash of a cache volume be used in its present size; what it holds stays. The engine is closed meanwhile, as for
    /// [`Handle::grow`].
    ///
    /// # Errors
    /// As for [`crate::Volume::grow_flash`] and [`Handle::grow`].
    pub fn grow_flash(&self, file: &Path) -> Result<Grown, Error> {
        let (what, file) = (Grows::Flash, file.to_owned());
        self.reopen(move |tell| Purpose::Grow { what, file, tell })
    }

    /// Replaces a member of the volume by `new`: see [`Handle::begin_replace`]. Returns when this is done, which may take as long as a copy of
    /// the member.
    ///
    /// # Errors
    /// As for [`Handle::begin_replace`], [`crate::copying::Begun::copy`] and [`crate::copying::Begun::switch`].
    pub fn replace(
        &self,
        description: (&VolumeConfig, &Path),
        new: &Path,
        how: &ReplaceHow,
    ) -> Result<Replaced, Error> {
        let mut begun = self.begin_replace(description, new, how, None)?;
        loop {
            begun.copy()?;
            match begun.switch()? {
                Step::Done(made) => return Ok(*made),
                Step::Later(same) => begun = *same,
            }
        }
    }

    /// The copy of a member that is in progress.
    pub(crate) fn copying(&self) -> Option<Arc<Copying>> {
        let copying = self.copying.lock();
        copying.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A copy of a member begins.
    pub(crate) fn set_copying(&self, state: &Arc<Copying>) {
        let mut copying = self.copying.lock().unwrap_or_else(PoisonError::into_inner);
        *copying = Some(Arc::clone(state));
    }

    /// This copy has ended.
    pub(crate) fn forget_copying(&self, state: &Arc<Copying>) {
        let mut copying = self.copying.lock().unwrap_or_else(PoisonError::into_inner);
        copying.take_if(|s| Arc::ptr_eq(s, state));
    }

    /// Takes the flash out of the volume, whose dirty data must be at home. The engine is closed meanwhile (see `reopen.rs`). The caller must
    /// change the description ([`FormerFlash::describe`]), and then erase the devices.
    ///
    /// # Errors
    /// As for [`crate::Volume::remove_flash`] and [`Handle::grow`]; also, data is dirty.
    pub fn remove_flash(&self, file: &Path) -> Result<FormerFlash, Error> {
        let file = file.to_owned();
        self.reopen(move |tell| Purpose::RemoveFlash { file, tell })
    }

    /// Lets a flash device join a cache volume, or one of several leave it; of one that leaves, dirty data must be at home. The engine is closed
    /// meanwhile (see `reopen.rs`). The caller changes the description ([`FlashAsk::describe`]), and erases a device that has left.
    ///
    /// # Errors
    /// As for [`crate::Volume::add_flash`] and [`Handle::grow`]; also, data is dirty.
    pub fn change_flash(&self, ask: FlashAsk) -> Result<FlashChanged, NotChanged> {
        let ask = Box::new(ask);
        self.reopen(move |tell| Purpose::ChangeFlash { ask, tell })
    }

    /// No member is missing any more.
    pub(crate) fn all_are_there(&self) {
        self.left_out.store(0, Ordering::Release);
    }

    /// The volume has this size from now on.
    pub(crate) fn set_volume_bytes(&self, bytes: u64) {
        self.volume_bytes.store(bytes, Ordering::Release);
    }

    /// The volume goes on without these members.
    pub(crate) fn leave_out(&self, members: &[MemberId]) {
        let bits = members.iter().fold(0, |all, m| all | 1 << m.0);
        self.left_out.fetch_or(bits, Ordering::AcqRel);
    }

    /// This member was replaced.
    pub(crate) fn is_back(&self, place: usize) {
        self.left_out.fetch_and(!(1 << place), Ordering::AcqRel);
    }

    /// The places of flash without which the volume goes on, for good: it failed while the volume was served, or was missing at the start.
    pub fn left_out(&self) -> impl Iterator<Item = u8> + use<> {
        let bits = self.left_out.load(Ordering::Acquire);
        (0..32).filter(move |i| bits >> i & 1 == 1)
    }

    /// What was lost with flash and is listed, as of a second ago or of the last request. Does not ask the engine's thread.
    pub fn listed(&self) -> Listed {
        self.listed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn set_listed(&self, listed: Listed) {
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = listed;
    }

    /// Asks the engine's thread to close the engine and open it again, and waits for the outcome.
    pub(crate) fn reopen<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        purpose: impl FnOnce(SyncSender<Result<T, E>>) -> Purpose,
    ) -> Result<T, E> {
        let closing = || Error::new(ErrorKind::Volume, "the volume is closing");
        let (tell, told) = mpsc::sync_channel(1);
        let purpose = purpose(tell);
        self.call(move |driver, _| driver.request(purpose))
            .ok_or_else(closing)?;
        told.recv().map_err(|_| closing())?
    }

    /// Ends the recording, if there is one; its writer gets the remaining events.
    pub fn end_events(&self) {
        // If the volume is closed, the recording has ended already.
        let _ = self.call(|driver, _| driver.end_recording(Ending::Asked));
    }

    /// The reason why the volume has failed, if it has: writes are refused from then on until it is served again.
    pub fn failure(&self) -> Option<&VolumeFailure> {
        self.failure.get()
    }

    /// What the members have answered lately. Does not ask the engine's thread.
    pub fn vitals(&self) -> Vitals {
        self.vitals.seen()
    }

    /// Memory of requests that is in use, in bytes.
    pub fn buffer_bytes_out(&self) -> usize {
        self.pool.bytes_out()
    }

    /// Whether there is memory for a request of the block file of `len` bytes without waiting.
    pub fn has_memory(&self, len: u32) -> bool {
        let bytes = len as usize + 2 * self.block as usize;
        self.pool.has(bytes) || self.file.has(bytes)
    }

    /// The classes of the volume's data.
    pub fn classes(&self) -> &Arc<Classes> {
        &self.classes
    }

    /// Bytes in an extent, as a power of two.
    pub fn extent_shift(&self) -> u32 {
        self.extent_shift
    }

    pub(crate) fn hand_over(&self, request: IoRequest, done: Done) {
        if let Err(s) = self.inbox.push(Submission { request, done }) {
            s.refuse(IoError::Gone);
        }
    }
}

impl Port for Handle {
    fn volume_bytes(&self) -> u64 {
        self.volume_bytes.load(Ordering::Acquire)
    }

    fn block_bytes(&self) -> u32 {
        self.logical_block
    }

    fn engine_block(&self) -> u32 {
        self.block
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn discards_to_zeros(&self) -> bool {
        self.zeros
    }

    fn buffer(&self, offset: u64, len: u32) -> Buffer {
        if self.inbox.on_own_thread() {
            // The engine's thread must not wait for itself. The block file checks for memory before it takes a request, so memory outside
            // the pools is rarely needed. (Connections have shares.)
            let bytes = crate::buffers::cover(offset, len, self.block).1;
            let memory = self.pool.get_if_idle(bytes);
            let memory = memory.unwrap_or_else(|| self.file.get_now(bytes));
            return Buffer::over(memory, offset, len, self.block);
        }
        self.pool.buffer(offset, len, self.block)
    }

    fn share(&self) -> Option<Arc<Share>> {
        Some(Share::of(&self.pool))
    }

    fn submit(&self, request: IoRequest, done: Completion) {
        let end = request.offset.checked_add(request.len.into());
        let inside = end.filter(|end| *end <= self.volume_bytes());
        let range = request.offset..inside.unwrap_or(request.offset);
        let parts: Vec<_> =
            zeroing::parts(request.op, range, (self.block, self.logical_block)).collect();
        if parts.is_empty() {
            return self.hand_over(request, Done::Call(done));
        }
        let join = Join::new(parts.len(), done);
        for (op, range) in parts {
            let (offset, len) = (range.start, (range.end - range.start) as u32);
            // The memory is not from the pool: this call must not wait for the pool, because its caller may hold some of it.
            let buffer = (op == RequestOp::Write).then(|| Buffer::new(offset, len, self.block));
            let part = IoRequest::new(op, offset, len).with_buffer(buffer);
            let part = part.with_fua(request.fua).in_class(request.class);
            self.hand_over(part, Done::Call(join.one()));
        }
    }

    fn block_status(&self, offset: u64, len: u32, max: usize) -> Vec<(u32, bool)> {
        let end = offset
            .saturating_add(u64::from(len))
            .min(self.volume_bytes());
        self.call(move |engine, _| runs(engine, offset, end, max))
            .unwrap_or_default()
    }
}

/// The mapped and unmapped parts of `from..end`.
fn runs(engine: &Engine, from: u64, end: u64, max: usize) -> Vec<(u32, bool)> {
    let space = engine.space();
    let (shift, block_shift) = (space.geo.extent_shift, space.geo.block_shift);
    let mut out: Vec<(u32, bool)> = Vec::new();
    let mut at = from;
    while at < end {
        let e = ExtentId((at >> shift) as u32);
        let base = u64::from(e.0) << shift;
        let stop = end.min(base + (1 << shift));
        let b = ((at - base) >> block_shift) as u32;
        let (n, mapped) = space.map.data_run(e, b, 1 << (shift - block_shift));
        let to = stop.min(base + (u64::from(b + n) << block_shift));
        let len = (to - at) as u32;
        let full = out.len() == max;
        match out.last_mut() {
            Some(last) if last.1 == mapped => last.0 += len,
            _ if full => break,
            _ => out.push((len, mapped)),
        }
        at = to;
    }
    out
}
