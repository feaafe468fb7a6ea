//! Safety rules that can be taken out, one at a time, to prove that the test suites notice.
//!
//! Only with the `mutants` feature can one be chosen; without it [`chosen`] is a constant `false` and the compiler
//! removes the branches. The chaos and crash suites must fail under every one of these (`crates/hostile/tests/mutants.rs`).

use super::Engine;

/// One removed rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A move's record is written although its copy was not flushed.
    FlipBeforeFlush,
    /// A FLUSH exposes and acknowledges writes without flushing their devices.
    ExposeBeforeFlush,
    /// A FLUSH leaves out the fast devices.
    FlushForgetsFast,
    /// A FLUSH leaves out the slow devices.
    FlushForgetsSlow,
    /// The journal is written but not flushed before the reply.
    SkipJournalFlush,
    /// A write to a moving extent does not mark the move stale.
    ForgetStaleMark,
    /// Writes do not pin their slot: a move may start under them.
    SkipPin,
    /// A freed slot is given out before its freeing is durable.
    ReuseBeforeDurable,
    /// A freed slot is given out while somebody still reads it.
    ReusePinned,
    /// A partial first write exposes the whole extent.
    ForgetZeroFill,
    /// A checkpoint's header is written together with its blocks.
    CheckpointWithoutBarrier,
    /// The journal may overwrite what the last durable checkpoint still needs.
    OverrunJournal,
    /// FUA is taken for an ordinary write.
    ForgetFua,
    /// A write that must survive the death of the server is answered before a record says where it is.
    ForgetKept,
    /// After a failed flush, later ones succeed.
    ForgetFailedFlush,
    /// A discard does not wait for writes in flight.
    DiscardUnderWriter,
    /// Odd writes to one block are not serialised.
    UnserialisedEdges,
    /// A slow slot is given out although the mirror does not know that it is free.
    ReuseBeforeMirror,
    /// A slot on the primary is given out although the mirror does not know that it is free.
    ReusePrimaryBeforeMirror,
    /// A short transfer counts as a whole one.
    TrustShortTransfer,
    /// A record says that blocks are clean although their home was not flushed.
    CleanBeforeFlush,
    /// The slot of a copy is given out although a durable record names it as dirty.
    ReuseRecordedCopy,
    /// A write during a clean does not keep its blocks dirty.
    ForgetRedirty,
    /// What a copy held clean is believed after a crash.
    TrustCleanAfterCrash,
    /// A fetch starts under a write in flight.
    FetchUnderWriter,
    /// A dirty copy is given up without being written home.
    DropDirtyCopy,
    /// A write-through makes its copy valid when one of the two writes has ended well.
    TrustOneReplica,
    /// A write to the home passes dirty blocks of the copy by.
    PassDirtyBy,
    /// A write to the home leaves the copy valid.
    KeepStaleCopy,
    /// Overlapping writes to an extent with a copy do not take turns.
    UnorderedReplicas,
    /// A discard does not wait for the writes of a clean or a fill.
    DiscardUnderClean,
    /// The mirror is not told of homes before a FLUSH is answered.
    MirrorForgetsHomes,
    /// The mirror is not told that there are dirty copies.
    MirrorForgetsDirty,
    /// A mirror that may lag does not say so.
    LazyInSilence,
    /// Slots of missing members are given out.
    HandOutLost,
    /// A joined write's device is left out of the flush before its moves' records.
    JoinForgetsFlush,
    /// A joined operation that was torn in the middle counts as whole.
    TrustTornJoin,
    /// A move that was overtaken goes on if its operation was a joined one.
    JoinForgetsStale,
    /// Of a joined operation that failed only the first part is repeated, and the others count as done.
    RepeatOnlyFirst,
    /// A member that is an older copy of itself is brought up to date instead of refused.
    HealRollback,
    /// A round that only the mirror has, since power was lost, is taken for damage.
    RefuseMirrorAhead,
    /// A hole in the journal is taken for its end.
    PassHole,
    /// A journal block need not name the checksum of the one before.
    IgnoreChain,
    /// Blocks of a session that lost them count after a later session began.
    AllowLostSession,
    /// What a copy held clean at the end of any session is believed.
    TrustOldClean,
    /// A block that the primary lacks and the mirror has is not copied back.
    LeavePrimaryTorn,
    /// A checkpoint's header is copied before its blocks are durable.
    ResyncHeaderFirst,
    /// Recovery reads what may still be in the devices' caches.
    NoFlushBeforeRecovery,
    /// Both superblocks of a member are under one flush.
    SuperblocksTogether,
    /// The next checkpoint's number ignores headers that were seen and not used.
    RepeatCheckpointNumber,
    /// A member's counter is named before it is durable on that member.
    NameBeforeRaise,
    /// Counters are not raised while the volume runs.
    NeverRaise,
    /// FUA is forgotten for writes of zeros.
    ZeroesForgetFua,
    /// A round of moves does not flush the copy whose clean it records.
    CleanForgetsCopy,
    /// A checkpoint's records of dirty copies are not remembered.
    PieceForgetsRecorded,
    /// A failed round frees the slots that its moves were going to.
    FreeAfterFailure,
    /// Of a member's two superblocks the first counts, even if the second is newer.
    PreferFirstSuperblock,
    /// What recovery copied from one journal to the other is not flushed.
    ResyncWithoutFlush,
    /// A clean that was overtaken in part forgets that a durable record names the copy.
    ForgetRecordedEarly,
    /// A clean whose record found no room counts as done until it does.
    KeepUnrecordedClean,
    /// A FLUSH that came while a round was under way is answered with it.
    ServeLateFlush,
    /// A write that ends while its device is being flushed counts as flushed.
    ForgetLateWrite,
    /// What only the primary was told counts as told to the mirror.
    SkipMirrorQuietly,
    /// The journal is replayed from where a checkpoint ended, not from where it began.
    StartCheckpointLate,
    /// A checkpoint leaves out the extent whose record does not fit the rest of a block.
    SkipRowAtBlockEnd,
    /// A session does not say which members it goes without.
    ForgetAbsent,
    /// A session begins without the step that tells a crash between members from one that stayed behind.
    ActiveAtOnce,
    /// A discard of part of an extent leaves its copy as it is.
    DiscardKeepsCopy,
    /// Blocks whose first write failed count as written.
    TrustFailedWrite,
    /// A read of blocks that a fill does not carry is served from its buffer.
    FillServesAll,
    /// An extent that is filled with zeros is exposed before the zeros are written.
    ExposeBeforeFill,
    /// Zeros that a slot was filled with are not flushed before the extent is exposed.
    ForgetFilled,
    /// A write does not wait until its extent is filled with zeros.
    WriteDuringFill,
    /// A discard that should write zeros, for want of a bitmap, does nothing.
    DiscardKeepsBytes,
    /// A FLUSH is answered with a round that began ahead, although a write ended since.
    AheadForgetsLate,
    /// A FLUSH that is answered with a round that began ahead does not ask for its records.
    AheadForgetsRecords,
    /// A FLUSH is answered with a round that began ahead, although the mirror must be told something.
    AheadForgetsMirror,
    /// A write to an extent does not see that a move of it is under way.
    GateForgetsMoves,
}

/// All of them.
pub const MUTANTS: [Mutant; 77] = [
    Mutant::FlipBeforeFlush,
    Mutant::ExposeBeforeFlush,
    Mutant::FlushForgetsFast,
    Mutant::FlushForgetsSlow,
    Mutant::SkipJournalFlush,
    Mutant::ForgetStaleMark,
    Mutant::SkipPin,
    Mutant::ReuseBeforeDurable,
    Mutant::ReusePinned,
    Mutant::ForgetZeroFill,
    Mutant::CheckpointWithoutBarrier,
    Mutant::OverrunJournal,
    Mutant::ForgetFua,
    Mutant::ForgetKept,
    Mutant::ForgetFailedFlush,
    Mutant::DiscardUnderWriter,
    Mutant::UnserialisedEdges,
    Mutant::ReuseBeforeMirror,
    Mutant::TrustShortTransfer,
    Mutant::CleanBeforeFlush,
    Mutant::ReuseRecordedCopy,
    Mutant::ForgetRedirty,
    Mutant::TrustCleanAfterCrash,
    Mutant::FetchUnderWriter,
    Mutant::DropDirtyCopy,
    Mutant::TrustOneReplica,
    Mutant::PassDirtyBy,
    Mutant::KeepStaleCopy,
    Mutant::UnorderedReplicas,
    Mutant::DiscardUnderClean,
    Mutant::MirrorForgetsHomes,
    Mutant::MirrorForgetsDirty,
    Mutant::LazyInSilence,
    Mutant::HandOutLost,
    Mutant::JoinForgetsFlush,
    Mutant::TrustTornJoin,
    Mutant::JoinForgetsStale,
    Mutant::RepeatOnlyFirst,
    Mutant::HealRollback,
    Mutant::RefuseMirrorAhead,
    Mutant::PassHole,
    Mutant::LeavePrimaryTorn,
    Mutant::SuperblocksTogether,
    Mutant::NameBeforeRaise,
    Mutant::NeverRaise,
    Mutant::ZeroesForgetFua,
    Mutant::TrustOldClean,
    Mutant::ReusePrimaryBeforeMirror,
    Mutant::AllowLostSession,
    Mutant::ResyncHeaderFirst,
    Mutant::NoFlushBeforeRecovery,
    Mutant::RepeatCheckpointNumber,
    Mutant::CleanForgetsCopy,
    Mutant::PieceForgetsRecorded,
    Mutant::FreeAfterFailure,
    Mutant::PreferFirstSuperblock,
    Mutant::ResyncWithoutFlush,
    Mutant::ForgetRecordedEarly,
    Mutant::KeepUnrecordedClean,
    Mutant::ServeLateFlush,
    Mutant::ForgetLateWrite,
    Mutant::SkipMirrorQuietly,
    Mutant::StartCheckpointLate,
    Mutant::SkipRowAtBlockEnd,
    Mutant::ForgetAbsent,
    Mutant::ActiveAtOnce,
    Mutant::DiscardKeepsCopy,
    Mutant::TrustFailedWrite,
    Mutant::FillServesAll,
    Mutant::ExposeBeforeFill,
    Mutant::ForgetFilled,
    Mutant::WriteDuringFill,
    Mutant::DiscardKeepsBytes,
    Mutant::AheadForgetsLate,
    Mutant::AheadForgetsRecords,
    Mutant::AheadForgetsMirror,
    Mutant::GateForgetsMoves,
];

/// Rules that others imply: nobody can notice their absence. The argument: `docs/on-disk-format.md`, section 8.
pub const IMPLIED: [Mutant; 1] = [Mutant::IgnoreChain];

/// Was this rule taken out?
#[cfg(feature = "mutants")]
#[inline]
pub(super) fn chosen(params: &super::Params, m: Mutant) -> bool {
    params.mutant == Some(m)
}
/// Was this rule taken out? (Never, in a build without the feature.)
#[cfg(not(feature = "mutants"))]
#[inline(always)]
#[allow(clippy::inline_always)]
pub(super) fn chosen(_params: &super::Params, _m: Mutant) -> bool {
    false
}

impl Engine {
    /// Take a rule out of a running engine.
    #[cfg(feature = "mutants")]
    pub fn break_rule(&mut self, m: Mutant) {
        self.ground.params.mutant = Some(m);
    }
}
