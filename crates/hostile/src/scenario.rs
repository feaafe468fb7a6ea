//! The settings of a scenario, the counts of its run, and the volume with which it begins.

use super::world::Faults;
use isotherm_core::TierId;
use isotherm_core::engine::Mutant;
use isotherm_core::geometry::Kind;
use isotherm_core::store::superblock::{self, MemberEntry};
use isotherm_core::store::{MetaArea, Superblock};

/// The shape of the volume. All have 4 KiB extents of 512 B blocks and very small journal rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// 24 extents, 10 fast slots, 20 slow ones.
    Small,
    /// The same with the fast tier on two members, one of which may be lost.
    TwoFast,
    /// The same with room for the whole volume on two slow members.
    TwoSlow,
    /// The same on three tiers.
    ThreeTiers,
    /// The same with a slow tier that has room for the whole volume, so that caching policies are allowed.
    Roomy,
    /// A cache volume: the homes of its 24 extents have fixed places on one slow member; 10 fast slots.
    Cache,
    /// The same on two fast and two slow members.
    CacheOfFour,
    /// A cache volume of three tiers.
    CacheOfThree,
    /// 640 extents and long requests: rounds of several journal blocks, checkpoints of several blocks and pieces.
    Large,
}

impl Shape {
    /// What the places of homes depend on.
    fn kind(self) -> Kind {
        match self {
            Shape::Cache | Shape::CacheOfFour | Shape::CacheOfThree => Kind::Cache,
            _ => Kind::Tiering,
        }
    }
}

/// One scenario; its run follows from these fields.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Number of requests in a life.
    pub requests: u64,
    /// Number of lives; each but the last ends in a crash.
    pub lives: u32,
    /// Largest number of requests in progress.
    pub depth: usize,
    /// Faults while the volume runs.
    pub faults: Faults,
    /// The safety rule that is removed.
    pub mutant: Option<Mutant>,
    /// Number of device changes after which the first life ends; `None`: a random number.
    pub crash_at: Option<u64>,
    /// Preset to run instead of the chaos policy.
    pub policy: Option<&'static str>,
    /// Parameters of that preset that differ from the defaults.
    pub params: &'static [(&'static str, f64)],
    /// After every crash, and at the end, check the data that remains without the fast member.
    pub lose_fast: bool,
    /// The shape of the volume.
    pub shape: Shape,
    /// Change the policy sometimes while the volume runs.
    pub switch: bool,
    /// Use the chaos policy that proposes only actions on copies.
    pub copies: bool,
    /// Use the chaos policy that declares itself a cache. With `Some(true)`, its copies are never dirty.
    pub cache: Option<bool>,
    /// Between two lives the fast member may be lost, and the volume continues without it if this is allowed.
    pub lose_cache: bool,
    /// In each life, flash turns read-only at some moment, and the volume goes on without it.
    pub end_cache: bool,
    /// Then flash may take dirty data with it.
    pub lose_dirty: bool,
    /// Between two lives a member may be replaced by another device.
    pub replace: bool,
    /// Between two lives the slow disks may become larger, and the volume grows; or flash of a cache volume does, and the cache grows.
    pub grow: bool,
    /// At the end of each life, an older copy of a member, made during that life, is restored and tried.
    pub rollback: bool,
    /// Number of journal blocks; `None`: the smallest possible.
    pub ring: Option<u32>,
    /// Number of lives at the start that end well.
    pub end_well: u32,
    /// Never raise members' counters, so that they prove nothing about the journal.
    pub uncounted: bool,
}

impl Scenario {
    /// A scenario with the usual settings.
    pub fn new(seed: u64) -> Scenario {
        Scenario {
            seed,
            requests: 120,
            lives: 3,
            depth: 12,
            faults: Faults::default(),
            mutant: None,
            crash_at: None,
            policy: None,
            params: &[],
            lose_fast: false,
            shape: Shape::Small,
            switch: false,
            copies: false,
            cache: None,
            lose_cache: false,
            end_cache: false,
            lose_dirty: false,
            replace: false,
            grow: false,
            rollback: false,
            ring: None,
            end_well: 0,
            uncounted: false,
        }
    }
}

/// Counts of the events in a run, so that a test can check that they occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answered requests.
    pub answered: u64,
    /// Completed moves.
    pub moves: u64,
    /// Moves that a write or discard made stale.
    pub stale: u64,
    /// Copies that were made.
    pub fetches: u64,
    /// Copies that were evicted.
    pub evictions: u64,
    /// Dirty copies that were written home.
    pub writebacks: u64,
    /// Changes of policy.
    pub switches: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Unaligned writes.
    pub edges: u64,
    /// Reads that were served from a move's buffer.
    pub from_ram: u64,
    /// Crashes.
    pub crashes: u64,
    /// Number of times that a volume continued without its cache.
    pub losses: u64,
    /// Number of times that a volume continued without its cache after a loss was accepted.
    pub accepted: u64,
    /// Number of times that a volume continued and listed what it had lost.
    pub listed: u64,
    /// Number of times that a volume without its cache was refused.
    pub refused: u64,
    /// Members that were replaced.
    pub replaced: u64,
    /// Number of times that the volume or its cache grew.
    pub grown: u64,
    /// Number of times that it only got new slots first.
    pub steps_first: u64,
    /// Number of times that it grew and its checkpoint regions moved (in a cache volume: with its flash).
    pub moved: u64,
    /// Older copies of members that were refused.
    pub rolled_back: u64,
    /// Older copies of members that were accepted, without loss of flushed data.
    pub old_accepted: u64,
    /// Number of times that held work was done in a batch.
    pub batches: u64,
    /// Actions that the wear budget refused.
    pub worn: u64,
    /// Actions refused because a disk slept.
    pub asleep: u64,
    /// Slots that were filled with zeros because there was no memory for a bitmap.
    pub filled: u64,
    /// Writes that were answered because their records are kept.
    pub kept: u64,
    /// Number of times that kept records were restored.
    pub restored: u64,
    /// Rounds that began ahead of a FLUSH, and FLUSHes that waited for writes.
    pub ahead: u64,
    /// See `ahead`.
    pub gathered: u64,
    /// Reads and writes of moves that were joined with others, and joined ones that were repeated extent by extent.
    pub joined: u64,
    /// See `joined`.
    pub repeated: u64,
    /// Pieces of requests that waited.
    pub waited: u64,
    /// Lives that ended with the process only, not with the power.
    pub killed: u64,
    /// Copies that were claimed to be clean when a life ended in a crash, and those that the next one found.
    pub claimed: [u64; 2],
    /// Openings that were cut off by a loss of power.
    pub cut: u64,
    /// Device changes in the first life.
    pub steps: u64,
    /// Digest of all replies, in order.
    pub digest: u64,
}

impl Counts {
    /// Adds the counts of another run. Steps and digest are those of one run.
    #[expect(clippy::too_many_lines, reason = "fields in their order")]
    pub fn add(&mut self, other: &Counts) {
        let Counts {
            answered,
            moves,
            stale,
            fetches,
            evictions,
            writebacks,
            switches,
            checkpoints,
            edges,
            from_ram,
            crashes,
            losses,
            accepted,
            listed,
            refused,
            replaced,
            grown,
            steps_first,
            moved,
            rolled_back,
            old_accepted,
            batches,
            worn,
            asleep,
            filled,
            kept,
            restored,
            ahead,
            gathered,
            joined,
            repeated,
            waited,
            killed,
            claimed: [had, found],
            cut,
            steps: _,
            digest: _,
        } = *other;
        self.answered += answered;
        self.moves += moves;
        self.stale += stale;
        self.fetches += fetches;
        self.evictions += evictions;
        self.writebacks += writebacks;
        self.switches += switches;
        self.checkpoints += checkpoints;
        self.edges += edges;
        self.from_ram += from_ram;
        self.crashes += crashes;
        self.losses += losses;
        self.accepted += accepted;
        self.listed += listed;
        self.refused += refused;
        self.replaced += replaced;
        self.grown += grown;
        self.steps_first += steps_first;
        self.moved += moved;
        self.rolled_back += rolled_back;
        self.old_accepted += old_accepted;
        self.batches += batches;
        self.worn += worn;
        self.asleep += asleep;
        self.filled += filled;
        self.kept += kept;
        self.restored += restored;
        self.ahead += ahead;
        self.gathered += gathered;
        self.joined += joined;
        self.repeated += repeated;
        self.waited += waited;
        self.killed += killed;
        self.claimed[0] += had;
        self.claimed[1] += found;
        self.cut += cut;
    }
}

/// The superblock of a new volume with this shape.
pub(super) fn superblock(seed: u64, ring: u32, shape: Shape) -> Superblock {
    let extents = if shape == Shape::Large { 640 } else { 24 };
    let fast = match shape {
        Shape::ThreeTiers | Shape::CacheOfThree => 14,
        Shape::Large => 200,
        _ => 10,
    };
    let kind = shape.kind();
    let recorded = kind.recorded(extents, fast);
    let area = MetaArea {
        ring_blocks: ring,
        ..MetaArea::of(kind, recorded, fast, 8, 0)
    };
    let entry = |i: u8, tier: u8, slots: u32| MemberEntry {
        uuid: [i + 1; 16],
        tier: TierId(tier),
        slots,
        ..MemberEntry::default()
    };
    let members = match shape {
        Shape::Small => vec![entry(0, 0, 10), entry(1, 1, 20)],
        Shape::Roomy => vec![entry(0, 0, 10), entry(1, 1, 26)],
        Shape::TwoSlow => vec![entry(0, 0, 10), entry(1, 1, 12), entry(2, 1, 14)],
        Shape::TwoFast => vec![entry(0, 0, 5), entry(1, 0, 5), entry(2, 1, 20)],
        Shape::ThreeTiers => vec![entry(0, 0, 6), entry(1, 1, 8), entry(2, 2, 16)],
        Shape::Large => vec![entry(0, 0, 200), entry(1, 1, 460)],
        Shape::Cache => vec![entry(0, 0, 10), entry(1, 1, 24)],
        Shape::CacheOfFour => vec![
            entry(0, 0, 5),
            entry(1, 0, 5),
            entry(2, 1, 11),
            entry(3, 1, 13),
        ],
        Shape::CacheOfThree => vec![entry(0, 0, 6), entry(1, 1, 8), entry(2, 2, 24)],
    };
    let shape = superblock::Shape {
        kind,
        extent_shift: 12,
        block_shift: 9,
        extents,
        area,
    };
    let mut sb = Superblock {
        policy: String::from("chaos"),
        name: String::from("hostile"),
        ..Superblock::new([0x42; 16], seed, shape, members)
    };
    // Some homes of each disk are in its stash, and the others at their addresses.
    sb.head_blocks = sb.head_blocks.min(5);
    sb.placed(4096)
}
