//! Safety rules of the mover that tests can remove, one at a time, to prove that the hostile trees notice.
//!
//! A rule can be removed only with the `mutants` feature. Without it, `broken` is a constant `false` and the compiler removes the branches.
//! `tests/hostile/` must fail with each of these rules removed.

/// One removed rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The copy is not synced before the intent says that it is complete.
    SkipCopySync,
    /// The entry of the copy in the hidden directory is not synced before the intent names it.
    SkipTempDirSync,
    /// The intent is written but not synced before the first change that it covers.
    SkipIntentSync,
    /// No intent is written.
    SkipIntent,
    /// A write during the copy is not noticed.
    TrustOldCopy,
    /// Only the first of several hard links is moved.
    MoveOneName,
    /// The intent is removed before the new names are durable.
    ForgetTargetSync,
    /// Directories above the new name are not synced.
    SkipAncestors,
    /// Extended attributes, mode and times are not copied.
    ForgetAttributes,
    /// The source is unlinked before the intent is durable.
    UnlinkFirst,
    /// Recovery accepts a torn intent.
    TrustTornIntent,
    /// Recovery continues with an intent whose first op was not done and cannot be done.
    TrustVoidIntent,
    /// A file is moved although its old names cannot be removed.
    IgnoreFlags,
    /// A file is moved although the file system of its tier accepts no changes any more.
    TrustSource,
    /// A write while a file is copied to the fastest tier is not noticed.
    TrustOldFetch,
    /// A change is made at home only, and the copy is still read.
    ForgetUpdate,
    /// A copy that could not be changed is still read.
    TrustFailedUpdate,
    /// A copy is still read after a change at home that failed and may have been done in part.
    TrustFailedHome,
    /// A copy is used although its file was changed directly on its tier.
    TrustChangedHome,
    /// The copy of a file is opened without a comparison with the file at home, even though the kernel has the latter in memory.
    NeverLook,
    /// A copy is opened without a comparison with the file at home, although it does not match the attributes that the catalogue has of
    /// that file.
    TrustOldRecord,
    /// The last name of a file of which only the copy is open is removed before the file at home is opened.
    ForgetSleeper,
    /// A copy is kept over a remount although its file was changed meanwhile.
    TrustKeptHome,
    /// A copy is kept over a remount although it was changed itself.
    TrustKeptCopy,
    /// A head is read beyond the bytes that it holds.
    ReadBeyondHead,
    /// A head is still read after a change of its file.
    KeepHead,
    /// A write does not reach the ranges of its file.
    ForgetRange,
    /// A range is still read after its file was cut off in it.
    KeepCutRange,
    /// A range that was read while its file was changed is kept.
    TrustOldFill,
    /// Recovery keeps copies.
    KeepCopies,
    /// A number of a node that was given back still names what has its place now.
    TrustNumber,
    /// A name is removed without a look at whose it is.
    RemoveUnseen,
    /// Only the first name of a file is compared with those of the target tier.
    OneClash,
    /// A copy replaces what has its name.
    ReplaceForeign,
    /// The number in the attribute of a file is taken for its own without a comparison.
    TrustCopiedNumber,
    /// The files of a disk that joins keep the numbers that they have in themselves.
    TrustForeignNumber,
    /// A copy does not get the number of its file.
    ForgetNumber,
    /// Numbers are given out before the fastest tier says so.
    SkipReserve,
    /// The numbers of files that others have made are not stored.
    ForgetFound,
    /// A table of numbers is used although its check sum is wrong.
    TrustTornTable,
    /// Two files keep the same number.
    KeepDuplicate,
    /// Numbers that may be given out a second time have the same generation as the first time.
    KeepGeneration,
    /// A new file is shown without a number of its own in the file or the table.
    ForgetNew,
    /// The change time from before a move is shown although the file was changed since.
    TrustOldTime,
    /// Links in the place of directories are followed.
    FollowLinks,
    /// Pipes and devices are opened like files.
    OpenAnything,
    /// The disks of a tier have their numbers by the order in which they are named.
    TrustOrder,
    /// A disk of the last mount may be left out.
    ForgetDisk,
    /// Disks of a set may be mounted with a fast tier that does not know them.
    ForgetFast,
    /// Disks get other numbers while an intent says the old ones.
    TrustNumbers,
    /// A disk that is being emptied gets new files.
    FillDrained,
    /// A disk counts as empty when no regular file is left.
    DrainFilesOnly,
    /// A disk counts as empty although others have put files there that are not shown.
    TrustNames,
    /// A disk of another mount may join.
    TrustStranger,
    /// The list of the disks has one that joins before that disk has its id.
    ListFirst,
    /// A disk that joins may have names that others have.
    JoinClashes,
}

#[cfg(feature = "mutants")]
mod choice {
    use super::Mutant;
    use std::cell::Cell;

    thread_local! {
        static CHOSEN: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Removes a rule, on this thread.
    pub fn choose(mutant: Option<Mutant>) {
        CHOSEN.with(|c| c.set(mutant));
    }

    pub(crate) fn broken(mutant: Mutant) -> bool {
        CHOSEN.with(|c| c.get() == Some(mutant))
    }
}

#[cfg(feature = "mutants")]
pub use choice::choose;

#[cfg(feature = "mutants")]
pub(crate) use choice::broken;

#[cfg(not(feature = "mutants"))]
pub(crate) const fn broken(_: Mutant) -> bool {
    false
}

/// Faults at one call on a disk, for a process that a test has started for that.
#[cfg(feature = "mutants")]
mod fault {
    use rustix::io::Errno;
    use std::path::Path;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static AT: OnceLock<(u64, Option<String>)> = OnceLock::new();
    static CALLS: AtomicU64 = AtomicU64::new(0);

    /// Before the call `at` from now on, this process is killed; or, from that call on, those on the disk `gone` fail with EIO.
    pub fn fault(at: u64, gone: Option<&str>) {
        // Only the first one counts.
        let _ = AT.set((at, gone.map(str::to_owned)));
    }
    /// Number of calls since then.
    pub fn calls() -> u64 {
        CALLS.load(Ordering::SeqCst)
    }
    pub(crate) fn step(disk: &Path) -> Result<(), Errno> {
        let Some((at, gone)) = AT.get() else {
            return Ok(());
        };
        let now = CALLS.fetch_add(1, Ordering::SeqCst) + 1;
        match gone {
            None if now == *at => std::process::abort(),
            Some(gone) if now >= *at && disk.ends_with(gone) => Err(Errno::IO),
            _ => Ok(()),
        }
    }
}

#[cfg(feature = "mutants")]
pub use fault::{calls, fault};

#[cfg(feature = "mutants")]
pub(crate) use fault::step;

#[cfg(not(feature = "mutants"))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature it can fail")]
pub(crate) const fn step(_: &std::path::Path) -> Result<(), rustix::io::Errno> {
    Ok(())
}
