//! Policies: what is worth most, and how data moves. A policy proposes, the engine disposes.
//!
//! A policy sees the volume through a [`View`], keeps its statistics (16 bits and a time stamp ride in the extent map's
//! own rows, anything larger is its own), and pushes [`Action`]s. It can move nothing by itself: the engine refuses what
//! is unsafe, impossible or over budget and reports how each action ended. A bad policy may cost speed, never data.

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
mod param;
mod raf;
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
pub use cache::{Arc, Cache, Fifo, Lfu, Lru, Replacement, S3Fifo, Sieve, Smq, WTinyLfu};
pub use classes::{is_metadata, priority};
pub use cold_dst::{Cold, ColdDst};
pub use dss::Dss;
pub use edt::Edt;
pub use greendm::GreenDm;
pub use hold::Hold;
pub use hot_dst::HotDst;
pub use hystor::Hystor;
pub use interval::{Every, Interval, Rules};
pub use linear::Linear;
pub use opencas::OpenCas;
pub use raf::Raf;
pub use registry::{DEFAULT, DEFAULT_TIERS, PRESETS, ParamInfo, Preset};
pub use type_aware::TypeAware;
pub use view::View;
pub use visit::{Visitor, with_preset};
pub use write_mode::{WRITE_MODES, WriteMode};

use crate::units::{Nanos, TierId};
pub use crate::volume::Place;
use crate::volume::{Seat, UnitId};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// One extent-sized touch, after splitting. All touches of a request carry its time, operation, class and whole size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// When.
    pub now: Nanos,
    /// Which extent.
    pub extent: UnitId,
    /// Where its home was before anything that this access triggers; `None` at the first touch.
    pub home: Option<Seat>,
    /// Where its copy was before anything that this access triggers.
    pub copy: Option<Seat>,
    /// Write (or read).
    pub write: bool,
    /// What kind of data, 0…63: what the request says, else what is known of the extent ([`View::class`]).
    pub class: u8,
    /// Bytes of the whole request.
    pub request_bytes: u32,
    /// First byte of the whole request on the volume.
    pub request_offset: u64,
    /// This is the request's first extent.
    pub first: bool,
}

/// What a policy makes of the faster tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// Homes lie on all tiers (tiering). Copies that a former policy left are given up.
    Homes,
    /// Homes belong on the slowest tier, copies on the faster ones (caching). Homes that lie on a faster tier are moved down.
    Copies,
    /// Both.
    Both,
}

impl Access {
    /// Where the data was served from before anything that this access triggers: the copy, else the home.
    pub fn served(&self) -> Option<Seat> {
        self.copy.or(self.home)
    }
}

/// Where a write to an extent that has a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTo {
    /// To the copy, which is dirty from then on (write-back).
    Copy,
    /// To both (write-through-update): the copy stays as clean as it was.
    Both,
    /// To the home; the copy is given up (write-around). What it held dirty is written home first.
    Home,
}

impl Uses {
    /// As configuration and reports say it: `tiering` adds capacity, for `caching` the slowest tier holds everything.
    pub fn kind(self) -> &'static str {
        match self {
            Uses::Homes => "tiering",
            Uses::Copies | Uses::Both => "caching",
        }
    }
}

/// What a policy wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Move the home of an extent to another tier.
    Move {
        /// Which extent.
        extent: UnitId,
        /// Where to.
        to: TierId,
    },
    /// Give the extent a copy on a faster tier, filled from its home.
    Fetch {
        /// Which extent.
        extent: UnitId,
        /// Where to.
        to: TierId,
    },
    /// Bring `bytes` from byte `from` of the extent on, rounded outwards to whole blocks, into its copy on a faster tier; an
    /// extent without a copy gets one, of which nothing else is valid. What the copy holds already is not read again.
    FetchPart {
        /// Which extent.
        extent: UnitId,
        /// Where to.
        to: TierId,
        /// First byte, counted from the extent's first.
        from: u32,
        /// How many; at least 1.
        bytes: u32,
    },
    /// Give the extent an empty copy on a faster tier for the write that is being served (write-allocate): blocks become
    /// valid as they are written, so that a small write never drags a large extent along.
    Allocate {
        /// Which extent.
        extent: UnitId,
        /// Where to.
        to: TierId,
    },
    /// Write what the copy holds dirty to the home; the copy stays, clean.
    Clean {
        /// Which extent.
        extent: UnitId,
    },
    /// Give up the copy; what it holds dirty is written home first.
    Evict {
        /// Which extent.
        extent: UnitId,
    },
}

impl Action {
    /// The extent that it is about.
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

/// Why the engine refused an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The extent has no home, is there already, or the tier does not exist.
    Pointless,
    /// The extent moves already, or requests are in flight on it.
    Busy,
    /// The target tier has no free slot.
    Full,
    /// As many moves as allowed are under way (MCML).
    Limit,
    /// Metadata is being flushed.
    MetadataFlush,
    /// The bandwidth budget for moves is spent, or foreground latency is over its target.
    Throttled,
    /// The volume is closing, read-only or failed.
    Closed,
    /// The volume's checkpoints have no room for copies.
    NoCopies,
    /// The wear budget of the fastest tier does not allow it now.
    WearBudget,
    /// It needs a disk that sleeps, and waits until that is awake or a limit is reached.
    Asleep,
}

/// Names of the refusals, in the order of the enum, for counters.
pub const REFUSALS: [&str; 10] = [
    "pointless",
    "busy",
    "full",
    "limit",
    "metadata_flush",
    "throttled",
    "closed",
    "no_copies",
    "wear_budget",
    "asleep",
];

/// A policy's own limits on moves; the engine's safety rules come on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveRules {
    /// Moves under way at once at most (MCML).
    pub limit: Option<u32>,
    /// Cancel a promotion while metadata is being written (GreenDM 6.1.3, condition 2).
    pub yield_to_metadata: bool,
    /// Cancel a move when any request, reads included, is in flight on the extent (GreenDM 6.1.6).
    pub idle_extents_only: bool,
}

/// How an action ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The home is where it was wanted.
    Done,
    /// Not started.
    Refused(Refusal),
    /// Started, then overtaken by a write or a discard.
    Stale,
    /// Started, then a device failed.
    Failed,
}

/// A parameter could not be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamError {
    /// No parameter of that name; the nearest one.
    Unknown(String),
    /// The value is not in range; what is.
    Range(&'static str),
    /// No value of that name; what there is, and the nearest.
    Value(&'static str, String),
}

/// A placement policy. Deterministic: same calls, same wants.
pub trait Policy: Send {
    /// The policy that this one is wrapped around. A wrapper names it here and in [`Policy::inner_mut`]; then every method
    /// that it does not write itself is that policy's. (Those without a default it must write: the compiler asks for them.)
    fn inner(&self) -> Option<&dyn Policy> {
        None
    }
    /// The same, to be changed.
    fn inner_mut(&mut self) -> Option<&mut dyn Policy> {
        None
    }
    /// The preset's name.
    fn name(&self) -> &'static str;
    /// What it makes of the faster tiers.
    fn uses(&self) -> Uses {
        self.inner().map_or(Uses::Homes, Policy::uses)
    }
    /// May copies stay dirty? If not, the engine writes home in the background what a policy before left dirty.
    fn keeps_dirty(&self) -> bool {
        self.inner().is_none_or(Policy::keeps_dirty)
    }
    /// Are writes to copies written through as published, without a say of its own in where they go? Under a write mode that writes
    /// back ([`WriteMode`]), such a policy is not asked [`Policy::write_to`].
    fn writes_through(&self) -> bool {
        self.inner().is_some_and(Policy::writes_through)
    }
    /// Does it matter to its decisions which extents are neighbours? Then a lab that keeps rows for touched extents only
    /// must not lay together what lies apart on the volume.
    fn minds_gaps(&self) -> bool {
        self.inner().is_none_or(Policy::minds_gaps)
    }
    /// The view's shape is known: size what depends on it. Called once, before anything else.
    fn attach(&mut self, view: &mut View<'_>);
    /// The extent of `access` is about to get its first home: push what must leave before. Without devices it has left when
    /// [`Policy::first_touch`] is asked; with them it is on its way.
    fn make_room(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        if let Some(p) = self.inner_mut() {
            p.make_room(view, access, wanted);
        }
    }
    /// Where the first touch of `extent` should go.
    fn first_touch(&mut self, view: &mut View<'_>, extent: UnitId) -> Place;
    /// The home of `extent` is about to move to `to`: the unit whose home, if that is there, it should follow closely. `None`:
    /// wherever room is first.
    fn beside(&self, view: &View<'_>, extent: UnitId, to: TierId) -> Option<UnitId> {
        self.inner().and_then(|p| p.beside(view, extent, to))
    }
    /// `extent` now has its home in `seat` (first touch, or the end of a move).
    fn on_placed(&mut self, view: &mut View<'_>, extent: UnitId, seat: Seat) {
        if let Some(p) = self.inner_mut() {
            p.on_placed(view, extent, seat);
        }
    }
    /// A unit of a store changed its size; it took `before` grains and has no copy. Only where units have sizes of their own.
    fn on_resized(&mut self, view: &mut View<'_>, extent: UnitId, before: u32) {
        if let Some(p) = self.inner_mut() {
            p.on_resized(view, extent, before);
        }
    }
    /// Somebody who knows says that a unit is of that class from now on ([`View::class`]); no access tells.
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
    /// `extent` was discarded; `seat` was its home.
    fn on_discarded(&mut self, view: &mut View<'_>, extent: UnitId, seat: Seat) {
        if let Some(p) = self.inner_mut() {
            p.on_discarded(view, extent, seat);
        }
    }
    /// An extent is touched. Push what should happen; it is tried, in order, before the request goes on.
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>);
    /// `extent` now has a copy in `seat`. A policy's lists of what is cached follow this and
    /// [`Policy::on_uncopied`], not its own wishes: those may be refused.
    fn on_copied(&mut self, view: &mut View<'_>, extent: UnitId, seat: Seat) {
        if let Some(p) = self.inner_mut() {
            p.on_copied(view, extent, seat);
        }
    }
    /// `extent` has given up its copy in `seat`.
    fn on_uncopied(&mut self, view: &mut View<'_>, extent: UnitId, seat: Seat) {
        if let Some(p) = self.inner_mut() {
            p.on_uncopied(view, extent, seat);
        }
    }
    /// Where this write to an extent with a copy goes; asked after [`Policy::on_access`] and what it wanted.
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
    /// When [`Policy::tick`] should be called next, if ever.
    fn next_wake(&self) -> Option<Nanos> {
        self.inner().and_then(Policy::next_wake)
    }
    /// What this policy wants the engine to refuse on its behalf.
    fn move_rules(&self) -> MoveRules {
        self.inner()
            .map_or_else(MoveRules::default, Policy::move_rules)
    }
    /// Change a parameter while running.
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError>;
    /// Change a parameter whose values are names. On a running volume names are set by building the policy anew, as a
    /// change of policy.
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
    /// Parameters and their values now.
    fn params(&self) -> Vec<(&'static str, f64)>;
    /// Parameters whose values are names, and their values now; one that is given several times is there as often.
    fn names(&self) -> Vec<(&'static str, String)> {
        self.inner().map_or_else(Vec::new, Policy::names)
    }
    /// What this policy knows of an extent and what would move it, in words.
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String;
    /// What the user should know at the end of a run: that nothing could be decided, for instance.
    fn warning(&self) -> Option<String> {
        self.inner().and_then(Policy::warning)
    }
    /// Memory of its own, bytes.
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
    // What every access asks is not worth the way round.
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
