//! How often what is asked for once is asked for again before a copy of it would have gone: measured on a sample of extents, whether they
//! are copied or not, so that a policy which copies nothing learns all the same.
//!
//! A *life* of an extent is a run of accesses no further apart than `window` misses, about as long as a copy stays. Of a sampled access
//! it is asked: did another follow it within that time? The answers are kept by how many accesses the life had
//! (1, 2, 3, 4 and more). A yes is known at once, a no when the time is over: after a change of the work the estimate is too high for a
//! while, not too low. The policy's 16 bits of an extent hold that number and a counter of its accesses.

use alloc::collections::VecDeque;

/// Lengths of a life that are told apart.
const CLASSES: usize = 4;
/// Accesses that wait for their answer, at most; beyond, every second, fourth … extent is sampled.
const PENDING: u32 = 2048;
/// Old answers count half when there are so many.
const FADE: u32 = 512;

/// An access that waits for its answer.
#[derive(Clone, Copy, Debug)]
struct Pending {
    unit: u32,
    clock: u32,
    /// The policy's 16 bits of the unit after it.
    stat: u16,
}

/// See the module. 12 bytes for each of 2048 accesses at most.
#[derive(Clone, Debug, Default)]
pub struct Reuse {
    /// Misses.
    window: u32,
    /// Extents are sampled whose hash has so many zero bits at the top.
    skip: u32,
    pending: VecDeque<Pending>,
    /// By class: answers, and how many of them were yes.
    answers: [u32; CLASSES],
    yes: [u32; CLASSES],
}

fn class(stat: u16) -> usize {
    usize::from(stat & 3)
}

impl Reuse {
    /// A copy stays for about so many misses.
    pub fn new(window: u32) -> Reuse {
        Reuse {
            window: window.max(1),
            skip: (window / PENDING).checked_ilog2().map_or(0, |n| n + 1),
            ..Reuse::default()
        }
    }
    /// An access to `unit`, whose 16 bits are `stat` and whose access before was `age` misses ago (`None`: there was none). What
    /// the bits are now.
    pub fn touch(&mut self, unit: u32, stat: u16, age: Option<u32>, clock: u32) -> u16 {
        let lives = age.is_some_and(|a| a <= self.window);
        let class = if lives { (stat & 3) + 1 } else { 0 }.min(CLASSES as u16 - 1);
        let before = usize::from(stat & 3);
        let stat = (stat & !3).wrapping_add(4) | class;
        let hash = unit.wrapping_mul(0x9e37_79b1);
        if self.skip == 0 || hash >> (32 - self.skip.min(31)) == 0 {
            if lives {
                self.answer(before, true);
            }
            if self.pending.len() == 2 * PENDING as usize {
                self.pending.pop_front();
            }
            self.pending.push_back(Pending { unit, clock, stat });
        }
        stat
    }
    /// Say no for what nothing followed until `clock`; `stat` gives the 16 bits of a unit.
    pub fn settle(&mut self, clock: u32, stat: impl Fn(u32) -> u16) {
        while let Some(p) = self
            .pending
            .front()
            .filter(|p| clock.wrapping_sub(p.clock) > self.window)
        {
            let (class, followed) = (class(p.stat), stat(p.unit) != p.stat);
            self.pending.pop_front();
            if !followed {
                self.answer(class, false);
            }
        }
    }
    fn answer(&mut self, class: usize, yes: bool) {
        self.answers[class] += 1;
        self.yes[class] += u32::from(yes);
        if self.answers[class] == FADE {
            self.answers[class] /= 2;
            self.yes[class] /= 2;
        }
    }
    /// Accesses that are still to come to an extent with these bits while a copy of it stays, in thousandths. Without answers
    /// every second access is taken to be followed by another.
    pub fn expected(&self, stat: u16) -> u64 {
        let chance = |c: usize| {
            let (n, yes) = (u64::from(self.answers[c]), u64::from(self.yes[c]));
            (yes + 1) * 1000 / (n + 2)
        };
        let last = chance(CLASSES - 1).min(990);
        let mut more = last * 1000 / (1000 - last);
        for c in (class(stat)..CLASSES - 1).rev() {
            more = chance(c) * (1000 + more) / 1000;
        }
        more
    }
    /// Memory, bytes.
    pub fn bytes(&self) -> usize {
        self.pending.capacity() * size_of::<Pending>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Accesses in that order, each a miss; the expectation after the first access to a new extent, in thousandths.
    fn expectation(window: u32, units: impl Iterator<Item = u32>) -> u64 {
        let mut r = Reuse::new(window);
        let mut stats = vec![(0u16, None); 100_000];
        for (clock, u) in (0u32..).zip(units) {
            let (stat, last) = stats[u as usize];
            let age = last.map(|l: u32| clock - l);
            stats[u as usize] = (r.touch(u, stat, age, clock), Some(clock));
            r.settle(clock, |u| stats[u as usize].0);
        }
        r.expected(0)
    }

    #[test]
    fn one_time_data_is_known_as_such() {
        assert_eq!(expectation(100, core::iter::empty()), 1000);
        assert!(expectation(100, 0..2000) < 10);
        // Also where only some are sampled.
        assert!(expectation(50_000, 0..100_000) < 20);
    }

    #[test]
    fn what_comes_again_in_time_is_worth_waiting_for() {
        let looped = |n: u32| (0..20_000).map(move |i| i % n);
        assert!(expectation(100, looped(50)) > 10_000);
        // A loop that is longer than a copy stays gains nothing.
        assert!(expectation(100, looped(150)) < 20);
        // Twice each, and never again.
        let twice = expectation(100, (0..20_000).map(|i| i / 2));
        assert!((900..1100).contains(&twice), "{twice}");
    }
}
