//! Calls on tiers that have not returned yet, for `status`: what waits for a disk or server that does not answer.

use super::Tiers;
use crate::catalogue::NodeId;
use crate::sync::lock;
use crate::tree::Tier;
use isotherm_answers::files as answers;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A call that lasts longer is shown.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
/// A tier on which a read or an open lasts longer counts as failing: the kernel itself gives a disk 30 s for a command.
const FAILS_AFTER: Duration = Duration::from_secs(30);

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Open,
    Read,
    /// A write, or another change of the data.
    Write,
    Sync,
    /// A change of attributes.
    Attributes,
    /// A call of a move.
    Move,
}

impl Kind {
    fn call(self) -> answers::Call {
        use answers::Call;
        match self {
            Kind::Open => Call::Open,
            Kind::Read => Call::Read,
            Kind::Write => Call::Write,
            Kind::Sync => Call::Sync,
            Kind::Attributes => Call::Attributes,
            Kind::Move => Call::Move,
        }
    }
    /// Whether such a call is short unless something is wrong. A sync of much data may take minutes.
    fn is_short(self) -> bool {
        matches!(self, Kind::Open | Kind::Read)
    }
}

#[derive(Clone, Copy, Debug)]
struct Call {
    since: Instant,
    node: NodeId,
    kind: Kind,
}

/// The calls on one tier that have not returned yet.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    all: Mutex<(u64, BTreeMap<u64, Call>)>,
}

/// A call is in progress until this is dropped.
pub(crate) struct Waiting<'a>(Option<(&'a Waits, u64)>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some((waits, number)) = self.0 {
            waits.all().1.remove(&number);
        }
    }
}

impl Waits {
    fn all(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Call>)> {
        lock(&self.all)
    }
    fn begin(&self, call: Call) -> Waiting<'_> {
        let mut all = self.all();
        all.0 += 1;
        let number = all.0;
        all.1.insert(number, call);
        Waiting(Some((self, number)))
    }
    /// Whether a call that should be short lasts too long.
    fn hangs(&self) -> bool {
        let all = self.all();
        let mut calls = all.1.values();
        calls.any(|c| c.kind.is_short() && c.since.elapsed() >= FAILS_AFTER)
    }
    /// The number of calls that have lasted for a while, and the first of them.
    fn long(&self) -> Option<(usize, Call)> {
        let all = self.all();
        let mut long = all.1.values().filter(|c| c.since.elapsed() >= SHOWN_AFTER);
        let first = long.next().copied()?;
        Some((1 + long.count(), first))
    }
}

impl Tiers {
    /// A call on a tier begins. Those on the fastest one are not counted: it is always there.
    pub(crate) fn waits_for(&self, tier: Tier, node: NodeId, kind: Kind) -> Waiting<'_> {
        if tier == 0 {
            return Waiting(None);
        }
        let since = Instant::now();
        self.disk(tier).waits.begin(Call { since, node, kind })
    }
    /// Whether a read or open on a tier has not returned for half a minute.
    pub(crate) fn is_silent(&self, tier: Tier) -> bool {
        self.disk(tier).waits.hangs()
    }
    /// Whether a call on a tier on a network would wait for its server: one has waited for a second, and the server does not answer a
    /// question about its space within a second either.
    pub(crate) fn would_wait(&self, tier: Tier) -> bool {
        let root = self.root(tier);
        if root.local || root.absent || self.disk(tier).waits.long().is_none() {
            return false;
        }
        // If another thread has asked, this returns at once.
        let asked = root.room();
        asked.is_err() || root.is_asked()
    }
    /// Whether any call on a slower tier has lasted for a while.
    pub(crate) fn is_waiting(&self) -> bool {
        self.disks.iter().any(|d| d.waits.long().is_some())
    }
    /// A file whose move has waited for one call that long, and the tier.
    pub(crate) fn move_hangs(&self, limit: Duration) -> Option<(NodeId, Tier)> {
        let hung = |w: &Waits| {
            let all = w.all();
            let mut calls = all.1.values();
            let moved = calls.find(|c| c.kind == Kind::Move && c.since.elapsed() >= limit);
            moved.map(|c| c.node)
        };
        let mut tiers = self.disks.iter().enumerate();
        tiers.find_map(|(t, d)| Some((hung(&d.waits)?, t as Tier)))
    }
    /// The calls on a tier that have lasted for a while, for `status`: their number, and the longest.
    pub(crate) fn waiting(
        &self,
        tier: Tier,
        shown: impl Fn(NodeId) -> String,
    ) -> Option<answers::Waiting> {
        let (calls, first) = self.disk(tier).waits.long()?;
        Some(answers::Waiting {
            calls,
            longest_s: first.since.elapsed().as_secs_f64(),
            call: first.kind.call(),
            path: shown(first.node),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_calls_are_shown_and_short_ones_that_last_are_a_failure() {
        let waits = Waits::default();
        let ago = |s| Instant::now().checked_sub(Duration::from_secs(s)).unwrap();
        let call = |kind, s| Call {
            since: ago(s),
            node: 7,
            kind,
        };
        let new = waits.begin(call(Kind::Read, 0));
        assert!(waits.long().is_none() && !waits.hangs());
        let sync = waits.begin(call(Kind::Sync, 40));
        let read = waits.begin(call(Kind::Read, 3));
        let (calls, first) = waits.long().unwrap();
        assert_eq!((calls, first.kind), (2, Kind::Sync));
        assert!(!waits.hangs(), "a long sync is no failure");
        let open = waits.begin(call(Kind::Open, 31));
        assert!(waits.hangs());
        drop((open, sync));
        assert_eq!(waits.long().map(|l| (l.0, l.1.kind)), Some((1, Kind::Read)));
        assert!(!waits.hangs());
        drop((read, new));
        assert!(waits.all().1.is_empty());
    }

    /// The server is away: what the kernel knows is answered. A call that lasts, or an open question about space, alone does not mean that.
    #[test]
    fn attributes_of_a_file_in_use_do_not_wait_for_a_server_that_is_away() {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, node, live) = crate::store::with_a_file(dir.path());
        store.write(&live, 0, b"12345", false).unwrap();
        assert_eq!(store.move_file(node, 1), crate::mover::Outcome::Done);
        assert!(!store.would_wait(1), "local");
        store.tiers.roots.first_mut()[1].local = false;
        assert!(!store.would_wait(1), "nothing waits");
        let long = store.tiers.disks[1].waits.begin(Call {
            since: Instant::now().checked_sub(SHOWN_AFTER).unwrap(),
            node,
            kind: Kind::Move,
        });
        assert!(!store.would_wait(1), "a long move, and the server answers");
        store.roots[1].leave_open(true);
        assert!(store.would_wait(1));
        assert_eq!(store.facts(node).unwrap().size, 5);
        drop(long);
        assert!(!store.would_wait(1), "a slow answer alone");
        store.roots[1].leave_open(false);
        assert_eq!(store.facts(node).unwrap().size, 5);
        store.release(&live);
    }
}
