//! Creates the parts of a session: memory, thread, ring, engine.

use super::{Handle, Session};
use crate::VolumeConfig;
use crate::buffers::Arena;
use crate::classes::Classes;
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::inbox::Inbox;
use crate::keeper::Keeper;
use crate::recorder::Driver;
use crate::volume::{OpenMode, Volume};
use crate::world::{Command, Parts, UringWorld};
use isotherm_core::engine::KNOBS;
use isotherm_core::geometry::Kind;
use isotherm_core::run::Loop;
use isotherm_core::store::Superblock;
use isotherm_core::{Engine, MemberId, Nanos, Params};
use rustix::mm::{MlockAllFlags, mlockall};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Largest number of requests that wait for the engine's thread.
const INBOX: usize = 4096;

/// Asks the system to treat this process as a part of the storage stack. Call it before any thread or ring is made.
///
/// A volume may hold the file system to which memory is written back. So our own allocations must not wait for that (`PR_SET_IO_FLUSHER`),
/// and our pages must stay in memory (`mlockall`). Returns messages for people if the system refuses.
pub fn prepare_process() -> Vec<String> {
    let mut notes = Vec::new();
    if let Err(e) = rustix::process::configure_io_flusher_behavior(true) {
        crate::world::NOT_A_FLUSHER.store(true, Ordering::Relaxed);
        notes.push(format!(
            "the kernel does not let this process act as an I/O flusher ({e}): with swap on this volume it may hang when memory is short; {} CAP_SYS_RESOURCE",
            needs(rustix::process::geteuid().is_root())
        ));
    }
    if let Err(e) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE) {
        notes.push(format!("the memory of this process cannot be locked ({e}): with swap on this volume it may hang when memory is short; CAP_IPC_LOCK or a higher memlock limit helps"));
    }
    notes
}

/// How a process gets a capability. In a container root may lack it, too.
pub(crate) fn needs(is_root: bool) -> &'static str {
    if is_root {
        "this root lacks"
    } else {
        "run it as root or with"
    }
}

/// Whether this signal was ignored when the process was started. If so, it should stay ignored. A query through libc: rustix offers signal
/// handling only to C libraries.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all-zero is a valid `sigaction`, written on success.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a query only; `now` is ours.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut now) } == 0;
    known && now.sa_sigaction == libc::SIG_IGN
}

/// The parts of a session that are made before its thread.
pub(super) struct Prepared {
    volume: Volume,
    arena: Arc<Arena>,
    inbox: Arc<Inbox<Command>>,
    handle: Handle,
}

/// Bytes of memory for the block file's requests through io_uring, if this kernel has that.
fn ring_bytes() -> usize {
    if crate::world::offers_fuse() {
        crate::block_file::ring::memory()
    } else {
        0
    }
}

pub(super) fn prepare(volume: Volume) -> Result<(Prepared, Handle), Error> {
    let refused = |what: &str, e: io::Error| Error::new(ErrorKind::System, format!("{what}: {e}"));
    let io = &volume.config.io;
    let geo = &volume.opened.space.geo;
    let arena = Arena::new(
        io.buffers.0 as usize,
        io.move_buffers,
        geo.extent_bytes(),
        ring_bytes(),
    )
    .map_err(|e| {
        refused(
            "[io]: buffers: the system does not give this much memory",
            e,
        )
    })?;
    let arena = Arc::new(arena);
    let inbox = Arc::new(Inbox::new(INBOX).map_err(|e| refused("eventfd", e))?);
    let sb = &volume.opened.superblock;
    let is_out = |m: &&MemberId| sb.kind == Kind::Cache && sb.is_flash(**m);
    // Flash without which a session has begun never belongs to the volume again.
    let left_out = (volume.opened.report.missing.iter().filter(is_out))
        .filter(|_| volume.mode != OpenMode::ReadOnly)
        .fold(0, |all: u32, m| all | 1 << m.0);
    let handle = Handle {
        inbox: Arc::clone(&inbox),
        pool: Arc::clone(&arena.pool),
        file: Arc::clone(&arena.file),
        classes: Arc::new(Classes::new(geo.volume_bytes())),
        extent_shift: geo.extent_shift,
        failure: Arc::default(),
        left_out: Arc::new(AtomicU32::new(left_out)),
        listed: Arc::new(Mutex::new(volume.listed())),
        copying: Arc::default(),
        vitals: Arc::default(),
        volume_bytes: Arc::new(AtomicU64::new(geo.volume_bytes())),
        block: geo.block_bytes(),
        logical_block: 1 << volume.opened.superblock.logical_shift,
        read_only: volume.mode == OpenMode::ReadOnly,
        zeros: !volume.opened.space.geo.is_cache(),
    };
    Ok((
        Prepared {
            volume,
            arena,
            inbox,
            handle: handle.clone(),
        },
        handle,
    ))
}

/// The engine's parameters according to the description.
fn params(config: &VolumeConfig, mode: OpenMode) -> Result<Params, Error> {
    let io = &config.io;
    // The core's `mutants` feature adds a field.
    #[allow(clippy::needless_update)]
    let mut params = Params {
        move_buffers: io.move_buffers,
        stage_blocks: io.stage_blocks,
        map_on_read: false,
        read_only: mode == OpenMode::ReadOnly,
        standby_after: (config.members.iter())
            .map(|m| m.standby_s.map(|s| Nanos((s * 1e9) as u64)))
            .collect(),
        start_intervals: (0..config.members.len())
            .map(|m| config.start_interval(m))
            .collect(),
        pass_discards: io.pass_discards,
        ..Params::default()
    };
    for knob in &KNOBS {
        if let Some(value) = io.knob(knob.name) {
            knob.put(&mut params, value);
        }
    }
    params.wear_bytes_per_day = config
        .wear_bytes_per_day()
        .map_err(|e| Error::new(ErrorKind::Config, format!("[io]: {e}")))?;
    Ok(params)
}

/// The keeper of a session that begins with `sb`, if there can be one. Without a keeper, kept writes wait for a round.
pub(crate) fn keeper(
    sb: &Superblock,
    mode: OpenMode,
    devices: &[Option<Device>],
    params: &Params,
) -> Option<Keeper> {
    if mode == OpenMode::ReadOnly {
        return None;
    }
    let made = Keeper::create(&sb.uuid, sb.epoch, devices, params.stage_blocks.max(8));
    made.unwrap_or_else(|e| {
        tracing::warn!("no memory for records that must outlive this server ({e}): kept writes wait for the devices instead");
        None
    })
}

impl Prepared {
    pub(super) fn start(self) -> Result<Session, Error> {
        let Volume {
            config,
            devices,
            opened,
            policy,
            pacers,
            costs,
            mode,
            stamp,
            ..
        } = self.volume;
        let mut params = params(&config, mode)?;
        params.costs = costs;
        let keeper = keeper(&opened.superblock, mode, &devices, &params);
        params.keeper = keeper.is_some();
        let can_lose = crate::cache_end::can_lose(&opened.superblock, mode);
        params.outlives_cache = can_lose != 0;
        let parts = Parts {
            devices: Arc::new(devices),
            pacers,
            arena: self.arena,
            inbox: Arc::clone(&self.inbox),
            block: opened.space.geo.block_bytes(),
            base: opened.time_base,
            pages: crate::ublk::missing().is_none(),
            stamp,
            keeper,
            vitals: Arc::clone(&self.handle.vitals),
        };
        let mut world = UringWorld::new(parts, &config.io)?;
        let shift = opened.space.geo.extent_shift;
        world.can_lose(can_lose);
        world.classify(self.handle.classes().classifier(shift));
        let superblock = opened.superblock.clone();
        let promises = config
            .promises()
            .map_err(|e| Error::new(ErrorKind::Config, e))?;
        let now = opened.time_base;
        let mut engine = Driver::new(Engine::new(opened, policy, params.clone()), None);
        engine.promise(now, promises);
        Ok(Session {
            engine,
            world,
            superblock,
            mode,
            config,
            params,
            handle: self.handle,
            reopening: None,
            withheld: None,
            owes_error: false,
            listed: (0, now),
            lost: None,
            failure_reported: false,
            run: Loop::new(),
            inbox: self.inbox,
            closing: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_told_to_become_root() {
        assert!(!needs(true).contains("run it") && needs(false).contains("run it as root"));
    }
}
