//! Durability: how changes become durable, and when a slot that was given up may be used again.
//!
//! | file | content |
//! |---|---|
//! | `ahead.rs` | flushes that begin before a FLUSH asks for them |
//! | `gather.rs` | FLUSHes that wait for writes in progress, so that one flush serves several writers |
//! | `reasons.rs` | the reasons for a round, and the time at which one begins |
//! | `begin.rs` | how a round begins: what it is for, the devices to flush, the snapshot |
//! | `round.rs` | its steps: flush of data, writing of records, flush of the journal, and the outcome |
//! | `flushes.rs` | the devices that a round flushes |
//! | `records.rs` | the records of a round: of changes, of moves; the place of the bytes of metadata |
//! | `pending.rs` | extents whose durable state differs from the map, and the requests that wait for them |
//! | `checkpoints.rs` | the checkpoint being built, the last durable one |
//! | `counters.rs` | members' counters, which rounds raise |
//! | `final_records.rs` | the end of a session without a checkpoint |
//! | `keep.rs` | writes that must survive a kill of the server, without a round |
//! | `marks.rs` | the marks of the disks of a cache volume |
//! | `written.rs` | the lists of data that was lost with flash |
//! | `free.rs` | slots that are given up and not yet free |
//! | `rest.rs` | copies that were cleaned and are still named by a record |
//! | `clean_claims.rs` | claims that copies are clean, which keep a cache over a crash |
//!
//! Other parts ask this part to note a change, to free a slot, or to answer a request when a round is done. Only the engine starts rounds.

mod ahead;
mod begin;
mod checkpoints;
mod clean_claims;
mod counters;
mod final_records;
mod flushes;
mod free;
mod gather;
mod keep;
mod marks;
mod pending;
mod reasons;
mod records;
mod rest;
mod round;
mod written;

pub(super) use begin::MovesRecorded;
pub(super) use flushes::CopiedOn;
pub(super) use reasons::MovesAsk;
pub(super) use round::RoundEnd;

use super::Params;
use super::globals::Globals;
use crate::mutants::Mutant;
use crate::store::journal::Staging;
use crate::store::{BLOCK, Closing, Layout, Opened};
use crate::units::{ExtentId, MemberId, Nanos};
use crate::volume::regions::Regions;
use ahead::Ahead;
use alloc::vec::Vec;
use checkpoints::Checkpoints;
use clean_claims::CleanClaims;
use counters::CounterUpdates;
use final_records::FinalRecords;
use free::Freeing;
use gather::Gather;
use marks::Marks;
use pending::{Pending, RoundQueue};
use rest::Resting;
use round::{MetaWrite, Round};
use written::Written;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Durability {
    layout: Layout,
    /// The number of this session.
    epoch: u64,
    round: Round,
    ahead: Ahead,
    gather: Gather,
    queue: RoundQueue,
    pending: Pending,
    staging: Staging,
    /// The time at which the mirror should be brought up to date, unless another reason does it earlier.
    mirror_due: Option<Nanos>,
    checkpoints: Checkpoints,
    /// Whether the journal, the staging area or a checkpoint needs a round, as of the end of the last round. Only rounds change this.
    pressed: bool,
    /// The marks of the disks.
    marks: Marks,
    /// The pages of the lists of lost data.
    lists: Written,
    /// Whether the mirror gets everything in the same round.
    synchronous: bool,
    freeing: Freeing,
    resting: Resting,
    clean: CleanClaims,
    /// Members' counters.
    counters: CounterUpdates,
    /// Buffer for the metadata writes of a round; empty between rounds.
    writes: Vec<MetaWrite>,
    /// Set if every record names the clean blocks of copies, not only the records at the end (a mutant).
    always_clean_epoch: Option<u64>,
    /// Whether records state which blocks of copies are clean, because the session is at its end ([`Durability::withdraw_all`]).
    exact: bool,
    /// Whether the session ends without a checkpoint.
    final_records: FinalRecords,
}

impl Durability {
    /// The state for an opened volume.
    pub(super) fn new(opened: &Opened, p: &Params) -> Durability {
        let (sb, space) = (&opened.superblock, &opened.space);
        let mut new = Durability {
            layout: opened.layout,
            epoch: sb.epoch,
            round: Round::default(),
            ahead: Ahead::default(),
            gather: Gather::default(),
            queue: RoundQueue::default(),
            pending: Pending::new(space.geo.extents),
            staging: Staging::new(sb.uuid, sb.epoch, opened.tip, p.stage_blocks.max(8))
                .unread(p.unread_metadata),
            mirror_due: None,
            checkpoints: Checkpoints::new(opened, p),
            pressed: false,
            marks: Marks::new(opened),
            lists: Written::new(sb),
            synchronous: opened.layout.is_synchronous(sb.kind),
            freeing: Freeing::default(),
            resting: Resting::default(),
            clean: CleanClaims::new(opened.time_base),
            counters: CounterUpdates::new(opened, p.counter_every),
            writes: Vec::with_capacity(16),
            always_clean_epoch: None,
            exact: false,
            final_records: FinalRecords::default(),
        };
        new.pressed = new.is_pressed();
        new
    }
    /// Notes that the durable state of `e` differs from the map, so that a record is due.
    pub(super) fn note(&mut self, g: &Globals, e: ExtentId) {
        // Without flash there are no copies, and nothing else of a cache volume has records.
        if self.layout.has_journal {
            self.pending.note(e, g.clock + g.params.commit_interval);
        }
    }
    /// The regions of a cache volume whose dirty copies are marked on its disks.
    pub(super) fn covered(&self) -> Regions {
        self.marks.covered()
    }
    /// From now on all regions are marked, so that no FLUSH wakes a disk, or only those that need it.
    pub(super) fn cover_all(&mut self, on: bool) {
        self.marks.cover_all(on);
    }
    /// Whether `member` may sleep as far as its mark is concerned.
    pub(super) fn covers_all(&self, member: usize) -> bool {
        self.marks.has_all(member)
    }
    /// Answers request `r` when a round that starts from now on is durable, or a round that began ahead and covers everything that the
    /// request needs.
    pub(super) fn join(&mut self, g: &mut Globals, r: u32) {
        let mark = self.pending.mark();
        if self.is_met_ahead(g) {
            let forgets = g.broken(Mutant::AheadForgetsRecords);
            self.queue.join_current(r, if forgets { 0 } else { mark });
        } else {
            self.queue.join(r, mark);
            self.consider_wait(g);
        }
    }
    /// Whether all metadata that is needed to find `e` is durable now, on every member that must have it.
    pub(super) fn is_known(&self, g: &Globals, e: ExtentId) -> bool {
        // A round that began ahead carries no records of changes.
        let settled = self.round.is_idle() || self.round.is_ahead();
        let kept_only = self.staging.has_kept() && !g.broken(Mutant::FuaTrustsKept);
        let owed = g.space.lost.is_open(e) && !g.broken(Mutant::FuaTrustsLost);
        let noted = self.pending.contains(e) || g.space.map.regions().is_bare(e);
        settled && !kept_only && !noted && !owed
    }
    /// Whether a FUA write that has ended on `e` needs a round before its reply, although none was needed when it was issued
    /// ([`Durability::is_known`]): its region is dirty only now and the disk has no mark of it, or the record that named its blocks was
    /// withdrawn meanwhile, because the copy had rested.
    pub(super) fn owes(&self, g: &Globals, e: ExtentId) -> bool {
        let bare = g.space.map.regions().lacks_mark(e) && !g.broken(Mutant::FuaForgetsMark);
        bare || (self.pending.contains(e) && !g.broken(Mutant::FuaForgetsWithdrawal))
    }
    /// Whether metadata is being written or flushed.
    pub(super) fn writing_metadata(&self) -> bool {
        self.round.writes_metadata()
    }
    /// Whether no round is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.round.is_idle()
    }
    /// The member that carries the second copy of the metadata.
    pub(super) fn mirror(&self) -> Option<MemberId> {
        self.layout.mirror.map(|c| c.member)
    }
    fn has_mirror(&self) -> bool {
        self.layout.mirror.is_some()
    }
    fn mirror_awake(&self, g: &Globals) -> bool {
        self.mirror().is_some_and(|m| !g.devices.is_asleep(m))
    }
    /// Whether `member` is the mirror and lacks blocks of the journal.
    pub(super) fn lags_on(&self, member: usize) -> bool {
        self.staging.lag() > 0 && self.mirror().is_some_and(|m| usize::from(m.0) == member)
    }
    /// Whether nothing is left to write.
    pub(super) fn is_settled(&self, g: &Globals) -> bool {
        self.round.is_idle()
            && self.queue.is_empty()
            && self.pending.is_empty()
            && self.clean.is_quiet()
            && !self.staging.has_kept()
            && (self.checkpoints.is_final() || self.final_records == FinalRecords::Written)
            && (!self.has_mirror() || self.staging.lag() == 0)
            && self.marks.is_exact(g)
            && !g.space.lost.any_changed()
    }
    /// The values for the superblocks, when everything has been written.
    pub(super) fn closing(&self) -> Closing {
        Closing {
            next_seq: self.staging.tip().next_seq,
            counters: self.counters.known().clone(),
        }
    }
    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.staging.memory()
            + self.checkpoints.bytes()
            + self.pending.bytes()
            + self.resting.bytes()
            + self.clean.bytes()
            + self.marks.bytes_used()
    }
    /// See [`CounterUpdates::raises`].
    pub(super) fn counter_raises(&self, now: Nanos) -> (u64, u64) {
        self.counters.raises(now)
    }
    /// Largest number of blocks that a round adds to a checkpoint, with its header.
    pub(super) fn checkpoint_blocks(&self) -> u64 {
        (self.checkpoints.bytes() / BLOCK) as u64 + 1
    }
    /// Lag of the mirror in blocks, and the checkpoint number.
    pub(super) fn progress(&self) -> (u64, u64) {
        let lag = if self.has_mirror() {
            self.staging.lag()
        } else {
            0
        };
        (lag, self.checkpoints.number())
    }
    /// The state for the report of a run that hangs.
    pub(super) fn under_way(&self) -> impl core::fmt::Debug + use<> {
        (
            self.freeing.clone(),
            self.round.clone(),
            self.queue.clone(),
            self.pending.len(),
            self.checkpoints.building(),
            (self.staging.lag(), self.staging.room(), self.ring_room()),
        )
    }
}
