//! Rules of the real world and its front ends that can be taken out, one at a time, to prove that tests notice.
//!
//! As in the core (`isotherm_core::engine::MUTANTS`): without the `mutants` feature `broken` is a constant and the compiler removes
//! the branches. With it, `ISOTHERM_LIVE_MUTANT=Name` chooses one for a whole process, since most of these rules live on threads of
//! their own. What noticed each: `docs/on-disk-format.md`, section 8.

/// One removed rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveMutant {
    /// A device's flush ends without a system call.
    FlushNothing,
    /// A flush that the engine's thread does itself ends without a system call.
    FlushHereNothing,
    /// Writes that must be durable go without `RWF_DSYNC`.
    DropDsync,
    /// A flush that failed counts as one that did not.
    ForgetFlushError,
    /// Of zeros that must be written piece by piece only the first piece is.
    ZeroFirstPiece,
    /// A member that was cut short goes on being read and written.
    ServeCut,
    /// A server that finds another's stamp writes its own over it.
    ServeOvertaken,
    /// After a gap nobody looks at the stamp before writing.
    NoLookAfterGap,
    /// Whoever opens a volume that was not closed does not wait whether somebody serves it.
    ClaimAtOnce,
    /// Two devices with one member's identity: the first that is found is taken.
    TakeEitherTwin,
    /// The members of a volume that failed are marked clean.
    CleanAfterFailure,
    /// Metadata that creation and recovery write is not flushed.
    MediaFlushNothing,
    /// An odd write keeps what is before it in its first block, and not what is behind it in its last.
    PatchHeadOnly,
    /// An odd write's edge blocks are read over its payload.
    ReadOverPayload,
    /// FUA of NBD requests is forgotten.
    DropNbdFua,
    /// An NBD FLUSH is answered by the front end.
    AnswerNbdFlush,
    /// An NBD request that the engine dropped is answered as done.
    LostNbdSucceeds,
    /// An NBD request that failed is answered as done.
    FailedNbdSucceeds,
    /// What an NBD peer sent of a WRITE before it went is written.
    WriteHalfPayload,
    /// NBD's WRITE_ZEROES frees space that the client wants kept.
    FreeKeptZeroes,
    /// An export that is read-only takes NBD writes.
    WriteReadOnlyNbd,
    /// A payload that must be skipped is taken for the next requests.
    ForgetSkip,
    /// `fsync` of the block file is answered by the front end.
    AnswerFsync,
    /// Writes through an `O_DSYNC` descriptor of the block file go without FUA.
    DropDsyncFlag,
    /// Of a discard in pieces the end counts, not what failed before.
    LastPieceCounts,
}

/// All of them.
pub const LIVE_MUTANTS: [LiveMutant; 25] = [
    LiveMutant::FlushNothing,
    LiveMutant::FlushHereNothing,
    LiveMutant::DropDsync,
    LiveMutant::ForgetFlushError,
    LiveMutant::ZeroFirstPiece,
    LiveMutant::ServeCut,
    LiveMutant::ServeOvertaken,
    LiveMutant::NoLookAfterGap,
    LiveMutant::ClaimAtOnce,
    LiveMutant::TakeEitherTwin,
    LiveMutant::CleanAfterFailure,
    LiveMutant::MediaFlushNothing,
    LiveMutant::PatchHeadOnly,
    LiveMutant::ReadOverPayload,
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

/// Was this rule taken out?
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
/// Was this rule taken out? (Never, in a build without the feature.)
#[cfg(not(any(test, feature = "mutants")))]
#[inline(always)]
#[allow(clippy::inline_always)]
pub(crate) fn broken(_m: LiveMutant) -> bool {
    false
}
