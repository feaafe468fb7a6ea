//! Policies: they rank data and propose moves. The engine decides which proposals it carries out.
//!
//! A policy sees the volume through a [`View`], keeps its statistics (16 bits and a time stamp per extent are stored in
//! the extent map; a policy allocates anything larger itself), and pushes [`Action`]s. It cannot move anything itself: the engine
//! refuses actions that are unsafe, impossible or over budget, and reports how each action ended. A bad policy may cost speed, never data.

mod azor;
mod bcache;
mod benefit;
mod build;
mod cache;
mod class_table;
mod classes;
mod cold_dst;
mod dss;
mod edt;
mod greendm;
mod hold;
mod hot_dst;
mod hystor;
mod interval;
mod linear;
mod matrix;
mod middle;
mod opencas;
pub mod param;
mod per_unit;
mod raf;
mod refusal;
mod registry;
mod shares;
mod tables;
mod type_aware;
mod view;
mod visit;
mod write_mode;

pub use azor::Azor;
pub use bcache::Bcache;
pub use benefit::{Benefit, GOALS};
pub use build::{BuildError, ParamValue, build, build_with, nearest};
pub use cache::{
    Arc, Cache, Clock, Fifo, Lfu, Lirs, Lru, Lru2, Replacement, S3Fifo, Sieve, Smq, TwoQ, WTinyLfu,
};
pub use classes::{is_metadata, priority};
pub use cold_dst::{Cold, ColdDst};
pub use dss::Dss;
pub use edt::Edt;
pub use greendm::GreenDm;
pub use hold::Hold;
pub(crate) use hold::Passed;
pub use hot_dst::HotDst;
pub use hystor::Hystor;
pub use interval::{Every, Interval, Rules};
pub use linear::Linear;
pub use opencas::OpenCas;
pub use param::ParamError;
pub use per_unit::PerUnit;
pub use raf::Raf;
pub use refusal::{REFUSALS, Refusal};
pub use registry::{DEFAULT, DEFAULT_TIERS, PRESETS, Preset};
pub use tables::ParamInfo;
pub use type_aware::TypeAware;
pub use view::View;
pub use visit::{Visitor, with_preset};
pub use write_mode::{WRITE_MODES, WriteMode};

use crate::units::{Nanos, TierId};
pub use crate::volume::Place;
use crate::volume::{Kind, Position, UnitId};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// One access to one extent, after requests are split at extent boundaries. All of a request carry its time, operation, class and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Time of the request.
    pub now: Nanos,
    /// The extent.
    pub extent: UnitId,
    /// Position of the home before any action that this access triggers; `None` at the first touch.
    pub home: Option<Position>,
    /// Position of the copy before any action that this access triggers.
    pub copy: Option<Position>,
    /// Whether it is a write (otherwise a read).
    pub write: bool,
    /// Class of the data, 0…63: that of the request, otherwise the registered class of the extent ([`View::class`]).
    pub class: u8,
    /// Bytes of the whole request.
    pub request_bytes: u32,
    /// First byte of the whole request on the volume.
    pub request_offset: u64,
    /// Whether this is the first extent of the request.
    pub first: bool,
}

/// How a policy uses the faster tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// Homes are on all tiers (tiering). Copies that a previous policy left are evicted.
    Homes,
    /// Homes are on the slowest tier, copies on the faster ones (caching). Homes that a previous policy left on a faster tier are moved
    /// down.
    Copies,
    /// Both homes and copies are on the faster tiers.
    Both,
}

impl Access {
    /// Position from which the data was served before any action that this access triggers: the copy, otherwise the home.
    pub fn served(&self) -> Option<Position> {
        self.copy.or(self.home)
    }
}

/// The destination of a write to an extent that has a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTo {
    /// To the copy, which is dirty from then on (write-back).
    Copy,
    /// To both (write-through-update): the write makes no block of the copy dirty.
    Both,
    /// To the home; the copy is evicted (write-around). Its dirty blocks are written home first.
    Home,
}

impl Uses {
    /// The word for it in configuration and reports: `tiering` adds capacity; with `caching` the slowest tier holds everything.
    pub fn kind(self) -> &'static str {
        match self {
            Uses::Homes => "tiering",
            Uses::Copies | Uses::Both => "caching",
        }
    }
    /// The kind of volume that is made for a policy: a cache volume, unless it places homes.
    pub fn volume(self) -> Kind {
        match self {
            Uses::Copies => Kind::Cache,
            Uses::Homes | Uses::Both => Kind::Tiering,
        }
    }
}

/// A proposal of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Move the home of an extent to another tier.
    Move {
        /// The extent.
        extent: UnitId,
        /// The destination tier.
        to: TierId,
    },
    /// Give the extent a copy on a faster tier, filled from its home.
    Fetch {
        /// The extent.
        extent: UnitId,
        /// The destination tier.
        to: TierId,
    },
    /// Fetch `bytes` bytes of the extent, starting at byte `from` and rounded outwards to whole blocks, into its copy on a faster
    /// tier. An extent without a copy gets one in which only these blocks are valid. Valid blocks of a copy are not read again.
    FetchPart {
        /// The extent.
        extent: UnitId,
        /// The destination tier.
        to: TierId,
        /// First byte, counted from the extent's first.
        from: u32,
        /// Number of bytes; at least 1.
        bytes: u32,
    },
    /// Give the extent an empty copy on a faster tier for the write that is being served (write-allocate). Blocks become valid when they
    /// are written, so that a small write does not cause a read of the whole extent.
    Allocate {
        /// The extent.
        extent: UnitId,
        /// The destination tier.
        to: TierId,
    },
    /// Write the dirty blocks of the copy to the home; the copy stays and is clean.
    Clean {
        /// The extent.
        extent: UnitId,
    },
    /// Give up the copy; its dirty blocks are written home first.
    Evict {
        /// The extent.
        extent: UnitId,
    },
}

impl Action {
    /// The extent that the action concerns.
    pub fn extent(&self) -> UnitId {
        match *self {
            Action::Move { extent, .. }
            | Action::Fetch { extent, .. }
            | Action::FetchPart { extent, .. }
            | Action::Allocate { extent, .. }
            | Action::Clean { extent }
            | Action::Evict { extent } => extent,
        }
    }
}

/// A policy's own limits on moves. The engine's safety rules apply in addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveRules {
    /// Maximum number of concurrent moves (MCML).
    pub limit: Option<u32>,
    /// Whether a promotion is cancelled while metadata is being written (GreenDM 6.1.3, condition 2).
    pub yield_to_metadata: bool,
    /// Whether a move is cancelled if any request to the extent, including a read, is in flight (GreenDM 6.1.6).
    pub idle_extents_only: bool,
    /// Whether rounds for its moves are kept away from requests. A round then hurries only if a request waits for a move that it ends (and
    /// not if a request waits for anything), and slots that wait to be free hurry it only if a request waits for a slot or many wait.
    pub rounds_yield: bool,
}

/// How an action ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The action was carried out.
    Done,
    /// Not started.
    Refused(Refusal),
    /// Started, then cancelled because of a write or a discard.
    Stale,
    /// Started, but a device failed.
    Failed,
}

/// A placement policy. It is deterministic: the same calls give the same proposals.
pub trait Policy: Send {
    /// The inner policy, if this one is a wrapper. A wrapper returns it here and in [`Policy::inner_mut`]; then the default implementation
    /// of every method calls the inner policy. (Methods without a default must be implemented; the compiler requires this.)
    fn inner(&self) -> Option<&dyn Policy> {
        None
    }
    /// Mutable access to the policy that [`Policy::inner`] names.
    fn inner_mut(&mut self) -> Option<&mut dyn Policy> {
        None
    }
    /// Name of the preset.
    fn name(&self) -> &'static str;
    /// How the policy uses the faster tiers.
    fn uses(&self) -> Uses {
        self.inner().map_or(Uses::Homes, Policy::uses)
    }
    /// Whether copies may stay dirty. If not, the engine cleans in the background the copies that a previous policy left dirty.
    fn keeps_dirty(&self) -> bool {
        self.inner().is_none_or(Policy::keeps_dirty)
    }
    /// Whether it is a write-back cache that is filled on demand: it gives a copy only to a unit whose access found none, at that access or
    /// when the dirty victim of that access is at home, and a write to a copy stays there until it is cleaned.
    fn writes_back_on_demand(&self) -> bool {
        self.inner().is_some_and(Policy::writes_back_on_demand)
    }
    /// Whether the published policy always writes through to the home and makes no choice per write. Under a write mode that writes
    /// back ([`WriteMode`]), such a policy is not asked [`Policy::write_to`].
    fn writes_through(&self) -> bool {
        self.inner().is_some_and(Policy::writes_through)
    }
    /// Whether a read of blocks that are clean in a copy may be served by the home while that is sooner: while the copy's device has so much
    /// in progress that the home's device would answer first. The policies of papers read the copy, as their authors say.
    fn reads_sooner(&self) -> bool {
        self.inner().is_some_and(Policy::reads_sooner)
    }
    /// Whether its authors fix the slot of a home (GreenDM: the lowest free one; OODT: after its predecessor). Else: [`crate::volume::Space::keep_order`].
    fn fixes_places(&self) -> bool {
        self.inner().is_some_and(Policy::fixes_places)
    }
    /// Bytes of memory that it keeps for each unit of the volume, however small the flash is, because its authors have a counter for every
    /// unit. A large cache volume refuses it ([`crate::engine::fits`]). 0: its memory follows from the flash.
    fn unit_bytes(&self) -> u32 {
        self.inner().map_or(0, Policy::unit_bytes)
    }
    /// Whether its decisions depend on which extents are neighbours. The lab keeps rows only for extents that are accessed and numbers them
    /// consecutively. If this is true, it must leave a gap between extents that are not neighbours on the volume.
    fn minds_gaps(&self) -> bool {
        self.inner().is_none_or(Policy::minds_gaps)
    }
    /// The shape of the volume is known: allocates what depends on it. Called once, before any other call.
    fn attach(&mut self, view: &mut View<'_>);
    /// Called when the extent of `access` is about to get its first home: push the evictions and demotions that make room. In hit-only runs
    /// they are complete when [`Policy::first_touch`] is called; with devices they are still in progress.
    fn make_room(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        if let Some(p) = self.inner_mut() {
            p.make_room(view, access, wanted);
        }
    }
    /// The place for `extent` at its first touch.
    fn first_touch(&mut self, view: &mut View<'_>, extent: UnitId) -> Place;
    /// The home of `extent` is about to move to `to`. Returns the unit next to whose home it should be placed, if that home is on
    /// `to`; `None`: in the first free place.
    fn beside(&self, view: &View<'_>, extent: UnitId, to: TierId) -> Option<UnitId> {
        self.inner().and_then(|p| p.beside(view, extent, to))
    }
    /// `extent` now has its home in `position` (first touch, or the end of a move).
    fn on_placed(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        if let Some(p) = self.inner_mut() {
            p.on_placed(view, extent, position);
        }
    }
    /// A unit of a store changed its size; it took `before` grains and has no copy. Only called if units differ in size.
    fn on_resized(&mut self, view: &mut View<'_>, extent: UnitId, before: u32) {
        if let Some(p) = self.inner_mut() {
            p.on_resized(view, extent, before);
        }
    }
    /// A classifier registered a new class for a unit ([`View::class`]), or for blocks of its copy ([`View::best_class`]), without an access.
    fn on_reclassified(
        &mut self,
        view: &mut View<'_>,
        extent: UnitId,
        class: u8,
        wanted: &mut Vec<Action>,
    ) {
        if let Some(p) = self.inner_mut() {
            p.on_reclassified(view, extent, class, wanted);
        }
    }
    /// `extent` was discarded; `position` was its home.
    fn on_discarded(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        if let Some(p) = self.inner_mut() {
            p.on_discarded(view, extent, position);
        }
    }
    /// An extent is accessed. Push the proposals; they are tried in order before the request continues.
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>);
    /// `extent` now has a copy in `position`. A policy must update its lists of cached units here and in
    /// [`Policy::on_uncopied`], not when it proposes an action, because the engine may refuse that.
    fn on_copied(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        if let Some(p) = self.inner_mut() {
            p.on_copied(view, extent, position);
        }
    }
    /// `extent` has given up its copy in `position`.
    fn on_uncopied(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        if let Some(p) = self.inner_mut() {
            p.on_uncopied(view, extent, position);
        }
    }
    /// Whether a durable record should keep this clean copy over a crash. Before another copy gets its slot, a round withdraws the record.
    fn keeps_over_crash(&self, view: &View<'_>, extent: UnitId) -> bool {
        self.inner()
            .is_none_or(|p| p.keeps_over_crash(view, extent))
    }
    /// The destination of this write to an extent with a copy. Called after [`Policy::on_access`] and its proposals.
    fn write_to(&mut self, view: &mut View<'_>, access: &Access) -> WriteTo {
        match self.inner_mut() {
            Some(p) => p.write_to(view, access),
            None => WriteTo::Copy,
        }
    }
    /// An action ended.
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        action: Action,
        how: Outcome,
        wanted: &mut Vec<Action>,
    ) {
        if let Some(p) = self.inner_mut() {
            p.on_settled(view, action, how, wanted);
        }
    }
    /// Background work: called after events and when [`Policy::next_wake`] is due.
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        if let Some(p) = self.inner_mut() {
            p.tick(view, wanted);
        }
    }
    /// The time at which [`Policy::tick`] should be called next, if there is one.
    fn next_wake(&self) -> Option<Nanos> {
        self.inner().and_then(Policy::next_wake)
    }
    /// Limits that the engine applies to the moves of this policy.
    fn move_rules(&self) -> MoveRules {
        self.inner()
            .map_or_else(MoveRules::default, Policy::move_rules)
    }
    /// Changes a parameter while the volume is running.
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError>;
    /// Changes a parameter whose values are names. On a running volume such a parameter is changed by building a new policy, which then
    /// takes over.
    fn set_name(&mut self, key: &str, name: &str) -> Result<(), ParamError> {
        if let Some(p) = self.inner_mut() {
            return p.set_name(key, name);
        }
        if self.params().iter().any(|p| p.0 == key) {
            return Err(ParamError::Range("a number"));
        }
        let valid = self.params();
        Err(ParamError::Unknown(nearest(key, valid.iter().map(|p| p.0))))
    }
    /// Parameters and their present values.
    fn params(&self) -> Vec<(&'static str, f64)>;
    /// Parameters whose values are names, with their present values. A parameter that was given several times is listed as often.
    fn names(&self) -> Vec<(&'static str, String)> {
        self.inner().map_or_else(Vec::new, Policy::names)
    }
    /// Describes in words what this policy knows about an extent and which event would move it.
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String;
    /// A remark for the user at the end of a run, for example that the policy has made no plan.
    fn warning(&self) -> Option<String> {
        self.inner().and_then(Policy::warning)
    }
    /// Memory that the policy allocated, in bytes.
    fn bytes(&self) -> usize {
        self.inner().map_or(0, Policy::bytes)
    }
}

impl Policy for Box<dyn Policy> {
    fn inner(&self) -> Option<&dyn Policy> {
        Some(&**self)
    }
    fn inner_mut(&mut self) -> Option<&mut dyn Policy> {
        Some(&mut **self)
    }
    fn name(&self) -> &'static str {
        (**self).name()
    }
    fn attach(&mut self, view: &mut View<'_>) {
        (**self).attach(view);
    }
    fn first_touch(&mut self, view: &mut View<'_>, extent: UnitId) -> Place {
        (**self).first_touch(view, extent)
    }
    #[inline]
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        (**self).on_access(view, access, wanted);
    }
    // Methods that are called for every access avoid the indirection through `inner`.
    #[inline]
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        action: Action,
        how: Outcome,
        wanted: &mut Vec<Action>,
    ) {
        (**self).on_settled(view, action, how, wanted);
    }
    #[inline]
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        (**self).tick(view, wanted);
    }
    #[inline]
    fn next_wake(&self) -> Option<Nanos> {
        (**self).next_wake()
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        (**self).set(key, value)
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        (**self).params()
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        (**self).explain(view, extent)
    }
}
