//! The engine (being written).
use crate::policy::{Policy, Space};
use crate::store::Opened;
use crate::{DeviceOp, Effect, ExtentId, IoError, Nanos, OpId, Request};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// What the engine needs to know beyond the volume itself.
#[derive(Clone, Debug)]
pub struct Params {
    /// Extent-sized move buffers that the world has: moves under way at most.
    pub move_buffers: u16,
    /// Records wait at most this long for a FLUSH to carry them.
    pub commit_interval: Nanos,
    /// Journal blocks kept in memory until the mirror has them.
    pub stage_blocks: u32,
    /// Reads of unmapped extents give them a home (the lab; live they return zeros).
    pub map_on_read: bool,
    /// Serve reads only.
    pub read_only: bool,
    /// Per member: spin down after this long without use.
    pub standby_after: Vec<Option<Nanos>>,
    /// Bandwidth for moves, bytes per second.
    pub move_bytes_per_s: Option<u64>,
    /// Foreground 99th percentile that moves yield to.
    pub p99_limit: Option<Nanos>,
    /// Pass discards of freed slots down to the devices.
    pub pass_discards: bool,
}

/// The volume's engine: see the crate's page.
pub struct Engine { #[allow(dead_code)] space: Space }

impl Engine {
    /// Over an opened volume.
    pub fn new(opened: Opened, _policy: Box<dyn Policy>, _params: Params) -> Engine { Engine { space: opened.space } }
    /// A request arrived.
    pub fn submit(&mut self, _now: Nanos, _req: Request, _out: &mut Vec<Effect>) { todo!() }
    /// A device operation ended.
    pub fn complete(&mut self, _now: Nanos, _id: OpId, _result: Result<u32, IoError>, _out: &mut Vec<Effect>) { todo!() }
    /// Time passed.
    pub fn tick(&mut self, _now: Nanos, _out: &mut Vec<Effect>) { todo!() }
    /// When [`Engine::tick`] is wanted.
    pub fn next_wake(&self) -> Option<Nanos> { todo!() }
    /// No more requests will come: drain, checkpoint.
    pub fn close(&mut self, _now: Nanos, _out: &mut Vec<Effect>) { todo!() }
    /// Everything is durable and nothing is in flight.
    pub fn is_closed(&self) -> bool { todo!() }
    /// The bytes of a metadata write in flight.
    pub fn meta(&self, _op: &DeviceOp) -> &[u8] { todo!() }
    /// Change a policy parameter or engine knob.
    pub fn set(&mut self, _key: &str, _value: f64) -> Result<(), crate::policy::ParamError> { todo!() }
    /// Where an extent is, and why.
    pub fn explain(&self, _now: Nanos, _extent: ExtentId) -> String { todo!() }
    /// The map.
    pub fn space(&self) -> &Space { todo!() }
}
