//! The moves that ended recently. They are only for display, and no decision depends on them.

use crate::policy::{Action, Outcome};
use crate::units::Nanos;
use alloc::vec::Vec;
use core::fmt;

/// Number of moves that are remembered.
const KEPT: usize = 128;

/// A move that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedMove {
    /// The time of its end.
    pub at: Nanos,
    /// The requested action.
    pub action: Action,
    /// Whether it went to a faster tier.
    pub up: bool,
    /// Whether the engine itself started it, and not the policy: to make room for a home, or because another policy left data behind.
    pub own: bool,
    /// Its outcome; never a refusal, because a refused move does not start.
    pub how: Outcome,
}

/// A ring of the last 128 moves that ended. Its memory is allocated once.
#[derive(Clone)]
pub struct RecentMoves {
    ring: Vec<EndedMove>,
    /// Number of all moves that ended.
    count: u64,
}

impl RecentMoves {
    pub(super) fn new() -> RecentMoves {
        RecentMoves {
            ring: Vec::with_capacity(KEPT),
            count: 0,
        }
    }
    pub(super) fn note(&mut self, ended: EndedMove) {
        let at = (self.count % KEPT as u64) as usize;
        match self.ring.get_mut(at) {
            Some(old) => *old = ended,
            None => self.ring.push(ended),
        }
        self.count += 1;
    }
    /// The moves, newest first.
    pub fn newest(&self) -> impl Iterator<Item = &EndedMove> {
        let (after, before) = self
            .ring
            .split_at((self.count % KEPT as u64) as usize % self.ring.len().max(1));
        after.iter().rev().chain(before.iter().rev())
    }
    /// Number of moves that ended since the engine was created.
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// The text is short, because it is part of the report of a run that hangs.
impl fmt::Debug for RecentMoves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} moves ended", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ExtentId;

    #[test]
    fn the_newest_come_first_and_the_oldest_are_forgotten() {
        let mut l = RecentMoves::new();
        let seen = |l: &RecentMoves| l.newest().map(|e| e.at.0).collect::<Vec<_>>();
        assert!(seen(&l).is_empty());
        for n in 0..300 {
            l.note(EndedMove {
                at: Nanos(n),
                action: Action::Evict {
                    extent: ExtentId(1),
                },
                up: false,
                own: false,
                how: Outcome::Done,
            });
            let all: Vec<u64> = (0..=n).rev().take(KEPT).collect();
            assert_eq!(seen(&l), all);
        }
        assert_eq!((l.count(), l.ring.capacity()), (300, KEPT));
    }
}
