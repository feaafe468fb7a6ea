//! Safety rules that can be taken out, one at a time, to prove that the test suites notice.
//!
//! Only with the `mutants` feature can one be chosen; without it [`Engine::broken`] is a constant `false` and the compiler
//! removes the branches. The chaos and crash suites must fail under every one of these (`crates/lab/tests/mutants.rs`).

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
    /// After a failed flush, later ones succeed.
    ForgetFailedFlush,
    /// A discard does not wait for writes in flight.
    DiscardUnderWriter,
    /// Odd writes to one block are not serialised.
    UnserialisedEdges,
    /// A slow slot is given out although the mirror does not know that it is free.
    ReuseBeforeMirror,
    /// A short transfer counts as a whole one.
    TrustShortTransfer,
}

/// All of them.
pub const MUTANTS: [Mutant; 18] = [
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
    Mutant::ForgetFailedFlush,
    Mutant::DiscardUnderWriter,
    Mutant::UnserialisedEdges,
    Mutant::ReuseBeforeMirror,
    Mutant::TrustShortTransfer,
];

impl Engine {
    /// Was this rule taken out?
    #[cfg(feature = "mutants")]
    #[inline]
    pub(super) fn broken(&self, m: Mutant) -> bool {
        self.params.mutant == Some(m)
    }
    /// Was this rule taken out? (Never, in a build without the feature.)
    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    #[allow(clippy::unused_self, clippy::inline_always)]
    pub(super) fn broken(&self, _m: Mutant) -> bool {
        false
    }
}

impl Engine {
    /// Take a rule out of a running engine.
    #[cfg(feature = "mutants")]
    pub fn break_rule(&mut self, m: Mutant) {
        self.params.mutant = Some(m);
    }
}
