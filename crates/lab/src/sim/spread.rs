//! The places on the drive of the slots of the slowest tier.
//!
//! There are rows for the touched extents only, and slot *n* of the slowest tier belongs to row *n* until its first touch. On the traced
//! disk these extents were apart, with untouched data between them over which the arm had to travel. So each slot is placed where its
//! extent was, counted from the lowest touched extent.

use std::ops::Range;

use roaring::RoaringTreemap;

/// The member offsets of a member's slots.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    /// For each slot, the distance of its extent from the first slot's extent, in extents.
    at: Vec<u32>,
    /// Member offset of the first slot.
    data: u64,
    shift: u32,
    /// Member offset of the tail of a disk of a cache volume, and the bytes of its stash; 0, 0: there is none.
    stash: (u64, u64),
    /// Byte of the drive at which the first slot lies.
    lead: u64,
}

impl Spread {
    /// Slots `slots` of the tier, whose extents are `addresses`, on a member with `room` extents after `data` bytes of metadata. If they do
    /// not fit, all gaps shrink by the same factor and runs stay contiguous.
    pub fn new(
        slots: Range<u64>,
        addresses: &RoaringTreemap,
        room: u64,
        data: u64,
        shift: u32,
    ) -> Spread {
        let n = (slots.end - slots.start) as usize;
        let mine = || addresses.iter().skip(slots.start as usize).take(n);
        let first = mine().next().unwrap_or(0);
        let last = mine().max().unwrap_or(first);
        let gaps = (last - first + 1).saturating_sub(n as u64);
        let room = room.min(u64::from(u32::MAX)).saturating_sub(n as u64);
        let share = |gap: u64| {
            if gaps <= room {
                gap
            } else {
                (u128::from(gap) * u128::from(room) / u128::from(gaps)) as u64
            }
        };
        let at = mine()
            .enumerate()
            .map(|(i, e)| {
                let i = i as u64;
                (i + share(e - first - i)) as u32
            })
            .collect();
        Spread {
            at,
            data,
            shift,
            stash: (0, 0),
            lead: data,
        }
    }

    /// The same on a disk of a cache volume whose tail begins at `at` with a stash of `bytes`. The stash is where the disk's first bytes are on
    /// a real disk; here the first extents of a trace need not be the first of the disk, so they lie at their addresses, too.
    /// With a stash, the first slot is at byte `lead` of the drive, as on a disk alone, so that both are compared at the same places.
    pub fn with_stash(self, at: u64, bytes: u64, lead: u64) -> Spread {
        Spread {
            lead: if at > 0 { lead } else { self.lead },
            stash: (at, bytes),
            ..self
        }
    }

    /// The end of the last slot, as a member offset.
    pub fn end(&self) -> u64 {
        let last = self.at.last().map_or(0, |a| u64::from(*a) + 1);
        self.lead + (last << self.shift)
    }

    /// The contiguous pieces of `[offset, offset + len)` on the drive.
    #[inline]
    pub fn pieces(&self, offset: u64, len: u32, mut each: impl FnMut(u64, u32)) {
        let in_tail = offset
            .checked_sub(self.stash.0)
            .filter(|_| self.stash.0 > 0);
        let from = match in_tail {
            Some(at) if at >= self.stash.1 => {
                return each(self.end() + at - self.stash.1, len); // metadata
            }
            Some(at) => at,
            None => match offset.checked_sub(self.data) {
                Some(from) => from,
                None => return each(offset, len), // metadata
            },
        };
        let extent = 1u64 << self.shift;
        let (first, last) = (
            from >> self.shift,
            (from + u64::from(len).max(1) - 1) >> self.shift,
        );
        let start = |slot: u64| self.lead + (u64::from(self.at[slot as usize]) << self.shift);
        let within = from & (extent - 1);
        let (mut at, mut run) = (start(first) + within, (extent - within).min(u64::from(len)));
        let mut left = u64::from(len) - run;
        for slot in first + 1..=last {
            let more = left.min(extent);
            let here = start(slot);
            if here == at + run {
                run += more;
            } else {
                each(at, run as u32);
                (at, run) = (here, more);
            }
            left -= more;
        }
        each(at, run as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(s: &Spread, offset: u64, len: u32) -> Vec<(u64, u32)> {
        let mut out = Vec::new();
        s.pieces(offset, len, |at, n| out.push((at, n)));
        out
    }

    #[test]
    fn slots_lie_where_their_extents_lay() {
        let touched: RoaringTreemap = [100, 101, 105, 1000].into_iter().collect();
        let s = Spread::new(0..4, &touched, 1 << 20, 8192, 12);
        assert_eq!(s.end(), 8192 + 901 * 4096);
        assert_eq!(pieces(&s, 4096, 4096), [(4096, 4096)], "metadata");
        assert_eq!(pieces(&s, 8192 + 100, 8000), [(8292, 8000)], "neighbours");
        // Slots 1 to 3 are three pieces; the first one begins in the middle of slot 1.
        assert_eq!(
            pieces(&s, 8192 + 4096 + 2048, 2048 + 4096 + 512),
            [
                (8192 + 4096 + 2048, 2048),
                (8192 + 5 * 4096, 4096),
                (8192 + 900 * 4096, 512)
            ]
        );
        // The second of two members begins at its own first slot.
        let second = Spread::new(2..4, &touched, 1 << 20, 0, 12);
        assert_eq!(second.end(), 896 * 4096);
    }

    #[test]
    fn gaps_shrink_to_what_there_is() {
        let touched: RoaringTreemap = [0, 1, 10_000, 10_001, 20_000].into_iter().collect();
        let s = Spread::new(0..5, &touched, 105, 0, 12);
        assert_eq!(s.at, [0, 1, 52, 53, 104]);
    }
}
