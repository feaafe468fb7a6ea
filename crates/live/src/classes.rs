//! The classes of the data on a served volume: kept current on other threads, looked up on the engine's thread.
//!
//! ```text
//!  LayoutWatcher: layout, refreshed by what was written ─┐
//!  control: files, databases, ranges ────────────────────┴─► Layers ─ settle ─► ClassMap ◄─ every request (requests.rs)
//!                                                                        └─► extents: Engine::reclassify
//! ```
//!
//! Invariant: this module changes no data, and requests never wait for it.

use crate::inbox::Done;
use crate::port::{Buffer, Completion, IoRequest, Port};
use crate::server::Handle;
use isotherm_classify::classes::JOURNAL;
use isotherm_classify::ext::Bytes;
use isotherm_classify::layout::Looks;
use isotherm_classify::{ClassMap, Classifier, Layers, Layout, Source, Watch};
use isotherm_core::ExtentId;
use isotherm_core::io::QUIET;
use isotherm_core::policy::is_metadata;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

/// Work of one step of settling, in runs of blocks: a few milliseconds.
const SETTLE: u64 = 1 << 14;
/// Number of extents that are reclassified in one call on the engine's thread: well under a millisecond.
const BATCH: usize = 256;
/// Delay between the end of a write of metadata and the examination of it, so that a burst of writes is examined once.
const SETTLE_DELAY: Duration = Duration::from_millis(300);
/// Interval at which the keeper checks whether anything was written.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The classes have room for four times the size of the volume and this number of bytes, so that it can grow while it is served. It costs 16
/// bytes per GiB for each source in use. What is beyond it has no classes until the next start.
const ROOM: u64 = 1 << 38;

/// The classes of the data in an extent.
#[derive(Clone, Debug)]
pub struct Reclassified {
    /// The extent.
    pub extent: ExtentId,
    /// The best class of its blocks.
    pub class: u8,
    /// Number of pieces of 4 KiB and their class, from the first piece on.
    pub runs: Vec<(u32, u8)>,
}

/// The classes of one volume, shared by all sources.
pub struct Classes {
    layers: Mutex<Layers>,
    map: Arc<ClassMap>,
    watch: Arc<Watch>,
    layout: Mutex<Layout>,
    /// Held by [`Classes::settle`], so that extents are reclassified in order.
    settling: Mutex<()>,
}

/// Kinds of file systems whose layout is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// ext2, ext3, ext4.
    Ext,
    /// XFS.
    Xfs,
}

/// Kind, first byte, bytes, bytes in a block.
pub type FileSystem = (FileSystemKind, u64, u64, u32);

fn locked<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Classes {
    pub(crate) fn new(bytes: u64) -> Classes {
        let layers = Layers::with_room(bytes, bytes.saturating_mul(4).saturating_add(ROOM));
        Classes {
            map: Arc::clone(layers.shared()),
            layers: Mutex::new(layers),
            watch: Arc::default(),
            layout: Mutex::default(),
            settling: Mutex::default(),
        }
    }

    /// The volume has `bytes` now. Must not be called on the engine's thread, because the lock may be held by one who waits for it.
    pub(crate) fn grow(&self, bytes: u64) {
        self.layers().grow(bytes);
    }

    /// The engine's side.
    pub(crate) fn classifier(&self, extent_shift: u32) -> Classifier {
        Classifier::new(Arc::clone(&self.map), Arc::clone(&self.watch), extent_shift)
    }

    /// The resulting class of each block.
    pub fn map(&self) -> &Arc<ClassMap> {
        &self.map
    }

    /// The classes from each source. Call [`Classes::settle`] after a change.
    pub fn layers(&self) -> MutexGuard<'_, Layers> {
        locked(&self.layers)
    }

    /// Memory of all of it, in bytes.
    pub fn memory(&self) -> usize {
        self.layers().memory() + locked(&self.layout).memory()
    }

    /// The file systems that were found: the number of examinations, the last error, and for each its kind, first byte, size and block
    /// size.
    pub fn file_systems(&self) -> (Looks, Option<String>, Vec<FileSystem>) {
        let layout = locked(&self.layout);
        let ext = layout.file_systems().iter();
        let ext = ext.map(|e| {
            (
                FileSystemKind::Ext,
                e.start(),
                e.bytes(),
                1 << e.superblock().block_shift,
            )
        });
        let xfs = layout.xfs().iter();
        let xfs = xfs.map(|x| {
            (
                FileSystemKind::Xfs,
                x.start(),
                x.bytes(),
                1 << x.superblock().block_shift,
            )
        });
        let (looks, trouble) = (layout.looks, layout.trouble.clone());
        (looks, trouble, ext.chain(xfs).collect())
    }

    /// Updates the map from the sources, and reclassifies extents in the engine. Returns false if the volume is closed.
    pub fn settle(&self, handle: &Handle) -> bool {
        let _one = locked(&self.settling);
        loop {
            let (changed, settled) = {
                let mut layers = self.layers();
                let changed = layers.settle(SETTLE);
                (changed, layers.is_settled())
            };
            if !self.tell(handle, &changed) {
                return false;
            }
            if settled {
                return true;
            }
        }
    }

    fn tell(&self, handle: &Handle, changed: &[Range<u64>]) -> bool {
        let shift = handle.extent_shift();
        let mut extents: Vec<u64> = (changed.iter())
            .flat_map(|r| r.start >> shift..=(r.end - 1) >> shift)
            .collect();
        extents.sort_unstable();
        extents.dedup();
        for some in extents.chunks(BATCH) {
            let news = some.iter().map(|&e| self.of_extent(e, shift)).collect();
            if handle
                .call(move |_, world| world.reclassify(news))
                .is_none()
            {
                return false;
            }
        }
        true
    }

    /// The classes of the blocks of an extent of 2^`shift` bytes.
    fn of_extent(&self, extent: u64, shift: u32) -> Reclassified {
        let (from, to) = (extent << shift >> 12, (extent + 1) << shift >> 12);
        let mut runs: Vec<(u32, u8)> = Vec::new();
        let mut at = from;
        while at < to {
            let (mark, n) = self.map.run(at, to - at);
            match runs.last_mut() {
                Some(last) if last.1 == mark.class() => last.0 += n as u32,
                _ => runs.push((n as u32, mark.class())),
            }
            at += n;
        }
        Reclassified {
            extent: ExtentId(extent as u32),
            class: self.map.of(extent << shift, 1 << shift).mark.class(),
            runs,
        }
    }

    /// Calls `each` with the byte ranges of the volume, in order, that have a class for which `is_one` is true.
    pub fn ranges_of(&self, is_one: impl Fn(u8) -> bool, mut each: impl FnMut(Range<u64>)) {
        let (mut at, end) = (0, self.map.blocks());
        while at < end {
            let (mark, n) = self.map.run(at, end - at);
            if is_one(mark.class()) {
                each(at << 12..(at + n) << 12);
            }
            at += n;
        }
    }

    /// Calls `each` with the byte ranges, in order, of the metadata of the volume's file systems, as it is now on the volume: without journals,
    /// which nobody reads, and without inodes that were never used.
    ///
    /// # Errors
    /// The volume is closed.
    pub fn metadata(&self, handle: &Handle, mut each: impl FnMut(Range<u64>)) -> io::Result<()> {
        self.examine(handle, false)?;
        let unused = locked(&self.layout).unused_inodes();
        let mut unused = unused.iter().peekable();
        let is_read = |class| is_metadata(class) && class != JOURNAL;
        self.ranges_of(is_read, |bytes| {
            let mut from = bytes.start;
            while let Some(gap) = unused.next_if(|u| u.end <= bytes.end) {
                if from < gap.start {
                    each(from..gap.start.min(bytes.end));
                }
                from = from.max(gap.end);
            }
            let end = unused.peek().map_or(bytes.end, |u| u.start.min(bytes.end));
            if from < end {
                each(from..end);
            }
        });
        Ok(())
    }

    /// Examines the volume's file systems: the written metadata, or with `all` everything.
    ///
    /// # Errors
    /// The volume is closed.
    pub fn examine(&self, handle: &Handle, all: bool) -> io::Result<()> {
        let mut volume = Volume(handle);
        let mut layout = locked(&self.layout);
        let written = self.watch.take();
        let written = written.as_deref().filter(|_| !all);
        // Reading may take long. Other sources wait for this lock meanwhile; requests do not.
        let mut layers = self.layers();
        layout.refresh(&mut volume, &mut layers, &self.watch, written);
        drop((layout, layers));
        if self.settle(handle) {
            Ok(())
        } else {
            Err(io::ErrorKind::NotConnected.into())
        }
    }
}

/// The bytes of the volume as users see them; policies do not see these reads.
struct Volume<'a>(&'a Handle);

impl Bytes for Volume<'_> {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let (send, receive) = mpsc::sync_channel(1);
        let done = move |result, buffer: Option<Buffer>| {
            // The receiver may have gone.
            let _ = send.send((result, buffer));
        };
        let len = buf.len() as u32;
        // Memory of its own, because the pools are for clients.
        let buffer = Buffer::new(offset, len, self.0.engine_block());
        self.0.hand_over(
            IoRequest::read(offset, len, buffer).in_class(QUIET),
            Done::Call(Completion::new(done)),
        );
        match receive.recv() {
            Ok((Ok(()), Some(buffer))) => {
                buf.copy_from_slice(&buffer);
                Ok(())
            }
            Ok((Err(e), _)) => Err(io::Error::other(format!("{e:?}"))),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// The thread that keeps the layout current. It ends when the value is dropped.
pub struct LayoutWatcher {
    stop: Arc<(AtomicBool, Mutex<()>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl LayoutWatcher {
    /// Looks for file systems on a served volume, and follows their changes.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(handle: Handle) -> io::Result<LayoutWatcher> {
        let stop = Arc::new((AtomicBool::new(false), Mutex::new(()), Condvar::new()));
        let flag = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("isotherm-class".into())
            .spawn(move || keep(&handle, &flag))?;
        Ok(LayoutWatcher {
            stop,
            thread: Some(thread),
        })
    }
}

fn keep(handle: &Handle, stop: &(AtomicBool, Mutex<()>, Condvar)) {
    let classes = handle.classes();
    let pause = |time| {
        let lock = locked(&stop.1);
        let is_on = |(): &mut ()| !stop.0.load(Ordering::Relaxed);
        drop(stop.2.wait_timeout_while(lock, time, is_on));
        !stop.0.load(Ordering::Relaxed)
    };
    let is_on = || classes.layers().is_on(Source::Layout);
    let mut first = true;
    loop {
        if is_on() && (first || classes.watch.has_news()) {
            if !(first || pause(SETTLE_DELAY)) {
                return;
            }
            if classes.examine(handle, first).is_err() {
                return;
            }
            first = false;
        }
        if !pause(CHECK_INTERVAL) {
            return;
        }
    }
}

impl Drop for LayoutWatcher {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Relaxed);
        drop(locked(&self.stop.1));
        self.stop.2.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported already; only the classes are less current.
            let _ = thread.join();
        }
    }
}
