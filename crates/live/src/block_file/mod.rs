//! The block file: a FUSE mount that shows the volume as one file.
//!
//! `losetup --direct-io=on --find --show DIR/NAME` makes it a block device on any Linux, without a kernel module of ours.
//! The file may also be used as it is (a disk image for a virtual machine, `dd conv=notrunc`, a database on raw space).
//!
//! # Life of a request
//!
//! The engine's thread reads it from `/dev/fuse` ([`Pump`]), takes a [`Buffer`](crate::port::Buffer), copies a write's payload into it and
//! submits it (`calls.rs`). It does not wait, so as many requests are in progress as the kernel sends. The reply is sent from the completion.
//! Directory and attribute requests, holes, and `lseek` for data and holes go to a session of fuser's, on a thread of its own (`serve.rs`).
//! If the kernel offers FUSE over io_uring and root has switched it on, requests come through the engine's own ring instead, and this program
//! copies no payload (`ring.rs`). [`mount`] has threads of its own in the place of the engine's.
//!
//! # Guarantees of the file
//!
//! | system call | volume |
//! |---|---|
//! | `fsync`, `fdatasync` | FLUSH |
//! | write with `O_DSYNC`, `O_SYNC`, `RWF_DSYNC` | write with FUA |
//! | `close` | no guarantee, as for a disk |
//! | `fallocate` `PUNCH_HOLE` | write zeros to any range of bytes, and give up its whole blocks |
//! | `fallocate` `ZERO_RANGE` | write zeros, space stays allocated |
//! | both, with `O_DSYNC` | write zeros with FUA |
//! | `lseek` `SEEK_DATA`, `SEEK_HOLE` | allocation status |
//! | read past the end | short |
//! | write past the end | short, `ENOSPC` if no byte fits |
//! | `truncate` to another size, `chmod`, `chown`, create, unlink, rename | `EPERM` |
//! | anything that changes a read-only volume | `EROFS` |
//!
//! The page cache is bypassed (`FOPEN_DIRECT_IO`): the volume is the only holder of its data, and a shared writable `mmap`
//! of the file is refused by the kernel.
//!
//! # No deadlock under memory pressure
//!
//! When memory is short, the kernel may wait until dirty pages of a file system on this volume are written, which needs this process. If
//! this process then waited for memory that the kernel frees by writing such pages, neither would continue. Therefore:
//! - the file's own pages are never dirty in the cache (direct I/O above, no writeback cache);
//! - all threads here are marked with `PR_SET_IO_FLUSHER`, so that their allocations and page faults never start I/O. This needs
//!   `CAP_SYS_RESOURCE`; without it there is no guarantee. The engine's thread should do the same with [`become_io_flusher`];
//! - a request needs no memory but the pump's buffer (made at mount), the port's pooled buffer and one boxed completion of some hundred
//!   bytes. The pool is bounded: while it is empty, no request is taken;
//! - requests that a [`Pump`] passes to fuser are copied to the heap; none of them is a read, write or flush;
//! - this process must not open, stat or list its own mount while it serves it.
//!
//! # Cost
//!
//! One copy of each write's payload (the message is not aligned for direct I/O); see `bench/block-file/handoff.sh`. With io_uring there is
//! none.

mod calls;
mod error;
pub mod front;
mod mountpoint;
mod pump;
pub(crate) mod ring;
mod serve;
mod source;
pub mod testing;
mod wire;

use std::io::{self, Seek};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::loop_device;
use crate::open_files;
use crate::port::Port;
use crate::server::Handle;

pub use error::Error;
pub(crate) use mountpoint::{FS_TYPE, SOURCE};
pub use mountpoint::{clear_dead, source};
pub use pump::{Pump, Received};

/// The flag of an open file, or of one write, whose data must be durable (`linux/fcntl.h`). `rustix` has only the flag of `O_SYNC`, under
/// both names; that has this bit and another one.
pub const O_DSYNC: i32 = 0o10000;

/// The last close may still be in progress after its caller has continued, because `losetup -d` does not wait for it. So a busy unmount is
/// repeated for 200 ms before it is reported, and for longer if nobody is seen to use the file: then only the system is closing it.
const BUSY_TRIES: u32 = 10;
const BUSY_WAIT: Duration = Duration::from_millis(20);
const CLOSING: Duration = Duration::from_secs(30);
/// The source of a mount with [`Options::lineage`] in the mount table begins so.
pub(crate) const LINEAGE: &str = "isotherm-lineage:";
/// Number of checks whether the entries of the previous mount have come back: 2 s in all.
const ENTRY_TRIES: u32 = 100;

/// How a block file is shown and served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Let other users reach the mount; the file's mode (0600) still decides which of them may open it. Mounting without root then needs
    /// `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// `st_blksize`: the request size that suits the volume, its extent for example. Bytes, rounded to a power of two
    /// from 4 KiB to 16 MiB.
    pub preferred_bytes: u32,
    /// Number of threads of [`mount`] that take requests, 1 to 64. More than one helps if completions run on these threads, or if copying
    /// payloads is the limit.
    pub threads: usize,
    /// Asynchronous requests that the kernel keeps in flight, at least 1: the queue depth of a loop device above.
    pub max_background: u16,
    /// Take requests through the engine's io_uring if the kernel offers this and it is switched on
    /// (`/sys/module/fuse/parameters/enable_uring`), instead of from `/dev/fuse`. Only with [`mount_on_engine`]. Then a request has at most
    /// 256 KiB instead of 1 MiB.
    pub ring: bool,
    /// Only where each write that was answered outlives this process: what the mount of a successor shows as well, if nothing is missing
    /// there. A volume with this file as a member waits for such a successor, and goes on with it (`world/returning.rs`).
    pub lineage: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            allow_other: false,
            preferred_bytes: 64 * 1024,
            threads: 1,
            max_background: 512,
            ring: true,
            lineage: None,
        }
    }
}

/// A block file that is being served. Dropping it unmounts; if the file is still open, its users get errors from then on.
#[derive(Debug)]
pub struct Mount {
    dir: PathBuf,
    file: PathBuf,
    /// `major:minor` of our file system, to distinguish it from a later mount on the same directory.
    device: Option<String>,
    /// Threads that take requests from the kernel, unless the engine's thread does.
    pumps: Vec<JoinHandle<()>>,
    /// fuser's session.
    session: Option<JoinHandle<io::Result<()>>>,
    /// If set, the file can no longer be opened.
    shut: Arc<AtomicBool>,
    /// The connection to fuser's session, and the thread that relays its replies.
    fuser_link: Option<Arc<pump::FuserLink>>,
    relay: Option<JoinHandle<()>>,
    /// Whether requests come through io_uring.
    ring: bool,
}

/// Shows `port`'s volume as the file `dir/name` and serves it from threads of its own.
///
/// `dir` must be an empty directory; a dead mount that an earlier process of ours left there is removed first. As root the mount system
/// call is used directly, otherwise the helper `fusermount3`. I/O works when this returns.
///
/// # Errors
/// See [`Error`]; nothing stays mounted.
pub fn mount(
    port: Arc<dyn Port>,
    dir: &Path,
    name: &str,
    options: &Options,
) -> Result<Mount, Error> {
    let (mut mount, pump) = mount_pumped(port, dir, name, options)?;
    let threads = options.threads.clamp(1, 64);
    let pumps: Vec<Pump> = (1..threads).map(|_| pump.another()).collect();
    for pump in std::iter::once(pump).chain(pumps) {
        let serve = move || {
            become_io_flusher();
            pump.run();
        };
        let thread = thread("block-file-pump", serve)?;
        mount.pumps.push(thread);
    }
    Ok(mount)
}

/// As [`mount`], but reads, writes and flushes wait until the caller takes them with the [`Pump`], on its own thread:
/// the engine's. `port`'s `submit` is called on that thread for them, and on a session thread for the rest.
/// [`Options::threads`] has no meaning here.
///
/// # Errors
/// As [`mount`].
pub fn mount_pumped(
    port: Arc<dyn Port>,
    dir: &Path,
    name: &str,
    options: &Options,
) -> Result<(Mount, Pump), Error> {
    let options = &Options {
        ring: false,
        ..options.clone()
    };
    pumped(port, dir, name, options)
}

fn pumped(
    port: Arc<dyn Port>,
    dir: &Path,
    name: &str,
    options: &Options,
) -> Result<(Mount, Pump), Error> {
    let failed = |source| Error::Session { source };
    let (mut mount, descriptor) = place(&*port, dir, name, options)?;
    let volume = serve::Volume::new(Arc::clone(&port), name, options, Arc::clone(&mount.shut));
    let parts = pump::split(descriptor, port, options.ring).map_err(failed)?;
    let fuser_link = Arc::clone(&parts.fuser_link);
    mount.fuser_link = Some(parts.fuser_link);
    let relay = move || {
        become_io_flusher();
        fuser_link.relay();
    };
    mount.relay = Some(thread("block-file-relay", relay)?);
    mount.serve(volume, parts.session)?;
    Ok((mount, parts.pump))
}

fn thread<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let named = std::thread::Builder::new().name(name.into());
    named.spawn(run).map_err(|source| Error::Session { source })
}

/// As [`mount`], with reads, writes and flushes taken from the kernel by the engine's own thread. `port` leads to the volume of `handle`,
/// possibly through a recorder.
///
/// # Errors
/// As [`mount`]; also if the volume is closed.
pub fn mount_on_engine(
    handle: &Handle,
    port: Arc<dyn Port>,
    dir: &Path,
    name: &str,
    options: &Options,
) -> Result<Mount, Error> {
    let failed = |what: &str| Error::Session {
        source: io::Error::other(what.to_owned()),
    };
    let closed = || failed("the volume is closed");
    let memory = handle
        .call(|_, world| world.ring_memory())
        .ok_or_else(closed)?;
    let options = &Options {
        ring: options.ring && memory.as_ref().is_some_and(is_unused),
        ..options.clone()
    };
    let (mut mount, pump) = pumped(Arc::clone(&port), dir, name, options)?;
    let fuser_link = mount.fuser_link.clone();
    if let Some((fuser_link, pool)) = fuser_link.zip(memory.filter(|_| options.ring)) {
        let agreed = fuser_link
            .agreed()
            .ok_or_else(|| failed("the kernel's first request was not answered"))?;
        if agreed {
            // The kernel sends nothing until it has the entries.
            let entries = ring::Entries::new(pump.device(), port, Arc::clone(&fuser_link), &pool)
                .ok_or_else(|| failed("no memory for the kernel's requests"))?;
            fuser_link.set_ring(handle.clone(), entries.answers());
            handle
                .call(move |_, world| world.add_ring_source(Box::new(entries)))
                .ok_or_else(closed)?;
            mount.ring = true;
        }
    }
    let source = source::PumpSource::new(pump, handle.clone());
    let added = handle.call(move |_, world| world.add_source(Box::new(source)));
    added.map(|()| mount).ok_or_else(closed)
}

/// Whether no part of the entries' memory is in use. The entries of a mount that has ended come back a moment later.
fn is_unused(memory: &Arc<crate::buffers::Pool>) -> bool {
    (0..ENTRY_TRIES).any(|i| {
        if i > 0 {
            std::thread::sleep(BUSY_WAIT);
        }
        memory.bytes_out() == 0
    })
}

/// Mounts; dropping the result unmounts.
fn place(
    port: &dyn Port,
    dir: &Path,
    name: &str,
    options: &Options,
) -> Result<(Mount, OwnedFd), Error> {
    mountpoint::check_name(name)?;
    let dir = mountpoint::resolve(dir)?;
    mountpoint::prepare(&dir)?;
    let source = match &options.lineage {
        Some(lineage) => mountpoint::one_word(&format!("{LINEAGE}{lineage}")),
        None => source(name),
    };
    let wanted = mountpoint::MountParams {
        dir: &dir,
        source: &source,
        read_only: port.read_only(),
        allow_other: options.allow_other,
    };
    let descriptor = mountpoint::mount(&wanted)?;
    let device = mountpoint::mounted_at(&dir)
        .ok()
        .flatten()
        .map(|m| m.device);
    let mount = Mount {
        file: dir.join(name),
        dir,
        device,
        pumps: Vec::new(),
        session: None,
        shut: Arc::default(),
        fuser_link: None,
        relay: None,
        ring: false,
    };
    Ok((mount, descriptor))
}

impl Mount {
    /// Starts fuser's session on `descriptor`.
    fn serve(&mut self, volume: serve::Volume, descriptor: OwnedFd) -> Result<(), Error> {
        let failed = |source| Error::Session { source };
        let mut config = fuser::Config::default();
        // The kernel has checked which users may reach the mount; fuser's own check would refuse requests of the loop driver.
        config.acl = fuser::SessionACL::All;
        config.n_threads = Some(1);
        let session = fuser::Session::from_fd(volume, descriptor, fuser::SessionACL::All, config)
            .map_err(failed)?;
        let serve = move || {
            // The session's own threads inherit the mark.
            become_io_flusher();
            session.run()
        };
        self.session = Some(thread("block-file", serve)?);
        Ok(())
    }

    /// The block file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Whether requests come through io_uring.
    pub fn uses_ring(&self) -> bool {
        self.ring
    }

    /// The volume has grown: the file has the new size when this returns, also for processes that have it open. Must not be called on the
    /// engine's thread or a session thread.
    ///
    /// # Errors
    /// The kernel does not take the message, or does not ask for the size.
    pub fn resized(&self) -> io::Result<()> {
        if let Some(fuser_link) = &self.fuser_link {
            fuser_link.forget_attributes(serve::FILE.0)?;
        }
        // Loop devices go by the size that the kernel knows, so it must have asked. If a write ends meanwhile, it takes the answer for an
        // old one, and fails reads beyond the former size.
        let mut file = std::fs::File::open(&self.file)?;
        for _ in 0..5 * ENTRY_TRIES {
            if file.seek(io::SeekFrom::End(0))? == file.metadata()?.len() {
                return Ok(());
            }
            std::thread::sleep(BUSY_WAIT);
        }
        Err(io::Error::other("the kernel keeps the former size"))
    }

    /// From now on the file cannot be opened (`ESHUTDOWN`); processes that have it open continue.
    pub fn refuse_new(&self) {
        self.shut.store(true, Ordering::Release);
    }

    /// Whether the session has ended, because the file was unmounted or its connection was cut.
    pub fn is_finished(&self) -> bool {
        self.session.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Unmounts and waits for the session to end: no request reaches the port afterwards.
    ///
    /// # Errors
    /// [`Error::Busy`] while the file is open; the mount continues, and `unmount` may be called again.
    pub fn unmount(&mut self) -> Result<(), Error> {
        let (begun, mut tries) = (Instant::now(), 0);
        while self.is_mounted() {
            let Err(source) = mountpoint::unmount(&self.dir) else {
                break;
            };
            let busy = Errno::from_io_error(&source) == Some(Errno::BUSY);
            // The search for a user looks at all processes, so it becomes rare.
            let wait = tries < BUSY_TRIES
                || begun.elapsed() < CLOSING && (tries % BUSY_TRIES > 0 || !self.has_user());
            if busy && wait {
                tries += 1;
                std::thread::sleep(BUSY_WAIT);
            } else if busy {
                return Err(Error::Busy {
                    file: self.file.clone(),
                });
            } else {
                return Err(Error::Unmount {
                    dir: self.dir.clone(),
                    source,
                });
            }
        }
        self.join()
    }

    /// Whether a process has the file open, or a loop device shows it that nobody has detached.
    fn has_user(&self) -> bool {
        let in_use = |device: &PathBuf| !loop_device::is_detached(device);
        loop_device::showing(&self.file).iter().any(in_use)
            || [&self.file, &self.dir]
                .iter()
                .any(|p| open_files::user_of(p).is_some())
    }

    /// Whether the mount on our directory is still the one we made.
    fn is_mounted(&self) -> bool {
        let Some(device) = &self.device else {
            return false;
        };
        matches!(mountpoint::mounted_at(&self.dir), Ok(Some(m)) if &m.device == device)
    }

    fn join(&mut self) -> Result<(), Error> {
        self.device = None;
        let panicked = || Error::Session {
            source: io::Error::other("a session thread panicked"),
        };
        let fuser_link = self.fuser_link.take();
        if let Some(fuser_link) = &fuser_link {
            fuser_link.close();
        }
        for thread in self.pumps.drain(..).chain(self.relay.take()) {
            thread.join().map_err(|_| panicked())?;
        }
        match self.session.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            // This is how fuser reports the end of a socket.
            Some(Ok(Err(error)))
                if fuser_link.is_some() && error.kind() == io::ErrorKind::InvalidData =>
            {
                Ok(())
            }
            Some(Ok(Err(source))) => Err(Error::Session { source }),
            Some(Err(_)) => Err(panicked()),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Other errors cannot be reported here; `unmount` reports them.
        if let Err(Error::Busy { .. } | Error::Unmount { .. }) = self.unmount() {
            // By force: the connection is cut, so the session ends. Through the helper (not root) the mount is only removed from the tree,
            // and the session lives until the last user closes the file: do not wait for that.
            let cut = mountpoint::detach(&self.dir).is_ok() && rustix::process::geteuid().is_root();
            if cut {
                let _ = self.join();
            }
        }
    }
}

/// Marks the calling thread, and threads that it starts later, as needed for writing back dirty pages: their allocations and page faults
/// then never wait for I/O. Returns whether the kernel agreed (it requires `CAP_SYS_RESOURCE`).
pub fn become_io_flusher() -> bool {
    rustix::process::configure_io_flusher_behavior(true).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_started_by_an_io_flusher_are_io_flushers() {
        let child = std::thread::spawn(move || {
            if !become_io_flusher() {
                eprintln!("skipped: no CAP_SYS_RESOURCE");
                return Ok(true);
            }
            let ask = rustix::process::is_io_flusher;
            std::thread::spawn(ask).join().unwrap()
        });
        assert_eq!(child.join().unwrap(), Ok(true));
    }

    #[test]
    fn a_bad_name_is_refused_before_anything_is_mounted() {
        let port = Arc::new(testing::MemPort::new(1 << 20, 512));
        let scratch = tempfile::tempdir().unwrap();
        let result = mount(port, scratch.path(), "a/b", &Options::default());
        assert!(matches!(result, Err(Error::Name { .. })));
    }
}
