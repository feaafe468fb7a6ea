//! What a scenario is made of, what it did, and the volume that it begins with.

use super::world::Faults;
use isotherm_core::TierId;
use isotherm_core::engine::Mutant;
use isotherm_core::store::superblock::{self, MemberEntry};
use isotherm_core::store::{MetaArea, Superblock};

/// What the volume looks like. All have 4 KiB extents of 512 B blocks and very small journal rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// 24 extents, 10 fast slots, 20 slow ones.
    Small,
    /// The same with the fast tier on two members: one of them survives the other.
    TwoFast,
    /// The same on three tiers.
    ThreeTiers,
    /// The same with a slow tier that holds all of the volume, so that caching policies can serve it.
    Roomy,
    /// 640 extents, long requests: several journal blocks a round, several blocks and pieces a checkpoint.
    Large,
}

/// One scenario; everything follows from it.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Seed of everything random.
    pub seed: u64,
    /// Requests in a lifetime.
    pub requests: u64,
    /// Lifetimes; each but the last ends in a crash.
    pub lives: u32,
    /// In flight at once.
    pub depth: usize,
    /// What goes wrong while it runs.
    pub faults: Faults,
    /// Safety rule taken out.
    pub mutant: Option<Mutant>,
    /// End the first life at this many device changes (else at a random one).
    pub crash_at: Option<u64>,
    /// Preset to run instead of chaos.
    pub policy: Option<&'static str>,
    /// After every crash, and at the end, look at what is left without the fast member.
    pub lose_fast: bool,
    /// The volume.
    pub shape: Shape,
    /// Change the policy now and then while it runs.
    pub switch: bool,
    /// Chaos about copies only.
    pub copies: bool,
    /// Chaos that is a cache, and says so; `Some(true)`: one that never holds anything that the home lacks.
    pub cache: Option<bool>,
    /// Between two lives the fast member may vanish, and the volume goes on without it if it can.
    pub lose_cache: bool,
    /// At the end of each life an older copy of a member, made during that life, is put back and tried.
    pub rollback: bool,
    /// Journal blocks, if not as few as can be.
    pub ring: Option<u32>,
    /// So many lives, the first ones, end well.
    pub end_well: u32,
    /// Members' counters are never raised: they tell nothing of the journal.
    pub uncounted: bool,
}

impl Scenario {
    /// A plain one.
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
            lose_fast: false,
            shape: Shape::Small,
            switch: false,
            copies: false,
            cache: None,
            lose_cache: false,
            rollback: false,
            ring: None,
            end_well: 0,
            uncounted: false,
        }
    }
}

/// What a run did, so that a test can see that it did something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Did {
    /// Requests answered.
    pub answered: u64,
    /// Moves carried through.
    pub moves: u64,
    /// Moves overtaken.
    pub stale: u64,
    /// Copies made.
    pub fetches: u64,
    /// Copies given up.
    pub evictions: u64,
    /// Dirty copies written home.
    pub writebacks: u64,
    /// Changes of policy.
    pub switches: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Odd writes.
    pub edges: u64,
    /// Reads from a move's buffer.
    pub from_ram: u64,
    /// Crashes survived.
    pub crashes: u64,
    /// Times that a volume went on without its cache.
    pub losses: u64,
    /// Times that it did so after somebody accepted a loss.
    pub accepted: u64,
    /// Times that it refused.
    pub refused: u64,
    /// Older copies of members that were refused.
    pub rolled_back: u64,
    /// Older copies that were accepted, and lacked nothing that was certain.
    pub old_accepted: u64,
    /// Times that held work was done in a batch.
    pub batches: u64,
    /// Actions that the wear budget refused.
    pub worn: u64,
    /// Actions refused because a disk slept.
    pub asleep: u64,
    /// Slots filled with zeros for want of a bitmap.
    pub filled: u64,
    /// Device changes in the first life.
    pub steps: u64,
    /// Digest of all replies and their order.
    pub digest: u64,
}

/// A new volume of that shape.
pub(super) fn superblock(seed: u64, ring: u32, shape: Shape) -> Superblock {
    let extents = if shape == Shape::Large { 640 } else { 24 };
    let fast = match shape {
        Shape::Small | Shape::Roomy | Shape::TwoFast => 10,
        Shape::ThreeTiers => 14,
        Shape::Large => 200,
    };
    let area = MetaArea {
        ring_blocks: ring,
        ..MetaArea::for_volume(extents, 8, 0).with_copies(extents, fast, 8)
    };
    let data_offset = |i: u8| (area.end() + 4096 + u64::from(i) * 4096).div_ceil(4096) * 4096;
    let entry = |i: u8, tier: u8, slots: u32| MemberEntry {
        uuid: [i + 1; 16],
        tier: TierId(tier),
        slots,
        data_offset: data_offset(i),
        bytes: data_offset(i) + u64::from(slots) * 4096,
        ..MemberEntry::default()
    };
    let members = match shape {
        Shape::Small => vec![entry(0, 0, 10), entry(1, 1, 20)],
        Shape::Roomy => vec![entry(0, 0, 10), entry(1, 1, 26)],
        Shape::TwoFast => vec![entry(0, 0, 5), entry(1, 0, 5), entry(2, 1, 20)],
        Shape::ThreeTiers => vec![entry(0, 0, 6), entry(1, 1, 8), entry(2, 2, 16)],
        Shape::Large => vec![entry(0, 0, 200), entry(1, 1, 460)],
    };
    let shape = superblock::Shape {
        extent_shift: 12,
        block_shift: 9,
        extents,
        area,
    };
    Superblock {
        policy: String::from("chaos"),
        name: String::from("hostile"),
        ..Superblock::new([0x42; 16], seed, shape, members)
    }
}
