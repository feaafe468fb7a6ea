//! Safety rules that can be removed, one at a time, to prove that the test suites notice the removal.
//!
//! A mutant can be chosen only in a build with the `mutants` feature. Without the feature, the two questions for it
//! ([`crate::engine::Params`] for the engine, `store/mutants.rs` for recovery) are a constant `false`, and the compiler removes the
//! branches. The chaos and crash suites must fail under every mutant in [`MUTANTS`] (`crates/hostile/tests/mutants.rs`).

/// A variant of the engine in which one rule is removed. Each description says what this variant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A move's record is written although its copy was not flushed.
    FlipBeforeFlush,
    /// A FLUSH exposes and acknowledges writes without flushing their devices.
    ExposeBeforeFlush,
    /// A FLUSH does not flush the fast devices.
    FlushForgetsFast,
    /// A FLUSH does not flush the slow devices.
    FlushForgetsSlow,
    /// The journal is written but not flushed before the reply.
    SkipJournalFlush,
    /// A write to a moving extent does not mark the move stale.
    ForgetStaleMark,
    /// Writes do not pin their slot, so a move may start while they are in progress.
    SkipPin,
    /// A freed slot is allocated before its freeing is durable.
    ReuseBeforeDurable,
    /// A freed slot is allocated while a read of it is in progress.
    ReusePinned,
    /// A partial first write exposes the whole extent.
    ForgetZeroFill,
    /// A checkpoint's header is written together with its blocks.
    CheckpointWithoutBarrier,
    /// The journal may overwrite what the last durable checkpoint still needs.
    OverrunJournal,
    /// A FUA write is treated as an ordinary write.
    ForgetFua,
    /// A write that must survive a kill of the server is answered before a record names its place.
    ForgetKept,
    /// A round does not write the blocks of the journal that were only kept.
    RoundForgetsKept,
    /// A round for moves writes kept blocks without flushing the data that they expose.
    KeptWithoutFlush,
    /// A FUA write counts as durable if its record is only kept.
    FuaTrustsKept,
    /// A kept write relies on blocks of a round in progress that the keeper does not have.
    KeepForgetsRound,
    /// Kept blocks name the value of a member's counter that is not on the member yet.
    KeepBeforeRaise,
    /// Records are kept while a round with moves is in progress.
    KeepDuringMoves,
    /// A kept block is extended although a round has taken it.
    ExtendTakenBlock,
    /// A kept block is not restored where a block of an older session has the same number.
    RestoreYieldsToOld,
    /// After a kill, kept records are written before the data is flushed that they expose.
    RestoreBeforeFlush,
    /// After a failed flush, later ones succeed.
    ForgetFailedFlush,
    /// A discard does not wait for writes in progress.
    DiscardUnderWriter,
    /// A discard in a cache volume drops dirty blocks without a record of this.
    DiscardUnrecorded,
    /// The home of an extent of a cache volume is moved.
    MoveFixedHome,
    /// Unaligned writes to one block are not serialised.
    UnserialisedEdges,
    /// A slot of the slow tier is allocated although the mirror has no record that it is free.
    ReuseBeforeMirror,
    /// A slot on the primary is allocated although the mirror has no record that it is free.
    ReusePrimaryBeforeMirror,
    /// A short transfer counts as a whole one.
    TrustShortTransfer,
    /// Blocks count as clean although their home was not flushed.
    CleanBeforeFlush,
    /// The slot of a copy is allocated although a durable record names it as dirty.
    ReuseRecordedCopy,
    /// A write during a clean does not keep its blocks dirty.
    ForgetRedirty,
    /// The clean blocks of a copy count after a crash.
    TrustCleanAfterCrash,
    /// The first bytes of an adopted disk are overwritten before it states that they are set aside.
    AdoptBeforeMark,
    /// An adopted disk counts as covered before its superblock is there.
    CoverBeforeSuperblock,
    /// A claim that a copy is clean is recorded although its home was not flushed.
    ClaimUnflushed,
    /// A copy is claimed to be clean while a write of its extent is in progress.
    ClaimUnderWriter,
    /// A write does not wait for the withdrawal of the claim that the extent's copy is clean.
    WriteUnderClaim,
    /// A discard does not wait for that.
    DiscardUnderClaim,
    /// A fetch does not wait for the withdrawal of a claim about its slot.
    FetchUnderClaim,
    /// A write to a copy in a new slot does not wait for that.
    AllocateUnderClaim,
    /// A slot of a copy that was claimed to be clean is written to although the mirror still claims it.
    ReuseClaimedBeforeMirror,
    /// A checkpoint that begins at the end of the journal has claims that count although the next session makes them void.
    CountVoidClaims,
    /// A fetch starts during a write of its extent.
    FetchUnderWriter,
    /// A dirty copy is dropped without being written home.
    DropDirtyCopy,
    /// A write-through makes its copy valid when only one of the two writes has succeeded.
    TrustOneReplica,
    /// A write to the home bypasses dirty blocks of the copy.
    PassDirtyBy,
    /// A write to the home leaves the copy valid.
    KeepStaleCopy,
    /// Overlapping writes to an extent with a copy do not take turns.
    UnorderedReplicas,
    /// A discard does not wait for the writes of a clean or a fill.
    DiscardUnderClean,
    /// A FLUSH is answered although a disk has no mark of a region with dirty copies.
    ForgetMark,
    /// The mark of a region is removed before its data is durable at home.
    ClearMarkEarly,
    /// A disk that begins with a file system gets the volume's superblock again.
    MendOverFileSystem,
    /// The journal on another flash device may lag.
    LagOnOtherFlash,
    /// Slots of missing members are allocated.
    HandOutLost,
    /// The device of a joined write is not flushed before the records of its moves.
    JoinForgetsFlush,
    /// A joined operation that was torn in the middle counts as complete.
    TrustTornJoin,
    /// A stale move continues if its operation was a joined one.
    JoinForgetsStale,
    /// If a joined operation fails, only its first part is repeated, and the others count as done.
    RepeatOnlyFirst,
    /// A member that is an older copy of itself is brought up to date instead of refused.
    HealRollback,
    /// A round that, after a power loss, only the mirror has is treated as damage.
    RefuseMirrorAhead,
    /// If only the mirror has what followed the begin of a ring, the primary's ring, which was empty then, is treated as damaged.
    DoubtFirstBlocks,
    /// The same rule counts for a mirror that lags: it may lack what the primary's ring had, all of which is damaged.
    TrustLaggingMirror,
    /// What a member states counts also after a session began without it.
    HeedLeftOut,
    /// If members were written apart in sessions of the same generation, one of them counts as absent.
    AdmitDiverged,
    /// An adoption writes its second superblock a second time with other bytes.
    AdoptInOtherBytes,
    /// A hole in the journal is treated as its end.
    PassHole,
    /// The journal since an older checkpoint ends where it has filled the ring.
    EndAtFullRing,
    /// A journal block need not state the checksum of the previous one.
    IgnoreChain,
    /// Blocks of a session that lost them count after a later session began.
    AllowLostSession,
    /// The clean blocks of a copy at the end of any session count.
    TrustOldClean,
    /// A block that the primary lacks and the mirror has is not copied back.
    LeavePrimaryTorn,
    /// A checkpoint's header is copied before its blocks are durable.
    ResyncHeaderFirst,
    /// Recovery uses data that may only be in the devices' caches.
    NoFlushBeforeRecovery,
    /// Both superblocks of a member are covered by one flush.
    SuperblocksTogether,
    /// The next checkpoint's number ignores headers that were found and not used.
    RepeatCheckpointNumber,
    /// A member's counter is stated elsewhere before it is durable on that member.
    NameBeforeRaise,
    /// Counters are not raised while the volume runs.
    NeverRaise,
    /// Only rounds for other reasons raise counters.
    RaiseOnlyInRounds,
    /// A round that only raises counters wakes members.
    RaiseWakes,
    /// FUA is ignored for writes of zeros.
    ZeroesForgetFua,
    /// A checkpoint's records of dirty copies are not remembered.
    PieceForgetsRecorded,
    /// A failed round frees the destination slots of its moves.
    FreeAfterFailure,
    /// Of a member's two superblocks the first one counts, even if the second is newer.
    PreferFirstSuperblock,
    /// The blocks that recovery copied from one journal to the other are not flushed.
    ResyncWithoutFlush,
    /// The slot of a copy counts as unrecorded although a record after the one that withdrew it names it again.
    ForgetRenamed,
    /// The slot of a copy that was cleaned is allocated although the mirror still names it as dirty.
    ForgetRecordedBeforeMirror,
    /// A write to blocks that became valid after the last record of the copy makes no record due.
    ClaimUnnamed,
    /// A write to the home alone of blocks that the last record names in the copy makes no record due.
    PassClaimBy,
    /// Such a write is answered as durable (FUA) although this record counts.
    FuaPassesClaimBy,
    /// The last checkpoint of a session names no clean copy, and the journal goes on doing so.
    EndForgetsClaims,
    /// The same for the clean blocks of copies that have dirty blocks, too.
    EndForgetsPartly,
    /// Dirty blocks that flash cannot read are read from the home.
    RescueDirty,
    /// While flash is behind, dirty blocks are read from the home.
    ReadPastDirty,
    /// While flash is behind, blocks are read from the home although a write to their copy is in progress.
    ReadUnderWriter,
    /// A write that flash failed and the home took makes no record due.
    RescueUnrecorded,
    /// Such a write goes to the home while a clean writes older bytes there.
    RescueUnderClean,
    /// A checkpoint omits a copy that was cleaned and is still named.
    PieceForgetsClaims,
    /// Blocks count as named by a record that is only in an incomplete checkpoint.
    PieceNamesAll,
    /// A FLUSH that arrived during a round is answered with that round.
    ServeLateFlush,
    /// A write that ends while its device is being flushed counts as flushed.
    ForgetLateWrite,
    /// Records that only the primary has count as records of the mirror.
    SkipMirrorQuietly,
    /// The journal is replayed from the end of a checkpoint, not from its start.
    StartCheckpointLate,
    /// A checkpoint omits the extent whose record does not fit into the rest of a block.
    SkipRowAtBlockEnd,
    /// A session does not record the members that are missing.
    ForgetAbsent,
    /// Marks are cleared before what flash alone had is on the disks.
    SalvageMarksFirst,
    /// The same before it is durable there.
    SalvageUnflushed,
    /// A release that goes on copies a damaged stash over the head.
    TrustStash,
    /// A device that replaces a member keeps the journal blocks of an earlier use.
    KeepOldRing,
    /// The checkpoint of a volume with a new member names the old one.
    ReplaceOldIdentity,
    /// The mark of a disk that replaces a member names no region, although flash has dirty data.
    ReplaceNamesNothing,
    /// A member is removed from the table of members before its successor is durably a member.
    SuccessorLast,
    /// A closed volume's checkpoint gets its header before its blocks are durable.
    SettleWithoutBarrier,
    /// Slots become metadata of a larger volume while the checkpoint before still names copies in them.
    SettleBeforeVacate,
    /// The larger checkpoint of a volume that grows is written over the present one.
    GrowInPlace,
    /// A flash device that leaves takes its dirty data with it.
    LeaveForgetsDirty,
    /// A growth of a cache volume leaves what an abandoned one has written at the end that it wanted.
    GrowOverAbandoned,
    /// It forgets that place before it is durably cleared.
    NoteBeforeCleared,
    /// It writes to the new end before it is durably noted.
    TailBeforeNote,
    /// The only whole superblock of a member is overwritten.
    OverwriteLastSuperblock,
    /// A session begins without the step that distinguishes a crash between members from a member that missed a session.
    ActiveAtOnce,
    /// A discard of part of an extent leaves its copy as it is.
    DiscardKeepsCopy,
    /// Blocks whose first write failed count as written.
    TrustFailedWrite,
    /// A read of blocks that a fill does not contain is served from its buffer.
    FillServesAll,
    /// An extent that is filled with zeros is exposed before the zeros are written.
    ExposeBeforeFill,
    /// The zeros of a slot are not flushed before the extent is exposed.
    ForgetFilled,
    /// A write does not wait until its extent is filled with zeros.
    WriteDuringFill,
    /// A discard that should write zeros, because there is no memory for a bitmap, does nothing.
    DiscardKeepsBytes,
    /// A FLUSH is answered with a round that began ahead, although a write has ended since.
    AheadForgetsLate,
    /// A FLUSH that is answered with a round that began ahead does not wait for its records.
    AheadForgetsRecords,
    /// A FLUSH is answered with a round that began ahead, although a record for the mirror is due.
    AheadForgetsMark,
    /// A FUA write that makes the first copy of a region dirty is answered before the disk has its mark.
    FuaForgetsMark,
    /// A FUA write to blocks whose record was withdrawn meanwhile is answered before they have another one.
    FuaForgetsWithdrawal,
    /// A write to an extent does not see that a move of it is in progress.
    GateForgetsMoves,
    /// A FLUSH that waits for writes in progress waits without a limit.
    GatherForgetsLimit,
    /// A FLUSH that has waited for writes is answered without a flush, as if it needed no device.
    GatherSkipsFlush,
    /// Blocks that were lost with flash are read from the disk, which has older bytes.
    ServeLost,
    /// A FLUSH does not make durable which lost blocks were written again.
    ForgetWritten,
    /// A list says that lost blocks were written again before they are durable.
    WrittenBeforeFlush,
    /// A FUA write of lost blocks is answered before the list says that they were written.
    FuaTrustsLost,
    /// A FLUSH is answered with a round that began ahead, although a page of a list is due.
    AheadForgetsWritten,
    /// An extent with lost blocks gets a copy.
    CopyOfLost,
    /// A list that is made from another one is written over it.
    RelistInPlace,
    /// A mark names a list before its pages are durable.
    ListBeforePages,
    /// After the end of a cache that takes data with it, the marks name nothing.
    SalvageForgetsLost,
    /// Of a list with a page that cannot be read, what has no page counts as written.
    DamagedPageForgotten,
    /// A session goes on with a list of which a page could not be read.
    DamagedListKept,
    /// Of a page with damaged sectors, what these had counts as written.
    DamagedSectorForgotten,
    /// A granule of a list is lost only if all of its blocks are.
    CoarseInward,
    /// A write of a part of a lost granule makes all of it readable.
    PartOfGranule,
    /// What the user asked home counts as there while the disks are still marked.
    AskedForgetsMarks,
    /// Another policy takes over, and what the user asked home is forgotten.
    SwitchForgetsAsked,
    /// Writes make more dirty than `dirty_max` allows.
    PassDirtyMax,
    /// What was lost with flash is copied to new flash because the user wants all data there.
    WarmOfLost,
}

/// All mutants that the tests must notice.
pub const MUTANTS: [Mutant; 155] = [
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
    Mutant::RoundForgetsKept,
    Mutant::KeptWithoutFlush,
    Mutant::FuaTrustsKept,
    Mutant::KeepForgetsRound,
    Mutant::KeepBeforeRaise,
    Mutant::KeepDuringMoves,
    Mutant::ExtendTakenBlock,
    Mutant::RestoreYieldsToOld,
    Mutant::RestoreBeforeFlush,
    Mutant::ForgetFailedFlush,
    Mutant::DiscardUnderWriter,
    Mutant::DiscardUnrecorded,
    Mutant::MoveFixedHome,
    Mutant::UnserialisedEdges,
    Mutant::ReuseBeforeMirror,
    Mutant::TrustShortTransfer,
    Mutant::CleanBeforeFlush,
    Mutant::ReuseRecordedCopy,
    Mutant::ForgetRedirty,
    Mutant::TrustCleanAfterCrash,
    Mutant::AdoptBeforeMark,
    Mutant::CoverBeforeSuperblock,
    Mutant::ClaimUnflushed,
    Mutant::ClaimUnderWriter,
    Mutant::WriteUnderClaim,
    Mutant::DiscardUnderClaim,
    Mutant::FetchUnderClaim,
    Mutant::AllocateUnderClaim,
    Mutant::ReuseClaimedBeforeMirror,
    Mutant::CountVoidClaims,
    Mutant::FetchUnderWriter,
    Mutant::DropDirtyCopy,
    Mutant::TrustOneReplica,
    Mutant::PassDirtyBy,
    Mutant::KeepStaleCopy,
    Mutant::UnorderedReplicas,
    Mutant::DiscardUnderClean,
    Mutant::ForgetMark,
    Mutant::ClearMarkEarly,
    Mutant::LagOnOtherFlash,
    Mutant::MendOverFileSystem,
    Mutant::HandOutLost,
    Mutant::JoinForgetsFlush,
    Mutant::TrustTornJoin,
    Mutant::JoinForgetsStale,
    Mutant::RepeatOnlyFirst,
    Mutant::HealRollback,
    Mutant::RefuseMirrorAhead,
    Mutant::DoubtFirstBlocks,
    Mutant::TrustLaggingMirror,
    Mutant::HeedLeftOut,
    Mutant::AdmitDiverged,
    Mutant::AdoptInOtherBytes,
    Mutant::PassHole,
    Mutant::EndAtFullRing,
    Mutant::LeavePrimaryTorn,
    Mutant::SuperblocksTogether,
    Mutant::NameBeforeRaise,
    Mutant::NeverRaise,
    Mutant::RaiseOnlyInRounds,
    Mutant::RaiseWakes,
    Mutant::ZeroesForgetFua,
    Mutant::TrustOldClean,
    Mutant::ReusePrimaryBeforeMirror,
    Mutant::AllowLostSession,
    Mutant::ResyncHeaderFirst,
    Mutant::NoFlushBeforeRecovery,
    Mutant::RepeatCheckpointNumber,
    Mutant::PieceForgetsRecorded,
    Mutant::FreeAfterFailure,
    Mutant::PreferFirstSuperblock,
    Mutant::ResyncWithoutFlush,
    Mutant::ForgetRenamed,
    Mutant::ForgetRecordedBeforeMirror,
    Mutant::ClaimUnnamed,
    Mutant::PassClaimBy,
    Mutant::FuaPassesClaimBy,
    Mutant::PieceForgetsClaims,
    Mutant::RescueDirty,
    Mutant::ReadPastDirty,
    Mutant::ReadUnderWriter,
    Mutant::RescueUnrecorded,
    Mutant::RescueUnderClean,
    Mutant::EndForgetsClaims,
    Mutant::EndForgetsPartly,
    Mutant::PieceNamesAll,
    Mutant::ServeLateFlush,
    Mutant::ForgetLateWrite,
    Mutant::SkipMirrorQuietly,
    Mutant::StartCheckpointLate,
    Mutant::SkipRowAtBlockEnd,
    Mutant::ForgetAbsent,
    Mutant::SalvageMarksFirst,
    Mutant::SalvageUnflushed,
    Mutant::TrustStash,
    Mutant::KeepOldRing,
    Mutant::ReplaceOldIdentity,
    Mutant::ReplaceNamesNothing,
    Mutant::SuccessorLast,
    Mutant::SettleWithoutBarrier,
    Mutant::SettleBeforeVacate,
    Mutant::GrowInPlace,
    Mutant::LeaveForgetsDirty,
    Mutant::GrowOverAbandoned,
    Mutant::NoteBeforeCleared,
    Mutant::TailBeforeNote,
    Mutant::OverwriteLastSuperblock,
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
    Mutant::AheadForgetsMark,
    Mutant::FuaForgetsMark,
    Mutant::FuaForgetsWithdrawal,
    Mutant::GateForgetsMoves,
    Mutant::GatherForgetsLimit,
    Mutant::GatherSkipsFlush,
    Mutant::ServeLost,
    Mutant::ForgetWritten,
    Mutant::WrittenBeforeFlush,
    Mutant::FuaTrustsLost,
    Mutant::AheadForgetsWritten,
    Mutant::CopyOfLost,
    Mutant::RelistInPlace,
    Mutant::ListBeforePages,
    Mutant::SalvageForgetsLost,
    Mutant::DamagedPageForgotten,
    Mutant::DamagedListKept,
    Mutant::DamagedSectorForgotten,
    Mutant::CoarseInward,
    Mutant::PartOfGranule,
    Mutant::AskedForgetsMarks,
    Mutant::SwitchForgetsAsked,
    Mutant::PassDirtyMax,
    Mutant::WarmOfLost,
];

/// Rules that others imply: no test can notice their removal. The argument is in `docs/proofs.md`.
pub const IMPLIED: [Mutant; 1] = [Mutant::IgnoreChain];
