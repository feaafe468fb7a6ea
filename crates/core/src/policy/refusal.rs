//! The reasons why the engine refuses what a policy proposes.

/// Reason why the engine refused an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The extent has no home, is there already, or the tier does not exist.
    Pointless,
    /// The extent is moving already, or requests to it are in flight.
    Busy,
    /// The target tier has no free slot.
    Full,
    /// The maximum number of concurrent moves (MCML) is reached.
    Limit,
    /// Metadata is being flushed.
    MetadataFlush,
    /// The bandwidth budget for moves is exhausted, foreground latency exceeds its limit, or a promise to a class is not kept.
    Throttled,
    /// The volume is closing, read-only or failed.
    Closed,
    /// The volume's checkpoints have no room for copies.
    NoCopies,
    /// The wear budget of the fastest tier does not allow it now.
    WearBudget,
    /// The action needs a disk that sleeps. It can be proposed again when the disk is awake, or when a limit of held work is reached.
    Asleep,
    /// The members take more power than the budget allows.
    PowerBudget,
}

/// Names of the refusals, in the order of the enum, for counters.
pub const REFUSALS: [&str; 11] = [
    "pointless",
    "busy",
    "full",
    "limit",
    "metadata_flush",
    "throttled",
    "closed",
    "no_copies",
    "wear_budget",
    "asleep",
    "power_budget",
];
