//! Rules below the engine and in front ends that can be removed, one at a time, to prove that tests notice it.
//!
//! As in the core (`isotherm_core::engine::MUTANTS`), without the `mutants` feature `broken` is a constant and the compiler removes the
//! branches. With it, `ISOTHERM_LIVE_MUTANT=Name` chooses one for a whole process, because most of these rules are on threads of their own.
//! `docs/proofs.md` lists what noticed each of them.

/// One removed rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveMutant {
    /// The flush of a device ends without a system call.
    FlushNothing,
    /// Writes that must be durable are made without `RWF_DSYNC`.
    DropDsync,
    /// A failed flush is treated as a success.
    ForgetFlushError,
    /// Of zeros that must be written piece by piece, only the first piece is written.
    ZeroFirstPiece,
    /// Zeros that must be durable are made by `fallocate`, which promises nothing.
    ZeroRangeForFua,
    /// The ends of a zeroing that are not whole blocks keep their data.
    KeepZeroEnds,
    /// A truncated member is still read and written.
    ServeCut,
    /// The member that comes back need not have what was written to it.
    TrustAnySuccessor,
    /// A server that finds the stamp of another server overwrites it.
    ServeOvertaken,
    /// After a gap the stamp is not read before writing.
    NoLookAfterGap,
    /// Opening a volume that was not closed does not wait for a possible server.
    ClaimAtOnce,
    /// What took the place of a member is stamped like it.
    StampStrangers,
    /// A process of this machine that lives, and does not stamp the volume, is taken to have ended.
    LiveHasEnded,
    /// The stamp is read like data: from the page cache, if data is.
    StampFromCache,
    /// If two devices have one member's identity, the first one found is used.
    TakeEitherTwin,
    /// The members of a failed volume are marked clean.
    CleanAfterFailure,
    /// A volume that failed while it was being closed to be opened again is served on.
    ReopenAfterFailure,
    /// What flash holds counts although a flush of it failed.
    TrustUnflushedFlash,
    /// After the end of a cache that took data with it, a FLUSH succeeds.
    FlushAfterLoss,
    /// After the end of a cache, requests that waited are not carried out.
    ForgetWaiting,
    /// Writes to a member that is being copied are not noted.
    NoteNoWrites,
    /// Writes to a member that is being copied are noted when they are issued, and not at their end.
    NoteWritesEarly,
    /// The flush of a member of two devices reaches only the first one.
    FlushDataAlone,
    /// The tail device of a member is used whatever session it is of.
    TrustOldTail,
    /// Metadata that creation and recovery write is not flushed.
    MediaFlushNothing,
    /// An unaligned write keeps the old bytes of its first block, but not those of its last block.
    PatchHeadOnly,
    /// The edge blocks of an unaligned write are read over its payload.
    ReadOverPayload,
    /// A write of the same bytes to two members takes them from the request's pages twice.
    WritePagesTwice,
    /// The FUA flag of NBD requests is ignored.
    DropNbdFua,
    /// An NBD FLUSH is answered by the front end.
    AnswerNbdFlush,
    /// An NBD request that the engine dropped is answered as done.
    LostNbdSucceeds,
    /// An NBD request that failed is answered as done.
    FailedNbdSucceeds,
    /// The received part of an NBD WRITE whose peer disappeared is written.
    WriteHalfPayload,
    /// NBD's WRITE_ZEROES frees space that the client wants to keep.
    FreeKeptZeroes,
    /// A read-only export accepts NBD writes.
    WriteReadOnlyNbd,
    /// A payload that must be skipped is read as the next requests.
    ForgetSkip,
    /// `fsync` of the block file is answered by the front end.
    AnswerFsync,
    /// Writes through an `O_DSYNC` descriptor of the block file are made without FUA.
    DropDsyncFlag,
    /// The result of a discard in pieces is that of the last piece, and earlier errors are ignored.
    LastPieceCounts,
}

/// All mutants.
pub const LIVE_MUTANTS: [LiveMutant; 39] = [
    LiveMutant::FlushNothing,
    LiveMutant::DropDsync,
    LiveMutant::ForgetFlushError,
    LiveMutant::ZeroFirstPiece,
    LiveMutant::ZeroRangeForFua,
    LiveMutant::KeepZeroEnds,
    LiveMutant::ServeCut,
    LiveMutant::TrustAnySuccessor,
    LiveMutant::ServeOvertaken,
    LiveMutant::NoLookAfterGap,
    LiveMutant::ClaimAtOnce,
    LiveMutant::StampStrangers,
    LiveMutant::LiveHasEnded,
    LiveMutant::StampFromCache,
    LiveMutant::TakeEitherTwin,
    LiveMutant::CleanAfterFailure,
    LiveMutant::ReopenAfterFailure,
    LiveMutant::TrustUnflushedFlash,
    LiveMutant::FlushAfterLoss,
    LiveMutant::ForgetWaiting,
    LiveMutant::NoteNoWrites,
    LiveMutant::NoteWritesEarly,
    LiveMutant::FlushDataAlone,
    LiveMutant::TrustOldTail,
    LiveMutant::MediaFlushNothing,
    LiveMutant::PatchHeadOnly,
    LiveMutant::ReadOverPayload,
    LiveMutant::WritePagesTwice,
    LiveMutant::DropNbdFua,
    LiveMutant::AnswerNbdFlush,
    LiveMutant::LostNbdSucceeds,
    LiveMutant::FailedNbdSucceeds,
    LiveMutant::WriteHalfPayload,
    LiveMutant::FreeKeptZeroes,
    LiveMutant::WriteReadOnlyNbd,
    LiveMutant::ForgetSkip,
    LiveMutant::AnswerFsync,
    LiveMutant::DropDsyncFlag,
    LiveMutant::LastPieceCounts,
];

/// Whether this rule was removed.
#[cfg(any(test, feature = "mutants"))]
#[inline]
pub(crate) fn broken(m: LiveMutant) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<LiveMutant>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let name = std::env::var("ISOTHERM_LIVE_MUTANT").ok()?;
        let found = LIVE_MUTANTS.into_iter().find(|m| format!("{m:?}") == name);
        assert!(found.is_some(), "no mutant is called {name}");
        found
    });
    *chosen == Some(m)
}
/// Whether this rule was removed. (Never, in a build without the feature.)
#[cfg(not(any(test, feature = "mutants")))]
#[inline(always)]
#[allow(clippy::inline_always)]
pub(crate) fn broken(_m: LiveMutant) -> bool {
    false
}
