//! Creation of a world: its ring, the ring's workers, its memory.

use super::flight::SERVED_OPEN_MAX;
use super::heartbeat::Heartbeat;
use super::keeping::Keeping;
use super::polling::Polling;
use super::ring::Ring;
use super::{Command, MemberState, UringWorld, joined, pages};
use crate::buffers::Arena;
use crate::config::IoConfig;
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::inbox::Inbox;
use crate::keeper::Keeper;
use crate::paced::Pacer;
use crate::requests::Table;
use crate::stamp::Stamp;
use crate::vitals::Board;
use io_uring::{opcode, squeue, types};
use isotherm_core::Nanos;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The parts of a new world.
pub(crate) struct Parts {
    pub devices: Arc<Vec<Option<Device>>>,
    pub pacers: Vec<Option<Pacer>>,
    pub arena: Arc<Arena>,
    pub inbox: Arc<Inbox<Command>>,
    pub block: u32,
    pub base: Nanos,
    /// Whether the ring has buffers for pages of requests.
    pub pages: bool,
    /// The stamp, claimed on this member.
    pub stamp: Option<(Stamp, usize)>,
    /// Memory that outlives this process, for [`isotherm_core::Effect::Keep`].
    pub keeper: Option<Keeper>,
    /// Where the world leaves what members answered.
    pub vitals: Arc<Board>,
}

/// The process could not become an I/O flusher.
pub(crate) static NOT_A_FLUSHER: AtomicBool = AtomicBool::new(false);

/// Creates the ring's kernel workers now, one of each kind, and allows no more later. Allocations of an I/O flusher never wait for
/// write-back. Without that permission, the creation of a worker during the work can wait for dirty pages that only this thread can write
/// back (this was seen as a hang with writer and server in one small memory group). The last worker of a kind does not end when idle. The
/// cost: operations that the kernel cannot start at once (flushes, writes into holes) run one at a time.
fn bind_workers(ring: &mut Ring, fds: &[RawFd]) -> io::Result<()> {
    ring.submitter().register_iowq_max_workers(&mut [1, 1])?;
    let mut waiting = 0;
    for (i, _) in fds.iter().enumerate().filter(|(_, fd)| **fd >= 0) {
        let flush = opcode::Fsync::new(types::Fixed(i as u32))
            .build()
            .flags(squeue::Flags::ASYNC);
        // SAFETY: a flush names a registered file and no memory.
        if unsafe { ring.push(&flush) } {
            waiting += 1;
        }
    }
    while waiting > 0 {
        ring.submitter().submit_and_wait(1)?;
        waiting -= ring.completion().count().min(waiting);
    }
    Ok(())
}

fn members(devices: &[Option<Device>], pacers: Vec<Option<Pacer>>) -> Vec<MemberState> {
    let mut pacers = pacers.into_iter();
    let one = |device: &Option<Device>| {
        let mut member = MemberState {
            pacer: pacers.next().flatten(),
            ..MemberState::default()
        };
        member.look_at(device.as_ref());
        member
    };
    devices.iter().map(one).collect()
}

/// Allows the kernel so many workers that members with a server never use all of them. Such a member's operations block a worker each
/// until its server answers; if it hangs, flushes of the other members must still find one.
fn make_room(ring: &Ring, members: &[MemberState]) -> io::Result<()> {
    let served = members.iter().filter(|m| m.has_server).count() as u32;
    if served > 0 {
        // Zeros change nothing, and the kernel answers with the present limits.
        let mut most = [0, 0];
        ring.submitter().register_iowq_max_workers(&mut most)?;
        // One more each for the activity stamp.
        most = [most[0] + served * (SERVED_OPEN_MAX + 1), 0];
        ring.submitter().register_iowq_max_workers(&mut most)?;
    }
    Ok(())
}

/// Memory in the form that the io-uring crate takes, which is libc's type.
pub(super) fn iovec(start: *mut u8, bytes: usize) -> libc::iovec {
    libc::iovec {
        iov_base: start.cast(),
        iov_len: bytes,
    }
}

impl UringWorld {
    /// Creates a world. Must be called on the thread that will run it, because the ring belongs to its creator.
    pub(crate) fn new(parts: Parts, io: &IoConfig) -> Result<UringWorld, Error> {
        let refused = |e: io::Error| {
            Error::new(
                ErrorKind::System,
                format!(
                    "io_uring is not available ({e}): use Linux 5.11 or later and see the sysctl kernel.io_uring_disabled"
                ),
            )
        };
        let mut ring = Ring::new(io.queue_depth).map_err(refused)?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(refused(io::ErrorKind::Unsupported.into()));
        }
        let fds = joined::files(&parts.devices);
        ring.submitter().register_files(&fds).map_err(refused)?;
        if NOT_A_FLUSHER.load(Ordering::Relaxed) {
            bind_workers(&mut ring, &fds).map_err(refused)?;
        }
        // SAFETY: the region lives as long as `arena`, which is dropped after the ring.
        let (fixed, page_buffers) =
            unsafe { pages::register(&ring, &parts.arena.region, parts.pages) };
        let members = members(&parts.devices, parts.pacers);
        make_room(&ring, &members).map_err(refused)?;
        parts.inbox.adopt();
        let mut world = UringWorld {
            ring,
            fixed,
            inbox: parts.inbox,
            devices: parts.devices,
            paced: members.iter().any(|m| m.pacer.is_some()),
            members,
            flights: Vec::with_capacity(1024),
            free: Vec::with_capacity(1024),
            held_writes: Vec::with_capacity(64),
            page_buffers,
            requests: Table::new(parts.block, Arc::clone(&parts.arena.own)),
            ready: Vec::with_capacity(64),
            cqes: Vec::with_capacity(256),
            sources: Vec::new(),
            ring_sources: Vec::new(),
            reclassified: VecDeque::new(),
            thread_results: Arc::default(),
            start: Instant::now(),
            base: parts.base,
            seen: parts.base,
            polling: Polling::new(Duration::from_micros(io.spin_us.into())),
            woken: false,
            refusing: false,
            fault: None,
            sizes_checked: parts.base,
            vitals: parts.vitals,
            answers_checked: parts.base,
            any_unanswered: false,
            heartbeat: parts
                .stamp
                .map(|(stamp, member)| Heartbeat::new(stamp, member)),
            can_lose: 0,
            keeping: Keeping::with(parts.keeper),
            arena: parts.arena,
        };
        world.watch_bell();
        world.register_vitals();
        Ok(world)
    }
}
