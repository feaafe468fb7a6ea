//! Durability: how anything becomes durable, and when a slot that was given up may be used again.
//!
//! | file | what it owns |
//! |---|---|
//! | `round.rs` | rounds: why one begins, flush data, write records, flush journal, and what comes of it |
//! | `records.rs` | the records of a round: of what changed, of moves; where the bytes of metadata are |
//! | `pending.rs` | extents whose durable state differs from the map, and who waits for theirs |
//! | `checkpoints.rs` | the checkpoint being built, the last durable one |
//! | `counters.rs` | members' counters, raised by rounds |
//! | `farewell.rs` | the end of a session without a checkpoint |
//! | `follow.rs` | what the mirror must know before anything is acknowledged |
//! | `free.rs` | slots between "given up" and "free" |
//!
//! Others ask it to note a change, to let go of a slot, to answer a request when a round is through; only the engine lets rounds begin.

mod checkpoints;
mod counters;
mod farewell;
mod follow;
mod free;
mod pending;
mod records;
mod round;

pub(super) use records::MetaSource;
pub(super) use round::RoundEnd;

use super::Params;
use super::ground::Ground;
use crate::policy::Uses;
use crate::store::journal::Staging;
use crate::store::superblock::Follow as Claim;
use crate::store::{Closing, Layout, Opened};
use crate::units::{ExtentId, MemberId, Nanos};
use alloc::vec::Vec;
use checkpoints::Checkpoints;
use counters::Raising;
use farewell::Farewell;
use follow::Follow;
use free::Freeing;
use pending::{Callers, Pending};
use round::{MetaWrite, Round};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Durability {
    layout: Layout,
    /// Of this session.
    epoch: u64,
    round: Round,
    callers: Callers,
    pending: Pending,
    staging: Staging,
    /// When the mirror should catch up if nothing makes it earlier.
    mirror_due: Option<Nanos>,
    checkpoints: Checkpoints,
    /// What the mirror must know.
    follow: Follow,
    freeing: Freeing,
    /// Members' counters.
    raising: Raising,
    /// Room for the metadata writes of a round; empty between rounds.
    writes: Vec<MetaWrite>,
    /// Tell what copies hold clean in every record, not only at the end (a mutant).
    always_tell: Option<u64>,
    /// Whether the session ends without a checkpoint.
    farewell: Farewell,
}

impl Durability {
    /// For an opened volume under a policy that makes that of the faster tiers.
    pub(super) fn new(opened: &Opened, p: &Params, uses: Uses) -> Durability {
        let (sb, space) = (&opened.superblock, &opened.space);
        // Nobody recovers a volume that keeps no bytes: it need not say that its mirror lags.
        let claimed = sb.follow == Claim::Mirror
            && opened.layout.mirror.is_some()
            && !(p.unread_metadata && uses != Uses::Copies);
        let fast = space.geo.tier_slots(space.geo.slowest()).start;
        Durability {
            layout: opened.layout,
            epoch: sb.epoch,
            round: Round::default(),
            callers: Callers::default(),
            pending: Pending::new(space.geo.extents),
            staging: Staging::new(sb.uuid, sb.epoch, opened.tip, p.stage_blocks.max(8)),
            mirror_due: None,
            checkpoints: Checkpoints::new(opened, p),
            follow: Follow::new(claimed, &space.map, fast),
            freeing: Freeing::default(),
            raising: Raising::new(opened, p.counter_every),
            writes: Vec::with_capacity(16),
            always_tell: None,
            farewell: Farewell::default(),
        }
    }
    /// The durable state of `e` differs from the map: a record is due.
    pub(super) fn note(&mut self, g: &Ground, e: ExtentId) {
        self.pending.note(e, g.clock + g.params.commit_interval);
    }
    /// As [`Durability::note`], for a change of the home or of what is valid there.
    pub(super) fn note_home(&mut self, g: &Ground, e: ExtentId) {
        self.follow.homes_changed();
        self.note(g, e);
    }
    /// Request `r` is answered when a round that starts from now on is durable.
    pub(super) fn join(&mut self, r: u32) {
        self.callers.join(r, self.pending.mark());
    }
    /// Is everything needed to find `e` durable now, on whoever must know?
    pub(super) fn is_known(&self, g: &Ground, e: ExtentId) -> bool {
        self.round.is_idle() && !self.pending.contains(e) && !self.owes_mirror(g)
    }
    /// Is metadata being written or flushed?
    pub(super) fn writing_metadata(&self) -> bool {
        self.round.writes_metadata()
    }
    /// Is no round under way?
    pub(super) fn is_idle(&self) -> bool {
        self.round.is_idle()
    }
    /// The member that carries the second copy of the metadata.
    pub(super) fn mirror(&self) -> Option<MemberId> {
        self.layout.mirror
    }
    fn has_mirror(&self) -> bool {
        self.layout.mirror.is_some()
    }
    fn mirror_awake(&self, g: &Ground) -> bool {
        self.mirror().is_some_and(|m| !g.devices.is_asleep(m))
    }
    /// Does that member, the mirror, lack blocks of the journal?
    pub(super) fn lags_on(&self, member: usize) -> bool {
        self.staging.lag() > 0 && self.mirror().is_some_and(|m| usize::from(m.0) == member)
    }
    /// Is nothing left to write?
    pub(super) fn is_settled(&self) -> bool {
        self.round.is_idle()
            && self.callers.is_empty()
            && self.pending.is_empty()
            && (self.checkpoints.is_final() || self.farewell == Farewell::Told)
            && (!self.has_mirror() || self.staging.lag() == 0)
    }
    /// What is to be said on the members once everything is written.
    pub(super) fn closing(&self) -> Closing {
        Closing {
            next_seq: self.staging.tip().next_seq,
            counters: self.raising.known().clone(),
        }
    }
    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.staging.memory()
            + self.checkpoints.bytes()
            + self.pending.bytes()
            + self.follow.bytes()
    }
    /// Lag of the mirror in blocks, checkpoint number.
    pub(super) fn progress(&self) -> (u64, u64) {
        let lag = if self.has_mirror() {
            self.staging.lag()
        } else {
            0
        };
        (lag, self.checkpoints.number())
    }
    /// For the report of a run that hangs.
    pub(super) fn under_way(&self) -> impl core::fmt::Debug + use<> {
        (
            self.freeing.clone(),
            self.round.clone(),
            self.callers.clone(),
            self.pending.len(),
            self.checkpoints.building(),
            (self.staging.lag(), self.staging.room(), self.ring_room()),
        )
    }
}
