//! What the engine says about extents at one moment, and what happened since the last time.

use super::Ended;
use crate::device::Device;
use crate::server::{Handle, VolumeFailure};
use isotherm_core::{Engine, ExtentId, MemberId, Slot};
use std::sync::Arc;

/// Bit of a block that is valid at the home.
pub(super) const HOME: u8 = 1;
/// Bit of a block that is valid in the copy.
pub(super) const COPY: u8 = 2;
/// Bit of a block that is newer in the copy.
pub(super) const DIRTY: u8 = 4;

/// A slot of an extent, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub slot: Slot,
    pub member: MemberId,
    /// Byte offset on the member.
    pub at: u64,
}

/// The placement of an extent.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// `None`: nothing is stored of it.
    pub home: Option<Spot>,
    pub copy: Option<Spot>,
    /// [`HOME`], [`COPY`], [`DIRTY`] for each block.
    pub blocks: Vec<u8>,
    /// Whether it is held by nothing, and no write to it is in progress.
    pub at_rest: bool,
    /// Whether a move of it may have ended since the earlier look.
    pub moved: bool,
    /// The writes to the member of its home so far.
    pub home_writes: u64,
}

impl Placed {
    /// Whether home and copy are at the same places in a later look.
    pub fn is_where(&self, later: &Placed) -> bool {
        self.home == later.home && self.copy == later.copy
    }
}

/// The work of a member so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberWork {
    /// Operations of requests and moves.
    pub operations: u64,
    /// Whether it is in standby.
    pub asleep: bool,
}

/// See the module.
pub(super) struct Look {
    /// The engine, see [`crate::recorder::Driver::id`].
    pub engine: u64,
    /// Number of moves that ended so far.
    pub moves: u64,
    pub members: Vec<MemberWork>,
    pub devices: Arc<Vec<Option<Device>>>,
    /// One for each extent.
    pub placed: Vec<Placed>,
    /// Size of a block in bytes.
    pub block: usize,
}

/// Asks the engine about extents. `since` is [`Look::moves`] of the earlier look.
pub(super) fn look(handle: &Handle, extents: &[ExtentId], since: u64) -> Result<Look, Ended> {
    let wanted = extents.to_vec();
    let answer = handle.call(move |driver, world| {
        let engine: &Engine = driver;
        if engine.has_failed() || world.fault().is_some() {
            return Err(VolumeFailure::of(world).to_string());
        }
        Ok(Look {
            engine: driver.id(),
            moves: engine.recent_moves().count(),
            members: members(engine),
            devices: Arc::clone(world.devices()),
            placed: wanted.iter().map(|&e| placed(engine, e, since)).collect(),
            block: engine.space().geo.block_bytes() as usize,
        })
    });
    match (answer, handle.failure()) {
        (Some(Ok(look)), None) => Ok(look),
        // The failure may not have been reported yet when the engine was asked.
        (Some(_), Some(failure)) => Err(Ended::Failed(failure.to_string())),
        (Some(Err(why)), None) => Err(Ended::Failed(why)),
        (None, _) => Err(Ended::Closed),
    }
}

/// The work of all members so far.
pub(crate) fn members(engine: &Engine) -> Vec<MemberWork> {
    let work = |(m, c): (u8, &isotherm_core::stats::MemberCounters)| MemberWork {
        operations: c.reads + c.writes + c.flushes + c.bytes_discarded,
        asleep: engine.is_asleep(MemberId(m)),
    };
    (0u8..).zip(&engine.counters().members).map(work).collect()
}

/// A number that changes with each write to a member and each discard on it.
fn writes(engine: &Engine, member: MemberId) -> u64 {
    let c = engine.counters().members.get(usize::from(member.0));
    c.map_or(0, |c| c.writes + c.bytes_discarded)
}

fn placed(engine: &Engine, e: ExtentId, since: u64) -> Placed {
    let space = engine.space();
    let (map, geo, pins) = (&space.map, &space.geo, &space.pins);
    let spot = |slot| {
        let (member, at) = geo.locate(slot);
        Spot { slot, member, at }
    };
    let home = map.home(e).filter(|_| !map.is_gone(e)).map(spot);
    let copy = home.and_then(|_| map.copy(e)).map(spot);
    let no_writer = |s: Option<Spot>| s.is_none_or(|s| pins.count(s.slot).1 == 0);
    Placed {
        home,
        copy,
        blocks: home.map_or_else(Vec::new, |_| blocks(engine, e)),
        at_rest: !map.is_held(e) && no_writer(home) && no_writer(copy),
        moved: may_have_moved(engine, e, since),
        home_writes: home.map_or(0, |h| writes(engine, h.member)),
    }
}

/// Whether a move of an extent may have ended since the engine had counted `since` moves.
fn may_have_moved(engine: &Engine, e: ExtentId, since: u64) -> bool {
    let recent = engine.recent_moves();
    let new = recent.count().saturating_sub(since) as usize;
    let mut seen = 0;
    let named = recent.newest().take(new).any(|m| {
        seen += 1;
        m.action.extent() == e
    });
    named || seen < new
}

/// The states of the blocks of an extent.
fn blocks(engine: &Engine, e: ExtentId) -> Vec<u8> {
    let (map, geo) = (&engine.space().map, &engine.space().geo);
    let n = geo.blocks_per_extent();
    let mut states = vec![0; n as usize];
    let mut mark = |bit, run: &dyn Fn(u32) -> (u32, bool)| {
        let mut b = 0;
        while b < n {
            let (len, on) = run(b);
            if on {
                for s in &mut states[b as usize..(b + len) as usize] {
                    *s |= bit;
                }
            }
            b += len.max(1);
        }
    };
    mark(HOME, &|b| map.run(e, b, n));
    if map.copy(e).is_some() {
        mark(COPY, &|b| map.copy_run(e, b, n));
        mark(DIRTY, &|b| map.dirty_run(e, b, n));
    }
    states
}
