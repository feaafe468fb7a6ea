//! Safety rules of the mover that tests can take out, one at a time, to prove that the hostile trees notice.
//!
//! Only with the `mutants` feature can one be chosen; without it `broken` is a constant `false` and the compiler removes the
//! branches. `tests/hostile/` must fail under every one of these.

/// One removed rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The copy is not synced before the intent says that it is whole.
    SkipCopySync,
    /// The entry of the copy in the hidden directory is not synced before the intent names it.
    SkipTempDirSync,
    /// The intent is written but not synced before the first change that it covers.
    SkipIntentSync,
    /// No intent at all.
    SkipIntent,
    /// What was written during the copy is not noticed.
    TrustOldCopy,
    /// Only the first of several hard links is moved.
    MoveOneName,
    /// The intent is taken away before the new names are durable.
    ForgetTargetSync,
    /// Directories above the new name are not synced.
    SkipAncestors,
    /// Extended attributes, mode and times stay behind.
    ForgetAttributes,
    /// The source is unlinked before the intent is durable.
    UnlinkFirst,
    /// Recovery believes an intent that was torn.
    TrustTornIntent,
    /// Recovery carries on with an intent whose first step can neither be done nor was done.
    TrustVoidIntent,
}

#[cfg(feature = "mutants")]
mod choice {
    use super::Mutant;
    use std::cell::Cell;

    thread_local! {
        static CHOSEN: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Take a rule out, on this thread.
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
